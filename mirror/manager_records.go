package mirror

import (
	"context"
	"fmt"
	"sync"

	"github.com/mirrorgate/mirrorgate/store"
)

// StateLog is what the manager needs of the state log; *store.Store implements it. Reads see every update of this process
// that has returned, and updates are linearised with those of other gateways, so that no lock is needed around them.
type StateLog interface {
	Mirrors() []store.Mirror
	Mirror(name string) (store.Mirror, bool)
	Topics(mirror string) []store.Topic // "" = of all mirrors
	Topic(mirror, topic string) (store.Topic, bool)
	Partitions(mirror, topic string) []store.Partition
	Partition(mirror, topic string, partition int32) (store.Partition, bool)
	TopicIDs() []store.TopicID
	TopicID(topic string) (store.TopicID, bool)
	ACLs(mirror string) (store.ACLs, bool)
	UpdateMany(ctx context.Context, updates []store.Update) error
	Watch(fn func(store.Change)) (cancel func())
}

// records adds to StateLog what the manager's loops need: which topics changed, and a broadcast.
type records struct {
	StateLog

	mu      sync.Mutex
	changed chan struct{}      // closed at the next change; guarded by mu
	dirty   map[topicName]bool // topics with changed partitions; guarded by mu
	kick    chan struct{}      // has room for one: there is something to look at
}

type topicName struct{ mirror, topic string }

func newRecords(state StateLog) *records {
	return &records{
		StateLog: state, changed: make(chan struct{}), dirty: make(map[topicName]bool), kick: make(chan struct{}, 1),
	}
}

// watch notes a change for the reconcile loop. It is called by the state log and does not block.
func (r *records) watch(change store.Change) {
	if change.Key.Kind == store.KindPartition {
		r.mu.Lock()
		r.dirty[topicName{change.Key.Mirror, change.Key.Topic}] = true
		r.mu.Unlock()
	}
	r.poke()
}

// poke makes the reconcile loop look.
func (r *records) poke() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// takeDirty returns the topics whose partitions changed since the last call.
func (r *records) takeDirty() map[topicName]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	dirty := r.dirty
	r.dirty = make(map[topicName]bool)
	return dirty
}

// changes returns a channel that is closed at the next change.
func (r *records) changes() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

func (r *records) broadcast() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}

// topicsOf returns the topics of one mirror, without removed ones.
func (r *records) topicsOf(mirror string) []store.Topic {
	var topics []store.Topic
	for _, rec := range r.Topics(mirror) {
		if !rec.Removed {
			topics = append(topics, rec)
		}
	}
	return topics
}

// owner returns the record of the mirror in which a topic is and not STOPPED.
func (r *records) owner(topic string) (store.Topic, bool) {
	for _, mirror := range r.Mirrors() {
		if rec, ok := r.Topic(mirror.Name, topic); ok && State(rec.State) != Stopped {
			return rec, true
		}
	}
	return store.Topic{}, false
}

// update makes changes durable and brings the snapshot and the runs in line with them before it returns. An update
// function that refuses with an *Error gives that error.
func (m *Manager) update(ctx context.Context, updates ...store.Update) error {
	if len(updates) == 0 {
		return nil
	}
	if err := m.records.UpdateMany(ctx, updates); err != nil {
		return fmt.Errorf("write the mirror state: %w", err)
	}
	for _, u := range updates {
		if u.Key.Kind != store.KindPartition {
			m.changed()
			return nil
		}
	}
	m.records.broadcast()
	return nil
}

// changeTopic is an update of a topic's record, if there is one. change returns false to leave it as it is.
func changeTopic(mirror, topic string, change func(*store.Topic) bool) store.Update {
	return store.Update{Key: store.TopicKey(mirror, topic), Fn: store.Typed(func(now *store.Topic) (*store.Topic, error) {
		if now == nil || !change(now) {
			return nil, store.ErrNoChange
		}
		return now, nil
	})}
}

// changePartition is an update of a partition's record; a missing one is made.
func changePartition(mirror, topic string, partition int32, change func(*store.Partition) bool) store.Update {
	key := store.PartitionKey(mirror, topic, partition)
	return store.Update{Key: key, Fn: store.Typed(func(now *store.Partition) (*store.Partition, error) {
		if now == nil {
			now = &store.Partition{Mirror: mirror, Topic: topic, Partition: partition, LastMirrored: -1}
		}
		if !change(now) {
			return nil, store.ErrNoChange
		}
		return now, nil
	})}
}

// preparePartition is an update that makes the record of a partition that begins anew, in the state PREPARING or PAUSED.
func preparePartition(mirror, topic string, partition int32, state State) store.Update {
	return changePartition(mirror, topic, partition, func(part *store.Partition) bool {
		part.State, part.Reason, part.LastMirrored = int8(state), "", -1
		part.SourceEpochs, part.SourceEpochsEnd, part.SourceStart = nil, 0, 0
		part.SourceEnd, part.SourceEndMs, part.StoppedMs = 0, 0, 0
		return true
	})
}
