package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// A log start that cannot follow at first: the trouble is shown, the data goes on, and it is tried again. A policy that
// forbids it is changed for a moment.
func TestTrimmerTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var calls []string
		answers := []error{errors.New("NOT_ENOUGH_REPLICAS"), fmt.Errorf("DeleteRecords: %w", kerr.PolicyViolation), fmt.Errorf("DeleteRecords: %w", kerr.PolicyViolation), nil}
		note := func(s string) { mu.Lock(); defer mu.Unlock(); calls = append(calls, s) }
		told := make(chan struct{}) // until then it is not tried again
		trim := func(_ context.Context, offsets map[cluster.TopicPartition]int64) map[cluster.TopicPartition]trimResult {
			results := make(map[cluster.TopicPartition]trimResult)
			for key, offset := range offsets {
				mu.Lock()
				again := len(calls) > 0
				mu.Unlock()
				if again {
					<-told
				}
				note(fmt.Sprintf("delete below %d", offset))
				mu.Lock()
				err := answers[0]
				answers = answers[1:]
				mu.Unlock()
				results[key] = trimResult{start: offset, err: err}
			}
			return results
		}
		x := replicateInBubble(t, func(c *Config) {
			c.trimLogs = trim
			c.Events.AllowDeleteRecords = func(context.Context, string) (func(), error) {
				note("allow")
				return func() { note("done") }, nil
			}
		}, kfake.SeedTopics(1, "a"))
		tell := sync.OnceFunc(func() { close(told) })
		t.Cleanup(tell)
		x.produce("a", 0, 0, 50)
		x.Start(x.spec("a", 0))
		x.awaitEnd("a", 0, 50)
		require.NoError(t, x.source.DeleteRecords("a", 0, 20))
		waitFor(t, func() bool {
			s, _ := x.Status("a", 0)
			return s.State == Mirroring && s.Reason == "the destination's log start cannot follow the source's: NOT_ENOUGH_REPLICAS"
		})
		x.produce("a", 0, 50, 50)
		x.awaitEnd("a", 0, 100)
		tell()
		waitFor(t, func() bool { s, _ := x.Status("a", 0); return s.Reason == "" })
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []string{"delete below 20", "delete below 20", "allow", "delete below 20", "delete below 20", "done"}, calls)
	})
}

func TestDeleteRecords(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(2), kfake.SeedTopics(2, "a", "b"))
	x.produce("a", 0, 0, 10)
	x.produce("b", 1, 0, 10)
	results := deleteRecords(x.client)(t.Context(), map[cluster.TopicPartition]int64{
		{Topic: "a"}: 4, {Topic: "b", Partition: 1}: 11, {Topic: "c"}: 1,
	})
	require.Equal(t, trimResult{start: 4}, results[cluster.TopicPartition{Topic: "a", Partition: 0}])
	require.ErrorIs(t, results[cluster.TopicPartition{Topic: "b", Partition: 1}].err, kerr.OffsetOutOfRange)
	require.Error(t, results[cluster.TopicPartition{Topic: "c", Partition: 0}].err)
}

func TestFillProgress(t *testing.T) {
	var f fillProgress
	began := time.Now()
	s := replicaStatus{filling: 1_000_000_000, acked: 100_000_000}
	f.update(s, func() time.Time { return began })
	require.Equal(t, "10% filled", f.text(s, began))
	s.acked = 430_000_000
	f.update(s, func() time.Time { return began.Add(time.Minute) })
	require.Equal(t, "43% filled, 12.3 M offsets/s, 47s left", f.text(s, began.Add(26830*time.Millisecond)))
	require.Equal(t, "3m", roundDuration(170*time.Second))
	require.Equal(t, "5h", roundDuration(5*time.Hour))
	require.Equal(t, "740 k", short(740_200))
	require.Equal(t, "12", short(12))
}

func TestHeartbeat(t *testing.T) {
	h := newHeartbeat()
	before := now()
	require.False(t, h.sleptSince(before))
	h.last = instant{time.Now().Add(-time.Minute)} // no beat for a minute: asleep, and just awake
	require.True(t, h.sleptSince(before))
	h.beat()
	require.True(t, h.sleptSince(before))
	require.False(t, h.sleptSince(instant{time.Now().Add(time.Millisecond)}))
}

// Heavy fillers of many partitions take turns, and all of them arrive. Others do not wait for them.
func TestFillersTakeTurns(t *testing.T) {
	const partitions = 3 * fillersInFlight
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(partitions, "a"), kfake.SeedTopics(1, "light"))
	x.budget.fillers.heavy = 10
	for p := range int32(partitions) {
		x.dest.hold(cluster.TopicPartition{Topic: "a", Partition: p}, true)
		x.produce("a", p, 0, 10)
		require.NoError(t, x.source.DeleteRecords("a", p, 10))
		x.Start(x.spec("a", p))
	}
	held := func() (n int) {
		for p := range int32(partitions) {
			n += x.dest.queued(cluster.TopicPartition{Topic: "a", Partition: p})
		}
		return n
	}
	waitFor(t, func() bool { return held() == fillersInFlight })
	require.Never(t, func() bool { return held() > fillersInFlight }, 50*time.Millisecond, time.Millisecond)
	x.produce("light", 0, 0, 9)
	require.NoError(t, x.source.DeleteRecords("light", 0, 9))
	x.Start(x.spec("light", 0))
	waitFor(t, func() bool { return x.dest.end(cluster.TopicPartition{Topic: "light", Partition: 0}) == 9 })
	require.Equal(t, fillersInFlight, held())
	// One that goes away in its place, or waiting for one, holds nobody up.
	for p := range int32(2) {
		x.Drop("a", p)
		x.Drop("a", partitions-1-p)
	}
	for p := int32(2); p < partitions-2; p++ {
		x.dest.hold(cluster.TopicPartition{Topic: "a", Partition: p}, false)
	}
	for p := int32(2); p < partitions-2; p++ {
		waitFor(t, func() bool { return x.dest.end(cluster.TopicPartition{Topic: "a", Partition: p}) == 10 })
	}
	waitFor(t, func() bool {
		x.budget.fillers.mu.Lock()
		defer x.budget.fillers.mu.Unlock()
		return x.budget.fillers.free == fillersInFlight && len(x.budget.fillers.waiting) == 0
	})
}
