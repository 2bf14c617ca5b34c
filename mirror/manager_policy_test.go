package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

// compactTopic mirrors topic t, which is compacted, and returns what tells of its policy and its record.
func compactTopic(w *world) (policy func() string, borrowed func() string) {
	w.createMirror("m")
	w.sourceTopic("t", 1, "cleanup.policy", "compact")
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "running")
	require.True(w.t, w.replication("m").runs()["t-0"].Compacted)
	policy = func() string { return w.topicConfigs(w.admin, "t")["cleanup.policy"] }
	borrowed = func() string {
		rec, _ := w.m.records.Topic("m", "t")
		return rec.Restore["cleanup.policy"]
	}
	return policy, borrowed
}

func TestPolicyIsBorrowedForDeleteRecords(t *testing.T) {
	w := newWorld(t)
	policy, borrowed := compactTopic(w)
	allow := w.replication("m").events.AllowDeleteRecords
	done, err := allow(w.context(), "t")
	require.NoError(t, err)
	require.Equal(t, "compact,delete", policy())
	require.Equal(t, "compact", borrowed())
	configs := w.topicConfigs(w.admin, "t")
	require.Equal(t, "-1", configs["retention.ms"], "nothing else is deleted")
	require.Equal(t, "-1", configs["retention.bytes"])
	done()
	require.Equal(t, "compact", policy())
	require.Empty(t, borrowed())

	_, err = allow(w.context(), "other")
	require.ErrorContains(t, err, "not mirrored any more")
}

// A process that ends while the policy is another one: the next start puts it back, and so does a stop.
func TestBorrowedPolicyComesBack(t *testing.T) {
	w := newWorld(t)
	policy, borrowed := compactTopic(w)
	for _, end := range []string{"start", "stop"} {
		_, err := w.replication("m").events.AllowDeleteRecords(w.context(), "t")
		require.NoError(t, err)
		w.m.Close()
		require.Equal(t, "compact,delete", policy())
		w.m = w.manager()
		if end == "start" {
			w.eventually(func() bool { return policy() == "compact" && borrowed() == "" }, "put back")
			w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "running")
		} else {
			_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t"))
			require.NoError(t, err)
			require.Equal(t, "compact", policy())
		}
	}
}

// While a topic is mirrored its retention deletes nothing; then the source's own settings come.
func TestRetentionIsTheSources(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1, "retention.ms", "3600000")
	w.sourceTopic("plain", 1)
	w.add("t", "plain")
	for _, topic := range []string{"t", "plain"} {
		configs := w.topicConfigs(w.admin, topic)
		require.Equal(t, "-1", configs["retention.ms"])
		require.Equal(t, "-1", configs["retention.bytes"])
	}
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running")
	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t", "plain"))
	require.NoError(t, err)
	require.Equal(t, "3600000", w.topicConfigs(w.admin, "t")["retention.ms"])
	require.NotContains(t, w.topicConfigs(w.admin, "t"), "retention.bytes")
	require.NotContains(t, w.topicConfigs(w.admin, "plain"), "retention.ms")
}

func TestRetentionThatIsExcluded(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m", "mirror.topic.properties.exclude", "retention\\..*")
	w.sourceTopic("t", 1, "retention.ms", "3600000")
	w.add("t")
	require.NotContains(t, w.topicConfigs(w.admin, "t"), "retention.ms")
}

func TestBatchLimitIsRaised(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1, "max.message.bytes", "2000000")
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "running")
	require.Equal(t, 2000000, w.replication("m").runs()["t-0"].MaxBatchBytes)
	raise := w.replication("m").events.RaiseBatchLimit
	raised, err := raise(w.context(), "t", 3000000)
	require.NoError(t, err)
	require.False(t, raised, "the source has no higher one")
	_, err = w.sourceAdmin.AlterTopicConfigs(w.context(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: kadm.StringPtr("5000000")}}, "t")
	require.NoError(t, err)
	raised, err = raise(w.context(), "t", 3000000)
	require.NoError(t, err)
	require.True(t, raised)
	require.Equal(t, "5000000", w.topicConfigs(w.admin, "t")["max.message.bytes"])
}
