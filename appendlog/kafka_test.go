package appendlog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap/zapcore"

	"github.com/mirrorgate/mirrorgate/test/faultproxy"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

var zapLevel = zapcore.ErrorLevel

func singleBroker(t testing.TB) string {
	t.Helper()
	return kafkatest.Shared(t, "appendlog", kafkatest.Options{}).Bootstrap()
}

func topicName(t testing.TB) string { return strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()) }

func TestKafkaCopies(t *testing.T) {
	bootstrap := singleBroker(t)
	topic := topicName(t)
	createTopic(t, bootstrap, topic, 12, 1, nil)
	c := testClient(t, bootstrap, func(cfg *Config) { cfg.MaxRequestBytes = 100_000 })
	id := producerID(t, c)
	const end = 20_000
	copiers := make([]*copier, 12)
	for i := range copiers {
		copiers[i] = newCopier(t, end, random(uint64(i), 300)).open(c, Partition{Topic: topic, Partition: int32(i), ProducerID: id})
	}
	for i, cp := range copiers {
		cp.waitCopied() // a new topic's leader may be in doubt for a moment
		requireCopy(t, bootstrap, topic, int32(i), end, 0)
	}
	// A second client goes on where the first one stopped, having to read nothing but the log.
	c.Close()
	c2 := testClient(t, bootstrap, nil)
	cp := newCopier(t, end+500, fixed(7)).open(c2, Partition{Topic: topic, Partition: 3, ProducerID: id})
	cp.waitCopied()
	if cp.readys[0] != end {
		t.Errorf("second client began at %d, want %d", cp.readys[0], end)
	}
	requireCopy(t, bootstrap, topic, 3, end+500, 0)
	// A later incarnation, with another producer ID, needs to know the past one.
	next := producerID(t, c2)
	other := newCopier(t, end+10, fixed(10)).open(c2, Partition{Topic: topic, Partition: 4, ProducerID: next}, id)
	other.waitCopied()
	stranger := newCopier(t, end+10, fixed(10)).open(c2, Partition{Topic: topic, Partition: 5, ProducerID: next})
	stranger.wait("failure", func() bool { return stranger.failed != nil })
	var fw *ForeignWriteError
	if !errors.As(stranger.failed, &fw) || fw.ProducerID != id {
		t.Errorf("a log of an unknown producer gave %v", stranger.failed)
	}
	// Unless it is told that the log was there before; whoever comes behind that is a stranger still.
	continued := newCopier(t, end+10, fixed(10)).open(c2, Partition{Topic: topic, Partition: 6, ProducerID: next, From: end})
	continued.waitCopied()
	if continued.readys[0] != end {
		t.Errorf("the log that is continued began at %d, want %d", continued.readys[0], end)
	}
	before := newCopier(t, end+10, fixed(10)).open(c2, Partition{Topic: topic, Partition: 7, ProducerID: next, From: end - 1})
	before.wait("failure", func() bool { return before.failed != nil })
}

// A topic that was deleted and made anew is another one: neither what is ready to be sent to the first, nor its fence, may
// reach the second.
func TestKafkaTopicMadeAnew(t *testing.T) {
	bootstrap := singleBroker(t)
	topic := topicName(t)
	admin := kadm.NewClient(kgoClient(t, bootstrap))
	create := func() [16]byte {
		var id [16]byte
		deadline := time.Now().Add(5 * time.Minute) // it may still be in deletion
		for id == ([16]byte{}) && time.Now().Before(deadline) {
			if created, err := admin.CreateTopic(t.Context(), 1, 1, nil, topic); err == nil {
				id = created.ID
			}
		}
		return id
	}
	id := create()
	c := testClient(t, bootstrap, nil)
	p := Partition{Topic: topic, TopicID: id, ProducerID: producerID(t, c)}
	cp := newCopier(t, 1000, fixed(10)).open(c, p)
	cp.waitCopied()
	if _, err := admin.DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	anew := create()
	cp.extend(2000)
	cp.wait("doubt", func() bool { return strings.Contains(fmt.Sprint(last(cp.doubts)), "created anew") })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if last, err := cp.l.Fence(ctx); err == nil {
		t.Errorf("fenced at %d", last)
	}
	cp.stop()
	if left := readAll(t, bootstrap, topic, 0); len(left) > 0 {
		t.Errorf("%d records are in the new topic", len(left))
	}
	// A client that knew the first one finds the second.
	p.TopicID = anew
	newCopier(t, 100, fixed(10)).open(c, p).waitCopied()
	requireCopy(t, bootstrap, topic, 0, 100, 0)
}

// startBehindProxy starts a broker that sends everybody to a fault proxy.
func startBehindProxy(t testing.TB, settings map[string]string) (*kafkatest.Cluster, *faultproxy.Proxy) {
	t.Helper()
	proxy, err := faultproxy.Listen("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	cluster := kafkatest.Start(t, kafkatest.Options{Settings: settings, Advertise: map[int32]string{1: proxy.Addr()}})
	proxy.SetTarget(cluster.BrokerAddr(1))
	return cluster, proxy
}

// TestKafkaCuts: the connection is cut between the append and its answer, 200 times.
func TestKafkaCuts(t *testing.T) {
	cluster, proxy := startBehindProxy(t, nil)
	testCuts(t, cluster, proxy, 200, timestamp)
}

// TestKafkaCutsOldData: brokers forget a producer once its last *record timestamp* is a day old, so the producer of old
// data is forgotten at each look, here ten times a second instead of every ten minutes.
func TestKafkaCutsOldData(t *testing.T) {
	cluster, proxy := startBehindProxy(t, map[string]string{
		"producer.id.expiration.check.interval.ms": "100", "log.retention.ms": "-1",
	})
	testCuts(t, cluster, proxy, 50, timestamp-(48*time.Hour).Milliseconds())
}

func testCuts(t *testing.T, cluster *kafkatest.Cluster, proxy *faultproxy.Proxy, cuts, timestamp int64) {
	const partitions, end = 4, 100_000
	topic := topicName(t)
	createTopic(t, cluster.Bootstrap(), topic, partitions, 1, nil)
	var left, seen atomic.Int64
	left.Store(cuts)
	proxy.CutResponses(func(key, _ int16) bool {
		return key == keyProduce && seen.Add(1)%3 == 0 && left.Add(-1) >= 0
	})
	c := testClient(t, proxy.Addr(), func(cfg *Config) { cfg.BackoffMax = 50 * time.Millisecond })
	id := producerID(t, c)
	copiers := make([]*copier, partitions)
	for i := range copiers {
		copiers[i] = newCopier(t, end, random(uint64(i), []int64{120, 20}[i%2]))
		copiers[i].time = timestamp
		copiers[i].bulk = changingLanes
		copiers[i].open(c, Partition{Topic: topic, Partition: int32(i), ProducerID: id, MergeBytes: i % 2 * 100_000})
	}
	goal := int64(0)
	for left.Load() > 0 && goal < 100*end { // the source grows until all cuts were made
		goal += end
		for _, cp := range copiers {
			cp.extend(goal)
		}
		for _, cp := range copiers {
			cp.waitCopied()
		}
	}
	if proxy.Cuts() < cuts {
		t.Errorf("only %d connections were cut", proxy.Cuts())
	}
	for i := range copiers {
		requireCopy(t, cluster.Bootstrap(), topic, int32(i), goal, 0)
	}
	t.Logf("%d connections cut, %d records a partition", proxy.Cuts(), goal)
}

// TestKafkaRace: two gateways write the same data with one producer ID, in batches of different sizes, and a third joins.
func TestKafkaRace(t *testing.T) {
	bootstrap := singleBroker(t)
	topic := topicName(t)
	createTopic(t, bootstrap, topic, 2, 1, nil)
	const end = 30_000
	var copiers []*copier
	var id int64 = -1
	for i, most := range []int64{40, 170, 63} {
		c := testClient(t, bootstrap, func(cfg *Config) { cfg.BackoffMax = 100 * time.Millisecond })
		if id < 0 {
			id = producerID(t, c)
		}
		for p := range int32(2) {
			copiers = append(copiers, newCopier(t, end, random(uint64(i)*2+uint64(p), most)).open(c, Partition{Topic: topic, Partition: p, ProducerID: id}))
		}
	}
	for _, cp := range copiers {
		cp.waitCopied()
	}
	requireCopy(t, bootstrap, topic, 0, end, 0)
	requireCopy(t, bootstrap, topic, 1, end, 0)
}

func produceDirectly(t testing.TB, bootstrap, topic string, partition int32, value string) int64 {
	t.Helper()
	c := kgoClient(t, bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	r, err := c.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}).First()
	if err != nil {
		t.Fatal(err)
	}
	return r.Offset
}

func TestKafkaForeignWrite(t *testing.T) {
	bootstrap := singleBroker(t)
	topic := topicName(t)
	createTopic(t, bootstrap, topic, 3, 1, nil)
	c := testClient(t, bootstrap, nil)
	id := producerID(t, c)
	copiers := make([]*copier, 3)
	for i := range copiers {
		copiers[i] = newCopier(t, 1000, fixed(10)).open(c, Partition{Topic: topic, Partition: int32(i), ProducerID: id})
		copiers[i].waitCopied()
	}
	requireFailedAt := func(cp *copier, offset int64) {
		t.Helper()
		cp.wait("failure", func() bool { return cp.failed != nil })
		var fw *ForeignWriteError
		if !errors.As(cp.failed, &fw) || fw.Offset != offset {
			t.Errorf("got %v, want a foreign write at offset %d", cp.failed, offset)
		}
		if err := cp.l.Append(makeBatch(1000, 1001)); !errors.Is(err, ErrFailed) {
			t.Errorf("append after it: %v", err)
		}
	}
	// Seen by the next append.
	if at := produceDirectly(t, bootstrap, topic, 1, "stranger"); at != 1000 {
		t.Fatalf("stranger wrote at %d", at)
	}
	for _, cp := range copiers {
		cp.extend(2000)
	}
	copiers[0].waitCopied()
	copiers[2].waitCopied()
	requireFailedAt(copiers[1], 1000)
	requireCopy(t, bootstrap, topic, 0, 2000, 0)
	requireCopy(t, bootstrap, topic, 2, 2000, 0)

	// Seen by a later start, which finds a stranger's batch, or its own at a shifted offset, at the end.
	produceDirectly(t, bootstrap, topic, 2, "stranger")
	c.Close()
	c2 := testClient(t, bootstrap, nil)
	requireFailedAt(newCopier(t, 3000, fixed(10)).open(c2, Partition{Topic: topic, Partition: 2, ProducerID: id}), 2000)
	requireFailedAt(newCopier(t, 3000, fixed(10)).open(c2, Partition{Topic: topic, Partition: 1, ProducerID: id}), 1000)
}

func TestKafkaFence(t *testing.T) {
	bootstrap := singleBroker(t)
	topic := topicName(t)
	compact := "compact"
	createTopic(t, bootstrap, topic, 1, 1, nil)
	createTopic(t, bootstrap, topic+"-compact", 1, 1, map[string]*string{"cleanup.policy": &compact})
	for _, topic := range []string{topic, topic + "-compact"} {
		testFence(t, bootstrap, topic)
	}
}

func testFence(t *testing.T, bootstrap, topic string) {
	first, second, third := testClient(t, bootstrap, nil), testClient(t, bootstrap, nil), testClient(t, bootstrap, nil)
	id := producerID(t, first)
	p := Partition{Topic: topic, ProducerID: id}
	cp := newCopier(t, 500, fixed(10)).open(first, p)
	cp.waitCopied()
	zombie := newCopier(t, 500, fixed(10)).open(second, p)
	zombie.waitCopied()

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	fence := func(l *Log) {
		t.Helper()
		for range 2 {
			if last, err := l.Fence(ctx); err != nil || last != 500 {
				t.Errorf("fence at %d, %v; want 500", last, err)
			}
		}
	}
	fence(cp.l)
	cp.wait("Fenced", func() bool { return len(cp.fenced) == 1 && cp.fenced[0] == 500 })

	// Another gateway is told to fence as well, without having read anything: it finds the fence.
	late := newCopier(t, 0, fixed(1)).open(third, p)
	fence(late.l)

	// Clients write. The gateway that slept has the very next sequence in its hands, and is refused.
	at := produceTo(t, bootstrap, topic, "after the stop")
	if at != 501 {
		t.Errorf("first write after the stop went to offset %d", at)
	}
	zombie.extend(600)
	zombie.wait("Fenced", func() bool { return len(zombie.fenced) == 1 })
	fence(zombie.l) // the repetition of the fence is recognised, though it is not the last batch any more

	// One that restarts with old state is told too.
	third.Close()
	again := newCopier(t, 600, fixed(10)).open(testClient(t, bootstrap, nil), p)
	again.wait("Fenced", func() bool { return len(again.fenced) == 1 })
	fence(again.l)
	if again.failed != nil {
		t.Errorf("fenced log failed with %v", again.failed)
	}
	requireCopy(t, bootstrap, topic, 0, 500, 2)
}

func produceTo(t testing.TB, bootstrap, topic, value string) int64 {
	t.Helper()
	r, err := kgoClient(t, bootstrap).ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte(value)}).First()
	if err != nil {
		t.Fatal(err)
	}
	return r.Offset
}

// TestKafkaForgottenProducer: a broker that has forgotten the producer takes any sequence. The rule "one batch alone,
// after the end was read" is what keeps offsets right then.
func TestKafkaForgottenProducer(t *testing.T) {
	cluster := kafkatest.Start(t, kafkatest.Options{Settings: map[string]string{
		"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "100",
	}})
	topic := topicName(t)
	createTopic(t, cluster.Bootstrap(), topic, 1, 1, nil)
	var skew atomic.Int64
	c := testClient(t, cluster.Bootstrap(), func(cfg *Config) {
		cfg.Now = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
	})
	id := producerID(t, c)
	cp := newCopier(t, 0, fixed(7)).open(c, Partition{Topic: topic, ProducerID: id})
	cp.wait("the start", func() bool { return len(cp.readys) > 0 }) // a new topic's leader may be in doubt for a moment
	started := len(cp.doubts)
	adm := kadm.NewClient(kgoClient(t, cluster.Bootstrap()))
	var set kadm.TopicsSet
	set.Add(topic, 0)
	for end := int64(100); end <= 300; end += 100 {
		cp.extend(end)
		cp.waitCopied()
		for known := true; known; {
			described, err := adm.DescribeProducers(t.Context(), set)
			if err != nil {
				t.Fatal(err)
			}
			known = false
			described.Each(func(d kadm.DescribedProducersTopic) {
				d.Partitions.EachProducer(func(kadm.DescribedProducer) { known = true })
			})
		}
		skew.Add(int64(2 * time.Hour)) // the idle hour
	}
	requireCopy(t, cluster.Bootstrap(), topic, 0, 300, 0)
	if len(cp.readys) != 1 || len(cp.doubts) != started {
		t.Errorf("idleness alone gave Ready %v, doubts %v", cp.readys, cp.doubts[started:])
	}
	// What the rule is for: without the idle hour, everything is deleted behind our back and the log written by others.
	if _, err := adm.DeleteRecords(t.Context(), kadm.Offsets{topic: {0: kadm.Offset{Topic: topic, At: 300}}}); err != nil {
		t.Fatal(err)
	}
	cp.extend(400)
	cp.waitCopied()
	records := readAll(t, cluster.Bootstrap(), topic, 0)
	if len(records) != 100 || records[0].Offset != 300 || string(records[99].Value) != string(valueAt(399)) {
		t.Errorf("after DeleteRecords: %d records, the first at %d", len(records), records[0].Offset)
	}
	// A restart finds a log that starts at its end.
	if _, err := adm.DeleteRecords(t.Context(), kadm.Offsets{topic: {0: kadm.Offset{Topic: topic, At: 400}}}); err != nil {
		t.Fatal(err)
	}
	again := newCopier(t, 450, fixed(9)).open(testClient(t, cluster.Bootstrap(), nil), Partition{Topic: topic, ProducerID: id})
	again.waitCopied()
	if again.readys[0] != 400 {
		t.Errorf("restart began at %v", again.readys)
	}
}

// TestKafkaLeaderMoves: three brokers; leaders are killed hard, one after the other, while batches are in flight.
func TestKafkaLeaderMoves(t *testing.T) {
	if testing.Short() {
		t.Skip("needs three brokers")
	}
	cluster := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Heap: "256m"})
	topic := topicName(t)
	two := "2"
	createTopic(t, cluster.Bootstrap(), topic, 3, 3, map[string]*string{"min.insync.replicas": &two})
	c := testClient(t, cluster.Bootstrap(), nil)
	id := producerID(t, c)
	copiers := make([]*copier, 3)
	for i := range copiers {
		copiers[i] = newCopier(t, 1<<40, random(uint64(i), 100)).open(c, Partition{Topic: topic, Partition: int32(i), ProducerID: id})
	}
	progress := func(by int64) {
		t.Helper()
		for _, cp := range copiers {
			cp.mu.Lock()
			from := cp.acked
			cp.mu.Unlock()
			cp.wait(fmt.Sprintf("%d more records", by), func() bool { return cp.failed != nil || cp.acked >= from+by })
		}
	}
	progress(5000)
	for node := range int32(3) {
		cluster.Kill(node + 1)
		progress(5000)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		err := cluster.Restart(ctx, node+1)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		progress(5000)
	}
	for i, cp := range copiers {
		cp.stop()
		if cp.failed != nil {
			t.Errorf("partition %d failed: %v", i, cp.failed)
		}
		requirePrefix(t, cluster.Bootstrap(), topic, int32(i), cp.acked)
	}
}

// requirePrefix checks that the log is a prefix of the source, and holds at least what was acknowledged.
func requirePrefix(t testing.TB, bootstrap, topic string, partition int32, acked int64) {
	t.Helper()
	records := readAll(t, bootstrap, topic, partition)
	if int64(len(records)) < acked {
		t.Errorf("%s-%d holds %d records, but %d were acknowledged", topic, partition, len(records), acked)
	}
	requireCopy(t, bootstrap, topic, partition, int64(len(records)), 0)
}

// TestKafkaTooLarge: one oversize batch stops its own partition only, with the size and the setting.
func TestKafkaTooLarge(t *testing.T) {
	bootstrap := singleBroker(t)
	topic := topicName(t)
	limit := "5000"
	createTopic(t, bootstrap, topic, 2, 1, map[string]*string{"max.message.bytes": &limit})
	c := testClient(t, bootstrap, nil)
	id := producerID(t, c)
	// Where batches are merged to more than the limit, the limit is found.
	small := newCopier(t, 20_000, fixed(5)).open(c, Partition{Topic: topic, ProducerID: id, MergeBytes: 1 << 20})
	large := newCopier(t, 10_000, nil)
	large.size = func() int64 { // called with large.mu
		if large.next == 30 {
			return 1000
		}
		return 10
	}
	large.open(c, Partition{Topic: topic, Partition: 1, ProducerID: id})
	large.wait("failure", func() bool { return large.failed != nil })
	var rejected *RejectedError
	if !errors.As(large.failed, &rejected) || rejected.Setting != "max.message.bytes" || rejected.Bytes < 5000 || rejected.Offset != 30 {
		t.Errorf("got %#v", large.failed)
	}
	small.waitCopied()
	requireCopy(t, bootstrap, topic, 0, 20_000, 0)
	requireCopy(t, bootstrap, topic, 1, 30, 0)
}

// TestKafkaBlackHole: a broker that answers nothing any more is given up after the request timeout, and the same data
// goes on when it is back.
func TestKafkaBlackHole(t *testing.T) {
	cluster, proxy := startBehindProxy(t, nil)
	topic := topicName(t)
	createTopic(t, cluster.Bootstrap(), topic, 1, 1, nil)
	c := testClient(t, proxy.Addr(), func(cfg *Config) { cfg.Broker.RequestTimeout = 500 * time.Millisecond })
	id := producerID(t, testClient(t, proxy.Addr(), nil)) // which may take its time
	cp := newCopier(t, 1<<40, random(rand.Uint64(), 50)).open(c, Partition{Topic: topic, ProducerID: id})
	for range 3 {
		cp.mu.Lock()
		from := cp.acked
		cp.mu.Unlock()
		cp.wait("progress", func() bool { return cp.acked > from+1000 })
		doubts := 0
		cp.mu.Lock()
		doubts = len(cp.doubts)
		cp.mu.Unlock()
		proxy.Pause()
		cp.wait("a doubt", func() bool { return len(cp.doubts) > doubts })
		proxy.Resume()
	}
	cp.stop()
	requirePrefix(t, cluster.Bootstrap(), topic, 0, cp.acked)
}

// TestKafkaTrailingHighWatermark: a follower stands still, so the leader's log is longer than what readers are told.
// Nothing is sent until they agree: were the producer forgotten meanwhile, a batch for the high watermark would be taken
// behind the end of the log.
func TestKafkaTrailingHighWatermark(t *testing.T) {
	if testing.Short() {
		t.Skip("needs three brokers")
	}
	cluster := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Heap: "256m", Settings: map[string]string{
		"broker.session.timeout.ms": "600000", "replica.lag.time.max.ms": "600000", // or the follower is given up meanwhile
	}})
	topic := topicName(t)
	createTopic(t, cluster.Bootstrap(), topic, 1, 2, nil)
	c := testClient(t, cluster.Bootstrap(), func(cfg *Config) { cfg.BackoffMax = 100 * time.Millisecond })
	p := Partition{Topic: topic, ProducerID: producerID(t, c)}
	cp := newCopier(t, 100, fixed(10)).open(c, p)
	cp.waitCopied()
	cp.stop()

	adm := kadm.NewClient(kgoClient(t, cluster.Bootstrap()))
	topics, err := adm.ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	detail := topics[topic].Partitions[0]
	follower := detail.Replicas[0]
	if follower == detail.Leader {
		follower = detail.Replicas[1]
	}
	if err := cluster.Pause(follower); err != nil {
		t.Fatal(err)
	}
	// The leader alone has this one. (It is written by a stranger only because that is the simplest way with acks=1.)
	other := kgoClient(t, cluster.Bootstrap(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	if err := other.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("not replicated")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	late := newCopier(t, 200, fixed(10)).open(c, p)
	late.wait("a reading", func() bool { return len(late.doubts) > 0 || len(late.readys) > 0 || late.failed != nil })
	late.mu.Lock()
	if len(late.readys) > 0 || late.failed != nil || !errors.Is(late.doubts[0], errTrails) {
		t.Errorf("Ready %v, failed %v, doubts %v", late.readys, late.failed, late.doubts)
	}
	late.mu.Unlock()
	if err := cluster.Resume(follower); err != nil {
		t.Fatal(err)
	}
	late.wait("failure", func() bool { return late.failed != nil })
	var fw *ForeignWriteError
	if !errors.As(late.failed, &fw) || fw.Offset != 100 {
		t.Errorf("got %v", late.failed)
	}
}
