package replication

import "sync/atomic"

// fetchBuffer accounts for a fetch response in memory: its bytes go back to the budget when the last partition that
// aliases it has let go. The bytes themselves belong to the garbage collector, as a destination log may still hold
// some of them for a moment after a doubt.
type fetchBuffer struct {
	budget *Budget
	bytes  int64
	refs   atomic.Int32
	below  *fetchBuffer
}

// newFetchBuffer takes over bytes that were taken from the budget, with one reference for the caller.
func newFetchBuffer(budget *Budget, bytes int64) *fetchBuffer {
	b := &fetchBuffer{budget: budget, bytes: bytes}
	b.refs.Store(1)
	return b
}

// on hands over a reference to another buffer, which is released with this one.
func (b *fetchBuffer) on(below *fetchBuffer) *fetchBuffer {
	b.below = below
	return b
}

func (b *fetchBuffer) retain() { b.refs.Add(1) }

func (b *fetchBuffer) release() {
	switch n := b.refs.Add(-1); {
	case n == 0:
		b.budget.Release(b.bytes)
		if b.below != nil {
			b.below.release()
		}
	case n < 0:
		panic("mirror: fetch buffer released too often")
	}
}
