package store

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// TestRealKafka repeats on real brokers what a fake may get wrong: sequences, the log cleaner, a broker's death.
func TestRealKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("real Kafka is not for -short")
	}
	c := kafkatest.Start(t, kafkatest.Options{})
	addresses := []string{c.Bootstrap()}
	t.Run("race", func(t *testing.T) { testRace(t, kafkaWorld(t, addresses), 200) })
	t.Run("foreign", func(t *testing.T) { testForeign(t, kafkaWorld(t, addresses)) })
	t.Run("cleaner", func(t *testing.T) { testCleaner(t, kafkaWorld(t, addresses), addresses) })
	t.Run("kill", func(t *testing.T) { testBrokerDies(t, kafkaWorld(t, addresses), c) })
}

// testCleaner has the log cleaner go over a state topic with foreign records, deleted keys and many versions.
func testCleaner(t *testing.T, w world, addresses []string) {
	ctx, s := within(t), w.open(t, Config{})
	client, err := kgo.NewClient(kgo.SeedBrokers(addresses...))
	require.NoError(t, err)
	defer client.Close()
	adm := kadm.NewClient(client)
	quick := []kadm.AlterConfig{}
	for k, v := range map[string]string{"segment.ms": "200", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0", "min.compaction.lag.ms": "0"} {
		quick = append(quick, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: kmsg.StringPtr(v)})
	}
	_, err = adm.AlterTopicConfigs(ctx, quick, s.topic)
	require.NoError(t, err)

	n := PartitionKey("m", "t", 0).StatePartition()
	require.NoError(t, s.UpdateMirror(ctx, "gone", func(*Mirror) (*Mirror, error) { return &Mirror{Name: "gone"}, nil }))
	require.NoError(t, s.UpdateMirror(ctx, "gone", func(*Mirror) (*Mirror, error) { return nil, nil }))
	for range 50 {
		require.NoError(t, s.UpdatePartition(ctx, "m", "t", 0, increment))
	}
	w.strange(t, n, "k", "v")
	// Writing on rolls segments; the cleaner has been when less can be read than was written.
	want := int64(50)
	for cleaned := false; !cleaned; {
		require.NoError(t, sleep(ctx, 300*time.Millisecond))
		require.NoError(t, s.UpdatePartition(ctx, "m", "t", 0, increment))
		want++
		cleaned = count(ctx, t, client, s.topic, n) < int(want)/2
	}
	require.NoError(t, s.UpdatePartition(ctx, "m", "t", 0, increment))
	fresh := w.open(t, Config{})
	require.EqualValues(t, want+1, lastMirrored(t, fresh))
	require.Empty(t, fresh.Mirrors())
	require.NoError(t, fresh.UpdatePartition(ctx, "m", "t", 0, increment))
	require.NoError(t, s.UpdatePartition(ctx, "m", "t", 0, increment))
	require.EqualValues(t, want+3, lastMirrored(t, s))
}

// count returns how many records a state partition still has.
func count(ctx context.Context, t *testing.T, client *kgo.Client, topic string, n int32) int {
	k := kgo.NewOffset().At(0)
	reader, err := kgo.NewClient(append(client.Opts(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {n: k}}))...)
	require.NoError(t, err)
	defer reader.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	require.NoError(t, err)
	end, _ := ends.Lookup(topic, n)
	total := 0
	for last := int64(-1); last < end.Offset-1; {
		fetches := reader.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { total++; last = r.Offset })
	}
	return total
}

// testBrokerDies kills the broker while two gateways write: every update that succeeded is there, none twice.
func testBrokerDies(t *testing.T, w world, c *kafkatest.Cluster) {
	ctx := within(t)
	stores := []*Store{w.open(t, Config{}), w.open(t, Config{})}
	var wg sync.WaitGroup
	half := make(chan struct{}, 2)
	for _, s := range stores {
		wg.Go(func() {
			for i := range 100 {
				if i == 30 {
					half <- struct{}{}
				}
				if err := s.UpdatePartition(ctx, "m", "t", 0, increment); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	<-half
	c.Kill(1)
	require.NoError(t, c.Restart(ctx, 1))
	wg.Wait()
	require.EqualValues(t, 200, lastMirrored(t, w.open(t, Config{})))
}
