package shapes

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var codecs = []kgo.CompressionCodec{
	kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
}

// codecs are those that a release knows: zstd came with 2.1.
func (l *log) codecs() []kgo.CompressionCodec {
	if l.Version() == ancient {
		return codecs[:4]
	}
	return codecs
}

var plainShapes = []shape{
	{
		name: "gapless", on: []string{newest, quorum, zoo, oldest},
		make: func(t *testing.T, l *log) {
			for _, codec := range l.codecs() {
				l.producer(t, plain, idempotent(codec)).fill(10, 20)
			}
		},
		proof: func(f facts) bool { return f.batches == f.records/20 && len(f.codecs) >= 4 && f.magics[2] == f.batches },
	},
	{
		// Before 1.1 a broker does not say which settings are a topic's own, so retention.ms=-1 is not seen, and the
		// destination's retention takes the old records.
		name: "settings-of-an-ancient-source", on: []string{ancient},
		make:  func(t *testing.T, l *log) { l.producer(t).fill(10, 10) },
		proof: func(f facts) bool { return f.records == 100 },
	},
	{
		name: "empty", on: []string{newest, oldest, ancient},
		make:  func(*testing.T, *log) {},
		proof: func(f facts) bool { return f.high == 0 },
	},
	{
		name: "headers-and-nulls", on: []string{newest, zoo, oldest},
		make: func(t *testing.T, l *log) {
			p := l.producer(t)
			for i, key := range [][]byte{nil, {}, []byte("k"), {0, 255, '\n', '\t'}} {
				for j, value := range [][]byte{nil, {}, []byte("v"), {0, 255, '\n', '\t'}} {
					r := record(int64(4*i+j), "", "")
					r.Key, r.Value = key, value
					r.Headers = oddHeaders[(i+j)%len(oddHeaders)]
					p.send(r)
				}
			}
		},
		proof: func(f facts) bool { return f.records == 16 },
	},
	{
		// The destination must not take a new producer of its own for one of these after the move.
		name: "low-producer-ids", on: []string{newest},
		make: func(t *testing.T, l *log) {
			for id := range int64(50) {
				batch := data(0)
				batch.ProducerID, batch.ProducerEpoch, batch.FirstSequence = id, 0, 0
				l.raw(t, batch, oneRecord(id))
			}
		},
		proof: func(f facts) bool { return len(f.producers) == 50 && f.producers[0] },
	},
	{
		name: "compact-and-delete", on: []string{newest},
		configs: map[string]string{"cleanup.policy": "compact,delete"},
		make:    func(t *testing.T, l *log) { l.producer(t).fill(10, 10) },
		proof:   func(f facts) bool { return f.records == 100 },
	},
}

var oddHeaders = [][]kgo.RecordHeader{
	nil,
	{{Key: "null"}, {Key: "empty", Value: []byte{}}, {Key: "", Value: []byte("no name")}},
	{{Key: "twice", Value: []byte("1")}, {Key: "twice", Value: []byte("2")}, {Key: "ünïcödé", Value: []byte{0, 255}}},
}

var timestampShapes = []shape{
	{
		// A mirror topic is CreateTime: no producer can set an append time.
		name: "log-append-time", on: []string{newest, quorum, zoo, oldest},
		configs: map[string]string{"message.timestamp.type": "LogAppendTime"},
		make: func(t *testing.T, l *log) {
			for _, codec := range l.codecs() {
				l.producer(t, plain, idempotent(codec)).fill(3, 10)
			}
			l.transactional(t, "").transaction(kgo.TryCommit, 2, 5)
		},
		proof: func(f facts) bool { return f.appendTime >= 12 && f.minTime >= epochMillis && f.commits == 1 },
	},
	{
		name: "create-time-to-append-time-default", on: []string{newest}, appendTime: true,
		make:  func(t *testing.T, l *log) { l.producer(t).fill(5, 10) },
		proof: func(f facts) bool { return f.records == 50 && f.appendTime == 0 },
	},
	{
		name: "log-append-time-to-append-time-default", on: []string{newest}, appendTime: true,
		configs: map[string]string{"message.timestamp.type": "LogAppendTime"},
		make:    func(t *testing.T, l *log) { l.producer(t, idempotent(kgo.Lz4Compression())).fill(5, 10) },
		proof:   func(f facts) bool { return f.appendTime == 5 },
	},
	{
		name: "timestamps-old-and-future", on: []string{newest},
		configs: map[string]string{"message.timestamp.after.max.ms": "9223372036854775807"},
		make:    func(t *testing.T, l *log) { produceTimestamps(t, l) },
		proof:   func(f facts) bool { return f.minTime == 1 && f.maxTime > 1<<50 },
	},
	{
		name: "timestamps-old-and-future-before-3.6", on: []string{zoo},
		make:  func(t *testing.T, l *log) { produceTimestamps(t, l) },
		proof: func(f facts) bool { return f.minTime == 1 && f.maxTime > 1<<50 },
	},
}

// produceTimestamps writes records of 1 ms, of the year 2100 and of what microseconds look like when taken for milliseconds.
func produceTimestamps(t *testing.T, l *log) {
	p := l.producer(t, plain)
	for i, ms := range []int64{1, epochMillis, 4_102_444_800_000} {
		p.send(&kgo.Record{Key: fmt.Appendf(nil, "alone-%d", i), Timestamp: time.UnixMilli(ms)})
	}
	batch := data(0)
	batch.FirstTimestamp = time.Now().UnixMicro() // franz-go cannot send that
	batch.MaxTimestamp = batch.FirstTimestamp
	l.raw(t, batch, oneRecord(0))
	p.send(&kgo.Record{Key: []byte("a"), Timestamp: time.UnixMilli(4_102_444_800_000)}, &kgo.Record{Key: []byte("b"), Timestamp: time.UnixMilli(1)})
}

const (
	defaultMaxBytes = 1048588
	sourceMaxBytes  = 8 << 20
	tinyBatches     = 200_000
)

var sizeShapes = []shape{
	{
		name: "one-record-batches", on: []string{newest},
		make: func(*testing.T, *log) {},
		disk: func(t *testing.T, l *log, dir string) {
			var segment []byte
			for i := range int64(tinyBatches) {
				segment = append(segment, tinyBatch(i)...)
			}
			writeSegment(t, dir, 0, segment)
		},
		proof: func(f facts) bool { return f.batches == tinyBatches && f.records == tinyBatches },
	},
	{
		name: "one-record-batches-of-all-codecs", on: []string{newest},
		make: func(*testing.T, *log) {},
		disk: func(t *testing.T, l *log, dir string) {
			var segment []byte
			for i := range int64(tinyBatches / 10) {
				segment = append(segment, compress(t, tinyBatch(i), i/700%5)...)
			}
			writeSegment(t, dir, 0, segment)
		},
		proof: func(f facts) bool { return f.batches == tinyBatches/10 && f.records == f.batches && len(f.codecs) == 5 },
	},
	{
		name: "batch-at-the-default-limit", on: []string{newest},
		make: func(t *testing.T, l *log) {
			value := make([]byte, defaultMaxBytes-encodedSize(0))
			for encodedSize(len(value)) > defaultMaxBytes {
				value = value[1:]
			}
			l.raw(t, data(0), kmsg.Record{Value: value})
			l.producer(t).fill(1, 1)
		},
		proof: func(f facts) bool { return f.largest == defaultMaxBytes },
	},
	{
		name: "batch-above-the-default-limit", on: []string{newest, oldest},
		make: func(t *testing.T, l *log) {
			p := l.producer(t)
			p.fill(1, 1)
			p.send(&kgo.Record{Value: make([]byte, 5<<20), Timestamp: time.UnixMilli(epochMillis)})
			p.send(record(2, "after", "it"))
		},
		proof: func(f facts) bool { return f.largest > 5<<20 && f.records == 3 },
	},
}

// tinyBatch is what a producer writes that does not linger. No two records in a row are alike, nor in order of time.
func tinyBatch(offset int64) []byte {
	r := kmsg.Record{Value: fmt.Appendf(nil, "v%d", offset)}
	if offset%3 > 0 {
		r.Key = fmt.Appendf(nil, "k%d", offset%97)
	}
	if offset%5 == 0 {
		r.Headers = []kmsg.Header{{Key: "h", Value: nil}, {Key: "", Value: []byte{0}}}
	}
	if offset%7 == 0 {
		r.Value = nil
	}
	batch := data(offset)
	batch.FirstTimestamp += offset * 7919 % 100_000
	batch.MaxTimestamp = batch.FirstTimestamp
	return encode(batch, r)
}

// compress gives a batch a codec, by its number in the attributes.
func compress(t *testing.T, batch []byte, codec int64) []byte {
	t.Helper()
	var out bytes.Buffer
	compressor, err := kgo.DefaultCompressor(codecs[codec])
	if err != nil {
		t.Fatal(err)
	}
	records := batch[61:]
	if compressor != nil {
		records, _ = compressor.Compress(&out, records)
	}
	batch = append(batch[:61:61], records...)
	batch[22] = byte(codec)
	binary.BigEndian.PutUint32(batch[8:], uint32(len(batch)-12))
	binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
	return batch
}

func encodedSize(value int) int { return len(encode(data(0), kmsg.Record{Value: make([]byte, value)})) }
