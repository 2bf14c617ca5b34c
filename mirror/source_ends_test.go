package mirror

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/store"
)

// TestStopTellsWhatTheSourceHad: behind the fence the source is asked where it ends.
func TestStopTellsWhatTheSourceHad(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1)
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "running")
	require.Nil(t, w.partition("t", 0).Stop)
	require.NoError(t, w.connect(w.source, kgo.DefaultProduceTopic("t")).ProduceSync(w.context(), kgo.StringRecord("late"), kgo.StringRecord("later")).FirstErr())
	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	stop := w.partition("t", 0).Stop
	require.Equal(t, int64(2), stop.SourceEnd)
	require.Zero(t, stop.SourceAge)
	require.Equal(t, int64(42), w.partition("t", 0).LastMirrored)

	w.m.Close()
	w.m = w.manager()
	require.Equal(t, int64(2), w.partition("t", 0).Stop.SourceEnd)
}

// TestSourceEndsOfOneMillisecond: what is asked behind the fence counts, also if something else was heard just before.
func TestSourceEndsOfOneMillisecond(t *testing.T) {
	var part store.Partition
	require.False(t, lastHeard{}.note(&part), "never heard")
	require.True(t, lastHeard{end: 9, ms: 1000}.note(&part))
	require.False(t, lastHeard{end: 9, ms: 1000}.note(&part))
	require.True(t, lastHeard{end: 11, ms: 1000}.note(&part))
	require.False(t, lastHeard{end: 9, ms: 999}.note(&part))
	require.Equal(t, lastHeard{end: 11, ms: 1000}, lastHeard{end: part.SourceEnd, ms: part.SourceEndMs})
}

// TestStopWithADeadSource: it is done at once, with what was heard last, which also a restart does not forget.
func TestStopWithADeadSource(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m", "mirror.metadata.refresh.interval.ms", "100")
	w.sourceTopic("t", 1)
	w.sourceTopic("u", 1)
	w.add("t", "u")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running")
	w.source.Close()
	heard := time.Now().Add(-time.Minute)
	w.replication("m").setStatus(replication.Status{State: Mirroring, DestinationEnd: 42, LastMirrored: 42, SourceHighWatermark: 50, SourceAge: time.Minute})
	w.eventually(func() bool { rec, _ := w.state.Partition("m", "t", 0); return rec.SourceEnd == 50 }, "written down, as the source is silent")

	w.m.Close()
	w.m = w.manager()
	w.eventually(func() bool { return w.replication("m") != nil && len(w.replication("m").runs()) == 2 }, "running again")
	w.replication("m").setStatus(replication.Status{State: Preparing, DestinationEnd: 42, LastMirrored: 42, SourceHighWatermark: -1, SourceAge: -1})
	now := w.partition("t", 0)
	require.Equal(t, int64(8), now.Lag())
	require.GreaterOrEqual(t, now.SourceAge, time.Minute-time.Second)
	require.LessOrEqual(t, now.SourceAge, time.Since(heard)+time.Second)

	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t", "u"))
	require.NoError(t, err)
	stop := w.partition("t", 0).Stop
	require.Equal(t, int64(50), stop.SourceEnd)
	require.GreaterOrEqual(t, stop.SourceAge, time.Minute)
}

// TestStopOfASourceNeverHeard.
func TestStopOfASourceNeverHeard(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1)
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "running")
	w.source.Close()
	w.replication("m").setStatus(replication.Status{State: Preparing, DestinationEnd: 42, LastMirrored: 42, SourceHighWatermark: -1, SourceAge: -1})
	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	stop := w.partition("t", 0).Stop
	require.Equal(t, int64(-1), stop.SourceEnd)
	require.Equal(t, time.Duration(-1), stop.SourceAge)
}
