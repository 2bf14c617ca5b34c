package recordbatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// oldClient is a client of the broker that testdata is captured from: the environment variable MIRRORGATE_CAPTURE is its
// address. It has to be a version that still writes the formats v0 and v1, such as 2.8.
func oldClient(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	address := os.Getenv("MIRRORGATE_CAPTURE")
	if address == "" {
		t.Skip("MIRRORGATE_CAPTURE is not set")
	}
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(address), kgo.DisableIdempotentWrite(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

var captureCodecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// TestCapture makes topics on an old broker and writes what it answers to a fetch to testdata/NAME.bin. NAME.txt, the
// reader's view to compare with, is written by hand with Kafka's own consumer:
//
//	kafka-console-consumer --topic NAME --from-beginning --timeout-ms 8000 --property print.timestamp=true
//	  --property print.offset=true --property print.key=true --property null.literal=NULL
func TestCapture(t *testing.T) {
	formats := map[string]string{"v0": "0.9.0", "v1": "0.10.2", "v2": "2.8"}
	for format, version := range formats {
		for codec, compression := range captureCodecs {
			if codec == "zstd" && format != "v2" {
				continue
			}
			client := oldClient(t, kgo.ProducerBatchCompression(compression))
			capturePlain(t, client, format+"-"+codec, map[string]string{"message.format.version": version})
			capturePlain(t, client, format+"-append-"+codec, map[string]string{
				"message.format.version": version, "message.timestamp.type": "LogAppendTime",
			})
			captureCompacted(t, client, format+"-compacted-"+codec, map[string]string{
				"message.format.version": version, "cleanup.policy": "compact", "segment.ms": "500",
				"min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "1000", "delete.retention.ms": "600000",
			})
		}
	}
	captureInPlace(t)
}

func captureTopic(t *testing.T, client *kgo.Client, topic string, configs map[string]string) {
	values := map[string]*string{"retention.ms": kmsg.StringPtr("-1")} // the timestamps are old
	for k, v := range configs {
		values[k] = kmsg.StringPtr(v)
	}
	_, err := kadm.NewClient(client).CreateTopic(context.Background(), 1, 1, values, topic)
	require.NoError(t, err, topic)
}

func captureSend(t *testing.T, client *kgo.Client, topic string, records ...*kgo.Record) {
	for _, r := range records {
		r.Topic = topic
	}
	require.NoError(t, client.ProduceSync(context.Background(), records...).FirstErr(), topic)
}

func captureRecord(ms int64, key, value string) *kgo.Record {
	r := &kgo.Record{Timestamp: time.UnixMilli(ms)}
	if key != "NULL" {
		r.Key = []byte(key)
	}
	if value != "NULL" {
		r.Value = []byte(value)
	}
	return r
}

const captureTime = 1_600_000_000_000

func capturePlain(t *testing.T, client *kgo.Client, topic string, configs map[string]string) {
	captureTopic(t, client, topic, configs)
	long := strings.Repeat("ab", 300)
	captureSend(t, client, topic, captureRecord(captureTime, "a", "first"), captureRecord(captureTime-5, "NULL", "no key"),
		captureRecord(captureTime+70_000, "b", "NULL"), captureRecord(captureTime+1, "", ""), captureRecord(captureTime+2, "long", long))
	captureSend(t, client, topic, captureRecord(1, "alone", "one"))
	captureSend(t, client, topic, captureRecord(captureTime+3, "x", long), captureRecord(captureTime+4, "y", long))
	captureFetch(t, client, topic)
}

func captureCompacted(t *testing.T, client *kgo.Client, topic string, configs map[string]string) {
	captureTopic(t, client, topic, configs)
	filling := strings.Repeat("compact ", 20)
	for round := range 3 {
		var records []*kgo.Record
		for i, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			if round == 0 || i%(round+2) == 1 {
				records = append(records, captureRecord(captureTime+int64(100*round+i), key, key+filling))
			}
		}
		captureSend(t, client, topic, records...)
		time.Sleep(600 * time.Millisecond) // segment.ms
	}
	captureSend(t, client, topic, captureRecord(captureTime+1000, "z", "z")) // rolls, so that the others can be cleaned
	deadline := time.Now().Add(90 * time.Second)
	for time.Now().Before(deadline) {
		if records := decodeAll(t, captureRaw(t, client, topic)); len(records) == 9 {
			captureFetch(t, client, topic)
			return
		}
		time.Sleep(time.Second)
	}
	t.Errorf("%s was not compacted", topic)
}

// captureInPlace sends a wrapper of format v1 as old clients did. The broker gives it an offset and an append time by
// changing the wrapper alone.
func captureInPlace(t *testing.T) {
	client := oldClient(t)
	configs := map[string]string{"message.format.version": "0.10.2", "message.timestamp.type": "LogAppendTime"}
	captureTopic(t, client, "v1-inplace-gzip", configs)
	var inner []byte
	for i := range 3 {
		inner = appendOld(inner, int64(i), 1, 0, captureTime+int64(i), []byte("key"), []byte("value"))
	}
	value, err := appendCompressed(nil, Gzip, inner)
	require.NoError(t, err)
	for range 2 {
		req := kmsg.NewProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 5000
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: "v1-inplace-gzip", Partitions: []kmsg.ProduceRequestTopicPartition{
			{Records: appendOld(nil, 2, 1, int8(Gzip), captureTime+2, nil, value)},
		}}}
		versions := kversion.Stable()
		versions.SetMaxKeyVersion(0, 2)
		resp, err := req.RequestWith(context.Background(), oldClient(t, kgo.MaxVersions(versions)).Broker(1))
		require.NoError(t, err)
		require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
	}
	captureFetch(t, client, "v1-inplace-gzip")
}

// captureRaw returns all bytes of partition 0.
func captureRaw(t *testing.T, client *kgo.Client, topic string) []byte {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(1, 12) // by name
	by := oldClient(t, kgo.MaxVersions(versions))
	req := kmsg.NewFetchRequest()
	req.MaxWaitMillis, req.MaxBytes = 500, 1<<20
	p := kmsg.NewFetchRequestTopicPartition()
	p.PartitionMaxBytes = 1 << 20
	req.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	var raw []byte
	for { // a fetch does not go beyond a segment
		at := &req.Topics[0].Partitions[0].FetchOffset
		resp, err := req.RequestWith(context.Background(), by.Broker(1))
		require.NoError(t, err)
		answer := resp.Topics[0].Partitions[0]
		require.Zero(t, answer.ErrorCode, topic)
		for b := answer.RecordBatches; len(b) > 0; {
			batch, rest, err := Next(b)
			require.NoError(t, err)
			h, err := ParseHeader(batch)
			if !errors.Is(err, ErrOldFormat) {
				require.NoError(t, err)
			}
			raw, b, *at = append(raw, batch...), rest, h.NextOffset()
		}
		if *at >= answer.HighWatermark {
			return raw
		}
	}
}

func captureFetch(t *testing.T, client *kgo.Client, topic string) {
	require.NoError(t, os.MkdirAll("testdata", 0o755))
	require.NoError(t, os.WriteFile(filepath.Join("testdata", topic+".bin"), captureRaw(t, client, topic), 0o644))
}
