package replication

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

func TestInside(t *testing.T) {
	data := append(testBatch(0, 5), testBatch(5, 5)...)
	for offset, want := range map[int64]bool{0: false, 3: true, 5: false, 7: true, 10: false} {
		require.Equal(t, want, inside(data, offset), offset)
	}
	require.False(t, inside(data[:20], 3))
}

// The tail of a destination on a broker, with fillers behind the last record, and the explanations of its log start.
func TestDestinationTails(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "a", "empty", "fillers"))
	require.NoError(t, err)
	defer fake.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.ProducerLinger(0))
	require.NoError(t, err)
	defer client.Close()
	d := Config{DestinationAdmin: client}.tails()
	key := cluster.TopicPartition{Topic: "a", Partition: 0}
	for i := range 3 {
		require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: "a", Value: fmt.Appendf(nil, "value %d", i)}).FirstErr())
	}
	const producer = 777
	produceRaw(t, client.Broker(0), "a", recordbatch.AppendFiller(nil, 5, false, 1000), producer, 0)
	produceRaw(t, client.Broker(0), "a", recordbatch.AppendFiller(nil, 1, true, 1000), producer, 5)
	last := func(end int64, producers ...int64) string {
		tail, err := d.read(t.Context(), key, producers, end)
		require.NoError(t, err)
		offset, ok := tail.Last()
		return fmt.Sprint(tail.Start, " ", offset, " ", ok)
	}
	require.Equal(t, "0 2 true", last(9, 5, producer))
	require.Equal(t, "0 8 true", last(9), "of another producer, that is a record")
	require.Equal(t, "0 1 true", last(2))

	admin := kadm.NewClient(client)
	offsets := make(kadm.Offsets)
	offsets.AddOffset("a", 0, 3, -1)
	_, err = admin.DeleteRecords(t.Context(), offsets)
	require.NoError(t, err)
	require.Equal(t, "3 -1 false", last(9, producer), "only fillers are left")
	require.Equal(t, "3 -1 false", last(2), "below the log start")

	require.Empty(t, d.trimmed(t.Context(), key, 3, 0), "retention can have done it")
	set := func(name, value string) {
		_, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, "a")
		require.NoError(t, err)
	}
	set("retention.ms", "-1")
	why := d.trimmed(t.Context(), key, 3, 0)
	require.Contains(t, why, "trimmed: the destination log starts at 3, the source's at 0")
	require.Contains(t, why, "somebody deleted records 0 to 2 behind the gateway; way out: remove")
	set("retention.bytes", "1000")
	require.Empty(t, d.trimmed(t.Context(), key, 3, 0))
	set("cleanup.policy", "compact")
	require.Contains(t, d.trimmed(t.Context(), key, 3, 0), "cleanup.policy=compact")

	_, err = d.read(t.Context(), cluster.TopicPartition{Topic: "nowhere", Partition: 0}, nil, 9)
	require.Error(t, err)
}

// produceRaw appends a batch at the end of partition 0, which the broker leads.
func produceRaw(t *testing.T, leader *kgo.Broker, topic string, batch []byte, producer int64, sequence int32) {
	t.Helper()
	recordbatch.Stamp(batch, producer, 0, sequence)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = batch
	req.Topics = append(req.Topics, kmsg.ProduceRequestTopic{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{p}})
	resp, err := leader.Request(t.Context(), namedProduce{req})
	require.NoError(t, err)
	require.Zero(t, resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}

// namedProduce is a Produce of at most the last version that names topics.
type namedProduce struct{ *kmsg.ProduceRequest }

func (namedProduce) MaxVersion() int16 { return 12 }
