package mirror

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mirrorgate/mirrorgate/store"
)

// stop fences every partition, gives the settings back and makes the topic writable, in this order.
func (t *topicRun) stop(ctx context.Context, rec store.Topic) error {
	found, err := t.m.destinationTopic(ctx, t.name)
	if err != nil {
		return err
	}
	// INITIALIZING without a destination topic, or with one that was there before, or one that somebody else deleted: there
	// is nothing to fence.
	gone := rec.Failback != nil || rec.DestinationID == (TopicID{}) || foreign(rec, found) != ""
	switch {
	case rec.Failback != nil:
		err = t.giveUpFailback(ctx, rec)
	case gone:
		err = t.letGo(ctx)
	default:
		err = t.fenceAll(ctx, rec)
	}
	if err != nil {
		return err
	}
	if !gone {
		if t.run.sourceAnswers(ctx) {
			if err := t.noteSourceEnds(ctx, rec); err != nil {
				return err
			}
			t.run.groups.final(ctx)
		}
		if err := t.restore(ctx, rec); err != nil {
			return err
		}
	}
	if err := t.m.update(ctx, releaseClaim(rec.Mirror, rec.Name, rec.ProducerID)); err != nil {
		return err
	}
	err = t.change(ctx, Stopping, func(now *store.Topic) { now.State, now.Failback = int8(Stopped), nil })
	if err == nil {
		t.m.event(ManagerEvent{Mirror: t.run.name, Topic: t.name, Partition: -1, State: Stopped})
	}
	return err
}

// restore gives the held settings back. The syncer of topic configs, which holds them, does nothing for a topic that is
// not MIRRORING, and looks at that under the same lock.
func (t *topicRun) restore(ctx context.Context, rec store.Topic) error {
	select {
	case t.settings <- struct{}{}:
		defer func() { <-t.settings }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if Latest, ok := t.m.records.Topic(rec.Mirror, rec.Name); ok {
		rec = Latest
	}
	return t.m.restore(ctx, *t.run.config(), rec)
}

// stopParallel is how many partitions of a topic are fenced at one time.
const stopParallel = 32

func (t *topicRun) fenceAll(ctx context.Context, rec store.Topic) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(stopParallel)
	for p := range rec.Partitions {
		group.Go(func() error { return t.stopPartition(ctx, rec, p) })
	}
	return group.Wait()
}

// stopPartition fences one partition and records where it ended. The fence may be there already.
func (t *topicRun) stopPartition(ctx context.Context, rec store.Topic, partition int32) error {
	attempt, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	last, err := t.run.replication.Stop(attempt, t.spec(rec, partition))
	if err != nil {
		return fmt.Errorf("fence %s-%d: %w", t.name, partition, err)
	}
	return t.m.update(ctx, t.stopped(partition, last))
}

// stopped is the update that records the end of a partition; last is -1 if it is not known.
func (t *topicRun) stopped(partition int32, last int64) store.Update {
	heard, now := t.heard(partition), time.Now().UnixMilli()
	return changePartition(t.run.name, t.name, partition, func(part *store.Partition) bool {
		last := last
		if last < 0 {
			last = part.LastMirrored
		}
		if State(part.State) == Stopped && part.LastMirrored == last {
			return false
		}
		if State(part.State) != Stopped {
			part.StoppedMs = now
			heard.note(part)
		}
		part.State, part.Reason, part.LastMirrored = int8(Stopped), "", last
		return true
	})
}

// letGo ends the partitions of a topic whose destination is gone.
func (t *topicRun) letGo(ctx context.Context) error {
	t.dropAll()
	var updates []store.Update
	for _, part := range t.m.records.Partitions(t.run.name, t.name) {
		updates = append(updates, t.stopped(part.Partition, -1))
	}
	return t.m.update(ctx, updates...)
}
