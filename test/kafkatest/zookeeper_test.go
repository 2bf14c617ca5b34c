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
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
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
			ends, err := kadm.NewClient(c).ListEndOffsets(ctx, "kept")
			if end, ok := ends.Lookup("kept", 0); err != nil || !ok || end.Offset != 1 {
				t.Fatalf("after a restart the log ends at %v, %v", end, err)
			}
		})
	}
}
