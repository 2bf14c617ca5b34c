package replication

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience ends a test that hangs. It is for nothing else: a machine that stands still for some seconds must not fail a test.
const patience = 3 * time.Minute

// waitFor polls for a condition that another goroutine brings about, and that lasts until the test goes on.
func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, patience, time.Millisecond)
}
