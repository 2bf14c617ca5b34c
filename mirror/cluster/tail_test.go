package cluster

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// tailBatch makes an uncompressed v2 batch of records at the given offsets: "value N", 100 ms apart.
func tailBatch(attributes int16, epoch int32, base, last int64, offsets ...int64) []byte {
	var payload []byte
	for _, offset := range offsets {
		r := kmsg.Record{OffsetDelta: int32(offset - base), TimestampDelta64: 100 * (offset - base), Key: []byte("k"), Value: fmt.Appendf(nil, "value %d", offset)}
		body := r.AppendTo(nil)[1:] // without the length 0
		r.Length = int32(len(body))
		payload = r.AppendTo(payload)
	}
	b := kmsg.RecordBatch{
		FirstOffset: base, Length: int32(recordbatch.HeaderSize - 12 + len(payload)), PartitionLeaderEpoch: epoch, Magic: 2, Attributes: attributes,
		LastOffsetDelta: int32(last - base), FirstTimestamp: 1_000_000 + 100*base, MaxTimestamp: 1_000_000 + 100*last,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(len(offsets)), Records: payload,
	}
	return b.AppendTo(nil)
}

// tailOf is the tail of a destination that holds these batches.
func tailOf(t *testing.T, end int64, batches ...[]byte) Tail {
	t.Helper()
	var tail Tail
	for _, b := range batches {
		filler, _, err := tail.Take(b, nil, end, nil)
		require.NoError(t, err)
		require.False(t, filler)
	}
	return tail
}

func TestTailComparison(t *testing.T) {
	const logAppendTime, control = 1 << 3, 1<<5 | 1<<4
	mirrored := tailBatch(0, -1, 10, 14, 10, 11, 12, 13, 14)
	shifted := tailBatch(0, 5, 10, 14, 10, 11, 12, 13, 14)
	shifted[34] ^= 1 // the first timestamp
	changed := tailBatch(0, 5, 10, 14, 10, 11, 12, 13, 14)
	changed[len(changed)-3] ^= 1
	for _, tt := range []struct {
		name   string
		ours   []byte
		theirs []byte
		want   string
	}{
		{"the same batch", mirrored, tailBatch(0, 5, 10, 14, 10, 11, 12, 13, 14), "same, epoch 5"},
		{"compacted to less", mirrored, tailBatch(0, 5, 10, 14, 11, 14), "same, epoch 5"},
		{"compacted to nothing", mirrored, tailBatch(0, 5, 10, 14), "unproved"},
		{"the last one compacted", mirrored, tailBatch(0, 5, 10, 14, 10, 12), "unproved"},
		{"a later batch", mirrored, tailBatch(0, 5, 15, 16, 15, 16), "unproved"},
		{"nothing", mirrored, nil, "unproved"},
		{"part of a batch", mirrored, mirrored[:40], "unproved"},
		{"in parts at the source", mirrored, append(tailBatch(0, 4, 10, 12, 10, 11, 12), tailBatch(0, 5, 13, 14, 13, 14)...), "same, epoch 5"},
		{"other timestamps", mirrored, shifted, "10: timestamp 1001001, mirrored was 1001000"},
		{"another value", mirrored, changed, "14: other key, value or headers"},
		{"a marker", mirrored, tailBatch(control, 5, 14, 14, 14), "14: a transaction marker at the source"},
		{"append times", tailBatch(0, -1, 14, 14, 14), tailBatch(logAppendTime, 5, 10, 14, 10, 11, 12, 13, 14), "same, epoch 5"},
		{"append times, mirrored otherwise", mirrored, tailBatch(logAppendTime, 5, 10, 14, 10, 11, 12, 13, 14), "10: timestamp 1001400, mirrored was 1001000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tail := tailOf(t, 15, tt.ours)
			verdict, err := tail.Compare(tt.theirs)
			require.NoError(t, err)
			got := "unproved"
			switch {
			case verdict.Differs != "":
				got = fmt.Sprintf("%d: %s", verdict.Offset, verdict.Differs)
			case verdict.Same:
				got = fmt.Sprintf("same, epoch %d", verdict.Epoch)
			}
			require.Contains(t, got, tt.want)
		})
	}
	tail := tailOf(t, 15, mirrored)
	broken := tailBatch(0, 5, 10, 14, 10, 11, 12, 13, 14)
	_, err := tail.Compare(broken[:len(broken)-4])
	require.NoError(t, err, "cut short")
	broken[recordbatch.HeaderSize] = 0x7f
	_, err = tail.Compare(broken)
	require.Error(t, err)
}

// Message formats v0 and v1: v0 has no timestamps.
func TestTailComparisonOfOldFormats(t *testing.T) {
	tail := tailOf(t, 15, tailBatch(0, -1, 14, 14, 14))
	v0 := kmsg.MessageV0{Offset: 14, Magic: 0, Key: []byte("k"), Value: []byte("value 14")}
	v1 := kmsg.MessageV1{Offset: 14, Magic: 1, Timestamp: 1_001_400, Key: []byte("k"), Value: []byte("value 14")}
	seal := func(message []byte) []byte {
		binary.BigEndian.PutUint32(message[8:], uint32(len(message)-12))
		binary.BigEndian.PutUint32(message[12:], crc32.ChecksumIEEE(message[16:]))
		return message
	}
	for _, message := range [][]byte{seal(v0.AppendTo(nil)), seal(v1.AppendTo(nil))} {
		verdict, err := tail.Compare(message)
		require.NoError(t, err)
		require.Equal(t, Verdict{Same: true, Epoch: -1}, verdict)
	}
	v1.Timestamp++
	verdict, err := tail.Compare(seal(v1.AppendTo(nil)))
	require.NoError(t, err)
	require.Equal(t, "timestamp 1001401, mirrored was 1001400", verdict.Differs)
}

// Of a batch with many records, the last ones are kept.
func TestTailKeepsTheLastRecords(t *testing.T) {
	var offsets []int64
	for i := range int64(2500) {
		offsets = append(offsets, i)
	}
	tail := tailOf(t, 2500, tailBatch(0, -1, 0, 2499, offsets...))
	require.LessOrEqual(t, len(tail.records), mostTailRecords)
	last, ok := tail.Last()
	require.True(t, ok)
	require.EqualValues(t, 2499, last)
}
