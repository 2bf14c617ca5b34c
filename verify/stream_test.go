package verify

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// message makes a message of format v0 (timestamp < 0) or v1.
func message(offset, timestamp int64, value string) []byte {
	var raw []byte
	if timestamp < 0 {
		m := kmsg.MessageV0{Offset: offset, MessageSize: int32(14 + len(value)), Value: []byte(value)}
		raw = m.AppendTo(nil)
	} else {
		m := kmsg.MessageV1{Offset: offset, MessageSize: int32(22 + len(value)), Magic: 1, Timestamp: timestamp, Value: []byte(value)}
		raw = m.AppendTo(nil)
	}
	binary.BigEndian.PutUint32(raw[12:], crc32.ChecksumIEEE(raw[16:]))
	return raw
}

// A log that began with an old message format and went on with v2, cut off in the middle of a batch as brokers do.
func TestOldFormats(t *testing.T) {
	var log []byte
	log = append(log, message(0, -1, "old")...)
	log = append(log, message(1, 5, "less old")...)
	batch := recordbatch.AppendFence(nil, true, 7)
	recordbatch.Stamp(batch, 1, 0, 0)
	binary.BigEndian.PutUint64(batch, 2)
	log = append(log, batch...)
	log = append(log, message(3, 6, "a follower with an old format led for a while")...)
	log = append(log, batch[:30]...)

	s := &stream{side: &side{name: "destination", mirror: true}, topic: "t", from: 0, to: 100}
	f, next, err := s.take(context.Background(), &kmsg.FetchResponseTopicPartition{RecordBatches: log, HighWatermark: 4}, 0)
	require.NoError(t, err)
	require.EqualValues(t, 4, next)
	require.EqualValues(t, 1, f.fillers)
	require.Len(t, f.items, 2)
	old := f.items[0].old
	require.Len(t, old, 2)
	require.Equal(t, record{offset: 0, timestamp: -1, key: old[0].key, value: []byte("old")}, old[0])
	require.Equal(t, record{offset: 1, timestamp: 5, key: old[1].key, value: []byte("less old")}, old[1])
	require.EqualValues(t, 3, f.items[1].old[0].offset)
}

// Captured from a real broker, with what Kafka's own consumer reads of it: the times are those of the message around the
// compressed records, which the broker gave, and not those of their producer inside.
func TestOldFormatAppendTime(t *testing.T) {
	for _, name := range []string{"v1-append-gzip", "v1-append-none", "v1-inplace-gzip"} {
		t.Run(name, func(t *testing.T) {
			log, err := os.ReadFile("../recordbatch/testdata/" + name + ".bin")
			require.NoError(t, err)
			dump, err := os.ReadFile("../recordbatch/testdata/" + name + ".txt")
			require.NoError(t, err)
			s := &stream{side: &side{name: "source"}, topic: "t", from: 0, to: 1 << 40}
			f, _, err := s.take(context.Background(), &kmsg.FetchResponseTopicPartition{RecordBatches: log, HighWatermark: 1 << 40}, 0)
			require.NoError(t, err)
			var got, want []string
			for _, item := range f.items {
				for _, r := range item.old {
					kind := "CreateTime"
					if r.append {
						kind = "LogAppendTime"
					}
					got = append(got, fmt.Sprintf("%s:%d\tOffset:%d", kind, r.timestamp, r.offset))
				}
			}
			for line := range strings.Lines(string(dump)) {
				fields := strings.SplitN(line, "\t", 3)
				want = append(want, fields[0]+"\t"+fields[1])
			}
			require.Equal(t, want, got)
		})
	}
}

// What looks like a filler at the source is a record of a user, and must be at the destination too.
func TestNoFillersAtTheSource(t *testing.T) {
	batch := recordbatch.AppendFiller(nil, 3, false, 7)
	recordbatch.Stamp(batch, 1, 0, 0)
	for _, mirror := range []bool{false, true} {
		s := &stream{side: &side{mirror: mirror}, topic: "t", from: 0, to: 100}
		f, _, err := s.take(context.Background(), &kmsg.FetchResponseTopicPartition{RecordBatches: batch, HighWatermark: 3}, 0)
		require.NoError(t, err)
		require.Equal(t, mirror, f.fillers == 3)
		require.Equal(t, mirror, len(f.items) == 0)
	}
}

// A damaged batch is an error, not a difference and not a panic.
func TestDamagedBatch(t *testing.T) {
	batch := recordbatch.AppendFence(nil, false, 7)
	recordbatch.Stamp(batch, 1, 0, 0)
	s := &stream{side: &side{name: "source"}, topic: "t", from: 0, to: 100}
	for i := range batch[8:] {
		damaged := append([]byte(nil), batch...)
		damaged[8+i] ^= 0xff
		_, _, err := s.take(context.Background(), &kmsg.FetchResponseTopicPartition{RecordBatches: damaged, HighWatermark: 3}, 0)
		if i >= 4 && i < 8 {
			continue // the leader epoch is not part of the checksum
		}
		require.Error(t, err, "byte %d", 8+i)
	}
}

// A new leader may not know the high watermark yet: an empty answer below it is no end.
func TestEmptyAnswerBeforeTheEnd(t *testing.T) {
	s := &stream{side: &side{name: "source"}, topic: "t", from: 0, to: 100}
	_, next, err := s.take(context.Background(), &kmsg.FetchResponseTopicPartition{HighWatermark: 50}, 10)
	require.NoError(t, err)
	require.EqualValues(t, 10, next)
	_, next, err = s.take(context.Background(), &kmsg.FetchResponseTopicPartition{HighWatermark: 100}, 10)
	require.NoError(t, err)
	require.EqualValues(t, 100, next)
}
