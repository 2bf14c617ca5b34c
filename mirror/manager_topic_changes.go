package mirror

import (
	"context"
	"errors"
	"time"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/store"
)

// What a topicRun makes of news: transitions of the replication, and a destination topic that is lost.

// destinationLost fails all partitions if the destination topic is not the one that was made. The first look in this
// process is taken here, before anything is mirrored; later ones by checkDestination.
func (t *topicRun) destinationLost(ctx context.Context, rec store.Topic) (bool, error) {
	active := t.active()
	if active && !t.checked {
		found, err := t.m.destinationTopic(ctx, t.name)
		if err != nil {
			return false, err
		}
		if why := foreign(rec, found); why != "" {
			if !t.confirmed(why, found.Missing()) {
				return false, errors.New(why + " (to be confirmed)")
			}
		}
		t.checked = true
	}
	t.mu.Lock()
	lost := t.lost
	t.mu.Unlock()
	if lost == "" || !active && !t.failedAsRemade() {
		return false, nil
	}
	t.dropAll()
	var updates []store.Update
	for p := range rec.Partitions {
		updates = append(updates, t.failed(p, lost))
	}
	if err := t.m.update(ctx, updates...); err != nil {
		return false, err
	}
	t.m.event(ManagerEvent{Mirror: t.run.name, Topic: t.name, Partition: -1, State: Failed, Reason: lost})
	t.mu.Lock()
	t.lost, t.suspect = "", ""
	t.mu.Unlock()
	t.checked = false // an operator who tries again starts with a new look
	return true, nil
}

// active reports whether any partition is, or is about to be, written to.
func (t *topicRun) active() bool {
	for _, part := range t.m.records.Partitions(t.run.name, t.name) {
		if s := State(part.State); s != Failed && s != Stopped && s != Paused {
			return true
		}
	}
	return false
}

// failed is the update that records a failure that only an operator can end.
func (t *topicRun) failed(partition int32, reason string) store.Update {
	return changePartition(t.run.name, t.name, partition, func(part *store.Partition) bool {
		if s := State(part.State); s == Stopped || s == Stopping || s == Failed && part.Reason == reason {
			return false
		}
		part.State, part.Reason = int8(Failed), reason
		return true
	})
}

// confirmed takes a look that found the destination topic lost; a later one that finds the same counts. missing: the topic
// was not there, which must last, as the metadata of a broker that just started or is overloaded can trail for seconds.
func (t *topicRun) confirmed(why string, missing bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.suspect != why:
		t.suspect, t.suspectSince = why, time.Now()
		return false
	case missing && time.Since(t.suspectSince) < t.m.cfg.MissingFor:
		return false
	}
	t.lost = why
	return true
}

// destinationSeen takes what checkDestination found.
func (t *topicRun) destinationSeen(rec store.Topic, found cluster.Topic) {
	why := foreign(rec, found)
	if why == "" {
		t.mu.Lock()
		t.suspect = ""
		t.mu.Unlock()
	} else if t.confirmed(why, found.Missing()) {
		t.wakeUp()
	}
}

// stateChanged takes a transition from the replication; it does not block.
func (t *topicRun) stateChanged(change replication.StateChange) {
	if change.To != Mirroring && change.To != Stopped && !(change.To == Failed && change.Permanent) {
		return // passes by itself: Describe shows it live
	}
	t.mu.Lock()
	t.changes[change.Partition] = change
	t.mu.Unlock()
	t.wakeUp()
}

// recordChanges makes transitions durable that a restart has to know.
func (t *topicRun) recordChanges(ctx context.Context) error {
	t.mu.Lock()
	changes := t.changes
	t.changes = make(map[int32]replication.StateChange)
	t.mu.Unlock()
	var updates []store.Update
	for partition, change := range changes {
		switch change.To {
		case Failed:
			t.setStarted(partition, false)
			updates = append(updates, t.failed(partition, change.Reason))
		case Stopped:
			updates = append(updates, t.stopped(partition, change.LastMirrored))
		default:
			updates = append(updates, t.mirroring(partition))
		}
	}
	epochs := t.takeEpochs()
	for partition, known := range epochs {
		updates = append(updates, t.sourceEpochs(partition, known))
	}
	starts := t.takeStarts()
	for partition, start := range starts {
		updates = append(updates, t.sourceStart(partition, start))
	}
	err := t.m.update(ctx, updates...)
	if err != nil {
		t.mu.Lock()
		for partition, change := range changes {
			if _, news := t.changes[partition]; !news {
				t.changes[partition] = change
			}
		}
		t.mu.Unlock()
		t.putBackEpochs(epochs)
		t.putBackStarts(starts)
		return err
	}
	for partition, start := range starts {
		t.run.replication.StartNoted(t.name, partition, start)
	}
	return nil
}

func (t *topicRun) mirroring(partition int32) store.Update {
	return changePartition(t.run.name, t.name, partition, func(part *store.Partition) bool {
		if State(part.State) != Preparing {
			return false
		}
		part.State, part.Reason = int8(Mirroring), ""
		return true
	})
}
