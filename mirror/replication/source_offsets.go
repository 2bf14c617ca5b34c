package replication

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// problemOfOffset says what is wrong with an answer of ListOffsets, nil if nothing is.
func problemOfOffset(o cluster.ListedOffset) *problem {
	p := problemOf(o.Code)
	if p == nil && !o.Found {
		p = problemf(problemMoved, "no answer to ListOffsets")
	}
	if p != nil && p.kind == problemRange {
		p.kind = problemMoved
	}
	return p
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
func epochEndsAt(ctx context.Context, b *kgo.Broker, checks []*offsetCheck, leaders map[cluster.TopicPartition]cluster.Leader) (map[cluster.TopicPartition]epochEnd, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	topics := make(map[string]int)
	for _, c := range checks {
		if c.epoch < 0 {
			continue
		}
		i, ok := topics[c.key.Topic]
		if !ok {
			i = len(req.Topics)
			topics[c.key.Topic] = i
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = c.key.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = c.key.Partition, leaders[c.key].Epoch, c.epoch
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	if len(req.Topics) == 0 {
		return nil, nil
	}
	kresp, err := b.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("asking for the ends of leader epochs: %w", err)
	}
	ends := make(map[cluster.TopicPartition]epochEnd)
	for _, t := range kresp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
		for _, p := range t.Partitions {
			ends[cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = epochEnd{epoch: p.LeaderEpoch, end: p.EndOffset, code: p.ErrorCode, found: true}
		}
	}
	return ends, nil
}
