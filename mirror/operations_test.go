package mirror

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestCreateMirrorRefusals(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	create := func(name string, config map[string]*string) error {
		return w.m.CreateMirror(w.context(), name, config, false)
	}
	w.refused(create("", w.config()), kerr.InvalidRequest, "name is missing")
	w.refused(create("..", w.config()), kerr.InvalidRequest, "..")
	w.refused(create("m", w.config()), kerr.InvalidRequest, "already exists")
	w.refused(create("n", w.config("what", "1")), kerr.InvalidConfig, `"what"`)
	w.refused(create("n", w.config("security.protocol", "SSH")), kerr.InvalidConfig, "security.protocol")
	w.refused(create("n", w.config("bootstrap.servers", w.destination.ListenAddrs()[0])), kerr.InvalidRequest, "loop")
	w.refused(create("n", w.config("bootstrap.servers", "127.0.0.1:1")), kerr.BrokerNotAvailable, "check bootstrap.servers")

	require.NoError(t, w.m.CreateMirror(w.context(), "only-checked", w.config(), true))
	mirrors, err := w.m.Mirrors(w.context())
	require.NoError(t, err)
	require.Equal(t, []Summary{{Name: "m", SourceBootstrap: w.source.ListenAddrs()[0]}}, mirrors)
}

func TestCreateMirrorTriesEveryBootstrapServer(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m", "bootstrap.servers", "127.0.0.1:1, "+w.source.ListenAddrs()[0])
}

func TestCreateMirrorWithRefusedCredentials(t *testing.T) {
	w := newWorld(t)
	secured, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "admin", "right"))
	require.NoError(t, err)
	t.Cleanup(secured.Close)
	login := func(password string) map[string]*string {
		return w.config("bootstrap.servers", secured.ListenAddrs()[0], "security.protocol", "SASL_PLAINTEXT", "sasl.mechanism", "PLAIN",
			"sasl.jaas.config", `org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="`+password+`";`)
	}
	err = w.m.CreateMirror(w.context(), "m", login("wrong-secret"), false)
	w.refused(err, kerr.SaslAuthenticationFailed, "sasl.jaas.config")
	require.NotContains(t, err.Error(), "wrong-secret")
	require.NoError(t, w.m.CreateMirror(w.context(), "m", login("right"), false))
}

// A topic that was made a moment ago is added, although the source's broker does not know it when it is asked first.
func TestAddTopicThatIsNew(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("old", 1)
	var asked atomic.Bool
	made := make(chan struct{})
	w.source.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		w.source.KeepControl()
		named := func(topic kmsg.MetadataRequestTopic) bool { return topic.Topic != nil && *topic.Topic == "new" }
		if slices.ContainsFunc(r.(*kmsg.MetadataRequest).Topics, named) && !asked.Swap(true) {
			go func() { // once this is answered
				defer close(made)
				_, err := w.sourceAdmin.CreateTopic(w.context(), 2, 1, nil, "new")
				assert.NoError(t, err)
			}()
		}
		return nil, nil, false
	})
	w.add("old", "new")
	<-made
	w.eventually(func() bool { return len(w.replication("m").runs()) == 3 }, "all partitions run")
}

func TestAddTopics(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	id := w.sourceTopic("orders", 3, "cleanup.policy", "compact", "message.timestamp.type", "LogAppendTime", "min.insync.replicas", "1")
	w.add("orders")

	topic := w.m.Topics().ByName("orders")
	require.NotNil(t, topic)
	require.True(t, topic.ReadOnly)
	require.Equal(t, id, topic.SourceID)
	found := w.atDestination("orders")
	require.EqualValues(t, 3, found.Partitions)
	require.Equal(t, found.ID, topic.DestinationID)
	require.Equal(t, topic, w.m.Topics().BySourceID(id))

	configs := w.topicConfigs(w.admin, "orders")
	require.Equal(t, "compact", configs["cleanup.policy"])
	require.Equal(t, "CreateTime", configs["message.timestamp.type"])
	require.Equal(t, "producer", configs["compression.type"])
	require.NotContains(t, configs, "min.insync.replicas")

	w.eventually(func() bool { return len(w.replication("m").runs()) == 3 }, "all partitions run")
	spec := w.replication("m").runs()["orders-2"]
	require.Equal(t, id, spec.SourceTopicID)
	require.True(t, w.m.Topics().IsProducer(spec.ProducerID))

	w.add("orders") // a no-op
	require.Len(t, w.replication("m").runs(), 3)
	mirrors, err := w.m.Mirrors(w.context())
	require.NoError(t, err)
	require.EqualValues(t, 1, mirrors[0].Topics)
}

func TestAddTopicsIsAllOrNothing(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.createMirror("other")
	w.sourceTopic("good", 1)
	w.sourceTopic("full", 1)
	w.makeTopic(w.admin, "full", 1)
	produced := w.connect(w.destination, kgo.DefaultProduceTopic("full")).ProduceSync(w.context(), kgo.StringRecord("x"))
	require.NoError(t, produced.FirstErr())
	w.sourceTopic("wide", 1)
	w.makeTopic(w.admin, "wide", 2)
	w.sourceTopic("elsewhere", 1)
	_, err := w.m.AddTopics(w.context(), refs("other", "elsewhere"))
	require.NoError(t, err)

	for _, tt := range []struct {
		ref     TopicRef
		code    *kerr.Error
		message string
	}{
		{TopicRef{Mirror: "m", Name: "absent"}, kerr.UnknownTopicOrPartition, "does not exist at the source"},
		{TopicRef{Mirror: "m", Name: "full"}, kerr.TopicAlreadyExists, "not empty"},
		{TopicRef{Mirror: "m", Name: "wide"}, kerr.TopicAlreadyExists, "2 partitions"},
		{TopicRef{Mirror: "m", Name: "elsewhere"}, kerr.InvalidRequest, `in mirror "other"`},
		{TopicRef{Mirror: "", Name: "good2"}, kerr.InvalidRequest, "mirror name is missing"},
		{TopicRef{Mirror: "nope", Name: "good2"}, kerr.InvalidRequest, "unknown mirror"},
		{TopicRef{Mirror: "m", Name: ""}, kerr.InvalidTopicException, "name is missing"},
		{TopicRef{Mirror: "m", Name: "good"}, kerr.InvalidRequest, "named twice"},
		{TopicRef{Mirror: "m", Name: "__consumer_offsets"}, kerr.InvalidTopicException, "internal"},
	} {
		t.Run(tt.message, func(t *testing.T) {
			results, err := w.m.AddTopics(w.context(), []TopicRef{{Mirror: "m", Name: "good"}, tt.ref})
			require.NoError(t, err)
			require.Nil(t, results[0].Err)
			require.NotNil(t, results[1].Err)
			w.refused(results[1].Err, tt.code, tt.message)
			require.Nil(t, w.m.Topics().ByName("good"))
		})
	}
	results, err := w.m.AddTopics(w.context(), []TopicRef{{Mirror: "m", Name: "good", ID: TopicID{1}}})
	require.NoError(t, err)
	w.refused(results[0].Err, kerr.InconsistentTopicID, "has the ID")
}

func TestAddTopicsAdoptsAnEmptyTopic(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 3, "cleanup.policy", "compact")
	id := w.makeTopic(w.admin, "t", 1)
	w.add("t")
	require.Equal(t, id, w.m.Topics().ByName("t").DestinationID)
	require.Equal(t, "compact", w.topicConfigs(w.admin, "t")["cleanup.policy"])
	w.eventually(func() bool { return len(w.replication("m").runs()) == 3 }, "the partitions that were missing run as well")
}

func TestDestinationThatDoesNotKnowASetting(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1)
	refusals := 0
	w.destination.ControlKey(int16(kmsg.CreateTopics), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.destination.KeepControl()
		req := kreq.(*kmsg.CreateTopicsRequest)
		for _, c := range req.Topics[0].Configs {
			if c.Name == "message.timestamp.before.max.ms" {
				refusals++
				resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
				topic := kmsg.NewCreateTopicsResponseTopic()
				topic.Topic, topic.ErrorCode = "t", kerr.InvalidConfig.Code
				topic.ErrorMessage = kmsg.StringPtr("Unknown topic config name: message.timestamp.before.max.ms")
				resp.Topics = append(resp.Topics, topic)
				return resp, nil, true
			}
		}
		return nil, nil, false
	})
	w.add("t")
	require.Equal(t, 1, refusals)
}

func TestRemoveTopics(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	id := w.sourceTopic("t", 2, "message.timestamp.type", "LogAppendTime")
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running")
	w.source.Close() // a stop needs no source

	results, err := w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	require.Equal(t, []TopicResult{{Name: "t", ID: id}}, results)
	require.Empty(t, w.replication("m").runs())
	require.False(t, w.m.Topics().ByName("t").ReadOnly)
	require.NotNil(t, w.m.Topics().BySourceID(id), "clients go on using the ID")
	status := w.partition("t", 1)
	require.Equal(t, Stopped, status.State)
	require.EqualValues(t, 42, status.LastMirrored)
	configs := w.topicConfigs(w.admin, "t")
	require.Equal(t, "LogAppendTime", configs["message.timestamp.type"])
	require.NotContains(t, configs, "compression.type")

	results, err = w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	require.Nil(t, results[0].Err, "a repeated stop is no error")
	results, err = w.m.RemoveTopics(w.context(), "m", []TopicRef{{Name: "t", ID: TopicID{9}}, {Name: "x"}})
	require.NoError(t, err)
	w.refused(results[0].Err, kerr.InconsistentTopicID, "")
	w.refused(results[1].Err, kerr.InvalidRequest, `not in mirror "m"`)
	_, err = w.m.RemoveTopics(w.context(), "no", refs("", "t"))
	w.refused(err, kerr.InvalidRequest, "unknown mirror")
	mirrors, err := w.m.Mirrors(w.context())
	require.NoError(t, err)
	require.Zero(t, mirrors[0].Topics)
}

func TestWriteStates(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 2)
	w.add("t")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running")
	write := func(u ...StateUpdate) []*Error {
		errs, err := w.m.WriteStates(w.context(), "m", u, nil)
		require.NoError(t, err)
		return errs
	}
	errs := write(StateUpdate{Topic: "t", Partition: 0, State: Stopped}, StateUpdate{Topic: "t", Partition: 5, State: Stopping})
	w.refused(errs[0], kerr.InvalidRequest, "cannot become STOPPED")
	w.refused(errs[1], kerr.UnknownTopicOrPartition, "t-5")
	_, err := w.m.WriteStates(w.context(), "m", nil, []string{"t"})
	w.refused(err, kerr.InvalidRequest, "only a STOPPED topic")

	// A partition that is stopped by itself is fenced; when all are, the topic is stopped.
	require.Equal(t, []*Error{nil}, write(StateUpdate{Topic: "t", Partition: 0, State: Stopping}))
	w.eventually(func() bool { return w.partition("t", 0).State == Stopped }, "one partition stopped")
	require.True(t, w.m.Topics().ByName("t").ReadOnly)
	require.Equal(t, []*Error{nil}, write(StateUpdate{Topic: "t", Partition: 1, State: Stopping}))
	w.eventually(func() bool { return !w.m.Topics().ByName("t").ReadOnly }, "the topic is writable")

	_, err = w.m.WriteStates(w.context(), "m", nil, []string{"t"})
	require.NoError(t, err)
	d, err := w.m.Describe(w.context(), "m")
	require.NoError(t, err)
	require.Empty(t, d.Topics)
	rec, _ := w.state.Topic("m", "t")
	require.True(t, w.m.Topics().IsProducer(rec.ProducerID), "its fillers are still recognised")
}

func TestReservedTopicIDs(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	mirrored := w.sourceTopic("mirrored", 1)
	w.add("mirrored")
	existing := w.makeTopic(w.admin, "existing", 1)
	id := TopicID{1, 2, 3}

	w.refused(w.m.ReserveTopicID(w.context(), "new", mirrored), kerr.TopicAlreadyExists, "mirrored")
	w.refused(w.m.ReserveTopicID(w.context(), "new", existing), kerr.TopicAlreadyExists, "existing")
	w.refused(w.m.ReserveTopicID(w.context(), "existing", id), kerr.TopicAlreadyExists, "exists")
	require.NoError(t, w.m.ReserveTopicID(w.context(), "new", id))
	require.NoError(t, w.m.ReleaseTopicID(w.context(), "new"))
	require.NoError(t, w.m.ReserveTopicID(w.context(), "new", id))
	require.Nil(t, w.m.Topics().BySourceID(id), "not before it is created")

	destination := w.makeTopic(w.admin, "new", 1)
	require.NoError(t, w.m.ConfirmTopicID(w.context(), "new", destination))
	topic := w.m.Topics().BySourceID(id)
	require.NotNil(t, topic)
	require.False(t, topic.ReadOnly)
	require.Equal(t, destination, topic.DestinationID)
	w.refused(w.m.ReserveTopicID(w.context(), "new2", id), kerr.TopicAlreadyExists, "new")

	_, err := w.admin.DeleteTopic(w.context(), "new")
	require.NoError(t, err)
	require.NoError(t, w.m.ReserveTopicID(w.context(), "new2", id), "the ID of a deleted topic is free")
}
