package mirror

import (
	"context"

	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/store"
)

// grow follows a source topic that got more partitions.
func (t *topicRun) grow(ctx context.Context, rec store.Topic) error {
	t.mu.Lock()
	grown := t.grown
	t.mu.Unlock()
	if grown <= rec.Partitions {
		return nil
	}
	release, err := t.m.enter(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := t.m.growDestination(ctx, t.name, grown); err != nil {
		return err
	}
	if err := t.prepare(ctx, rec.Partitions, grown, t.stateOfNew()); err != nil {
		return err
	}
	t.log.Info("source topic grew: the new partitions are mirrored from their first record", zap.Int32("partitions", grown))
	return t.change(ctx, Mirroring, func(now *store.Topic) { now.Partitions = max(now.Partitions, grown) })
}

// stateOfNew is that of new partitions: those of a paused topic are paused too.
func (t *topicRun) stateOfNew() State {
	parts := t.m.records.Partitions(t.run.name, t.name)
	for _, part := range parts {
		if State(part.State) != Paused {
			return Preparing
		}
	}
	if len(parts) == 0 {
		return Preparing
	}
	return Paused
}

func (t *topicRun) sourceGrew(partitions int32) {
	t.mu.Lock()
	grew := partitions > t.grown
	t.grown = max(t.grown, partitions)
	t.mu.Unlock()
	if grew {
		t.wakeUp()
	}
}
