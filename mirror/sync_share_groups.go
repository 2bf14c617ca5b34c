package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// Share groups (KIP-932) have no committed offsets but a start offset for each partition: records
// before it are done with. It is copied by the rules of consumer groups (groups.go): clamped, only for a group without
// members, never back over what somebody else moved. Records behind it that are acknowledged already are delivered again
// after a switch: their state is in the source's own log, and no request tells it.
//
// NB: Kafka 4.1 offers AlterShareGroupOffsets, answers it without an error, and does nothing; the answer then has no topics.

// syncShareGroups does one batch of share groups. Reasons to skip a group are added to skipped.
func (g *groupSync) syncShareGroups(ctx context.Context, source, destination *kadm.Client, names []string,
	ranges map[cluster.TopicPartition]logRange, skipped map[string]string,
) (changed int, err error) {
	have, err := source.DescribeShareGroupOffsets(ctx, names...)
	if err != nil && len(have) == 0 {
		return 0, fmt.Errorf("ask for the share-group offsets of the source: %w", err)
	}
	if err := g.run.sameCluster(ctx); err != nil {
		return 0, err
	}
	wanted := make(map[string]kadm.Offsets)
	for _, name := range names {
		switch group, ok := have[name]; {
		case !ok:
		case group.Err != nil:
			skipped[name] = "its offsets cannot be read at the source: " + lacksRight(group.Err, "DESCRIBE on group %s at the source", name).Error()
		default:
			if offsets := wantedShareOffsets(group, ranges); len(offsets) > 0 {
				wanted[name] = offsets
			}
		}
	}
	if len(wanted) == 0 {
		return 0, err
	}
	present, err2 := destination.DescribeShareGroupOffsets(ctx, sortedKeys(wanted)...)
	if err2 != nil {
		return 0, errors.Join(err, fmt.Errorf("ask for the share-group offsets of the destination: %w", err2))
	}
	for _, name := range sortedKeys(wanted) {
		offsets := wanted[name]
		if err := present[name].Err; err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			skipped[name] = "its offsets cannot be read at the destination: " + lacksRight(err, "READ on group %s at the destination", name).Error()
			continue
		}
		if g.keepNews(name, offsets, committedOf(present[name])) > 0 {
			skipped[name] = furtherReason
		}
		if len(offsets) == 0 {
			continue
		}
		switch err := g.alterShareOffsets(ctx, destination, name, offsets); {
		case err == nil:
			changed++
		case errors.Is(err, kerr.NonEmptyGroup):
			skipped[name] = membersReason
		case ctx.Err() != nil:
			return changed, ctx.Err()
		default:
			skipped[name] = "its offsets cannot be set at the destination: " +
				lacksRight(err, "READ on group %s, and on the topics of its offsets, at the destination", name).Error()
		}
	}
	return changed, err
}

// wantedShareOffsets are the source's start offsets of a share group in the mirrored topics, clamped.
func wantedShareOffsets(group kadm.DescribedShareGroupOffsets, ranges map[cluster.TopicPartition]logRange) kadm.Offsets {
	wanted := make(kadm.Offsets)
	for topic, partitions := range group.Offsets {
		for partition, o := range partitions {
			r, ok := ranges[cluster.TopicPartition{Topic: topic, Partition: partition}]
			if !ok || o.Err != nil || o.StartOffset < 0 { // -1: not begun
				continue
			}
			wanted.Add(kadm.Offset{Topic: topic, Partition: partition, At: clampOffset(o.StartOffset, r), LeaderEpoch: -1})
		}
	}
	return wanted
}

// committedOf shows the start offsets of a share group as committed offsets.
func committedOf(group kadm.DescribedShareGroupOffsets) kadm.OffsetResponses {
	present := make(kadm.OffsetResponses)
	for topic, partitions := range group.Offsets {
		for partition, o := range partitions {
			present.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: topic, Partition: partition, At: o.StartOffset}, Err: o.Err})
		}
	}
	return present
}

func (g *groupSync) alterShareOffsets(ctx context.Context, destination *kadm.Client, name string, offsets kadm.Offsets) error {
	results, err := destination.AlterShareGroupOffsets(ctx, name, offsets)
	if err != nil {
		return err
	}
	for topic, partitions := range offsets {
		for partition, o := range partitions {
			switch failure, ok := results.Lookup(topic, partition); {
			case !ok:
				err = errNotAltered
			case failure != nil:
				err = failure
			default:
				g.remember(name, cluster.TopicPartition{Topic: topic, Partition: partition}, o.At)
			}
		}
	}
	return err
}

var errNotAltered = errors.New("it answers without having done it, as Kafka 4.1 does; Kafka 4.2 and later can")
