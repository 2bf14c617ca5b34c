package replication

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/recordbatch"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// put writes n records to a partition of the source with a client that knows nothing of what the topic was before.
func (x *kafkaPair) put(t *testing.T, topic string, partition int32, n int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(x.source.Bootstrap(), ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(), kgo.MetadataMinAge(100*time.Millisecond), kgo.UnknownTopicRetries(-1))
	require.NoError(t, err)
	defer client.Close()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: fmt.Appendf(nil, "%s %d %d", t.Name(), time.Now().UnixNano(), i)})
	}
	require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
}

func (x *kafkaPair) awaitMirrored(t *testing.T, topic string, partition int32, end int64) {
	t.Helper()
	require.Eventually(t, func() bool { s, _ := x.Status(topic, partition); return s.LastMirrored == end }, patience, 20*time.Millisecond)
}

// awaitDiverged returns the reason, and proves that nothing was appended since.
func (x *kafkaPair) awaitDiverged(t *testing.T, topic string, partition int32, end int64) string {
	t.Helper()
	require.Eventually(t, func() bool { s, _ := x.Status(topic, partition); return s.State == Failed }, patience, 20*time.Millisecond)
	status, _ := x.Status(topic, partition)
	t.Log(status.Reason)
	ends, err := x.dest.admin.ListEndOffsets(t.Context(), topic)
	require.NoError(t, err)
	got, _ := ends.Lookup(topic, partition)
	require.Equal(t, end, got.Offset)
	return status.Reason
}

// Topics that are made again, with fewer and with more records, from sources with topic IDs and Fetch v13, with topic
// IDs alone (2.8), and with neither (2.7). A topic in the same fetch session goes on.
func TestDivergenceOnKafkaOfRemadeTopics(t *testing.T) {
	for _, version := range []string{kafkatest.DefaultVersion, "2.8.2", "2.7.2"} {
		t.Run(version, func(t *testing.T) {
			if testing.Short() && version != kafkatest.DefaultVersion {
				t.Skip("starts an old Kafka")
			}
			requireNoLeaksAfter(t)
			source := sharedSide(t, "source", 1)
			if version != kafkatest.DefaultVersion {
				source = startSide(t, kafkatest.Options{Version: version})
			}
			x := replicateBetween(t, source, sharedSide(t, "destination", 1), nil)
			fewer, more, other := "fewer-"+version, "more-"+version, "other-"+version
			for _, topic := range []string{fewer, more, other} {
				x.mirror(t, topic, 1, 1, 1)
				x.put(t, topic, 0, 20)
				x.awaitMirrored(t, topic, 0, 20)
			}
			away := make(map[string]time.Duration) // the longest that the source can have said that there is no such topic
			for topic, n := range map[string]int{fewer: 5, more: 50} {
				began := time.Now()
				_, err := x.source.admin.DeleteTopics(t.Context(), topic)
				require.NoError(t, err)
				require.Eventually(t, func() bool {
					resp, err := x.source.admin.CreateTopic(t.Context(), 1, 1, nil, topic)
					return err == nil && resp.Err == nil
				}, patience, 20*time.Millisecond)
				x.put(t, topic, 0, n)
				away[topic] = time.Since(began)
			}
			for _, topic := range []string{fewer, more} {
				// Its absence is what is seen only if it was not there at some looks in a row.
				if reason := x.awaitDiverged(t, topic, 0, 20); strings.Contains(reason, "the source topic was deleted; ") {
					require.Greater(t, away[topic], (lostLooks-1)*lostPause)
				} else {
					require.Contains(t, reason, "diverged: ")
				}
			}
			x.put(t, other, 0, 20)
			x.awaitMirrored(t, other, 0, 40)
		})
	}
}

// An unclean election: the follower that was behind becomes the leader. Partition 0 is mirrored all the time, 1 and 2 only
// until before and from after it, when the source has grown past what was mirrored of 2.
func TestDivergenceOnKafkaOfUncleanElections(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute: a cluster of three brokers")
	}
	var told [3]epochsOf
	requireNoLeaksAfter(t)
	x := replicateBetween(t, sharedSide(t, "three", 3), sharedSide(t, "destination", 1), func(cfg *Config) {
		cfg.Events.SourceEpochs = func(topic string, p int32, epochs SourceEpochs) { told[p].take(topic, p, epochs) }
	})
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "unclean", -1, -1
	for p := range int32(3) {
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: p, Replicas: []int32{1, 2}})
	}
	config := kmsg.NewCreateTopicsRequestTopicConfig()
	config.Name, config.Value = "unclean.leader.election.enable", kmsg.StringPtr("true")
	topic.Configs = append(topic.Configs, config)
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(t.Context(), x.source.client)
	require.NoError(t, err)
	require.Zero(t, resp.Topics[0].ErrorCode)
	x.dest.create(t, "unclean", 3, 1)
	id, err := x.log.TakeProducerID(t.Context())
	require.NoError(t, err)
	specs := make([]PartitionSpec, 3)
	for p := range specs {
		specs[p] = PartitionSpec{Topic: "unclean", SourceTopicID: cluster.TopicID(resp.Topics[0].TopicID), Partition: int32(p), ProducerID: id}
		x.Start(specs[p])
		x.put(t, "unclean", int32(p), 30)
		x.awaitMirrored(t, "unclean", int32(p), 30)
	}
	x.source.Kill(2)
	for p := range int32(3) {
		x.put(t, "unclean", p, 20)
		x.awaitMirrored(t, "unclean", p, 50)
	}
	for p := range int32(2) {
		x.Drop("unclean", p+1)
		specs[p+1].SourceEpochs, _ = told[p+1].get()
	}
	x.source.Kill(1)
	require.NoError(t, x.source.Restart(t.Context(), 2))
	for p, n := range []int{5, 5, 100} {
		x.put(t, "unclean", int32(p), n)
	}
	x.Start(specs[1])
	x.Start(specs[2])
	require.Contains(t, x.awaitDiverged(t, "unclean", 0, 50), "truncated its log at 30 (unclean election, or the topic was made again?), where its leader epoch")
	require.Contains(t, x.awaitDiverged(t, "unclean", 1, 50), "diverged: ")
	require.Contains(t, x.awaitDiverged(t, "unclean", 2, 50), "diverged: ")
	require.NoError(t, x.source.Restart(t.Context(), 1))
}

// What a source does to its logs by itself is no divergence, also while the mirror is down and where it takes away the
// very records that would be compared: compaction, retention, transactions, append times, and a restart of the broker.
func TestNoDivergenceOnKafka(t *testing.T) {
	x := replicateKafka(t, nil)
	topics := map[string]map[string]*string{
		"txn":       nil,
		"appended":  {"message.timestamp.type": kadm.StringPtr("LogAppendTime")},
		"retained":  nil,
		"compacted": {"cleanup.policy": kadm.StringPtr("compact"), "segment.ms": kadm.StringPtr("100"), "min.cleanable.dirty.ratio": kadm.StringPtr("0.01")},
	}
	id, err := x.log.TakeProducerID(t.Context())
	require.NoError(t, err)
	specs := make(map[string]PartitionSpec)
	for topic, configs := range topics {
		resp, err := x.source.admin.CreateTopic(t.Context(), 1, 1, configs, topic)
		require.NoError(t, err)
		x.dest.create(t, topic, 1, 1)
		specs[topic] = PartitionSpec{Topic: topic, SourceTopicID: cluster.TopicID(resp.ID), ProducerID: id}
		x.Start(specs[topic])
	}
	txn, err := kgo.NewClient(kgo.SeedBrokers(x.source.Bootstrap()), kgo.TransactionalID("t"))
	require.NoError(t, err)
	defer txn.Close()
	n := 0
	write := func(topic string, count int) {
		t.Helper()
		var records []*kgo.Record
		for range count {
			n++
			records = append(records, &kgo.Record{Topic: topic, Key: []byte("k"), Value: fmt.Appendf(nil, "value %d", n)})
		}
		if topic != "txn" {
			require.NoError(t, x.source.client.ProduceSync(t.Context(), records...).FirstErr())
			return
		}
		for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} { // the log ends in fillers
			require.NoError(t, txn.BeginTransaction())
			for _, r := range records {
				require.NoError(t, txn.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: r.Value}).FirstErr())
			}
			require.NoError(t, txn.EndTransaction(t.Context(), end))
		}
	}
	caughtUp := func() {
		t.Helper()
		for topic := range topics {
			ends, err := x.source.admin.ListEndOffsets(t.Context(), topic)
			require.NoError(t, err)
			end, _ := ends.Lookup(topic, 0)
			var status Status
			done := assert.Eventually(t, func() bool {
				status, _ = x.Status(topic, 0)
				return status.State == Failed || status.State == Mirroring && status.LastMirrored >= end.Offset && status.Lag() == 0 // a marker may come later
			}, patience, 20*time.Millisecond)
			require.True(t, done && status.State == Mirroring, "%s, source end %d: %+v", topic, end.Offset, status)
		}
	}
	for range 3 {
		for topic := range topics {
			write(topic, 10)
		}
		caughtUp()
		ends, err := x.source.admin.ListEndOffsets(t.Context(), "retained", "compacted")
		require.NoError(t, err)
		for topic := range topics {
			x.Drop(topic, 0)
		}
		mirrored, _ := ends.Lookup("compacted", 0)
		all, _ := ends.Lookup("retained", 0)
		deleted := make(kadm.Offsets)
		deleted.AddOffset("retained", 0, all.Offset, -1)
		_, err = x.source.admin.DeleteRecords(t.Context(), deleted)
		require.NoError(t, err)
		// The cleaner leaves the active segment alone, so there have to be two behind what was mirrored.
		require.Eventually(t, func() bool {
			write("compacted", 1)
			first, err := cluster.FetchOnce(t.Context(), x.source.client.Broker(1), cluster.TopicPartition{Topic: "compacted", Partition: 0}, -1, mirrored.Offset-1)
			if err != nil || len(first.RecordBatches) == 0 {
				return false
			}
			h, err := recordbatch.ParseHeader(first.RecordBatches)
			return err == nil && (h.BaseOffset >= mirrored.Offset || h.NumRecords == 0)
		}, patience, 150*time.Millisecond)
		for topic := range topics {
			x.Start(specs[topic])
		}
		caughtUp()
	}
	x.source.bounce(t, 1)
	for topic := range topics {
		write(topic, 10)
	}
	caughtUp()
}

// A source's broker that is killed forgets a deletion of the last minute. The mirror, which has followed it, stays where it
// is, says so and goes on, also in another process. That a stranger trims the destination is noticed all the same.
func TestNoDivergenceOnKafkaOfAForgottenDeletion(t *testing.T) {
	var mu sync.Mutex
	noted := make(map[int32]int64)
	events := Events{}
	x := replicateKafka(t, func(cfg *Config) {
		cfg.Events.SourceStart = func(topic string, p int32, start int64) { events.SourceStart(topic, p, start) }
	})
	events.SourceStart = func(topic string, p int32, start int64) {
		go func() {
			mu.Lock()
			noted[p] = start
			mu.Unlock()
			x.StartNoted(topic, p, start)
		}()
	}
	specs := x.mirror(t, "forgotten", 2, 1, 1)
	keep := "-1"
	altered, err := x.dest.admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "retention.ms", Value: &keep}}, "forgotten")
	require.NoError(t, err)
	require.NoError(t, altered[0].Err)
	trim := func(side kafkaSide, partition int32, offset int64) {
		t.Helper()
		offsets := make(kadm.Offsets)
		offsets.AddOffset("forgotten", partition, offset, -1)
		deleted, err := side.admin.DeleteRecords(t.Context(), offsets)
		require.NoError(t, err)
		require.NoError(t, deleted.Error())
	}
	startOf := func(side kafkaSide, partition int32) int64 {
		t.Helper()
		starts, err := side.admin.ListStartOffsets(t.Context(), "forgotten")
		require.NoError(t, err)
		start, _ := starts.Lookup("forgotten", partition)
		return start.Offset
	}
	for p := range int32(2) {
		x.put(t, "forgotten", p, 30)
		x.awaitMirrored(t, "forgotten", p, 30)
		trim(x.source, p, 20)
		require.Eventually(t, func() bool { return startOf(x.dest, p) == 20 }, patience, 20*time.Millisecond)
	}
	x.Drop("forgotten", 1)
	x.source.bounce(t, 1)
	for p := range int32(2) {
		require.Zero(t, startOf(x.source, p), "it was written down")
		x.put(t, "forgotten", p, 10)
	}
	mu.Lock()
	specs[1].SourceStart = noted[1]
	mu.Unlock()
	require.EqualValues(t, 20, specs[1].SourceStart)
	x.Start(specs[1])
	for p := range int32(2) {
		x.awaitMirrored(t, "forgotten", p, 40)
		require.EqualValues(t, 20, startOf(x.dest, p))
		status, _ := x.Status("forgotten", p)
		require.Equal(t, Mirroring, status.State)
		require.Contains(t, status.Reason, "the source's log starts at 0 again, though it was deleted up to 20")
	}
	trim(x.source, 0, 25)
	require.Eventually(t, func() bool { s, _ := x.Status("forgotten", 0); return startOf(x.dest, 0) == 25 && s.Reason == "" }, patience, 20*time.Millisecond)

	trim(x.dest, 1, 30)
	require.Contains(t, x.awaitDiverged(t, "forgotten", 1, 40), "trimmed: the destination log starts at 30, the source's at 0")
	x.put(t, "forgotten", 0, 1)
	x.awaitMirrored(t, "forgotten", 0, 41)
}
