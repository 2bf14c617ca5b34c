// Package clients runs real client libraries and Kafka's own tools against a cluster directly and through a gateway, at the
// same time, and fails where something works directly and not through the gateway. Taps read every byte that clients of the
// gateway receive, and look for addresses of the cluster in it, while partitions change their leaders.
//
//	go test ./test/clients                          # the quick part, for CI
//	go test -tags clients -timeout 0 ./test/clients # everything (make clients), with the table of docs/clients.md
//
// The client programs are in programs, by language. A program gets BOOTSTRAP, CLIENT, RUNID, CHECKS, GAPS, ALLOWED and N in
// its environment, prints "@start CHECK" and then "@pass CHECK text", "@fail …" or "@skip …" for each check, and uses topics and
// groups whose names begin with kc-RUNID-CLIENT-. Everything that it needs comes from the package registries, by name, into
// $MIRRORGATE_CACHE (~/.cache/mirrorgate).
package clients
