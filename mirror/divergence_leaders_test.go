package mirror

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The leaders of a batch of checks are asked for once. One that moved since refuses.
func TestLeadersAreAskedForOnce(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(20, "a", "b"))
	require.NoError(t, err)
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer client.Close()
	for p := range int32(20) {
		for _, topic := range []string{"a", "b"} {
			require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: p, Value: fmt.Append(nil, p)}).FirstErr())
		}
	}
	var asked atomic.Int32
	cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if len(req.(*kmsg.MetadataRequest).Topics) > 0 {
			asked.Add(1)
		}
		return nil, nil, false
	})
	batch, err := destinationTails{client}.batch(t.Context(), []string{"a", "b"})
	require.NoError(t, err)
	for p := range int32(20) {
		for _, topic := range []string{"a", "b"} {
			tail, err := batch.read(t.Context(), partitionKey{topic, p}, nil, 1)
			require.NoError(t, err)
			last, ok := tail.last()
			require.True(t, ok && last == 0)
		}
	}
	require.EqualValues(t, 1, asked.Load())

	require.NoError(t, cluster.MoveTopicPartition("a", 0, 1-cluster.LeaderFor("a", 0)))
	_, err = batch.read(t.Context(), partitionKey{"a", 0}, nil, 1)
	require.Error(t, err)
	_, err = batch.read(t.Context(), partitionKey{"c", 0}, nil, 1)
	require.ErrorIs(t, err, kerr.LeaderNotAvailable)
}
