package cluster

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FetchOnce reads one batch or more at or behind an offset from the leader, by the topic's name: what it is, a check has
// found out before.
func FetchOnce(ctx context.Context, b *kgo.Broker, key TopicPartition, epoch int32, offset int64) (*kmsg.FetchResponseTopicPartition, error) {
	return Fetch(ctx, b, key, epoch, offset, 1, 0)
}

// Fetch reads from a leader, with read_committed, about so many bytes, at least one batch, and waits for up to waitMs milliseconds where
// there is none. The error is the partition's if the answer has one; then the answer comes, too.
func Fetch(ctx context.Context, b *kgo.Broker, key TopicPartition, epoch int32, offset int64, bytes, waitMs int32) (*kmsg.FetchResponseTopicPartition, error) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.FetchOffset, p.PartitionMaxBytes = key.Partition, epoch, offset, bytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic = key.Topic
	t.Partitions = append(t.Partitions, p)
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.SessionEpoch, req.MaxBytes, req.IsolationLevel = -1, -1, bytes, ReadCommitted
	if waitMs > 0 {
		req.MaxWaitMillis, req.MinBytes = waitMs, 1
	}
	req.Topics = append(req.Topics, t)
	kresp, err := b.RetriableRequest(ctx, namedFetch{req}) // a connection that died meanwhile proves nothing
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("the answer is about %d topics", len(resp.Topics))
	}
	got := &resp.Topics[0].Partitions[0]
	return got, kerr.ErrorForCode(got.ErrorCode)
}

// namedFetch is a Fetch of at most the last version that names topics.
type namedFetch struct{ *kmsg.FetchRequest }

func (namedFetch) MaxVersion() int16 { return 12 }
