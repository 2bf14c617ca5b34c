package replication

import (
	"context"
	"sync"
	"time"
)

// throttle bounds how many bytes per second the fetchers of a mirror bring in together
// (mirror.replication.throttled.rate). What an answer brought is owed, and nothing more is asked for until it is paid at
// that rate. So no answer has to be foreseen, the rate is exact over any time that is long against one fetch, and the
// fetchers of a mirror that waits hold none of the budget that others need.
type throttle struct {
	mu      sync.Mutex
	rate    int64         // bytes per second, 0 = no limit
	paid    time.Time     // when all that is owed will be paid
	changed chan struct{} // closed when the rate changes
}

const (
	// throttleCredit is how long a time without much to fetch counts, and throttleStep how much of a second's bytes one
	// fetch may bring, as far as batches allow: so the bytes come evenly.
	throttleCredit = 250 * time.Millisecond
	throttleStep   = 4
	// leastThrottled is the least that a fetch asks for, however low the rate.
	leastThrottled = 1 << 10
)

func newThrottle(rate int64) *throttle {
	return &throttle{rate: rate, changed: make(chan struct{})}
}

// set changes the rate at once; what is owed is paid at the new one.
func (t *throttle) set(rate int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rate == t.rate {
		return
	}
	owed := float64(0)
	if left := time.Until(t.paid); left > 0 {
		owed = left.Seconds() * float64(t.rate)
	}
	t.rate, t.paid = rate, time.Now()
	t.owe(owed)
	close(t.changed)
	t.changed = make(chan struct{})
}

// owe. REQUIRES: t.mu.
func (t *throttle) owe(bytes float64) {
	if t.rate > 0 {
		t.paid = t.paid.Add(time.Duration(bytes / float64(t.rate) * float64(time.Second)))
	}
}

// limit bounds what a fetch asks for.
func (t *throttle) limit(ask int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rate == 0 {
		return ask
	}
	return min(ask, max(t.rate/throttleStep, leastThrottled))
}

// took takes the bytes of an answer to a fetch that was sent at asked.
func (t *throttle) took(bytes int64, asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if credit := time.Now().Add(-throttleCredit); asked.Before(credit) {
		asked = credit
	}
	if t.paid.Before(asked) {
		t.paid = asked
	}
	t.owe(float64(bytes))
}

// wait returns when something may be fetched, or ctx ends. It returns how long that took.
func (t *throttle) wait(ctx context.Context) (waited time.Duration) {
	began := time.Time{}
	for {
		left, changed := t.left()
		switch {
		case left <= 0 && began.IsZero():
			return 0
		case left <= 0 || ctx.Err() != nil:
			return time.Since(began)
		case began.IsZero():
			began = time.Now()
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// left is how long it takes until all is paid.
func (t *throttle) left() (time.Duration, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Until(t.paid), t.changed
}

// holds returns the rate while it is what holds the mirror up, else 0.
func (t *throttle) holds() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Until(t.paid) <= 0 {
		return 0
	}
	return t.rate
}
