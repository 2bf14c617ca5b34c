package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/store"
	"github.com/mirrorgate/mirrorgate/test/leaks"
)

// fakeReplication replicates nothing, and writes down what it is asked for.
type fakeReplication struct {
	events replication.Events

	mu      sync.Mutex
	running map[string]replication.PartitionSpec // by topic-partition
	starts  map[string]int
	stops   map[string]int
	dropped map[string]int
	noted   map[string]int64
	// throttle is what Throttle was called with last.
	throttle int64
	// stopErr is what Stop answers; last is what it returns.
	stopErr func(spec replication.PartitionSpec) error
	last    int64
	// status is what Status returns, if it is not nil.
	status *replication.Status
}

func at(topic string, partition int32) string { return topic + "-" + strconv.Itoa(int(partition)) }

func (f *fakeReplication) Start(spec replication.PartitionSpec) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running[at(spec.Topic, spec.Partition)] = spec
	f.starts[at(spec.Topic, spec.Partition)]++
}

func (f *fakeReplication) startsOf(topic string, partition int32) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts[at(topic, partition)]
}

func (f *fakeReplication) Stop(_ context.Context, spec replication.PartitionSpec) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stops[at(spec.Topic, spec.Partition)]++
	if f.stopErr != nil {
		if err := f.stopErr(spec); err != nil {
			return -1, err
		}
	}
	delete(f.running, at(spec.Topic, spec.Partition))
	return f.last, nil
}

func (f *fakeReplication) Drop(topic string, partition int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped[at(topic, partition)]++
	delete(f.running, at(topic, partition))
}

func (f *fakeReplication) Throttle(bytesPerSecond int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.throttle = bytesPerSecond
}

func (f *fakeReplication) Status(topic string, partition int32) (replication.Status, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.running[at(topic, partition)]
	if f.status != nil {
		status := *f.status
		status.Partition = partition
		return status, true
	}
	return replication.Status{Partition: partition, State: Mirroring, DestinationEnd: 7, LastMirrored: 7, SourceHighWatermark: 9}, ok
}

func (f *fakeReplication) StartNoted(topic string, partition int32, start int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noted[at(topic, partition)] = start
}

func (f *fakeReplication) setStatus(status replication.Status) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status = &status
}

func (f *fakeReplication) Close() {}

func (f *fakeReplication) runs() map[string]replication.PartitionSpec {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.running)
}

// world is a source, a destination, a state and managers.
type world struct {
	t           *testing.T
	source      *kfake.Cluster
	destination *kfake.Cluster
	sourceAdmin *kadm.Client
	admin       *kadm.Client
	client      *kgo.Client
	state       *store.Store
	m           *Manager

	mu           sync.Mutex
	replications map[string]*fakeReplication
	heard        atomic.Pointer[func(ManagerEvent)] // what managers tell
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() { leaks.None(t, ignore) })
	w := &world{t: t, replications: make(map[string]*fakeReplication)}
	w.source = w.cluster("source-cluster")
	w.destination = w.cluster("destination-cluster")
	w.sourceAdmin = kadm.NewClient(w.connect(w.source))
	w.client = w.connect(w.destination)
	w.admin = kadm.NewClient(w.client)
	w.state = store.NewMemory()
	t.Cleanup(func() { require.NoError(t, w.state.Close()) })
	w.m = w.manager()
	return w
}

func (w *world) cluster(id string) *kfake.Cluster {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(id))
	require.NoError(w.t, err)
	w.t.Cleanup(cluster.Close)
	return cluster
}

func (w *world) connect(cluster *kfake.Cluster, opts ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.MetadataMinAge(10 * time.Millisecond)}, opts...)...)
	require.NoError(w.t, err)
	w.t.Cleanup(client.Close)
	return client
}

// manager makes a manager as a start of the gateway would.
func (w *world) manager() *Manager { return w.managerAs("") }

// managerAs makes one that is principal at the destination.
func (w *world) managerAs(principal string) *Manager {
	m := NewManager(ManagerConfig{
		Principal: principal, stopPatience: patience, Destination: w.client, State: w.state, Self: func() Member { return Member{Host: "gateway", Port: 9092} }, Log: zaptest.NewLogger(w.t),
		Replicate: func(mirror string, _ Config, _ *kgo.Client, events replication.Events) (Replication, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			f := &fakeReplication{
				events: events, running: make(map[string]replication.PartitionSpec), starts: make(map[string]int), stops: make(map[string]int),
				dropped: make(map[string]int), noted: make(map[string]int64), last: 42,
			}
			w.replications[mirror] = f
			return f, nil
		},
		Listener: func(e ManagerEvent) {
			if heard := w.heard.Load(); heard != nil {
				(*heard)(e)
			}
		},
	})
	w.t.Cleanup(m.Close)
	return m
}

func (w *world) replication(mirror string) *fakeReplication {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replications[mirror]
}

func (w *world) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	w.t.Cleanup(cancel)
	return ctx
}

func (w *world) createMirror(name string, config ...string) {
	w.t.Helper()
	require.NoError(w.t, w.m.CreateMirror(w.context(), name, w.config(config...), false))
}

// config is that of a mirror of the source, with further key, value, ….
func (w *world) config(more ...string) map[string]*string {
	addr := w.source.ListenAddrs()[0]
	seldom := "3600000" // or what runs in the background could come between the steps of a slow test
	config := map[string]*string{"bootstrap.servers": &addr, "mirror.metadata.refresh.interval.ms": &seldom}
	for i := 0; i < len(more); i += 2 {
		config[more[i]] = &more[i+1]
	}
	return config
}

func (w *world) sourceTopic(name string, partitions int32, configs ...string) TopicID {
	w.t.Helper()
	return w.makeTopic(w.sourceAdmin, name, partitions, configs...)
}

func (w *world) makeTopic(admin *kadm.Client, name string, partitions int32, configs ...string) TopicID {
	w.t.Helper()
	values := make(map[string]*string)
	for i := 0; i < len(configs); i += 2 {
		values[configs[i]] = &configs[i+1]
	}
	resp, err := admin.CreateTopic(w.context(), partitions, 1, values, name)
	require.NoError(w.t, err)
	return TopicID(resp.ID)
}

// add adds topics to mirror m and expects that all goes well.
func (w *world) add(topics ...string) {
	w.t.Helper()
	results, err := w.m.AddTopics(w.context(), refs("m", topics...))
	require.NoError(w.t, err)
	for _, r := range results {
		require.Nil(w.t, r.Err)
	}
}

func refs(mirror string, topics ...string) []TopicRef {
	var out []TopicRef
	for _, topic := range topics {
		out = append(out, TopicRef{Mirror: mirror, Name: topic})
	}
	return out
}

func (w *world) refused(err error, code *kerr.Error, message string) {
	w.t.Helper()
	var refused *Error
	require.ErrorAs(w.t, err, &refused)
	require.Equal(w.t, code, refused.Kafka, refused.Message)
	require.Contains(w.t, refused.Message, message)
}

// eventually polls, for effects that come from goroutines of the manager.
func (w *world) eventually(ok func() bool, what string) {
	w.t.Helper()
	require.Eventually(w.t, ok, patience, 5*time.Millisecond, what)
}

func (w *world) topicConfigs(admin *kadm.Client, topic string) map[string]string {
	w.t.Helper()
	described, err := admin.DescribeTopicConfigs(w.context(), topic)
	require.NoError(w.t, err)
	values := make(map[string]string)
	for _, c := range described[0].Configs {
		if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
			values[c.Key] = c.MaybeValue()
		}
	}
	return values
}

func (w *world) atDestination(topic string) cluster.Topic {
	w.t.Helper()
	found, _, err := cluster.DescribeTopics(w.context(), w.client, topic)
	require.NoError(w.t, err)
	return found[topic]
}

func (w *world) partition(topic string, partition int32) PartitionStatus {
	w.t.Helper()
	d, err := w.m.Describe(w.context(), "m")
	require.NoError(w.t, err)
	for _, t := range d.Topics {
		if t.Name == topic {
			return t.Partitions[partition]
		}
	}
	w.t.Fatalf("no topic %s", topic)
	return PartitionStatus{}
}

func TestRemoveTopicsStaysReadOnlyUntilFenced(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 2)
	w.add("t")
	f := w.replication("m")
	f.mu.Lock()
	f.stopErr = func(spec replication.PartitionSpec) error {
		if spec.Partition == 1 {
			return errors.New("the broker is away")
		}
		return nil
	}
	f.mu.Unlock()
	ctx, giveUp := context.WithCancel(w.context())
	go func() {
		w.eventually(func() bool { return strings.Contains(w.m.because("m", "t"), "the broker is away") }, "the trouble shows")
		giveUp()
	}()
	results, err := w.m.RemoveTopics(ctx, "m", refs("", "t"))
	require.NoError(t, err)
	w.refused(results[0].Err, kerr.RequestTimedOut, "the broker is away")
	require.True(t, w.m.Topics().ByName("t").ReadOnly)
	require.Equal(t, Stopping, w.partition("t", 1).State)

	// The gateway ends here and starts anew: the stop goes on without being asked again.
	w.m.Close()
	require.True(t, w.m.Topics().ByName("t").ReadOnly)
	w.m = w.manager()
	w.eventually(func() bool { return !w.m.Topics().ByName("t").ReadOnly }, "stopped after the restart")
	require.Equal(t, map[string]int{"t-0": 1, "t-1": 1}, w.replication("m").stops)
}

// TestCrashBetweenSteps plays a crash after each write of the state: a manager that can write no more is replaced by a
// new one, which has to get to the end.
func TestCrashBetweenSteps(t *testing.T) {
	for writes := range 6 {
		t.Run(fmt.Sprint(writes), func(t *testing.T) {
			w := newWorld(t)
			w.createMirror("m")
			w.sourceTopic("t", 2)
			w.m.Close()

			brittle := &brittleLog{StateLog: w.state, left: writes}
			m := NewManager(ManagerConfig{
				Destination: w.client, State: brittle, Replicate: w.m.cfg.Replicate, Log: zaptest.NewLogger(t),
			})
			ctx, cancel := context.WithTimeout(w.context(), 500*time.Millisecond)
			defer cancel()
			results, err := m.AddTopics(ctx, refs("m", "t"))
			added := err == nil && results[0].Err == nil
			if added {
				_, _ = m.RemoveTopics(ctx, "m", refs("", "t"))
			}
			m.Close()

			w.m = w.manager()
			if !added {
				require.Nil(t, w.m.Topics().ByName("t"))
				return
			}
			_, err = w.m.RemoveTopics(w.context(), "m", refs("", "t"))
			require.NoError(t, err)
			require.False(t, w.m.Topics().ByName("t").ReadOnly)
			require.Equal(t, Stopped, w.partition("t", 1).State)
		})
	}
}

// brittleLog refuses all updates after some.
type brittleLog struct {
	StateLog
	mu   sync.Mutex
	left int
}

func (b *brittleLog) UpdateMany(ctx context.Context, updates []store.Update) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left == 0 {
		return errors.New("crashed")
	}
	b.left--
	return b.StateLog.UpdateMany(ctx, updates)
}

func TestRestartGoesOn(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 2)
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running")
	spec := w.replication("m").runs()["t-0"]
	w.replication("m").events.StateChanged(replication.StateChange{
		Topic: "t", Partition: 1, From: Mirroring, To: Failed, Reason: "foreign write at offset 7", Permanent: true, LastMirrored: -1,
	})
	w.eventually(func() bool { rec, _ := w.state.Partition("m", "t", 1); return State(rec.State) == Failed }, "recorded")

	w.m.Close()
	w.m = w.manager()
	require.True(t, w.m.Topics().ByName("t").ReadOnly, "read-only as soon as the manager is there")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "running again")
	require.Equal(t, spec, w.replication("m").runs()["t-0"], "with the same producer ID")
	require.Equal(t, Failed, w.partition("t", 1).State)
	require.Equal(t, "foreign write at offset 7", w.partition("t", 1).Reason)

	// An operator tries again.
	errs, err := w.m.WriteStates(w.context(), "m", []StateUpdate{{Topic: "t", Partition: 1, State: Preparing}}, nil)
	require.NoError(t, err)
	require.Equal(t, []*Error{nil}, errs)
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "the failed one runs again")
}

func TestTwoManagersOnOneState(t *testing.T) {
	w := newWorld(t)
	first := w.m
	w.createMirror("m")
	w.sourceTopic("t", 1)
	second := w.manager()
	w.add("t")
	w.eventually(func() bool { return second.Topics().ByName("t") != nil && second.Topics().ByName("t").ReadOnly }, "the second sees it")
	results, err := second.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	require.Nil(t, results[0].Err)
	w.eventually(func() bool { return !first.Topics().ByName("t").ReadOnly }, "the first sees the stop")
}

// A broker that is overloaded may not know a topic for some seconds: only what lasts is a loss.
func TestDestinationTopicMissingForAMoment(t *testing.T) {
	run := &topicRun{m: &Manager{cfg: ManagerConfig{MissingFor: time.Hour}}}
	require.False(t, run.confirmed("gone", true))
	require.False(t, run.confirmed("gone", true), "not for long enough")
	run.suspectSince = run.suspectSince.Add(-2 * time.Hour)
	require.True(t, run.confirmed("gone", true))

	require.False(t, run.confirmed("another ID", false))
	require.True(t, run.confirmed("another ID", false), "a topic with another ID does not come back")
}

func TestDestinationTopicDeleted(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m", "mirror.metadata.refresh.interval.ms", "100")
	w.sourceTopic("t", 2)
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running")
	_, err := w.admin.DeleteTopic(w.context(), "t")
	require.NoError(t, err)
	w.makeTopic(w.admin, "t", 2)
	w.eventually(func() bool { return w.partition("t", 0).State == Failed && w.partition("t", 1).State == Failed }, "failed")
	require.Contains(t, w.partition("t", 0).Reason, "created anew")
	require.Empty(t, w.replication("m").runs())

	// Trying again finds the same.
	errs, err := w.m.WriteStates(w.context(), "m", []StateUpdate{{Topic: "t", Partition: 0, State: Preparing}}, nil)
	require.NoError(t, err)
	require.Nil(t, errs[0])
	w.eventually(func() bool { return w.partition("t", 0).State == Failed }, "failed again")

	// It can be removed without a fence in what is not ours.
	_, err = w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	require.Empty(t, w.replication("m").stops)

	// And be added again, since the topic that somebody made is empty: a new incarnation.
	before, _ := w.state.Topic("m", "t")
	w.add("t")
	after, _ := w.state.Topic("m", "t")
	require.NotEqual(t, before.ProducerID, after.ProducerID)
	require.Equal(t, []int64{before.ProducerID}, after.PastProducerIDs)
	require.True(t, w.m.Topics().IsProducer(before.ProducerID))
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running again")
}

func TestSourceTopicGrows(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1)
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "running")
	w.replication("m").events.SourcePartitions("t", 3)
	w.eventually(func() bool { return len(w.replication("m").runs()) == 3 }, "the new partitions run")
	require.EqualValues(t, 3, w.atDestination("t").Partitions)
}
