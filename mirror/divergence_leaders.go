package mirror

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Checks come by the thousand when a gateway or a broker starts. So the leaders at the destination are asked for once for all
// that are carried out together, and not remembered: one that moved since refuses the fetch, which names its leader epoch.

// ledTails reads at leaders that are known.
type ledTails struct {
	destinationTails
	known map[partitionKey]evLeader
}

func (d destinationTails) batch(ctx context.Context, topics []string) (tails, error) {
	known, err := d.leaders(ctx, topics)
	return ledTails{d, known}, err
}

func (t ledTails) read(ctx context.Context, key partitionKey, producers []int64, end int64) (logTail, error) {
	leader, err := leaderOf(t.known, key)
	if err != nil {
		return logTail{}, err
	}
	return t.readAt(ctx, leader, key, producers, end)
}

// leaders asks for the leaders of topics. Partitions without one are not in the answer.
func (d destinationTails) leaders(ctx context.Context, topics []string) (map[partitionKey]evLeader, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, d.client)
	if err != nil {
		return nil, fmt.Errorf("asking for metadata: %w", err)
	}
	leaders := make(map[partitionKey]evLeader)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if t.Topic != nil && p.Leader >= 0 {
				leaders[partitionKey{*t.Topic, p.Partition}] = evLeader{broker: p.Leader, epoch: p.LeaderEpoch}
			}
		}
	}
	return leaders, nil
}

func leaderOf(leaders map[partitionKey]evLeader, key partitionKey) (evLeader, error) {
	leader, ok := leaders[key]
	if !ok {
		return leader, kerr.LeaderNotAvailable
	}
	return leader, nil
}
