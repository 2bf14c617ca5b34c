package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.uber.org/zap"
)

// Update is one change for UpdateMany. Fn gets the current value (*Mirror, *Topic and so on by the kind of
// Key, a copy; an untyped nil if there is none) and returns the new one (nil to delete), or an error to leave it:
// ErrNoChange counts as success. Fn may be called several times, must be quick, and must not use the store's updates.
// The value that counts is that of the last call.
type Update struct {
	Key Key
	Fn  func(current any) (next any, err error)
}

// UpdateMany makes several updates durable at the cost of about one: those of one state partition travel in one batch,
// in their order, the partitions in parallel. Each update stands for itself: the error joins those of the updates that
// failed. When ctx ends first, updates under way may still take effect.
func (s *Store) UpdateMany(ctx context.Context, updates []Update) error {
	queues := make(map[int32][]*operation)
	ops := make([]*operation, 0, len(updates))
	for _, u := range updates {
		if err := u.Key.check(); err != nil {
			return err
		}
		if u.Key.Kind == KindProducer {
			return fmt.Errorf("%s is the store's own", u.Key)
		}
		o := &operation{ctx: ctx, key: u.Key, fn: u.Fn, done: make(chan error, 1)}
		ops = append(ops, o)
		n := u.Key.StatePartition()
		queues[n] = append(queues[n], o)
	}
	for n, queue := range queues {
		if err := s.enqueue(n, queue); err != nil {
			return err // the same for all: closed or stopped
		}
	}
	var errs []error
	for _, o := range ops {
		select {
		case err := <-o.done:
			if err != nil {
				errs = append(errs, err)
			}
		case <-ctx.Done():
			for n, queue := range queues {
				s.abandon(n, queue)
			}
			return errors.Join(append(errs, fmt.Errorf("waiting for an update of the state: %w", ctx.Err()))...)
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// Update makes one update; see the type Update.
func (s *Store) Update(ctx context.Context, key Key, fn func(current any) (next any, err error)) error {
	return s.UpdateMany(ctx, []Update{{key, fn}})
}

// Typed makes an update function of one that takes and returns pointers, nil for "no record".
func Typed[T Mirror | Topic | Partition | TopicID | ACLs | Claim](fn func(current *T) (next *T, err error)) func(any) (any, error) {
	return func(current any) (any, error) {
		value, _ := current.(*T)
		next, err := fn(value)
		if next == nil {
			return nil, err
		}
		return next, err
	}
}

// UpdateMirror updates a mirror's record; nil is "no record", both ways.
func (s *Store) UpdateMirror(ctx context.Context, name string, fn func(current *Mirror) (*Mirror, error)) error {
	return s.Update(ctx, MirrorKey(name), Typed(fn))
}

// UpdateTopic updates the record of a topic in a mirror.
func (s *Store) UpdateTopic(ctx context.Context, mirror, topic string, fn func(current *Topic) (*Topic, error)) error {
	return s.Update(ctx, TopicKey(mirror, topic), Typed(fn))
}

// UpdatePartition updates the record of a mirror partition.
func (s *Store) UpdatePartition(ctx context.Context, mirror, topic string, partition int32, fn func(current *Partition) (*Partition, error)) error {
	return s.Update(ctx, PartitionKey(mirror, topic, partition), Typed(fn))
}

// UpdateTopicID updates the record of an ordinary topic with a given ID.
func (s *Store) UpdateTopicID(ctx context.Context, topic string, fn func(current *TopicID) (*TopicID, error)) error {
	return s.Update(ctx, TopicIDKey(topic), Typed(fn))
}

func isNil(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case *Mirror:
		return v == nil
	case *Topic:
		return v == nil
	case *Partition:
		return v == nil
	case *TopicID:
		return v == nil
	case *ACLs:
		return v == nil
	case *Claim:
		return v == nil
	}
	return false
}

type watcher struct {
	fn        func(Change)
	cancelled atomic.Bool
}

func (w *watcher) call(c Change) {
	if !w.cancelled.Load() {
		w.fn(c)
	}
}

// Watch calls fn for every change from now on, those of this gateway included: in log order per state partition, from
// one goroutine, when the reading methods already show it and before the update that made it returns. fn must not block
// and must not wait for an update. After cancel, at most a call that has begun is still under way.
func (s *Store) Watch(fn func(Change)) (cancel func()) {
	w := &watcher{fn: fn}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers = append(s.watchers[:len(s.watchers):len(s.watchers)], w)
	return func() {
		w.cancelled.Store(true)
		s.mu.Lock()
		defer s.mu.Unlock()
		var rest []*watcher
		for _, other := range s.watchers {
			if other != w {
				rest = append(rest, other)
			}
		}
		s.watchers = rest
	}
}

// repairHidden writes records again that a foreign record of the same key hides from the log cleaner.
func (s *Store) repairHidden() {
	defer s.wg.Done()
	for {
		select {
		case <-s.repair:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		var ops []*operation
		for key, at := range s.hidden {
			if e := s.partitions[key.StatePartition()].entries[key]; e != nil && e.offset < at {
				ops = append(ops, &operation{ctx: s.ctx, key: key, done: make(chan error, 1)})
				continue
			}
			delete(s.hidden, key)
		}
		s.mu.Unlock()
		for _, o := range ops {
			if s.enqueue(o.key.StatePartition(), []*operation{o}) != nil {
				return
			}
		}
		for _, o := range ops {
			select {
			case err := <-o.done:
				s.log.Warn("state record written again because a foreign record hid it", zap.Stringer("key", o.key), zap.Error(err))
			case <-s.ctx.Done():
				return
			}
		}
	}
}
