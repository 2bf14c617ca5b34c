package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (w *world) syncTopics() outcome {
	w.t.Helper()
	o := w.m.mirror("m").syncTopics(w.context())
	require.NoError(w.t, o.err)
	return o
}

func (w *world) state1(topic string) State {
	rec, ok := w.state.Topic("m", topic)
	if !ok {
		return Unknown
	}
	return State(rec.State)
}

func TestTopicsJoinAndLeave(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m", "mirror.topics.include", "a.b, orders-.*", "mirror.topics.exclude", "__.*,.*-private")
	for _, name := range []string{"a.b", "a-b", "orders-1", "orders-private", "other", "__internal"} {
		w.sourceTopic(name, 1)
	}
	w.sourceTopic("orders-full", 1)
	w.makeTopic(w.admin, "orders-full", 1)
	require.NoError(t, w.connect(w.destination, kgo.DefaultProduceTopic("orders-full")).ProduceSync(w.context(), kgo.StringRecord("x")).FirstErr())
	w.add("other")

	o := w.syncTopics()
	require.Equal(t, 2, o.changes)
	require.Contains(t, o.skipped["orders-full"], "not empty")
	require.Len(t, o.skipped, 1, "one that cannot join does not keep the others back")
	for topic, joined := range map[string]bool{"a.b": true, "orders-1": true, "a-b": false, "orders-private": false, "orders-full": false, "__internal": false} {
		_, ok := w.state.Topic("m", topic)
		require.Equal(t, joined, ok, topic)
	}
	require.Zero(t, w.syncTopics().changes)
	w.sourceTopic("orders-2", 1)
	require.Equal(t, 1, w.syncTopics().changes, "topics that come later join too")

	// Excluded topics leave if they came by themselves. Those that are not included any more stay.
	exclude := "orders-1,other"
	require.NoError(t, w.m.AlterMirror(w.context(), "m", []ConfigChange{
		{Name: "mirror.topics.exclude", Op: AppendConfig, Value: &exclude}, {Name: "mirror.topics.include", Op: DeleteConfig}}, false))
	w.syncTopics()
	w.eventually(func() bool { return w.state1("orders-1") == Stopped }, "left")
	require.Equal(t, Stopped, w.state1("orders-1"))
	require.False(t, w.m.Topics().ByName("orders-1").ReadOnly)
	w.eventually(func() bool { return w.state1("orders-2") == Mirroring }, "stays")
	require.Equal(t, Mirroring, w.state1("other"), "was added by name")

	// What was removed does not come back by itself, even if it is empty.
	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "a.b"))
	require.NoError(t, err)
	all := ".*"
	require.NoError(t, w.m.AlterMirror(w.context(), "m", []ConfigChange{{Name: "mirror.topics.include", Value: &all}}, false))
	w.syncTopics()
	require.Equal(t, Stopped, w.state1("a.b"))
	_, ok := w.state.Topic("m", "a-b")
	require.True(t, ok)
}
