package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
)

// kafkaSide is a real cluster with a client.
type kafkaSide struct {
	*kafkatest.Cluster
	client *kgo.Client
	admin  *kadm.Client
}

func startSide(t *testing.T, brokers int) kafkaSide {
	t.Helper()
	return startSideWith(t, kafkatest.Options{Brokers: brokers})
}

func startSideWith(t *testing.T, opts kafkatest.Options) kafkaSide {
	t.Helper()
	c := kafkatest.Start(t, opts)
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.Bootstrap(), ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.MetadataMinAge(100*time.Millisecond), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return kafkaSide{c, client, kadm.NewClient(client)}
}

func (s kafkaSide) create(t *testing.T, topic string, partitions int32, replicas int16) {
	t.Helper()
	configs := map[string]*string{"min.insync.replicas": kadm.StringPtr("1")}
	resp, err := s.admin.CreateTopic(t.Context(), partitions, replicas, configs, topic)
	require.NoError(t, err)
	require.NoError(t, resp.Err)
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

func replicateKafka(t *testing.T, sourceBrokers, destBrokers int) *kafkaPair {
	t.Helper()
	return replicateKafkaFrom(t, kafkatest.Options{Brokers: sourceBrokers}, destBrokers, Events{})
}

func replicateKafkaFrom(t *testing.T, source kafkatest.Options, destBrokers int, events Events) *kafkaPair {
	t.Helper()
	return replicateKafkaTuned(t, source, destBrokers, func(cfg *Config) { cfg.Events = events })
}

func replicateKafkaWith(t *testing.T, tune func(*Config)) *kafkaPair {
	t.Helper()
	return replicateKafkaTuned(t, kafkatest.Options{Brokers: 1}, 1, tune)
}

func replicateKafkaTuned(t *testing.T, source kafkatest.Options, destBrokers int, tune func(*Config)) *kafkaPair {
	t.Helper()
	kafkatest.Require(t, kafkatest.DefaultVersion)
	leaks := goleak.IgnoreCurrent()
	x := &kafkaPair{source: startSideWith(t, source), dest: startSide(t, destBrokers), registry: prometheus.NewRegistry()}
	logger := zaptest.NewLogger(t, zaptest.Level(zap.InfoLevel))
	var err error
	x.log, err = appendlog.NewClient(appendlog.Config{Broker: broker.Config{Bootstrap: strings.Split(x.dest.Bootstrap(), ",")}, Admin: x.dest.client, Log: logger})
	require.NoError(t, err)
	cfg := Config{
		Mirror: "m", Source: broker.Config{RequestTimeout: 10 * time.Second}, SourceAdmin: x.source.client,
		Destination: x.log, DestinationAdmin: x.dest.client, Budget: NewBudget(64 << 20), Log: logger,
		Fetch: FetchOptions{MetadataRefresh: time.Second}, Metrics: NewMetrics(x.registry),
	}
	tune(&cfg)
	x.budget = cfg.Budget
	x.Replicator = New(cfg)
	t.Cleanup(func() {
		x.Close()
		x.log.Close()
		require.Zero(t, x.budget.Used())
		x.source.client.Close()
		x.dest.client.Close()
		goleak.VerifyNone(t, leaks, goleak.IgnoreAnyFunction("github.com/mirrorgate/mirrorgate/test/kafkatest.StartProcess.func1"))
	})
	return x
}

// mirror creates a topic on both sides and starts its partitions.
func (x *kafkaPair) mirror(t *testing.T, topic string, partitions int32, sourceReplicas, destReplicas int16) []PartitionSpec {
	t.Helper()
	x.source.create(t, topic, partitions, sourceReplicas)
	x.dest.create(t, topic, partitions, destReplicas)
	details, err := x.source.admin.ListTopics(t.Context(), topic)
	require.NoError(t, err)
	id, err := x.log.TakeProducerID(t.Context())
	require.NoError(t, err)
	var specs []PartitionSpec
	for p := range partitions {
		specs = append(specs, PartitionSpec{Topic: topic, SourceTopicID: cluster.TopicID(details[topic].ID), Partition: p, ProducerID: id})
		x.Start(specs[p])
	}
	return specs
}

// load writes until ctx ends.
func (x *kafkaPair) load(ctx context.Context, topic string, partitions int32) error {
	for i := 0; ctx.Err() == nil; i++ {
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
		require.Eventually(t, func() bool { status, _ = x.Status(topic, p); return status.LastMirrored == end.Offset },
			90*time.Second, 10*time.Millisecond, "%s-%d does not reach %d", topic, p, end.Offset)
		require.Zero(t, status.Lag())
		require.Equal(t, Mirroring, status.State)
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
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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

// Brokers are killed and come back on both sides under load: one of three, and the only one.
func TestReplicatorOnKafkaOutlivesBrokers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes: clusters of three brokers")
	}
	for _, size := range []struct {
		source, dest int32
	}{{3, 1}, {1, 3}} {
		t.Run(fmt.Sprintf("from %d brokers to %d", size.source, size.dest), func(t *testing.T) {
			outliveBrokers(t, size.source, size.dest)
		})
	}
}

func outliveBrokers(t *testing.T, sourceBrokers, destBrokers int32) {
	x := replicateKafka(t, int(sourceBrokers), int(destBrokers))
	const partitions = 6
	specs := x.mirror(t, "t", partitions, int16(sourceBrokers), int16(destBrokers))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loaded := make(chan error, 1)
	go func() { loaded <- x.load(ctx, "t", partitions) }()

	for id := range min(2, sourceBrokers) { // a cluster of one broker is away altogether meanwhile
		x.source.bounce(t, id+1)
	}
	for id := range min(2, destBrokers) {
		x.dest.bounce(t, id+1)
	}
	cancel()
	require.NoError(t, <-loaded)
	records := x.requireEqual(t, "t", partitions)
	t.Logf("%d records, all equal", records)
	for _, spec := range specs {
		status, _ := x.Status("t", spec.Partition)
		last, err := x.Stop(t.Context(), spec)
		require.NoError(t, err)
		require.Equal(t, status.LastMirrored, last)
	}
}

// A foreign write to an idle partition is found without any new record at the source; the others go on.
func TestReplicatorOnKafkaFindsForeignWrites(t *testing.T) {
	x := replicateKafka(t, 1, 1)
	specs := x.mirror(t, "t", 2, 1, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.NoError(t, x.load(ctx, "t", 2))
	x.requireEqual(t, "t", 2)
	before, _ := x.Status("t", 0)
	require.NoError(t, x.dest.client.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: 0, Value: []byte("foreign")}).FirstErr())
	require.Eventually(t, func() bool { s, _ := x.Status("t", 0); return s.State == Failed }, 30*time.Second, 10*time.Millisecond)
	status, _ := x.Status("t", 0)
	require.Contains(t, status.Reason, fmt.Sprintf("foreign write in t-0 at offset %d", before.LastMirrored))

	require.NoError(t, x.source.client.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: 1, Value: []byte("more")}).FirstErr())
	other, _ := x.Status("t", 1)
	require.Equal(t, Mirroring, other.State)
	require.Eventually(t, func() bool { s, _ := x.Status("t", 1); return s.Lag() == 0 && s.LastMirrored == other.LastMirrored+1 }, 30*time.Second, 10*time.Millisecond)

	last, err := x.Stop(t.Context(), specs[0])
	require.NoError(t, err)
	require.Equal(t, before.LastMirrored, last, "the foreign record is not mirrored")
}
