package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// Somebody writes to a mirror partition behind the gateway's back: that partition is FAILED with the offset in its
// reason and stays as it is, the others go on.
func TestForeignWrite(t *testing.T) {
	topic := harness.Topic{Name: "foreign", Partitions: 3}
	random := harness.Random(t)
	from, to := source(t), destination(t)
	harness.CreateTopics(t, from, topic)
	harness.MustFill(t, from, random, 3000, topic)
	gw := gateway(t, to)
	client := gw.Client(t)
	harness.CreateMirror(t, client, "foreign", from)
	harness.AddTopics(t, client, "foreign", topic.Name)
	harness.WaitMirrored(t, client, "foreign", from, to.Bootstrap(), time.Minute, topic.Name)

	intruder := harness.Client(t, to.Bootstrap(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	record := &kgo.Record{Topic: topic.Name, Partition: 1, Value: []byte("not from the source")}
	if err := intruder.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if record.Offset != 1000 {
		t.Fatalf("the foreign record is at %d, want 1000", record.Offset)
	}
	harness.MustFill(t, from, random, 300, topic)

	harness.Eventually(t, time.Minute, "one partition FAILED, the others went on", func(ctx context.Context) error {
		described, err := harness.Describe(ctx, client, "foreign")
		if err != nil {
			return err
		}
		failed := described[topic.Name][1]
		if failed.State != "FAILED" {
			return fmt.Errorf("partition 1 is %s %s", failed.State, failed.Reason)
		}
		if !strings.Contains(failed.Reason, "1000") {
			t.Fatalf("the reason %q does not name the offset 1000", failed.Reason)
		}
		for _, p := range []int32{0, 2} {
			if got := described[topic.Name][p]; got.State != "MIRRORING" || got.DestinationOffset != 1100 {
				return fmt.Errorf("partition %d is %s at %d, want MIRRORING at 1100", p, got.State, got.DestinationOffset)
			}
		}
		return nil
	})
	// What DescribeMirrors says is the record of it, which can be there first.
	harness.Eventually(t, time.Minute, "mirrorgate_mirror_partitions says so too", func(context.Context) error {
		if n := gw.Metric(t, "mirrorgate_mirror_partitions", `state="FAILED"`); n != 1 {
			return fmt.Errorf("%v partitions FAILED, want 1", n)
		}
		return nil
	})
	// Nothing may be written behind the foreign record, now or after a restart.
	gw.Kill()
	gw.Start(t)
	harness.MustFill(t, from, random, 300, topic)
	harness.Eventually(t, time.Minute, "the others go on after a restart", func(ctx context.Context) error {
		described, err := harness.Describe(ctx, gw.Client(t), "foreign")
		if err != nil {
			return err
		}
		if d := described[topic.Name]; d[0].DestinationOffset != 1200 || d[2].DestinationOffset != 1200 || d[1].State != "FAILED" {
			return fmt.Errorf("partitions %+v", d)
		}
		return nil
	})
	ends, err := harness.Ends(t.Context(), harness.Admin(t, to.Bootstrap()), topic.Name)
	if err != nil {
		t.Fatal(err)
	}
	// At most the batches that were under way when the foreign record came may stand behind it: here none was.
	if end := ends[harness.TopicPartition{Topic: topic.Name, Partition: 1}]; end > 1101 {
		t.Errorf("partition 1 ends at %d: it was written to after the foreign record was seen", end)
	}
}
