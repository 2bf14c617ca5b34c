package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/store"
)

// write writes records to a topic, by partition in turn. Some have no key, no value, or headers.
func (w *world) write(cluster *kfake.Cluster, topic string, partitions int32, records int) {
	w.t.Helper()
	client := w.connect(cluster, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range records {
		r := &kgo.Record{Topic: topic, Partition: int32(i) % partitions, Key: []byte{byte(i)}, Value: fmt.Appendf(nil, "%s %d", topic, i), Timestamp: time.UnixMilli(int64(1000 + i))}
		switch i % 5 {
		case 1:
			r.Key = nil
		case 2:
			r.Value = nil
		case 3:
			r.Headers = []kgo.RecordHeader{{Key: "h", Value: nil}, {Key: "h", Value: []byte("2")}}
		}
		require.NoError(w.t, client.ProduceSync(w.context(), r).FirstErr())
	}
}

// contents reads a topic: by partition, what its records are, without the header that saving adds.
func (w *world) contents(topic string, partitions int32) map[int32][]string {
	w.t.Helper()
	contents := make(map[int32][]string)
	for p := range partitions {
		_, ends, err := cluster.LogRanges(w.context(), w.client, topic, partitions)
		require.NoError(w.t, err)
		scan := cluster.Scan{Client: w.client, Partition: cluster.TopicPartition{Topic: topic, Partition: p}, To: ends[p]}
		for r, err := range scan.Records(w.context()) {
			require.NoError(w.t, err)
			headers := r.Headers
			if n := len(headers); n > 0 && string(headers[n-1].Key) == divergedHeader {
				headers = headers[:n-1]
			}
			text := fmt.Sprintf("%d %q %v %q %v", r.Timestamp, r.Key, r.Value == nil, r.Value, headers)
			if !slices.Contains(contents[p], text) { // a request of a process that died can arrive at any time
				contents[p] = append(contents[p], text)
			}
		}
	}
	return contents
}

// mortal lets a process do so many things, and then nothing more.
type mortal struct {
	mu   sync.Mutex
	left int
	dead chan struct{} // closed at the first thing that it does not do
}

func newMortal(things int) *mortal { return &mortal{left: things, dead: make(chan struct{})} }

func (m *mortal) allow() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left == -1 {
		close(m.dead)
	}
	return m.left >= 0
}

// revive is for the process after it.
func (m *mortal) revive() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = 1 << 40
}

// mortalState is the state log of such a process.
type mortalState struct {
	StateLog
	process *mortal
}

func (s mortalState) UpdateMany(ctx context.Context, updates []store.Update) error {
	if !s.process.allow() {
		return errors.New("crashed")
	}
	return s.StateLog.UpdateMany(ctx, updates)
}

// A topic is made anew, and the process dies before its first, second … write to the state, and before its first, second …
// request that changes something at the destination. Whatever became of it: the topic is not deleted before all of its records
// are saved, and the next process gets to the end.
func TestRecreateSurvivesEveryCrash(t *testing.T) {
	for _, kind := range []string{"state", "destination"} {
		for after := 0; ; after++ {
			done := false
			t.Run(fmt.Sprintf("%s/%d", kind, after), func(t *testing.T) { done = recreateWithCrash(t, kind, after) })
			if done || t.Failed() {
				require.Greater(t, after, 3, "the crashes came too late to count")
				break
			}
		}
	}
}

// recreateWithCrash reports whether nothing was left to crash.
func recreateWithCrash(t *testing.T, kind string, after int) (finished bool) {
	w := newWorld(t)
	w.createMirror("m", "mirror.failback.divergence", "recreate")
	w.sourceTopic("t", 2)
	w.write(w.source, "t", 2, 3)
	old := w.makeTopic(w.admin, "t", 3, "min.insync.replicas", "1", "retention.ms", "86400000000")
	w.write(w.destination, "t", 3, 40)
	want := w.contents("t", 3)
	w.m.Close()

	process := newMortal(after)
	state := StateLog(w.state)
	if kind == "state" {
		state = mortalState{w.state, process}
	}
	for _, key := range []int16{int16(kmsg.Produce), int16(kmsg.CreateTopics), int16(kmsg.DeleteTopics), int16(kmsg.IncrementalAlterConfigs), int16(kmsg.InitProducerID)} {
		w.destination.ControlKey(key, func(kmsg.Request) (kmsg.Response, error, bool) {
			w.destination.KeepControl()
			if kind == "state" || process.allow() {
				return nil, nil, false
			}
			return nil, errors.New("crashed"), true // the connection ends
		})
	}
	reached := make(chan struct{}, 1)
	m := NewManager(ManagerConfig{
		Destination: w.client, State: state, Replicate: w.m.cfg.Replicate, Log: w.m.log,
		Listener: func(e ManagerEvent) {
			if e.State == Mirroring && e.Partition < 0 {
				reached <- struct{}{}
			}
		},
	})
	ctx, cancel := context.WithCancel(w.context())
	defer cancel()
	go func() {
		select {
		case <-process.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	results, err := m.AddTopics(ctx, refs("m", "t"))
	select {
	case <-process.dead:
	case <-reached:
		finished = true
	case <-w.context().Done():
		require.Fail(t, "neither the end nor a crash", "%v, %v", results, err)
	}
	m.Close()
	process.revive()
	mirroring := func() bool { rec, ok := w.state.Topic("m", "t"); return ok && State(rec.State) == Mirroring }

	if found := w.atDestination("t"); found.Missing() || found.ID != old {
		require.Equal(t, want, w.contents("t"+savedSuffix, 3), "deleted, but not saved")
	}
	w.m = w.manager()
	if _, ok := w.state.Topic("m", "t"); !ok {
		w.add("t")
	}
	w.eventually(mirroring, "made anew")
	found := w.atDestination("t")
	require.NotEqual(t, old, found.ID)
	require.EqualValues(t, 2, found.Partitions)
	require.Empty(t, w.contents("t", 2))
	require.Equal(t, want, w.contents("t"+savedSuffix, 3))
	configs := w.topicConfigs(w.admin, "t")
	require.Equal(t, "1", configs["min.insync.replicas"], "what is the destination's own stays")
	require.Equal(t, "-1", configs["retention.ms"])
	rec, _ := w.state.Topic("m", "t")
	require.Nil(t, rec.Failback)
	require.Equal(t, found.ID, rec.DestinationID)
	return finished
}

// A topic that was stopped and is added again from the same source.
func TestAddAgainAfterAStop(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1)
	w.write(w.source, "t", 1, 7)
	w.add("t")
	w.write(w.destination, "t", 1, 7) // as the mirror would, which is a fake here
	f := w.replication("m")
	f.mu.Lock()
	f.last = 5
	f.mu.Unlock()
	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)

	results, err := w.m.AddTopics(w.context(), refs("m", "t"))
	require.NoError(t, err)
	w.refused(results[0].Err, kerr.TopicAlreadyExists, "not empty")
	require.Contains(t, results[0].Err.Message, "recreate")
	require.Contains(t, results[0].Err.Message, "then stopped")
	require.False(t, w.m.Topics().ByName("t").ReadOnly, "nothing was changed")

	// What was mirrored is at the source; only the rest is saved.
	require.NoError(t, w.m.AlterMirror(w.context(), "m", []ConfigChange{{Name: "mirror.failback.divergence", Value: kmsg.StringPtr("recreate")}}, false))
	before := w.atDestination("t")
	w.add("t")
	w.eventually(func() bool { rec, _ := w.state.Topic("m", "t"); return State(rec.State) == Mirroring }, "made anew")
	require.NotEqual(t, before.ID, w.atDestination("t").ID)
	require.Len(t, w.contents("t"+savedSuffix, 1)[0], 2)
}

// What was mirrored before counts only for the topics that there were, and only if the logs agree.
func TestAddAgainDoesNotTrustOldOffsets(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"the source's topic was made again": func(w *world) {
			_, err := w.sourceAdmin.DeleteTopic(w.context(), "t")
			require.NoError(w.t, err)
			w.sourceTopic("t", 1)
			w.write(w.source, "t", 1, 7)
		},
		"the destination's topic was made again": func(w *world) {
			_, err := w.admin.DeleteTopic(w.context(), "t")
			require.NoError(w.t, err)
			w.makeTopic(w.admin, "t", 1)
			w.write(w.destination, "t", 1, 7)
		},
		"another record is at the source": func(w *world) {
			require.NoError(w.t, w.state.UpdatePartition(w.context(), "m", "t", 0, func(part *store.Partition) (*store.Partition, error) {
				part.LastMirrored = 8 // the record of offset 7 differs
				return part, nil
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.createMirror("m", "mirror.failback.divergence", "recreate")
			w.sourceTopic("t", 1)
			w.write(w.source, "t", 1, 7)
			w.add("t")
			w.write(w.destination, "t", 1, 7)
			w.write(w.source, "t", 1, 1)
			other := w.connect(w.destination, kgo.DefaultProduceTopic("t"))
			require.NoError(t, other.ProduceSync(w.context(), kgo.StringRecord("only here")).FirstErr())
			_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t"))
			require.NoError(t, err)
			require.NoError(t, w.state.UpdatePartition(w.context(), "m", "t", 0, func(part *store.Partition) (*store.Partition, error) {
				part.LastMirrored = 7
				return part, nil
			}))
			change(w)
			want := w.contents("t", 1)
			w.add("t")
			w.eventually(func() bool { rec, _ := w.state.Topic("m", "t"); return State(rec.State) == Mirroring }, "made anew")
			require.Equal(t, want, w.contents("t"+savedSuffix, 1), "everything is saved")
		})
	}
}

// Somebody decides: a topic that waits is tried again, or removed and then as it was.
func TestDivergedTopicWaits(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m", "mirror.failback.divergence", "recreate")
	long := strings.Repeat("x", 245)
	w.sourceTopic(long, 1)
	before := w.makeTopic(w.admin, long, 1, "retention.ms", "86400000000")
	w.write(w.destination, long, 1, 3)
	results, err := w.m.AddTopics(w.context(), refs("m", long))
	require.NoError(t, err)
	w.refused(results[0].Err, kerr.TopicAlreadyExists, "not empty")

	// As if the check had let it pass: it is found in the second look.
	require.NoError(t, w.state.UpdateTopic(w.context(), "m", long, func(*store.Topic) (*store.Topic, error) {
		found := w.atDestination(long)
		src, _, err := cluster.DescribeTopics(w.context(), w.connect(w.source), long)
		return &store.Topic{
			Mirror: "m", Name: long, ProducerID: 77, Partitions: 1, SourceID: src[long].ID, OriginID: src[long].ID, DestinationID: found.ID,
			Failback: &store.Failback{Phase: store.FailbackCheck, TopicID: found.ID},
		}, err
	}))
	status := func() PartitionStatus {
		d, err := w.m.Describe(w.context(), "m")
		require.NoError(t, err)
		return d.Topics[0].Partitions[0]
	}
	w.eventually(func() bool { return status().State == Failed }, "FAILED")
	require.Contains(t, status().Reason, "3 records at offsets 0 to 2 are in this topic alone")
	require.Contains(t, status().Reason, "too long")
	require.True(t, w.m.Topics().ByName(long).ReadOnly)

	_, err = w.m.ResumeTopics(w.context(), "m", refs("", long))
	require.NoError(t, err)
	w.eventually(func() bool { return status().State == Failed && status().Reason != "" }, "FAILED again")
	_, err = w.m.RemoveTopics(w.context(), "m", refs("", long))
	require.NoError(t, err)
	require.False(t, w.m.Topics().ByName(long).ReadOnly)
	require.Equal(t, before, w.atDestination(long).ID)
	require.Equal(t, "86400000000", w.topicConfigs(w.admin, long)["retention.ms"], "its settings are as they were")
	require.Empty(t, w.replication("m").stops, "nothing was fenced")
}

// What an earlier process saved, in any state, is completed; what others saved there does not count, and what differs is never
// deleted at its origin.
func TestSavingIsCompleted(t *testing.T) {
	for name, tt := range map[string]struct {
		saved  []int // offsets that are there already
		others bool  // with records of others between them
		spoilt bool  // the last one has another value
	}{
		"the first ones":                    {saved: []int{0, 1, 2}},
		"late requests of a dead process":   {saved: []int{0, 1, 2, 1, 2, 5, 6}},
		"the last one alone":                {saved: []int{9}},
		"everything":                        {saved: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"others saved records of that name": {saved: []int{0, 1}, others: true},
		"a record that differs":             {saved: []int{0, 1}, spoilt: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.createMirror("m", "mirror.failback.divergence", "recreate")
			w.sourceTopic("t", 1)
			old := w.makeTopic(w.admin, "t", 1)
			w.write(w.destination, "t", 1, 10)
			w.makeTopic(w.admin, "t"+savedSuffix, 1)
			earlier := w.connect(w.destination, kgo.DefaultProduceTopic("t"+savedSuffix))
			var all []*kgo.Record
			scan := cluster.Scan{Client: w.client, Partition: cluster.TopicPartition{Topic: "t", Partition: 0}, To: 10}
			s := saver{to: "t" + savedSuffix, id: cluster.IDString(old)}
			for r, err := range scan.Records(w.context()) {
				require.NoError(t, err)
				all = append(all, s.copy(0, r))
			}
			for i, offset := range tt.saved {
				saved := *all[offset]
				if tt.spoilt && i == len(tt.saved)-1 {
					saved.Value = []byte("spoilt")
				}
				require.NoError(t, earlier.ProduceSync(w.context(), &saved).FirstErr())
				if tt.others {
					header := kgo.RecordHeader{Key: divergedHeader, Value: []byte(cluster.IDString(TopicID{9}) + "/2")}
					require.NoError(t, earlier.ProduceSync(w.context(), kgo.StringRecord("x"), &kgo.Record{Headers: []kgo.RecordHeader{header}}).FirstErr())
				}
			}
			w.add("t")
			if tt.spoilt {
				w.eventually(func() bool { return strings.Contains(w.partition("t", 0).Reason, "differs from what was saved") }, "told")
				require.Equal(t, old, w.atDestination("t").ID)
				return
			}
			w.eventually(func() bool { rec, _ := w.state.Topic("m", "t"); return State(rec.State) == Mirroring }, "made anew")
			found := make(map[int64]bool)
			_, ends, err := cluster.LogRanges(w.context(), w.client, "t"+savedSuffix, 1)
			require.NoError(t, err)
			saved := cluster.Scan{Client: w.client, Partition: cluster.TopicPartition{Topic: "t" + savedSuffix, Partition: 0}, To: ends[0]}
			for r, err := range saved.Records(w.context()) {
				require.NoError(t, err)
				if offset := s.savedOffset(r); offset >= 0 {
					found[offset] = true
				}
			}
			require.Len(t, found, 10)
		})
	}
}
