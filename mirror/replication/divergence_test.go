package replication

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/store"
)

// remake deletes the topic a of a source and makes it again, with n other records.
func (x *replication) remake(n int) {
	x.t.Helper()
	require.NoError(x.t, x.source.DeleteTopic("a"))
	require.NoError(x.t, x.source.CreateTopic("a", 1, nil))
	x.produceBatch("other value", n)
}

// produceBatch produces records to a-0 as one batch, of which a client may make several if it is held up.
func (x *replication) produceBatch(value string, n int) {
	x.t.Helper()
	var records []kmsg.Record
	for i := range n {
		records = append(records, kmsg.Record{Value: fmt.Appendf(nil, "%s %d", value, i)})
	}
	client := x.connect() // which knows no topic of before
	produceRaw(x.t, client.Broker(int(x.source.LeaderFor("a", 0))), "a", recordsBatch(0, 0, records...), 1000, 0)
}

// diverges waits until a-0 failed for good, and proves that the destination was not touched.
func (x *replication) diverges(end int64, reason ...string) {
	x.t.Helper()
	status := x.awaitState("a", 0, Failed)
	for _, part := range append(reason, "way out: ") {
		require.Contains(x.t, status.Reason, part)
	}
	x.requireContents("a", 0, int(end))
	x.mu.Lock()
	defer x.mu.Unlock()
	var last StateChange
	for _, e := range x.events {
		if e.Topic == "a" && e.Partition == 0 {
			last = e
		}
	}
	require.True(x.t, last.Permanent)
}

// without27 is a source without topic IDs, with Fetch v12.
func without27() kfake.Opt { return kfake.MaxVersions(kversion.V2_7_0()) }

// A topic that is made again has more records than were mirrored, before anybody looks. Neither its name nor its
// log's end tell; nor do topic IDs, in the versions that have none.
func TestDivergenceOfARemadeTopic(t *testing.T) {
	for _, tt := range []struct {
		name string
		opt  kfake.Opt
		n    int
		want string
	}{
		{"no IDs, more records", without27(), 30, "diverged: "},
		{"no IDs, as many records", without27(), 10, "diverged: "},
		{"no IDs, fewer records", without27(), 5, "diverged: "},
		{"no IDs, no epochs in Fetch, more records", kfake.MaxVersions(kversion.V2_6_0()), 30, "diverged: "},
		{"IDs, more records", kfake.NumBrokers(1), 30, "the source topic was deleted and made again: its ID is"},
		{"IDs, Fetch by name, more records", kfake.MaxVersions(kversion.V3_0_0()), 30, "the source topic was deleted and made again: its ID is"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := replicateInBubble(t, nil, kfake.SeedTopics(1, "a", "b"), tt.opt)
				spec := x.spec("a", 0)
				if spec.SourceTopicID != (cluster.TopicID{}) && tt.want == "diverged: " {
					spec.SourceTopicID = cluster.TopicID{}
				}
				x.Start(spec)
				x.Start(x.spec("b", 0))
				x.produce("a", 0, 0, 10)
				x.produce("b", 0, 0, 10)
				x.awaitEnd("a", 0, 10)
				x.remake(tt.n)
				x.diverges(10, tt.want)
				x.produce("b", 0, 10, 10)
				x.awaitEnd("b", 0, 20) // in the same fetch session
			})
		})
	}
}

// The same while nobody looked: the gateway was down.
func TestDivergenceWhileAway(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"), without27())
	spec := x.spec("a", 0)
	spec.SourceTopicID = cluster.TopicID{}
	x.Start(spec)
	x.produceBatch("value", 10)
	x.awaitEnd("a", 0, 10)
	x.Drop("a", 0)
	x.remake(30)
	x.Start(spec)
	x.diverges(10, "offset 0 holds another record")

	// Trying again finds the same.
	x.Start(spec)
	x.diverges(10, "offset 0 holds another record")
}

// epochsOf collects what is to be remembered of a-0.
type epochsOf struct {
	mu   sync.Mutex
	last SourceEpochs
	n    int
}

func (e *epochsOf) take(_ string, _ int32, epochs SourceEpochs) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = epochs
	e.n++
}

func (e *epochsOf) get() (SourceEpochs, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last, e.n
}

// Leader epochs are told once each, and after a restart the source is asked where the last one ends.
func TestDivergenceByRememberedEpoch(t *testing.T) {
	var told epochsOf
	x := replicate(t, func(c *Config) { c.Events.SourceEpochs, c.readTails = told.take, nil }, kfake.NumBrokers(2), kfake.SeedTopics(1, "a"))
	spec := x.spec("a", 0)
	require.NoError(t, x.source.MoveTopicPartition("a", 0, 0))
	x.Start(spec)
	for i := range 4 {
		var records []kmsg.Record
		for n := range 5 {
			records = append(records, kmsg.Record{Value: fmt.Appendf(nil, "value %d", i*5+n)})
		}
		produceRaw(t, x.client.Broker(int(x.source.LeaderFor("a", 0))), "a", recordsBatch(0, 0, records...), int64(100+i), 0)
		x.awaitEnd("a", 0, int64(i*5+5))
		if i%2 == 1 {
			require.NoError(t, x.source.MoveTopicPartition("a", 0, int32(i)%2))
		}
	}
	known, n := told.get()
	require.Equal(t, 2, n)
	require.Len(t, known.Epochs, 2)
	require.EqualValues(t, 15, known.End, "as of the first batch of the epoch")
	x.Drop("a", 0)

	// The source loses what it had from 12 on.
	var asked atomic.Int32
	x.source.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		x.source.KeepControl()
		r := req.(*kmsg.OffsetForLeaderEpochRequest)
		asked.Store(r.Topics[0].Partitions[0].LeaderEpoch)
		resp := r.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		p.LeaderEpoch, p.EndOffset = known.Epochs[0].Epoch, 12
		resp.Topics = append(resp.Topics, kmsg.OffsetForLeaderEpochResponseTopic{Topic: "a", Partitions: []kmsg.OffsetForLeaderEpochResponseTopicPartition{p}})
		return resp, nil, true
	})
	spec.SourceEpochs = known
	x.Start(spec)
	x.diverges(20, "the source truncated its log at 12 (unclean election, or the topic was made again?)", "records 12 to 14 of the mirror are not at the source any more")
	require.EqualValues(t, known.Epochs[1].Epoch, asked.Load())
}

// An unclean election, after which the source's log ends where it ended before or behind: the leader compares the epoch
// that the fetch names (KIP-595). After a restart, that epoch is the one of the source's batch at the destination's end.
func TestDivergenceByLastFetchedEpoch(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	x.produce("a", 0, 0, 10)
	x.Start(x.spec("a", 0))
	x.awaitEnd("a", 0, 10)
	x.Drop("a", 0)
	var named atomic.Int32
	named.Store(-1)
	x.source.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		x.source.KeepControl()
		r := req.(*kmsg.FetchRequest)
		if r.SessionEpoch < 0 || len(r.Topics) == 0 {
			return nil, nil, false // of a check
		}
		named.Store(r.Topics[0].Partitions[0].LastFetchedEpoch)
		resp := r.ResponseKind().(*kmsg.FetchResponse)
		p := kmsg.NewFetchResponseTopicPartition()
		p.HighWatermark, p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = 10, 0, 7
		resp.Topics = append(resp.Topics, kmsg.FetchResponseTopic{Topic: "a", TopicID: r.Topics[0].TopicID, Partitions: []kmsg.FetchResponseTopicPartition{p}})
		return resp, nil, true
	})
	x.Start(x.spec("a", 0))
	x.diverges(10, "the source truncated its log at 7 (unclean election, or the topic was made again?)", "records 7 to 9 of the mirror")
	require.Zero(t, named.Load())
}

// A source that is in an older epoch than what was mirrored of it is another one. It has to be so for some looks.
func TestDivergenceByEpochBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := replicateInBubble(t, func(c *Config) { c.readTails = nil }, kfake.SeedTopics(1, "a"))
		x.produce("a", 0, 0, 10)
		x.Start(x.spec("a", 0))
		x.awaitEnd("a", 0, 10)
		x.Drop("a", 0)
		spec := x.spec("a", 0)
		spec.SourceEpochs = SourceEpochs{Epochs: []store.SourceEpoch{{Epoch: 7}}, End: 10}
		x.produce("a", 0, 10, 10)
		began := time.Now()
		x.Start(spec)
		waitFor(t, func() bool { s, _ := x.Status("a", 0); return s.Reason != "" })
		x.diverges(10, "the source partition is in leader epoch 0, records 9 and below of the mirror are of epoch 7")
		require.GreaterOrEqual(t, time.Since(began), (lostLooks-1)*lostPause)
	})
}

// What the source may not tell, or does not know any more, proves nothing.
func TestNoDivergenceWithoutProof(t *testing.T) {
	for _, tt := range []struct {
		name   string
		faults []kfake.Fault
		epochs SourceEpochs
	}{
		{name: "no right to ask for epochs", faults: []kfake.Fault{{Keys: []kmsg.Key{kmsg.OffsetForLeaderEpoch}, Err: kerr.TopicAuthorizationFailed}}},
		{name: "epochs are asked for again", faults: []kfake.Fault{{Keys: []kmsg.Key{kmsg.OffsetForLeaderEpoch}, Err: kerr.NotLeaderForPartition}}},
		{name: "offsets are asked for again", faults: []kfake.Fault{{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.UnknownServerError}}},
		{name: "the last record is gone", faults: []kfake.Fault{{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.OffsetOutOfRange}}},
		{name: "the record says too little", epochs: SourceEpochs{Epochs: []store.SourceEpoch{{Epoch: 0}}, End: 3}},
		{name: "the record says nothing for this end", epochs: SourceEpochs{Epochs: []store.SourceEpoch{{Epoch: 9, Start: 10}}, End: 30}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := replicateInBubble(t, nil, kfake.SeedTopics(1, "a"))
				x.produce("a", 0, 0, 10)
				x.Start(x.spec("a", 0))
				x.awaitEnd("a", 0, 10)
				x.Drop("a", 0)
				x.produce("a", 0, 10, 10)
				x.source.Fault(tt.faults...)
				spec := x.spec("a", 0)
				spec.SourceEpochs = SourceEpochs{Epochs: []store.SourceEpoch{{Epoch: 0}}, End: 10}
				if tt.epochs.End > 0 {
					spec.SourceEpochs = tt.epochs
				}
				x.Start(spec)
				x.awaitEnd("a", 0, 20)
			})
		})
	}
}

// The destination's end has to be compared before anything is appended over another connection.
func TestDivergenceIsLookedForAfterEachConnection(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"), without27())
	spec := x.spec("a", 0)
	spec.SourceTopicID = cluster.TopicID{}
	x.Start(spec)
	x.produceBatch("value", 10)
	x.awaitEnd("a", 0, 10)

	// From here on no fetch or comparison of the mirror comes through, until the topic is another one with records.
	var remade atomic.Bool
	var away atomic.Int32
	var mu sync.Mutex
	var order []string
	x.source.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		x.source.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		switch r := req.(type) {
		case *kmsg.FetchRequest:
			if !remade.Load() {
				away.Add(1)
				return nil, errors.New("away"), true
			}
			order = append(order, fmt.Sprintf("fetch %v", r.SessionEpoch >= 0))
		case *kmsg.ListOffsetsRequest:
			if !remade.Load() {
				return nil, errors.New("away"), true
			}
			order = append(order, "offsets")
		}
		return nil, nil, false
	})
	waitFor(t, func() bool { return away.Load() > 0 }) // the fetch that was under way is over, and so is its connection
	x.remake(30)
	remade.Store(true)
	x.diverges(10, "offset 0 holds another record")
	mu.Lock()
	defer mu.Unlock()
	require.NotContains(t, order, "fetch true")
}

// Another cluster answers: everything fails, with both IDs.
func TestDivergenceOfAnotherCluster(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(2, "a"), kfake.ClusterID("here"))
	for p := range int32(2) {
		x.produce("a", p, 0, 10)
	}
	spec := x.spec("a", 0)
	spec.SourceClusterID = "here"
	x.Start(spec)
	x.awaitEnd("a", 0, 10)
	x.Drop("a", 0)
	for p := range int32(2) {
		spec.Partition, spec.SourceClusterID = p, "there"
		x.Start(spec)
	}
	x.produce("a", 0, 10, 10)
	for p := range int32(2) {
		status := x.awaitState("a", p, Failed)
		require.Contains(t, status.Reason, "the cluster at the source's address has cluster ID here, mirrored was cluster there; way out")
	}
	x.requireContents("a", 0, 10)
	x.requireContents("a", 1, 0)
}

// Another cluster takes the place of the source at the same address, with topics of the same names and more records. Its
// ID tells; where there is none, its records do.
func TestDivergenceOfAClusterInTheSamePlace(t *testing.T) {
	for _, id := range []string{"cluster-one", ""} {
		t.Run("ID "+id, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := replicateInBubble(t, nil, kfake.SeedTopics(1, "a"), kfake.ClusterID("cluster-one"), without27())
				spec := x.spec("a", 0)
				spec.SourceTopicID, spec.SourceClusterID = cluster.TopicID{}, id
				x.produce("a", 0, 0, 10)
				x.Start(spec)
				x.awaitEnd("a", 0, 10)

				x.source.Close()
				x.source = x.cluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.SeedTopics(1, "a"), kfake.ClusterID("cluster-two"), without27())
				client := x.connect()
				for i := range 30 {
					require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "a", Value: fmt.Appendf(nil, "other %d", i)}).FirstErr())
				}
				if id == "" {
					x.diverges(10, "diverged: ")
					return
				}
				x.diverges(10, "has cluster ID cluster-two, mirrored was cluster cluster-one")
			})
		})
	}
}

// A destination that starts above the source's start was trimmed by somebody.
func TestDivergenceOfATrimmedDestination(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(1), kfake.SeedTopics(1, "a"))
	x.produce("a", 0, 0, 10)
	x.Start(x.spec("a", 0))
	x.awaitEnd("a", 0, 10)
	x.Drop("a", 0)
	x.dest.mu.Lock()
	x.dest.partition(cluster.TopicPartition{Topic: "a", Partition: 0}).start = 4
	x.dest.mu.Unlock()
	x.Start(x.spec("a", 0))
	require.Equal(t, "trimmed: 4, 0 at the source", x.awaitState("a", 0, Failed).Reason)

	require.NoError(t, x.source.DeleteRecords("a", 0, 4))
	x.Start(x.spec("a", 0))
	x.produce("a", 0, 10, 10)
	x.awaitEnd("a", 0, 20)
}

// Leaders move, connections break, and the destination forgets its tail, all the time: no false alarm.
func TestNoDivergenceInTrouble(t *testing.T) {
	x := replicate(t, nil, kfake.NumBrokers(3), kfake.SeedTopics(3, "a"))
	var n atomic.Int32
	x.source.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		x.source.KeepControl()
		if n.Add(1)%20 == 0 {
			return nil, errors.New("cut"), true
		}
		return nil, nil, false
	})
	for p := range int32(3) {
		x.Start(x.spec("a", p))
	}
	for round := range 12 {
		for p := range int32(3) {
			require.NoError(t, x.source.MoveTopicPartition("a", p, int32(round+int(p))%3))
			x.produce("a", p, round*10, 10)
			if round%4 == 3 {
				x.awaitEnd("a", p, int64(round*10+10))
				x.dest.doubt(cluster.TopicPartition{Topic: "a", Partition: p}, round/2)
			}
		}
	}
	for p := range int32(3) {
		x.awaitEnd("a", p, 120)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.events {
		require.NotEqual(t, Failed, e.To, e.Reason)
	}
}

func TestSourceEpochs(t *testing.T) {
	var s SourceEpochs
	require.False(t, s.note(3, 0), "no record yet")
	require.True(t, s.note(3, 10))
	require.False(t, s.note(3, 20))
	require.False(t, s.note(2, 25), "never back")
	require.True(t, s.note(5, 30))
	require.Equal(t, SourceEpochs{Epochs: []store.SourceEpoch{{Epoch: 3, Start: 0}, {Epoch: 5, Start: 20}}, End: 30}, s)
	at := func(end int64) string { epoch, until := s.at(end); return fmt.Sprint(epoch, " ", until) }
	require.Equal(t, "5 30", at(40))
	require.Equal(t, "5 21", at(21))
	require.Equal(t, "3 20", at(20))
	require.Equal(t, "-1 0", at(0))
	c := s.clone()
	s.truncate(20)
	require.Equal(t, SourceEpochs{Epochs: []store.SourceEpoch{{Epoch: 3, Start: 0}}, End: 20}, s)
	require.Len(t, c.Epochs, 2)
	s.truncate(0)
	require.Equal(t, "-1 0", at(10))
	for i := range int32(20) {
		require.True(t, s.note(i, int64(i+1)))
	}
	require.Len(t, s.Epochs, mostEpochs)
	require.Equal(t, "19 20", at(100))
	require.Equal(t, "-1 0", at(12), "forgotten")
}
