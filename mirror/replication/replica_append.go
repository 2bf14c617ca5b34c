package replication

import (
	"errors"
	"math"
	"slices"

	"github.com/mirrorgate/mirrorgate/appendlog"
)

// stale: see staleAfter and heartbeat.
func (p *replica) stale(b *pendingBatch) bool {
	if b.filler {
		return p.r.beats.sleptSince(p.alive) || p.alive.since() > fillerStaleAfter
	}
	return b.asked.since() > staleAfter
}

// flush hands batches to the log as long as it has room for them.
func (p *replica) flush() {
	if len(p.pending) == 0 || p.machine.log != logReady {
		return
	}
	n := 0
	for ; n < len(p.pending); n++ {
		b := &p.pending[n]
		if p.stale(b) {
			p.forgetPending()
			p.r.metrics.slept()
			p.handle(evStale{})
			return
		}
		heavy := p.r.cfg.Budget.fillers.needed(b)
		if heavy && !p.r.cfg.Budget.fillers.enter(p) {
			break
		}
		err := p.dest.Append(b.Batch)
		switch {
		case heavy && err != nil:
			p.r.cfg.Budget.fillers.leave(1)
		case heavy:
			p.fillers = append(p.fillers, b.Next)
		}
		if errors.Is(err, appendlog.ErrFull) {
			break
		}
		if err != nil {
			p.forgetPending()
			p.refused(err)
			return
		}
	}
	if n > 0 {
		p.alive = now()
	}
	if p.pending = slices.Delete(p.pending, 0, n); len(p.pending) == 0 && cap(p.pending) > keptPieces {
		p.pending = nil
	}
}

// refused: errors that the log has reported, or is about to report, by a call of the handler need no event.
func (p *replica) refused(err error) {
	for _, known := range []error{appendlog.ErrNotReady, appendlog.ErrFenced, appendlog.ErrFailed, appendlog.ErrClosed} {
		if errors.Is(err, known) {
			return
		}
	}
	p.handle(fromLog{evAppendRefused{err: err}, p.serial})
}

// forgetPending drops what waits. What is in flight is given up, too.
func (p *replica) forgetPending() {
	p.fillersDone(math.MaxInt64)
	clear(p.pending)
	p.pending = p.pending[:0]
}
