package security

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// peerUser is who the gateways are to each other.
const peerUser = "bob"

const backTopic = rightsPrefix + "-back"

// failback: there and back between two gateways whose clusters have SASL and ACLs. Each gateway has the rights of a destination at
// its own cluster, and logs in at the other gateway as a user with those of a source.
func failback(w *rightsWorld, rights []right) {
	var own, peer []right
	var describe right
	for _, r := range rights {
		switch {
		case r.side == "destination":
			own = append(own, r)
		case strings.HasSuffix(r.String(), "DESCRIBE cluster"):
			describe = r
		case r.resource != "topic `__mirror_state`":
			peer = append(peer, r)
		}
		if r.side == "source" {
			w.take(r) // of the mirror that is stopped
		}
	}
	w.grantAt(w.from, gatewayUser, own...)
	w.grantAt(w.from, peerUser, peer...)
	w.grantAt(w.to, peerUser, append(peer, describe)...)
	login := filepath.Join(w.t.TempDir(), "gateway.properties")
	must(w.t, kafkatest.WriteProperties(login, w.source.ClientProperties(gatewayUser, scram512)))
	there, here := rightsSite{w, w.destination, w.g}, rightsSite{w, w.source, harness.StartGateway(w.t,
		harness.GatewayOptions{Destination: w.source.Bootstrap(), Flags: []string{"--destination-config", login}})}
	harness.CreateTopics(w.t, w.source.InternalBootstrap(), harness.Topic{Name: backTopic, Partitions: 2})
	written := here.write(nil, "at home", 50)

	// Whoever may not ask what a gateway mirrors is told so.
	harness.CreateMirror(w.t, there.client(), "there", here.Bootstrap(), sourceConfig(w.source, peerUser, scram512)...)
	missing, err := there.add("there")
	if words := "the gateway's user needs " + describe.words; err == nil || !strings.Contains(missing, words) {
		w.t.Errorf("without %v: %v, no %q", describe, err, words)
	}
	w.grantAt(w.from, peerUser, describe)
	there.mustAdd("there")
	there.has(here, written)

	harness.RemoveTopics(w.t, there.client(), "there", backTopic)
	written = there.write(written, "away", 50)
	before, err := harness.Ends(w.ctx(), w.from, backTopic)
	must(w.t, err)
	harness.CreateMirror(w.t, here.client(), "back", there.Bootstrap(), sourceConfig(w.destination, peerUser, scram512)...)
	here.mustAdd("back")
	here.has(there, written)
	after, err := harness.Ends(w.ctx(), w.from, backTopic)
	must(w.t, err)
	w.t.Logf("%d records; the old source had %d offsets, and got %d more", len(written), harness.Total(before), harness.Total(after)-harness.Total(before))
}

// rightsSite is a cluster with its gateway.
type rightsSite struct {
	w       *rightsWorld
	cluster *kafkatest.Cluster
	*harness.Gateway
}

func (s rightsSite) client(opts ...kgo.Opt) *kgo.Client {
	s.w.t.Helper()
	return s.Client(s.w.t, append(opts, kgo.SASL(kafkatest.Mechanism(kafkatest.Admin, scram512)))...)
}

// add adds the topic to a mirror, and returns the message too.
func (s rightsSite) add(mirror string) (string, error) {
	login := filepath.Join(s.w.t.TempDir(), "admin.properties")
	must(s.w.t, kafkatest.WriteProperties(login, s.cluster.ClientProperties(kafkatest.Admin, scram512)))
	return harness.Run(s.w.t, "mirrors", "add-topics", "--bootstrap-server", s.Bootstrap(), "--command-config", login, "--mirror", mirror, "--topics", backTopic)
}

func (s rightsSite) mustAdd(mirror string) {
	s.w.t.Helper()
	if out, err := s.add(mirror); err != nil {
		s.w.t.Fatalf("%v\n%s", err, out)
	}
}

// write writes records through the gateway, and returns them behind those that were written before.
func (s rightsSite) write(written []string, text string, records int) []string {
	s.w.t.Helper()
	client := s.client(kgo.DefaultProduceTopic(backTopic))
	for n := range records {
		value := fmt.Sprint(text, " ", n)
		must(s.w.t, client.ProduceSync(s.w.ctx(), kgo.StringRecord(value)).FirstErr())
		written = append(written, value)
	}
	return written
}

// has waits until the topic is mirrored here, and compares what readers of both gateways get with what was written.
func (s rightsSite) has(from rightsSite, written []string) {
	s.w.t.Helper()
	harness.WaitSameEnds(s.w.t, from.cluster.InternalBootstrap(), s.cluster.InternalBootstrap(), time.Minute, backTopic)
	want := slices.Sorted(slices.Values(written))
	here, there := s.read(), from.read()
	if !slices.Equal(here, there) {
		s.w.t.Errorf("readers of both gateways get different records: %d and %d", len(here), len(there))
	}
	var values []string
	for _, r := range here {
		_, value, _ := strings.Cut(r, "=")
		values = append(values, value)
	}
	if slices.Sort(values); !slices.Equal(values, want) {
		s.w.t.Errorf("%d records were written, readers get %d", len(want), len(values))
	}
}

// read reads the topic through the gateway: partition, offset and value, in order.
func (s rightsSite) read() (records []string) {
	s.w.t.Helper()
	ends, err := harness.Ends(s.w.ctx(), harness.Admin(s.w.t, s.cluster.InternalBootstrap()), backTopic)
	must(s.w.t, err)
	for tp, end := range ends {
		client := s.client(kgo.KeepControlRecords(), kgo.FetchMaxWait(200*time.Millisecond),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{tp.Topic: {tp.Partition: kgo.NewOffset().AtStart()}}))
		for at := int64(0); at < end; {
			fetches := client.PollFetches(s.w.ctx())
			must(s.w.t, errors.Join(fetches.Err0(), context.Cause(s.w.ctx())))
			fetches.EachRecord(func(r *kgo.Record) {
				if at = r.Offset + 1; !r.Attrs.IsControl() {
					records = append(records, fmt.Sprintf("%d/%06d=%s", r.Partition, r.Offset, r.Value))
				}
			})
		}
	}
	slices.Sort(records)
	return records
}
