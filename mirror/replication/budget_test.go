package replication

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBudgetGrantsBetweenMinimumAndMaximum(t *testing.T) {
	b := NewBudget(100)
	n, err := b.Acquire(t.Context(), 10, 60)
	require.NoError(t, err)
	require.EqualValues(t, 60, n)
	n, err = b.Acquire(t.Context(), 10, 60)
	require.NoError(t, err)
	require.EqualValues(t, 40, n, "what is left, as it is above the minimum")
	b.Release(100)
	require.Zero(t, b.Used())
}

func TestBudgetServesInOrderAndForgetsTheCancelled(t *testing.T) {
	b := NewBudget(100)
	_, err := b.Acquire(t.Context(), 100, 100)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	big := make(chan error, 1)
	go func() { _, err := b.Acquire(ctx, 90, 90); big <- err }()
	waitFor(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.waiting) == 1 })
	small := make(chan int64, 1)
	go func() { n, _ := b.Acquire(t.Context(), 20, 20); small <- n }()
	waitFor(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return len(b.waiting) == 2 })

	b.Release(50)
	b.mu.Lock()
	require.Len(t, b.waiting, 2, "the small one must not overtake the big one")
	b.mu.Unlock()
	cancel()
	require.ErrorIs(t, <-big, context.Canceled)
	require.EqualValues(t, 20, <-small, "the cancelled one no longer holds it up")
}

// Whoever came first is served first, also when others of the same size would fit as well.
func TestBudgetKeepsTheOrder(t *testing.T) {
	b := NewBudget(100)
	_, err := b.Acquire(t.Context(), 100, 100)
	require.NoError(t, err)
	queue := func() []*budgetWaiter { b.mu.Lock(); defer b.mu.Unlock(); return slices.Clone(b.waiting) }
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() { _, _ = b.Acquire(t.Context(), 10, 10) })
		waitFor(t, func() bool { return len(queue()) == i+1 })
	}
	for came := queue(); len(came) > 0; {
		b.Release(10)
		came = came[1:]
		require.Equal(t, came, queue())
	}
	wg.Wait()
}

func TestBudgetLetsOneTooBigThrough(t *testing.T) {
	b := NewBudget(100)
	n, err := b.Acquire(t.Context(), 500, 500)
	require.NoError(t, err)
	require.EqualValues(t, 500, n)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.Acquire(ctx, 1, 1)
	require.ErrorIs(t, err, context.Canceled)
	require.Panics(t, func() { b.Release(501) })
}
