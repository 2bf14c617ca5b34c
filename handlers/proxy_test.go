package handlers

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
	"github.com/mirrorgate/mirrorgate/recordbatch"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// liveEngine is an engine whose snapshot changes while clients are connected.
type liveEngine struct {
	mirror.Engine
	topics atomic.Pointer[mirror.Topics]
}

func (e *liveEngine) Topics() *mirror.Topics { return e.topics.Load() }

func (e *liveEngine) Coordinator(context.Context, string) (mirror.Member, error) {
	return mirror.Member{Number: 1, Host: "gw", Port: 1}, nil
}

// throughProxy is a destination, a gateway's proxy before it, and a client of each.
type throughProxy struct {
	t       *testing.T
	engine  *liveEngine
	direct  *kgo.Client
	gateway string
	// producer is the ID that wrote the mirror topic.
	producer int64

	mu     sync.Mutex
	dialed map[string]bool
}

func newThroughProxy(t *testing.T, destination []string) *throughProxy {
	p := &throughProxy{t: t, engine: &liveEngine{}, dialed: make(map[string]bool)}
	p.engine.topics.Store(mirror.NewTopics(nil, nil))
	srv, err := proxy.New(proxy.Config{Listen: "127.0.0.1:0", Bootstrap: destination}, nil, nil)
	require.NoError(t, err)
	h, err := New(Config{Engine: p.engine, Addresses: srv})
	require.NoError(t, err)
	require.NoError(t, srv.Start(t.Context(), h))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, srv.Stop(ctx))
	})
	p.gateway = srv.Addr()
	p.direct, err = kgo.NewClient(kgo.SeedBrokers(destination...))
	require.NoError(t, err)
	t.Cleanup(p.direct.Close)
	return p
}

// client makes a client of the gateway, whose dials are noted.
func (p *throughProxy) client(opts ...kgo.Opt) *kgo.Client {
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(p.gateway), kgo.RetryTimeout(3 * time.Minute), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.MetadataMinAge(10 * time.Millisecond),
		kgo.Dialer(func(ctx context.Context, network, host string) (net.Conn, error) {
			p.mu.Lock()
			p.dialed[host] = true
			p.mu.Unlock()
			return new(net.Dialer).DialContext(ctx, network, host)
		}),
	}, opts...)
	cl, err := kgo.NewClient(opts...)
	require.NoError(p.t, err)
	p.t.Cleanup(cl.Close)
	return cl
}

// produce appends batches to partition 0 of topic with one idempotent producer, as the engine does, and returns its ID.
func (p *throughProxy) produce(topic string, producer int64, batches ...[]byte) int64 {
	ctx := p.t.Context()
	if producer < 0 {
		resp, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(ctx, p.direct)
		require.NoError(p.t, err)
		producer = resp.ProducerID
	}
	for _, batch := range batches {
		h, err := recordbatch.ParseHeader(batch)
		require.NoError(p.t, err)
		offset := p.endOffset(topic)
		recordbatch.Stamp(batch, producer, 0, recordbatch.Sequence(offset))
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 10_000
		req.Topics = []kmsg.ProduceRequestTopic{{
			Topic: topic, TopicID: p.id(topic), Partitions: []kmsg.ProduceRequestTopicPartition{{Records: batch}},
		}}
		resp, err := req.RequestWith(ctx, p.direct.Broker(p.leader(topic)))
		require.NoError(p.t, err)
		require.NoError(p.t, kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
		require.Equal(p.t, offset, resp.Topics[0].Partitions[0].BaseOffset)
		require.Equal(p.t, offset+int64(h.LastOffsetDelta)+1, p.endOffset(topic))
	}
	return producer
}

func (p *throughProxy) endOffset(topic string) int64 {
	offsets, err := kadm.NewClient(p.direct).ListEndOffsets(p.t.Context(), topic)
	require.NoError(p.t, err)
	o, ok := offsets.Lookup(topic, 0)
	require.True(p.t, ok)
	require.NoError(p.t, o.Err)
	return o.Offset
}

func (p *throughProxy) id(topic string) mirror.TopicID {
	details, err := kadm.NewClient(p.direct).ListTopics(p.t.Context(), topic)
	require.NoError(p.t, err)
	return mirror.TopicID(details[topic].ID)
}

func (p *throughProxy) leader(topic string) int {
	details, err := kadm.NewClient(p.direct).ListTopics(p.t.Context(), topic)
	require.NoError(p.t, err)
	return int(details[topic].Partitions[0].Leader)
}

// create makes topics without retention: the records are so old that a broker would delete them at its next look.
func (p *throughProxy) create(topics ...string) {
	forever := "-1"
	created, err := kadm.NewClient(p.direct).CreateTopics(p.t.Context(), 1, 1, map[string]*string{"retention.ms": &forever}, topics...)
	require.NoError(p.t, err)
	require.NoError(p.t, created.Error())
	adm := kadm.NewClient(p.direct)
	require.Eventually(p.t, func() bool { // a new topic has no leader for a moment
		ends, err := adm.ListEndOffsets(p.t.Context(), topics...)
		if err == nil {
			err = ends.Error()
		}
		return err == nil && len(ends) == len(topics)
	}, 3*time.Minute, 10*time.Millisecond)
}

// mirrorTopic makes a topic as a mirror has it: two records, a gap, one record, a gap at the end.
func (p *throughProxy) mirrorTopic(topic string) mirror.Topic {
	record := func(value string) []byte { return data(0, -1, []byte("key"), []byte(value)) }
	producer := p.produce(topic, -1, record("0"), record("1"), recordbatch.AppendFiller(nil, 500, false, 1),
		record("502"), recordbatch.AppendFiller(nil, 20, false, 1), recordbatch.AppendFence(nil, false, 1))
	mirrored := mirror.Topic{
		Name: topic, Mirror: "east", SourceID: mirror.TopicID{0xaa, byte(len(topic))}, DestinationID: p.id(topic),
		State: mirror.Mirroring, ReadOnly: true,
	}
	p.producer = producer
	p.engine.topics.Store(mirror.NewTopics([]mirror.Topic{mirrored}, []int64{producer}))
	return mirrored
}

// consume reads the records of cl until there are n.
func (p *throughProxy) consume(cl *kgo.Client, n int) (offsets []int64) {
	ctx, cancel := context.WithTimeout(p.t.Context(), 3*time.Minute)
	defer cancel()
	for len(offsets) < n {
		fetches := cl.PollFetches(ctx)
		require.NoError(p.t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			require.Equal(p.t, strconv.FormatInt(r.Offset, 10), string(r.Value))
			offsets = append(offsets, r.Offset)
		})
	}
	return offsets
}

func testThroughProxy(t *testing.T, destination []string) {
	p := newThroughProxy(t, destination)
	suffix := strconv.FormatInt(time.Now().UnixNano(), 36)
	mirrored, plain := "mirrored-"+suffix, "plain-"+suffix
	p.create(mirrored, plain)
	topic := p.mirrorTopic(mirrored)
	ctx := t.Context()

	cl := p.client(kgo.ConsumeTopics(mirrored, plain), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	adm := kadm.NewClient(cl)
	details, err := adm.ListTopics(ctx, mirrored, plain)
	require.NoError(t, err)
	require.Equal(t, topic.SourceID, mirror.TopicID(details[mirrored].ID), "clients see the source's topic ID")
	require.Equal(t, p.id(plain), mirror.TopicID(details[plain].ID))

	require.Equal(t, []int64{0, 1, 502}, p.consume(cl, 3), "the source's records at the source's offsets")
	err = cl.ProduceSync(ctx, &kgo.Record{Topic: plain, Value: []byte("0")}).FirstErr()
	require.NoError(t, err)
	require.Equal(t, []int64{0}, p.consume(cl, 1))

	err = cl.ProduceSync(ctx, &kgo.Record{Topic: mirrored, Value: []byte("x")}).FirstErr()
	require.ErrorIs(t, err, kerr.PolicyViolation)
	deleted, err := adm.DeleteTopic(ctx, mirrored)
	require.ErrorIs(t, err, kerr.PolicyViolation, "%+v", deleted)

	var position kgo.Offset
	reader := p.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{mirrored: {0: position.At(502)}}))
	require.Equal(t, []int64{502}, p.consume(reader, 1), "from the middle")

	versions, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, cl)
	require.NoError(t, err)
	offered := map[int16]bool{}
	for _, k := range versions.ApiKeys {
		offered[k.ApiKey] = true
	}
	for key, e := range registry {
		if e.isMirrorRPC() {
			require.True(t, offered[key], e.name)
		}
	}
	coordinator := kmsg.NewPtrFindCoordinatorRequest()
	coordinator.CoordinatorType, coordinator.CoordinatorKey, coordinator.CoordinatorKeys = 3, "east", []string{"east"}
	found, err := cl.SeedBrokers()[0].Request(ctx, coordinator)
	require.NoError(t, err)
	require.Contains(t, []int32{found.(*kmsg.FindCoordinatorResponse).NodeID, firstNode(found)}, int32(1_000_000_001))

	p.failover(topic)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, address := range destination {
		require.NotContains(t, p.dialed, address, "clients know the gateway only")
	}
}

func firstNode(resp kmsg.Response) int32 {
	if c := resp.(*kmsg.FindCoordinatorResponse).Coordinators; len(c) > 0 {
		return c[0].NodeID
	}
	return -1
}

// failover: once the topic is writable a group goes on behind the fence.
func (p *throughProxy) failover(topic mirror.Topic) {
	t, ctx := p.t, p.t.Context()
	topic.State, topic.ReadOnly = mirror.Stopped, false
	p.engine.topics.Store(mirror.NewTopics([]mirror.Topic{topic}, []int64{p.producer}))
	group := "group-" + topic.Name
	cl := p.client(kgo.ConsumeTopics(topic.Name), kgo.ConsumerGroup(group), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.Equal(t, []int64{0, 1, 502}, p.consume(cl, 3))
	require.NoError(t, cl.CommitUncommittedOffsets(ctx))
	end := p.endOffset(topic.Name)
	require.Equal(t, int64(524), end)
	err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic.Name, Value: []byte("524")}).FirstErr()
	require.NoError(t, err)
	require.Equal(t, []int64{524}, p.consume(cl, 1))
	require.NoError(t, cl.CommitUncommittedOffsets(ctx))
	committed, err := kadm.NewClient(p.direct).FetchOffsets(ctx, group)
	require.NoError(t, err)
	o, _ := committed.Lookup(topic.Name, 0)
	require.Equal(t, int64(525), o.At)
}

func TestThroughProxyOnKfake(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	testThroughProxy(t, cluster.ListenAddrs())
}

func TestThroughProxyOnKafka(t *testing.T) {
	testThroughProxy(t, []string{kafkatest.Start(t, kafkatest.Options{}).Bootstrap()})
}
