// Package mirrormsg has the wire types of the cluster-mirroring RPCs of KIP-1279 (early 2026), at version 0, each a
// kmsg.Request or kmsg.Response for kgo.Client.Request and kgo.Broker.Request. It depends on franz-go alone.
//
// # Using it with kgo
//
// A kgo client refuses to send keys that its MaxVersions do not name ("request key is unknown"), and by default these are
// the keys of released Kafka. So make the client with
//
//	client, err := kgo.NewClient(kgo.SeedBrokers("gateway:9092"), kgo.MaxVersions(mirrormsg.Versions()))
//	req := mirrormsg.NewPtrDescribeMirrorsRequest()
//	resp, err := req.RequestWith(ctx, client)
//
// Beyond that the broker's ApiVersions must list the key, which a gateway's does ("broker is too old" otherwise). If the
// gateway's configuration moves a key, send WithKey(req, key) and give the key to Versions.
//
// Errors travel in ErrorCode fields, as everywhere in Kafka: Request returns a nil error for an answer that refuses.
// A kgo client retries a request whose connection died; CreateMirror is then answered with "already exists" if the first
// attempt had arrived, the other RPCs can be repeated.
//
// # What is beyond the KIP
//
// Field order and types are the KIP's. Additions travel in tagged fields, so that either side may be built from the KIP
// alone: a tagged field with its default value is not sent, and tags that this package does not know are kept in
// UnknownTags and sent again. The RPCs with the keys 102 to 104 are from later drafts.
//
// As everywhere with kmsg, make messages with the New functions, which set the defaults that are not Go's zero values.
// The messages are not safe for concurrent change. ReadFrom keeps no part of its input, refuses bytes left over, and
// allocates in proportion to its input at most.
package mirrormsg
