package mirror

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/store"
)

// TestTransitions tries every request on a topic in every state: each is done or refused with a message.
func TestTransitions(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1)
	w.add("t")
	rec, _ := w.state.Topic("m", "t")
	w.m.Close() // what stands in the records stays as it is

	type request struct {
		name string
		do   func(context.Context) *Error
	}
	first := func(results []TopicResult, err error) *Error {
		if err != nil {
			return clusterTrouble(err)
		}
		return results[0].Err
	}
	requests := []request{
		{"add", func(ctx context.Context) *Error { return first(w.m.AddTopics(ctx, refs("m", "t"))) }},
		{"pause", func(ctx context.Context) *Error { return first(w.m.PauseTopics(ctx, "m", refs("", "t"))) }},
		{"resume", func(ctx context.Context) *Error { return first(w.m.ResumeTopics(ctx, "m", refs("", "t"))) }},
		{"delete mirror", func(ctx context.Context) *Error {
			if err := w.m.DeleteMirror(ctx, "m"); err != nil {
				return clusterTrouble(err)
			}
			return nil
		}},
	}
	// By topic and partition state: the state of the partition after it, or why it is refused.
	for _, tt := range []struct {
		topic, partition State
		want             map[string]string
	}{
		{Initializing, Preparing, map[string]string{
			"add": "PREPARING", "pause": "INITIALIZING: its destination topic is being made", "resume": "PREPARING",
			"delete mirror": "not STOPPED (t)",
		}},
		{Mirroring, Preparing, map[string]string{
			"add": "PREPARING", "pause": "PAUSED", "resume": "PREPARING", "delete mirror": "not STOPPED (t)",
		}},
		{Mirroring, Mirroring, map[string]string{
			"add": "MIRRORING", "pause": "PAUSED", "resume": "MIRRORING", "delete mirror": "not STOPPED (t)",
		}},
		{Mirroring, Paused, map[string]string{
			"add": "PAUSED", "pause": "PAUSED", "resume": "PREPARING", "delete mirror": "not STOPPED (t)",
		}},
		{Mirroring, Failed, map[string]string{
			"add": "FAILED", "pause": "no partition that is at work: partition 0 is FAILED", "resume": "PREPARING",
			"delete mirror": "not STOPPED (t)",
		}},
		{Stopping, Mirroring, map[string]string{
			"add": "is being removed", "pause": "STOPPING and cannot be paused", "resume": "STOPPING and cannot be resumed",
			"delete mirror": "not STOPPED (t)",
		}},
		{Stopped, Stopped, map[string]string{
			"pause": "STOPPED and cannot be paused", "resume": "delete it at the destination and add it",
		}},
	} {
		for _, r := range requests {
			want, ok := tt.want[r.name]
			if !ok {
				continue // it works, and would end the table: TestAddAgain, TestDeleteMirror
			}
			t.Run(fmt.Sprintf("%s of %s/%s", r.name, tt.topic, tt.partition), func(t *testing.T) {
				rec.State = int8(tt.topic)
				require.NoError(t, w.state.UpdateTopic(w.context(), "m", "t", func(*store.Topic) (*store.Topic, error) { return &rec, nil }))
				require.NoError(t, w.state.UpdatePartition(w.context(), "m", "t", 0, func(*store.Partition) (*store.Partition, error) {
					return &store.Partition{Mirror: "m", Topic: "t", State: int8(tt.partition), Reason: "why", LastMirrored: -1}, nil
				}))
				refused := r.do(w.context())
				part, _ := w.state.Partition("m", "t", 0)
				if strings.ToUpper(want) == want {
					require.Nil(t, refused)
					require.Equal(t, want, State(part.State).String())
					return
				}
				require.NotNil(t, refused)
				require.Contains(t, refused.Message, want)
				require.Equal(t, kerr.InvalidRequest, refused.Kafka)
				require.Equal(t, tt.partition, State(part.State), "nothing was changed")
			})
		}
	}
	for _, r := range requests {
		require.NotNil(t, first(w.m.PauseTopics(w.context(), "m", refs("", "absent"))), r.name)
	}
	_, err := w.m.PauseTopics(w.context(), "nope", nil)
	w.refused(err, kerr.InvalidRequest, "unknown mirror")
	_, err = w.m.ResumeTopics(w.context(), "", nil)
	w.refused(err, kerr.InvalidRequest, "name is missing")
}

func TestPauseAndResume(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 2)
	w.sourceTopic("u", 1)
	w.add("t", "u")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 3 }, "running")
	results, err := w.m.PauseTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	require.Nil(t, results[0].Err)
	require.Len(t, w.replication("m").runs(), 1, "at rest when it is answered")
	require.Equal(t, Paused, w.partition("t", 0).State)
	require.True(t, w.m.Topics().ByName("t").ReadOnly)

	// The source grows: the new partitions wait too. A restart changes nothing.
	w.replication("m").events.SourcePartitions("t", 3)
	w.eventually(func() bool { rec, _ := w.state.Topic("m", "t"); return rec.Partitions == 3 }, "grown")
	require.Equal(t, Paused, w.partition("t", 2).State)
	w.m.Close()
	w.m = w.manager()
	w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "the other topic runs")
	require.Equal(t, Paused, w.partition("t", 0).State)

	_, err = w.m.ResumeTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	w.eventually(func() bool { return len(w.replication("m").runs()) == 4 }, "all run")

	// What is paused can be removed.
	_, err = w.m.PauseTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	_, err = w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	require.Equal(t, map[string]int{"t-0": 1, "t-1": 1, "t-2": 1}, w.replication("m").stops)
}

// A topic is paused while its partitions are about to be started: what a pause has answered for is not started any more.
func TestPauseWhileStarting(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1)
	starting, goOn := make(chan struct{}), make(chan struct{})
	var asked atomic.Bool
	w.destination.ControlKey(int16(kmsg.DescribeConfigs), func(kmsg.Request) (kmsg.Response, error, bool) { // asked for just before
		if asked.CompareAndSwap(false, true) {
			w.destination.SleepControl(func() { close(starting); <-goOn })
		}
		return nil, nil, false
	})
	w.add("t")
	<-starting
	paused := make(chan error, 1)
	go func() {
		results, err := w.m.PauseTopics(w.context(), "m", refs("", "t"))
		if err == nil && results[0].Err != nil {
			err = results[0].Err
		}
		paused <- err
	}()
	w.eventually(func() bool { return w.partition("t", 0).State == Paused }, "paused")
	close(goOn)
	require.NoError(t, <-paused)
	// What the step that had begun is up to has happened once the next one has done something.
	w.replication("m").events.StateChanged(replication.StateChange{Topic: "t", From: Mirroring, To: Failed, Reason: "the next step", Permanent: true, LastMirrored: -1})
	w.eventually(func() bool { return w.partition("t", 0).State == Failed }, "the next step")
	require.Zero(t, w.replication("m").startsOf("t", 0))
	_, err := w.m.ResumeTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "running")
}

func TestResumeTriesFailedAgain(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1)
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "running")
	w.replication("m").events.StateChanged(replication.StateChange{Topic: "t", From: Mirroring, To: Failed, Reason: "foreign", Permanent: true, LastMirrored: -1})
	w.eventually(func() bool { return w.partition("t", 0).State == Failed }, "failed")
	w.replication("m").Drop("t", 0)
	_, err := w.m.ResumeTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "tried again")
}

// An operator's wish to try again outlives trouble of the destination in that moment.
func TestResumeOutlivesTrouble(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1)
	w.add("t")
	starts := func() int { return w.replication("m").startsOf("t", 0) }
	w.eventually(func() bool { return starts() == 1 }, "running")
	w.destination.ControlKey(int16(kmsg.DescribeConfigs), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		resp := kreq.ResponseKind().(*kmsg.DescribeConfigsResponse) // to the next one alone
		for _, asked := range kreq.(*kmsg.DescribeConfigsRequest).Resources {
			r := kmsg.NewDescribeConfigsResponseResource()
			r.ErrorCode, r.ResourceType, r.ResourceName = kerr.UnknownServerError.Code, asked.ResourceType, asked.ResourceName
			resp.Resources = append(resp.Resources, r)
		}
		return resp, nil, true
	})
	_, err := w.m.ResumeTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	w.eventually(func() bool { return starts() == 2 }, "tried again")
}

func TestDeleteMirrorForgets(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	id := w.sourceTopic("kept", 1)
	w.sourceTopic("gone", 1)
	w.add("kept", "gone")
	w.refused(w.m.DeleteMirror(w.context(), "m"), kerr.InvalidRequest, "2 topics that are not STOPPED (gone, kept)")
	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "kept", "gone"))
	require.NoError(t, err)
	rec, _ := w.state.Topic("m", "kept")
	_, err = w.admin.DeleteTopic(w.context(), "gone")
	require.NoError(t, err)

	require.NoError(t, w.m.DeleteMirror(w.context(), "m"))
	mirrors, err := w.m.Mirrors(w.context())
	require.NoError(t, err)
	require.Empty(t, mirrors)
	require.True(t, w.m.Topics().IsProducer(rec.ProducerID), "fillers stay hidden")
	require.Equal(t, "kept", w.m.Topics().BySourceID(id).Name, "clients go on using the ID")
	require.False(t, w.m.Topics().ByName("kept").ReadOnly)
	_, ok := w.state.Topic("m", "gone")
	require.False(t, ok)
	require.Empty(t, w.state.Partitions("m", "kept"))
	w.refused(w.m.DeleteMirror(w.context(), "m"), kerr.InvalidRequest, "unknown mirror")

	// A mirror of the same name begins anew, and its incarnation of the topic remembers the old one.
	w.createMirror("m")
	d, err := w.m.Describe(w.context(), "m")
	require.NoError(t, err)
	require.Empty(t, d.Topics)
	w.eventually(func() bool { // once what ran for the mirror before is closed
		results, err := w.m.AddTopics(w.context(), refs("m", "kept"))
		return err == nil && results[0].Err == nil
	}, "added")
	again, _ := w.state.Topic("m", "kept")
	require.Contains(t, again.PastProducerIDs, rec.ProducerID)
}

func TestAddAgain(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.createMirror("other")
	w.sourceTopic("t", 1)
	w.add("t")
	before, _ := w.state.Topic("m", "t")
	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	_, err = w.admin.DeleteTopic(w.context(), "t")
	require.NoError(t, err)
	w.add("t")
	after, _ := w.state.Topic("m", "t")
	require.NotEqual(t, before.ProducerID, after.ProducerID)
	require.NotEqual(t, before.DestinationID, after.DestinationID)
	_, err = w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	w.add("t") // empty
	_, err = w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	results, err := w.m.AddTopics(w.context(), refs("other", "t"))
	require.NoError(t, err)
	require.Nil(t, results[0].Err, "its claim is free again")
}

// Two gateways, which see each other's records too late, add a topic to two mirrors: one of them gets it.
func TestOneMirrorGetsATopic(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.createMirror("other")
	w.sourceTopic("t", 1)
	var claiming sync.WaitGroup // both have looked at everything before either claims it
	claiming.Add(2)
	blind := func() *Manager {
		m := NewManager(ManagerConfig{Destination: w.client, State: &blindLog{StateLog: w.state, claiming: &claiming}, Replicate: w.m.cfg.Replicate})
		t.Cleanup(m.Close)
		return m
	}
	first, second := blind(), blind()
	w.m.Close()
	outcomes := make(chan *Error, 2)
	for mirror, m := range map[string]*Manager{"m": first, "other": second} {
		go func() {
			results, err := m.AddTopics(w.context(), refs(mirror, "t"))
			if err != nil {
				outcomes <- clusterTrouble(err)
				return
			}
			outcomes <- results[0].Err
		}()
	}
	a, b := <-outcomes, <-outcomes
	require.True(t, (a == nil) != (b == nil), "%v, %v", a, b)
	if a == nil {
		a = b
	}
	w.refused(a, kerr.InvalidRequest, "already, or being added to it")
}

// blindLog does not see which topics other mirrors have, and begins to write when the other one does.
type blindLog struct {
	StateLog
	once     sync.Once
	claiming *sync.WaitGroup
}

func (b *blindLog) UpdateMany(ctx context.Context, updates []store.Update) error {
	b.once.Do(b.claiming.Done)
	b.claiming.Wait()
	return b.StateLog.UpdateMany(ctx, updates)
}

func (b *blindLog) Topic(mirror, topic string) (store.Topic, bool) {
	rec, ok := b.StateLog.Topic(mirror, topic)
	return rec, ok && State(rec.State) != Initializing
}

// A claim of a gateway that died before it wrote the topic is taken over once it is old; the gateway, if it was merely
// slow, gives up.
func TestAbandonedClaim(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.createMirror("slow")
	w.sourceTopic("t", 1)
	claim := func(age time.Duration, confirmed bool) {
		require.NoError(t, w.state.Update(w.context(), store.ClaimKey("t"), store.Typed(func(*store.Claim) (*store.Claim, error) {
			at := time.Now().Add(-age).UnixMilli()
			return &store.Claim{Topic: "t", Mirror: "slow", ProducerID: 1, ClaimedMs: at, Confirmed: confirmed}, nil
		})))
	}
	refused := func() *Error {
		results, err := w.m.AddTopics(w.context(), refs("m", "t"))
		require.NoError(t, err)
		return results[0].Err
	}
	claim(0, false)
	w.refused(refused(), kerr.InvalidRequest, `in mirror "slow" already, or being added`)
	claim(time.Hour, true)
	w.refused(refused(), kerr.InvalidRequest, `in mirror "slow"`)
	claim(time.Hour, false)
	require.Nil(t, refused())

	// Now the slow gateway writes its record.
	require.NoError(t, w.state.UpdateTopic(w.context(), "slow", "t", func(*store.Topic) (*store.Topic, error) {
		rec, _ := w.state.Topic("m", "t")
		rec.Mirror, rec.ProducerID, rec.State = "slow", 1, int8(Initializing)
		return &rec, nil
	}))
	w.eventually(func() bool { rec, _ := w.state.Topic("slow", "t"); return State(rec.State) == Stopped && rec.Removed }, "given up")
	got, _ := w.state.Claim("t")
	require.Equal(t, "m", got.Mirror)
	require.True(t, got.Confirmed)
	require.True(t, w.m.Topics().ByName("t").ReadOnly)
}

func TestAlterMirror(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m", "client.id", "one")
	w.sourceTopic("t", 1)
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "running")
	before, spec := w.replication("m"), w.replication("m").runs()["t-0"]
	alter := func(name string, op ConfigOp, value *string) error {
		return w.m.AlterMirror(w.context(), "m", []ConfigChange{{Name: name, Op: op, Value: value}}, false)
	}
	value := func(s string) *string { return &s }
	config := func(name string) (string, bool) {
		entries, err := w.m.MirrorConfig(w.context(), "m")
		require.NoError(t, err)
		for _, e := range entries {
			if e.Name == name && e.Value != nil {
				return *e.Value, e.Given
			}
		}
		return "", false
	}

	// What the syncers use is changed in place.
	require.NoError(t, alter("mirror.groups.exclude", AppendConfig, value("a, b")))
	require.NoError(t, alter("mirror.groups.exclude", AppendConfig, value("c,a")))
	require.NoError(t, alter("mirror.groups.exclude", SubtractConfig, value("b")))
	got, given := config("mirror.groups.exclude")
	require.Equal(t, "c,a", got)
	require.True(t, given)
	require.Same(t, before, w.replication("m"))
	require.True(t, w.m.mirror("m").config().GroupsExclude.Match("c"))
	require.NoError(t, alter("mirror.topics.exclude", AppendConfig, value("x")))
	got, _ = config("mirror.topics.exclude")
	require.Equal(t, "__.*,x", got, "appended to the default")
	require.NoError(t, alter("mirror.topics.exclude", DeleteConfig, nil))
	got, given = config("mirror.topics.exclude")
	require.Equal(t, "__.*", got)
	require.False(t, given)

	require.NoError(t, alter("mirror.replication.throttled.rate", SetConfig, value("1000000")))
	require.Same(t, before, w.replication("m"))
	before.mu.Lock()
	require.EqualValues(t, 1_000_000, before.throttle)
	before.mu.Unlock()

	// What the connection uses makes the mirror start anew, with the same identity and without a fence.
	require.NoError(t, alter("client.id", SetConfig, value("two")))
	require.NotSame(t, before, w.replication("m"))
	w.eventually(func() bool { return len(w.replication("m").runs()) == 1 }, "running again")
	require.Equal(t, spec, w.replication("m").runs()["t-0"])
	require.Empty(t, before.stops)

	other := w.cluster("third-cluster")
	w.refused(alter("bootstrap.servers", SetConfig, value(other.ListenAddrs()[0])), kerr.InvalidRequest, "a mirror stays with its source")
	w.refused(alter("bootstrap.servers", SetConfig, value("127.0.0.1:1")), kerr.BrokerNotAvailable, "check bootstrap.servers")
	w.refused(alter("bootstrap.servers", DeleteConfig, nil), kerr.InvalidConfig, "bootstrap.servers: is required")
	w.refused(alter("no.such", SetConfig, value("1")), kerr.InvalidConfig, `"no.such"`)
	w.refused(alter("client.id", SetConfig, nil), kerr.InvalidConfig, "no value")
	w.refused(alter("client.id", AppendConfig, value("x")), kerr.InvalidConfig, "no list")
	w.refused(alter("client.id", 9, value("x")), kerr.InvalidRequest, "unknown operation")
	w.refused(alter("mirror.fetch.max.bytes", SetConfig, value("x")), kerr.InvalidConfig, "mirror.fetch.max.bytes")
	w.refused(w.m.AlterMirror(w.context(), "nope", nil, false), kerr.InvalidRequest, "unknown mirror")
	twice := []ConfigChange{{Name: "client.id", Op: DeleteConfig}, {Name: "client.id", Op: DeleteConfig}}
	w.refused(w.m.AlterMirror(w.context(), "m", twice, false), kerr.InvalidRequest, "changed twice")
	require.NoError(t, w.m.AlterMirror(w.context(), "m", twice[:1], true))
	got, _ = config("client.id")
	require.Equal(t, "two", got, "only checked")
}

func TestSecretsDoNotComeBack(t *testing.T) {
	w := newWorld(t)
	secured, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "admin", "right"), kfake.ClusterID("secured"))
	require.NoError(t, err)
	t.Cleanup(secured.Close)
	jaas := func(password string) *string {
		s := `org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="` + password + `";`
		return &s
	}
	w.createMirror("m", "bootstrap.servers", secured.ListenAddrs()[0], "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN",
		"sasl.jaas.config", *jaas("right"))
	entries, err := w.m.MirrorConfig(w.context(), "m")
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name == "sasl.jaas.config" {
			require.True(t, e.Secret && e.Given)
			require.Nil(t, e.Value)
		}
		require.NotContains(t, fmt.Sprint(e.Value), "right")
	}
	err = w.m.AlterMirror(w.context(), "m", []ConfigChange{{Name: "sasl.jaas.config", Value: jaas("wrong")}}, false)
	w.refused(err, kerr.SaslAuthenticationFailed, "sasl.jaas.config")
	require.NotContains(t, err.Error(), "wrong")
}
