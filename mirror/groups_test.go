package mirror

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/mirrorgate/mirrorgate/store"
)

func TestClampOffset(t *testing.T) {
	for _, tt := range []struct{ ReadCommitted, start, end, want int64 }{
		{5, 0, 10, 5},
		{5, 0, 3, 3},  // the destination lags
		{5, 7, 10, 7}, // retention was quicker at the destination
		{0, 0, 0, 0},
		{12, 7, 10, 10},
		{5, 7, 7, 7},
		{12, 7, 7, 7}, // retention removed all
		{3, 5, 8, 5}, {6, 5, 8, 6}, {9, 5, 8, 8}, {8, 5, 8, 8},
	} {
		require.Equal(t, tt.want, clampOffset(tt.ReadCommitted, logRange{tt.start, tt.end}), "%+v", tt)
	}
}

// groupWorld has a mirror m with the topics a (10 records at the destination) and b (none).
func newGroupWorld(t *testing.T, config ...string) *world {
	w := newWorld(t)
	w.createMirror("m", config...)
	w.sourceTopic("a", 1)
	w.sourceTopic("b", 1)
	w.sourceTopic("not-mirrored", 1)
	w.makeTopic(w.admin, "not-mirrored", 1)
	w.add("a", "b")
	producer := w.connect(w.destination, kgo.DefaultProduceTopic("a"))
	for range 10 {
		require.NoError(t, producer.ProduceSync(w.context(), kgo.StringRecord("x")).FirstErr())
	}
	return w
}

func (w *world) commit(admin *kadm.Client, group, topic string, at int64) {
	w.t.Helper()
	offsets := make(kadm.Offsets)
	offsets.Add(kadm.Offset{Topic: topic, At: at, LeaderEpoch: 3, Metadata: "mine"})
	require.NoError(w.t, admin.CommitAllOffsets(w.context(), group, offsets))
}

// committed returns what a group has at the destination, -1 for nothing.
func (w *world) committed(group, topic string) int64 {
	w.t.Helper()
	fetched, err := w.admin.FetchOffsets(w.context(), group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return -1
	}
	require.NoError(w.t, err)
	o, ok := fetched.Lookup(topic, 0)
	if !ok {
		return -1
	}
	if o.At >= 0 && w.t.Name() == "TestGroupOffsetsAreCopied" {
		require.EqualValues(w.t, -1, o.LeaderEpoch)
		require.Equal(w.t, "mine", o.Metadata)
	}
	return o.At
}

func (w *world) cycle() { w.m.mirror("m").groups.cycle(w.context()) }

func TestGroupOffsetsAreCopied(t *testing.T) {
	w := newGroupWorld(t, "mirror.groups.exclude", "private-.*")
	w.commit(w.sourceAdmin, "g", "a", 7)
	w.commit(w.sourceAdmin, "g", "b", 7)
	w.commit(w.sourceAdmin, "g", "not-mirrored", 7)
	w.commit(w.sourceAdmin, "ahead", "a", 99)
	w.commit(w.sourceAdmin, "private-x", "a", 7)
	w.cycle()
	require.EqualValues(t, 7, w.committed("g", "a"))
	require.EqualValues(t, 0, w.committed("g", "b"), "not above the end of the destination")
	require.EqualValues(t, -1, w.committed("g", "not-mirrored"))
	require.EqualValues(t, 10, w.committed("ahead", "a"))
	require.EqualValues(t, -1, w.committed("private-x", "a"))
	require.Empty(t, w.m.Skipped("m", SyncGroups))
}

func TestGroupOffsetsNeverGoBackOverOthers(t *testing.T) {
	w := newGroupWorld(t)
	w.commit(w.sourceAdmin, "g", "a", 7)
	w.cycle()
	w.commit(w.sourceAdmin, "g", "a", 4) // reset at the source: what was written here follows
	w.cycle()
	require.EqualValues(t, 4, w.committed("g", "a"))

	w.commit(w.admin, "g", "a", 9) // consumed at the destination
	w.cycle()
	require.EqualValues(t, 9, w.committed("g", "a"))
	require.Contains(t, w.m.Skipped("m", SyncGroups)["g"], "further")
	w.commit(w.sourceAdmin, "g", "a", 10)
	w.cycle()
	require.EqualValues(t, 10, w.committed("g", "a"), "forward is right")

	// After a restart nothing is known of who wrote what.
	w.m.Close()
	w.m = w.manager()
	w.commit(w.sourceAdmin, "g", "a", 2)
	w.cycle()
	require.EqualValues(t, 10, w.committed("g", "a"))
}

func TestGroupsWithMembersAreLeftAlone(t *testing.T) {
	w := newGroupWorld(t)
	w.commit(w.sourceAdmin, "g", "a", 7)
	consumer := w.connect(w.destination, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("a"), kgo.DisableAutoCommit())
	consumer.PollRecords(w.context(), 1)
	w.cycle()
	require.EqualValues(t, -1, w.committed("g", "a"))
	require.Contains(t, w.m.Skipped("m", SyncGroups)["g"], "has members")
	consumer.Close()
	w.cycle()
	require.EqualValues(t, 7, w.committed("g", "a"))
	require.Empty(t, w.m.Skipped("m", SyncGroups))
}

func TestGroupsOfStoppedTopicsAreLeftAlone(t *testing.T) {
	w := newGroupWorld(t)
	w.commit(w.sourceAdmin, "g", "a", 3)
	w.replication("m").last = 5 // what the log holds behind is the fence
	w.commit(w.sourceAdmin, "ahead", "a", 99)
	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "a"))
	require.NoError(t, err)
	require.EqualValues(t, 3, w.committed("g", "a"), "the stop began with a last sync")
	require.EqualValues(t, 5, w.committed("ahead", "a"), "not above the last mirrored record")
	w.commit(w.sourceAdmin, "g", "a", 8)
	w.cycle()
	require.EqualValues(t, 3, w.committed("g", "a"))
}

// TestManyGroups: 5,000 groups of 50 partitions each, all of them in every cycle (G7).
func TestManyGroups(t *testing.T) {
	const groups, partitions = 5000, 50
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("wide", partitions)
	w.add("wide")
	offsets := make(kadm.Offsets)
	for p := range int32(partitions) {
		offsets.Add(kadm.Offset{Topic: "wide", Partition: p, At: 0, LeaderEpoch: -1})
	}
	var names []string
	for i := range groups {
		names = append(names, fmt.Sprintf("g%d", i))
	}
	parallel(t, names, func(name string) error { return w.sourceAdmin.CommitAllOffsets(w.context(), name, offsets) })
	for _, what := range []string{"new", "unchanged"} {
		started := time.Now()
		w.cycle()
		t.Logf("%d groups × %d partitions, %s: %v", groups, partitions, what, time.Since(started))
	}
	fetched := w.admin.FetchManyOffsets(w.context(), names...)
	for _, name := range names {
		require.NoError(t, fetched[name].Err)
		require.Len(t, fetched[name].Fetched["wide"], partitions, name)
	}
	require.Empty(t, w.m.Skipped("m", SyncGroups))
}

func parallel(t *testing.T, names []string, do func(string) error) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for _, name := range names {
		group.Go(func() error { return do(name) })
	}
	require.NoError(t, group.Wait())
}

// A group over topics of the mirror and others: only the former are touched (G12).
func TestGroupsOfPartlyMirroredTopics(t *testing.T) {
	w := newGroupWorld(t)
	w.commit(w.sourceAdmin, "g", "a", 7)
	w.commit(w.sourceAdmin, "g", "not-mirrored", 9)
	w.commit(w.admin, "g", "not-mirrored", 3)
	w.cycle()
	require.EqualValues(t, 7, w.committed("g", "a"))
	require.EqualValues(t, 3, w.committed("g", "not-mirrored"))
}

func TestShareGroupOffsetsAreCopied(t *testing.T) {
	w := newGroupWorld(t, "mirror.groups.exclude", "private")
	set := func(admin *kadm.Client, group, topic string, at int64) {
		t.Helper()
		offsets := make(kadm.Offsets)
		offsets.Add(kadm.Offset{Topic: topic, At: at})
		results, err := admin.AlterShareGroupOffsets(w.context(), group, offsets)
		require.NoError(t, err)
		require.NoError(t, results.Error())
	}
	start := func(group, topic string) int64 {
		t.Helper()
		described, err := w.admin.DescribeShareGroupOffsets(w.context(), group)
		require.NoError(t, err)
		if o, ok := described[group].Offsets[topic][0]; ok {
			return o.StartOffset
		}
		return -1
	}
	producer := w.connect(w.source, kgo.DefaultProduceTopic("a"))
	for range 20 {
		require.NoError(t, producer.ProduceSync(w.context(), kgo.StringRecord("x")).FirstErr())
	}
	set(w.sourceAdmin, "s", "a", 7)
	set(w.sourceAdmin, "ahead", "a", 15)
	set(w.sourceAdmin, "private", "a", 5)
	set(w.sourceAdmin, "s", "not-mirrored", 0)
	w.commit(kadm.NewClient(w.connect(w.destination)), "taken", "a", 1)
	set(w.sourceAdmin, "taken", "a", 4)
	w.cycle()
	require.EqualValues(t, 7, start("s", "a"))
	require.EqualValues(t, 10, start("ahead", "a"), "not above the end of the destination")
	require.EqualValues(t, -1, start("private", "a"))
	require.EqualValues(t, -1, start("s", "not-mirrored"))
	require.Contains(t, w.m.Skipped("m", SyncGroups)["taken"], "no share group")

	set(w.sourceAdmin, "s", "a", 6) // what was set here follows
	w.cycle()
	require.EqualValues(t, 6, start("s", "a"))
	set(w.admin, "s", "a", 9) // somebody else moved it on
	w.cycle()
	require.EqualValues(t, 9, start("s", "a"))
	require.Contains(t, w.m.Skipped("m", SyncGroups)["s"], "further")
}

// Kafka 4.1 answers AlterShareGroupOffsets without doing it.
func TestShareGroupsOfAnOldDestination(t *testing.T) {
	w := newGroupWorld(t)
	offsets := make(kadm.Offsets)
	offsets.Add(kadm.Offset{Topic: "a", At: 0})
	_, err := w.sourceAdmin.AlterShareGroupOffsets(w.context(), "s", offsets)
	require.NoError(t, err)
	w.destination.ControlKey(int16(kmsg.AlterShareGroupOffsets), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.destination.KeepControl()
		return kreq.ResponseKind(), nil, true
	})
	w.cycle()
	require.Contains(t, w.m.Skipped("m", SyncGroups)["s"], "Kafka 4.2")
}

// Another cluster at the source's address: nothing of it is copied, and nothing that was known of the groups is forgotten.
func TestNothingIsSyncedFromAnotherCluster(t *testing.T) {
	w := newGroupWorld(t, "mirror.topics.include", "c.*")
	w.sourceTopic("c1", 1)
	w.commit(w.sourceAdmin, "g", "a", 7)
	w.cycle()
	require.EqualValues(t, 7, w.committed("g", "a"))
	require.NoError(t, w.m.update(w.context(), store.Update{Key: store.MirrorKey("m"), Fn: store.Typed(func(now *store.Mirror) (*store.Mirror, error) {
		now.SourceClusterID = "the one before"
		return now, nil
	})}))
	w.commit(w.sourceAdmin, "g", "a", 9)
	w.commit(w.sourceAdmin, "new", "a", 9)
	w.cycle()
	require.EqualValues(t, 7, w.committed("g", "a"))
	require.EqualValues(t, -1, w.committed("new", "a"))
	run := w.m.mirror("m")
	for kind, cycle := range map[SyncKind]func() outcome{
		SyncTopics:  func() outcome { return run.syncTopics(w.context()) },
		SyncConfigs: func() outcome { return run.syncConfigs(w.context()) },
	} {
		o := cycle()
		require.ErrorContains(t, o.err, "has cluster ID source-cluster, mirrored was cluster the one before", kind)
		require.Zero(t, o.changes, kind)
	}
	_, ok := w.state.Topic("m", "c1")
	require.False(t, ok)
	results, err := w.m.AddTopics(w.context(), refs("m", "c1"))
	require.NoError(t, err)
	require.Equal(t, kerr.InvalidRequest, results[0].Err.Kafka)
	require.Contains(t, results[0].Err.Message, "way out: ")
}
