package harness

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// leastPatience is how long anything is waited for at least. A deadline is there to end a hang: machines stall, brokers elect
// leaders and wait for disks, clients pause for seconds between their tries.
const leastPatience = 4 * time.Minute

// Eventually asks until condition returns nil, and fails the test with its last error after the patience (leastPatience, if
// that is longer) is used up.
func Eventually(t testing.TB, patience time.Duration, what string, condition func(ctx context.Context) error) {
	t.Helper()
	patience = max(patience, leastPatience)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	var last error
	for {
		err := condition(ctx)
		if err == nil {
			return
		}
		if last == nil || ctx.Err() == nil { // what went wrong, not that the time was over
			last = err
		}
		select {
		case <-ctx.Done():
			if t.Failed() { // test/strict forgives a wait that ran out, but not what failed before
				t.Fatalf("%s: not in %v either: %v", what, patience, last)
			}
			t.Fatalf("%s: not within %v: %v", what, patience, last)
		case <-ticker.C:
		}
	}
}

var seedFlag = flag.Int64("seed", 0, "seed of random tests; 0 picks one, which is logged")

// Random is a source of random numbers whose seed is logged, so that a failure can be tried again with -seed.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Int64N(1 << 40)
	}
	t.Logf("random numbers of this test: -seed %d", seed)
	return rand.New(rand.NewPCG(uint64(seed), 0))
}

// Message shows an optional error message.
func Message(s *string) string {
	if s == nil {
		return "(no message)"
	}
	return fmt.Sprintf("%q", *s)
}
