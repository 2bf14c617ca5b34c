package mirror

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/store"
)

// # Claims
//
// A destination topic may be written by one mirror at a time. The records of two mirrors are in different partitions of
// the state log, so two gateways that add a topic to different mirrors would not see each other. So each topic has a claim,
// one record that both must win:
//
//  1. AddTopics writes the claim, then the topic's record.
//  2. The topic's run confirms the claim before it touches the destination.
//  3. A stop releases it once everything is fenced, before the topic is STOPPED.
//
// A gateway that dies between 1 and 2 leaves a claim that nobody confirms. Another mirror may take it over when it is old
// and the topic has no record; should the first gateway be alive and merely slow, it finds in 2 that it lost.

// claimStale is the age from which an unconfirmed claim may be taken over.
const claimStale = time.Minute

// claim claims the fresh topics, or refuses those that another mirror has and releases the others.
func (a *addition) claim(ctx context.Context) error {
	now := time.Now()
	updates := make([]store.Update, 0, len(a.fresh))
	for _, i := range a.fresh {
		t, producer := a.topics[i], a.producers[i]
		updates = append(updates, changeClaim(t.Name, func(c *store.Claim) (*store.Claim, error) {
			a.results[i].Err = nil // the last call counts
			if c != nil && c.Mirror != t.Mirror && !a.m.abandoned(c, now) {
				a.results[i].Err = Refuse(kerr.InvalidRequest, "topic %s is in mirror %q already, or being added to it", t.Name, c.Mirror)
				return nil, store.ErrNoChange
			}
			if c != nil && c.Mirror == t.Mirror && c.Confirmed { // another gateway was quicker with the same
				return nil, store.ErrNoChange
			}
			return &store.Claim{Topic: t.Name, Mirror: t.Mirror, ProducerID: producer, ClaimedMs: now.UnixMilli()}, nil
		}))
	}
	if err := a.m.records.UpdateMany(ctx, updates); err != nil {
		return fmt.Errorf("claim the topics: %w", err)
	}
	if !anyRefused(a.results) {
		return nil
	}
	updates = updates[:0]
	for _, i := range a.fresh {
		if a.results[i].Err == nil {
			updates = append(updates, releaseClaim(a.topics[i].Mirror, a.topics[i].Name, a.producers[i]))
		}
	}
	return a.m.records.UpdateMany(ctx, updates)
}

// abandoned reports whether a claim of another mirror may be taken over.
func (m *Manager) abandoned(c *store.Claim, now time.Time) bool {
	if c.Confirmed || now.Sub(time.UnixMilli(c.ClaimedMs)) < claimStale {
		return false
	}
	rec, ok := m.records.Topic(c.Mirror, c.Topic)
	return !ok || State(rec.State) == Stopped
}

// confirmClaim makes sure that nobody else writes the topic from now on; false if another mirror has it.
func (t *topicRun) confirmClaim(ctx context.Context, rec store.Topic) (ours bool, err error) {
	err = t.m.records.UpdateMany(ctx, []store.Update{changeClaim(rec.Name, func(c *store.Claim) (*store.Claim, error) {
		ours = c == nil || c.Mirror == rec.Mirror
		if !ours || c != nil && c.Confirmed && c.ProducerID == rec.ProducerID {
			return nil, store.ErrNoChange
		}
		next := &store.Claim{Topic: rec.Name, Mirror: rec.Mirror, ProducerID: rec.ProducerID, Confirmed: true, ClaimedMs: time.Now().UnixMilli()}
		return next, nil
	})})
	if err != nil {
		return false, fmt.Errorf("confirm the claim of topic %s: %w", rec.Name, err)
	}
	return ours, nil
}

// lostClaim ends a topic that another mirror has. Nothing was written yet.
func (t *topicRun) lostClaim(ctx context.Context) error {
	t.log.Warn("topic was added to another mirror at the same time; it is given up here")
	return t.change(ctx, Initializing, func(now *store.Topic) { now.State, now.Removed = int8(Stopped), true })
}

// releaseClaim is the update that gives up a claim of one incarnation of a mirror topic.
func releaseClaim(mirror, topic string, producer int64) store.Update {
	return changeClaim(topic, func(c *store.Claim) (*store.Claim, error) {
		if c == nil || c.Mirror != mirror || c.ProducerID != producer {
			return nil, store.ErrNoChange
		}
		return nil, nil
	})
}

func changeClaim(topic string, change func(*store.Claim) (*store.Claim, error)) store.Update {
	return store.Update{Key: store.ClaimKey(topic), Fn: store.Typed(change)}
}
