package verify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/broker"
)

const (
	firstBackoff = 50 * time.Millisecond
	lastBackoff  = 2 * time.Second
	maxTries     = 12 // about 15 s of a cluster that answers with errors
)

// side is one of the two clusters.
type side struct {
	name   string
	client *kgo.Client
	bytes  atomic.Int64 // fetched
	// mirror: batches that are marked as fillers are fillers. At the source they are records, whatever they look like.
	mirror bool

	mu     sync.Mutex
	topics map[string]*topicInfo
}

type topicInfo struct {
	id      [16]byte
	leaders map[int32]int32
}

// openSide connects and learns where the topics are. A topic that is not there has no partitions.
func openSide(ctx context.Context, name string, cfg broker.Config, topics []string) (*side, error) {
	client, err := kgo.NewClient(append(cfg.KgoOptions(), kgo.BrokerMaxReadBytes(1<<30))...)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, cfg, err)
	}
	s := &side{name: name, client: client, topics: map[string]*topicInfo{}}
	for _, t := range topics {
		s.topics[t] = &topicInfo{}
	}
	if err := s.refresh(ctx); err != nil {
		client.Close()
		return nil, fmt.Errorf("%s %s: %w", name, cfg, err)
	}
	return s, nil
}

func (s *side) close() { s.client.Close() }

// refresh asks for the leaders of all topics.
func (s *side) refresh(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	s.mu.Lock()
	for name := range s.topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	s.mu.Unlock()
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		return fmt.Errorf("asking for the topics: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil || s.topics[*t.Topic] == nil {
			continue
		}
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			s.topics[*t.Topic] = &topicInfo{}
			continue
		case err != nil:
			return fmt.Errorf("topic %s: %w", *t.Topic, err)
		}
		info := &topicInfo{id: t.TopicID, leaders: map[int32]int32{}}
		for _, p := range t.Partitions {
			info.leaders[p.Partition] = p.Leader
		}
		s.topics[*t.Topic] = info
	}
	return nil
}

func (s *side) partitions(topic string) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int32(len(s.topics[topic].leaders))
}

func (s *side) leader(topic string, partition int32) (leader int32, id [16]byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	leader, ok := s.topics[topic].leaders[partition]
	if !ok {
		return -1, id, kerr.UnknownTopicOrPartition
	}
	if leader < 0 {
		return -1, id, kerr.LeaderNotAvailable
	}
	return leader, s.topics[topic].id, nil
}

// retry calls do until it succeeds, fails for good, or failed too often in a row.
func (s *side) retry(ctx context.Context, what string, do func() error) error {
	wait := firstBackoff
	for try := 1; ; try++ {
		err := do()
		var code *kerr.Error
		permanent := errors.As(err, &code) && !code.Retriable
		if err == nil {
			return nil
		}
		if permanent || try == maxTries || ctx.Err() != nil {
			return fmt.Errorf("%s of the %s: %w", what, s.name, err)
		}
		if err := sleep(ctx, wait); err != nil {
			return fmt.Errorf("%s of the %s: %w", what, s.name, err)
		}
		wait = min(2*wait, lastBackoff)
		_ = s.refresh(ctx) // a failure shows when do fails again
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// bounds returns start and last stable offset of a partition.
func (s *side) bounds(ctx context.Context, topic string, partition int32) (b Bounds, err error) {
	err = s.retry(ctx, "reading the offsets", func() error {
		if b.Start, err = s.listOffset(ctx, topic, partition, -2); err == nil {
			b.End, err = s.listOffset(ctx, topic, partition, -1)
		}
		return err
	})
	return b, err
}

func (s *side) listOffset(ctx context.Context, topic string, partition int32, timestamp int64) (int64, error) {
	leader, _, err := s.leader(topic, partition)
	if err != nil {
		return 0, err
	}
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, timestamp
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = 1
	req.Topics = append(req.Topics, t)
	kresp, err := s.client.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		return 0, err
	}
	resp, ok := kresp.(*kmsg.ListOffsetsResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("an answer to ListOffsets that is for something else")
	}
	got := &resp.Topics[0].Partitions[0]
	return got.Offset, kerr.ErrorForCode(got.ErrorCode)
}

const fetchBytes = 4 << 20

// fetch reads from offset as a reader of committed records. It never waits for data.
func (s *side) fetch(ctx context.Context, topic string, partition int32, offset int64) (*kmsg.FetchResponseTopicPartition, error) {
	leader, id, err := s.leader(topic, partition)
	if err != nil {
		return nil, err
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, fetchBytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID, t.Partitions = topic, id, append(t.Partitions, p)
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 0, fetchBytes
	req.IsolationLevel, req.SessionID, req.SessionEpoch = 1, 0, -1
	req.Topics = append(req.Topics, t)
	resp, err := s.unthrottled(ctx, leader, req)
	if err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errors.New("an answer to Fetch that is for something else")
	}
	got := &resp.Topics[0].Partitions[0]
	s.bytes.Add(int64(len(got.RecordBatches)))
	return got, kerr.ErrorForCode(got.ErrorCode)
}

// unthrottled sends a Fetch again as long as the broker answers with nothing because a quota is used up.
func (s *side) unthrottled(ctx context.Context, leader int32, req *kmsg.FetchRequest) (*kmsg.FetchResponse, error) {
	for {
		kresp, err := s.client.Broker(int(leader)).Request(ctx, req)
		if err != nil {
			return nil, err
		}
		resp, ok := kresp.(*kmsg.FetchResponse)
		if !ok {
			return nil, fmt.Errorf("unexpected response %T to Fetch", kresp)
		}
		if resp.ErrorCode != 0 || len(resp.Topics) > 0 || resp.ThrottleMillis <= 0 {
			return resp, kerr.ErrorForCode(resp.ErrorCode)
		}
		if err := sleep(ctx, time.Duration(resp.ThrottleMillis)*time.Millisecond); err != nil {
			return nil, err
		}
	}
}
