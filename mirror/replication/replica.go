package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/appendlog"
	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// ErrDropped: the partition was dropped, or its Replicator closed, before it was fenced.
var ErrDropped = errors.New("the partition was dropped")

// replica runs one machine: it takes events from everywhere, has the machine decide, and carries out the effects.
//
// Events may come from any goroutine, also from within effects. They queue in inbox; whoever finds no runner becomes
// the runner, and goes on until the queue is empty. So steps and effects are serialised without a goroutine for each
// partition, and no lock is held while an effect calls into a log, a fetcher or the view: those may call back, from
// under their own locks, and only add to the queue. What may block (closing a log, fencing) runs as a task.
type replica struct {
	r    *Replicator
	spec PartitionSpec
	key  cluster.TopicPartition
	log  *zap.Logger

	ctx    context.Context // ends tasks
	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu      sync.Mutex
	calm    sync.Cond // signalled when the runner ends
	inbox   []event
	running bool
	atGate  bool // guarded by the gate's mu
	status  replicaStatus
	heard   instant   // when the source last told or confirmed its marks; guarded by mu
	listens listening // guarded by mu
	rate    rate
	fill    fillProgress
	waiters []chan struct{} // closed when the partition is STOPPED or dropped

	// The rest belongs to the runner.
	machine   *machine
	dest      destinationLog
	serial    int           // of dest
	destEnded chan struct{} // closed when the log before dest is closed; nil if there was none
	pending   []pendingBatch
	fillers   []int64  // ends of the heavy fillers that are in flight
	alive     instant  // when the destination log was last known to be ours
	fetcher   *fetcher // where it is subscribed
	asked     instant  // when it was
	checked   ticket   // of the last check
	epochs    SourceEpochs
	timer     *time.Timer
	fencing   bool // a fence is wanted once the log is open
}

// pendingBatch waits for room in the log's queue.
type pendingBatch struct {
	appendlog.Batch
	asked  instant // when the source was asked; not set for a filler
	filler bool
}

// replicaStatus is a copy of what others may know of the machine.
type replicaStatus struct {
	state        State
	reason       string
	marks        watermarks
	acked        int64
	lastMirrored int64
	mirroring    bool // and the log takes batches
	settled      bool // nothing is in flight
	// filling is the offset up to which the log is being filled from fillFrom, -1 if it is not.
	filling, fillFrom int64
	filled            int64 // offsets of fillers, ever
}

// fetchRoom is the number of fetches of full size that a partition may have in flight: one on its way from the source
// while one is on its way to the destination.
const fetchRoom = 2

func newReplica(r *Replicator, spec PartitionSpec) *replica {
	p := &replica{
		r: r, spec: spec, key: cluster.TopicPartition{Topic: spec.Topic, Partition: spec.Partition},
		log:     r.log.With(zap.String("topic", spec.Topic), zap.Int32("partition", spec.Partition)),
		machine: newMachine(fetchRoom * int64(r.cfg.Fetch.MaxBytes)),
		alive:   now(),
	}
	p.machine.mirrored, p.machine.progress.backlog.keyed = !spec.Fresh, spec.Compacted
	p.machine.knowFloor(spec.SourceStart)
	p.epochs = spec.SourceEpochs.clone()
	p.calm.L = &p.mu
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.status = p.machine.status()
	return p
}

func (s PartitionSpec) same(t PartitionSpec) bool {
	return s.SourceTopicID == t.SourceTopicID && s.DestinationTopicID == t.DestinationTopicID && s.ProducerID == t.ProducerID &&
		slices.Equal(s.PastProducerIDs, t.PastProducerIDs)
}

// handle takes an event. It never blocks on I/O.
func (p *replica) handle(ev event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inbox = append(p.inbox, ev)
	if p.running {
		return
	}
	p.running = true
	for len(p.inbox) > 0 {
		ev := p.inbox[0]
		p.inbox = slices.Delete(p.inbox, 0, 1)
		before, filled, heard := p.status.acked, p.status.filled, p.machine.heard
		p.mu.Unlock()
		p.step(ev)
		status := p.machine.status()
		p.mu.Lock()
		p.status = status
		p.listen(heard)
		p.fill.update(status, time.Now)
		if _, ok := unwrap(ev).(evAcked); ok && before >= 0 && status.acked > before {
			p.rate.add(status.acked-before, time.Now())
			p.r.metrics.acked(status.acked - before)
			p.r.metrics.filled(status.filled - filled)
		}
		p.wakeWaiters()
	}
	p.running = false
	p.calm.Broadcast()
}

func unwrap(ev event) event {
	if l, ok := ev.(fromLog); ok {
		return l.event
	}
	return ev
}

// step runs one event.
func (p *replica) step(ev event) {
	if l, ok := ev.(fromLog); ok {
		if p.dest == nil || l.serial != p.serial {
			return // of a log that was closed
		}
		ev = l.event
	}
	switch ev := ev.(type) {
	case evLogFree:
		p.logFree(ev)
		return
	case evFillerPlace:
		p.flush()
		return
	case evAcked:
		p.fillersDone(ev.next)
	case evLogReady:
		p.forgetPending()
		p.alive = now()
	case evFenced, evLogFailed:
		p.forgetPending()
	case evDoubt: // the log logs it
		p.forgetPending()
		p.r.metrics.doubt()
	case evSourceError:
		p.log.Info("source error", zap.String("error", ev.reason))
	}
	effects := p.machine.step(ev)
	p.noteEpoch()
	for _, e := range effects {
		p.carryOut(e)
	}
	if failed, ok := ev.(evLogFailed); ok {
		p.maybeRaiseLimit(failed)
	}
	if p.machine.state == Unknown {
		p.stopTimer()
	}
	p.flush()
}

func (p *replica) carryOut(e effect) {
	switch e := e.(type) {
	case doOpenLog:
		p.openLog()
	case doResetLog:
		p.closeLog()
		p.openLog()
	case doCloseLog:
		p.closeLog()
		p.r.trims.forget(p)
	case doCheckSource:
		p.check(e)
	case doFetch:
		p.fetch(e)
	case doStopFetch:
		p.stopFetch(e.room)
	case doAppend:
		p.pending = append(p.pending, e.batches...)
	case doNoteStart:
		p.noteStart(e.start)
	case doTellLow:
		p.log.Warn("the source's log starts lower than before: its broker forgot a deletion; the mirror keeps its start",
			zap.Int64("start", e.start), zap.Int64("before", e.floor))
	case doTrim:
		p.r.trims.want(p, e.offset)
	case doTellOvertaken:
		p.log.Warn("retention at the source overtook the mirror: records were deleted before they were copied",
			zap.Int64("from", e.from), zap.Int64("to", e.next-1))
		p.r.metrics.overtaken(e.next - e.from)
	case doRelease:
		e.buffer.release()
	case doRefresh:
		p.r.view.look()
	case doRetry:
		p.retryLater(e)
	case doFence:
		p.r.trims.forget(p)
		p.forgetPending()
		p.fence()
	case doReport:
		p.report(e)
	}
}

func (p *replica) fetch(e doFetch) {
	f := p.r.fetcherFor(p.key, e.broker)
	if f != p.fetcher {
		p.stopFetch(false)
	}
	if p.fetcher, p.asked = f, now(); f != nil {
		f.subscribe(p.key, p, fetchPosition{topicID: p.spec.SourceTopicID, epoch: e.epoch, offset: e.offset, lastEpoch: e.lastEpoch, ticket: p.checked.at(f), gen: e.gen,
			copying: copyOptions{compacted: p.spec.Compacted || p.machine.progress.backlog.keyed, maxBytes: p.spec.MaxBatchBytes}})
	}
}

// noteStart: without somebody who remembers it, it is as good as noted.
func (p *replica) noteStart(start int64) {
	if fn := p.r.cfg.Events.SourceStart; fn != nil {
		fn(p.key.Topic, p.key.Partition, start)
	} else {
		p.handle(evStartNoted{start: start})
	}
}

func (p *replica) stopFetch(hurry bool) {
	if p.fetcher != nil {
		p.fetcher.unsubscribe(p.key, p, hurry)
	}
}

func (p *replica) retryLater(e doRetry) {
	p.stopTimer()
	pause := quickBackoff(e.attempt)
	if e.class == backoffSlow {
		pause = slowBackoff(e.attempt)
	}
	p.tasks.Add(1)
	p.timer = time.AfterFunc(pause, func() {
		defer p.tasks.Done()
		p.handle(evRetry{timer: e.timer})
	})
}

func (p *replica) stopTimer() {
	if p.timer != nil && p.timer.Stop() {
		p.tasks.Done()
	}
	p.timer = nil
}

func (p *replica) report(e doReport) {
	log := p.log.Info
	if e.to == Failed {
		log = p.log.Warn
	}
	log("state", zap.Stringer("from", e.from), zap.Stringer("to", e.to), zap.String("reason", e.reason), zap.Bool("permanent", e.permanent))
	if fn := p.r.cfg.Events.StateChanged; fn != nil {
		fn(StateChange{
			Topic: p.key.Topic, Partition: p.key.Partition, From: e.from, To: e.to,
			Reason: e.reason, Permanent: e.permanent, LastMirrored: e.lastMirrored,
		})
	}
}

// partitionStatus is what DescribeMirrors shows.
func (p *replica) partitionStatus() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.status
	status := Status{
		Partition: p.key.Partition, State: s.state, Reason: s.reason,
		SourceHighWatermark: s.marks.hw, SourceLastStableOffset: s.marks.lso,
		DestinationEnd: s.acked, LastMirrored: s.acked,
		RecordsPerSecond: p.rate.perSecond(time.Now()), SourceAge: p.sourceAge(),
	}
	if s.filling >= 0 {
		status.Reason = p.fill.text(s, time.Now())
		if s.reason != "" {
			status.Reason += "; " + s.reason
		}
	}
	if rate := p.r.fetch.throttle.holds(); rate > 0 && status.Reason == "" && status.State == Mirroring && status.Lag() > 0 {
		status.Reason = fmt.Sprintf("throttled: the mirror fetches %d bytes a second (mirror.replication.throttled.rate)", rate)
	}
	if s.state == Stopped {
		status.LastMirrored, status.DestinationEnd = s.lastMirrored, -1 // clients write to it now
	}
	return status
}

// standing returns the destination's end, whether the partition mirrors, and whether nothing is in flight.
func (p *replica) standing() (acked int64, mirroring, settled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status.acked, p.status.mirroring, p.status.settled
}

// drop ends everything and waits for it.
func (p *replica) drop() {
	p.cancel()
	p.handle(evDrop{})
	p.mu.Lock()
	for p.running {
		p.calm.Wait()
	}
	p.mu.Unlock()
	p.r.view.unwatch(p.key.Topic)
	p.r.trims.forget(p)
	p.tasks.Wait()
}

// awaitStopped waits for the outcome of an evStop.
func (p *replica) awaitStopped(ctx context.Context) (int64, error) {
	done := make(chan struct{})
	p.mu.Lock()
	p.waiters = append(p.waiters, done)
	p.wakeWaiters()
	p.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters = slices.DeleteFunc(p.waiters, func(c chan struct{}) bool { return c == done })
	switch s := p.status; {
	case s.state == Stopped:
		return s.lastMirrored, nil
	case s.state == Unknown:
		return -1, ErrDropped
	case s.reason != "":
		return -1, fmt.Errorf("fencing %s-%d: %w (%s)", p.key.Topic, p.key.Partition, ctx.Err(), s.reason)
	default:
		return -1, fmt.Errorf("fencing %s-%d: %w", p.key.Topic, p.key.Partition, ctx.Err())
	}
}

// wakeWaiters. REQUIRES: p.mu.
func (p *replica) wakeWaiters() {
	if s := p.status.state; s != Stopped && s != Unknown {
		return
	}
	for _, c := range p.waiters {
		close(c)
	}
	p.waiters = nil
}
