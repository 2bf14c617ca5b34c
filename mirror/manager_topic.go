package mirror

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/store"
)

// topicRun takes one topic through its life: the records say where it is, step does what comes next. Every step can be
// repeated from its start.
//
// It is for one incarnation of the mirror topic, which its producer ID tells. One that is added anew gets another run once this
// one has let go.
type topicRun struct {
	run      *mirrorRun
	m        *Manager
	name     string
	producer int64
	log      *zap.Logger
	wake     chan struct{}
	// settings is held by whoever changes settings of the destination topic.
	settings chan struct{}

	mu      sync.Mutex
	seen    store.Topic                        // the record as of the last wake; guarded by mu
	reason  string                             // why it does not get on; guarded by mu
	changes map[int32]replication.StateChange  // of the replication, not recorded yet, the last ones; guarded by mu
	epochs  map[int32]replication.SourceEpochs // of the replication, not recorded yet, the last ones; guarded by mu
	starts  map[int32]int64                    // of the source's logs, not recorded yet, the highest; guarded by mu
	lost    string                             // what happened to the destination topic; guarded by mu
	suspect string                             // the same, not confirmed yet; guarded by mu
	// suspectSince is when suspect was seen first; guarded by mu.
	suspectSince time.Time
	grown        int32          // partitions of the source topic; guarded by mu
	retry        bool           // an operator wants failed partitions tried again; guarded by mu
	started      map[int32]bool // partitions that the replication has; guarded by mu, changed by loop alone

	// policy is held while the destination's cleanup.policy is another one for a moment, also during I/O.
	policy sync.Mutex

	// Used by loop alone.
	checked bool // the destination topic was looked at in this process
}

func newTopicRun(r *mirrorRun, rec store.Topic) *topicRun {
	return &topicRun{
		run: r, m: r.m, name: rec.Name, producer: rec.ProducerID, log: r.log.With(zap.String("topic", rec.Name)), wake: make(chan struct{}, 1),
		settings: make(chan struct{}, 1), changes: make(map[int32]replication.StateChange), epochs: make(map[int32]replication.SourceEpochs), starts: make(map[int32]int64),
		started: make(map[int32]bool),
	}
}

// loop steps until the topic is STOPPED or gone, or ctx ends; the partitions then just rest.
func (t *topicRun) loop(ctx context.Context) {
	wait := retryLeast
	for {
		done, err := t.step(ctx)
		if done || ctx.Err() != nil {
			return
		}
		t.blocked(err)
		var retry <-chan time.Time
		if err != nil {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			retry, wait = timer.C, min(2*wait, retryMost)
		} else {
			wait = retryLeast
		}
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-retry:
		}
	}
}

// step does what the record wants next.
func (t *topicRun) step(ctx context.Context) (done bool, err error) {
	rec, ok := t.m.records.Topic(t.run.name, t.name)
	if !ok || rec.ProducerID != t.producer {
		t.dropAll()
		return true, nil
	}
	if err := t.recordChanges(ctx); err != nil {
		return false, err
	}
	switch State(rec.State) {
	case Initializing:
		return false, t.initialize(ctx, rec)
	case Stopping:
		return false, t.stop(ctx, rec)
	case Stopped:
		t.dropAll()
		return true, nil
	default:
		return false, t.mirror(ctx, rec)
	}
}

// initialize makes the destination topic and its records. Nothing is mirrored in this state, so a destination topic
// that is empty is as good as one that was made here before a crash.
func (t *topicRun) initialize(ctx context.Context, rec store.Topic) error {
	if rec.Failback != nil && rec.Failback.Phase != store.FailbackCreating {
		return t.failback(ctx, rec)
	}
	release, err := t.m.enter(ctx)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	plans, err := t.run.plan(ctx, t.name)
	if err != nil {
		return err
	}
	plan := plans[t.name]
	if err := t.sameSource(rec, plan); err != nil {
		return t.otherSource(err)
	}
	if ours, err := t.confirmClaim(ctx, rec); err != nil {
		return err
	} else if !ours {
		return t.lostClaim(ctx)
	}
	id, err := t.m.makeDestination(ctx, t.name, plan.withOwn(rec.Failback))
	if err != nil {
		return err
	}
	if err := t.prepare(ctx, 0, plan.partitions, Preparing); err != nil {
		return err
	}
	err = t.change(ctx, Initializing, func(now *store.Topic) { // else removed meanwhile
		now.DestinationID, now.Partitions, now.State = id, plan.partitions, int8(Mirroring)
		now.Restore, now.Synced, now.Failback = plan.restore, plan.synced(), nil
	})
	if err == nil {
		t.checked = true
		t.m.event(ManagerEvent{Mirror: t.run.name, Topic: t.name, Partition: -1, State: Mirroring})
	}
	return err
}

// prepare makes the records of new partitions.
func (t *topicRun) prepare(ctx context.Context, from, to int32, state State) error {
	var updates []store.Update
	for p := from; p < to; p++ {
		updates = append(updates, preparePartition(t.run.name, t.name, p, state))
	}
	return t.m.update(ctx, updates...)
}

// change changes the topic's record if it is in the state from.
func (t *topicRun) change(ctx context.Context, from State, change func(*store.Topic)) error {
	return t.m.update(ctx, changeTopic(t.run.name, t.name, func(now *store.Topic) bool {
		if State(now.State) != from {
			return false
		}
		change(now)
		return true
	}))
}

// sameSource refuses a source topic that is not the one that was added.
func (t *topicRun) sameSource(rec store.Topic, plan topicPlan) error {
	if plan.err != nil {
		return fmt.Errorf("source topic %s: %w", t.name, plan.err)
	}
	if rec.SourceID != plan.sourceID {
		return fmt.Errorf("the source topic %s was deleted and created anew since it was added", t.name)
	}
	return nil
}

// mirror has every partition replicated that should be.
func (t *topicRun) mirror(ctx context.Context, rec store.Topic) (err error) {
	if lost, err := t.destinationLost(ctx, rec); err != nil || lost {
		return err
	}
	if err := t.grow(ctx, rec); err != nil {
		return err
	}
	if err := t.mendPolicy(ctx, rec); err != nil {
		return err
	}
	parts, stopped, retry := t.m.records.Partitions(t.run.name, t.name), 0, t.takeRetry()
	defer func() {
		if err != nil && retry {
			t.retryWithNextStep() // or nobody would try what comes behind the trouble
		}
	}()
	var shape topicShape
	for _, part := range parts {
		switch State(part.State) {
		case Failed:
			t.setStarted(part.Partition, false)
		case Paused:
			if t.isStarted(part.Partition) {
				if err := t.m.update(ctx, t.noteHeard(part.Partition, t.heard(part.Partition))); err != nil {
					return err
				}
				t.drop(part.Partition)
			}
		case Stopping:
			if err := t.stopPartition(ctx, rec, part.Partition); err != nil {
				return err
			}
			stopped++
		case Stopped:
			t.drop(part.Partition)
			stopped++
		default:
			if retry || !t.isStarted(part.Partition) {
				if shape.policy == "" {
					if shape, err = t.m.shape(ctx, t.name); err != nil {
						return err
					}
				}
				spec := t.spec(rec, part.Partition)
				spec.Compacted, spec.MaxBatchBytes = shape.compacted(), shape.batchBytes()
				spec.Fresh = part.Continued == 0 && (State(part.State) == Initializing || State(part.State) == Preparing)
				t.start(spec)
			}
		}
	}
	if stopped == 0 || stopped < int(rec.Partitions) {
		return nil
	}
	return t.change(ctx, Mirroring, func(now *store.Topic) { now.State = int8(Stopping) })
}

func (t *topicRun) spec(rec store.Topic, partition int32) replication.PartitionSpec {
	epochs, start := t.recordedSource(partition)
	return replication.PartitionSpec{
		Topic: rec.Name, SourceTopicID: rec.SourceID, DestinationTopicID: rec.DestinationID, Partition: partition,
		ProducerID: rec.ProducerID, PastProducerIDs: rec.PastProducerIDs, From: t.continuedFrom(partition),
		SourceClusterID: t.run.sourceClusterID, SourceEpochs: epochs, SourceStart: start,
	}
}

// start begins the replication of a partition, unless it was paused since its record was read: whoever pauses waits only for partitions
// that are started by then.
func (t *topicRun) start(spec replication.PartitionSpec) {
	t.setStarted(spec.Partition, true)
	if part, _ := t.m.records.Partition(t.run.name, t.name, spec.Partition); State(part.State) == Paused {
		t.wakeUp() // the next step drops it
		return
	}
	t.run.replication.Start(spec)
}

// drop ends the replication of a partition without a fence, and tells those that wait for it.
func (t *topicRun) drop(partition int32) {
	t.run.replication.Drop(t.name, partition)
	t.setStarted(partition, false)
	t.m.records.broadcast()
}

func (t *topicRun) dropAll() {
	t.mu.Lock()
	partitions := slices.Collect(maps.Keys(t.started))
	t.mu.Unlock()
	for _, p := range partitions {
		t.drop(p)
	}
}

func (t *topicRun) isStarted(partition int32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.started[partition]
}

func (t *topicRun) setStarted(partition int32, started bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started[partition] = started
}

// tryAgain has failed partitions tried again without waiting for their time.
func (t *topicRun) tryAgain() {
	t.mu.Lock()
	t.retry = true
	t.mu.Unlock()
	t.wakeUp()
}

// retryWithNextStep is tryAgain at the time of the next step.
func (t *topicRun) retryWithNextStep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.retry = true
}

func (t *topicRun) takeRetry() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	retry := t.retry
	t.retry = false
	return retry
}

// recordChanged reports whether the record differs from the last one seen.
func (t *topicRun) recordChanged(rec store.Topic) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if reflect.DeepEqual(t.seen, rec) {
		return false
	}
	t.seen = rec
	return true
}

func (t *topicRun) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// blocked keeps the reason why the topic does not get on, nil if it does, and tells a new one.
func (t *topicRun) blocked(err error) {
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	t.mu.Lock()
	news := reason != "" && reason != t.reason
	t.reason = reason
	t.mu.Unlock()
	if news {
		t.m.event(ManagerEvent{Mirror: t.run.name, Topic: t.name, Partition: -1, State: t.state(), Reason: reason})
	}
}

func (t *topicRun) state() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return State(t.seen.State)
}

// note says what a step that takes long is at.
func (t *topicRun) note(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reason = text
}

func (t *topicRun) waitsFor() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reason
}

// enter waits for a place among the topics whose steps talk to the clusters.
func (m *Manager) enter(ctx context.Context) (release func(), err error) {
	select {
	case m.steps <- struct{}{}:
		return func() { <-m.steps }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
