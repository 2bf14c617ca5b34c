package appendlog

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadataTimeout bounds one look for leaders.
const metadataTimeout = 15 * time.Second

type topicPartition struct {
	topic     string
	partition int32
}

// wholeTopic stands for the partition in the entry that holds the error of a topic.
const wholeTopic = -1

// requester is the part of kgo.Client that is needed here.
type requester interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// metadata knows the leaders. There is one Metadata request at a time; who needs another waits for the next, together
// with all others, as the one under way may have been answered before the leader changed.
type metadata struct {
	ctx   context.Context // ends every request
	admin requester
	wg    sync.WaitGroup

	mu      sync.Mutex
	leaders map[topicPartition]leader
	pending *refresh // not sent yet
	running bool
}

type leader struct {
	node  int32
	addr  string
	topic [16]byte // the ID of the topic, zero where the broker is too old to say
	err   error
}

type refresh struct {
	topics map[string]struct{}
	done   chan struct{}
	err    error
}

// leader returns the leader of a partition. fresh: what was known before this call does not count.
func (m *metadata) leader(ctx context.Context, tp topicPartition, fresh bool) (leader, error) {
	m.mu.Lock()
	l, ok := m.leaders[tp]
	m.mu.Unlock()
	if ok && l.err == nil && !fresh {
		return l, nil
	}
	if err := m.refresh(ctx, tp.topic); err != nil {
		return leader{}, fmt.Errorf("looking for the leader of %s-%d: %w", tp.topic, tp.partition, err)
	}
	m.mu.Lock()
	l, ok = m.leaders[tp]
	if !ok {
		l, ok = m.leaders[topicPartition{tp.topic, wholeTopic}]
	}
	m.mu.Unlock()
	if !ok {
		l.err = kerr.UnknownTopicOrPartition
	}
	if l.err != nil {
		return leader{}, fmt.Errorf("looking for the leader of %s-%d: %w", tp.topic, tp.partition, l.err)
	}
	return l, nil
}

// refresh joins the next Metadata request.
func (m *metadata) refresh(ctx context.Context, topic string) error {
	m.mu.Lock()
	if m.pending == nil {
		m.pending = &refresh{topics: map[string]struct{}{}, done: make(chan struct{})}
	}
	r := m.pending
	r.topics[topic] = struct{}{}
	if !m.running {
		m.running = true
		m.wg.Go(m.run)
	}
	m.mu.Unlock()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run sends requests while there are any to send.
func (m *metadata) run() {
	for {
		m.mu.Lock()
		r := m.pending
		m.pending = nil
		if r == nil {
			m.running = false
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		r.err = m.request(r.topics)
		close(r.done)
	}
}

func (m *metadata) request(topics map[string]struct{}) error {
	ctx, cancel := context.WithTimeout(m.ctx, metadataTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, t)
	}
	kresp, err := m.admin.Request(ctx, req)
	if err != nil {
		return err
	}
	resp, ok := kresp.(*kmsg.MetadataResponse)
	if !ok {
		return fmt.Errorf("asked for metadata, got %T", kresp)
	}
	m.take(resp, topics)
	return nil
}

// take replaces what is known of the topics that were asked for.
func (m *metadata) take(resp *kmsg.MetadataResponse, topics map[string]struct{}) {
	addrs := make(map[int32]string, len(resp.Brokers))
	for _, b := range resp.Brokers {
		addrs[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for tp := range m.leaders {
		if _, asked := topics[tp.topic]; asked {
			delete(m.leaders, tp)
		}
	}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		for _, p := range t.Partitions {
			addr, known := addrs[p.Leader]
			l := leader{node: p.Leader, addr: addr, topic: t.TopicID, err: kerr.ErrorForCode(p.ErrorCode)}
			if !known {
				l.err = kerr.LeaderNotAvailable
			} else if l.err == kerr.ReplicaNotAvailable {
				l.err = nil // a follower is down, the leader is not
			}
			m.leaders[topicPartition{*t.Topic, p.Partition}] = l
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			for tp := range m.leaders {
				if tp.topic == *t.Topic {
					delete(m.leaders, tp)
				}
			}
			m.leaders[topicPartition{*t.Topic, wholeTopic}] = leader{err: err}
		}
	}
}
