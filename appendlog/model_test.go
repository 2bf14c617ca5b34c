package appendlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// This file runs several cores against a model of a broker and a network that do everything to them that real ones can,
// for many thousand random schedules, and checks after every step that the log is right.

// modelBatch is a batch in the model's log. want is the offset that it was meant for, -1 for what clients write.
type modelBatch struct {
	base, n, want int64
	pid           int64
	epoch         int16
	seq           int32
}

func (b modelBatch) next() int64 { return b.base + b.n }

func (b modelBatch) header() recordbatch.Header {
	return recordbatch.Header{
		Magic: 2, BaseOffset: b.base, LastOffsetDelta: int32(b.n - 1), NumRecords: int32(b.n),
		ProducerID: b.pid, ProducerEpoch: b.epoch, BaseSequence: b.seq,
	}
}

type modelProducer struct {
	epoch int16
	last  []modelBatch // 5 at most, the newest last
}

// modelBroker is the leader of a partition, with the rules of Kafka's ProducerStateManager as measured.
type modelBroker struct {
	start, hw int64
	log       []modelBatch
	producers map[int64]*modelProducer
}

func (b *modelBroker) end() int64 {
	if len(b.log) == 0 {
		return b.start
	}
	return b.log[len(b.log)-1].next()
}

// append returns the base offset, or an error code.
func (b *modelBroker) append(m modelBatch) (int64, *kerr.Error) {
	p := b.producers[m.pid]
	switch {
	case p == nil:
		p = &modelProducer{epoch: m.epoch}
	case m.epoch < p.epoch:
		return -1, kerr.InvalidProducerEpoch
	case m.epoch > p.epoch:
		if m.seq != 0 {
			return -1, kerr.OutOfOrderSequenceNumber
		}
		p = &modelProducer{epoch: m.epoch}
	default:
		for _, old := range p.last {
			if old.seq == m.seq && old.n == m.n {
				return old.base, nil
			}
		}
		newest := p.last[len(p.last)-1]
		if m.seq != recordbatch.Sequence(int64(newest.seq)+newest.n) {
			return -1, kerr.OutOfOrderSequenceNumber
		}
	}
	m.base = b.end()
	b.log = append(b.log, m)
	p.last = append(p.last, m)
	if len(p.last) > 5 {
		p.last = p.last[1:]
	}
	b.producers[m.pid] = p
	return m.base, nil
}

// before returns the batch that ends at an offset.
func (b *modelBroker) before(offset int64) (modelBatch, bool) {
	for _, m := range b.log {
		if m.next() == offset {
			return m, true
		}
	}
	return modelBatch{}, false
}

// fenced: the fence is in the log.
func (b *modelBroker) fenced() bool {
	for _, m := range b.log {
		if m.epoch > 0 {
			return true
		}
	}
	return false
}

// truncate is an unclean election: the log loses its tail, and the producer states are made from what is left.
func (b *modelBroker) truncate(batches int) {
	b.log = b.log[:len(b.log)-batches]
	b.hw = min(b.hw, b.end())
	b.producers = map[int64]*modelProducer{}
	kept := b.log
	b.log = nil
	for _, m := range kept {
		p := b.producers[m.pid]
		if p == nil || p.epoch < m.epoch {
			p = &modelProducer{epoch: m.epoch}
			b.producers[m.pid] = p
		}
		if p.last = append(p.last, m); len(p.last) > 5 {
			p.last = p.last[1:]
		}
		b.log = append(b.log, m)
	}
}

// tail is what a reading finds, or nil if nothing can be proved now.
func (b *modelBroker) tail(p Partition, deep bool) *tail {
	t := &tail{end: b.hw}
	for i := len(b.log) - 1; i >= 0; i-- {
		m := b.log[i]
		if m.next() > b.hw {
			continue
		}
		if m.next() < b.hw {
			break
		}
		t.verdict = judgeBatch(m.header(), p, nil)
		t.offset, t.producerID = m.base, m.pid
		break
	}
	producer := b.producers[p.ProducerID]
	if t.verdict == tailForeign && producer != nil && producer.epoch > p.Epoch {
		t.verdict, t.offset = tailFence, -1
	}
	if deep && t.verdict <= tailOurs {
		t.deep = true
		if producer != nil {
			newest := producer.last[len(producer.last)-1]
			t.lastKnown, t.last = true, recordbatch.Sequence(int64(newest.seq)+newest.n-1)
		}
	}
	return t
}

// modelRequest is on its way to the broker or back.
type modelRequest struct {
	batch     modelBatch
	fence     bool
	bulk      bool
	processed bool
	base      int64
	err       *kerr.Error
}

// gateway is a core with its engine and its connection.
type gateway struct {
	c       core
	goal    int64 // copies up to there
	next    int64 // -1: not ready
	conn    []*modelRequest
	reading bool
	deep    bool
	waiting bool
	fencing bool // the fence is to be sent
	// confirming is the offset of the fence before which is to be read, or -1.
	confirming int64
	stale      bool
	fenced     bool
	failed     error
}

type world struct {
	t         *testing.T
	r         *rand.Rand
	broker    modelBroker
	gateways  []*gateway
	zombies   [][]*modelRequest // connections that are gone, whose requests the broker may still find
	foreign   int64             // offset of the first foreign write, -1
	fenceAt   int64             // offset of the fence, -1
	fenceTold bool              // somebody may write now
	trueEnd   bool              // gateways see the true end, as Kafka tells it since 2.3
	oldData   bool              // the broker forgets the producer at any time
	lanes     bool              // every other 20 offsets are Bulk
	merges    bool              // gateways merge what waits
	most      int64             // the broker takes no batch of more records; 0: any
	trace     []string
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) fatal(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.trace[max(0, len(w.trace)-60):] {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

// perform carries out the effects of a core.
func (w *world) perform(i int) {
	g := w.gateways[i]
	for _, e := range g.c.effects {
		w.note("  gateway %d: %s", i, effectString(e))
		switch e.kind {
		case callReady:
			g.next = e.offset
		case callAcked:
			if w.foreign >= 0 && e.offset > w.foreign {
				w.fatal("gateway %d has %d acknowledged, though a stranger wrote at %d", i, e.offset, w.foreign)
			}
		case callDoubt:
			g.next = -1
		case callFenced:
			g.next, g.fenced = -1, true
		case callFailed:
			g.next, g.failed = -1, e.err
		case doRead:
			g.reading, g.deep = true, e.deep
		case doWait:
			g.waiting = true
		case doFence:
			g.fencing = true
		case doConfirm:
			g.confirming = e.offset
		case fenceDone:
			if e.err == nil && e.offset >= 0 {
				if w.fenceAt >= 0 && w.fenceAt != e.offset {
					w.fatal("gateway %d: fence at %d, but it was at %d", i, e.offset, w.fenceAt)
				}
				w.fenceAt, w.fenceTold = e.offset, true
				if m, ok := w.broker.before(e.offset); ok && g.c.fenceWanted && m.want != m.base && g.failed == nil {
					w.fatal("gateway %d says nothing of the batch for %d at %d before the fence", i, m.want, m.base)
				}
			}
		}
	}
	g.c.effects = g.c.effects[:0]
}

// process lets the broker take the oldest unprocessed request of a connection.
func (w *world) process(conn []*modelRequest) bool {
	for _, q := range conn {
		if q.processed {
			continue
		}
		if q.base, q.err = -1, kerr.MessageTooLarge; w.most == 0 || q.batch.n <= w.most {
			q.base, q.err = w.broker.append(q.batch)
		}
		q.processed = true
		w.note("  broker: %+v -> %d %v", q.batch, q.base, q.err)
		w.check()
		return true
	}
	return false
}

// check: every batch of ours stands at the offset it was meant for, unless somebody wrote in between, and nothing of the
// old epoch stands behind the fence.
func (w *world) check() {
	next := w.broker.start
	fence := int64(-1)
	for _, m := range w.broker.log {
		if m.base != next {
			w.fatal("log has a hole before %d", m.base)
		}
		next = m.next()
		if m.pid == modelPID && m.epoch == 1 {
			if fence >= 0 {
				w.fatal("second fence at %d", m.base)
			}
			fence = m.base
		} else if m.pid == modelPID {
			if fence >= 0 {
				w.fatal("batch of the old epoch at %d behind the fence at %d", m.base, fence)
			}
			if m.base != m.want && (w.foreign < 0 || m.base < w.foreign) {
				w.fatal("batch for %d is at %d", m.want, m.base)
			}
		}
	}
}

const modelPID = 7

// step does one random thing.
func (w *world) step(gentle bool) {
	i := w.r.IntN(len(w.gateways))
	g := w.gateways[i]
	switch n := w.r.IntN(100); {
	case n < 25: // the engine appends
		if g.next >= 0 && g.next < g.goal && g.c.queue.len() < 10 {
			to := min(g.next+1+w.r.Int64N(6), g.goal)
			if err := g.c.append(Batch{Base: g.next, Next: to, Bulk: w.lanes && g.next/20%2 == 1}); err == nil {
				g.next = to
			} else if !errors.Is(err, ErrNotReady) && !errors.Is(err, ErrFenced) {
				w.fatal("gateway %d: append at %d: %v", i, g.next, err)
			}
		}
	case n < 45: // the writer sends
		w.send(i)
	case n < 60:
		w.process(g.conn)
	case n < 75: // an answer arrives; acks=all waits for the high watermark
		w.deliver(i)
	case n < 82:
		w.read(i)
	case n < 87:
		if g.waiting {
			g.waiting = false
			g.c.wake()
		}
	case n < 92: // replicas follow
		w.followers()
	case gentle:
	case n < 95: // the connection is cut
		w.cut(i)
	case n < 97:
		if len(w.zombies) > 0 {
			w.process(w.zombies[w.r.IntN(len(w.zombies))])
		}
	case n < 98:
		w.idleHour()
	case n < 99:
		w.uncleanElection()
	}
	w.perform(i)
	if w.oldData && w.r.IntN(20) == 0 {
		w.note("the broker forgets the producer")
		w.broker.producers = map[int64]*modelProducer{}
	}
}

func (w *world) send(i int) {
	g := w.gateways[i]
	if g.fencing {
		g.fencing = false
		g.conn = append(g.conn, &modelRequest{fence: true, batch: modelBatch{n: 1, want: -1, pid: modelPID, epoch: 1}})
		return
	}
	if !g.c.canSend() {
		return
	}
	if g.stale && g.c.sent == 0 {
		g.stale = false
		g.c.markStale()
		return
	}
	if g.stale {
		return
	}
	w.merge(g)
	if b, ok := g.c.nextSend(); ok {
		for _, q := range g.conn {
			if q.bulk != b.Bulk {
				w.fatal("gateway %d sends %d in one lane while %d is in flight in the other", i, b.Base, q.batch.want)
			}
		}
		g.conn = append(g.conn, &modelRequest{bulk: b.Bulk, batch: modelBatch{
			n: b.Next - b.Base, want: b.Base, pid: modelPID, seq: recordbatch.Sequence(b.Base),
		}})
		w.note("gateway %d sends %d..%d", i, b.Base, b.Next-1)
	}
}

// merge makes one of a random number of batches, more often than a gateway would. No two gateways draw the same borders.
func (w *world) merge(g *gateway) {
	run := g.c.mergeable(nil, 1<<20)
	if !w.merges || len(run) == 0 || run[0].Base < g.c.plainUntil || w.r.IntN(3) == 0 {
		return
	}
	run = run[:2+w.r.IntN(len(run)-1)]
	g.c.merge(run, nil)
	w.note("gateway merges %d..%d", run[0].Base, run[len(run)-1].Next-1)
}

func (w *world) deliver(i int) {
	g := w.gateways[i]
	if len(g.conn) == 0 || !g.conn[0].processed {
		return
	}
	q := g.conn[0]
	if q.err == nil && q.base+q.batch.n > w.broker.hw {
		if w.r.IntN(10) > 0 {
			return
		}
		q.err = kerr.RequestTimedOut
	}
	g.conn = g.conn[1:]
	w.answer(g, q)
}

func (w *world) answer(g *gateway, q *modelRequest) {
	o := outcome{kind: appended, base: q.base}
	if q.err != nil {
		o = judgeCode(q.err.Code, nil, g.c.p, q.batch.want, 1)
	}
	if q.fence {
		g.c.fenceResult(o)
		return
	}
	g.c.result(q.batch.want, o)
}

func (w *world) read(i int) {
	g := w.gateways[i]
	if g.confirming >= 0 {
		w.confirm(g)
	}
	if !g.reading {
		return
	}
	g.reading = false
	if w.r.IntN(10) == 0 || w.trueEnd && w.broker.hw < w.broker.end() {
		g.c.readFailed(errTrails)
		return
	}
	g.stale = false
	g.c.endRead(*w.broker.tail(g.c.p, g.deep))
}

func (w *world) confirm(g *gateway) {
	fence := g.confirming
	g.confirming = -1
	m, ok := w.broker.before(fence)
	switch {
	case w.r.IntN(10) == 0 || w.broker.hw < fence:
		g.c.readFailed(errTrails)
	case !ok:
		g.c.fenceConfirmed(tail{end: fence})
	default:
		g.c.fenceConfirmed(tail{end: fence, verdict: judgeBatch(m.header(), g.c.p, nil), offset: m.base, producerID: m.pid})
	}
}

func (w *world) followers() {
	for _, m := range w.broker.log {
		if m.next() > w.broker.hw {
			w.broker.hw = m.next()
			if w.r.IntN(2) == 0 {
				return
			}
		}
	}
}

// cut ends a connection. What was not processed yet may be processed later all the same.
func (w *world) cut(i int) {
	g := w.gateways[i]
	w.note("connection of gateway %d is cut", i)
	conn := g.conn
	g.conn, g.stale = nil, true
	if !w.oldData && w.r.IntN(2) == 0 {
		zombie := make([]*modelRequest, 0, len(conn))
		for _, q := range conn {
			if !q.processed {
				copied := *q
				zombie = append(zombie, &copied)
			}
		}
		w.zombies = append(w.zombies, zombie)
	}
	for _, q := range conn {
		q.err = kerr.NetworkException
		w.answer(g, q)
		w.perform(i)
	}
	g.c.markStale() // if it has nothing in flight: Client.connectionLost
	w.perform(i)
}

// idleHour: nothing happens for so long that the broker forgets all producers. Connections have nothing on them.
func (w *world) idleHour() {
	if w.broker.fenced() {
		return // that fences are forgotten is what the engine's rule of 30 s is for
	}
	for _, g := range w.gateways {
		if len(g.conn) > 0 || g.c.sent > 0 || g.reading || g.fencing {
			return
		}
	}
	w.note("an idle day")
	w.zombies = nil
	w.broker.hw = w.broker.end()
	w.broker.producers = map[int64]*modelProducer{}
	for _, g := range w.gateways {
		g.stale = true
	}
}

// uncleanElection: the new leader lacks the tail. Every connection to the old one ends.
func (w *world) uncleanElection() {
	if w.broker.fenced() || w.foreign >= 0 || len(w.broker.log) == 0 {
		return
	}
	w.zombies = nil
	for i, g := range w.gateways {
		w.cut(i)
		if g.reading {
			g.reading = false
			g.c.readFailed(kerr.NotLeaderForPartition)
			w.perform(i)
		}
	}
	w.zombies = nil
	lost := w.r.IntN(min(len(w.broker.log), 8)) // never all: a leader that lost everything forgets the producer
	w.note("unclean election, %d batches lost", lost)
	w.broker.truncate(lost)
}

func newWorld(t *testing.T, seed uint64, gateways int) *world {
	r := rand.New(rand.NewPCG(seed, 2))
	start := []int64{0, 1<<31 - 40, 3 << 31}[r.IntN(3)]
	w := &world{t: t, r: r, foreign: -1, fenceAt: -1, broker: modelBroker{start: start, hw: start, producers: map[int64]*modelProducer{}}}
	w.lanes, w.merges = seed%2 == 1, seed%4 > 1
	if seed%8 > 5 {
		w.most = 8 // a batch that is appended has 6 at most
	}
	for range gateways {
		g := &gateway{c: newCore(Partition{Topic: "t", ProducerID: modelPID}, 5), goal: start + 150, next: -1, confirming: -1}
		w.gateways = append(w.gateways, g)
		g.c.start()
		w.perform(len(w.gateways) - 1)
	}
	return w
}

const modelSeeds = 3000

func forSeeds(t *testing.T, run func(t *testing.T, seed uint64)) {
	n := uint64(modelSeeds)
	if testing.Short() {
		n /= 10
	}
	for seed := range n {
		run(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestModelCopy: up to three gateways, one log, every fault but foreign writes: the log is never wrong, no gateway ever
// fails, and once the faults end the copy is complete.
func TestModelCopy(t *testing.T) {
	forSeeds(t, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed, 1+int(seed%3))
		for range 2000 {
			w.step(false)
		}
		for range 50_000 {
			w.step(true)
			if w.broker.hw >= w.gateways[0].goal {
				break
			}
		}
		for i, g := range w.gateways {
			if g.failed != nil || g.fenced {
				w.fatal("seed %d: gateway %d: failed %v, fenced %v", seed, i, g.failed, g.fenced)
			}
		}
		if w.broker.hw != w.gateways[0].goal {
			w.fatal("seed %d: log ends at %d, not %d", seed, w.broker.hw, w.gateways[0].goal)
		}
	})
}

// TestModelOldData: one gateway copies data older than a day, so that the broker forgets the producer again and again.
// Sequences then protect from nothing; reading the true end, and sending nothing before it is replicated, does.
func TestModelOldData(t *testing.T) {
	forSeeds(t, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed, 1)
		w.trueEnd, w.oldData = true, true
		w.most = 0 // see the residual cases in doc.go
		for range 4000 {
			w.step(false)
		}
		for range 50_000 {
			w.step(true)
			if w.broker.hw >= w.gateways[0].goal {
				break
			}
		}
		if g := w.gateways[0]; g.failed != nil || w.broker.hw != g.goal {
			w.fatal("seed %d: failed %v, log ends at %d, not %d", seed, g.failed, w.broker.hw, g.goal)
		}
	})
}

// TestModelForeignWrite: somebody writes once. From then on no gateway acknowledges anything, and each one that goes on
// fails, naming that offset or a later one.
func TestModelForeignWrite(t *testing.T) {
	forSeeds(t, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed, 1+int(seed%2))
		for range 100 + w.r.IntN(1500) {
			w.step(false)
		}
		w.foreign, _ = w.broker.append(modelBatch{n: 1, want: -1, pid: 99})
		w.note("stranger writes at %d", w.foreign)
		for _, g := range w.gateways {
			g.goal += 20
		}
		for range 20_000 {
			w.step(true)
		}
		for i, g := range w.gateways {
			var fw *ForeignWriteError
			var se *SequenceError
			switch {
			case errors.As(g.failed, &fw) && fw.Offset >= w.foreign:
			case errors.As(g.failed, &se) && se.Offset >= w.foreign:
			default:
				w.fatal("seed %d: gateway %d: %v, state %v, stranger at %d", seed, i, g.failed, g.c.state, w.foreign)
			}
		}
	})
}

// TestModelFence: one gateway fences while others write. Once it knows, clients write; nobody else does any more.
func TestModelFence(t *testing.T) {
	forSeeds(t, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed, 2+int(seed%2))
		for range w.r.IntN(1500) {
			w.step(false)
		}
		w.gateways[0].c.fence()
		w.perform(0)
		written := false
		for range 5000 {
			w.step(false)
			if w.fenceTold && w.r.IntN(20) == 0 {
				_, _ = w.broker.append(modelBatch{n: 1, want: -1, pid: 99, seq: recordbatch.Sequence(w.broker.end())})
				delete(w.broker.producers, 99)
				written = true
			}
		}
		for range 20_000 {
			w.step(true)
		}
		if !w.fenceTold {
			w.fatal("seed %d: no fence; state %v", seed, w.gateways[0].c.state)
		}
		for i, g := range w.gateways {
			if !g.fenced && (written || i == 0) {
				w.fatal("seed %d: gateway %d is %v, failed %v", seed, i, g.c.state, g.failed)
			}
			if g.failed != nil {
				w.fatal("seed %d: gateway %d failed: %v", seed, i, g.failed)
			}
		}
	})
}

// TestModelWriteBeforeFence: somebody writes between the last look at the log's end and the fence. Nothing comes behind the
// fence that would show it, and still it is told, whatever gets lost on the way.
func TestModelWriteBeforeFence(t *testing.T) {
	told := 0
	forSeeds(t, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed, 1+int(seed%2))
		for range w.r.IntN(500) {
			w.step(false)
		}
		w.gateways[0].c.fence()
		w.perform(0)
		for range 20_000 {
			w.step(true)
			if w.foreign < 0 && w.gateways[0].c.state == fencing && !w.broker.fenced() {
				w.foreign, _ = w.broker.append(modelBatch{n: 1, want: -1, pid: 99})
				w.note("stranger writes at %d", w.foreign)
			}
		}
		switch g := w.gateways[0]; {
		case !w.fenceTold:
			w.fatal("seed %d: no fence; state %v", seed, g.c.state)
		case w.foreign >= 0 && w.foreign < w.fenceAt:
			told++ // see perform: else it would have ended there
		}
	})
	if !t.Failed() && told < 100 {
		t.Fatalf("only %d strangers wrote before a fence", told)
	}
}
