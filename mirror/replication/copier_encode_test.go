package replication

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// recordsBatch is a batch with the given records at base.
func recordsBatch(base int64, attributes int16, records ...kmsg.Record) []byte {
	b := kmsg.RecordBatch{FirstOffset: base, PartitionLeaderEpoch: 3, Magic: 2, Attributes: attributes, FirstTimestamp: 1000, MaxTimestamp: 1000, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1}
	for i, r := range records {
		r.OffsetDelta = int32(i)
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		b.Records = r.AppendTo(b.Records)
	}
	b.NumRecords, b.LastOffsetDelta = int32(len(records)), int32(len(records)-1)
	b.Length = int32(recordbatch.HeaderSize - 12 + len(b.Records))
	bytes := b.AppendTo(nil)
	fixCRC(bytes)
	return bytes
}

func TestEncode(t *testing.T) {
	appendTime := setAttributes(func(a int16) int16 { return a | 1<<3 })
	for _, tt := range []struct {
		name     string
		position int64
		data     []byte
		want     string
	}{
		{"a marker between data", 5, join(testBatch(5, 3), testBatch(8, 1, marker(9)), testBatch(9, 2)), "5-7, gap 8-8, 9-10"},
		{"gaps that meet are one", 5, join(testBatch(6, 1, marker(9)), testBatch(7, 1, noRecords, lastDelta(3)), testBatch(20, 1)), "gap 5-19, 20-20"},
		{"a hole at the end of a batch, and an empty one behind", 5, join(testBatch(5, 3, lastDelta(5)), testBatch(11, 1, noRecords)), "5-7, gap 8-11"},
		{"the position inside a batch", 6, testBatch(5, 3), "6-7"},
		{"the position behind the records that are left", 9, testBatch(5, 3, lastDelta(9)), "gap 9-14"},
		{"append times", 5, testBatch(5, 3, appendTime), "5-7"},
		{"append times, adjacent batches", 5, join(testBatch(5, 3, appendTime), testBatch(8, 2, appendTime)), "5-9"},
		{"beyond 2^31", 0, testBatch(5e9, 1), "gap 0-4999999999, 5000000000-5000000000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c copier
			e := c.encode(nil, c.copy(tt.position, tt.data, nil).outputs, copyOptions{}, instant{})
			require.Nil(t, e.problem)
			var got []string
			next := tt.position
			for _, p := range e.pieces {
				got = append(got, p.String())
				require.Equal(t, next, p.from)
				next = p.next
			}
			require.Equal(t, tt.want, strings.Join(got, ", "))
		})
	}
}

// Append times become the records' own.
func TestEncodeKeepsAppendTimes(t *testing.T) {
	var c copier
	batch := testBatch(5, 3, setAttributes(func(a int16) int16 { return a | 1<<3 }), func(b []byte) { binary.BigEndian.PutUint64(b[35:], 77000) })
	e := c.encode(nil, c.copy(5, batch, nil).outputs, copyOptions{}, instant{})
	require.Len(t, e.pieces, 1)
	require.EqualValues(t, 77000, e.pieces[0].timestamp)
	require.NoError(t, recordbatch.Records(e.pieces[0].batch, func(r recordbatch.Record) error {
		require.EqualValues(t, 77000, r.Timestamp)
		return nil
	}))
}

// What a user writes is never hidden, whatever it looks like: it is copied so that it cannot be taken for a filler, or refused.
func TestEncodeOfWhatLooksLikeFillers(t *testing.T) {
	key := recordbatch.FillerKey()
	gap := kmsg.Record{Headers: []kmsg.Header{{Key: recordbatch.GapHeader}}}
	tombstone := kmsg.Record{Key: key}
	other := kmsg.Record{Key: []byte("k"), Value: []byte("v")}
	for _, tt := range []struct {
		name      string
		data      []byte
		compacted bool
		refused   bool
	}{
		{"a marked batch with the gap header", recordsBatch(5, 1<<7, gap), false, false},
		{"the same on a compacted topic", recordsBatch(5, 1<<7, gap), true, false},
		{"a marked batch with the key", recordsBatch(5, 1<<7, tombstone, other), false, false},
		{"an unmarked batch with the key", recordsBatch(5, 0, tombstone, other), false, false},
		{"the key on a compacted topic", recordsBatch(5, 0, tombstone), true, true},
		{"the key behind other records, which compaction may remove", recordsBatch(5, 0, other, other, tombstone), true, true},
		{"the key with a value: fillers would supersede it", recordsBatch(5, 0, kmsg.Record{Key: key, Value: []byte("v")}), true, true},
		{"the key inside a value", recordsBatch(5, 0, kmsg.Record{Key: []byte("k"), Value: append([]byte("x"), key...)}), true, false},
		{"the key in a batch that is encoded anew", recordsBatch(5, 1<<3, other, tombstone), false, true},
		{"a marked batch that is encoded anew", recordsBatch(5, 1<<3|1<<7, gap), false, false},
		{"a filler of another mirror", recordbatch.AppendFiller(nil, 3, false, 1000), false, false},
		{"one on a compacted topic", recordbatch.AppendFiller(nil, 3, true, 1000), true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c copier
			position := int64(binary.BigEndian.Uint64(tt.data))
			e := c.encode(nil, c.copy(position, tt.data, nil).outputs, copyOptions{compacted: tt.compacted}, instant{})
			if tt.refused {
				require.NotNil(t, e.problem)
				require.Equal(t, problemFinal, e.problem.kind)
				require.Contains(t, e.problem.reason, "reserved for fillers")
				require.Empty(t, e.pieces)
				return
			}
			require.Nil(t, e.problem)
			require.Len(t, e.pieces, 1)
			require.False(t, e.pieces[0].gap())
			batch := e.pieces[0].batch
			recordbatch.Stamp(batch, 7, 0, recordbatch.Sequence(position))
			require.False(t, recordbatch.IsFiller(batch, func(int64) bool { return true }))
		})
	}
}

// Damage found while encoding ends with what is whole, and a reason.
func TestEncodeFindsDamage(t *testing.T) {
	damaged := recordsBatch(8, 1<<3, kmsg.Record{Value: []byte("v")})
	damaged[len(damaged)-3] = 99 // a length inside the record
	fixCRC(damaged)
	var c copier
	e := c.encode(nil, c.copy(5, join(testBatch(5, 3), damaged, testBatch(9, 1)), nil).outputs, copyOptions{}, instant{})
	require.NotNil(t, e.problem)
	require.Equal(t, problemPassing, e.problem.kind)
	require.Equal(t, "[5-7]", fmt.Sprint(e.pieces))
}
