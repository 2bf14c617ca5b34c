package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/appendlog"
)

// How an update becomes durable.
//
// All updates of one state partition go through one queue; whoever finds it without a writer becomes its writer. The
// writer takes what is queued, evaluates the update functions in order over the view, and appends the results as one
// batch at base = the view's end, under the partition's producer ID with sequence = offset. The broker refuses the batch
// unless the log ends at base, with one exception: another gateway may have sent a batch of the same length at the same
// base, and then ours is answered as a duplicate of that one. So the answer proves nothing; the reader does. The batch
// counts when the record at base is read with our nonce, and has lost when anything else is read there. Then the
// functions are evaluated again over the newer view.
//
// The producer ID is named by a record in the partition itself, v1/producer/<partition>/<id>: the newest that counts is in
// force. A writer that finds none takes a new ID and puts its record in front of its batch. Two gateways that do so at
// once have different IDs, and the broker appends both batches; but a record counts only at the offset its nonce names,
// so only the first does. The loser's batch remains as refuse in the log. It also shifts the log against the winner's
// sequence (as any record of a stranger does), so the winner's ID is refused from then on: the writer that sees that the
// broker expects a lower sequence than the end of the log takes a new ID in the same way. No ID is ever used again.

// maxBatchRecords and maxBatchBytes keep a batch far below message.max.bytes (1 MB).
const (
	maxBatchRecords = 1000
	maxBatchBytes   = 512 << 10
)

const (
	firstBackoff   = 20 * time.Millisecond
	lastBackoff    = 2 * time.Second
	producerJitter = 100 * time.Millisecond
	// alignmentPatience is more than replica.lag.time.max.ms, within which a slow replica leaves the in-sync set.
	alignmentPatience = 35 * time.Second
)

// operation is one queued update.
type operation struct {
	ctx    context.Context
	key    Key
	fn     func(current any) (any, error) // nil: write the record again, if a foreign one hides it
	result error                          // of the last evaluation; it counts once the batch does
	done   chan error                     // has room for the one answer
}

// enqueue queues operations of one state partition and makes sure that a writer is at work.
func (s *Store) enqueue(partition int32, ops []*operation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.fatal != nil {
		return s.fatal
	}
	p := s.partitions[partition]
	p.queue = append(p.queue, ops...)
	if !p.writing {
		p.writing = true
		s.wg.Add(1)
		go s.writeQueue(p)
	}
	return nil
}

// abandon takes operations that nobody waits for any longer off the queue, unless the writer has them in hand: while the
// destination cannot be reached, the queue is then no longer than there are callers.
func (s *Store) abandon(partition int32, ops []*operation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partitions[partition]
	gone := make(map[*operation]bool, len(ops))
	for _, o := range ops {
		gone[o] = true
	}
	kept := slices.Clone(p.queue[:min(p.taken, len(p.queue))])
	for _, o := range p.queue[len(kept):] {
		if !gone[o] {
			kept = append(kept, o)
		}
	}
	p.queue = kept
}

// writeQueue works until the queue is empty, or the store ends.
func (s *Store) writeQueue(p *statePartition) {
	defer s.wg.Done()
	w := writer{s: s, p: p, spare: -1}
	for {
		s.mu.Lock()
		if len(p.queue) == 0 {
			p.writing = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if err := w.writeBatch(s.ctx); err != nil {
			s.mu.Lock()
			ops := p.queue
			p.queue, p.taken, p.writing = nil, 0, false
			if s.fatal != nil {
				err = s.fatal
			} else if s.ctx.Err() != nil {
				err = ErrClosed
			}
			s.mu.Unlock()
			for _, o := range ops {
				o.done <- err
			}
			return
		}
	}
}

// writer writes one state partition.
type writer struct {
	s     *Store
	p     *statePartition
	spare int64 // a producer ID that was taken and not used; -1 = none
}

// attempt is a batch made of queued operations.
type attempt struct {
	base     int64
	producer int64
	records  []logRecord
	ops      []*operation // the head of the queue that it covers
	wait     *readback
	sent     time.Time
}

// writeBatch writes one batch of the queue, however many attempts it takes. An error ends the writer; the operations
// of the batch are still queued then.
func (w *writer) writeBatch(ctx context.Context) error {
	started := time.Now()
	for tries := 0; ; tries++ {
		if err := w.awaitReady(ctx); err != nil {
			return err
		}
		if err := w.ensureProducer(ctx); err != nil {
			return err
		}
		a := w.evaluate()
		if len(a.records) == 0 {
			w.drop(a, nil)
			return nil
		}
		won, err := w.send(ctx, a)
		if err != nil && ctx.Err() == nil {
			w.drop(a, fmt.Errorf("writing the state log: %w", err))
			return nil
		}
		if err != nil {
			return err
		}
		if won {
			w.s.metrics.writes.Inc()
			w.s.metrics.writeSeconds.Observe(time.Since(started).Seconds())
			w.drop(a, nil)
			return nil
		}
		w.s.metrics.conflicts.Inc()
		w.s.log.Debug("another gateway was faster; evaluating again", zap.Int32("partition", w.p.number), zap.Int64("base", a.base), zap.Int("try", tries))
	}
}

// awaitReady waits until the view of the partition can be built upon.
func (w *writer) awaitReady(ctx context.Context) error {
	return w.s.await(ctx, w.p, func() bool { return w.p.ready() })
}

// ensureProducer has a spare producer ID at hand if the partition needs one.
func (w *writer) ensureProducer(ctx context.Context) error {
	needs := func() (needs, again bool) {
		w.s.mu.Lock()
		defer w.s.mu.Unlock()
		again = w.p.producer >= 0
		return !again || w.p.producer == w.p.avoid, again
	}
	need, again := needs()
	if need && again {
		// Every gateway that writes here finds out at the same time. Let one be first: its record spares the others.
		if err := sleep(ctx, rand.N(producerJitter)); err != nil {
			return err
		}
		need, _ = needs()
	}
	if !need || w.spare >= 0 {
		return nil
	}
	var err error
	w.spare, err = w.takeProducer(ctx)
	return err
}

// takeProducer asks the broker for a new producer ID until it gets one.
func (w *writer) takeProducer(ctx context.Context) (int64, error) {
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		id, err := w.s.logs.newProducer(ctx)
		if err == nil {
			w.s.metrics.producers.Inc()
			return id, nil
		}
		if ctx.Err() != nil {
			return -1, ctx.Err()
		}
		w.s.log.Warn("cannot get a producer ID for the state log; trying again", zap.Error(err))
		if err := sleep(ctx, wait); err != nil {
			return -1, err
		}
	}
}

// evaluate calls the update functions over the view and makes the batch. A function may see what one before it in the
// same batch made, so no result counts before the batch does. Functions are called without the lock: the queue's head is
// changed only by the writer, entries never are.
func (w *writer) evaluate() *attempt {
	w.s.mu.Lock()
	a := &attempt{base: w.p.next, producer: w.p.producer}
	queue := w.p.queue[:min(len(w.p.queue), maxBatchRecords)]
	view := make(map[Key]*entry, len(queue))
	hidden := make(map[Key]int64)
	for _, o := range queue {
		view[o.key] = w.p.entries[o.key]
		if at, ok := w.s.hidden[o.key]; ok {
			hidden[o.key] = at
		}
	}
	take := a.producer < 0 || a.producer == w.p.avoid
	w.p.taken = len(queue)
	w.s.mu.Unlock()

	if take {
		a.producer = w.spare
		key := Key{Kind: KindProducer, Partition: w.p.number, ID: a.producer}
		value, _ := encode(key, &Producer{ID: a.producer}, nil) // a number cannot fail
		w.add(a, key, value)
	}
	own, bytes := len(a.records), 0
	for _, o := range queue {
		if bytes >= maxBatchBytes {
			break
		}
		a.ops = append(a.ops, o)
		var value []byte
		var write bool
		if value, write, o.result = w.evaluateOne(o, view, hidden); write {
			w.add(a, o.key, value)
			bytes += len(value) + 100
		}
	}
	if len(a.records) == own {
		a.records = nil // nothing but our producer ID: not worth a write
	} else if take {
		w.spare = -1
	}
	return a
}

func (w *writer) add(a *attempt, key Key, value []byte) {
	offset := a.base + int64(len(a.records))
	a.records = append(a.records, logRecord{
		offset: offset, key: []byte(key.String()), value: value,
		nonce: makeNonce(w.s.id, w.s.counter.Add(1), offset),
	})
}

// evaluateOne returns the new value (nil to delete) and whether there is anything to write. view is overlaid with the
// result, so that the next operation of the batch on the same key sees it.
func (w *writer) evaluateOne(o *operation, view map[Key]*entry, hidden map[Key]int64) (value []byte, write bool, err error) {
	current := view[o.key]
	if o.fn == nil {
		at, ok := hidden[o.key]
		return rawOf(current), ok && current != nil && current.offset < at, nil
	}
	if err := o.ctx.Err(); err != nil {
		return nil, false, err
	}
	var now any
	if current != nil {
		if current.value == nil {
			return nil, false, fmt.Errorf("%s: %w", o.key, ErrNewer)
		}
		now = clone(current.value)
	}
	next, err := o.fn(now)
	switch {
	case errors.Is(err, ErrNoChange):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case isNil(next):
		view[o.key] = nil
		return nil, current != nil, nil
	case !matches(o.key, next):
		return nil, false, fmt.Errorf("the new value for %s has another key", o.key)
	}
	next = clone(next)
	if value, err = encode(o.key, next, w.s.sealer); err != nil {
		return nil, false, err
	}
	if len(value) > maxBatchBytes {
		return nil, false, fmt.Errorf("%s: a state record of %d bytes is too large", o.key, len(value))
	}
	view[o.key] = &entry{offset: -1, raw: value, value: next}
	return value, true, nil
}

func rawOf(e *entry) []byte {
	if e == nil {
		return nil
	}
	return e.raw
}

// drop takes what the batch covered off the queue and answers it.
func (w *writer) drop(a *attempt, err error) {
	w.s.mu.Lock()
	w.p.queue, w.p.taken = w.p.queue[len(a.ops):], 0
	w.s.mu.Unlock()
	for _, o := range a.ops {
		if o.result == nil {
			o.result = err
		}
		o.done <- o.result
	}
}

// send appends the batch and waits until the reader knows whether it counts. An error that is not ctx's is permanent.
func (w *writer) send(ctx context.Context, a *attempt) (won bool, err error) {
	a.wait = &readback{base: a.base, nonce: a.records[0].nonce, done: make(chan bool, 1)}
	w.s.mu.Lock()
	if w.p.next != a.base || !w.p.ready() {
		w.s.mu.Unlock()
		return false, nil // the log moved on while the functions ran
	}
	w.p.wait, a.sent = a.wait, time.Now()
	w.s.mu.Unlock()
	defer w.forget(a)

	id := appendlog.Partition{Topic: w.s.topic, Partition: w.p.number, ProducerID: a.producer}
	raw := buildBatch(a.producer, a.base, time.Now().UnixMilli(), a.records)
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		err := w.s.logs.Append(ctx, id, appendlog.Batch{Bytes: raw, Base: a.base, Next: a.base + int64(len(a.records))})
		switch {
		case err == nil:
			select {
			case won := <-a.wait.done:
				return won, nil
			case <-ctx.Done():
				return false, ctx.Err()
			}
		case errors.Is(err, ErrRefused):
			return w.refused(ctx, a)
		case ctx.Err() != nil:
			return false, ctx.Err()
		case !errors.Is(err, ErrUncertain):
			return false, err
		}
		w.s.log.Warn("writing the state log failed; trying again", zap.Int32("partition", w.p.number), zap.Error(err))
		select {
		case won := <-a.wait.done:
			return won, nil // it had arrived, or somebody else's did
		default:
		}
		if err := sleep(ctx, wait); err != nil {
			return false, err
		}
	}
}

func (w *writer) forget(a *attempt) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.p.wait == a.wait {
		w.p.wait = nil
	}
}

// refused finds out why: usually the log has grown, and reading on settles it. If the broker expects a lower sequence of
// our producer than the log's end, records of others have shifted the log against the sequence, and no waiting helps: the
// producer ID is given up.
func (w *writer) refused(ctx context.Context, a *attempt) (won bool, err error) {
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		select {
		case won := <-a.wait.done:
			if !won {
				w.checkAlignment(ctx, a)
			}
			return won, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(wait):
		}
		if w.checkAlignment(ctx, a) {
			return false, nil
		}
	}
}

// checkAlignment gives the producer ID up if it is no longer of use, and reports whether it did. REQUIRES: the broker
// refused the batch. A broker that cannot say what it expects (before 2.8, or no right to ask) is given the time in which
// the high watermark must have come up to the log's end; one that says it does not know the producer, and yet refused it,
// is believed.
func (w *writer) checkAlignment(ctx context.Context, a *attempt) bool {
	end, err := w.s.logs.end(ctx, w.p.number)
	if err != nil {
		return false
	}
	w.s.mu.Lock()
	trails, overtaken := w.p.next < end, w.p.next > a.base
	w.s.mu.Unlock()
	if trails {
		return false // what is still unread may hold the record of another producer
	}
	next, known, err := w.s.logs.nextSequence(ctx, w.p.number, a.producer)
	switch {
	case overtaken && (err != nil || !known):
		return false // which explains the refusal
	case err != nil && time.Since(a.sent) < alignmentPatience:
		return false
	case err == nil && known:
		// behind is taken modulo 2^31, as sequences are; a sequence ahead of end only means that end moved meanwhile.
		if behind := (end - int64(next)) & 0x7fffffff; behind == 0 || behind >= 1<<30 {
			return false
		}
	}
	w.s.mu.Lock()
	w.p.avoid = a.producer
	w.s.mu.Unlock()
	w.s.log.Warn("records that no gateway wrote have shifted a state partition; taking a new producer ID for it",
		zap.Int32("partition", w.p.number), zap.Int64("end", end), zap.Int32("sequence", next))
	return true
}
