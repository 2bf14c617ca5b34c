package recordbatch

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// testRecords has every shape of a record: null and empty keys, values and header values.
func testRecords() []kmsg.Record {
	records := []kmsg.Record{
		{},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte("k"), Value: bytes.Repeat([]byte("value "), 3000), TimestampDelta64: -5},
		{Value: []byte("v"), TimestampDelta64: 1 << 40, Headers: []kmsg.Header{{Key: "", Value: nil}, {Key: "h", Value: []byte{}}, {Key: "h", Value: []byte("x")}}},
	}
	for i := range records {
		records[i].OffsetDelta = int32(i)
		records[i].Length = int32(len(records[i].AppendTo(nil)) - 1) // the length was one byte, being 0
	}
	return records
}

func compress(t testing.TB, codec Codec, raw []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	switch codec {
	case None:
		return raw
	case Gzip:
		w := gzip.NewWriter(&buf)
		_, err := w.Write(raw)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	case Snappy:
		return snappy.Encode(nil, raw)
	case LZ4:
		w := lz4.NewWriter(&buf)
		_, err := w.Write(raw)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	case Zstd:
		w, err := zstd.NewWriter(nil)
		require.NoError(t, err)
		return w.EncodeAll(raw, nil)
	}
	return buf.Bytes()
}

// xerial frames snappy as the Java client does, in blocks.
func xerial(raw []byte) []byte {
	out := append([]byte(nil), xerialMagic...)
	out = append(out, 0, 0, 0, 1, 0, 0, 0, 1)
	for len(raw) > 0 {
		n := min(len(raw), 1000)
		block := snappy.Encode(nil, raw[:n])
		out = binary.BigEndian.AppendUint32(out, uint32(len(block)))
		out = append(out, block...)
		raw = raw[n:]
	}
	return out
}

func makeBatch(records []kmsg.Record, payload []byte, attributes int16) []byte {
	b := kmsg.RecordBatch{
		FirstOffset: 1 << 33, Length: int32(49 + len(payload)), PartitionLeaderEpoch: 12, Magic: 2, Attributes: attributes,
		LastOffsetDelta: int32(len(records) - 1), FirstTimestamp: 1_700_000_000_000, MaxTimestamp: 1_700_000_000_777,
		ProducerID: 1 << 40, ProducerEpoch: 9, FirstSequence: 1<<31 - 2, NumRecords: int32(len(records)), Records: payload,
	}
	raw := b.AppendTo(nil)
	reseal(raw)
	return raw
}

func reseal(batch []byte) {
	binary.BigEndian.PutUint32(batch[offCRC:], crc32.Checksum(batch[offAttributes:], castagnoli))
}

func payloadOf(records []kmsg.Record) (raw []byte) {
	for i := range records {
		raw = records[i].AppendTo(raw)
	}
	return raw
}

func TestHeaderAgreesWithKmsg(t *testing.T) {
	records := testRecords()
	raw := makeBatch(records, payloadOf(records), attrTransactional|int16(None))
	h, err := ParseHeader(raw)
	require.NoError(t, err)
	var k kmsg.RecordBatch
	require.NoError(t, k.ReadFrom(raw))
	require.Equal(t, Header{
		BaseOffset: k.FirstOffset, Length: k.Length, LeaderEpoch: k.PartitionLeaderEpoch, Magic: k.Magic, CRC: uint32(k.CRC),
		Attributes: k.Attributes, LastOffsetDelta: k.LastOffsetDelta, BaseTimestamp: k.FirstTimestamp, MaxTimestamp: k.MaxTimestamp,
		ProducerID: k.ProducerID, ProducerEpoch: k.ProducerEpoch, BaseSequence: k.FirstSequence, NumRecords: k.NumRecords,
	}, h)
	require.NoError(t, CheckCRC(raw))
	require.Equal(t, int64(1<<33+3), h.LastOffset())
	require.Equal(t, int64(1<<33+4), h.NextOffset())
	require.True(t, h.Transactional())
	raw[len(raw)-1] ^= 1
	require.ErrorIs(t, CheckCRC(raw), ErrCRC)
}

func TestRecordsOfEveryCodec(t *testing.T) {
	records := testRecords()
	raw := payloadOf(records)
	payloads := map[string][]byte{"xerial": xerial(raw)}
	for codec := None; codec <= Zstd; codec++ {
		payloads[codec.String()] = compress(t, codec, raw)
	}
	for name, payload := range payloads {
		t.Run(name, func(t *testing.T) {
			codec := Snappy
			for c := None; c <= Zstd; c++ {
				if c.String() == name {
					codec = c
				}
			}
			for range 2 { // the second time with a decoder that was used before
				i := 0
				err := Records(makeBatch(records, payload, int16(codec)), func(r Record) error {
					want := records[i]
					require.Equal(t, int64(1<<33+i), r.Offset)
					require.Equal(t, 1_700_000_000_000+want.TimestampDelta64, r.Timestamp)
					require.Equal(t, want.Key == nil, r.Key == nil)
					require.Equal(t, want.Value == nil, r.Value == nil)
					require.True(t, bytes.Equal(want.Key, r.Key) && bytes.Equal(want.Value, r.Value))
					require.Len(t, r.Headers, len(want.Headers))
					for j, h := range r.Headers {
						require.Equal(t, want.Headers[j].Key, string(h.Key))
						require.Equal(t, want.Headers[j].Value == nil, h.Value == nil)
						require.True(t, bytes.Equal(want.Headers[j].Value, h.Value))
					}
					i++
					return nil
				})
				require.NoError(t, err)
				require.Equal(t, len(records), i)
			}
		})
	}
}

func TestLogAppendTimeIsTheTimestamp(t *testing.T) {
	records := testRecords()
	err := Records(makeBatch(records, payloadOf(records), attrLogAppendTime), func(r Record) error {
		require.Equal(t, int64(1_700_000_000_777), r.Timestamp)
		return nil
	})
	require.NoError(t, err)
}

func TestRecordsPassesErrors(t *testing.T) {
	records := testRecords()
	mine := errors.New("mine")
	require.Equal(t, mine, Records(makeBatch(records, payloadOf(records), 0), func(Record) error { return mine }))
}

func TestRecordsRefuses(t *testing.T) {
	records := testRecords()
	raw := payloadOf(records)
	bomb := compress(t, Gzip, append(binary.AppendVarint(nil, MaxRecordSize+1), 0))
	for name, batch := range map[string][]byte{
		"a byte too many":     makeBatch(records, append(bytes.Clone(raw), 0), 0),
		"a record too few":    makeBatch(records, raw[:len(raw)-10], 0),
		"not gzip":            makeBatch(records, raw, int16(Gzip)),
		"not snappy":          makeBatch(records, raw, int16(Snappy)),
		"not lz4":             makeBatch(records, raw, int16(LZ4)),
		"not zstd":            makeBatch(records, raw, int16(Zstd)),
		"unknown codec":       makeBatch(records, raw, 6),
		"huge record":         makeBatch(records, bomb, int16(Gzip)),
		"huge snappy block":   makeBatch(records, binary.AppendUvarint(nil, 1<<31), int16(Snappy)),
		"cut off xerial":      makeBatch(records, xerial(raw)[:30], int16(Snappy)),
		"trailing batch":      append(makeBatch(records, raw, 0), 1),
		"repeated offset":     makeBatch([]kmsg.Record{records[0], records[0]}, payloadOf([]kmsg.Record{records[0], records[0]}), 0),
		"offset out of range": makeBatch(records[:1], payloadOf(records[3:]), 0),
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, Records(batch, func(Record) error { return nil }), ErrCorrupt)
		})
	}
}

func TestNext(t *testing.T) {
	records := testRecords()
	one := makeBatch(records, payloadOf(records), 0)
	all := append(append(bytes.Clone(one), one...), one[:70]...)
	first, rest, err := Next(all)
	require.NoError(t, err)
	require.Equal(t, one, first)
	second, rest, err := Next(rest)
	require.NoError(t, err)
	require.Equal(t, one, second)
	_, rest, err = Next(rest)
	require.ErrorIs(t, err, ErrPartial)
	require.Len(t, rest, 70)
	for n := range 61 {
		_, _, err := Next(one[:n])
		require.ErrorIs(t, err, ErrPartial)
	}
	for _, length := range []int32{-1, 0, 1, 48, -1 << 31} {
		bad := bytes.Clone(one)
		binary.BigEndian.PutUint32(bad[offLength:], uint32(length))
		_, _, err = Next(bad)
		require.ErrorIs(t, err, ErrCorrupt)
		_, err = ParseHeader(bad)
		require.ErrorIs(t, err, ErrCorrupt)
	}
	for _, magic := range []byte{3, 127, 128, 255} {
		bad := bytes.Clone(one)
		bad[offMagic] = magic
		_, _, err = Next(bad)
		require.ErrorIs(t, err, ErrCorrupt)
	}
}

func TestOldFormats(t *testing.T) {
	v1 := binary.BigEndian.AppendUint64(nil, 77)
	v1 = binary.BigEndian.AppendUint32(v1, 22)
	v1 = append(v1, 0xaa, 0xbb, 0xcc, 0xdd, 1, byte(Snappy))
	v1 = binary.BigEndian.AppendUint64(v1, 123456)
	v1 = binary.BigEndian.AppendUint32(v1, 0xffffffff)
	v1 = binary.BigEndian.AppendUint32(v1, 0xffffffff)
	h, err := ParseHeader(v1)
	require.ErrorIs(t, err, ErrOldFormat)
	require.Equal(t, int64(77), h.BaseOffset)
	require.Equal(t, int64(78), h.NextOffset())
	require.Equal(t, Snappy, h.Codec())
	require.Equal(t, int64(123456), h.MaxTimestamp)
	require.Equal(t, uint32(0xaabbccdd), h.CRC)
	batch, rest, err := Next(append(v1, v1...))
	require.NoError(t, err)
	require.Equal(t, v1, batch)
	require.Equal(t, v1, rest)
	var not *NotVerbatim
	require.ErrorAs(t, Verbatim(h, 77), &not)
	require.Equal(t, OldFormat, not.Reason)
}

func TestStamp(t *testing.T) {
	records := testRecords()
	raw := makeBatch(records, payloadOf(records), attrTransactional|attrDeleteHorizon|attrFiller)
	before := bytes.Clone(raw[HeaderSize:])
	Stamp(raw, 5, 0, Sequence(1<<33))
	h, err := ParseHeader(raw)
	require.NoError(t, err)
	require.NoError(t, CheckCRC(raw))
	require.Equal(t, before, raw[HeaderSize:])
	require.Equal(t, int64(0), h.BaseOffset)
	require.Equal(t, int32(-1), h.LeaderEpoch)
	require.Equal(t, int64(5), h.ProducerID)
	require.Equal(t, int16(0), h.ProducerEpoch)
	require.Equal(t, int32(0), h.BaseSequence)
	require.Equal(t, int16(attrFiller), h.Attributes)
	require.Zero(t, testing.AllocsPerRun(100, func() { Stamp(raw, 5, 0, 17) }))
}

func TestSequence(t *testing.T) {
	for offset, want := range map[int64]int32{0: 0, 1: 1, 1<<31 - 1: 1<<31 - 1, 1 << 31: 0, 1<<31 + 5: 5, 1<<32 + 7: 7, 1<<62 + 3: 3} {
		require.Equal(t, want, Sequence(offset), "%d", offset)
	}
}

func TestVerbatim(t *testing.T) {
	good := Header{Magic: 2, BaseOffset: 100, LastOffsetDelta: 9, NumRecords: 10}
	require.NoError(t, Verbatim(good, 100))
	for _, c := range []struct {
		reason   Reason
		expected int64
		change   func(*Header)
	}{
		{OldFormat, 100, func(h *Header) { h.Magic = 1 }},
		{Behind, 110, func(h *Header) {}},
		{Overlap, 105, func(h *Header) {}},
		{GapBefore, 99, func(h *Header) {}},
		{Control, 100, func(h *Header) { h.Attributes = attrControl }},
		{Empty, 100, func(h *Header) { h.NumRecords = 0 }},
		{Hole, 100, func(h *Header) { h.NumRecords = 9 }},
		{LogAppendTime, 100, func(h *Header) { h.Attributes = attrLogAppendTime }},
		{UnknownCodec, 100, func(h *Header) { h.Attributes = 5 }},
	} {
		h := good
		c.change(&h)
		var not *NotVerbatim
		require.ErrorAs(t, Verbatim(h, c.expected), &not, "%v", c.reason)
		require.Equal(t, c.reason, not.Reason)
		require.NotEmpty(t, not.Error())
	}
}

func isSeven(id int64) bool { return id == 7 }

func TestFillers(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		for _, count := range []int{1, 2, 1000, FillerBatchRecords} {
			batch := AppendFiller([]byte("prefix"), count, keyed, 1234)[6:]
			require.NoError(t, CheckCRC(batch))
			Stamp(batch, 7, 0, 99)
			h, err := ParseHeader(batch)
			require.NoError(t, err)
			require.NoError(t, Verbatim(h, 0))
			require.Equal(t, int32(count), h.NumRecords)
			require.True(t, IsFiller(batch, isSeven))
			require.False(t, IsFiller(batch, func(int64) bool { return false }))
			n := 0
			require.NoError(t, Records(batch, func(r Record) error {
				require.Nil(t, r.Value)
				require.Equal(t, keyed, bytes.Equal(r.Key, FillerKey()))
				require.Equal(t, int64(1234), r.Timestamp)
				n++
				return nil
			}))
			require.Equal(t, count, n)
			if count == FillerBatchRecords {
				require.Less(t, len(batch), count)
			}
			// Without the bit it is data as it was produced…
			binary.BigEndian.PutUint16(batch[offAttributes:], uint16(h.Attributes&^attrFiller))
			require.False(t, IsFiller(batch, isSeven))
			// … unless the cleaner wrote it anew, with a delete horizon, or without some records: then the fixed key tells.
			binary.BigEndian.PutUint16(batch[offAttributes:], uint16(h.Attributes&^attrFiller|attrDeleteHorizon))
			require.Equal(t, keyed, IsFiller(batch, isSeven))
			binary.BigEndian.PutUint16(batch[offAttributes:], uint16(h.Attributes&^attrFiller))
			binary.BigEndian.PutUint32(batch[offLastOffsetDelta:], uint32(count))
			require.Equal(t, keyed, IsFiller(batch, isSeven))
		}
		fence := AppendFence(nil, keyed, 5)
		Stamp(fence, 7, 1, 0)
		require.True(t, IsFiller(fence, isSeven))
		require.NoError(t, CheckCRC(fence))
	}
}

// TestNoFiller: what users write is never taken for a filler, even with the bit set in a batch that was copied.
func TestNoFiller(t *testing.T) {
	one := func(r kmsg.Record, attributes int16) []byte {
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		b := makeBatch([]kmsg.Record{r}, r.AppendTo(nil), attributes)
		Stamp(b, 7, 0, 0)
		return b
	}
	for name, batch := range map[string][]byte{
		"tombstone":                   one(kmsg.Record{Key: []byte("k")}, attrFiller),
		"null record":                 one(kmsg.Record{}, attrFiller),
		"other header":                one(kmsg.Record{Headers: []kmsg.Header{{Key: "x"}}}, attrFiller),
		"fixed key with a value":      one(kmsg.Record{Key: FillerKey(), Value: []byte{}}, attrFiller),
		"fixed key without the bit":   one(kmsg.Record{Key: FillerKey()}, 0),
		"gap header without the bit":  one(kmsg.Record{Headers: []kmsg.Header{{Key: GapHeader}}}, 0),
		"gap header and a value":      one(kmsg.Record{Value: []byte("v"), Headers: []kmsg.Header{{Key: GapHeader}}}, attrFiller),
		"gap header and an empty key": one(kmsg.Record{Key: []byte{}, Headers: []kmsg.Header{{Key: GapHeader}}}, attrFiller),
		"nothing":                     nil,
		"garbage":                     bytes.Repeat([]byte{2}, 100),
	} {
		require.False(t, IsFiller(batch, isSeven), name)
	}
	records := testRecords()
	big := makeBatch(records, payloadOf(records), 0)
	Stamp(big, 7, 0, 0)
	require.False(t, IsFiller(big, isSeven))
	empty := makeBatch(nil, nil, 0)
	binary.BigEndian.PutUint32(empty[offLastOffsetDelta:], 4)
	Stamp(empty, 7, 0, 0)
	require.True(t, IsFiller(empty, isSeven), "a batch without records hides nothing")
}

func TestCommitMarker(t *testing.T) {
	marker := AppendCommitMarker(nil, 1<<40, 3, 7, 0, 99)
	require.NoError(t, CheckCRC(marker))
	h, err := ParseHeader(marker)
	require.NoError(t, err)
	require.True(t, h.Control() && h.Transactional())
	require.Equal(t, int64(1<<40), h.BaseOffset)
	require.Equal(t, int64(1<<40+1), h.NextOffset())
	require.Equal(t, int32(3), h.LeaderEpoch)
	require.Equal(t, int32(-1), h.BaseSequence)
	require.False(t, IsFiller(marker, isSeven))
	require.NoError(t, Records(marker, func(r Record) error {
		var key kmsg.ControlRecordKey
		require.NoError(t, key.ReadFrom(r.Key))
		require.Equal(t, kmsg.ControlRecordKeyTypeCommit, key.Type)
		var value kmsg.EndTxnMarker
		require.NoError(t, value.ReadFrom(r.Value))
		require.Zero(t, value.CoordinatorEpoch)
		return nil
	}))
}

func fuzzSeeds(f *testing.F) {
	records := testRecords()
	raw := payloadOf(records)
	for codec := None; codec <= Zstd; codec++ {
		f.Add(makeBatch(records, compress(f, codec, raw), int16(codec)))
	}
	f.Add(makeBatch(records, xerial(raw), int16(Snappy)))
	f.Add(AppendFiller(nil, 100, true, 5))
	f.Add(AppendCommitMarker(nil, 5, 0, 7, 0, 5))
	f.Add([]byte{})
}

// FuzzBatches: whatever the bytes, nothing panics, Next makes progress, and what Records yields lies within the batch.
func FuzzBatches(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		began := time.Now()
		defer func() {
			if d := time.Since(began); d > 2*time.Second {
				t.Fatalf("took %v", d)
			}
		}()
		for rest := b; len(rest) > 0; {
			batch, next, err := Next(rest)
			if err != nil {
				break
			}
			if len(next) >= len(rest) || len(batch)+len(next) != len(rest) {
				t.Fatalf("Next cut %d bytes into %d and %d", len(rest), len(batch), len(next))
			}
			rest = next
			h, err := ParseHeader(batch)
			if err != nil {
				continue
			}
			_ = Verbatim(h, h.BaseOffset)
			_ = CheckCRC(batch)
			_ = IsFiller(batch, func(int64) bool { return true })
			count := int32(0)
			err = Records(batch, func(r Record) error {
				if r.Offset < h.BaseOffset || r.Offset > h.LastOffset() {
					return fmt.Errorf("offset %d outside the batch", r.Offset)
				}
				count++
				return nil
			})
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			if err == nil && count != h.NumRecords {
				t.Fatalf("%d records, want %d", count, h.NumRecords)
			}
		}
	})
}

func BenchmarkStamp(b *testing.B) {
	records := []kmsg.Record{{Value: make([]byte, 64<<10)}}
	raw := makeBatch(records, payloadOf(records), 0)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for i := range b.N {
		Stamp(raw, 7, 0, int32(i))
	}
}

func BenchmarkIsFiller(b *testing.B) {
	for name, batch := range map[string][]byte{
		"filler":  AppendFiller(nil, FillerBatchRecords, false, 5),
		"cleaned": AppendFiller(nil, FillerBatchRecords, true, 5),
		"data":    makeBatch(testRecords(), compress(b, Zstd, payloadOf(testRecords())), int16(Zstd)),
	} {
		Stamp(batch, 7, 0, 0)
		if name == "cleaned" {
			binary.BigEndian.PutUint16(batch[offAttributes:], uint16(Zstd|attrDeleteHorizon))
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				IsFiller(batch, isSeven)
			}
		})
	}
}
