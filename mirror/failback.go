package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/store"
)

// # Failback
//
// After a failover from A to B, clients write to B. A gateway in front of A mirrors back from B's gateway, into the topic
// that was the source before. That one is not empty, so before anything else it is settled up to where both logs are the same
// (failback_compare.go). Offset for offset:
//
//	A's log    0 … N-1
//	B's log    0 … N-1   N: fence   N+1 …      LastMirroredOffsets of B's gateway: N
//
// If A's log ends at N, the mirror goes on there: to a reader of B's gateway the fence is an offset without a record, so it
// becomes a filler in A; and so on, back and forth. If A's log ends higher, it has records that B never got. Nothing can be
// taken off the end of a Kafka log, so there are two ways on: somebody decides (mirror.failback.divergence=fail), or these
// records are saved to another topic, and the topic is made anew (recreate). If nobody knows N, it is 0.
//
// The same is done for a topic that was STOPPED and is added to its mirror again. There N is what was mirrored before, and the
// fence alone makes the log longer than that: so after a stop there is no way on from the same source but recreate.
//
// The steps are phases in the topic's record (store.Failback), while it is INITIALIZING; each can be repeated from its start:
//
//	         fits
//	check ────────▶ continuing ──▶ MIRRORING
//	  │ ▲  ╲ fail
//	  │ │   ╲──────▶ diverged (FAILED; back to check when somebody tries again)
//	  │ │ changed since
//	  ▼ │recreate      verified          deleted
//	saving ──────────▶ deleting ───────▶ creating ──▶ as a topic that was not there
//
// Nothing is deleted before everything that only it has was read again from where it was saved to, and before the source was
// asked once more whether it has the rest. What is deleted is named by its topic ID, so it is never another topic.

// savedSuffix makes the name of the topic that records are saved to.
const savedSuffix = ".diverged"

// errOtherStep: the topic is not INITIALIZING any more, or somebody changed the phase.
var errOtherStep = errors.New("the topic is in another step by now")

// newFailback is for a destination topic that was found, before anything of the new incarnation is recorded.
func (m *Manager) newFailback(mirror, topic string, l failbackLook) *store.Failback {
	before, ok := m.records.Topic(mirror, topic)
	return &store.Failback{
		Phase: store.FailbackCheck, TopicID: l.found.ID,
		OwnOffsets: ok && State(before.State) == Stopped && mirroredInto(before, l),
	}
}

// mirroredInto reports whether a record speaks of the two topics that there are now.
func mirroredInto(rec store.Topic, l failbackLook) bool {
	none := TopicID{}
	return rec.DestinationID == l.found.ID && l.found.ID != none &&
		rec.SourceID == l.plan.sourceID && rec.OriginID == l.origin && (l.origin != none || l.plan.sourceID == none)
}

// failback does what the phase of a topic wants next.
func (t *topicRun) failback(ctx context.Context, rec store.Topic) error {
	ctx, done := t.whileInitializing(ctx)
	defer done()
	err := t.failbackStep(ctx, rec)
	if errors.Is(err, errOtherStep) || errors.Is(context.Cause(ctx), errOtherStep) {
		return nil // the record tells what is next
	}
	return err
}

func (t *topicRun) failbackStep(ctx context.Context, rec store.Topic) error {
	if rec.Failback.Phase == store.FailbackDiverged {
		return t.waitForDecision(ctx, rec)
	}
	look, err := t.look(ctx, rec)
	if err != nil {
		return err
	}
	switch rec.Failback.Phase {
	case store.FailbackSaving:
		return t.save(ctx, rec, look)
	case store.FailbackDeleting:
		return t.deleteOld(ctx, rec, look)
	default:
		return t.check(ctx, rec, look)
	}
}

// failbackLook is both sides as they are now.
type failbackLook struct {
	plan   topicPlan
	peer   *peer
	origin TopicID       // see store.Topic.OriginID
	found  cluster.Topic // at the destination
}

// look makes sure that the source is there, is the right one, and does not come from here; and that the topic is claimed.
func (t *topicRun) look(ctx context.Context, rec store.Topic) (l failbackLook, err error) {
	plans, err := t.run.plan(ctx, t.name)
	if err != nil {
		return l, err
	}
	l.plan = plans[t.name]
	if err := t.sameSource(rec, l.plan); err != nil {
		return l, err
	}
	if ours, err := t.confirmClaim(ctx, rec); err != nil {
		return l, err
	} else if !ours {
		return l, errors.Join(t.lostClaim(ctx), errOtherStep)
	}
	if l.peer, err = t.run.askPeer(ctx); err != nil {
		return l, err
	}
	if l.peer.bypassed {
		return l, bypassing(t.run.name)
	}
	if l.origin = l.peer.originID(t.name, l.plan.sourceID); l.origin != rec.OriginID {
		return l, fmt.Errorf("the source topic %s was made anew since it was added; remove it from the mirror and add it again", t.name)
	}
	here, err := t.m.destinationClusterID(ctx)
	if err != nil {
		return l, err
	}
	if why := t.run.loop(t.name, l.peer, here); why != "" {
		return l, errors.New(why)
	}
	if l.found, err = t.m.destinationTopic(ctx, t.name); err == nil && !l.found.Missing() {
		err = l.found.Err
	}
	return l, err
}

// check compares both logs and decides.
func (t *topicRun) check(ctx context.Context, rec store.Topic, l failbackLook) error {
	if l.found.Missing() {
		return t.toPhase(ctx, rec, func(now *store.Topic) { now.Failback, now.DestinationID = nil, TopicID{} })
	}
	fb := rec.Failback
	if l.found.ID != fb.TopicID { // somebody made another one: nothing is known of it
		return t.toPhase(ctx, rec, func(now *store.Topic) {
			now.DestinationID, now.Failback = l.found.ID, &store.Failback{Phase: store.FailbackCheck, TopicID: l.found.ID}
		})
	}
	c, err := t.run.compare(ctx, rec.Name, fb, l)
	switch {
	case err != nil:
		return err
	case c.fits():
		return t.goOn(ctx, rec, l, c)
	case !t.run.config().FailbackRecreate:
		return t.diverge(ctx, rec, l, c, "set mirror.failback.divergence=recreate (mirrorgate mirrors alter) and resume the topic: then they are saved to "+
			t.name+savedSuffix+", and the topic is made anew; or remove the topic from the mirror, which leaves it as it is")
	}
	if why := t.m.notRecreatable(t.name, l); why != "" {
		return t.diverge(ctx, rec, l, c, why+"; or remove the topic from the mirror, which leaves it as it is")
	}
	return t.startSaving(ctx, rec, l, c)
}

// goOn continues the destination topic. It has what the source has, up to its end.
func (t *topicRun) goOn(ctx context.Context, rec store.Topic, l failbackLook, c comparison) error {
	err := t.toPhase(ctx, rec, func(now *store.Topic) {
		now.Failback = rec.Failback.In(store.FailbackContinuing)
		now.Restore, now.Synced, now.Partitions = l.plan.restore, l.plan.synced(), l.plan.partitions
	})
	if err != nil {
		return err
	}
	if l.found.Partitions < l.plan.partitions {
		if err := t.m.growDestination(ctx, t.name, l.plan.partitions); err != nil {
			return err
		}
	}
	if err := t.m.alterTopic(ctx, t.name, l.plan.configs, nil); err != nil {
		return err
	}
	if err := t.prepare(ctx, l.found.Partitions, l.plan.partitions, Preparing); err != nil {
		return err
	}
	var updates []store.Update
	var ends []int64
	for p, s := range c.parts {
		updates = append(updates, continuePartition(t.run.name, t.name, int32(p), s))
		ends = append(ends, s.end)
	}
	if err := t.m.update(ctx, updates...); err != nil {
		return err
	}
	err = t.change(ctx, Initializing, func(now *store.Topic) {
		now.DestinationID, now.State, now.Failback = l.found.ID, int8(Mirroring), nil
	})
	if err == nil {
		t.checked = true
		t.log.Info("the mirror goes on in the topic that was there", zap.Int64s("from", ends))
		t.m.event(ManagerEvent{Mirror: t.run.name, Topic: t.name, Partition: -1, State: Mirroring})
	}
	return err
}

// continuePartition is the update that makes the record of a partition whose log goes on. What the destination deleted before
// is as what the source deleted: it does not come back.
func continuePartition(mirror, topic string, partition int32, s standing) store.Update {
	return changePartition(mirror, topic, partition, func(part *store.Partition) bool {
		*part = store.Partition{
			Mirror: mirror, Topic: topic, Partition: partition, State: int8(Preparing), LastMirrored: -1,
			Continued: s.end, SourceStart: s.start,
		}
		return true
	})
}

// diverge fails the topic until somebody decides. All of its partitions, so that it does not become a mixture.
func (t *topicRun) diverge(ctx context.Context, rec store.Topic, l failbackLook, c comparison, wayOut string) error {
	reasons := make([]string, max(len(c.parts), int(l.plan.partitions)))
	var diverged []int
	for p, s := range c.parts {
		if s.fits() && p < int(l.plan.partitions) {
			continue
		}
		diverged = append(diverged, p)
		why, err := t.divergedReason(ctx, c, int32(p))
		if err != nil {
			return err
		}
		reasons[p] = why + "; way out: " + wayOut
	}
	var updates []store.Update
	for p, reason := range reasons {
		if reason == "" {
			reason = fmt.Sprintf("partition %d of the topic diverged: nothing of the topic is copied until that is settled", diverged[0])
		}
		updates = append(updates, t.failed(int32(p), reason))
	}
	if err := t.m.update(ctx, t.reopen(updates, len(reasons))...); err != nil {
		return err
	}
	err := t.toPhase(ctx, rec, func(now *store.Topic) {
		now.Failback, now.Partitions = rec.Failback.In(store.FailbackDiverged), int32(len(reasons))
	})
	if err == nil {
		t.m.event(ManagerEvent{Mirror: t.run.name, Topic: t.name, Partition: -1, State: Failed, Reason: reasons[diverged[0]]})
	}
	return err
}

// reopen takes partition records out of STOPPED first, in which nothing fails any more. What they say of the incarnation
// before stays.
func (t *topicRun) reopen(updates []store.Update, partitions int) []store.Update {
	var first []store.Update
	for p := range partitions {
		first = append(first, changePartition(t.run.name, t.name, int32(p), func(part *store.Partition) bool {
			if State(part.State) != Stopped {
				return false
			}
			part.State = int8(Preparing)
			return true
		}))
	}
	return append(first, updates...)
}

// waitForDecision goes on once somebody wants the topic tried again.
func (t *topicRun) waitForDecision(ctx context.Context, rec store.Topic) error {
	again := t.takeRetry() || slices.ContainsFunc(t.m.records.Partitions(t.run.name, t.name), func(part store.Partition) bool {
		return part.Partition < rec.Partitions && State(part.State) != Failed
	})
	if !again {
		return nil
	}
	return t.toPhase(ctx, rec, func(now *store.Topic) { now.Failback = rec.Failback.In(store.FailbackCheck) })
}

// toPhase changes the topic's record if it is still in the phase that rec says.
func (t *topicRun) toPhase(ctx context.Context, rec store.Topic, change func(*store.Topic)) error {
	changed := false
	err := t.change(ctx, Initializing, func(now *store.Topic) {
		changed = now.Failback != nil && now.Failback.Phase == rec.Failback.Phase && now.ProducerID == rec.ProducerID
		if changed {
			change(now)
		}
	})
	if err == nil && !changed {
		return errOtherStep
	}
	if err == nil {
		t.wakeUp()
	}
	return err
}

// whileInitializing gives a context that ends when the topic is removed.
func (t *topicRun) whileInitializing(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			changed := t.m.records.changes()
			if rec, ok := t.m.records.Topic(t.run.name, t.name); !ok || State(rec.State) != Initializing {
				cancel(errOtherStep)
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		watch.Wait()
	}
}

// giveUpFailback ends a topic to which nothing was written. rec is STOPPING.
func (t *topicRun) giveUpFailback(ctx context.Context, rec store.Topic) error {
	t.dropAll()
	var updates []store.Update
	for _, part := range t.m.records.Partitions(t.run.name, t.name) {
		updates = append(updates, changePartition(t.run.name, t.name, part.Partition, func(part *store.Partition) bool {
			part.State, part.Reason = int8(Stopped), ""
			if !rec.Failback.OwnOffsets {
				part.LastMirrored = -1 // it was another topic's
			}
			return true
		}))
	}
	if err := t.m.update(ctx, updates...); err != nil {
		return err
	}
	if rec.Failback.Phase == store.FailbackContinuing {
		return t.restore(ctx, rec)
	}
	return nil
}

// continuedFrom is where the mirror went on in a log that was there before, else 0.
func (t *topicRun) continuedFrom(partition int32) int64 {
	part, _ := t.m.records.Partition(t.run.name, t.name, partition)
	return part.Continued
}

// diverged reports whether a topic waits for somebody to decide.
func diverged(rec store.Topic) bool {
	return rec.Failback != nil && rec.Failback.Phase == store.FailbackDiverged
}

// LastMirrored is Describe for LastMirroredOffsets: up to where each partition is the same as its source. That of a STOPPED
// topic is -1 if the destination does not have it any more, whatever is there under its name.
func (m *Manager) LastMirrored(ctx context.Context, mirror string) ([]TopicDescription, error) {
	description, err := m.Describe(ctx, mirror)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range description.Topics {
		if rec, ok := m.records.Topic(mirror, t.Name); ok && State(rec.State) == Stopped {
			names = append(names, t.Name)
		}
	}
	found := make(map[string]cluster.Topic, len(names))
	for chunk := range slices.Chunk(names, 1000) {
		some, _, err := cluster.DescribeTopics(ctx, m.cfg.Destination, chunk...)
		if err != nil {
			return nil, clusterTrouble(err)
		}
		for name, topic := range some {
			if topic.Err != nil && !errors.Is(topic.Err, kerr.UnknownTopicOrPartition) {
				return nil, clusterTrouble(topic.Err)
			}
			found[name] = topic
		}
	}
	for i := range description.Topics {
		t := &description.Topics[i]
		topic, stopped := found[t.Name]
		rec, _ := m.records.Topic(mirror, t.Name)
		if !stopped || rec.DestinationID != (TopicID{}) && topic.ID == rec.DestinationID {
			continue
		}
		for p := range t.Partitions {
			t.Partitions[p].LastMirrored = -1
		}
	}
	return description.Topics, nil
}
