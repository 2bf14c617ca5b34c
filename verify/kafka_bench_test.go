package verify

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// BenchmarkOnKafka verifies a topic against itself, on one real broker: 6 partitions, 1 kB random values, uncompressed. MB/s are
// those of the source; as much again is read of the destination. The brokers and the benchmark share the machine.
// MIRRORGATE_BENCH_MB sets the size (600).
func BenchmarkOnKafka(b *testing.B) {
	megabytes := 600
	if text := os.Getenv("MIRRORGATE_BENCH_MB"); text != "" {
		_, err := fmt.Sscan(text, &megabytes)
		require.NoError(b, err)
	}
	cluster := kafkatest.Start(b, kafkatest.Options{Heap: "1g", Throughput: true})
	write(b, cluster.Bootstrap(), megabytes<<10)
	opts := Options{
		Source: broker.Config{Bootstrap: []string{cluster.Bootstrap()}}, Destination: broker.Config{Bootstrap: []string{cluster.Bootstrap()}},
		Topics: []string{"t"},
	}
	var bytes int64
	for b.Loop() {
		r, err := Run(b.Context(), opts)
		require.NoError(b, err)
		require.True(b, r.Equal)
		require.EqualValues(b, megabytes<<10, r.Records)
		bytes += r.Bytes / 2
	}
	b.ReportMetric(float64(bytes)/1e6/b.Elapsed().Seconds(), "MB/s")
}

func write(b *testing.B, bootstrap string, records int) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(900_000))
	require.NoError(b, err)
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(b.Context(), 6, 1, nil, "t")
	require.NoError(b, err)
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	var mu sync.Mutex
	var first error
	for i := range records {
		at := rand.IntN(len(noise) - 1000)
		client.Produce(context.Background(), &kgo.Record{Partition: int32(i / 800 % 6), Value: noise[at : at+1000]}, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil && first == nil {
				first = err
			}
		})
	}
	require.NoError(b, client.Flush(b.Context()))
	require.NoError(b, first)
}
