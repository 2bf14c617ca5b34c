package mirror

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/mirror/replication"
)

func TestCutoverSettings(t *testing.T) {
	now := time.Now()
	in := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).UnixMilli(), 10) }
	for name, c := range map[string]struct {
		topics, deadline string
		state            State
		waits            bool
	}{
		"under way":       {"a, t", in(time.Minute), Mirroring, true},
		"no topics":       {"", in(time.Minute), Mirroring, false},
		"others":          {"tt,a", in(time.Minute), Mirroring, false},
		"no deadline":     {"t", "", Mirroring, false},
		"over":            {"t", in(-time.Millisecond), Mirroring, false},
		"too long":        {"t", in(longestCutover + time.Second), Mirroring, false},
		"over, stopping":  {"t", in(-time.Minute), Stopping, true},
		"stopped":         {"t", in(time.Minute), Stopped, false},
		"others stopping": {"a", in(time.Minute), Stopping, false},
	} {
		cut := cutoverOf(map[string]string{cutoverTopicsSetting: c.topics, cutoverDeadlineSetting: c.deadline})
		require.Equal(t, c.waits, cut.waitUntil("t", c.state, now).After(now), name)
	}
}

// TestCutoverIsDurableAndEnds: the deadline counts from now by the gateway's clock, survives a restart, holds over STOPPING,
// and ends by itself.
func TestCutoverIsDurableAndEnds(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1)
	w.sourceTopic("u", 1)
	w.add("t", "u")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running")
	before := w.m.Topics()
	wait := func(topics, deadline string) error {
		return w.m.AlterMirror(w.context(), "m", []ConfigChange{
			{Name: cutoverTopicsSetting, Op: AppendConfig, Value: &topics}, {Name: cutoverDeadlineSetting, Op: SetConfig, Value: &deadline},
		}, false)
	}
	for deadline, message := range map[string]string{"+3600001": "1h0m0s at most", "+-5": "no number", "+": "no number", "x": "whole number"} {
		w.refused(wait("t", deadline), kerr.InvalidConfig, message)
	}
	w.refused(wait("a/b", "+1000"), kerr.InvalidConfig, "no name of a topic")
	relative := "+1000"
	w.refused(w.m.CreateMirror(w.context(), "n", w.config(cutoverDeadlineSetting, relative), false), kerr.InvalidConfig, "counts from now")
	require.Zero(t, w.m.Topics().ByName("t").WritersWait)

	began := time.Now()
	require.NoError(t, wait("t", "+60000"))
	select {
	case <-before.Replaced():
	default:
		require.Fail(t, "whoever waits is not told")
	}
	until := w.m.Topics().ByName("t").WritersWait
	require.WithinRange(t, until, began.Add(time.Minute-time.Millisecond), time.Now().Add(time.Minute))
	require.True(t, w.m.Topics().ByName("t").ReadOnly)
	require.Zero(t, w.m.Topics().ByName("u").WritersWait)

	w.m.Close()
	w.m = w.manager()
	require.Equal(t, until, w.m.Topics().ByName("t").WritersWait)

	// A stop that takes longer than producers were told to wait.
	require.NoError(t, wait("t", "+0"))
	require.False(t, w.m.Topics().ByName("t").WritersWait.After(time.Now()))
	w.eventually(func() bool { return w.replication("m") != nil }, "started")
	w.replication("m").mu.Lock()
	w.replication("m").stopErr = func(replication.PartitionSpec) error { return kerr.RequestTimedOut }
	w.replication("m").mu.Unlock()
	require.NoError(t, w.m.beginStop(w.context(), "m", []string{"t"}))
	require.True(t, w.m.Topics().ByName("t").WritersWait.After(time.Now()))
	w.replication("m").mu.Lock()
	w.replication("m").stopErr = nil
	w.replication("m").mu.Unlock()
	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	require.False(t, w.m.Topics().ByName("t").ReadOnly)
	require.Zero(t, w.m.Topics().ByName("t").WritersWait)
}

// TestCutoverHurriesTheSyncers: meanwhile groups are synced and new partitions found without waiting for the interval.
func TestCutoverHurriesTheSyncers(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m") // its interval is half a minute
	w.sourceTopic("t", 1)
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "running")
	topics, deadline := "t", "+3600000"
	require.NoError(t, w.m.AlterMirror(w.context(), "m", []ConfigChange{
		{Name: cutoverTopicsSetting, Op: AppendConfig, Value: &topics}, {Name: cutoverDeadlineSetting, Op: SetConfig, Value: &deadline},
	}, false))
	cycles := func() int64 {
		d, err := w.m.Describe(w.context(), "m")
		require.NoError(t, err)
		for _, s := range d.Syncs {
			if s.Kind == SyncGroups {
				return s.Cycles
			}
		}
		return 0
	}
	w.eventually(func() bool { return cycles() >= 3 }, "cycles")
	_, err := w.sourceAdmin.UpdatePartitions(w.context(), 3, "t")
	require.NoError(t, err)
	w.eventually(func() bool { return len(w.replication("m").runs()) == 3 }, "the new partitions")
}
