package recordbatch

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// TestRebuiltOnBroker writes what a Rebuilder makes of the captured logs to the broker at MIRRORGATE_BROKER (any version),
// each batch with sequence = offset, and reads it back: it must be stored as it was sent, timestamps of -1 included.
func TestRebuiltOnBroker(t *testing.T) {
	address := os.Getenv("MIRRORGATE_BROKER")
	if address == "" {
		t.Skip("MIRRORGATE_BROKER is not set")
	}
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(0, 12) // by name
	versions.SetMaxKeyVersion(1, 12)
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.MaxVersions(versions))
	require.NoError(t, err)
	defer client.Close()
	files, err := filepath.Glob("testdata/*.bin")
	require.NoError(t, err)
	for producer, file := range files {
		topic := fmt.Sprintf("rebuilt-%d-%s", time.Now().UnixNano(), filepath.Base(file))
		_, err := kadm.NewClient(client).CreateTopic(context.Background(), 1, 1, nil, topic)
		require.NoError(t, err)
		log, err := os.ReadFile(file)
		require.NoError(t, err)
		var want []seen
		r, at := Rebuilder{}, int64(0)
		r.Begin(0, func(p Piece) error {
			if p.Kind == Gap {
				for i := p.Base; i < p.Next; i++ {
					filler := AppendFiller(nil, 1, false, p.Timestamp)
					Stamp(filler, int64(1000+producer), 0, Sequence(i))
					produceRaw(t, client, topic, filler, i)
				}
				return nil
			}
			Stamp(p.Batch, int64(1000+producer), 0, Sequence(p.Base))
			produceRaw(t, client, topic, p.Batch, p.Base)
			binary.BigEndian.PutUint64(p.Batch, uint64(p.Base))
			want = append(want, decodeAll(t, p.Batch)...)
			return nil
		})
		for len(log) > 0 {
			batch, rest, err := Next(log)
			require.NoError(t, err)
			require.NoError(t, r.Add(batch))
			log = rest
		}
		stats, err := r.End()
		require.NoError(t, err)
		var got []seen
		for at < stats.Next {
			for raw := fetchRaw(t, client, topic, at); len(raw) > 0; {
				batch, rest, err := Next(raw)
				require.NoError(t, err)
				h, err := ParseHeader(batch)
				require.NoError(t, err)
				if raw, at = rest, h.NextOffset(); !h.Filler() {
					got = append(got, decodeAll(t, batch)...)
				}
			}
		}
		require.Equal(t, want, got, topic)
	}
}

func produceRaw(t *testing.T, client *kgo.Client, topic string, batch []byte, base int64) {
	req := kmsg.NewProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: batch}}}}
	var answer kmsg.ProduceResponseTopicPartition
	require.Eventually(t, func() bool { // a new topic has no leader for a moment
		resp, err := req.RequestWith(context.Background(), client.Broker(1))
		require.NoError(t, err)
		answer = resp.Topics[0].Partitions[0]
		return answer.ErrorCode != kerr.NotLeaderForPartition.Code && answer.ErrorCode != kerr.UnknownTopicOrPartition.Code
	}, 20*time.Second, 50*time.Millisecond)
	require.Zero(t, answer.ErrorCode, "%s at %d", topic, base)
	require.Equal(t, base, answer.BaseOffset)
}

func fetchRaw(t *testing.T, client *kgo.Client, topic string, offset int64) []byte {
	req := kmsg.NewFetchRequest()
	req.MaxWaitMillis, req.MaxBytes = 500, 1<<20
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = offset, 1<<20
	req.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	resp, err := req.RequestWith(context.Background(), client.Broker(1))
	require.NoError(t, err)
	require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode, topic)
	return resp.Topics[0].Partitions[0].RecordBatches
}
