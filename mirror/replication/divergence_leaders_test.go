package replication

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// The leaders of a batch of checks are asked for once. One that moved since refuses.
func TestLeadersAreAskedForOnce(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(20, "a", "b"))
	require.NoError(t, err)
	defer fake.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer client.Close()
	for p := range int32(20) {
		for _, topic := range []string{"a", "b"} {
			require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: p, Value: fmt.Append(nil, p)}).FirstErr())
		}
	}
	var asked atomic.Int32
	fake.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if len(req.(*kmsg.MetadataRequest).Topics) > 0 {
			asked.Add(1)
		}
		return nil, nil, false
	})
	batch, err := destinationTails{client}.batch(t.Context(), []string{"a", "b"})
	require.NoError(t, err)
	for p := range int32(20) {
		for _, topic := range []string{"a", "b"} {
			tail, err := batch.read(t.Context(), cluster.TopicPartition{Topic: topic, Partition: p}, nil, 1)
			require.NoError(t, err)
			last, ok := tail.Last()
			require.True(t, ok && last == 0)
		}
	}
	require.EqualValues(t, 1, asked.Load())

	require.NoError(t, fake.MoveTopicPartition("a", 0, 1-fake.LeaderFor("a", 0)))
	_, err = batch.read(t.Context(), cluster.TopicPartition{Topic: "a", Partition: 0}, nil, 1)
	require.Error(t, err)
	_, err = batch.read(t.Context(), cluster.TopicPartition{Topic: "c", Partition: 0}, nil, 1)
	require.ErrorIs(t, err, kerr.LeaderNotAvailable)
}
