package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// A million records in 24 partitions, in every compression and of every shape, are the same on the other side: records,
// offsets and timestamps, and the very bytes of the batches, so that nothing was compressed anew.
func TestFidelity(t *testing.T) {
	sets := []struct {
		records int
		topic   harness.Topic
	}{
		{170_000, harness.Topic{Name: "fidelity-none", Partitions: 4}},
		{200_000, harness.Topic{Name: "fidelity-gzip", Partitions: 4, Codec: kgo.GzipCompression()}},
		{200_000, harness.Topic{Name: "fidelity-snappy", Partitions: 4, Codec: kgo.SnappyCompression(), MaxValue: 100}},
		{200_000, harness.Topic{Name: "fidelity-lz4", Partitions: 4, Codec: kgo.Lz4Compression()}},
		{200_000, harness.Topic{Name: "fidelity-zstd", Partitions: 4, Codec: kgo.ZstdCompression(), Large: 100_000}},
		{30_000, harness.Topic{Name: "fidelity-large", Partitions: 4, Plain: true, MaxValue: 1000, Large: 900_000}},
	}
	random := harness.Random(t)
	from, to := source(t), destination(t)
	var topics []harness.Topic
	for _, set := range sets {
		topics = append(topics, set.topic)
	}
	harness.CreateTopics(t, from, topics...)
	for _, set := range sets {
		harness.MustFill(t, from, random, set.records, set.topic)
	}
	names := harness.Names(topics)

	gw := gateway(t, to)
	client := gw.Client(t)
	began := time.Now()
	harness.CreateMirror(t, client, "fidelity", from, "mirror.merge.batches", "false")
	harness.AddTopics(t, client, "fidelity", names...)
	harness.WaitMirrored(t, client, "fidelity", from, to.Bootstrap(), 15*time.Minute, names...)
	t.Logf("mirrored in %v", time.Since(began))

	codecs := map[int]int{}
	read := harness.Client(t, from)
	written := harness.Client(t, to.Bootstrap())
	for _, topic := range topics {
		for p := range topic.Partitions {
			for codec, n := range harness.SameBatches(t, read, written, harness.TopicPartition{Topic: topic.Name, Partition: p}) {
				codecs[codec] += n
			}
		}
	}
	t.Logf("identical batches by codec: %v", codecs)
	for codec, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		if codecs[codec] == 0 {
			t.Errorf("no %s batch was compared", name)
		}
	}
	if n := harness.SameRecords(t, from, gw.Bootstrap(), names...); n != 1_000_000 {
		t.Errorf("compared %d records, want 1,000,000", n)
	}
	output, err := harness.Run(t, "verify", "--source", from, "--destination", gw.Bootstrap(), "--topics", strings.Join(names, ","))
	if err != nil {
		t.Errorf("mirrorgate verify: %v\n%s", err, output)
	}
}
