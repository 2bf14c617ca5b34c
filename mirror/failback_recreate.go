package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/store"
)

// A destination topic that diverged is made anew: mirror.failback.divergence=recreate.

// notRecreatable says why a topic cannot be, "" if it can.
func (m *Manager) notRecreatable(topic string, l failbackLook) string {
	switch {
	case l.found.ID == (TopicID{}):
		return "the destination has no topic IDs (Kafka 2.8), without which the topic is not deleted: it could be another one by then"
	case len(topic)+len(savedSuffix) > 249:
		return "the name " + topic + savedSuffix + ", to which its records would be saved, is too long"
	}
	return ""
}

// startSaving notes what only the destination has, and what the topic is like.
func (t *topicRun) startSaving(ctx context.Context, rec store.Topic, l failbackLook, c comparison) error {
	fb := rec.Failback.In(store.FailbackSaving)
	fb.Own, fb.End, fb.Replicas = nil, nil, l.found.Replicas
	for _, s := range c.parts {
		fb.Own, fb.End = append(fb.Own, max(s.start, min(s.agreed, s.end))), append(fb.End, s.end)
	}
	var err error
	if fb.Settings, err = t.ownSettings(ctx, l.plan); err != nil {
		return err
	}
	err = t.toPhase(ctx, rec, func(now *store.Topic) { now.Failback = fb })
	if err == nil {
		t.log.Warn("the destination topic diverged and will be made anew (mirror.failback.divergence=recreate), once what only it has is saved",
			zap.Int64s("only_here_from", fb.Own), zap.Int64s("end", fb.End))
	}
	return err
}

// ownSettings are the settings of the destination topic that do not come from the source, and are not held.
func (t *topicRun) ownSettings(ctx context.Context, plan topicPlan) (map[string]string, error) {
	configs, err := cluster.TopicConfig(ctx, t.m.cfg.Destination, t.name)
	if err != nil {
		return nil, fmt.Errorf("settings of the destination topic %s: %w", t.name, lacksRight(err, alterConfigsRight, t.name))
	}
	own := make(map[string]string)
	for _, c := range configs {
		_, planned := plan.configs[c.Key]
		if c.Source == kmsg.ConfigSourceDynamicTopicConfig && c.Value != nil && !planned && !HeldSetting(c.Key) && !strings.Contains(c.Key, "throttled.replicas") {
			own[c.Key] = *c.Value
		}
	}
	return own, nil
}

// deleteOld deletes the destination topic, if all is as it was when everything was saved.
func (t *topicRun) deleteOld(ctx context.Context, rec store.Topic, l failbackLook) error {
	fb := rec.Failback
	if l.found.Missing() || l.found.ID != fb.TopicID { // by a try that could not note it any more
		return t.oldDeleted(ctx, rec)
	}
	back := func(phase store.FailbackPhase) error {
		return t.toPhase(ctx, rec, func(now *store.Topic) { now.Failback = fb.In(phase) })
	}
	if unchanged, err := t.unchanged(ctx, rec, l); err != nil {
		return err
	} else if !unchanged {
		return back(store.FailbackCheck)
	}
	if fb.SavedID != (TopicID{}) {
		saved, err := t.m.destinationTopic(ctx, t.name+savedSuffix)
		if err != nil {
			return err
		}
		if saved.ID != fb.SavedID {
			return back(store.FailbackSaving)
		}
	}
	_, sourceEnds, err := cluster.LogRanges(ctx, t.run.source, t.name, l.plan.partitions)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	for p, end := range sourceEnds {
		if p < len(fb.Own) && end < fb.Own[p] {
			return back(store.FailbackCheck) // the source lost what was taken for its own
		}
	}
	if err := t.m.deleteTopic(ctx, t.name, fb.TopicID); err != nil {
		return err
	}
	return t.oldDeleted(ctx, rec)
}

// oldDeleted notes that the topic that diverged is no more.
func (t *topicRun) oldDeleted(ctx context.Context, rec store.Topic) error {
	t.log.Warn("the destination topic was deleted, and will be made anew", zap.String("id", cluster.IDString(rec.Failback.TopicID)))
	return t.toPhase(ctx, rec, func(now *store.Topic) {
		now.Failback, now.DestinationID = rec.Failback.In(store.FailbackCreating), TopicID{}
	})
}

// deleteTopic deletes a topic by its ID, and waits until the destination does not show it any more.
func (m *Manager) deleteTopic(ctx context.Context, name string, id TopicID) error {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 30_000
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.TopicID = id
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, m.cfg.Destination)
	if err == nil && len(resp.Topics) == 1 {
		if err = kafkaError(resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage); errors.Is(kerr.ErrorForCode(resp.Topics[0].ErrorCode), kerr.UnknownTopicID) {
			err = nil // by a try before
		}
	}
	if err != nil {
		return fmt.Errorf("delete the destination topic %s: %w", name, lacksRight(err, "DELETE on topic %s at the destination", name))
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		found, err := m.destinationTopic(ctx, name)
		if err == nil && (found.Missing() || found.Err == nil && found.ID != id) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the destination topic %s was deleted, but is there still", name)
		}
	}
}

// withOwn completes the plan of a topic that is made anew by what is the destination's own.
func (p topicPlan) withOwn(fb *store.Failback) topicPlan {
	if fb == nil {
		return p
	}
	configs := maps.Clone(fb.Settings)
	if configs == nil {
		configs = make(map[string]string)
	}
	maps.Copy(configs, p.configs)
	p.configs = configs
	if p.replicas < 0 && fb.Replicas > 0 {
		p.replicas = fb.Replicas
	}
	return p
}
