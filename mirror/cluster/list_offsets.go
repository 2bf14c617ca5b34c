package cluster

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListedOffset is the answer for one partition. The zero value says that there is none.
type ListedOffset struct {
	Offset int64 // -1 if there is no such offset
	Code   int16 // Kafka's error code
	Found  bool
}

// Timestamps that stand for the ends of a log, and isolation levels, in ListOffsets.
const (
	Earliest int64 = -2
	Latest   int64 = -1

	ReadUncommitted int8 = 0
	ReadCommitted   int8 = 1
)

// ListOffsets asks the leaders. Partitions that are not in the result got no answer.
func ListOffsets(ctx context.Context, client *kgo.Client, keys []TopicPartition, timestamp int64, isolation int8) (map[TopicPartition]ListedOffset, error) {
	req := OffsetsRequest(keys, timestamp, isolation)
	offsets := make(map[TopicPartition]ListedOffset, len(keys))
	var failure error
	for _, shard := range client.RequestSharded(ctx, req) {
		resp, ok := shard.Resp.(*kmsg.ListOffsetsResponse)
		if shard.Err != nil || !ok {
			failure = shard.Err
			continue
		}
		TakeOffsets(offsets, resp)
	}
	if len(offsets) == 0 && failure != nil {
		return nil, fmt.Errorf("asking for offsets: %w", failure)
	}
	return offsets, nil
}

// ListOffsetsAt asks one broker, once, which has to lead the partitions in the leader epochs given, -1 for any.
func ListOffsetsAt(ctx context.Context, b *kgo.Broker, leaders map[TopicPartition]Leader, timestamp int64, isolation int8) (map[TopicPartition]ListedOffset, error) {
	keys := make([]TopicPartition, 0, len(leaders))
	for key := range leaders {
		keys = append(keys, key)
	}
	req := OffsetsRequest(keys, timestamp, isolation)
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			p := &req.Topics[i].Partitions[j]
			p.CurrentLeaderEpoch = leaders[TopicPartition{Topic: req.Topics[i].Topic, Partition: p.Partition}].Epoch
		}
	}
	resp, err := b.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("asking for offsets: %w", err)
	}
	offsets := make(map[TopicPartition]ListedOffset, len(leaders))
	TakeOffsets(offsets, resp.(*kmsg.ListOffsetsResponse))
	return offsets, nil
}

// OffsetsRequest asks for offsets of partitions, for any leader epoch.
func OffsetsRequest(keys []TopicPartition, timestamp int64, isolation int8) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = isolation
	topics := make(map[string]int)
	for _, key := range keys {
		i, ok := topics[key.Topic]
		if !ok {
			i = len(req.Topics)
			topics[key.Topic] = i
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = key.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.CurrentLeaderEpoch = key.Partition, timestamp, -1
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	return req
}

// TakeOffsets puts the answers of a broker into offsets.
func TakeOffsets(offsets map[TopicPartition]ListedOffset, resp *kmsg.ListOffsetsResponse) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			offsets[TopicPartition{Topic: t.Topic, Partition: p.Partition}] = ListedOffset{Offset: p.Offset, Code: p.ErrorCode, Found: true}
		}
	}
}
