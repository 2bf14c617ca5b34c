package mirror

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Starts of the source's logs are recorded before they are answered, outlive a restart, and end with the incarnation.
func TestSourceStartsAreRecorded(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 2)
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running")
	require.Zero(t, w.replication("m").runs()["t-1"].SourceStart)
	noted := func(p int32) int64 {
		f := w.replication("m")
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.noted[at("t", p)]
	}
	recorded := func(p int32) int64 { rec, _ := w.state.Partition("m", "t", p); return rec.SourceStart }
	w.replication("m").events.SourceStart("unknown", 1, 7)
	for _, start := range []int64{20, 70} {
		w.replication("m").events.SourceStart("t", 1, start)
		w.eventually(func() bool { return noted(1) == start }, "noted")
		require.Equal(t, start, recorded(1))
	}
	w.replication("m").events.SourceStart("t", 1, 30)
	w.eventually(func() bool { return noted(1) == 30 }, "answered")
	require.EqualValues(t, 70, recorded(1), "never back")
	require.Zero(t, recorded(0))

	w.m.Close()
	w.m = w.manager()
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running again")
	require.EqualValues(t, 70, w.replication("m").runs()["t-1"].SourceStart)

	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	_, err = w.admin.DeleteTopic(w.context(), "t")
	require.NoError(t, err)
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running anew")
	require.Zero(t, w.replication("m").runs()["t-1"].SourceStart)
}

// A topic that is added anew in the moment in which its run ends is mirrored: its partitions are started, which the old run
// had started before.
func TestAddedAnewWhileTheRunEnds(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 2)
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running")
	before := w.replication("m").runs()["t-0"].ProducerID
	var once sync.Once
	added := make(chan struct{})
	heard := func(e ManagerEvent) {
		if e.Topic != "t" || e.State != Stopped || e.Partition >= 0 {
			return
		}
		once.Do(func() { // the run goes on when this returns
			go func() {
				defer close(added)
				_, err := w.admin.DeleteTopic(w.context(), "t")
				assert.NoError(t, err)
				results, err := w.m.AddTopics(w.context(), refs("m", "t"))
				assert.NoError(t, err)
				assert.Nil(t, results[0].Err)
			}()
			w.eventually(func() bool { rec, _ := w.state.Topic("m", "t"); return rec.ProducerID != before }, "added anew")
		})
	}
	w.heard.Store(&heard)
	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	<-added
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running anew")
	require.NotEqual(t, before, w.replication("m").runs()["t-0"].ProducerID)
}
