package appendlog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// Log is one partition as a compare-and-append log. It carries out the effects of its core.
type Log struct {
	client *Client
	p      Partition
	past   []int64
	h      Handler
	log    *zap.Logger
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // readings and the pause's timer

	// mu guards all below. Lock order: Log.mu before writer.mu. It is not held while the Handler is called.
	mu      sync.Mutex
	settled sync.Cond // closed and something that Close waits for has ended
	core    core
	closed  bool

	// w writes to the partition's leader in the core's lane, and conn is its connection on which the end was proved, at proven or by the last
	// acknowledgement since. Only on this connection may batches be sent.
	w        *writer
	conn     *broker.Conn
	proven   time.Time
	haveRead bool // a reading was tried before, so that the next must not trust old metadata

	merged     int    // what this Log counts for in Client.merged
	listed     bool   // in a writer's list
	fence      []byte // the fence to be sent next, else nil
	unanswered int    // items handed to a writer that have no answer yet
	timer      *time.Timer
	waiters    []chan fenceAnswer

	// calls are Handler calls that are due; they are made by one goroutine at a time, the one that set dispatching.
	calls       []effect
	dispatching bool
}

type fenceAnswer struct {
	last int64
	err  error
}

func newLog(c *Client, p Partition, past []int64, h Handler) *Log {
	l := &Log{
		client: c, p: p, past: slices.Clone(past), h: h,
		log:  c.cfg.Log.With(zap.String("topic", p.Topic), zap.Int32("partition", p.Partition)),
		core: newCore(p, c.cfg.MaxInFlight),
	}
	l.settled.L = &l.mu
	l.ctx, l.cancel = context.WithCancel(c.ctx)
	return l
}

func (l *Log) start() { l.step((*core).start) }

// Append queues a batch, which the Log then owns: it rewrites the header in place and keeps Bytes until Acked has passed
// the batch, or Doubt, Fenced, Failed or Close drops it. The batch must begin where the one before it ended; the first
// one after Ready at its offset. It never blocks. Errors: ErrFull, ErrNotReady, ErrFenced, ErrFailed, ErrClosed or a
// *BatchError; the batch then stays the caller's, but its header may have been rewritten.
func (l *Log) Append(b Batch) error {
	if err := checkBatch(b); err != nil {
		return err
	}
	if limit := l.client.cfg.MaxBatchBytes; len(b.Bytes) > limit {
		return &BatchError{Base: b.Base, Reason: fmt.Sprintf("%d bytes are more than the limit of %d", len(b.Bytes), limit)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.room(len(b.Bytes)); err != nil {
		return err
	}
	if err := l.core.append(b); err != nil {
		return err
	}
	l.perform()
	return nil
}

// room. REQUIRES: mu.
func (l *Log) room(size int) error {
	n := l.core.queue.len()
	switch {
	case l.closed:
		return ErrClosed
	case n > 0 && (n >= l.client.cfg.QueueBatches || l.core.queue.bytes+size > l.client.cfg.QueueBytes):
		return ErrFull
	}
	return nil
}

// Fence closes the partition for ever to the producer ID, after what is in flight has settled, and returns the offset of
// the fence; -1 if it is fenced at a higher epoch than ours and the offset is not known. Queued batches that were not
// sent are dropped. It works in every state, without Ready, also after Failed, and may be repeated; a fence that is
// there already is found. Handler.Fenced is called as well, and Handler.Failed before it, if the log turns out to hold a
// foreign write. When ctx ends first, the Log goes on trying until Close; call Fence again to wait for it.
func (l *Log) Fence(ctx context.Context) (last int64, err error) {
	answer := make(chan fenceAnswer, 1)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return -1, ErrClosed
	}
	l.waiters = append(l.waiters, answer)
	l.core.fence()
	l.perform()
	due := len(l.calls) > 0
	if due {
		l.wg.Go(l.dispatch) // Handler calls come from goroutines of this package only
	}
	l.mu.Unlock()
	select {
	case a := <-answer:
		return a.last, a.err
	case <-ctx.Done():
		l.dropWaiter(answer)
		return -1, fmt.Errorf("fencing %s-%d: %w", l.p.Topic, l.p.Partition, ctx.Err())
	}
}

func (l *Log) dropWaiter(answer chan fenceAnswer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiters = slices.DeleteFunc(l.waiters, func(w chan fenceAnswer) bool { return w == answer })
}

// Close stops the Log. It waits until no Handler call is running and the broker, or the end of the connection, has
// answered what is in flight. It must not be called from a Handler.
func (l *Log) Close() {
	l.mu.Lock()
	l.closed = true
	l.cancel()
	if l.timer != nil && l.timer.Stop() {
		l.wg.Done()
	}
	l.timer = nil
	l.calls = nil
	for l.unanswered > 0 || l.dispatching {
		l.settled.Wait()
	}
	for _, w := range l.waiters {
		w <- fenceAnswer{-1, ErrClosed}
	}
	l.waiters = nil
	l.client.merged.Add(int64(-l.merged))
	l.merged = 0
	l.mu.Unlock()
	l.wg.Wait()
	l.client.forget(l)
}

// step gives the core an event and carries out what comes of it. It runs on goroutines of this package only.
func (l *Log) step(event func(*core)) {
	l.mu.Lock()
	if !l.closed {
		event(&l.core)
		l.perform()
	}
	l.mu.Unlock()
	l.dispatch()
}

// perform starts what the core wants, and notes the Handler calls. REQUIRES: mu.
func (l *Log) perform() {
	for _, e := range l.core.effects {
		switch e.kind {
		case doRead:
			fresh, bulk := l.haveRead, l.core.bulk
			l.haveRead = true
			l.wg.Go(func() { l.read(e, fresh, bulk) })
		case doConfirm:
			bulk := l.core.bulk
			l.wg.Go(func() { l.confirm(e.offset, bulk) })
		case doWait:
			l.wait(e.attempt)
		case doFence:
			l.fence = l.makeFence()
			l.list()
		case fenceDone:
			for _, w := range l.waiters {
				w <- fenceAnswer{e.offset, e.err}
			}
			l.waiters = nil
		default:
			l.calls = append(l.calls, e)
		}
	}
	l.core.effects = l.core.effects[:0]
	l.countMerged()
	l.maybeList()
}

// makeFence. The record has the fixed key of fillers, which a compacted topic wants and no other topic minds.
func (l *Log) makeFence() []byte {
	fence := recordbatch.AppendFence(nil, true, l.client.cfg.Now().UnixMilli())
	recordbatch.Stamp(fence, l.p.ProducerID, l.p.Epoch+1, 0)
	return fence
}

// dispatch makes the Handler calls that are due, unless another goroutine is at it.
func (l *Log) dispatch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dispatching {
		return
	}
	l.dispatching = true
	for len(l.calls) > 0 && !l.closed {
		e := l.calls[0]
		l.calls = l.calls[1:]
		if len(l.calls) == 0 {
			l.calls = nil
		}
		l.mu.Unlock()
		l.call(e)
		l.mu.Lock()
	}
	l.dispatching = false
	l.settled.Broadcast()
}

func (l *Log) call(e effect) {
	switch e.kind {
	case callReady:
		l.log.Debug("end of the destination log is known", zap.Int64("end", e.offset))
		l.h.Ready(e.offset)
	case callAcked:
		l.h.Acked(e.offset, e.batches, e.bytes)
	case callDoubt:
		l.client.cfg.Metrics.doubts.WithLabelValues(errorName(e.err)).Inc()
		l.log.Info("destination log is in doubt, its end is read again", zap.Error(e.err))
		l.h.Doubt(e.err)
	case callFenced:
		l.log.Info("destination log is fenced", zap.Int64("offset", e.offset))
		l.h.Fenced(e.offset)
	case callFailed:
		l.log.Error("destination log failed", zap.Error(e.err))
		l.h.Failed(e.err)
	}
}

// wait starts the pause before the next reading. REQUIRES: mu.
func (l *Log) wait(attempt int) {
	if l.closed {
		return
	}
	l.wg.Add(1)
	l.timer = time.AfterFunc(backoff(l.client.cfg.BackoffMin, l.client.cfg.BackoffMax, attempt), func() {
		defer l.wg.Done()
		l.step((*core).wake)
	})
}

// backoff doubles from the lower to the upper bound, and takes a random part of the upper half, so that two gateways
// that got into each other's way do not do so for ever.
func backoff(low, high time.Duration, attempt int) time.Duration {
	d := high
	if shift := attempt - 1; shift < 20 && low<<shift < high {
		d = low << shift
	}
	return d/2 + rand.N(d/2+1)
}

// read finds the end of the log. It runs on a goroutine of its own.
func (l *Log) read(e effect, fresh, bulk bool) {
	w, conn, t, err := l.readTail(e, fresh, bulk)
	l.step(func(c *core) {
		if err != nil {
			c.readFailed(err)
			return
		}
		l.client.cfg.Metrics.tailChecks.WithLabelValues(t.verdict.String()).Inc()
		l.w, l.conn, l.proven = w, conn, l.client.cfg.Now()
		c.endRead(t)
	})
}

func (l *Log) readTail(e effect, fresh, bulk bool) (w *writer, conn *broker.Conn, t tail, err error) {
	w, err = l.reading(fresh, bulk, func(r *tailReader) error {
		conn = r.conn
		t, err = r.read(l.ctx, e.offset, e.deep)
		return err
	})
	return w, conn, t, err
}

// confirm finds whose the batch before the fence is. It runs on a goroutine of its own.
func (l *Log) confirm(fence int64, bulk bool) {
	var t tail
	_, err := l.reading(true, bulk, func(r *tailReader) (err error) {
		t, err = r.before(l.ctx, fence)
		return err
	})
	l.step(func(c *core) {
		if err != nil {
			c.readFailed(fmt.Errorf("reading what is before the fence at offset %d: %w", fence, err))
			return
		}
		c.fenceConfirmed(t)
	})
}

// reading calls read with a connection to the leader, that of the writer which is returned; maxReads at the same time.
func (l *Log) reading(fresh, bulk bool, read func(*tailReader) error) (*writer, error) {
	w, err := l.client.leader(l.ctx, l.p, fresh, bulk)
	if err != nil {
		return nil, err
	}
	conn, err := w.connect(l.ctx)
	if err != nil {
		return nil, err
	}
	select {
	case w.reads <- struct{}{}:
		defer func() { <-w.reads }()
	case <-l.ctx.Done():
		return nil, l.ctx.Err()
	}
	return w, read(&tailReader{conn: conn, p: l.p, past: l.past})
}

// maybeList puts the Log on its writer's list if it has something to send. REQUIRES: mu.
func (l *Log) maybeList() {
	if l.core.canSend() {
		l.list()
	}
}

// list. REQUIRES: mu, and a reading that set w.
func (l *Log) list() {
	if !l.listed && !l.closed {
		l.listed = true
		l.w.push(l)
	}
}

// restAfter is the pause after which one batch goes alone. It costs nothing, as there is little to send then.
const restAfter = time.Second

// take gives the writer the next batch for a request on conn that has room bytes left. more: another one is to go into
// the next request. If the batch does not fit, it returns fits = false and the Log stays listed.
func (l *Log) take(w *writer, conn *broker.Conn, room int) (it item, more, fits bool) {
	defer l.dispatch()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listed = false
	switch {
	case l.closed:
		return item{}, false, true
	case l.w != w: // the leader or the lane has changed since
		if l.fence != nil || l.core.canSend() {
			l.list()
		}
		return item{}, false, true
	case l.fence != nil:
		it = item{log: l, batch: Batch{Bytes: l.fence}, fence: true}
		l.fence = nil
		l.unanswered++
		return it, false, true
	case !l.core.canSend():
		return item{}, false, true
	case l.conn != conn || l.client.cfg.Now().Sub(l.proven) > l.client.cfg.Idle:
		l.core.markStale()
		l.perform()
		return item{}, false, true
	}
	if l.client.cfg.Now().Sub(l.proven) > restAfter {
		l.core.rest()
	}
	if len(l.core.peekSend().Bytes) > room {
		l.listed = true
		return item{}, false, false
	}
	b, ok := l.core.nextSend()
	if !ok {
		l.perform()
		return item{}, false, true
	}
	l.unanswered++
	l.listed = l.core.canSend()
	return item{log: l, batch: b}, l.listed, true
}

// stamp makes the header that of the next sequence. It takes time for the checksum, so it is done without the lock; the
// batch is in flight already, which nobody else touches.
func (l *Log) stamp(b Batch) {
	recordbatch.Stamp(b.Bytes, l.p.ProducerID, l.p.Epoch, recordbatch.Sequence(b.Base))
}

// answer tells what became of an item.
func (l *Log) answer(it item, o outcome) {
	l.mu.Lock()
	l.unanswered--
	if l.closed {
		l.settled.Broadcast()
		l.mu.Unlock()
		return
	}
	if it.fence {
		l.core.fenceResult(o)
	} else {
		l.countCheck(it, o)
		l.core.result(it.batch.Base, o)
		if o.kind == appended {
			l.proven = l.client.cfg.Now()
		}
	}
	l.perform()
	l.mu.Unlock()
	l.dispatch()
}

func (l *Log) countCheck(it item, o outcome) {
	switch {
	case o.kind != appended:
	case o.base == it.batch.Base:
		l.client.cfg.Metrics.checksOK.Inc()
	default:
		l.client.cfg.Metrics.checksMismatch.Inc()
	}
}

// unreachable: the writer could not connect to the broker, so that nothing was sent.
func (l *Log) unreachable(w *writer, err error) {
	l.step(func(c *core) {
		l.listed = false
		if l.w != w {
			if l.fence != nil {
				l.list()
			}
			return // maybeList, in perform, does the rest
		}
		if l.fence != nil {
			l.fence = nil
			c.fenceResult(outcome{kind: doubtful, err: err})
			return
		}
		c.unreachable(err)
	})
}
