package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// The format on the log is for ever: these are the bytes.
func TestFormat(t *testing.T) {
	id := [16]byte{0xde, 0xad, 15: 1}
	for _, c := range []struct {
		key  Key
		in   any
		text string
		json string
	}{
		{MirrorKey("m"), &Mirror{Name: "m", Config: map[string]string{"a": "b"}, SourceClusterID: "c", CreatedMs: 1}, "v1/mirror/m",
			`{"v":1,"name":"m","config":{"a":"b"},"sourceClusterId":"c","createdMs":1}`},
		{TopicKey("m", "t"), &Topic{Mirror: "m", Name: "t", SourceID: id, Partitions: 2, ProducerID: 5, PastProducerIDs: []int64{4}, State: 2}, "v1/topic/m/t",
			`{"v":1,"mirror":"m","name":"t","partitions":2,"producerId":5,"pastProducerIds":[4],"state":2,"sourceId":"dead0000000000000000000000000001","destinationId":"00000000000000000000000000000000"}`},
		{TopicKey("m", "t"), &Topic{Mirror: "m", Name: "t", Partitions: 1, ProducerID: 5, DestinationID: id, OriginID: id, Failback: &Failback{
			Phase: FailbackSaving, TopicID: id, OwnOffsets: true, Own: []int64{3}, End: []int64{5}, SavedID: id, Replicas: 3,
			Settings: map[string]string{"a": "b"}}}, "v1/topic/m/t",
			`{"v":1,"mirror":"m","name":"t","partitions":1,"producerId":5,"state":0,"failback":{"phase":"saving","ownOffsets":true,"own":[3],"end":[5],` +
				`"replicas":3,"settings":{"a":"b"},"topicId":"dead0000000000000000000000000001","savedId":"dead0000000000000000000000000001"},` +
				`"sourceId":"00000000000000000000000000000000","destinationId":"dead0000000000000000000000000001","originId":"dead0000000000000000000000000001"}`},
		{PartitionKey("m", "t", 3), &Partition{Mirror: "m", Topic: "t", Partition: 3, State: 8, LastMirrored: 7,
			SourceEpochs: []SourceEpoch{{Epoch: 2, Start: 0}, {Epoch: 5, Start: 4}}, SourceEpochsEnd: 7}, "v1/partition/m/t/3",
			`{"v":1,"mirror":"m","topic":"t","partition":3,"state":8,"lastMirrored":7,"sourceEpochs":[{"epoch":2,"start":0},{"epoch":5,"start":4}],"sourceEpochsEnd":7}`},
		{ACLsKey("m"), &ACLs{Mirror: "m", Added: []byte{1, 2, 3, 4, 5, 6, 7, 8}}, "v1/acls/m",
			`{"v":1,"mirror":"m","added":"AQIDBAUGBwg="}`},
		{ClaimKey("t"), &Claim{Topic: "t", Mirror: "m", ProducerID: 7, Confirmed: true, ClaimedMs: 9}, "v1/claim/t",
			`{"v":1,"topic":"t","mirror":"m","producerId":7,"confirmed":true,"claimedMs":9}`},
		{TopicIDKey("t"), &TopicID{Name: "t", SourceID: id}, "v1/topicid/t",
			`{"v":1,"name":"t","sourceId":"dead0000000000000000000000000001","destinationId":"00000000000000000000000000000000"}`},
		{Key{Kind: KindProducer, Partition: 4, ID: 9}, &Producer{ID: 9}, "v1/producer/4/9", `{"v":1,"id":9}`},
	} {
		require.Equal(t, c.text, c.key.String())
		key, ok := parseKey(c.text)
		require.True(t, ok)
		require.Equal(t, c.key, key)
		data, err := encode(c.key, c.in, nil)
		require.NoError(t, err)
		require.Equal(t, c.json, string(data))
		back, err := decode(c.key, data, nil)
		require.NoError(t, err)
		require.Equal(t, c.in, back)
	}
}

func TestNotAKey(t *testing.T) {
	for _, text := range []string{"", "x", "v1", "v1/mirror", "v1/mirror/", "v1/mirror/a/b", "v2/mirror/a", "v1/partition/m/t/x",
		"v1/partition/m/t/+1", "v1/partition/m/t/01", "v1/partition/m/t/-1", "v1/partition/m/t/2147483648", "v1/topic/m", "v1/producer/1", "v1/nothing/a"} {
		_, ok := parseKey(text)
		require.False(t, ok, text)
	}
}

func TestDamagedValues(t *testing.T) {
	for _, value := range []string{"", "null", "7", "{}", `{"v":1}`, `{"v":"1"}`, `{"v":1,"name":"other"}`, `{"v":1,"name":"m","config":3}`} {
		got, err := decode(MirrorKey("m"), []byte(value), nil)
		require.Error(t, err, value)
		require.Nil(t, got, value)
	}
	_, err := decode(MirrorKey("m"), []byte(`{"v":2}`), nil)
	require.ErrorIs(t, err, ErrNewer)
}

// The hash is that of Kafka's default partitioner, so that anybody can compute a record's place.
func TestHashIsKafkas(t *testing.T) {
	kafka := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	for i := range 500 {
		mirror, topic := fmt.Sprintf("mirror-%d", i), fmt.Sprintf("topic.%d", i*i)
		want := kafka.Partition(&kgo.Record{Key: fmt.Appendf(nil, "%s:%s:%d", mirror, topic, i)}, StatePartitions)
		require.EqualValues(t, want, PartitionFor(mirror, topic, int32(i)))
		want = kafka.Partition(&kgo.Record{Key: []byte(mirror)}, StatePartitions)
		require.EqualValues(t, want, MirrorPartition(mirror))
		require.EqualValues(t, want, TopicKey(mirror, topic).StatePartition())
	}
}

func secretMirror() *Mirror {
	return &Mirror{Name: "m", Config: map[string]string{
		"bootstrap.servers": "a:1", "sasl.jaas.config": "hunter2 jaas", "ssl.keystore.key": "hunter2 key", "ssl.key.password": "hunter2 password",
	}}
}

func TestSecretsAreSealed(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	seal, err := newSealer(key)
	require.NoError(t, err)
	m := secretMirror()
	data, err := encode(MirrorKey("m"), m, seal)
	require.NoError(t, err)
	require.NotContains(t, string(data), "hunter2")
	require.Contains(t, string(data), "enc:v1:")
	require.Equal(t, secretMirror(), m, "the caller's value is left alone")

	back, err := decode(MirrorKey("m"), data, seal)
	require.NoError(t, err)
	require.Equal(t, m, back)

	// With another key the rest is readable, and writing it back does not seal the sealed.
	other, err := newSealer(bytes.Repeat([]byte{8}, 32))
	require.NoError(t, err)
	for _, s := range []*sealer{nil, other} {
		locked, err := decode(MirrorKey("m"), data, s)
		require.ErrorContains(t, err, "sasl.jaas.config")
		again, err := encode(MirrorKey("m"), locked, s)
		require.NoError(t, err)
		back, err = decode(MirrorKey("m"), again, seal)
		require.NoError(t, err)
		require.Equal(t, m, back)
	}
	// A sealed value that was moved to another mirror does not open.
	moved := bytes.Replace(data, []byte(`"name":"m"`), []byte(`"name":"x"`), 1)
	_, err = decode(MirrorKey("x"), moved, seal)
	require.ErrorContains(t, err, "another place")
	_, err = newSealer([]byte("short"))
	require.ErrorContains(t, err, "32")
}

func TestSecretsAreNotPrinted(t *testing.T) {
	m := secretMirror()
	for _, text := range []string{fmt.Sprint(*m), fmt.Sprint(m), fmt.Sprintf("%v %+v %#v %s", *m, m, *m, m), fmt.Sprintf("%+v", []Mirror{*m})} {
		require.NotContains(t, text, "hunter2")
		require.Contains(t, text, "a:1")
	}
	core, logs := observer.New(zap.DebugLevel)
	zap.New(core).Info("x", zap.Any("mirror", *m), zap.Any("pointer", m))
	data, err := json.Marshal(logs.All()[0].ContextMap())
	require.NoError(t, err)
	require.NotContains(t, string(data), "hunter2")
}

func TestSecretsInClearAreWarnedOf(t *testing.T) {
	for _, key := range [][]byte{nil, bytes.Repeat([]byte{1}, 32)} {
		core, logs := observer.New(zap.WarnLevel)
		s, err := openMemory(Config{Log: zap.New(core), SecretKey: key}, newMemoryLog())
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, s.UpdateMirror(within(t), "m", func(c *Mirror) (*Mirror, error) {
				m := secretMirror()
				if c != nil {
					m.CreatedMs = 1
				}
				return m, nil
			}))
		}
		require.NoError(t, s.Close())
		if key == nil {
			require.Equal(t, 1, logs.FilterMessageSnippet("in clear").Len())
		} else {
			require.Zero(t, logs.Len())
		}
	}
}
