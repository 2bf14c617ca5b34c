package replication

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// fairMemory is all the memory that there is in tests of fairness: a topic that catches up uses it to the full.
const fairMemory = 512 << 10

// fairly makes a configuration with little memory.
func fairly(cfg *Config) {
	cfg.Budget = NewBudget(fairMemory)
	cfg.Fetch.MaxBytes, cfg.Fetch.ResponseMax = fairMemory/4, fairMemory
}

// bigRecords are those of a topic of three partitions to catch up with.
func bigRecords(records int) (batch []*kgo.Record, size int64) {
	value := bytes.Repeat([]byte("x"), 10_000)
	for i := range records {
		batch = append(batch, &kgo.Record{Topic: "big", Partition: int32(i % 3), Value: value})
	}
	return batch, int64(records * len(value))
}

// requireFair writes a live record at the source again and again until the catching up is over. From when one is written to
// when it has arrived, no more is copied of the other topic than some times the memory, however slow the machine is.
func requireFair(t *testing.T, size, patience int64, copied func() int64, write, arrive func(round int)) {
	t.Helper()
	rounds := 0
	for ; copied() < size; rounds++ {
		write(rounds)
		before := copied()
		arrive(rounds)
		require.Less(t, copied()-before, patience, "round %d", rounds)
	}
	t.Logf("%d live records meanwhile", rounds)
	require.Positive(t, rounds)
}

// TestBudgetIsFair: between mirrors that share it.
func TestBudgetIsFair(t *testing.T) {
	var cfg Config
	x := replicate(t, func(c *Config) { fairly(c); cfg = *c },
		kfake.NumBrokers(2), kfake.SeedTopics(3, "big"), kfake.SeedTopics(1, "live"))
	cfg.Mirror, cfg.Metrics = "other", nil
	other := New(cfg)
	t.Cleanup(other.Close)
	batch, size := bigRecords(4000)
	require.NoError(t, x.client.ProduceSync(t.Context(), batch...).FirstErr())
	other.Start(x.spec("live", 0))
	x.produce("live", 0, 0, 1)
	x.awaitEnd("live", 0, 1)
	for p := range int32(3) {
		x.Start(x.spec("big", p))
	}
	copied := func() (bytes int64) {
		for p := range int32(3) {
			bytes += x.dest.end(cluster.TopicPartition{Topic: "big", Partition: p}) * 10_000
		}
		return bytes
	}
	waitFor(t, func() bool { return copied() > 0 })
	requireFair(t, size, 32*fairMemory, copied, func(round int) {
		x.produce("live", 0, round+1, 1)
	}, func(round int) {
		waitFor(t, func() bool { return x.dest.end(cluster.TopicPartition{Topic: "live", Partition: 0}) == int64(round+2) })
	})
}

// TestReplicatorOnKafkaIsFair: between partitions that one fetcher fetches. (kfake sends what moved first.)
func TestReplicatorOnKafkaIsFair(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real clusters")
	}
	x := replicateKafkaWith(t, fairly)
	x.mirror(t, "live", 1, 1, 1)
	big := x.mirror(t, "big", 3, 1, 1)
	for _, spec := range big {
		x.Drop("big", spec.Partition)
	}
	batch, size := bigRecords(6000)
	for i := range batch {
		batch[i].Value = append(randomBytes(8000), batch[i].Value[8000:]...)
	}
	require.NoError(t, x.source.client.ProduceSync(t.Context(), batch...).FirstErr())
	copied := func() (bytes int64) {
		for p := range int32(3) {
			status, _ := x.Status("big", p)
			bytes += max(0, status.LastMirrored) * 10_000
		}
		return bytes
	}
	write := func(int) {
		require.NoError(t, x.source.client.ProduceSync(t.Context(), &kgo.Record{Topic: "live", Value: []byte("v")}).FirstErr())
	}
	arrive := func(round int) {
		waitFor(t, func() bool { status, _ := x.Status("live", 0); return status.LastMirrored == int64(round+1) })
	}
	write(0)
	arrive(0)
	for _, spec := range big {
		x.Start(spec)
	}
	waitFor(t, func() bool { return copied() > 0 })
	requireFair(t, size, 32*fairMemory, copied, write, func(round int) { arrive(round + 1) })
}
