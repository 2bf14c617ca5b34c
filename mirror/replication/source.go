package replication

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// sourceView keeps what a mirror must know of the source cluster: which broker leads which partition, where brokers
// are, and whether the topics are still the ones that are mirrored. It looks every refresh interval, and soon when
// somebody asks for it, one request at a time. It also carries out checks on behalf of partitions (divergence_check.go).
//
// One answer that a topic is gone, or has another ID, proves nothing: a broker that has just started may be behind. So
// it takes lostLooks looks in a row, lostPause apart. Meanwhile no check of the topic passes. A cluster ID, though, comes
// from the broker itself, and one wrong one is enough.
type sourceView struct {
	client  *kgo.Client
	refresh time.Duration
	backoff func(attempt int) time.Duration
	log     *zap.Logger
	tell    sourceListener
	// tails reads the ends of destination logs for checks; nil: they are not compared.
	tails tails

	mu        sync.Mutex
	cluster   string // the ID that the source has to have, "" if there is none
	topics    map[string]*sourceTopic
	checks    []offsetCheck
	behind    map[cluster.TopicPartition]suspicion // whose leader epoch seems to have gone back
	requested bool                                 // a refresh before its time
	wake      chan struct{}
	checkWake chan struct{}

	// The rest belongs to the goroutine of run.
	failures int
	last     time.Time // of the last look
}

// sourceListener is what becomes of what the view sees. Calls come from several goroutines and must not block.
type sourceListener struct {
	brokers    func(map[int32]string)
	leader     func(cluster.TopicPartition, evLeader)
	lost       func(topic, reason string) // topic "": all of them
	denied     func(topic string, p problem)
	partitions func(topic string, n int32)
	away       func(error)
}

type sourceTopic struct {
	id         cluster.TopicID
	users      int // partitions that are mirrored
	partitions int32
	lost       suspicion
}

// suspicion counts looks in a row that found the same, lostPause apart.
type suspicion struct {
	looks int
	at    time.Time
}

// again takes one more look, and reports whether the suspicion is a certainty now.
func (s *suspicion) again() bool {
	if time.Since(s.at) >= lostPause {
		s.at = time.Now()
		s.looks++
	}
	return s.looks >= lostLooks
}

// SourceRemade begins the reason of a partition whose source topic has another ID than it had.
const SourceRemade = "diverged: the source topic was deleted and made again"

const (
	lostLooks = 3
	// requestTimeout bounds a look or an offset check, with all retries of kgo.
	sourceRequestTimeout = 15 * time.Second
	lostPause            = time.Second
	// leastPause is between two looks that were asked for.
	leastPause = 200 * time.Millisecond
)

func newSourceView(client *kgo.Client, refresh time.Duration, backoff func(int) time.Duration, tell sourceListener, log *zap.Logger) *sourceView {
	return &sourceView{
		client: client, refresh: refresh, backoff: backoff, log: log, tell: tell,
		topics: make(map[string]*sourceTopic), behind: make(map[cluster.TopicPartition]suspicion),
		wake: make(chan struct{}, 1), checkWake: make(chan struct{}, 1),
	}
}

// watch adds a partition; the next look, which it asks for, tells its leader.
func (v *sourceView) watch(topic string, id cluster.TopicID, cluster string) {
	v.mu.Lock()
	v.cluster = cluster
	t := v.topics[topic]
	if t == nil {
		t = &sourceTopic{partitions: -1}
		v.topics[topic] = t
	}
	if t.id != id {
		t.id, t.lost = id, suspicion{}
	}
	t.users++
	v.mu.Unlock()
	v.look()
}

func (v *sourceView) unwatch(topic string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if t := v.topics[topic]; t != nil {
		if t.users--; t.users == 0 {
			delete(v.topics, topic)
		}
	}
}

// look asks for a look soon.
func (v *sourceView) look() {
	v.mu.Lock()
	v.requested = true
	v.mu.Unlock()
	v.poke()
}

// check asks for a comparison of the logs of a partition.
func (v *sourceView) check(c offsetCheck) {
	v.mu.Lock()
	v.checks = append(v.checks, c)
	v.mu.Unlock()
	poke(v.checkWake)
}

func (v *sourceView) poke() { poke(v.wake) }

func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// run looks until ctx ends.
func (v *sourceView) run(ctx context.Context) {
	for ctx.Err() == nil {
		if due := v.due(); due > 0 {
			v.sleep(ctx, due)
		} else {
			v.lookNow(ctx)
		}
	}
}

// due returns how long there is until the next look.
func (v *sourceView) due() time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.topics) == 0 {
		return v.refresh
	}
	wait := v.refresh
	for _, t := range v.topics {
		if t.lost.looks > 0 && t.lost.looks < lostLooks {
			wait = min(wait, lostPause)
		}
	}
	if v.requested {
		wait = min(wait, leastPause)
	}
	if v.failures > 0 {
		wait = v.backoff(v.failures)
	}
	return wait - time.Since(v.last)
}

func (v *sourceView) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-v.wake:
	case <-ctx.Done():
	}
}

// lookNow asks for metadata and tells what is new.
func (v *sourceView) lookNow(ctx context.Context) {
	v.mu.Lock()
	v.requested = false
	names := make([]string, 0, len(v.topics))
	for name := range v.topics {
		names = append(names, name)
	}
	v.mu.Unlock()
	resp, err := v.metadata(ctx, names)
	v.last = time.Now()
	if ctx.Err() != nil {
		return
	}
	if other := new(OtherCluster); errors.As(err, &other) {
		v.tell.lost("", other.Reason())
		return
	}
	if err != nil {
		v.failures++
		v.log.Warn("source does not answer", zap.Error(err), zap.Int("attempt", v.failures))
		v.tell.away(err)
		return
	}
	v.failures = 0
	v.seen(resp)
}

// seen takes an answer, and returns the leaders of partitions against whose topics nothing is to be said.
func (v *sourceView) seen(resp *kmsg.MetadataResponse) map[cluster.TopicPartition]evLeader {
	leaders := make(map[cluster.TopicPartition]evLeader)
	brokers := make(map[int32]string, len(resp.Brokers))
	for _, b := range resp.Brokers {
		brokers[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	v.tell.brokers(brokers)
	for i := range resp.Topics {
		if t := &resp.Topics[i]; t.Topic != nil {
			v.topicSeen(t, brokers, leaders)
		}
	}
	return leaders
}

func (v *sourceView) metadata(ctx context.Context, names []string) (*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, sourceRequestTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	slices.Sort(names)
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, v.client)
	if err != nil {
		return nil, fmt.Errorf("asking for metadata: %w", err)
	}
	v.mu.Lock()
	cluster := v.cluster
	v.mu.Unlock()
	if cluster != "" && resp.ClusterID != nil && *resp.ClusterID != cluster {
		return nil, &OtherCluster{Want: cluster, Got: *resp.ClusterID}
	}
	return resp, nil
}

// topicSeen takes one topic of a metadata answer.
func (v *sourceView) topicSeen(mt *kmsg.MetadataResponseTopic, brokers map[int32]string, leaders map[cluster.TopicPartition]evLeader) {
	name := *mt.Topic
	lost, problem, grown := v.judge(name, mt)
	switch {
	case lost != "":
		v.tell.lost(name, lost)
		return
	case problem != nil:
		if problem.kind == problemPassing {
			v.tell.denied(name, *problem)
		}
		return
	case grown:
		v.tell.partitions(name, int32(len(mt.Partitions)))
	}
	for i := range mt.Partitions {
		mp := &mt.Partitions[i]
		leader := evLeader{broker: mp.Leader, epoch: mp.LeaderEpoch}
		if _, known := brokers[mp.Leader]; !known {
			leader.broker = -1 // a leader that is not alive
		}
		leaders[cluster.TopicPartition{Topic: name, Partition: mp.Partition}] = leader
		v.tell.leader(cluster.TopicPartition{Topic: name, Partition: mp.Partition}, leader)
	}
}

// judge compares a topic with what is known of it. lost is not empty once it is certain that the topic is not the one
// that is mirrored.
func (v *sourceView) judge(name string, mt *kmsg.MetadataResponseTopic) (lost string, p *problem, grown bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.topics[name]
	if t == nil {
		return "", &problem{}, false
	}
	none := cluster.TopicID{}
	switch {
	case mt.ErrorCode == kerr.UnknownTopicOrPartition.Code:
		lost = "the source topic was deleted"
	case mt.ErrorCode != 0:
		return "", problemOf(mt.ErrorCode), false
	case mt.TopicID != t.id && mt.TopicID != none && t.id != none:
		lost = fmt.Sprintf(SourceRemade+": its ID is %s, mirrored was %s",
			cluster.IDString(mt.TopicID), cluster.IDString(t.id))
	}
	if lost != "" {
		if !t.lost.again() {
			return "", &problem{kind: problemMoved}, false
		}
		return lost + "; way out: " + wayOut, nil, false
	}
	t.lost = suspicion{}
	n := int32(len(mt.Partitions))
	grown = n != t.partitions
	t.partitions = n
	return "", nil, grown
}
