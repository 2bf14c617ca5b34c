package mirror

import (
	"context"
	"encoding/base64"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// listedOffset is the answer for one partition.
type listedOffset struct {
	offset int64
	code   int16
	found  bool
}

// problem says what is wrong with an answer, nil if nothing is.
func (o listedOffset) problem() *problem {
	p := problemOf(o.code)
	if p == nil && !o.found {
		p = problemf(problemMoved, "no answer to ListOffsets")
	}
	if p != nil && p.kind == problemRange {
		p.kind = problemMoved
	}
	return p
}

// Timestamps and isolation levels of ListOffsets.
const (
	earliest int64 = -2
	latest   int64 = -1

	uncommitted int8 = 0
	committed   int8 = 1
)

// listOffsets asks the leaders. Partitions that are not in the result got no answer.
func listOffsets(ctx context.Context, client *kgo.Client, keys []partitionKey, timestamp int64, isolation int8) (map[partitionKey]listedOffset, error) {
	req := listOffsetsRequest(keys, timestamp, isolation)
	offsets := make(map[partitionKey]listedOffset, len(keys))
	var failure error
	for _, shard := range client.RequestSharded(ctx, req) {
		resp, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
		if shard.Err != nil || !ok {
			failure = shard.Err
			continue
		}
		takeOffsets(offsets, resp)
	}
	if len(offsets) == 0 && failure != nil {
		return nil, fmt.Errorf("asking for offsets: %w", failure)
	}
	return offsets, nil
}

// listOffsetsAt asks one broker, once, which has to lead the partitions in the leader epochs given, -1 for any.
func listOffsetsAt(ctx context.Context, b *kgo.Broker, leaders map[partitionKey]evLeader, timestamp int64, isolation int8) (map[partitionKey]listedOffset, error) {
	keys := make([]partitionKey, 0, len(leaders))
	for key := range leaders {
		keys = append(keys, key)
	}
	req := listOffsetsRequest(keys, timestamp, isolation)
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			p := &req.Topics[i].Partitions[j]
			p.CurrentLeaderEpoch = leaders[partitionKey{req.Topics[i].Topic, p.Partition}].epoch
		}
	}
	resp, err := b.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("asking for offsets: %w", err)
	}
	offsets := make(map[partitionKey]listedOffset, len(leaders))
	takeOffsets(offsets, resp.(*kmsg.ListOffsetsResponse))
	return offsets, nil
}

func listOffsetsRequest(keys []partitionKey, timestamp int64, isolation int8) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = isolation
	topics := make(map[string]int)
	for _, key := range keys {
		i, ok := topics[key.topic]
		if !ok {
			i = len(req.Topics)
			topics[key.topic] = i
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = key.topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.CurrentLeaderEpoch = key.partition, timestamp, -1
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	return req
}

func takeOffsets(offsets map[partitionKey]listedOffset, resp *kmsg.ListOffsetsResponse) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			offsets[partitionKey{t.Topic, p.Partition}] = listedOffset{offset: p.Offset, code: p.ErrorCode, found: true}
		}
	}
}

// epochEnd is where a leader epoch ends at the source: the largest one up to the one that was asked for, and the offset
// after its last record. end is -1 if the leader knows no later record than of older epochs, or none at all.
type epochEnd struct {
	epoch int32
	end   int64
	code  int16
	found bool
}

// epochEndsAt asks one broker for the ends of the leader epochs of checks (OffsetForLeaderEpoch, KIP-320).
func epochEndsAt(ctx context.Context, b *kgo.Broker, checks []*offsetCheck, leaders map[partitionKey]evLeader) (map[partitionKey]epochEnd, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	topics := make(map[string]int)
	for _, c := range checks {
		if c.epoch < 0 {
			continue
		}
		i, ok := topics[c.key.topic]
		if !ok {
			i = len(req.Topics)
			topics[c.key.topic] = i
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = c.key.topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = c.key.partition, leaders[c.key].epoch, c.epoch
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	if len(req.Topics) == 0 {
		return nil, nil
	}
	kresp, err := b.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("asking for the ends of leader epochs: %w", err)
	}
	ends := make(map[partitionKey]epochEnd)
	for _, t := range kresp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
		for _, p := range t.Partitions {
			ends[partitionKey{t.Topic, p.Partition}] = epochEnd{epoch: p.LeaderEpoch, end: p.EndOffset, code: p.ErrorCode, found: true}
		}
	}
	return ends, nil
}

// idString writes a topic ID as Kafka's tools do.
func idString(id TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }
