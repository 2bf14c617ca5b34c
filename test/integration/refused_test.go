package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// A batch that the destination's broker refuses: the topic's max.message.bytes is synced, but socket.request.max.bytes is the
// broker's own, and ends the connection without a word. That partition alone is FAILED, and says size, offset and setting;
// the others on the same connection, and in the same fetch session, go on. Once the broker takes more, it goes on by itself.
func TestBatchRefused(t *testing.T) {
	const mirror, limit = "refused", "socket.request.max.bytes=3000000"
	setting, value, _ := strings.Cut(limit, "=")
	random := harness.Random(t)
	from := source(t)
	to := kafkatest.Start(t, kafkatest.Options{Settings: map[string]string{setting: value}})
	refused := harness.Topic{Name: "refused", Partitions: 1, Configs: map[string]string{"max.message.bytes": "8388608"}}
	other := harness.Topic{Name: "refused-not", Partitions: 4}
	harness.CreateTopics(t, from, refused, other)
	writeLarge(t, from, random, refused.Name, 4<<20)
	harness.MustFill(t, from, random, 1000, other)

	gw := gateway(t, to)
	client := gw.Client(t)
	harness.CreateMirror(t, client, mirror, from)
	harness.AddTopics(t, client, mirror, refused.Name, other.Name)
	reason := regexp.MustCompile(`of 419\d{4} bytes for offset 1 .*socket\.request\.max\.bytes`)
	harness.Eventually(t, 2*time.Minute, "it is FAILED", func(ctx context.Context) error {
		described, err := harness.Describe(ctx, client, mirror)
		if p := described[refused.Name][0]; err == nil && (p.State != "FAILED" || !reason.MatchString(p.Reason)) {
			err = fmt.Errorf("it is %s %q, want %s", p.State, p.Reason, reason)
		}
		return err
	})
	harness.MustFill(t, from, random, 1000, other)
	harness.WaitMirrored(t, client, mirror, from, to.Bootstrap(), 2*time.Minute, other.Name)
	ends, err := harness.Ends(t.Context(), harness.Admin(t, to.Bootstrap()), refused.Name)
	if end := ends[harness.TopicPartition{Topic: refused.Name}]; err != nil || end != 1 {
		t.Errorf("the mirror ends at %d (%v), want 1", end, err)
	}

	file := filepath.Join(to.Dir, "node-1", "server.properties")
	properties, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	raised := strings.Replace(string(properties), limit, setting+"=30000000", 1)
	if raised == string(properties) {
		t.Fatalf("%s is not in %s", limit, file)
	}
	if err := os.WriteFile(file, []byte(raised), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := to.Restart(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 10*time.Minute, "it goes on by itself, at the latest after the longest pause between two tries", func(ctx context.Context) error {
		described, err := harness.Describe(ctx, client, mirror)
		if p := described[refused.Name][0]; err == nil && (p.State != "MIRRORING" || p.DestinationOffset != 3) {
			err = fmt.Errorf("it is %s at %d: %s", p.State, p.DestinationOffset, p.Reason)
		}
		return err
	})
	harness.WaitMirrored(t, client, mirror, from, to.Bootstrap(), time.Minute, other.Name)
	if n := harness.SameRecords(t, from, gw.Bootstrap(), refused.Name, other.Name); n != 2003 {
		t.Errorf("%d records are the same, want 2003", n)
	}
}

// writeLarge writes three batches, of which the second is large.
func writeLarge(t *testing.T, bootstrap string, random *rand.Rand, topic string, size int) {
	t.Helper()
	client := harness.Client(t, bootstrap, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchMaxBytes(8<<20), kgo.ProducerBatchCompression(kgo.NoCompression()))
	large := make([]byte, size)
	for i := range large {
		large[i] = byte(random.Uint32())
	}
	for _, value := range [][]byte{[]byte("before"), large, []byte("after")} {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}
