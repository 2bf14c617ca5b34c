package mirror

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// patience ends a test that hangs. It is for nothing else: a machine that stands still for some seconds must not fail a test.
const patience = 3 * time.Minute

// requireNoLeaks waits until there are no goroutines but those of opts. Connections and their readers end some moments after
// the Close that ends them.
func requireNoLeaks(t *testing.T, opts ...goleak.Option) {
	t.Helper()
	err := goleak.Find(opts...)
	for began := time.Now(); err != nil && time.Since(began) < patience/3; err = goleak.Find(opts...) {
	}
	require.NoError(t, err)
}
