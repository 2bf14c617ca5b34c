package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/mirrorgate/mirrorgate/appendlog"
	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
	"github.com/mirrorgate/mirrorgate/test/leaks"
)

// kafkaSide is a real cluster with a client.
type kafkaSide struct {
	*kafkatest.Cluster
	client *kgo.Client
	admin  *kadm.Client
}

// startSide starts a cluster for a test that does something to its brokers.
func startSide(t *testing.T, opts kafkatest.Options) kafkaSide {
	t.Helper()
	return newSide(t, kafkatest.Start(t, opts))
}

// sharedSide is a cluster of some brokers, the same for all tests that ask for it. Their topics must have names of their own. A test
// that kills a broker starts it again; after one that failed, the next one does.
func sharedSide(t *testing.T, name string, brokers int) kafkaSide {
	t.Helper()
	s := newSide(t, kafkatest.Shared(t, name, kafkatest.Options{Brokers: brokers, Settings: map[string]string{
		// A broker writes log starts down every minute of its life, whenever a deletion was: these do not.
		"log.flush.start.offset.checkpoint.interval.ms": "86400000",
	}}))
	for id := range int32(brokers) {
		if s.PID(id+1) == 0 {
			require.NoError(t, s.Restart(t.Context(), id+1))
		}
	}
	return s
}

// TestMain ends the shared clusters.
func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

func newSide(t *testing.T, c *kafkatest.Cluster) kafkaSide {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.Bootstrap(), ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.MetadataMinAge(100*time.Millisecond), kgo.ProducerBatchCompression(kgo.ZstdCompression()),
		kgo.UnknownTopicRetries(-1)) // a broker can learn of a new topic after the one that made it
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return kafkaSide{c, client, kadm.NewClient(client)}
}

// create makes a topic and returns its ID, which other brokers than the one that was asked may not know yet.
func (s kafkaSide) create(t *testing.T, topic string, partitions int32, replicas int16) cluster.TopicID {
	t.Helper()
	configs := map[string]*string{"min.insync.replicas": kadm.StringPtr("1")}
	resp, err := s.admin.CreateTopic(t.Context(), partitions, replicas, configs, topic)
	require.NoError(t, err)
	return cluster.TopicID(resp.ID)
}

// bounce kills a broker and starts it again.
func (s kafkaSide) bounce(t *testing.T, id int32) {
	t.Helper()
	s.Kill(id)
	require.NoError(t, s.Restart(t.Context(), id))
}

// kafkaPair is a Replicator between two real clusters.
type kafkaPair struct {
	source, dest kafkaSide
	log          *appendlog.Client
	budget       *Budget
	registry     *prometheus.Registry
	*Replicator
}

// replicateKafka mirrors between two clusters that are shared with other tests.
func replicateKafka(t *testing.T, tune func(*Config)) *kafkaPair {
	t.Helper()
	requireNoLeaksAfter(t)
	return replicateBetween(t, sharedSide(t, "source", 1), sharedSide(t, "destination", 1), tune)
}

// requireNoLeaksAfter looks for goroutines once all that the test starts from here on has ended.
func requireNoLeaksAfter(t *testing.T) {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		leaks.None(t, ignore, goleak.IgnoreAnyFunction("github.com/mirrorgate/mirrorgate/test/kafkatest.StartProcess.func1"))
	})
}

func replicateBetween(t *testing.T, source, dest kafkaSide, tune func(*Config)) *kafkaPair {
	t.Helper()
	x := &kafkaPair{source: source, dest: dest, registry: prometheus.NewRegistry()}
	logger := zaptest.NewLogger(t, zaptest.Level(zap.InfoLevel))
	var err error
	x.log, err = appendlog.NewClient(appendlog.Config{Broker: broker.Config{Bootstrap: strings.Split(x.dest.Bootstrap(), ",")}, Admin: x.dest.client, Log: logger})
	require.NoError(t, err)
	cfg := Config{
		Mirror: "m", Source: broker.Config{RequestTimeout: 10 * time.Second}, SourceAdmin: x.source.client,
		Destination: x.log, DestinationAdmin: x.dest.client, Budget: NewBudget(64 << 20), Log: logger,
		Fetch: FetchOptions{MetadataRefresh: time.Second}, Metrics: NewMetrics(x.registry),
	}
	if tune != nil {
		tune(&cfg)
	}
	x.budget = cfg.Budget
	x.Replicator = New(cfg)
	t.Cleanup(func() {
		x.Close()
		x.log.Close()
		require.Zero(t, x.budget.Used())
	})
	return x
}

// mirror creates a topic on both sides and starts its partitions.
func (x *kafkaPair) mirror(t *testing.T, topic string, partitions int32, sourceReplicas, destReplicas int16) []PartitionSpec {
	t.Helper()
	specs := x.prepare(t, topic, partitions, sourceReplicas, destReplicas)
	for _, spec := range specs {
		x.Start(spec)
	}
	return specs
}

// prepare creates a topic on both sides.
func (x *kafkaPair) prepare(t *testing.T, topic string, partitions int32, sourceReplicas, destReplicas int16) []PartitionSpec {
	t.Helper()
	sourceID := x.source.create(t, topic, partitions, sourceReplicas)
	x.dest.create(t, topic, partitions, destReplicas)
	id, err := x.log.TakeProducerID(t.Context())
	require.NoError(t, err)
	var specs []PartitionSpec
	for p := range partitions {
		specs = append(specs, PartitionSpec{Topic: topic, SourceTopicID: sourceID, Partition: p, ProducerID: id})
	}
	return specs
}

// load writes until ctx ends, at least once.
func (x *kafkaPair) load(ctx context.Context, topic string, partitions int32) error {
	for i := 0; i == 0 || ctx.Err() == nil; i++ {
		var records []*kgo.Record
		for n := range 20 {
			value := bytes.Repeat(fmt.Appendf(nil, "%d ", rand.Uint64()), 1+rand.IntN(50))
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(n) % partitions, Value: value})
		}
		if err := x.source.client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
			return err
		}
		pause := time.NewTimer(5 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
	return nil
}

// requireEqual waits until the mirror has everything, and compares all records.
func (x *kafkaPair) requireEqual(t *testing.T, topic string, partitions int32) (records int64) {
	t.Helper()
	ends, err := x.source.admin.ListEndOffsets(t.Context(), topic)
	require.NoError(t, err)
	for p := range partitions {
		end, _ := ends.Lookup(topic, p)
		var status Status
		reached := assert.Eventually(t, func() bool { // it may have everything before it has recovered from the last trouble
			status, _ = x.Status(topic, p)
			return status.LastMirrored == end.Offset && status.Lag() == 0 && status.State == Mirroring
		}, patience, 10*time.Millisecond)
		require.True(t, reached, "%s-%d does not reach %d: %+v", topic, p, end.Offset, status)
		want, got := readAll(t, x.source, topic, p, end.Offset), readAll(t, x.dest, topic, p, end.Offset)
		require.Equal(t, want, got)
		records += end.Offset
	}
	return records
}

// readAll reads [0, end) of a partition as "offset timestamp value".
func readAll(t *testing.T, s kafkaSide, topic string, partition int32, end int64) []string {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(s.Bootstrap(), ",")...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(0)}}))
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []string
	for int64(len(all)) < end {
		fetches := c.PollFetches(ctx)
		require.NoError(t, errors.Join(ctx.Err(), fetches.Err()))
		fetches.EachRecord(func(r *kgo.Record) {
			all = append(all, fmt.Sprintf("%d %d %s %s", r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Value))
		})
	}
	return all
}

// Brokers are killed and come back on both sides under load: one of three, and the only one, at the source of one mirror and at
// the destination of another one that goes the other way.
func TestReplicatorOnKafkaOutlivesBrokers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute: a cluster of three brokers")
	}
	requireNoLeaksAfter(t)
	const partitions = 6
	three, one := sharedSide(t, "three", 3), sharedSide(t, "source", 1)
	there, back := replicateBetween(t, three, one, nil), replicateBetween(t, one, three, nil)
	thereSpecs, backSpecs := there.mirror(t, "there", partitions, 3, 1), back.mirror(t, "back", partitions, 1, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loaded := make(chan error, 2)
	go func() { loaded <- there.load(ctx, "there", partitions) }()
	go func() { loaded <- back.load(ctx, "back", partitions) }()

	three.bounce(t, 1)
	one.bounce(t, 1) // a cluster of one broker is away altogether meanwhile
	three.bounce(t, 2)
	cancel()
	for range 2 {
		require.NoError(t, <-loaded)
	}
	there.requireEndsEqual(t, thereSpecs)
	back.requireEndsEqual(t, backSpecs)
}

// requireEndsEqual waits until the mirror of a topic has everything, compares all records, and stops it.
func (x *kafkaPair) requireEndsEqual(t *testing.T, specs []PartitionSpec) {
	t.Helper()
	records := x.requireEqual(t, specs[0].Topic, int32(len(specs)))
	t.Logf("%s: %d records, all equal", specs[0].Topic, records)
	for _, spec := range specs {
		status, _ := x.Status(spec.Topic, spec.Partition)
		last, err := x.Stop(t.Context(), spec)
		require.NoError(t, err)
		require.Equal(t, status.LastMirrored, last)
	}
}

// A foreign write to an idle partition is found without any new record at the source; the others go on.
func TestReplicatorOnKafkaFindsForeignWrites(t *testing.T) {
	x := replicateKafka(t, nil)
	specs := x.mirror(t, "foreign", 2, 1, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.NoError(t, x.load(ctx, "foreign", 2))
	x.requireEqual(t, "foreign", 2)
	before, _ := x.Status("foreign", 0)
	require.NoError(t, x.dest.client.ProduceSync(t.Context(), &kgo.Record{Topic: "foreign", Partition: 0, Value: []byte("not ours")}).FirstErr())
	require.Eventually(t, func() bool { s, _ := x.Status("foreign", 0); return s.State == Failed }, patience, 10*time.Millisecond)
	status, _ := x.Status("foreign", 0)
	require.Contains(t, status.Reason, fmt.Sprintf("foreign write in foreign-0 at offset %d", before.LastMirrored))

	require.NoError(t, x.source.client.ProduceSync(t.Context(), &kgo.Record{Topic: "foreign", Partition: 1, Value: []byte("more")}).FirstErr())
	other, _ := x.Status("foreign", 1)
	require.Equal(t, Mirroring, other.State)
	require.Eventually(t, func() bool {
		s, _ := x.Status("foreign", 1)
		return s.Lag() == 0 && s.LastMirrored == other.LastMirrored+1
	}, patience, 10*time.Millisecond)

	last, err := x.Stop(t.Context(), specs[0])
	require.NoError(t, err)
	require.Equal(t, before.LastMirrored, last, "the foreign record is not mirrored")
}
