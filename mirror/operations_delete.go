package mirror

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/store"
)

// DeleteMirror forgets a mirror all of whose topics are STOPPED. The destination's topics, ACLs and groups stay as they
// are. What goes on to be needed of its topics stays as well: the IDs by which clients know them, and the producer IDs by
// which the fillers in their logs are recognised, for as long as the destination topic is there.
func (m *Manager) DeleteMirror(ctx context.Context, name string) error {
	if name == "" {
		return Refuse(kerr.InvalidRequest, "the mirror name is missing")
	}
	select {
	case m.adding <- struct{}{}:
		defer func() { <-m.adding }()
	case <-ctx.Done():
		return visible(ctx.Err())
	}
	if _, ok := m.records.Mirror(name); !ok {
		return unknownMirror(name)
	}
	topics := m.records.Topics(name)
	if err := stillActive(name, topics); err != nil {
		return err
	}
	gone := m.goneTopics(ctx, topics)
	refused := false // of the last evaluation: the updates are one batch, in this order
	updates := []store.Update{{Key: store.MirrorKey(name), Fn: store.Typed(func(*store.Mirror) (*store.Mirror, error) {
		err := stillActive(name, m.records.Topics(name)) // another gateway may have added some
		if refused = err != nil; refused {
			return nil, err
		}
		return nil, nil
	})}}
	for _, rec := range topics {
		updates = append(updates, store.Update{Key: store.TopicKey(name, rec.Name), Fn: store.Typed(func(now *store.Topic) (*store.Topic, error) {
			switch {
			case refused || now == nil || State(now.State) != Stopped:
				return nil, store.ErrNoChange
			case gone[rec.Name]:
				return nil, nil
			}
			now.Removed, now.Restore, now.Synced = true, nil, nil
			return now, nil
		})})
	}
	updates = append(updates, store.Update{Key: store.ACLsKey(name), Fn: store.Typed(func(*store.ACLs) (*store.ACLs, error) {
		if refused {
			return nil, store.ErrNoChange
		}
		return nil, nil
	})})
	if err := m.update(ctx, updates...); err != nil {
		return visible(err)
	}
	m.log.Info("mirror deleted", zap.String("mirror", name), zap.Int("topics", len(topics)))
	return visible(m.dropPartitions(ctx, name, topics))
}

// stillActive refuses to delete a mirror that has topics at work.
func stillActive(name string, topics []store.Topic) error {
	var active []string
	for _, rec := range topics {
		if State(rec.State) != Stopped {
			active = append(active, rec.Name)
		}
	}
	if len(active) == 0 {
		return nil
	}
	some := strings.Join(active[:min(len(active), 5)], ", ")
	if len(active) > 5 {
		some += ", …"
	}
	return Refuse(kerr.InvalidRequest, "mirror %q has %d topics that are not STOPPED (%s); remove them first (mirrorgate mirrors remove-topics)",
		name, len(active), some)
}

// goneTopics returns the topics that the destination does not have any more; none where that is not known.
func (m *Manager) goneTopics(ctx context.Context, topics []store.Topic) map[string]bool {
	gone := make(map[string]bool)
	if len(topics) == 0 {
		return gone
	}
	names := make([]string, 0, len(topics))
	for _, rec := range topics {
		names = append(names, rec.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	found, _, err := cluster.DescribeTopics(ctx, m.cfg.Destination, names...)
	if err != nil {
		return gone
	}
	for _, rec := range topics {
		if t := found[rec.Name]; t.Missing() || t.Err == nil && t.ID != rec.DestinationID {
			gone[rec.Name] = true
		}
	}
	return gone
}

// dropPartitions removes the records of partitions, which mean nothing without their mirror.
func (m *Manager) dropPartitions(ctx context.Context, mirror string, topics []store.Topic) error {
	var updates []store.Update
	for _, rec := range topics {
		for _, part := range m.records.Partitions(mirror, rec.Name) {
			updates = append(updates, store.Update{
				Key: store.PartitionKey(mirror, rec.Name, part.Partition),
				Fn:  store.Typed(func(*store.Partition) (*store.Partition, error) { return nil, nil }),
			})
		}
	}
	if err := m.update(ctx, updates...); err != nil {
		return fmt.Errorf("remove the partition records of mirror %s: %w", mirror, err)
	}
	return nil
}
