//go:build clients

package clients

import (
	"context"
	"testing"
	"time"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// movingTopic makes a topic whose first partition moves, and waits for its leaders.
func movingTopic(t *testing.T, bootstrap, name string, partitions int32) string {
	t.Helper()
	name += "-" + leaderCheck
	admin := harness.Admin(t, bootstrap)
	_, err := admin.CreateTopic(t.Context(), partitions, 1, nil, name)
	must(t, err)
	harness.Eventually(t, time.Minute, name+" has leaders", func(ctx context.Context) error {
		_, err := harness.Ends(ctx, admin, name)
		return err
	})
	return name
}

// report fails the test if no leader moved.
func (l *leaders) report(t *testing.T) {
	t.Helper()
	if n := l.total(); n == 0 {
		t.Error("no leader moved")
	} else {
		t.Logf("leaders moved %d times", n)
	}
}
