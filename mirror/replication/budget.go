package replication

import (
	"context"
	"sync"
)

// Budget bounds bytes over all mirrors of a process. Waiters are served in the order of their arrival, so that nobody
// starves. The zero value is not usable.
type Budget struct {
	mu      sync.Mutex
	total   int64
	used    int64
	waiting []*budgetWaiter
	fillers fillerGate
}

type budgetWaiter struct {
	min, max int64
	granted  int64
	ready    chan struct{}
}

// NewBudget makes a budget of total bytes.
func NewBudget(total int64) *Budget {
	return &Budget{total: max(total, 1), fillers: fillerGate{free: fillersInFlight, heavy: heavyFiller}}
}

// Acquire takes between minimum and maximum bytes, as many as there are, and waits for at least the minimum. A minimum
// above the whole budget is granted when nothing else is in use, so that it delays but never blocks for ever.
func (b *Budget) Acquire(ctx context.Context, minimum, maximum int64) (int64, error) {
	b.mu.Lock()
	w := &budgetWaiter{min: minimum, max: max(minimum, maximum), ready: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.grant()
	b.mu.Unlock()
	select {
	case <-w.ready:
		return w.granted, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.waiting {
		if other == w {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			b.grant() // w may have held up a smaller one
			return 0, ctx.Err()
		}
	}
	return w.granted, nil // granted while ctx ended; the caller sees ctx itself
}

// Force takes n bytes even above the total: for bytes that are in memory already, because a broker sent more than it
// was asked for.
func (b *Budget) Force(n int64) {
	b.mu.Lock()
	b.used += n
	b.mu.Unlock()
}

// Release gives n bytes back.
func (b *Budget) Release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.used < 0 {
		panic("mirror: budget released twice")
	}
	b.grant()
}

// Used returns the bytes in use.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// grant serves waiters from the front. REQUIRES: b.mu.
func (b *Budget) grant() {
	for len(b.waiting) > 0 {
		w := b.waiting[0]
		if b.used > 0 && b.used+w.min > b.total {
			return
		}
		w.granted = min(w.max, max(w.min, b.total-b.used))
		b.used += w.granted
		b.waiting = b.waiting[1:]
		close(w.ready)
	}
}
