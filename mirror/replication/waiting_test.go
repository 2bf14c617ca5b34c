package replication

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// patience ends a test that hangs. It is for nothing else: a machine that stands still for some seconds must not fail a test.
const patience = 3 * time.Minute

// waitFor polls for a condition that another goroutine brings about, and that lasts until the test goes on.
func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, patience, time.Millisecond)
}

// requireNoLeaks waits until there are no goroutines but those of opts. Connections and their readers end some moments after
// the Close that ends them.
func requireNoLeaks(t *testing.T, opts ...goleak.Option) {
	t.Helper()
	err := goleak.Find(opts...)
	for began := time.Now(); err != nil && time.Since(began) < patience/3; err = goleak.Find(opts...) {
	}
	require.NoError(t, err)
}
