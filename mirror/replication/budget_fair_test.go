package replication

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/appendlog"
	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// fairMemory is all the memory that there is in tests of fairness: a topic that catches up uses it to the full.
const fairMemory = 512 << 10

// fairly makes a configuration with little memory.
func fairly(cfg *Config) {
	cfg.Budget = NewBudget(fairMemory)
	cfg.Fetch.MaxBytes, cfg.Fetch.ResponseMax = fairMemory/4, fairMemory
}

// produceBig writes a topic of three partitions to catch up with, in batches that are small against the memory. They are as large
// there as here: compressed, what fills the memory would be many times as much.
func produceBig(t *testing.T, brokers []string, records int, value func() []byte) (size int64) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(fairMemory/10), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.UnknownTopicRetries(-1))
	require.NoError(t, err)
	defer client.Close()
	var batch []*kgo.Record
	for i := range records {
		batch = append(batch, &kgo.Record{Topic: "big", Partition: int32(i % 3), Value: value()})
		size += int64(len(batch[i].Value))
	}
	require.NoError(t, client.ProduceSync(t.Context(), batch...).FirstErr())
	return size
}

// TestBudgetIsFair: between mirrors that share it. One catches up, and has all the memory whenever a record of the other one
// is written; what it has, and what its two fetchers can have asked for before, is all that it copies until that has arrived.
// The destination takes a batch only when all three fetchers wait for memory, so nothing depends on the machine.
func TestBudgetIsFair(t *testing.T) {
	const rounds, liveAsk, most = 6, minAsk - 1, 4 * fairMemory
	var cfg Config
	x := replicate(t, func(c *Config) {
		fairly(c)
		c.Fetch.MaxBytes = fairMemory // memory is what a partition comes to the end of, not its own room
		cfg = *c
	}, kfake.NumBrokers(2), kfake.SeedTopics(3, "big"), kfake.SeedTopics(1, "live"))
	cfg.Mirror, cfg.Metrics = "other", nil
	cfg.Fetch.ResponseMax = liveAsk // by which its fetcher is known
	other := New(cfg)
	t.Cleanup(other.Close)
	for p := range int32(3) {
		require.NoError(t, x.source.MoveTopicPartition("big", p, p%2)) // so that there are two fetchers for it
	}
	produceBig(t, x.source.ListenAddrs(), 2*rounds*most/10_000, func() []byte { return bytes.Repeat([]byte("x"), 10_000) })
	other.Start(x.spec("live", 0))
	x.produce("live", 0, 0, 1)
	x.awaitEnd("live", 0, 1)
	for p := range int32(3) {
		x.dest.hold(cluster.TopicPartition{Topic: "big", Partition: p}, true)
		x.Start(x.spec("big", p))
	}
	allWait := func() bool {
		x.budget.mu.Lock()
		defer x.budget.mu.Unlock()
		return len(x.budget.waiting) == 3 && slices.ContainsFunc(x.budget.waiting, func(w *budgetWaiter) bool { return w.min == liveAsk })
	}
	for round := range rounds {
		waitFor(t, allWait)
		x.produce("live", 0, round+1, 1)
		copied := 0
		waitFor(t, func() bool {
			for p := int32(0); p < 3 && allWait(); p++ {
				copied += x.dest.accept(cluster.TopicPartition{Topic: "big", Partition: p})
			}
			return copied >= most || x.dest.end(cluster.TopicPartition{Topic: "live", Partition: 0}) == int64(round+2)
		})
		require.Less(t, copied, most, "round %d", round)
		t.Logf("%d bytes were copied of the other topic", copied)
	}
	for p := range int32(3) {
		x.dest.hold(cluster.TopicPartition{Topic: "big", Partition: p}, false)
	}
}

// handover notes in which order batches come to the destination's logs.
type handover struct {
	mu sync.Mutex
	// big is how many bytes of the topic big have come, before what was of it when the record of the topic live at an offset came.
	big    int64
	before map[int64]int64
}

type notedLog struct {
	destinationLog
	topic string
	notes *handover
}

func (l notedLog) Append(b appendlog.Batch) error {
	l.notes.mu.Lock()
	defer l.notes.mu.Unlock()
	err := l.destinationLog.Append(b)
	if _, again := l.notes.before[b.Base]; err == nil && l.topic == "big" {
		l.notes.big += int64(len(b.Bytes))
	} else if err == nil && !again {
		l.notes.before[b.Base] = l.notes.big
	}
	return err
}

func (h *handover) note(open func(appendlog.Partition, []int64, appendlog.Handler) destinationLog) func(appendlog.Partition, []int64, appendlog.Handler) destinationLog {
	return func(p appendlog.Partition, past []int64, handler appendlog.Handler) destinationLog {
		return notedLog{open(p, past, handler), p.Topic, h}
	}
}

func (h *handover) now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.big
}

func (h *handover) at(offset int64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.before[offset]
}

// TestReplicatorOnKafkaIsFair: between partitions that one fetcher fetches. (kfake sends what moved first.) From when a record is
// there until the fetcher has it come some answers of the source, each bounded, however long they take: the one under way, one
// for each other partition, and what is in memory and not handed over.
func TestReplicatorOnKafkaIsFair(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real clusters")
	}
	const most = 8 * fairMemory
	notes := &handover{before: make(map[int64]int64)}
	x := replicateKafka(t, func(c *Config) { fairly(c); c.openLog = notes.note(openDestination(c.Destination)) })
	x.mirror(t, "live", 1, 1, 1)
	big := x.mirror(t, "big", 3, 1, 1)
	for _, spec := range big {
		x.Drop("big", spec.Partition)
	}
	size := produceBig(t, strings.Split(x.source.Bootstrap(), ","), 2500, func() []byte { return append(randomBytes(8000), make([]byte, 2000)...) })
	mirrored := func(topic string, partition int32) int64 {
		status, _ := x.Status(topic, partition)
		return max(0, status.LastMirrored)
	}
	copied := func() int64 { return 10_000 * (mirrored("big", 0) + mirrored("big", 1) + mirrored("big", 2)) }
	write := func(ctx context.Context) {
		require.NoError(t, x.source.client.ProduceSync(ctx, &kgo.Record{Topic: "live", Value: []byte("v")}).FirstErr())
	}
	write(t.Context())
	waitFor(t, func() bool { return mirrored("live", 0) == 1 })
	for _, spec := range big {
		x.Start(spec)
	}
	waitFor(t, func() bool { return copied() > 0 })
	round := int64(1)
	for ; copied() < size; round++ {
		write(t.Context())
		before := notes.now()
		waitFor(t, func() bool { return mirrored("live", 0) == round+1 })
		require.Less(t, notes.at(round)-before, int64(most), "round %d", round)
	}
	t.Logf("%d live records meanwhile", round-1)
	require.Greater(t, round, int64(1))
}
