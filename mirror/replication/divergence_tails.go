package replication

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// tails is what a check needs of the destination.
type tails interface {
	// batch returns what reads logs of these topics, for the moment: their leaders are asked for once.
	batch(ctx context.Context, topics []string) (tails, error)
	// read returns the log start and the records of the last batch before end that is no filler.
	read(ctx context.Context, key cluster.TopicPartition, producers []int64, end int64) (cluster.Tail, error)
	// trimmed says why a log start above the source's cannot be explained by the topic's retention, "" if it can.
	trimmed(ctx context.Context, key cluster.TopicPartition, start, sourceStart int64) string
}

// inside reports whether an offset is inside the v2 batch that holds it, if data begins with that, and not at its start.
func inside(data []byte, offset int64) bool {
	for len(data) > 0 {
		batch, rest, err := recordbatch.Next(data)
		if err != nil {
			return false
		}
		h, err := recordbatch.ParseHeader(batch)
		if err != nil || h.NextOffset() > offset {
			return err == nil && h.BaseOffset < offset
		}
		data = rest // brokers may begin with batches wholly below
	}
	return false
}

// destinationTails reads at the destination.
type destinationTails struct{ client *kgo.Client }

// tails returns what checks use, nil if nothing is to be read.
func (c Config) tails() tails {
	switch {
	case c.readTails != nil:
		return c.readTails
	case c.DestinationAdmin != nil:
		return destinationTails{c.DestinationAdmin}
	}
	return nil
}

func (d destinationTails) read(ctx context.Context, key cluster.TopicPartition, producers []int64, end int64) (cluster.Tail, error) {
	return cluster.ReadTailNow(ctx, d.client, key, producers, end)
}

// trimmed: the mirror trims only up to the floor. Beyond it, only retention may delete, which can be ahead of the source's
// by a segment or by its settings.
func (d destinationTails) trimmed(ctx context.Context, key cluster.TopicPartition, start, sourceStart int64) string {
	configs, err := cluster.TopicConfig(ctx, d.client, key.Topic)
	if err != nil {
		return "" // cannot be proved
	}
	values := make(map[string]string)
	for _, c := range configs {
		values[c.Key] = c.MaybeValue()
	}
	if retains(values) {
		return ""
	}
	return fmt.Sprintf("trimmed: the destination log starts at %d, the source's at %d, and neither this mirror nor retention (cleanup.policy=%s, retention.ms=%s, retention.bytes=%s) deletes at the destination what the source has: somebody deleted records %d to %d behind the gateway; way out: remove the topic from the mirror to keep the rest, or remove it, delete it at the destination and add it again to have all records",
		start, sourceStart, values["cleanup.policy"], values["retention.ms"], values["retention.bytes"], sourceStart, start-1)
}

// retains reports whether settings of a topic let brokers delete by age or size.
func retains(values map[string]string) bool {
	if !strings.Contains(values["cleanup.policy"], "delete") {
		return false
	}
	return values["retention.ms"] != "-1" || values["retention.bytes"] != "-1"
}
