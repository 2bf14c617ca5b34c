package mirror

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/store"
)

// What the data path needs to know of a destination topic's settings, and wants to have changed.

// cleanupPolicy is the setting that says whether a log is compacted, and whether DeleteRecords is allowed.
const cleanupPolicy = "cleanup.policy"

// topicShape are the settings of a destination topic that count for what is written to it.
type topicShape struct {
	policy       string
	maxBytes     int // max.message.bytes
	segmentBytes int // segment.bytes
}

// batchBytes is the size of the largest batch that the topic takes, 0 if that is not known.
func (s topicShape) batchBytes() int {
	if s.segmentBytes > 0 {
		return min(s.maxBytes, s.segmentBytes)
	}
	return s.maxBytes
}

func (s topicShape) compacted() bool { return strings.Contains(s.policy, "compact") }

// shape reads the settings of a destination topic. A topic that was just made is not known to every broker yet.
func (m *Manager) shape(ctx context.Context, name string) (topicShape, error) {
	for try := 1; ; try++ {
		s, err := m.shapeNow(ctx, name)
		if try == 10 || !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return s, err
		}
		pause := time.NewTimer(100 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return s, err
		}
	}
}

func (m *Manager) shapeNow(ctx context.Context, name string) (topicShape, error) {
	configs, err := cluster.TopicConfig(ctx, m.cfg.Destination, name)
	if err != nil {
		return topicShape{}, fmt.Errorf("settings of the destination topic %s: %w", name, lacksRight(err, alterConfigsRight, name))
	}
	var s topicShape
	for _, c := range configs {
		switch {
		case c.Value == nil:
		case c.Key == cleanupPolicy:
			s.policy = *c.Value
		case c.Key == "max.message.bytes":
			s.maxBytes, _ = strconv.Atoi(*c.Value)
		case c.Key == "segment.bytes":
			s.segmentBytes, _ = strconv.Atoi(*c.Value)
		}
	}
	return s, nil
}

// allowDeleteRecords makes the destination topic allow DeleteRecords, which Kafka refuses where the policy is compact
// alone: for a moment the policy is compact,delete, with a retention that deletes nothing. The policy to go back to is in
// the topic's record first, so that a crash in between is mended by the next start or stop.
func (t *topicRun) allowDeleteRecords(ctx context.Context) (done func(), err error) {
	t.policy.Lock()
	defer func() {
		if done == nil {
			t.policy.Unlock()
		}
	}()
	s, err := t.m.shape(ctx, t.name)
	if err != nil {
		return nil, err
	}
	if strings.Contains(s.policy, "delete") {
		return t.policy.Unlock, nil // the refusal is older
	}
	held := false
	err = t.change(ctx, Mirroring, func(now *store.Topic) {
		held = true
		now.Restore = with(now.Restore, cleanupPolicy, s.policy)
	})
	if err == nil && !held {
		err = fmt.Errorf("topic %s is being stopped", t.name)
	}
	if err != nil {
		return nil, err
	}
	set := map[string]string{cleanupPolicy: s.policy + ",delete"}
	for key, value := range unlimited {
		set[key] = value
	}
	if err := t.m.alterTopic(ctx, t.name, set, nil); err != nil {
		return nil, err
	}
	return func() {
		defer t.policy.Unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := t.policyBack(ctx); err != nil {
			t.log.Warn("cleanup.policy of the destination topic could not be put back yet", zap.Error(err))
			t.wakeUp()
		}
	}, nil
}

// mendPolicy puts a policy back that allowDeleteRecords did not, as the process ended or the destination was away.
func (t *topicRun) mendPolicy(ctx context.Context, rec store.Topic) error {
	if _, ok := rec.Restore[cleanupPolicy]; !ok || !t.policy.TryLock() {
		return nil
	}
	defer t.policy.Unlock()
	return t.policyBack(ctx)
}

// policyBack. REQUIRES: t.policy.
func (t *topicRun) policyBack(ctx context.Context) error {
	rec, ok := t.m.records.Topic(t.run.name, t.name)
	policy, held := rec.Restore[cleanupPolicy]
	if !ok || !held || State(rec.State) != Mirroring {
		return nil // a stop does it
	}
	if err := t.m.alterTopic(ctx, t.name, map[string]string{cleanupPolicy: policy}, nil); err != nil {
		return err
	}
	return t.change(ctx, Mirroring, func(now *store.Topic) { now.Restore = with(now.Restore, cleanupPolicy, "") })
}

// with returns a copy of settings with one set, or without it if value is empty. Records share their maps.
func with(settings map[string]string, key, value string) map[string]string {
	changed := make(map[string]string, len(settings)+1)
	for k, v := range settings {
		changed[k] = v
	}
	if changed[key] = value; value == "" {
		delete(changed, key)
	}
	return changed
}

func (r *mirrorRun) allowDeleteRecords(ctx context.Context, topic string) (func(), error) {
	t := r.topic(topic)
	if t == nil {
		return nil, fmt.Errorf("topic %s is not mirrored any more", topic)
	}
	return t.allowDeleteRecords(ctx)
}

// raiseBatchLimit gives the destination topic the source's max.message.bytes if that is higher by now.
func (r *mirrorRun) raiseBatchLimit(ctx context.Context, topic string, bytes int) (bool, error) {
	plans, err := r.plan(ctx, topic)
	if err != nil {
		return false, err
	}
	want, err := strconv.Atoi(plans[topic].configs["max.message.bytes"])
	if err != nil {
		return false, plans[topic].err // the source has the default, or the topic is gone
	}
	now, err := r.m.shape(ctx, topic)
	if err != nil || want <= now.maxBytes {
		return false, err
	}
	if err := r.m.alterTopic(ctx, topic, map[string]string{"max.message.bytes": strconv.Itoa(want)}, nil); err != nil {
		return false, err
	}
	r.log.Info("max.message.bytes follows the source's", zap.String("topic", topic), zap.Int("refused", bytes),
		zap.Int("was", now.maxBytes), zap.Int("is", want))
	return true, nil
}
