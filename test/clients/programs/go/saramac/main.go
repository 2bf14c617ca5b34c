// IBM/sarama.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"kconf/kit"
)

// version is the release whose protocol is spoken.
var version = get(sarama.ParseKafkaVersion(os.Getenv("KAFKA")))

func config(set ...func(*sarama.Config)) *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = kit.Client()
	c.Version = version
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Retry.Max = 20 // a broker may know its leadership of a new topic later than the controller
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.MaxWaitTime = 200 * time.Millisecond
	c.Consumer.Return.Errors = true
	c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	for _, f := range set {
		f(c)
	}
	return c
}

func codec(cc sarama.CompressionCodec) func(*sarama.Config) {
	return func(c *sarama.Config) { c.Producer.Compression = cc }
}
func acks(a sarama.RequiredAcks) func(*sarama.Config) {
	return func(c *sarama.Config) { c.Producer.RequiredAcks = a }
}
func idempotent(c *sarama.Config) { c.Producer.Idempotent, c.Net.MaxOpenRequests = true, 1 }
func readCommitted(c *sarama.Config) {
	c.Consumer.IsolationLevel = sarama.ReadCommitted
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func assert(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf(format, args...))
	}
}

func get[T any](v T, err error) T {
	must(err)
	return v
}

var admin sarama.ClusterAdmin

func allowed(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	must(err)
	p := get(strconv.Atoi(port))
	must(kit.Allowed(host, int32(p)))
	return addr
}

func makeTopic(check string, parts int32) string {
	must(admin.CreateTopic(kit.Name(check), &sarama.TopicDetail{NumPartitions: parts, ReplicationFactor: 1}, false))
	ask := map[int32]int64{}
	for p := range parts {
		ask[p] = sarama.OffsetNewest
	}
	// until the broker leads it: before, acks=0 is lost and a retry without idempotence may reorder
	assert(kit.Until(20*time.Second, func() bool {
		if partitionCount(kit.Name(check)) != int(parts) {
			return false
		}
		r, err := admin.ListOffsets(map[string]map[int32]int64{kit.Name(check): ask}, nil)
		for _, o := range r[kit.Name(check)] {
			if o.Err != sarama.ErrNoError {
				return false
			}
		}
		return err == nil
	}), "the broker does not lead the topic")
	return kit.Name(check)
}

func partitionCount(topic string) int {
	n := 0
	for _, p := range get(admin.DescribeTopics([]string{topic}))[0].Partitions {
		if p.Err == sarama.ErrNoError {
			n++
		}
	}
	return n
}

func produce(topic string, parts, from, to int, set ...func(*sarama.Config)) {
	p := get(sarama.NewSyncProducer(kit.Bootstrap(), config(set...)))
	defer p.Close()
	var ms []*sarama.ProducerMessage
	for i := from; i < to; i++ {
		ms = append(ms, &sarama.ProducerMessage{Topic: topic, Partition: int32(i % parts), Key: sarama.StringEncoder(kit.Key(i)), Value: sarama.StringEncoder(kit.Value(i))})
	}
	must(p.SendMessages(ms))
}

// readAll reads all partitions to the end that they have now, and n records.
func readAll(topic string, parts, n int, set ...func(*sarama.Config)) [][]*sarama.ConsumerMessage {
	c := get(sarama.NewConsumer(kit.Bootstrap(), config(set...)))
	defer c.Close()
	got, all, count := make([][]*sarama.ConsumerMessage, parts), make(chan *sarama.ConsumerMessage), 0
	for p := range parts {
		pc := get(c.ConsumePartition(topic, int32(p), 0))
		defer pc.AsyncClose()
		go func() {
			for m := range pc.Messages() {
				all <- m
			}
		}()
	}
	defer func() { // so that the closing above does not block on all
		go func() {
			for range all {
			}
		}()
	}()
	for wait := 20 * time.Second; ; {
		if count >= n {
			wait = 300 * time.Millisecond
		}
		select {
		case m := <-all:
			got[m.Partition] = append(got[m.Partition], m)
			count++
		case <-time.After(wait):
			return got
		}
	}
}

func values(got [][]*sarama.ConsumerMessage) [][]string {
	out := make([][]string, len(got))
	for p, ms := range got {
		for _, m := range ms {
			out[p] = append(out[p], string(m.Value))
		}
	}
	return out
}

func roundTrip(check string, set ...func(*sarama.Config)) kit.Check {
	return func() (string, error) {
		topic := makeTopic(check, 3)
		produce(topic, 3, 0, kit.N(), set...)
		return fmt.Sprintf("%d records in 3 partitions", kit.N()), kit.Compare(values(readAll(topic, 3, kit.N())), kit.N())
	}
}

func metadata() (string, error) {
	bs, controller, err := admin.DescribeCluster()
	must(err)
	seen := ""
	for _, b := range bs {
		seen += allowed(b.Addr()) + " "
	}
	return fmt.Sprintf("%scontroller %d", seen, controller), nil
}

func coordinator() (string, error) {
	cl := get(sarama.NewClient(kit.Bootstrap(), config()))
	defer cl.Close()
	return "group " + allowed(get(cl.Coordinator(kit.Name("g"))).Addr()) + ", transaction " + allowed(get(cl.TransactionCoordinator(kit.Name("t"))).Addr()), nil
}

func create() (string, error) {
	topic := makeTopic("create", 3)
	assert(partitionCount(topic) == 3, "not 3 partitions")
	err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false)
	assert(errors.Is(err, sarama.ErrTopicAlreadyExists), "again: %v", err)
	return "3 partitions; again: ErrTopicAlreadyExists", nil
}

func headers() (string, error) {
	topic, now := makeTopic("headers", 1), time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	p := get(sarama.NewSyncProducer(kit.Bootstrap(), config()))
	defer p.Close()
	hs := []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("1")}, {Key: []byte("h"), Value: []byte("2")}, {Key: []byte("empty"), Value: []byte{}}}
	must(p.SendMessages([]*sarama.ProducerMessage{
		{Topic: topic, Value: sarama.StringEncoder("nullkey"), Headers: hs, Timestamp: now},
		{Topic: topic, Key: sarama.StringEncoder("nullvalue"), Timestamp: now.Add(time.Millisecond)},
		{Topic: topic, Key: sarama.StringEncoder(""), Value: sarama.StringEncoder(""), Timestamp: now.Add(2 * time.Millisecond)}}))
	ms := readAll(topic, 1, 3)[0]
	assert(len(ms) == 3, "%d records", len(ms))
	assert(ms[0].Key == nil && string(ms[0].Value) == "nullkey", "null key %v", ms[0].Key)
	h := ms[0].Headers
	assert(len(h) == 3 && string(h[0].Value) == "1" && string(h[1].Value) == "2" && len(h[2].Value) == 0, "headers %v", h)
	assert(ms[1].Value == nil && string(ms[1].Key) == "nullvalue", "null value %v", ms[1].Value)
	assert(ms[2].Key != nil && ms[2].Value != nil && len(ms[2].Key)+len(ms[2].Value) == 0, "empty key and value")
	for i, m := range ms {
		assert(m.Timestamp.Equal(now.Add(time.Duration(i)*time.Millisecond)), "timestamp %v", m.Timestamp)
	}
	return "null and empty keys and values, 3 headers, timestamps", nil
}

func large() (string, error) {
	topic, big := makeTopic("large", 1), make([]byte, 900_000)
	rand.Read(big)
	p := get(sarama.NewSyncProducer(kit.Bootstrap(), config()))
	defer p.Close()
	_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(big)})
	must(err)
	assert(bytes.Equal(readAll(topic, 1, 1)[0][0].Value, big), "value differs")
	return "900000 bytes", nil
}

func seek() (string, error) {
	topic := makeTopic("seek", 1)
	produce(topic, 1, 0, 100)
	c := get(sarama.NewConsumer(kit.Bootstrap(), config()))
	defer c.Close()
	pc := get(c.ConsumePartition(topic, 0, 50))
	defer pc.Close()
	assert((<-pc.Messages()).Offset == 50, "start at 50")
	for range 49 {
		<-pc.Messages()
	}
	pc.Pause()
	time.Sleep(300 * time.Millisecond)
	produce(topic, 1, 100, 110)
	select {
	case <-pc.Messages():
		panic("records while paused")
	case <-time.After(600 * time.Millisecond):
	}
	pc.Resume()
	assert((<-pc.Messages()).Offset == 100, "resume at 100")
	return "start at 50, pause, resume", nil
}

func offsets() (string, error) {
	topic, t := makeTopic("offsets", 1), time.Now().Add(-time.Minute)
	p := get(sarama.NewSyncProducer(kit.Bootstrap(), config()))
	defer p.Close()
	for i := range 10 {
		_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("x"), Timestamp: t.Add(time.Duration(i) * time.Second)})
		must(err)
	}
	cl := get(sarama.NewClient(kit.Bootstrap(), config()))
	defer cl.Close()
	for at, want := range map[int64]int64{t.UnixMilli() + 4500: 5, sarama.OffsetOldest: 0, sarama.OffsetNewest: 10} {
		o := get(cl.GetOffset(topic, 0, at))
		assert(o == want, "offset for %d is %d, not %d", at, o, want)
	}
	return "by timestamp, earliest, latest", nil
}

// member is a consumer group handler that notes what it reads and marks it.
type member struct {
	g      sarama.ConsumerGroup
	mu     sync.Mutex
	keys   map[string]int
	owned  []int32
	setups int
	quit   context.CancelFunc
	done   chan struct{}
}

func (m *member) Setup(s sarama.ConsumerGroupSession) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owned = nil
	for _, ps := range s.Claims() {
		m.owned = ps
	}
	m.setups++
	return nil
}
func (m *member) Cleanup(s sarama.ConsumerGroupSession) error { s.Commit(); return nil }
func (m *member) ConsumeClaim(s sarama.ConsumerGroupSession, c sarama.ConsumerGroupClaim) error {
	for msg := range c.Messages() {
		m.mu.Lock()
		m.keys[string(msg.Key)]++
		m.mu.Unlock()
		s.MarkMessage(msg, "")
	}
	return nil
}

func newMember(topic, group string, set ...func(*sarama.Config)) *member {
	m := &member{keys: map[string]int{}, done: make(chan struct{}), g: get(sarama.NewConsumerGroup(kit.Bootstrap(), group, config(set...)))}
	ctx, quit := context.WithCancel(context.Background())
	m.quit = quit
	go func() {
		for range m.g.Errors() {
		}
	}()
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			if err := m.g.Consume(ctx, []string{topic}, m); err != nil {
				log.Print(err)
			}
		}
	}()
	return m
}

func (m *member) stop() {
	m.quit()
	<-m.done
	m.g.Close()
}
func (m *member) look() (owned []int32, keys, setups int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owned, len(m.keys), m.setups
}

func group() (string, error) {
	topic, g := makeTopic("group", 4), kit.Name("group")
	produce(topic, 4, 0, kit.N())
	a, b := newMember(topic, g), newMember(topic, g)
	var ao, bo []int32
	var all map[string]int
	ok := kit.Until(25*time.Second, func() bool {
		ao, _, _ = a.look()
		bo, _, _ = b.look()
		all = map[string]int{}
		for _, m := range []*member{a, b} {
			m.mu.Lock()
			for k := range m.keys {
				all[k]++
			}
			m.mu.Unlock()
		}
		return len(ao) == 2 && len(bo) == 2 && len(all) == kit.N()
	})
	assert(ok, "not reached in 25 s: assignments %v and %v, %d records", ao, bo, len(all))
	d := get(admin.DescribeConsumerGroups([]string{g}))[0]
	assert(len(d.Members) == 2, "%d members", len(d.Members))
	time.Sleep(500 * time.Millisecond)
	a.stop()
	b.stop()
	produce(topic, 4, kit.N(), kit.N()+100)
	cl := get(sarama.NewClient(kit.Bootstrap(), config()))
	defer cl.Close()
	lag := int64(0)
	committed := get(admin.ListConsumerGroupOffsets(g, map[string][]int32{topic: {0, 1, 2, 3}}))
	for p := range int32(4) {
		lag += get(cl.GetOffset(topic, p, sarama.OffsetNewest)) - committed.GetBlock(topic, p).Offset
	}
	assert(lag == 100, "lag %d", lag)
	c := newMember(topic, g)
	keys := 0
	kit.Until(20*time.Second, func() bool { _, keys, _ = c.look(); return keys >= 100 })
	time.Sleep(300 * time.Millisecond)
	_, keys, _ = c.look()
	c.stop()
	assert(keys == 100, "after the restart: %d records", keys)
	return fmt.Sprintf("2 members, %d records, lag 100, restart read 100", kit.N()), nil
}

func static() (string, error) {
	if !version.IsAtLeast(sarama.V2_3_0_0) {
		return "", kit.Skip("the protocol of that release has no static members")
	}
	topic, g := makeTopic("static", 4), kit.Name("static")
	produce(topic, 4, 0, 40)
	id := func(id string) func(*sarama.Config) {
		return func(c *sarama.Config) { c.Consumer.Group.InstanceId = id }
	}
	a, b := newMember(topic, g, id("one")), newMember(topic, g, id("two"))
	var before, bo []int32
	var setups int
	assert(kit.Until(25*time.Second, func() bool {
		before, _, _ = a.look()
		bo, _, setups = b.look()
		return len(before) == 2 && len(bo) == 2
	}), "assignments %v and %v", before, bo)
	a.stop()
	a = newMember(topic, g, id("one"))
	var after []int32
	assert(kit.Until(25*time.Second, func() bool { after, _, _ = a.look(); return len(after) == 2 }), "assignment after the restart: %v", after)
	_, _, again := b.look()
	d := get(admin.DescribeConsumerGroups([]string{g}))[0]
	ids := map[string]bool{}
	for _, m := range d.Members {
		ids[*m.GroupInstanceId] = true
	}
	a.stop()
	b.stop()
	assert(len(ids) == 2 && ids["one"] && ids["two"], "instance ids %v", ids)
	assert(fmt.Sprint(after) == fmt.Sprint(before) && again == setups, "the restarted member got %v, had %v; the other rejoined %d times", after, before, again-setups)
	return "restart kept the partitions, without a rebalance", nil
}

func txn() (string, error) {
	topic, g := makeTopic("txn", 1), kit.Name("txn")
	p := get(sarama.NewSyncProducer(kit.Bootstrap(), config(idempotent, func(c *sarama.Config) { c.Producer.Transaction.ID = g })))
	defer p.Close()
	for t := range 3 {
		must(p.BeginTxn())
		for range 5 {
			_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(fmt.Sprintf("t%d", t))})
			must(err)
		}
		if t == 0 {
			must(p.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: 0, Offset: 3}}}, g))
		}
		if t == 1 {
			must(p.AbortTxn())
		} else {
			must(p.CommitTxn())
		}
	}
	committed, all := readAll(topic, 1, 10, readCommitted)[0], readAll(topic, 1, 15)[0]
	assert(len(committed) == 10 && len(all) == 15, "read_committed %d, read_uncommitted %d", len(committed), len(all))
	for _, m := range committed {
		assert(string(m.Value) != "t1", "an aborted record")
	}
	o := get(admin.ListConsumerGroupOffsets(g, map[string][]int32{topic: {0}})).GetBlock(topic, 0).Offset
	assert(o == 3, "the transaction's offset is %d", o)
	return "2 commits, 1 abort, offsets in a transaction", nil
}

func groups() (string, error) {
	topic, g := makeTopic("groups", 1), kit.Name("groups")
	get(admin.AlterConsumerGroupOffsets(g, map[string]map[int32]sarama.OffsetAndMetadata{topic: {0: {Offset: 4, LeaderEpoch: -1}}}, nil))
	o := get(admin.ListConsumerGroupOffsets(g, map[string][]int32{topic: {0}})).GetBlock(topic, 0).Offset
	assert(o == 4, "offset %d", o)
	_, listed := get(admin.ListConsumerGroups())[g]
	assert(listed, "not listed")
	assert(get(admin.DescribeConsumerGroups([]string{g}))[0].State == "Empty", "state")
	must(admin.DeleteConsumerGroup(g))
	_, listed = get(admin.ListConsumerGroups())[g]
	assert(!listed, "still listed")
	return "alter offsets, list, describe, delete", nil
}

func configs() (string, error) {
	topic, v := makeTopic("configs", 1), "12345678"
	if !version.IsAtLeast(sarama.V2_3_0_0) {
		must(admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &v}, false))
	} else {
		must(admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &v}}, false))
	}
	assert(kit.Until(10*time.Second, func() bool {
		es := get(admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}}))
		return es[0].Value == v
	}), "retention.ms is not set")
	bs, _, err := admin.DescribeCluster()
	must(err)
	es := get(admin.DescribeConfig(sarama.ConfigResource{Type: sarama.BrokerResource, Name: strconv.Itoa(int(bs[0].ID()))}))
	return fmt.Sprintf("topic retention.ms, %d broker configs", len(es)), nil
}

func partitions() (string, error) {
	topic := makeTopic("partitions", 1)
	must(admin.CreatePartitions(topic, 4, nil, false))
	assert(kit.Until(10*time.Second, func() bool { return partitionCount(topic) == 4 }), "not 4 partitions")
	return "1 to 4", nil
}

func delrecords() (string, error) {
	topic := makeTopic("delrecords", 1)
	produce(topic, 1, 0, 10)
	must(admin.DeleteRecords(topic, map[int32]int64{0: 5}))
	cl := get(sarama.NewClient(kit.Bootstrap(), config()))
	defer cl.Close()
	o := get(cl.GetOffset(topic, 0, sarama.OffsetOldest))
	assert(o == 5, "earliest is %d", o)
	return "first 5 of 10", nil
}

func deltopic() (string, error) {
	topic := makeTopic("deltopic", 1)
	must(admin.DeleteTopic(topic))
	assert(kit.Until(10*time.Second, func() bool { _, there := get(admin.ListTopics())[topic]; return !there }), "still listed")
	return "", nil
}

func many() (string, error) {
	topic := makeTopic("many", 200)
	assert(partitionCount(topic) == 200, "not 200 partitions")
	produce(topic, 200, 0, 200)
	return "200 records in 200 partitions", kit.Compare(values(readAll(topic, 200, 200)), 200)
}

func leader() (string, error) {
	topic := makeTopic("leader", 1)
	p := get(sarama.NewSyncProducer(kit.Bootstrap(), config(idempotent)))
	defer p.Close()
	c := get(sarama.NewConsumer(kit.Bootstrap(), config()))
	defer c.Close()
	pc := get(c.ConsumePartition(topic, 0, 0))
	defer pc.AsyncClose()
	return kit.Leader(func(i int) error {
		_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(kit.Value(i))})
		return err
	}, func(d time.Duration) (got []string) {
		for end := time.After(d); ; {
			select {
			case m := <-pc.Messages():
				got = append(got, string(m.Value))
			case <-pc.Errors(): // it goes on by itself
			case <-end:
				return got
			}
		}
	})
}

// gap: sarama tells no position, so it lingers for the proxy to note the fetch offset.
func gap(c kit.GapCase) (got []kit.GapRecord, pos int64, err error) {
	k := get(sarama.NewConsumer(kit.Bootstrap(), config(readCommitted)))
	defer k.Close()
	pc := get(k.ConsumePartition(c.Topic, 0, 0))
	defer pc.AsyncClose()
	end := time.After(8 * time.Second)
	if len(c.Records) == 0 {
		end = time.After(700 * time.Millisecond)
	}
	for {
		select {
		case m := <-pc.Messages():
			got = append(got, kit.GapRecord{Offset: m.Offset, Value: string(m.Value)})
			if len(got) == len(c.Records) {
				end = time.After(700 * time.Millisecond)
			}
		case e := <-pc.Errors():
			return got, -1, e
		case <-end:
			return got, -1, nil
		}
	}
}

func main() {
	sarama.Logger = log.New(os.Stderr, "", log.Lmicroseconds)
	admin = get(sarama.NewClusterAdmin(kit.Bootstrap(), config()))
	kit.Main(map[string]kit.Check{
		"none": roundTrip("none", codec(sarama.CompressionNone)), "gzip": roundTrip("gzip", codec(sarama.CompressionGZIP)),
		"snappy": roundTrip("snappy", codec(sarama.CompressionSnappy)), "lz4": roundTrip("lz4", codec(sarama.CompressionLZ4)),
		"zstd": roundTrip("zstd", codec(sarama.CompressionZSTD)), "idempotent": roundTrip("idempotent", idempotent),
		"acks0": roundTrip("acks0", acks(sarama.NoResponse)), "acks1": roundTrip("acks1", acks(sarama.WaitForLocal)),
		"metadata": metadata, "coordinator": coordinator, "create": create, "headers": headers, "large": large, "seek": seek,
		"offsets": offsets, "group": group, "static": static, "txn": txn, "groups": groups, "configs": configs,
		"partitions": partitions, "delrecords": delrecords, "deltopic": deltopic, "many": many, "leader": leader,
	}, gap)
}
