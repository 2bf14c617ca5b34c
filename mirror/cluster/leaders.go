package cluster

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Leader is the broker that leads a partition, and its leader epoch.
type Leader struct{ Broker, Epoch int32 }

// Leaders asks for the leaders of topics. Partitions without one are not in the answer.
func Leaders(ctx context.Context, client *kgo.Client, topics []string) (map[TopicPartition]Leader, error) {
	resp, err := metadataOf(topics).RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("asking for metadata: %w", err)
	}
	leaders := make(map[TopicPartition]Leader)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if t.Topic != nil && p.Leader >= 0 {
				leaders[TopicPartition{Topic: *t.Topic, Partition: p.Partition}] = Leader{Broker: p.Leader, Epoch: p.LeaderEpoch}
			}
		}
	}
	return leaders, nil
}

// LeaderOf is the leader among those that Leaders told, LEADER_NOT_AVAILABLE if it is not there.
func LeaderOf(leaders map[TopicPartition]Leader, key TopicPartition) (Leader, error) {
	leader, ok := leaders[key]
	if !ok {
		return leader, kerr.LeaderNotAvailable
	}
	return leader, nil
}

// LeaderNow asks for the leader of one partition.
func LeaderNow(ctx context.Context, client *kgo.Client, key TopicPartition) (Leader, error) {
	leaders, err := Leaders(ctx, client, []string{key.Topic})
	if err != nil {
		return Leader{}, err
	}
	return LeaderOf(leaders, key)
}
