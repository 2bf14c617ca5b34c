package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/store"
)

// Leader epochs of the source outlive a restart, and end with the incarnation.
func TestSourceEpochsAreRecorded(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 2)
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running")
	require.Equal(t, "source-cluster", w.replication("m").runs()["t-0"].SourceClusterID)
	require.Empty(t, w.replication("m").runs()["t-0"].SourceEpochs.Epochs)
	for p := range int32(2) {
		w.replication("m").events.SourceEpochs("t", p, replication.SourceEpochs{Epochs: []store.SourceEpoch{{Epoch: 3}}, End: 10})
	}
	last := replication.SourceEpochs{Epochs: []store.SourceEpoch{{Epoch: 3}, {Epoch: 4, Start: 10}}, End: 20}
	w.replication("m").events.SourceEpochs("t", 1, last)
	w.replication("m").events.SourceEpochs("unknown", 1, last)
	recorded := func(p int32) replication.SourceEpochs {
		rec, _ := w.state.Partition("m", "t", p)
		return replication.SourceEpochs{Epochs: rec.SourceEpochs, End: rec.SourceEpochsEnd}
	}
	w.eventually(func() bool { return recorded(0).End == 10 && recorded(1).End == 20 }, "recorded")
	require.Equal(t, last, recorded(1))

	w.m.Close()
	w.m = w.manager()
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running again")
	require.Equal(t, last, w.replication("m").runs()["t-1"].SourceEpochs)

	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	_, err = w.admin.DeleteTopic(w.context(), "t")
	require.NoError(t, err)
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running anew")
	require.Empty(t, w.replication("m").runs()["t-1"].SourceEpochs.Epochs)
	require.Zero(t, recorded(1).End)
}
