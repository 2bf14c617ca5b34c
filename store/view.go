package store

import (
	"bytes"
	"errors"
	"time"

	"go.uber.org/zap"
)

// entry is a record that counts, in the view. It is never changed once it is there.
type entry struct {
	offset int64
	raw    []byte // the value as it is in the log
	value  any    // *Mirror, *Topic, *Partition, *TopicID, *Producer; nil if it is of a newer version or not readable
}

// statePartition is the view of one partition of the state topic. All fields are guarded by Store.mu.
type statePartition struct {
	number     int32
	next       int64 // everything below is applied
	seenMs     int64
	confirmed  bool // the follower has read the partition at least once
	entries    map[Key]*entry
	producer   int64 // the one in force; -1 if there is none yet
	producerAt int64 // the offset of its record
	avoid      int64 // one whose sequence no longer fits the log; -1 if there is none

	// rebuild is the view being built after a reset, until rebuildEnd is reached.
	rebuild    map[Key]*entry
	rebuildEnd int64

	wait  *readback     // the batch of our own that is on its way
	moved chan struct{} // closed and replaced whenever next or a rebuild changes

	queue   []*operation
	taken   int // how many at the head of the queue the writer has in hand
	writing bool
}

// readback decides whether a batch of ours counts: the record at its base has its nonce, or not.
type readback struct {
	base  int64
	nonce string
	ok    bool
	done  chan bool // has room for the one answer
}

// settle takes the waiting batch of our own out; the caller answers it when the watchers know of it.
func (p *statePartition) settle(ok bool, settled *readback) *readback {
	if p.wait == nil {
		return settled
	}
	settled, p.wait = p.wait, nil
	settled.ok = ok
	return settled
}

// ready reports whether the view is a prefix of the log that can be built upon.
func (p *statePartition) ready() bool { return p.confirmed && p.rebuild == nil }

func (p *statePartition) step() {
	close(p.moved)
	p.moved = make(chan struct{})
}

// Change is a change of one record. Old and New are *Mirror, *Topic and so on, nil if there was or is
// none; they are shared and must not be changed.
type Change struct {
	Key      Key
	Old, New any
}

// apply takes a segment into the view: log order per partition. It runs in one goroutine.
func (s *Store) apply(seg segment) {
	s.mu.Lock()
	p := s.partitions[seg.partition]
	var changes []Change
	var puts []localRecord
	var settled *readback
	p.confirmed = true
	if seg.reset {
		s.metrics.rebuilds.Inc()
		p.rebuild, p.rebuildEnd, p.next, p.producer = map[Key]*entry{}, seg.resetEnd, 0, -1
		settled = p.settle(false, settled)
	}
	for i := range seg.records {
		r := &seg.records[i]
		if r.offset < p.next {
			continue
		}
		changes, puts = s.applyRecord(p, r, changes, puts)
		if p.wait != nil && r.offset >= p.wait.base {
			settled = p.settle(r.offset == p.wait.base && r.nonce == p.wait.nonce, settled)
		}
		p.next = r.offset + 1
	}
	p.next = max(p.next, seg.next)
	if p.wait != nil && p.next > p.wait.base {
		settled = p.settle(false, settled)
	}
	if p.rebuild != nil && p.next >= p.rebuildEnd {
		changes = s.swap(p, changes)
	}
	if seg.caughtUp {
		p.seenMs = time.Now().UnixMilli()
	}
	pos := position{p.next, p.seenMs}
	watchers := s.watchers
	s.mu.Unlock()

	s.saveLocal(seg, pos, puts)
	for _, c := range changes {
		for _, w := range watchers {
			w.call(c)
		}
	}
	if settled != nil {
		settled.done <- settled.ok
	}
	s.mu.Lock()
	p.step()
	s.mu.Unlock()
}

// applyRecord takes one record into the view if it counts.
func (s *Store) applyRecord(p *statePartition, r *logRecord, changes []Change, puts []localRecord) ([]Change, []localRecord) {
	key, ok := parseKey(string(r.key))
	if !r.valid() || !ok || key.StatePartition() != p.number {
		s.foreign(p, r, key, ok)
		return changes, puts
	}
	s.metrics.applied.Inc()
	delete(s.hidden, key)
	puts = append(puts, localRecord{text: r.key, offset: r.offset, value: r.value})
	entries := p.entries
	if p.rebuild != nil {
		entries = p.rebuild
	}
	old := entries[key]
	if r.value == nil {
		delete(entries, key)
		if p.rebuild == nil {
			changes = s.index(key, old, nil, changes)
		}
		return changes, puts
	}
	e := s.entry(key, r.offset, r.value)
	entries[key] = e
	if producer, ok := e.value.(*Producer); ok {
		p.producer, p.producerAt = producer.ID, r.offset
	}
	if p.rebuild == nil {
		changes = s.index(key, old, e, changes)
	}
	return changes, puts
}

// foreign is a record that does not count: somebody else's, or of a gateway that lost a race in the one case that the
// broker does not stop (a producer ID that it did not know). If it has the key of a record that counts, the cleaner
// would remove that one in its favour, so that one is written again.
func (s *Store) foreign(p *statePartition, r *logRecord, key Key, isKey bool) {
	s.metrics.ignored.Inc()
	say, what := s.log.Warn, "ignoring a record of the state topic that no gateway wrote for this place"
	if r.nonce != "" {
		say, what = s.log.Info, "ignoring a record of the state topic whose writer was overtaken, or is of a newer version"
	}
	say(what, zap.Int32("partition", p.number), zap.Int64("offset", r.offset), zap.ByteString("key", r.key[:min(len(r.key), 100)]))
	if isKey && key.Kind != KindProducer && key.StatePartition() == p.number {
		s.hidden[key] = r.offset
		select {
		case s.repair <- struct{}{}:
		default:
		}
	}
}

// entry decodes a value. What cannot be read is kept as it is: it may be of a newer version.
func (s *Store) entry(key Key, offset int64, raw []byte) *entry {
	e := &entry{offset: offset, raw: raw}
	value, err := decode(key, raw, s.sealer)
	if err != nil {
		s.log.Warn("state record not understood, or not in full; it is kept",
			zap.Stringer("key", key), zap.Int64("offset", offset), zap.Error(err))
	}
	if value != nil && (err == nil || !errors.Is(err, ErrNewer)) {
		e.value = value
	}
	return e
}

// swap takes the view that was built after a reset into use; watchers get the differences.
func (s *Store) swap(p *statePartition, changes []Change) []Change {
	old, now := p.entries, p.rebuild
	p.entries, p.rebuild = now, nil
	for key, e := range old {
		if now[key] == nil {
			changes = s.index(key, e, nil, changes)
		}
	}
	for key, e := range now {
		if before := old[key]; before == nil || !bytes.Equal(before.raw, e.raw) {
			changes = s.index(key, before, e, changes)
		}
	}
	s.log.Info("state partition read anew", zap.Int32("partition", p.number), zap.Int("records", len(now)), zap.Int64("next", p.next))
	return changes
}

type topicName struct{ mirror, topic string }

// index keeps the records findable by what they are, and adds the change for the watchers.
func (s *Store) index(key Key, old, now *entry, changes []Change) []Change {
	c := Change{Key: key}
	if old != nil {
		c.Old = old.value
	}
	if now != nil {
		c.New = now.value
	}
	switch key.Kind {
	case KindMirror:
		set(s.mirrors, key.Mirror, c.New)
	case KindTopic:
		set(inner(s.topics, key.Mirror), key.Topic, c.New)
	case KindPartition:
		set(inner(s.parts, topicName{key.Mirror, key.Topic}), key.Partition, c.New)
	case KindTopicID:
		set(s.topicIDs, key.Topic, c.New)
	case KindACLs:
		set(s.acls, key.Mirror, c.New)
	case KindClaim:
		set(s.claims, key.Topic, c.New)
	default:
		return changes
	}
	if c.Old == nil && c.New == nil {
		return changes
	}
	if m, ok := c.New.(*Mirror); ok && s.sealer == nil && !s.warned && m.hasSecrets() {
		s.warned = true
		s.log.Warn("no secret key is configured: secrets of mirrors are in clear in the state topic", zap.String("topic", s.topic), zap.String("mirror", m.Name))
	}
	return append(changes, c)
}

func inner[K, L comparable, V any](m map[K]map[L]V, k K) map[L]V {
	if m[k] == nil {
		m[k] = map[L]V{}
	}
	return m[k]
}

func set[K comparable, V any](m map[K]*V, k K, value any) {
	if v, ok := value.(*V); ok && v != nil {
		m[k] = v
		return
	}
	delete(m, k)
}
