package mirror

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/store"
)

// PauseTopics pauses topics, all or none: nothing is fetched or written, and they stay read-only. It returns when that is
// durable and nothing more is written. Partitions that are PREPARING or MIRRORING become PAUSED; one that is FAILED stays
// so. Pausing a paused topic is no error. Their positions are where they always are: the ends of the destination's logs.
func (m *Manager) PauseTopics(ctx context.Context, mirror string, topics []TopicRef) ([]TopicResult, error) {
	results, recs, err := m.selected(mirror, topics)
	if err != nil {
		return nil, err
	}
	for i, rec := range recs {
		if results[i].Err == nil {
			results[i].Err = m.pausable(rec)
		}
	}
	if anyRefused(results) {
		return results, nil
	}
	err = m.changePartitions(ctx, recs, func(part *store.Partition) bool {
		if s := State(part.State); s != Preparing && s != Mirroring {
			return false
		}
		part.State, part.Reason = int8(Paused), ""
		return true
	})
	if err != nil {
		return nil, visible(err)
	}
	m.log.Info("topics paused", zap.String("mirror", mirror), zap.Int("topics", len(topics)))
	for i, t := range topics {
		if err := m.awaitResting(ctx, mirror, t.Name); err != nil {
			results[i].Err = Refuse(kerr.RequestTimedOut, "topic %s is PAUSED, which is recorded, but what was under way has not ended yet", t.Name)
		}
	}
	return results, nil
}

// ResumeTopics goes on with topics, all or none: PAUSED partitions become MIRRORING again, and FAILED ones are tried again,
// both by way of PREPARING, which compares both logs. Resuming a topic that is at work is no error.
func (m *Manager) ResumeTopics(ctx context.Context, mirror string, topics []TopicRef) ([]TopicResult, error) {
	results, recs, err := m.selected(mirror, topics)
	if err != nil {
		return nil, err
	}
	for i, rec := range recs {
		if results[i].Err == nil {
			results[i].Err = resumable(rec)
		}
	}
	if anyRefused(results) {
		return results, nil
	}
	err = m.changePartitions(ctx, recs, func(part *store.Partition) bool {
		if s := State(part.State); s != Paused && s != Failed {
			return false
		}
		part.State, part.Reason = int8(Preparing), ""
		return true
	})
	if err != nil {
		return nil, visible(err)
	}
	m.log.Info("topics resumed", zap.String("mirror", mirror), zap.Int("topics", len(topics)))
	if run := m.mirror(mirror); run != nil {
		for _, t := range topics {
			if topic := run.topic(t.Name); topic != nil {
				topic.tryAgain()
			}
		}
	}
	return results, nil
}

// selected finds the topics of a request in a mirror.
func (m *Manager) selected(mirror string, topics []TopicRef) ([]TopicResult, []store.Topic, error) {
	if mirror == "" {
		return nil, nil, Refuse(kerr.InvalidRequest, "the mirror name is missing")
	}
	if _, ok := m.records.Mirror(mirror); !ok {
		return nil, nil, unknownMirror(mirror)
	}
	results, recs := newResults(topics), make([]store.Topic, len(topics))
	for i, t := range topics {
		if results[i].Err != nil {
			continue
		}
		rec, ok := m.records.Topic(mirror, t.Name)
		if !ok || rec.Removed {
			results[i].Err = Refuse(kerr.InvalidRequest, "topic %s is not in mirror %q", t.Name, mirror)
			continue
		}
		recs[i], results[i].ID = rec, rec.SourceID
		results[i].Err = checkID(t.Name, t.ID, rec.SourceID)
	}
	return results, recs, nil
}

// pausable says why a topic cannot be paused, nil if it can.
func (m *Manager) pausable(rec store.Topic) *Error {
	switch state := State(rec.State); state {
	case Initializing:
		return Refuse(kerr.InvalidRequest, "topic %s is INITIALIZING: its destination topic is being made; try again when it is MIRRORING", rec.Name)
	case Stopping, Stopped:
		return Refuse(kerr.InvalidRequest, "topic %s is %s and cannot be paused", rec.Name, state)
	}
	parts := m.records.Partitions(rec.Mirror, rec.Name)
	for _, part := range parts {
		if s := State(part.State); s == Preparing || s == Mirroring || s == Paused {
			return nil
		}
	}
	if len(parts) > 0 {
		return Refuse(kerr.InvalidRequest, "topic %s has no partition that is at work: partition %d is %s", rec.Name, parts[0].Partition, State(parts[0].State))
	}
	return nil
}

// resumable says why a topic cannot be resumed, nil if it can.
func resumable(rec store.Topic) *Error {
	switch state := State(rec.State); state {
	case Stopping:
		return Refuse(kerr.InvalidRequest, "topic %s is STOPPING and cannot be resumed", rec.Name)
	case Stopped:
		return Refuse(kerr.InvalidRequest, "topic %s is STOPPED, and clients may write to it: it cannot be resumed; to mirror it anew, delete it at the destination and add it to the mirror again", rec.Name)
	}
	return nil
}

// changePartitions changes all partitions of topics.
func (m *Manager) changePartitions(ctx context.Context, recs []store.Topic, change func(*store.Partition) bool) error {
	var updates []store.Update
	for _, rec := range recs {
		for p := range rec.Partitions {
			updates = append(updates, changePartition(rec.Mirror, rec.Name, p, change))
		}
	}
	return m.update(ctx, updates...)
}

// awaitResting waits until the replication here has let go of all paused partitions of a topic.
func (m *Manager) awaitResting(ctx context.Context, mirror, topic string) error {
	for {
		changed := m.records.changes()
		run := m.mirror(mirror)
		if run == nil {
			return nil
		}
		t := run.topic(topic)
		if t == nil || t.resting() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-m.ctx.Done():
			return fmt.Errorf("the gateway is stopping")
		}
	}
}

// resting reports whether the replication has none of the partitions that are PAUSED.
func (t *topicRun) resting() bool {
	for _, part := range t.m.records.Partitions(t.run.name, t.name) {
		if State(part.State) == Paused && t.isStarted(part.Partition) {
			return false
		}
	}
	return true
}
