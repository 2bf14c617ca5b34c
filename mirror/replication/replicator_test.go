package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/mirrorgate/mirrorgate/appendlog"
	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/test/leaks"
)

// replication is a Replicator from a kfake source to a fakeDestination.
type replication struct {
	t        *testing.T
	network  *kfake.VirtualNetwork // nil: the machine's
	source   *kfake.Cluster
	client   *kgo.Client
	dest     *fakeDestination
	budget   *Budget
	registry *prometheus.Registry
	*Replicator

	mu     sync.Mutex
	events []StateChange
	grown  map[string]int32
}

func replicate(t *testing.T, tune func(*Config), opts ...kfake.Opt) *replication {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaks.None(t, ignore) })
	return replicateOver(t, nil, tune, opts...)
}

// replicateInBubble is replicate inside of synctest.Test: with a source of one broker over a network in memory, and a clock that goes
// on only when all wait. So what takes a time takes just that, on any machine. It is not for tests with fillers or compressed records: the
// process keeps what decodes them, and synctest does not let a channel that was made in a bubble out of it. Nor for tests that want
// things to happen at any moment: a bubble comes to rest before time goes on.
func replicateInBubble(t *testing.T, tune func(*Config), opts ...kfake.Opt) *replication {
	t.Helper()
	network := new(kfake.VirtualNetwork)
	return replicateOver(t, network, tune, append(opts, kfake.NumBrokers(1), kfake.Ports(9092))...)
}

// replicateOver is the same over a network in memory, or over that of the machine if it is nil.
func replicateOver(t *testing.T, network *kfake.VirtualNetwork, tune func(*Config), opts ...kfake.Opt) *replication {
	t.Helper()
	x := &replication{t: t, network: network, dest: newFakeDestination(), budget: NewBudget(64 << 20), grown: make(map[string]int32)}
	x.source = x.cluster(opts...)
	x.client = x.connect(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.MetadataMinAge(50*time.Millisecond))
	x.registry = prometheus.NewPedanticRegistry()
	cfg := Config{
		Mirror: "m", Source: x.reach(), SourceAdmin: x.client, Budget: x.budget, Metrics: NewMetrics(x.registry),
		Fetch:   FetchOptions{MetadataRefresh: 300 * time.Millisecond, WaitMax: 100 * time.Millisecond},
		Events:  Events{StateChanged: x.stateChanged, SourcePartitions: x.sourcePartitions},
		Log:     zaptest.NewLogger(t),
		openLog: x.dest.open, readTails: x.dest,
	}
	if tune != nil {
		tune(&cfg)
	}
	x.budget = cfg.Budget
	x.Replicator = New(cfg)
	t.Cleanup(func() {
		x.Close()
		require.Zero(t, x.budget.Used(), "all bytes are given back")
	})
	return x
}

// cluster makes a source, also one that takes the place of another one.
func (x *replication) cluster(opts ...kfake.Opt) *kfake.Cluster {
	x.t.Helper()
	if x.network != nil {
		opts = append(opts, kfake.ListenFn(x.network.Listen))
	}
	cluster, err := kfake.NewCluster(opts...)
	require.NoError(x.t, err)
	x.t.Cleanup(cluster.Close)
	return cluster
}

// reach is how the source is reached.
func (x *replication) reach() broker.Config {
	config := broker.Config{Bootstrap: x.source.ListenAddrs(), RequestTimeout: 10 * time.Second}
	if x.network != nil {
		config.DialContext = x.network.DialContext
	}
	return config
}

// connect makes a client of the source.
func (x *replication) connect(opts ...kgo.Opt) *kgo.Client {
	x.t.Helper()
	opts = append(opts, kgo.ProducerBatchCompression(kgo.NoCompression())) // so that what is in memory is as large as it looks
	client, err := kgo.NewClient(append(x.reach().KgoOptions(), opts...)...)
	require.NoError(x.t, err)
	x.t.Cleanup(client.Close)
	return client
}

// metric returns the sum over all series of a metric, -1 if there is none.
func (x *replication) metric(name string) float64 {
	x.t.Helper()
	families, err := x.registry.Gather()
	require.NoError(x.t, err)
	for _, f := range families {
		if f.GetName() == "mirrorgate_mirror_"+name {
			sum := 0.0
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
			return sum
		}
	}
	return -1
}

func (x *replication) stateChanged(c StateChange) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.events = append(x.events, c)
}

func (x *replication) sourcePartitions(topic string, n int32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.grown[topic] = n
}

func (x *replication) spec(topic string, partition int32) PartitionSpec {
	return PartitionSpec{Topic: topic, SourceTopicID: x.source.TopicInfo(topic).TopicID, Partition: partition, ProducerID: 1000}
}

// produce writes n records, each in a batch of its own unless kgo joins them.
func (x *replication) produce(topic string, partition int32, from, n int) {
	x.t.Helper()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "value %d", from+i)})
	}
	require.NoError(x.t, x.client.ProduceSync(x.t.Context(), records...).FirstErr())
}

func (x *replication) awaitEnd(topic string, partition int32, end int64) {
	x.t.Helper()
	waitFor(x.t, func() bool { return x.dest.end(cluster.TopicPartition{Topic: topic, Partition: partition}) == end })
	x.requireContents(topic, partition, int(end))
}

func (x *replication) requireContents(topic string, partition int32, n int) {
	x.t.Helper()
	got, err := x.dest.contents(cluster.TopicPartition{Topic: topic, Partition: partition})
	require.NoError(x.t, err)
	require.Len(x.t, got, n)
	for i, r := range got {
		require.Equal(x.t, fmt.Sprintf("%d=value %d", i, i), r)
	}
}

func (x *replication) awaitState(topic string, partition int32, s State) Status {
	x.t.Helper()
	var status Status
	waitFor(x.t, func() bool { status, _ = x.Status(topic, partition); return status.State == s })
	return status
}

func TestReplicatorCopiesManyPartitions(t *testing.T) {
	x := replicate(t, func(c *Config) { c.Fetch.Fetchers = 2 }, kfake.NumBrokers(3), kfake.SeedTopics(4, "a", "b", "c"))
	for _, topic := range []string{"a", "b", "c"} {
		for p := range int32(4) {
			x.Start(x.spec(topic, p))
			x.Start(x.spec(topic, p)) // idempotent
		}
	}
	for round := range 5 {
		for _, topic := range []string{"a", "b", "c"} {
			for p := range int32(4) {
				x.produce(topic, p, round*20, 20)
			}
		}
	}
	for _, topic := range []string{"a", "b", "c"} {
		for p := range int32(4) {
			x.awaitEnd(topic, p, 100)
			waitFor(t, func() bool {
				s, _ := x.Status(topic, p)
				return s.Lag() == 0 && s.LastMirrored == 100 && s.SourceHighWatermark == 100
			})
		}
	}
	require.InDelta(t, 1200, x.metric("mirrored_records_total"), 0)
	x.mu.Lock()
	defer x.mu.Unlock()
	require.EqualValues(t, 4, x.grown["b"])
	for _, e := range x.events {
		require.NotEqual(t, Failed, e.To)
	}
}

func TestReplicatorStopsAndDrops(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"))
	x.produce("a", 0, 0, 50)
	x.Start(x.spec("a", 0))
	x.awaitEnd("a", 0, 50)
	for range 2 {
		last, err := x.Stop(t.Context(), x.spec("a", 0))
		require.NoError(t, err)
		require.EqualValues(t, 50, last)
	}
	status, ok := x.Status("a", 0)
	require.True(t, ok)
	require.Equal(t, Stopped, status.State)
	require.EqualValues(t, 50, status.LastMirrored)

	// A partition that never ran here.
	last, err := x.Stop(t.Context(), x.spec("a", 1))
	require.NoError(t, err)
	require.EqualValues(t, 0, last)

	x.Drop("a", 0)
	_, ok = x.Status("a", 0)
	require.False(t, ok)
	x.Drop("a", 7)
	x.mu.Lock()
	defer x.mu.Unlock()
	require.Equal(t, StateChange{Topic: "a", From: Stopping, To: Stopped, LastMirrored: 50}, x.events[3])
}

func TestReplicatorIsStoppedByAnotherGateway(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	x.produce("a", 0, 0, 10)
	x.Start(x.spec("a", 0))
	x.awaitEnd("a", 0, 10)
	x.dest.fenceElsewhere(cluster.TopicPartition{Topic: "a", Partition: 0})
	x.dest.mu.Lock()
	log := x.dest.logs[cluster.TopicPartition{Topic: "a", Partition: 0}].log
	log.calls <- log.becomeReady
	x.dest.mu.Unlock()
	require.EqualValues(t, 10, x.awaitState("a", 0, Stopped).LastMirrored)
}

func TestReplicatorRecoversFromDoubts(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	key := cluster.TopicPartition{Topic: "a", Partition: 0}
	x.Start(x.spec("a", 0))
	for i := range 20 {
		x.produce("a", 0, i*10, 10)
		if i%4 == 1 {
			waitFor(t, func() bool { return x.dest.end(key) > 0 })
			x.dest.doubt(key, i/2) // loses a tail as well
		}
	}
	x.awaitEnd("a", 0, 200)
	require.NotZero(t, x.metric("doubts_total"))
}

// Flow control: a destination that does not acknowledge stops its own partition's fetches and nobody else's, and memory
// stays within the bounds.
func TestReplicatorHoldsBackOnePartition(t *testing.T) {
	const fetch, batch = 10 << 10, 5 << 10
	x := replicate(t, func(c *Config) {
		c.Fetch.MaxBytes, c.Fetch.ResponseMax = fetch, fetch // so that the window does not grow where answers take long
	}, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"))
	slow := cluster.TopicPartition{Topic: "a", Partition: 0}
	x.dest.hold(slow, true)
	big := make([]byte, batch)
	for i := range 100 {
		require.NoError(t, x.client.ProduceSync(t.Context(), &kgo.Record{Topic: "a", Partition: 0, Value: append(big, byte(i))}).FirstErr())
	}
	x.Start(x.spec("a", 0))
	x.Start(x.spec("a", 1))
	x.produce("a", 1, 0, 100)
	x.awaitEnd("a", 1, 100)
	p := x.lookup(slow)
	waitFor(t, func() bool { return p.partitionStatus().State == Mirroring })
	// Two fetches and a batch more in flight; and what is asked for, of the fetcher that goes on for the other partition.
	const most = 2*fetch + 2*batch + fetch + batch
	require.Never(t, func() bool { return x.budget.Used() > most }, 300*time.Millisecond, 10*time.Millisecond)
	require.Zero(t, x.dest.end(slow))
	x.dest.hold(slow, false)
	waitFor(t, func() bool { return x.dest.end(slow) == 100 })
}

// A batch above every limit still passes.
func TestReplicatorCopiesOversizeBatches(t *testing.T) {
	x := replicate(t, func(c *Config) { c.Fetch.MaxBytes, c.Fetch.ResponseMax = 1000, 2000 }, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"))
	for p := range int32(2) {
		for range 3 {
			require.NoError(t, x.client.ProduceSync(t.Context(), &kgo.Record{Topic: "a", Partition: p, Value: make([]byte, 900<<10)}).FirstErr())
		}
		x.Start(x.spec("a", p))
	}
	for p := range int32(2) {
		waitFor(t, func() bool { return x.dest.end(cluster.TopicPartition{Topic: "a", Partition: p}) == 3 })
	}
}

func TestReplicatorFollowsLeaders(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(3), kfake.SeedTopics(3, "a"))
	for p := range int32(3) {
		x.Start(x.spec("a", p))
	}
	for round := range 6 {
		for p := range int32(3) {
			require.NoError(t, x.source.MoveTopicPartition("a", p, int32(round+int(p))%3))
			x.produce("a", p, round*10, 10)
		}
	}
	for p := range int32(3) {
		x.awaitEnd("a", p, 60)
	}
}

// M12, M13, M8: a topic that is made again fails alone, without a storm of requests.
func TestReplicatorFailsRecreatedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := replicateInBubble(t, nil, kfake.SeedTopics(1, "a", "b"))
		spec := x.spec("b", 0)
		x.Start(x.spec("a", 0))
		x.Start(spec)
		x.produce("a", 0, 0, 10)
		x.produce("b", 0, 0, 10)
		x.awaitEnd("b", 0, 10)
		require.NoError(t, x.source.DeleteTopic("b"))
		require.NoError(t, x.source.CreateTopic("b", 1, nil))
		before := x.metric("fetch_requests_total")
		began := time.Now()
		status := x.awaitState("b", 0, Failed)
		require.Contains(t, status.Reason, "deleted and made again")
		rate := (x.metric("fetch_requests_total") - before) / time.Since(began).Seconds()
		require.Less(t, rate, 100.0, "requests a second")
		x.produce("a", 0, 10, 10)
		x.awaitEnd("a", 0, 20)
		last, err := x.Stop(t.Context(), spec)
		require.NoError(t, err)
		require.EqualValues(t, 10, last)
	})
}

func TestReplicatorFailsDeletedTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := replicateInBubble(t, nil, kfake.SeedTopics(1, "a"))
		x.Start(x.spec("a", 0))
		x.produce("a", 0, 0, 10)
		x.awaitEnd("a", 0, 10)
		require.NoError(t, x.source.DeleteTopic("a"))
		require.Contains(t, x.awaitState("a", 0, Failed).Reason, "the source topic was deleted; way out: remove")
		require.EqualValues(t, 10, x.dest.end(cluster.TopicPartition{Topic: "a", Partition: 0}), "the destination keeps its data")
		require.Nil(t, x.source.TopicInfo("a"), "looking for it does not make it again")
	})
}

// M14: session errors of every kind are survived by a full fetch.
func TestReplicatorSurvivesSessionErrors(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"))
	codes := []int16{kerr.InvalidFetchSessionEpoch.Code, kerr.FetchSessionIDNotFound.Code, kerr.FetchSessionTopicIDError.Code}
	var mu sync.Mutex
	var seen []string
	n := 0
	x.source.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		x.source.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		r := req.(*kmsg.FetchRequest)
		if r.SessionEpoch < 0 {
			return nil, nil, false // of a check, without a session
		}
		if r.SessionEpoch == 0 || n == len(codes) {
			seen = append(seen, fmt.Sprint(r.SessionEpoch == 0))
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = codes[n]
		n++
		seen = append(seen, "error")
		return resp, nil, true
	})
	for p := range int32(2) {
		x.Start(x.spec("a", p))
		x.produce("a", p, 0, 10)
	}
	for p := range int32(2) {
		x.awaitEnd("a", p, 10)
	}
	waitFor(t, func() bool { mu.Lock(); defer mu.Unlock(); return n == len(codes) && seen[len(seen)-1] != "error" })
	mu.Lock()
	defer mu.Unlock()
	for i, s := range seen[:len(seen)-1] {
		if s == "error" {
			require.Equal(t, "true", seen[i+1], "a full fetch follows an error")
		}
	}
}

// M10 and a leading gap: what is not at the source any more is filled, deleted, and where it was there to be copied, told.
func TestReplicatorFillsMissingRecords(t *testing.T) {
	var mu sync.Mutex
	trimmed := make(map[cluster.TopicPartition]int64)
	trim := func(_ context.Context, offsets map[cluster.TopicPartition]int64) map[cluster.TopicPartition]trimResult {
		mu.Lock()
		defer mu.Unlock()
		results := make(map[cluster.TopicPartition]trimResult)
		for key, offset := range offsets {
			trimmed[key] = offset
			results[key] = trimResult{start: offset}
		}
		return results
	}
	start := func(p int32) int64 {
		mu.Lock()
		defer mu.Unlock()
		return trimmed[cluster.TopicPartition{Topic: "a", Partition: p}]
	}
	x := replicate(t, func(c *Config) { c.trimLogs = trim }, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"))
	for p := range int32(2) {
		x.produce("a", p, 0, 100)
	}
	require.NoError(t, x.source.DeleteRecords("a", 0, 60))
	fresh := x.spec("a", 0)
	fresh.Fresh = true
	x.Start(fresh)
	waitFor(t, func() bool { return x.dest.end(cluster.TopicPartition{Topic: "a", Partition: 0}) == 100 })
	status := x.awaitState("a", 0, Mirroring)
	require.Empty(t, status.Reason)
	require.EqualValues(t, 60, start(0))
	x.requireHas("a", 0, 60, 100)

	x.dest.prefill(cluster.TopicPartition{Topic: "a", Partition: 1}, 10)
	require.NoError(t, x.source.DeleteRecords("a", 1, 60))
	x.Start(x.spec("a", 1))
	waitFor(t, func() bool { return x.dest.end(cluster.TopicPartition{Topic: "a", Partition: 1}) == 100 })
	status = x.awaitState("a", 1, Mirroring)
	require.Equal(t, "records 10 to 59 were deleted at the source before they were copied", status.Reason)
	require.EqualValues(t, 60, start(1))
	require.InDelta(t, 50, x.metric("overtaken_offsets_total"), 0)
	require.InDelta(t, 110, x.metric("filled_offsets_total"), 0)

	// The source's start moves on, and nothing more is produced.
	require.NoError(t, x.source.DeleteRecords("a", 1, 75))
	waitFor(t, func() bool { return start(1) == 75 })
}

// requireHas proves that [from, end) of the destination are the records of produce, and that what is before is filled.
func (x *replication) requireHas(topic string, partition int32, from, end int) {
	x.t.Helper()
	got, err := x.dest.contents(cluster.TopicPartition{Topic: topic, Partition: partition})
	require.NoError(x.t, err)
	require.Len(x.t, got, end)
	for i, r := range got {
		want := fmt.Sprintf("%d=", i)
		if i >= from {
			want = fmt.Sprintf("%d=value %d", i, i)
		}
		require.Equal(x.t, want, r)
	}
}

// M40: a destination that is ahead has diverged.
func TestReplicatorFailsWhenAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := replicateInBubble(t, nil, kfake.SeedTopics(1, "a"))
		x.produce("a", 0, 0, 10)
		x.dest.partition(cluster.TopicPartition{Topic: "a", Partition: 0}).end = 12
		x.Start(x.spec("a", 0))
		status := x.awaitState("a", 0, Failed)
		require.Contains(t, status.Reason, "diverged: the destination log ends at 12, the source log at 10")
		x.produce("a", 0, 10, 10)
		require.Never(t, func() bool { s, _ := x.Status("a", 0); return s.State != Failed }, 500*time.Millisecond, 10*time.Millisecond)
	})
}

// A committed transaction is copied, an aborted one is not, an open one holds what is behind it (M7); and a log that ends in
// a marker reaches lag 0 (M39).
func TestReplicatorCopiesTransactions(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	txn := x.connect(kgo.TransactionalID("t"), kgo.DefaultProduceTopic("a"))
	x.produce("a", 0, 0, 10)
	write := func(value string) {
		require.NoError(t, txn.BeginTransaction())
		require.NoError(t, txn.ProduceSync(t.Context(), &kgo.Record{Value: []byte(value)}).FirstErr())
	}
	write("value 10")
	x.Start(x.spec("a", 0))
	x.awaitEnd("a", 0, 10)
	waitFor(t, func() bool {
		s, _ := x.Status("a", 0)
		return s.Reason == "waits for an open transaction at offset 10 (last stable offset), source high watermark 11" && s.State == Mirroring
	})
	require.NoError(t, txn.EndTransaction(t.Context(), kgo.TryCommit))
	write("never")
	require.NoError(t, txn.EndTransaction(t.Context(), kgo.TryAbort))
	waitFor(t, func() bool {
		s, _ := x.Status("a", 0)
		return s.LastMirrored == 14 && s.Lag() == 0 && s.Reason == "" && s.State == Mirroring
	})
	got, err := x.dest.contents(cluster.TopicPartition{Topic: "a", Partition: 0})
	require.NoError(t, err)
	require.Equal(t, []string{"10=value 10", "11=", "12=", "13="}, got[10:])
}

// Errors of one partition back off and go away by themselves.
func TestReplicatorRetriesPassingErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := replicateInBubble(t, nil, kfake.SeedTopics(2, "a"))
		for _, err := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.UnknownLeaderEpoch, kerr.KafkaStorageError, kerr.UnknownServerError} {
			x.source.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "a", Partitions: []int32{0}, Err: err})
		}
		x.source.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "a", Partitions: []int32{1}, Err: kerr.TopicAuthorizationFailed})
		for p := range int32(2) {
			x.produce("a", p, 0, 10)
			x.Start(x.spec("a", p))
		}
		for p := range int32(2) {
			x.awaitEnd("a", p, 10)
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, e := range x.events {
			require.False(t, e.To == Failed && e.Partition == 0, "errors of elections do not fail a partition")
		}
	})
}

func TestReplicatorFailsForeignWritesForGood(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	x.produce("a", 0, 0, 10)
	x.Start(x.spec("a", 0))
	x.awaitEnd("a", 0, 10)
	x.dest.fail(cluster.TopicPartition{Topic: "a", Partition: 0}, &appendlog.ForeignWriteError{Topic: "a", Offset: 10, Got: 12})
	status := x.awaitState("a", 0, Failed)
	require.Contains(t, status.Reason, "foreign write in a-0 at offset 10")
	x.mu.Lock()
	require.True(t, x.events[len(x.events)-1].Permanent)
	x.mu.Unlock()
	x.dest.partition(cluster.TopicPartition{Topic: "a", Partition: 0}).end = 12
	last, err := x.Stop(t.Context(), x.spec("a", 0))
	require.NoError(t, err)
	require.EqualValues(t, 10, last, "what the foreigner wrote is not mirrored")
}

// The whole source is away, and comes back.
func TestReplicatorOutlivesTheSource(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	x.produce("a", 0, 0, 10)
	x.Start(x.spec("a", 0))
	x.awaitEnd("a", 0, 10)
	spec := x.spec("a", 0)
	gone := make(chan struct{})
	x.source.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case <-gone:
			return nil, nil, false
		default:
			x.source.KeepControl()
			return nil, errors.New("away"), true // cuts the connection
		}
	})
	waitFor(t, func() bool { s, _ := x.Status("a", 0); return s.State == Mirroring && s.Reason != "" })
	close(gone)
	x.produce("a", 0, 10, 10)
	x.awaitEnd("a", 0, 20)
	waitFor(t, func() bool { s, _ := x.Status("a", 0); return s.Reason == "" })
	last, err := x.Stop(t.Context(), spec)
	require.NoError(t, err)
	require.EqualValues(t, 20, last)
}

// M19: start and stop in a tight loop with fetches in flight.
func TestReplicatorStartsAndDropsInALoop(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 50 {
			x.produce("a", 0, i*10, 10)
		}
	})
	for range 50 {
		x.Start(x.spec("a", 0))
		time.Sleep(time.Millisecond) // moves the drop over all phases
		x.Drop("a", 0)
	}
	wg.Wait()
	x.Start(x.spec("a", 0))
	x.awaitEnd("a", 0, 500)
}

// A process that was suspended proves that it still owns the partition before it appends what it holds.
func TestReplicatorDropsStaleFetches(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	x.fetch.staleAfter = -1 // as if every fetch had been asked for too long ago; no fetcher runs yet
	x.produce("a", 0, 0, 10)
	x.Start(x.spec("a", 0))
	waitFor(t, func() bool { return x.metric("stale_fetches_total") > 2 })
	require.Zero(t, x.dest.end(cluster.TopicPartition{Topic: "a", Partition: 0}))
	x.dest.mu.Lock()
	require.Greater(t, x.dest.opened, 2, "the end is read again each time")
	x.dest.mu.Unlock()
}

func TestReplicatorStopGivesUpWithItsContext(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	blocked := &neverFenced{}
	x.cfg.openLog = func(appendlog.Partition, []int64, appendlog.Handler) destinationLog { return blocked }
	_, err := x.Stop(ctx, x.spec("a", 0))
	require.ErrorIs(t, err, context.Canceled)
	status, _ := x.Status("a", 0)
	require.Equal(t, Stopping, status.State)
}

type neverFenced struct{}

func (*neverFenced) Append(appendlog.Batch) error { return appendlog.ErrNotReady }

func (*neverFenced) Fence(ctx context.Context) (int64, error) {
	<-ctx.Done()
	return -1, ctx.Err()
}

func (*neverFenced) Close() {}

func TestMetricsGoWithTheMirror(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	x.produce("a", 0, 0, 10)
	x.Start(x.spec("a", 0))
	x.awaitEnd("a", 0, 10)
	waitFor(t, func() bool { s, _ := x.Status("a", 0); return s.Lag() == 0 })
	require.EqualValues(t, 10, x.metric("mirrored_records_total"))
	require.EqualValues(t, 1, x.metric("partitions"))
	require.EqualValues(t, 0, x.metric("lag_records"))
	x.Close()
	families, err := x.registry.Gather()
	require.NoError(t, err)
	require.Empty(t, families)
}
