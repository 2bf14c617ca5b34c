package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// readPatience is how long a test's consumer may take for all that it reads.
const readPatience = 5 * time.Minute

// A group that had read part of a topic at the source goes on through the gateway at exactly the next record of every
// partition.
func TestGroupGoesOn(t *testing.T) {
	const perPartition = 1000
	topic := harness.Topic{Name: "moving", Partitions: 3}
	random := harness.Random(t)
	from, to := source(t), destination(t)
	harness.CreateTopics(t, from, topic)
	harness.MustFill(t, from, random, 3*perPartition, topic)
	group := "moving-group"
	want := consumePart(t, from, group, topic.Name, 700+random.IntN(1500))

	gw := gateway(t, to)
	client := gw.Client(t)
	harness.CreateMirror(t, client, "moving", from)
	harness.AddTopics(t, client, "moving", topic.Name)
	harness.WaitMirrored(t, client, "moving", from, to.Bootstrap(), time.Minute, topic.Name)
	admin := harness.Admin(t, gw.Bootstrap())
	harness.Eventually(t, time.Minute, "the group's offsets are at the destination", func(ctx context.Context) error {
		offsets, err := admin.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		for p, next := range want {
			if o, ok := offsets.Lookup(topic.Name, p); !ok || o.At != next {
				return fmt.Errorf("partition %d is committed at %d, want %d", p, o.At, next)
			}
		}
		return nil
	})

	seen := map[int32]int64{}
	consumer := gw.Client(t, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic.Name), kgo.DisableAutoCommit())
	rest := 3*perPartition - int(want[0]+want[1]+want[2])
	ctx, cancel := context.WithTimeout(t.Context(), readPatience)
	defer cancel()
	for range rest {
		record := pollOne(ctx, t, consumer)
		next, ok := seen[record.Partition]
		if !ok {
			next = want[record.Partition]
		}
		if record.Offset != next {
			t.Fatalf("partition %d went on at %d, want %d", record.Partition, record.Offset, next)
		}
		seen[record.Partition] = next + 1
	}
}

// consumePart reads n records as a group, commits and leaves, and returns the next offsets.
func consumePart(t *testing.T, bootstrap, group, topic string, n int) map[int32]int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readPatience)
	defer cancel()
	consumer := harness.Client(t, bootstrap, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxPartitionBytes(20_000))
	next := map[int32]int64{}
	var last []*kgo.Record
	for range n {
		record := pollOne(ctx, t, consumer)
		next[record.Partition] = record.Offset + 1
		last = append(last, record)
	}
	if err := consumer.CommitRecords(ctx, last...); err != nil {
		t.Fatal(err)
	}
	if err := consumer.LeaveGroupContext(ctx); err != nil {
		t.Fatal(err)
	}
	return next
}

func pollOne(ctx context.Context, t *testing.T, consumer *kgo.Client) *kgo.Record {
	t.Helper()
	for {
		fetches := consumer.PollRecords(ctx, 1)
		if err := fetches.Err(); err != nil {
			t.Fatalf("poll: %v", err)
		}
		if records := fetches.Records(); len(records) > 0 {
			return records[0]
		}
	}
}
