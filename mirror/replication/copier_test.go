package replication

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// testBatch is a batch of n records at base, changed by edits, with a right CRC.
func testBatch(base int64, n int, edits ...func(b []byte)) []byte {
	b := recordbatch.AppendFiller(nil, n, false, 1000)
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[12:], 7) // leader epoch
	setAttributes(func(a int16) int16 { return a &^ (1 << 7) })(b)
	for _, edit := range edits {
		edit(b)
	}
	fixCRC(b)
	return b
}

func fixCRC(b []byte) {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
}

func setAttributes(fn func(int16) int16) func([]byte) {
	return func(b []byte) {
		binary.BigEndian.PutUint16(b[21:], uint16(fn(int16(binary.BigEndian.Uint16(b[21:])))))
	}
}

func transactional(producer int64) func([]byte) {
	return func(b []byte) {
		setAttributes(func(a int16) int16 { return a | 1<<4 })(b)
		binary.BigEndian.PutUint64(b[43:], uint64(producer))
	}
}

func marker(producer int64) func([]byte) {
	return func(b []byte) {
		transactional(producer)(b)
		setAttributes(func(a int16) int16 { return a | 1<<5 })(b)
	}
}

// lastDelta makes a hole: the batch once had more records.
func lastDelta(n int32) func([]byte) {
	return func(b []byte) { binary.BigEndian.PutUint32(b[23:], uint32(n)) }
}

func noRecords(b []byte) { binary.BigEndian.PutUint32(b[57:], 0) }

func oldMessage(base int64) []byte {
	b := make([]byte, 12+22)
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	b[16] = 1
	return b
}

func join(bs ...[]byte) []byte {
	var all []byte
	for _, b := range bs {
		all = append(all, b...)
	}
	return all
}

func describe(outputs []output) string {
	var s []string
	for _, o := range outputs {
		kind := map[outputKind]string{outputVerbatim: "copy", outputGap: "gap", outputReencode: "re-encode"}[o.kind]
		s = append(s, fmt.Sprintf("%s %d-%d", kind, o.from, o.next-1))
	}
	return strings.Join(s, ", ")
}

func TestCopierOutputs(t *testing.T) {
	aborted := func(producer, first int64) kmsg.FetchResponseTopicPartitionAbortedTransaction {
		return kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: producer, FirstOffset: first}
	}
	for _, tt := range []struct {
		name     string
		position int64
		data     []byte
		aborted  []kmsg.FetchResponseTopicPartitionAbortedTransaction
		want     string
		next     int64
	}{
		{name: "nothing", position: 5, next: 5},
		{name: "whole batches", position: 5, data: join(testBatch(5, 3), testBatch(8, 1)), want: "copy 5-7, copy 8-8", next: 9},
		{name: "a batch cut off at the end", position: 5, data: join(testBatch(5, 3), testBatch(8, 9)[:50]), want: "copy 5-7", next: 8},
		{name: "only a batch that is cut off", position: 5, data: testBatch(5, 3)[:70], next: 5},
		{name: "batches below the position", position: 8, data: join(testBatch(5, 3), testBatch(8, 1)), want: "copy 8-8", next: 9},
		{name: "the position inside a batch", position: 6, data: testBatch(5, 3), want: "re-encode 6-7", next: 8},
		{name: "M2: inside a batch whose tail was compacted", position: 8, data: testBatch(5, 3, lastDelta(9)), want: "re-encode 8-14", next: 15},
		{name: "M3: a batch without records", position: 5, data: join(testBatch(5, 1, noRecords, lastDelta(9)), testBatch(15, 1)), want: "gap 5-14, copy 15-15", next: 16},
		{name: "M5: a gap wider than 2^31", position: 0, data: testBatch(5e9, 1), want: "gap 0-4999999999, copy 5000000000-5000000000", next: 5e9 + 1},
		{name: "a hole inside", position: 5, data: testBatch(5, 3, lastDelta(5)), want: "re-encode 5-10", next: 11},
		{name: "LogAppendTime", position: 5, data: testBatch(5, 3, setAttributes(func(a int16) int16 { return a | 1<<3 })), want: "re-encode 5-7", next: 8},
		{name: "old format", position: 5, data: join(oldMessage(5), oldMessage(6)), want: "re-encode 5-5, re-encode 6-6", next: 7},
		{name: "a committed transaction and its marker", position: 5, data: join(testBatch(5, 3, transactional(9)), testBatch(8, 1, marker(9))), want: "copy 5-7, gap 8-8", next: 9},
		{
			name: "an aborted transaction, then a committed one of the same producer", position: 5,
			data: join(testBatch(5, 3, transactional(9)), testBatch(8, 1, transactional(4)), testBatch(9, 1, marker(9)),
				testBatch(10, 1, transactional(9)), testBatch(11, 1, marker(9))),
			aborted: []kmsg.FetchResponseTopicPartitionAbortedTransaction{aborted(9, 5)},
			want:    "gap 5-7, copy 8-8, gap 9-9, copy 10-10, gap 11-11", next: 12,
		},
		{
			name: "aborted transactions that began before the position, listed in any order", position: 8,
			data:    join(testBatch(8, 1, transactional(4)), testBatch(9, 1, transactional(9)), testBatch(10, 1)),
			aborted: []kmsg.FetchResponseTopicPartitionAbortedTransaction{aborted(9, 7), aborted(4, 1)},
			want:    "gap 8-8, gap 9-9, copy 10-10", next: 11,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c copier
			got := c.copy(tt.position, tt.data, tt.aborted)
			require.NoError(t, got.corrupt)
			require.Equal(t, tt.want, describe(got.outputs))
			require.Equal(t, tt.next, got.next)
			position := tt.position
			for _, o := range got.outputs {
				require.Equal(t, position, o.from, "the outputs cover every offset once")
				position = o.next
			}
		})
	}
}

func TestCopierFindsDamage(t *testing.T) {
	damaged := testBatch(8, 1)
	damaged[len(damaged)-1] ^= 1
	var c copier
	got := c.copy(5, join(testBatch(5, 3), damaged, testBatch(9, 1)), nil)
	require.ErrorIs(t, got.corrupt, recordbatch.ErrCRC)
	require.ErrorContains(t, got.corrupt, "offset 8")
	require.Equal(t, "copy 5-7", describe(got.outputs), "what is whole counts")
	require.EqualValues(t, 7, got.epoch)

	garbage := join(testBatch(5, 3), make([]byte, 100))
	got = c.copy(5, garbage, nil)
	require.ErrorIs(t, got.corrupt, recordbatch.ErrCorrupt)
}

// TestCopierAllocatesNothing: the verbatim path costs no allocation for a batch.
func TestCopierAllocatesNothing(t *testing.T) {
	data, _ := manyBatches(100)
	var c copier
	batches := make([]piece, 0, 100)
	work := func() { batches = c.encode(batches[:0], c.copy(0, data, nil).outputs, copyOptions{}, instant{}).pieces }
	work() // the list of outputs grows once
	require.Zero(t, testing.AllocsPerRun(10, work))
	require.Len(t, batches, 100)
}

func manyBatches(n int) (data []byte, next int64) {
	for range n {
		data = append(data, testBatch(next, 10)...)
		next += 10
	}
	return data, next
}

func BenchmarkCopier(b *testing.B) {
	batch := testBatch(0, 1)
	padding := make([]byte, 16<<10)
	batch = append(batch, padding...)
	binary.BigEndian.PutUint32(batch[8:], uint32(len(batch)-12))
	fixCRC(batch)
	var data []byte
	for i := range 64 {
		data = append(data, batch...)
		binary.BigEndian.PutUint64(data[len(data)-len(batch):], uint64(i))
	}
	var c copier
	batches := make([]piece, 0, 64)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		e := c.encode(batches[:0], c.copy(0, data, nil).outputs, copyOptions{}, instant{})
		if batches = e.pieces; e.problem != nil || len(batches) != 64 {
			b.Fatal(e.problem, len(batches))
		}
	}
}

// FuzzCopier: whatever a source answers, outputs cover the offsets from the position on without a hole or an overlap.
func FuzzCopier(f *testing.F) {
	f.Add(int64(5), join(testBatch(5, 3), testBatch(8, 1)))
	f.Add(int64(6), testBatch(5, 3, lastDelta(9)))
	f.Add(int64(0), join(testBatch(5, 3, transactional(9)), testBatch(8, 1, marker(9))))
	f.Add(int64(5), join(oldMessage(5), oldMessage(6)))
	f.Fuzz(func(t *testing.T, position int64, data []byte) {
		position = max(0, position)
		// Let the fuzzer past the checksum, or it would see little else.
		for rest := data; ; {
			batch, more, err := recordbatch.Next(rest)
			if err != nil {
				break
			}
			if len(batch) >= recordbatch.HeaderSize && batch[16] == 2 {
				fixCRC(batch)
			}
			rest = more
		}
		var c copier
		got := c.copy(position, data, []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 9, FirstOffset: 5}})
		next := position
		for _, o := range got.outputs {
			if o.from != next || o.next <= o.from {
				t.Fatalf("output %d to %d after position %d", o.from, o.next, next)
			}
			next = o.next
			if o.kind == outputVerbatim {
				if h, err := recordbatch.ParseHeader(o.batch); err != nil || h.BaseOffset != o.from || h.NextOffset() != o.next {
					t.Fatalf("a verbatim batch that is not: %v %+v", err, h)
				}
			}
		}
		if next != got.next {
			t.Fatalf("position %d after outputs up to %d", got.next, next)
		}
	})
}
