package replication

import (
	"context"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// Checks come by the thousand when a gateway or a broker starts. So the leaders at the destination are asked for once for all
// that are carried out together, and not remembered: one that moved since refuses the fetch, which names its leader epoch.

// ledTails reads at leaders that are known.
type ledTails struct {
	destinationTails
	known map[cluster.TopicPartition]cluster.Leader
}

func (d destinationTails) batch(ctx context.Context, topics []string) (tails, error) {
	known, err := cluster.Leaders(ctx, d.client, topics)
	return ledTails{d, known}, err
}

func (t ledTails) read(ctx context.Context, key cluster.TopicPartition, producers []int64, end int64) (cluster.Tail, error) {
	leader, err := cluster.LeaderOf(t.known, key)
	if err != nil {
		return cluster.Tail{}, err
	}
	return cluster.ReadTail(ctx, t.client, leader, key, producers, end)
}
