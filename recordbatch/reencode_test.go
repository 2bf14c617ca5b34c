package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// source is a log to encode anew, and what its readers see.
type source struct {
	batches [][]byte
	records []seen
	next    int64
}

// add appends a v2 batch that ends at s.next + span and holds the given records.
func (s *source) add(t testing.TB, span int64, attributes int16, records []seen) {
	base := s.next
	s.next += span
	b := kmsg.RecordBatch{
		FirstOffset: base, PartitionLeaderEpoch: 3, Magic: 2, Attributes: attributes, LastOffsetDelta: int32(span - 1),
		ProducerID: 77, ProducerEpoch: 1, FirstSequence: 5, NumRecords: int32(len(records)), MaxTimestamp: math.MinInt64,
	}
	var raw []byte
	for i, r := range records {
		if i == 0 {
			b.FirstTimestamp = r.Timestamp - 3
		}
		b.MaxTimestamp = max(b.MaxTimestamp, r.Timestamp)
		k := kmsg.Record{TimestampDelta64: r.Timestamp - b.FirstTimestamp, OffsetDelta: int32(r.Offset - base), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kmsg.Header{Key: string(h.Key), Value: h.Value})
		}
		k.Length = int32(len(k.AppendTo(nil)) - 1)
		raw = k.AppendTo(raw)
	}
	b.Records = raw
	switch codec := Codec(attributes & attrCodec); {
	case len(records) == 0: // as the cleaner leaves it
	case codec == Snappy && len(records)%2 == 0:
		b.Records = xerial(raw)
	default:
		b.Records = compress(t, codec, raw)
	}
	b.Length = int32(HeaderSize - lengthPrefix + len(b.Records))
	batch := b.AppendTo(nil)
	reseal(batch)
	s.batches = append(s.batches, batch)
	if attributes&attrControl != 0 {
		return
	}
	for _, r := range records {
		if attributes&attrLogAppendTime != 0 {
			r.Timestamp = b.MaxTimestamp
		}
		s.records = append(s.records, r)
	}
}

// addOld appends a message of format v0 or v1, compressed or not, with the given records.
func (s *source) addOld(t testing.TB, magic, attributes int8, records []seen) {
	wrapper := records[len(records)-1]
	var inner []byte
	for i := range records {
		r := &records[i]
		r.Headers = nil
		offset := r.Offset
		if magic == 1 && attributes&attrCodec != 0 {
			offset -= s.next
		}
		inner = appendOld(inner, offset, magic, attributes&attrLogAppendTime, r.Timestamp, r.Key, r.Value)
		if magic == 0 {
			r.Timestamp = -1
		} else if attributes&attrLogAppendTime != 0 {
			r.Timestamp = wrapper.Timestamp
		}
	}
	if attributes&attrCodec != 0 {
		inner = wrapOld(t, wrapper.Offset, magic, attributes, wrapper.Timestamp, inner)
	}
	s.batches = append(s.batches, inner)
	s.records = append(s.records, records...)
	s.next = wrapper.Offset + 1
}

func randomBytes(rng *rand.Rand, size int) []byte {
	switch rng.IntN(6) {
	case 0:
		return nil
	case 1:
		return []byte{}
	}
	b := bytes.Repeat([]byte("abc "), rng.IntN(size)+1)
	if rng.IntN(2) == 0 {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	}
	return b
}

// randomRecords makes records at some of the offsets in [base, base + span), the first one always.
func randomRecords(rng *rand.Rand, base, span int64, size int, density float64) (records []seen) {
	timestamp := []int64{0, -1, 1_700_000_000_000, math.MaxInt64 - 5, math.MinInt64 + 5}[rng.IntN(5)]
	for offset := base; offset < base+span; offset++ {
		if offset > base && rng.Float64() > density {
			continue
		}
		if rng.IntN(20) == 0 {
			timestamp = int64(rng.Uint64())
		}
		r := seen{Offset: offset, Timestamp: timestamp + int64(rng.IntN(7)), Key: randomBytes(rng, 5), Value: randomBytes(rng, size)}
		for range rng.IntN(4) / 2 {
			r.Headers = append(r.Headers, RecordHeader{Key: append([]byte{}, randomBytes(rng, 3)...), Value: randomBytes(rng, 4)})
		}
		records = append(records, r)
	}
	return records
}

func randomSource(t testing.TB, rng *rand.Rand) *source {
	s := &source{next: []int64{0, 5, 1<<31 - 3, 1 << 40}[rng.IntN(4)]}
	codec := int16(rng.IntN(5))
	size, density := 1+rng.IntN(60), []float64{1, 0.9, 0.5, 0}[rng.IntN(4)]
	for range 1 + rng.IntN(8) {
		if rng.IntN(4) == 0 {
			s.next += int64(rng.IntN(3)) // between batches
		}
		if rng.IntN(4) == 0 {
			codec = int16(rng.IntN(5))
		}
		span := 1 + int64(rng.IntN(60))
		records := randomRecords(rng, s.next, span, size, density)
		switch rng.IntN(8) {
		case 0:
			s.add(t, span, codec, nil)
		case 1:
			s.add(t, 1, attrControl|attrTransactional, records[:1])
		case 2:
			s.add(t, span, codec|attrLogAppendTime|attrFiller, records)
		case 3:
			s.addOld(t, 0, 0, records[:1])
		case 4:
			s.addOld(t, int8(rng.IntN(2)), int8(1+rng.IntN(3))|int8(rng.IntN(2)*attrLogAppendTime), records)
		default:
			s.add(t, span, codec|attrTransactional|attrDeleteHorizon, records)
		}
	}
	return s
}

// check compares the pieces made from s with what its readers see from expected on.
func (s *source) check(t testing.TB, expected int64, pieces []Piece, stats RebuildStats, maxBytes int) {
	position, timestamp := expected, int64(-1)
	var got []seen
	for i, p := range pieces {
		require.Equal(t, position, p.Base, "piece %d", i)
		require.Greater(t, p.Next, p.Base)
		position = p.Next
		if p.Kind == Gap {
			require.Nil(t, p.Batch)
			require.Equal(t, timestamp, p.Timestamp)
			require.False(t, i > 0 && pieces[i-1].Kind == Gap, "gaps are joined")
			continue
		}
		require.NoError(t, CheckCRC(p.Batch))
		h, err := ParseHeader(p.Batch)
		require.NoError(t, err)
		require.Equal(t, Header{LeaderEpoch: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Magic: 2, NumRecords: int32(p.Next - p.Base)},
			Header{h.BaseOffset, 0, h.LeaderEpoch, h.Magic, 0, h.Attributes &^ attrCodec, 0, 0, 0, h.ProducerID, h.ProducerEpoch, h.BaseSequence, h.NumRecords})
		require.NoError(t, Verbatim(h, 0), "a broker takes it")
		require.True(t, len(p.Batch) <= maxBytes || h.NumRecords == 1, "%d bytes, %d records", len(p.Batch), h.NumRecords)
		binary.BigEndian.PutUint64(p.Batch, uint64(p.Base)) // as the destination does
		records := decodeAll(t, p.Batch)
		highest := records[0].Timestamp
		for _, r := range records {
			highest = max(highest, r.Timestamp)
		}
		require.Equal(t, highest, h.MaxTimestamp)
		require.Equal(t, highest, p.Timestamp)
		timestamp = records[len(records)-1].Timestamp
		requireKgo(t, p.Batch, records)
		got = append(got, records...)
	}
	require.Equal(t, max(expected, s.next), position)
	require.Equal(t, position, stats.Next)
	require.Equal(t, s.from(expected), got)
	require.EqualValues(t, len(got), stats.Records)
	require.Equal(t, position-expected, stats.Records+stats.GapOffsets)
	require.EqualValues(t, len(pieces), stats.Batches+stats.Gaps)
}

func (s *source) from(offset int64) (records []seen) {
	for _, r := range s.records {
		if r.Offset >= offset {
			records = append(records, r)
		}
	}
	return records
}

// requireKgo checks that franz-go reads the batch the same.
func requireKgo(t testing.TB, batch []byte, records []seen) {
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{}, &kmsg.FetchResponseTopicPartition{RecordBatches: batch}, kgo.DefaultDecompressor(), nil)
	require.NoError(t, fp.Err)
	require.Len(t, fp.Records, len(records))
	for i, r := range fp.Records {
		want := records[i]
		require.Equal(t, want.Offset, r.Offset)
		require.Equal(t, want.Key, r.Key)
		require.Equal(t, want.Value, r.Value)
		const end = math.MaxInt64 / 1_000_000 // franz-go counts nanoseconds, so its time ends in 2262
		if -end < want.Timestamp && want.Timestamp < end {
			require.Equal(t, want.Timestamp, r.Timestamp.UnixMilli())
		}
		require.Len(t, r.Headers, len(want.Headers))
		for j, h := range r.Headers {
			require.Equal(t, string(want.Headers[j].Key), h.Key)
			require.Equal(t, want.Headers[j].Value, h.Value)
		}
	}
}

// rebuild returns copies of the pieces that r makes of s.
func rebuild(t testing.TB, r *Rebuilder, s *source, expected int64) ([]Piece, RebuildStats) {
	var pieces []Piece
	r.Begin(expected, func(p Piece) error {
		stamped := p.Batch
		p.Batch = bytes.Clone(p.Batch)
		if stamped != nil {
			Stamp(stamped, 1, 2, 3) // users do; must not matter
		}
		pieces = append(pieces, p)
		return nil
	})
	for _, b := range s.batches {
		before := bytes.Clone(b)
		require.NoError(t, r.Add(b))
		require.Equal(t, before, b, "the source is left as it is")
	}
	require.NoError(t, r.AddGap(s.next))
	stats, err := r.End()
	require.NoError(t, err)
	return pieces, stats
}

func TestRebuildRandomLogs(t *testing.T) {
	rebuilder := &Rebuilder{}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 4))
		s := randomSource(t, rng)
		rebuilder.MaxBytes = []int{0, 100, 500, 3000}[rng.IntN(4)]
		first := s.next
		if len(s.records) > 0 {
			first = s.records[0].Offset
		}
		expected := max(0, first-3) + rng.Int64N(max(1, s.next-first+5))
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			pieces, stats := rebuild(t, rebuilder, s, expected)
			s.check(t, expected, pieces, stats, rebuilder.maxBytes())
		})
		if !ok {
			return
		}
	}
}

// TestRebuildCapturedLogs: what a real broker had in its logs.
func TestRebuildCapturedLogs(t *testing.T) {
	files, err := filepath.Glob("testdata/*.bin")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		log, err := os.ReadFile(file)
		require.NoError(t, err)
		s := &source{records: decodeAll(t, log)}
		for len(log) > 0 {
			batch, rest, err := Next(log)
			require.NoError(t, err)
			h, _ := ParseHeader(batch)
			s.batches, s.next, log = append(s.batches, batch), h.NextOffset(), rest
		}
		for expected := range s.next + 2 {
			pieces, stats := rebuild(t, &Rebuilder{}, s, expected)
			s.check(t, expected, pieces, stats, DefaultMaxBytes)
		}
	}
}

// TestRebuildJoins: messages of old formats do not become a batch each, and the codec stays.
func TestRebuildJoins(t *testing.T) {
	s := &source{}
	for i := range int64(1000) {
		s.addOld(t, 1, 0, []seen{{Offset: i, Timestamp: i, Value: []byte("v")}})
	}
	for range 3 {
		var records []seen
		for i := range int64(100) {
			records = append(records, seen{Offset: s.next + i, Timestamp: 5, Value: []byte("value value value")})
		}
		s.addOld(t, 1, int8(LZ4), records)
	}
	pieces, stats := rebuild(t, &Rebuilder{}, s, 0)
	s.check(t, 0, pieces, stats, DefaultMaxBytes)
	require.Len(t, pieces, 2)
	h, err := ParseHeader(pieces[1].Batch)
	require.NoError(t, err)
	require.Equal(t, LZ4, h.Codec())
	require.Less(t, len(pieces[1].Batch), 300*10)
}

// holed is a compacted batch of which every second record is gone.
func holed(t testing.TB, codec Codec, n int64) *source {
	s := &source{}
	var records []seen
	for i := int64(0); i < n; i += 2 {
		records = append(records, seen{Offset: i, Timestamp: 1_700_000_000_000 + i, Key: fmt.Append(nil, i), Value: []byte("some value or other")})
	}
	s.add(t, n, int16(codec), records)
	return s
}

func TestRebuildEverySecondRecord(t *testing.T) {
	s := holed(t, Zstd, 10_000)
	pieces, stats := rebuild(t, &Rebuilder{}, s, 0)
	s.check(t, 0, pieces, stats, DefaultMaxBytes)
	require.Equal(t, RebuildStats{Next: 10_000, Batches: 5000, SmallBatches: 5000, Records: 5000, Gaps: 5000, GapOffsets: 5000, Bytes: stats.Bytes}, stats)
}

// TestRebuildSizes: batches are kept below the limit, also where a source compresses well at first and then not at all.
func TestRebuildSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for codec := None; codec <= Zstd; codec++ {
		s := &source{}
		var records []seen
		for i := range int64(4000) {
			value := make([]byte, 100)
			if i > 2000 {
				for j := range value {
					value[j] = byte(rng.Uint32())
				}
			}
			records = append(records, seen{Offset: i, Timestamp: i, Value: value})
		}
		s.add(t, 4000, int16(codec)|attrLogAppendTime, records)
		r := &Rebuilder{MaxBytes: 20_000}
		pieces, stats := rebuild(t, r, s, 0)
		s.check(t, 0, pieces, stats, r.MaxBytes)
		require.Positive(t, stats.SizeSplits, codec)
		require.Less(t, stats.Bytes, int64(len(s.batches[0]))*13/10, codec)
		require.Less(t, len(pieces), 45, codec)
	}
}

// TestRebuildFillers: what looks like a filler at the source is no filler at the destination, or is refused.
func TestRebuildFillers(t *testing.T) {
	key := FillerKey()
	mark := []RecordHeader{{Key: []byte(GapHeader)}}
	s := &source{}
	s.add(t, 2, attrFiller|attrLogAppendTime, []seen{{Offset: 0, Headers: mark}, {Offset: 1}})
	s.add(t, 4, attrFiller, []seen{{Offset: 2, Key: []byte("k"), Headers: mark}, {Offset: 4, Headers: mark}, {Offset: 5, Value: key}})
	pieces, stats := rebuild(t, &Rebuilder{}, s, 0)
	s.check(t, 0, pieces, stats, DefaultMaxBytes)
	require.EqualValues(t, 5, stats.Records)
	for _, p := range pieces {
		if p.Kind == Data {
			Stamp(p.Batch, 7, 0, 0)
			require.False(t, IsFiller(p.Batch, isSeven))
		}
	}
	for _, value := range [][]byte{nil, []byte("v")} {
		s := &source{}
		s.add(t, 3, int16(Zstd), []seen{{Offset: 0, Key: []byte("user")}, {Offset: 2, Key: key, Value: value}})
		s.addOld(t, 1, 0, []seen{{Offset: 3, Key: key, Value: value}})
		for i, expected := range []int64{0, 3} {
			_, err := (&Rebuilder{}).Rebuild(s.batches[i], expected, func(Piece) error { return nil })
			require.ErrorIs(t, err, ErrFillerKey)
		}
		_, err := (&Rebuilder{}).Rebuild(s.batches[0], 3, func(Piece) error { return nil })
		require.NoError(t, err, "below what is expected")
	}
}

func TestRebuildErrors(t *testing.T) {
	nothing := func(Piece) error { return nil }
	s := holed(t, Gzip, 100)
	r := &Rebuilder{}
	stop := errors.New("full")
	_, err := r.Rebuild(s.batches[0], 0, func(p Piece) error {
		if p.Base == 10 {
			return stop
		}
		return nil
	})
	require.ErrorIs(t, err, stop)
	require.Equal(t, stop, r.AddGap(1000), "errors are final")
	require.Equal(t, stop, r.Add(s.batches[0]))

	damaged := bytes.Clone(s.batches[0])
	damaged[len(damaged)-20] ^= 0xff
	last := int64(0)
	_, err = r.Rebuild(damaged, 0, func(p Piece) error { last = p.Next; return nil })
	require.ErrorIs(t, err, ErrCorrupt)
	require.Less(t, last, int64(100))
	for name, batch := range map[string][]byte{
		"empty": nil, "cut off": s.batches[0][:80], "codec 7": func() []byte {
			b := bytes.Clone(s.batches[0])
			b[offAttributes+1] = 7
			return b
		}(), "last offset": appendOld(nil, math.MaxInt64, 1, 0, 0, nil, nil),
	} {
		_, err = r.Rebuild(batch, 0, nothing)
		require.Error(t, err, name)
	}
	stats, err := r.Rebuild(s.batches[0], 0, nothing)
	require.NoError(t, err, "Begin makes a Rebuilder good again")
	require.EqualValues(t, 50, stats.Records)
}

// FuzzRebuild: whatever comes, pieces cover the offsets once, and hold what Records and OldRecords decode.
func FuzzRebuild(f *testing.F) {
	fuzzSeeds(f)
	files, _ := filepath.Glob("testdata/*.bin")
	for _, file := range files {
		log, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(log)
	}
	f.Fuzz(func(t *testing.T, log []byte) {
		batch, _, err := Next(log)
		if err != nil {
			return
		}
		h, err := ParseHeader(batch)
		decode := Records
		if errors.Is(err, ErrOldFormat) {
			decode = OldRecords
		} else if err != nil {
			return
		}
		var want []seen
		wantErr := decode(batch, func(r Record) error {
			if bytes.Equal(r.Key, fillerKey) {
				return ErrFillerKey
			}
			want = append(want, see(r))
			return nil
		})
		expected := max(0, h.BaseOffset-1)
		position := expected
		var got []seen
		r := Rebuilder{MaxBytes: 200}
		_, err = r.Rebuild(batch, expected, func(p Piece) error {
			require.Equal(t, position, p.Base)
			position = p.Next
			if p.Kind == Data {
				binary.BigEndian.PutUint64(p.Batch, uint64(p.Base))
				require.NoError(t, CheckCRC(p.Batch))
				got = append(got, decodeAll(t, p.Batch)...)
			}
			return nil
		})
		if h.Magic != 2 {
			want = (&source{records: want}).from(expected)
		}
		if h.Control() || h.Magic != 2 && h.NextOffset() < 0 {
			return
		}
		require.Equal(t, wantErr == nil, err == nil, "%v, %v", wantErr, err)
		if err == nil {
			require.Equal(t, want, got)
			require.Equal(t, h.NextOffset(), position)
		}
	})
}

func BenchmarkRebuild(b *testing.B) {
	for codec := None; codec <= Zstd; codec++ {
		b.Run("append-time-"+codec.String(), func(b *testing.B) {
			s := &source{}
			var records []seen
			for i := range int64(1000) {
				records = append(records, seen{Offset: i, Timestamp: i, Key: fmt.Append(nil, i), Value: bytes.Repeat(fmt.Append(nil, i, "-"), 40)})
			}
			s.add(b, 1000, int16(codec)|attrLogAppendTime, records)
			benchmarkRebuild(b, s)
		})
	}
	b.Run("every-second-of-10000", func(b *testing.B) { benchmarkRebuild(b, holed(b, Zstd, 10_000)) })
	b.Run("v1-messages-1000", func(b *testing.B) {
		s := &source{}
		for i := range int64(1000) {
			s.addOld(b, 1, 0, []seen{{Offset: i, Timestamp: i, Value: []byte("some value or other")}})
		}
		benchmarkRebuild(b, s)
	})
}

func benchmarkRebuild(b *testing.B, s *source) {
	size := 0
	for _, batch := range s.batches {
		size += len(batch)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	var r Rebuilder
	emit := func(Piece) error { return nil }
	for b.Loop() {
		r.Begin(0, emit)
		for _, batch := range s.batches {
			if err := r.Add(batch); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := r.End(); err != nil {
			b.Fatal(err)
		}
	}
}
