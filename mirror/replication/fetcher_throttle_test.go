package replication

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// pull has fetchers bring in as much as they may, until ctx ends; took is how long a fetch takes.
func pull(ctx context.Context, wg *sync.WaitGroup, th *throttle, took time.Duration, total, fetches *atomic.Int64) {
	r := rand.New(rand.NewPCG(1, 2))
	wg.Go(func() {
		for ctx.Err() == nil {
			th.wait(ctx)
			ask, asked := th.limit(10<<20), time.Now()
			time.Sleep(took)
			n := max(1000, ask-r.Int64N(ask/2)) // batches have their own sizes
			total.Add(n)
			fetches.Add(1)
			th.took(n, asked)
		}
	})
}

// TestThrottleIsExact: within 5 %, whatever a fetch takes and however many fetchers there are.
func TestThrottleIsExact(t *testing.T) {
	const seconds = 60 // each fetcher may have a fetch under way at the end, which is a quarter of a second's bytes
	for _, rate := range []int64{100_000, 1_000_000, 50_000_000} {
		for _, took := range []time.Duration{0, 5 * time.Millisecond, 100 * time.Millisecond} {
			for _, fetchers := range []int{1, 4} {
				synctest.Test(t, func(t *testing.T) {
					th := newThrottle(rate)
					ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
					defer cancel()
					var wg sync.WaitGroup
					var total, fetches atomic.Int64
					for range fetchers {
						pull(ctx, &wg, th, took, &total, &fetches)
					}
					wg.Wait()
					require.InEpsilon(t, seconds*rate, total.Load(), 0.05, "rate %d, %v a fetch, %d fetchers", rate, took, fetchers)
					require.Less(t, fetches.Load(), int64(seconds*10*fetchers+20), "no busy loop")
				})
			}
		}
	}
}

// TestThrottleChanges: at once, also while a fetcher waits for what it owes at a rate that was far too low.
func TestThrottleChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(1000)
		th.took(1_000_000, time.Now())
		require.EqualValues(t, 1000, th.holds())
		var waited time.Duration
		done := make(chan struct{})
		go func() { waited = th.wait(t.Context()); close(done) }()
		time.Sleep(100 * time.Second)
		synctest.Wait()
		th.set(90_000) // 900,000 are owed
		<-done
		require.Equal(t, 110*time.Second, waited)

		th.took(1_000_000, time.Now())
		done = make(chan struct{})
		go func() { waited = th.wait(t.Context()); close(done) }()
		synctest.Wait()
		th.set(0)
		<-done
		require.Zero(t, waited)
		require.EqualValues(t, 1<<20, th.limit(1<<20))
		th.took(1<<30, time.Now())
		require.Zero(t, th.holds())

		th.set(1)
		th.took(1000, time.Now())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, time.Second, th.wait(ctx), "it ends with its context")
	})
}

// TestThrottleKeepsNoCredit: a quiet hour is no reason for a burst.
func TestThrottleKeepsNoCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(1_000_000)
		time.Sleep(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		var total, fetches atomic.Int64
		pull(ctx, &wg, th, time.Millisecond, &total, &fetches)
		wg.Wait()
		require.InEpsilon(t, 10_000_000, total.Load(), 0.05)
	})
}

// TestReplicatorIsThrottled: the rate is what comes from the source, neither more nor less, and another one holds at once.
func TestReplicatorIsThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, seconds, records, size = 100_000, 20, 4000, 2000
		x := replicateInBubble(t, func(c *Config) { c.Fetch.ThrottledRate = rate }, kfake.SeedTopics(2, "a"))
		for i := range records {
			require.NoError(t, x.client.ProduceSync(t.Context(), &kgo.Record{Topic: "a", Partition: int32(i % 2), Value: make([]byte, size)}).FirstErr())
		}
		for p := range int32(2) {
			x.Start(x.spec("a", p))
		}
		fetched := func() float64 { return max(0, x.metric("fetch_bytes_total")) }
		waitFor(t, func() bool { return fetched() > 0 })
		for _, r := range []int64{rate, 2 * rate} {
			x.Throttle(r)
			before := fetched()
			time.Sleep(seconds * time.Second) // of the bubble, in which nothing takes time but waiting
			require.InEpsilon(t, float64(seconds*r), fetched()-before, 0.05)
		}
		require.Less(t, fetched(), float64(records*size), "there is something left")
		began := time.Now()
		x.Throttle(0)
		waitFor(t, func() bool { return fetched() > records*size })
		require.Less(t, time.Since(began), time.Second)
	})
}
