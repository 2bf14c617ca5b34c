package kafkatest_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// Releases that need ZooKeeper start, and a broker that was killed comes back with its data.
func TestOldReleases(t *testing.T) {
	for _, version := range []string{"2.8.2", kafkatest.OldestVersion} {
		t.Run(version, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			began := time.Now()
			cluster := kafkatest.Start(t, kafkatest.Options{Version: version})
			t.Logf("started in %v", time.Since(began))
			c := client(t, kgo.SeedBrokers(cluster.Bootstrap()))
			if _, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, nil, "kept"); err != nil {
				t.Fatal(err)
			}
			produce(ctx, t, c, "kept", "before")
			cluster.Kill(1)
			if err := cluster.Restart(ctx, 1); err != nil {
				t.Fatal(err)
			}
			if end := endOf(ctx, t, kadm.NewClient(c), "kept"); end != 1 {
				t.Fatalf("after a restart the log ends at %d, want 1", end)
			}
		})
	}
}

// endOf asks where partition 0 of a topic ends, until the broker knows: with ZooKeeper, a broker that starts hears of the other brokers
// before it hears of topics.
func endOf(ctx context.Context, t *testing.T, admin *kadm.Client, topic string) int64 {
	t.Helper()
	for {
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		if end, ok := ends.Lookup(topic, 0); err == nil && ok {
			return end.Offset
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the end of %s is not known: %v", topic, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
