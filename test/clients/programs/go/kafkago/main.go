// segmentio/kafka-go.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"kconf/kit"
)

var ctx = context.Background()
var transport = &kafka.Transport{ClientID: kit.Client(), MetadataTTL: 500 * time.Millisecond}
var admin = &kafka.Client{Addr: kafka.TCP(kit.Bootstrap()...), Timeout: 20 * time.Second, Transport: transport}

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

func makeTopic(check string, parts int) string {
	r := get(admin.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: kit.Name(check), NumPartitions: parts, ReplicationFactor: 1}}}))
	must(r.Errors[kit.Name(check)])
	ask := []kafka.OffsetRequest{}
	for p := range parts {
		ask = append(ask, kafka.LastOffsetOf(p))
	}
	// until the broker leads it: before, acks=0 is lost and a retry without idempotence may reorder
	assert(kit.Until(20*time.Second, func() bool {
		r, err := admin.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{kit.Name(check): ask}})
		if err != nil || len(r.Topics[kit.Name(check)]) != parts {
			return false
		}
		for _, o := range r.Topics[kit.Name(check)] {
			if o.Error != nil {
				return false
			}
		}
		return true
	}), "the broker does not lead the topic")
	return kit.Name(check)
}

func partitionCount(topic string) int {
	t := get(admin.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})).Topics
	if len(t) == 0 || t[0].Error != nil {
		return 0
	}
	return len(t[0].Partitions)
}

// offset is that of a timestamp, or of kafka.FirstOffset or LastOffset; -1 on an error.
func offset(topic string, partition int, at int64) int64 {
	req := kafka.OffsetRequest{Partition: partition, Timestamp: at}
	r, err := admin.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {req}}})
	if err != nil || r.Topics[topic][0].Error != nil {
		return -1
	}
	p := r.Topics[topic][0]
	switch at {
	case kafka.FirstOffset:
		return p.FirstOffset
	case kafka.LastOffset:
		return p.LastOffset
	}
	for o := range p.Offsets {
		return o
	}
	return -1
}

// byKey sends the record with key k17 to partition 17 % partitions.
var byKey = kafka.BalancerFunc(func(m kafka.Message, ps ...int) int {
	i, _ := strconv.Atoi(strings.TrimPrefix(string(m.Key), "k"))
	return ps[i%len(ps)]
})

func writer(topic string, set ...func(*kafka.Writer)) *kafka.Writer {
	w := &kafka.Writer{Addr: admin.Addr, Topic: topic, Balancer: byKey, BatchTimeout: 5 * time.Millisecond, BatchSize: 500, RequiredAcks: kafka.RequireAll, Transport: transport}
	for _, f := range set {
		f(w)
	}
	return w
}

func produce(topic string, from, to int, set ...func(*kafka.Writer)) {
	w := writer(topic, set...)
	defer w.Close()
	var ms []kafka.Message
	for i := from; i < to; i++ {
		ms = append(ms, kafka.Message{Key: []byte(kit.Key(i)), Value: []byte(kit.Value(i))})
	}
	must(w.WriteMessages(ctx, ms...))
}

func reader(c kafka.ReaderConfig) *kafka.Reader {
	c.Brokers, c.MaxWait, c.MinBytes, c.MaxBytes = kit.Bootstrap(), 200*time.Millisecond, 1, 10<<20
	c.Dialer = &kafka.Dialer{ClientID: kit.Client(), Timeout: 5 * time.Second}
	c.HeartbeatInterval, c.JoinGroupBackoff = 300*time.Millisecond, 300*time.Millisecond
	if c.StartOffset == 0 {
		c.StartOffset = kafka.FirstOffset
	}
	return kafka.NewReader(c)
}

// readAll reads each partition up to the end that it has now.
func readAll(topic string, parts int, level kafka.IsolationLevel) [][]kafka.Message {
	got := make([][]kafka.Message, parts)
	var wg sync.WaitGroup
	for p := range parts {
		end := offset(topic, p, kafka.LastOffset)
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := reader(kafka.ReaderConfig{Topic: topic, Partition: p, IsolationLevel: level})
			defer r.Close()
			for len(got[p]) == 0 || got[p][len(got[p])-1].Offset < end-1 {
				c, cancel := context.WithTimeout(ctx, 5*time.Second)
				m, err := r.ReadMessage(c)
				cancel()
				if err != nil {
					return
				}
				got[p] = append(got[p], m)
			}
		}()
	}
	wg.Wait()
	return got
}

func values(got [][]kafka.Message) [][]string {
	out := make([][]string, len(got))
	for p, ms := range got {
		for _, m := range ms {
			out[p] = append(out[p], string(m.Value))
		}
	}
	return out
}

func roundTrip(check string, set ...func(*kafka.Writer)) kit.Check {
	return func() (string, error) {
		topic := makeTopic(check, 3)
		produce(topic, 0, kit.N(), set...)
		kit.Until(5*time.Second, func() bool { return offset(topic, 0, kafka.LastOffset) > int64(kit.N()/3-1) }) // for acks=0
		got := values(readAll(topic, 3, kafka.ReadUncommitted))
		if check == "acks0" { // it writes on several connections, which may overtake each other
			for _, vs := range got {
				sort.Slice(vs, func(i, j int) bool { return number(vs[i]) < number(vs[j]) })
			}
		}
		return fmt.Sprintf("%d records in 3 partitions", kit.N()), kit.Compare(got, kit.N())
	}
}

func number(value string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(strings.Split(value, "-")[0], "v"))
	return n
}

func codec(c kafka.Compression) func(*kafka.Writer) {
	return func(w *kafka.Writer) { w.Compression = c }
}
func acks(a kafka.RequiredAcks) func(*kafka.Writer) {
	return func(w *kafka.Writer) { w.RequiredAcks = a }
}

func metadata() (string, error) {
	m := get(admin.Metadata(ctx, &kafka.MetadataRequest{}))
	seen := ""
	for _, b := range append(m.Brokers, m.Controller) {
		must(kit.Allowed(b.Host, int32(b.Port)))
		seen += fmt.Sprintf("%s:%d ", b.Host, b.Port)
	}
	v := get(admin.ApiVersions(ctx, &kafka.ApiVersionsRequest{}))
	return fmt.Sprintf("%scluster %s, %d APIs", seen, m.ClusterID, len(v.ApiKeys)), nil
}

func coordinator() (string, error) {
	seen := ""
	for _, kt := range []kafka.CoordinatorKeyType{kafka.CoordinatorKeyTypeConsumer, kafka.CoordinatorKeyTypeTransaction} {
		r := get(admin.FindCoordinator(ctx, &kafka.FindCoordinatorRequest{Key: kit.Name("c"), KeyType: kt}))
		must(r.Error)
		must(kit.Allowed(r.Coordinator.Host, int32(r.Coordinator.Port)))
		seen += fmt.Sprintf("%s:%d ", r.Coordinator.Host, r.Coordinator.Port)
	}
	return "group and transaction " + seen, nil
}

func create() (string, error) {
	topic := makeTopic("create", 3)
	r := get(admin.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 3, ReplicationFactor: 1}}}))
	assert(errors.Is(r.Errors[topic], kafka.TopicAlreadyExists), "again: %v", r.Errors[topic])
	return "3 partitions; again: TopicAlreadyExists", nil
}

func headers() (string, error) {
	topic, now := makeTopic("headers", 1), time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	w := writer(topic)
	defer w.Close()
	hs := []kafka.Header{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte("2")}, {Key: "empty", Value: []byte{}}}
	must(w.WriteMessages(ctx, kafka.Message{Value: []byte("nullkey"), Headers: hs, Time: now},
		kafka.Message{Key: []byte("nullvalue"), Time: now.Add(time.Millisecond)},
		kafka.Message{Key: []byte{}, Value: []byte{}, Time: now.Add(2 * time.Millisecond)}))
	ms := readAll(topic, 1, kafka.ReadUncommitted)[0]
	assert(len(ms) == 3, "%d records", len(ms))
	assert(ms[0].Key == nil && string(ms[0].Value) == "nullkey", "null key %v", ms[0].Key)
	h := ms[0].Headers
	assert(len(h) == 3 && string(h[0].Value) == "1" && string(h[1].Value) == "2" && len(h[2].Value) == 0, "headers %v", h)
	assert(ms[1].Value == nil && string(ms[1].Key) == "nullvalue", "null value %v", ms[1].Value)
	assert(len(ms[2].Key)+len(ms[2].Value) == 0, "empty key and value")
	for i, m := range ms {
		assert(m.Time.Equal(now.Add(time.Duration(i)*time.Millisecond)), "timestamp %v", m.Time)
	}
	return "null and empty keys and values, 3 headers, timestamps", nil
}

func large() (string, error) {
	topic, big := makeTopic("large", 1), make([]byte, 900_000)
	rand.Read(big)
	w := writer(topic)
	defer w.Close()
	must(w.WriteMessages(ctx, kafka.Message{Value: big}))
	assert(bytes.Equal(readAll(topic, 1, kafka.ReadUncommitted)[0][0].Value, big), "value differs")
	return "900000 bytes", nil
}

func seek() (string, error) {
	topic := makeTopic("seek", 1)
	produce(topic, 0, 100)
	r := reader(kafka.ReaderConfig{Topic: topic})
	defer r.Close()
	for _, o := range []int64{50, 0, 99} {
		must(r.SetOffset(o))
		m := get(r.ReadMessage(ctx))
		assert(m.Offset == o, "seek to %d: %d", o, m.Offset)
	}
	return "seek to 50, 0, 99 (no pause)", nil
}

func offsets() (string, error) {
	topic, t := makeTopic("offsets", 1), time.Now().Add(-time.Minute)
	w := writer(topic)
	defer w.Close()
	for i := range 10 {
		must(w.WriteMessages(ctx, kafka.Message{Value: []byte("x"), Time: t.Add(time.Duration(i) * time.Second)}))
	}
	for at, want := range map[int64]int64{t.UnixMilli() + 4500: 5, kafka.FirstOffset: 0, kafka.LastOffset: 10} {
		o := offset(topic, 0, at)
		assert(o == want, "offset for %d is %d, not %d", at, o, want)
	}
	return "by timestamp, earliest, latest", nil
}

// member fetches and commits in the background.
type member struct {
	r    *kafka.Reader
	mu   sync.Mutex
	keys map[string]bool
	quit context.CancelFunc
	done chan struct{}
}

func newMember(topic, group string) *member {
	m := &member{r: reader(kafka.ReaderConfig{GroupID: group, GroupTopics: []string{topic}}), keys: map[string]bool{}, done: make(chan struct{})}
	c, quit := context.WithCancel(ctx)
	m.quit = quit
	go func() {
		defer close(m.done)
		for {
			msg, err := m.r.FetchMessage(c)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.keys[string(msg.Key)] = true
			m.mu.Unlock()
			m.r.CommitMessages(c, msg)
		}
	}()
	return m
}

func (m *member) stop() {
	m.quit()
	<-m.done
	m.r.Close()
}
func (m *member) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.keys)
}

func group() (string, error) {
	topic, g, n := makeTopic("group", 4), kit.Name("group"), min(kit.N(), 200) // it commits each record by itself
	a, b := newMember(topic, g), newMember(topic, g)
	var d kafka.DescribeGroupsResponseGroup
	assert(kit.Until(25*time.Second, func() bool { // the reader does not tell its assignment
		d = get(admin.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{g}})).Groups[0]
		return d.GroupState == "Stable" && len(d.Members) == 2
	}), "not 2 members in 25 s: %v", d)
	produce(topic, 0, n)
	assert(kit.Until(25*time.Second, func() bool { return a.count() == n/2 && b.count() == n/2 }), "read %d and %d of %d", a.count(), b.count(), n)
	a.stop()
	b.stop()
	produce(topic, n, n+100)
	lag, committed := int64(0), get(admin.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: g, Topics: map[string][]int{topic: {0, 1, 2, 3}}}))
	for _, p := range committed.Topics[topic] {
		lag += offset(topic, p.Partition, kafka.LastOffset) - p.CommittedOffset
	}
	assert(lag == 100, "lag %d", lag)
	c := newMember(topic, g)
	kit.Until(20*time.Second, func() bool { return c.count() >= 100 })
	time.Sleep(500 * time.Millisecond)
	c.stop()
	assert(c.count() == 100, "after the restart: %d records", c.count())
	return fmt.Sprintf("2 members, %d records, lag 100, restart read 100", n), nil
}

func groups() (string, error) {
	topic, g := makeTopic("groups", 1), kit.Name("groups")
	get(admin.OffsetCommit(ctx, &kafka.OffsetCommitRequest{GroupID: g, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{topic: {{Partition: 0, Offset: 4}}}}))
	f := get(admin.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: g, Topics: map[string][]int{topic: {0}}}))
	assert(f.Topics[topic][0].CommittedOffset == 4, "offset %v", f.Topics[topic])
	listed := func() bool {
		for _, x := range get(admin.ListGroups(ctx, &kafka.ListGroupsRequest{})).Groups {
			if x.GroupID == g {
				return true
			}
		}
		return false
	}
	assert(listed(), "not listed")
	get(admin.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{g}}))
	get(admin.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{g}}))
	assert(!listed(), "still listed")
	return "commit, fetch, list, describe, delete", nil
}

func configs() (string, error) {
	topic := makeTopic("configs", 1)
	get(admin.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
		Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: "12345678", ConfigOperation: kafka.ConfigOperationSet}}}}}))
	assert(kit.Until(10*time.Second, func() bool {
		r := get(admin.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: topic}}}))
		for _, e := range r.Resources[0].ConfigEntries {
			if e.ConfigName == "retention.ms" && e.ConfigValue == "12345678" {
				return true
			}
		}
		return false
	}), "retention.ms is not set")
	return "topic retention.ms", nil
}

func partitions() (string, error) {
	topic := makeTopic("partitions", 1)
	r := get(admin.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: 4}}}))
	must(r.Errors[topic])
	assert(kit.Until(10*time.Second, func() bool { return partitionCount(topic) == 4 }), "not 4 partitions")
	return "1 to 4", nil
}

func deltopic() (string, error) {
	topic := makeTopic("deltopic", 1)
	get(admin.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}}))
	assert(kit.Until(5*time.Second, func() bool { return partitionCount(topic) == 0 }), "still there")
	return "", nil
}

func many() (string, error) {
	topic := makeTopic("many", 200)
	produce(topic, 0, 200)
	return "200 records in 200 partitions", kit.Compare(values(readAll(topic, 200, kafka.ReadUncommitted)), 200)
}

// gap: the reader tells no position beyond the last record, so it lingers for the proxy to note the fetch offset.
func gap(c kit.GapCase) (got []kit.GapRecord, pos int64, err error) {
	r := reader(kafka.ReaderConfig{Topic: c.Topic, IsolationLevel: kafka.ReadCommitted})
	defer r.Close()
	read := func(d time.Duration) error {
		t, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		m, err := r.ReadMessage(t)
		if err == nil {
			got = append(got, kit.GapRecord{Offset: m.Offset, Value: string(m.Value)})
		}
		return err
	}
	for end := time.Now().Add(8 * time.Second); len(got) < len(c.Records) && time.Now().Before(end); {
		if err := read(time.Until(end)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return got, -1, err
		}
	}
	if err := read(700 * time.Millisecond); err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, io.EOF) {
		return got, -1, err
	}
	return got, -1, nil
}

func leader() (string, error) {
	topic := makeTopic("leader", 1)
	w, r := writer(topic), reader(kafka.ReaderConfig{Topic: topic})
	defer w.Close()
	defer r.Close()
	return kit.Leader(func(i int) error {
		return w.WriteMessages(ctx, kafka.Message{Value: []byte(kit.Value(i))})
	}, func(d time.Duration) (got []string) {
		t, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		for {
			m, err := r.ReadMessage(t)
			if err != nil {
				return got
			}
			got = append(got, string(m.Value))
		}
	})
}

func main() {
	kit.Main(map[string]kit.Check{
		"none": roundTrip("none"), "gzip": roundTrip("gzip", codec(kafka.Gzip)), "snappy": roundTrip("snappy", codec(kafka.Snappy)),
		"lz4": roundTrip("lz4", codec(kafka.Lz4)), "zstd": roundTrip("zstd", codec(kafka.Zstd)),
		"acks0": roundTrip("acks0", acks(kafka.RequireNone)), "acks1": roundTrip("acks1", acks(kafka.RequireOne)),
		"metadata": metadata, "coordinator": coordinator, "create": create, "headers": headers, "large": large, "seek": seek,
		"offsets": offsets, "group": group, "groups": groups, "configs": configs, "partitions": partitions, "deltopic": deltopic, "many": many, "leader": leader,
	}, gap)
}
