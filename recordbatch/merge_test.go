package recordbatch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// small makes adjacent gapless batches with the given numbers of records.
func small(t testing.TB, rng *rand.Rand, base int64, attributes int16, counts ...int) *source {
	s := &source{next: base}
	for _, n := range counts {
		s.add(t, int64(n), attributes, randomRecords(rng, s.next, int64(n), 30, 1))
	}
	return s
}

// mergeAll feeds all batches of s to m, as its users do, and returns what comes out.
func mergeAll(t testing.TB, m *Merger, s *source) (merged [][]byte) {
	out := func() {
		batch, err := m.Batch()
		require.NoError(t, err)
		batch = bytes.Clone(batch)
		h, err := ParseHeader(batch)
		require.NoError(t, err)
		require.EqualValues(t, m.Next-m.Base, h.NumRecords)
		Stamp(batch, 7, 0, Sequence(m.Base))
		binary.BigEndian.PutUint64(batch, uint64(m.Base))
		merged = append(merged, batch)
		m.Reset()
	}
	m.Reset()
	for _, batch := range s.batches {
		before := bytes.Clone(batch)
		taken, err := m.Add(batch)
		require.NoError(t, err)
		if !taken {
			out()
			taken, err = m.Add(batch)
			require.NoError(t, err)
			require.True(t, taken)
		}
		require.Equal(t, before, batch)
	}
	out()
	return merged
}

func TestMergeRandomBatches(t *testing.T) {
	m := &Merger{}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 5))
		counts := make([]int, 1+rng.IntN(40))
		for i := range counts {
			counts[i] = 1 + rng.IntN(1+rng.IntN(20))
		}
		codec := int16(rng.IntN(5))
		s := small(t, rng, []int64{0, 1<<31 - 4, 1 << 40}[rng.IntN(3)], codec|attrTransactional, counts...)
		m.MaxBytes, m.MaxRecords = []int{0, 300, 2000}[rng.IntN(3)], []int{0, 1, 30}[rng.IntN(3)]
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			merged := mergeAll(t, m, s)
			var got []seen
			for _, batch := range merged {
				require.NoError(t, CheckCRC(batch))
				h, err := ParseHeader(batch)
				require.NoError(t, err)
				require.NoError(t, Verbatim(h, h.BaseOffset))
				if m.MaxRecords > 0 {
					require.LessOrEqual(t, int(h.NumRecords), max(m.MaxRecords, 20))
				}
				records := decodeAll(t, batch)
				requireKgo(t, batch, records)
				got = append(got, records...)
				highest := records[0].Timestamp
				for _, r := range records {
					highest = max(highest, r.Timestamp)
				}
				require.Equal(t, highest, h.MaxTimestamp)
			}
			require.Equal(t, s.records, got)
			if m.MaxBytes == 0 && m.MaxRecords == 0 {
				require.Len(t, merged, 1)
			}
		})
		if !ok {
			return
		}
	}
}

// TestMergeLimits: the limits are used to the full, and uncompressed batches stay below.
func TestMergeLimits(t *testing.T) {
	s := &source{}
	for i := range int64(10_000) {
		s.add(t, 1, 0, []seen{{Offset: i, Timestamp: i, Value: []byte("v")}})
	}
	merged := mergeAll(t, &Merger{MaxRecords: 1000}, s)
	require.Len(t, merged, 10)
	m := &Merger{MaxBytes: 8000}
	for _, batch := range mergeAll(t, m, s) {
		require.LessOrEqual(t, len(batch), 8000)
	}
	require.Less(t, len(mergeAll(t, m, s)), 16)
	// Deltas grow past what the sum of sizes says: the last batch does not fit, and what was there stays whole.
	s = &source{}
	for i := range int64(2000) {
		s.add(t, 1, 0, []seen{{Offset: i, Timestamp: i << 40}})
	}
	m = &Merger{MaxBytes: 14_061}
	for i, batch := range mergeAll(t, m, s) {
		require.LessOrEqual(t, len(batch), 14_061)
		require.True(t, i > 0 || len(batch) > 14_030, "%d bytes", len(batch))
		require.NotEmpty(t, decodeAll(t, batch))
	}
}

func TestMergeRefuses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	two := func(attributes int16) *source { return small(t, rng, 10, attributes, 3, 2) }
	s := two(0)
	first, second := s.batches[0], s.batches[1]
	changed := func(change func(s *source)) []byte {
		o := &source{next: s.next - 2}
		change(o)
		return o.batches[0]
	}
	cases := map[string][]byte{
		"not adjacent":   first,
		"hole":           changed(func(o *source) { o.add(t, 3, 0, randomRecords(rng, 13, 2, 9, 1)) }),
		"append time":    changed(func(o *source) { o.add(t, 1, attrLogAppendTime, randomRecords(rng, 13, 1, 9, 1)) }),
		"control":        changed(func(o *source) { o.add(t, 1, attrControl, randomRecords(rng, 13, 1, 9, 1)) }),
		"empty":          changed(func(o *source) { o.add(t, 1, 0, nil) }),
		"codec":          changed(func(o *source) { o.add(t, 1, int16(Zstd), randomRecords(rng, 13, 1, 9, 1)) }),
		"filler":         changed(func(o *source) { o.add(t, 1, attrFiller, randomRecords(rng, 13, 1, 9, 1)) }),
		"cleaned filler": changed(func(o *source) { o.add(t, 1, 0, []seen{{Offset: 13, Key: FillerKey()}}) }),
	}
	for name, batch := range cases {
		t.Run(name, func(t *testing.T) {
			m := &Merger{}
			taken, err := m.Add(first)
			require.NoError(t, err)
			require.True(t, taken)
			taken, err = m.Add(batch)
			require.NoError(t, err)
			require.False(t, taken)
			alone, err := m.Batch()
			require.NoError(t, err)
			require.Equal(t, first, alone)
			taken, err = m.Add(second)
			require.NoError(t, err)
			require.True(t, taken, "what was refused changes nothing")
			batch, err := m.Batch()
			require.NoError(t, err)
			binary.BigEndian.PutUint64(batch, 10)
			require.Equal(t, s.records, decodeAll(t, batch))
		})
	}
	t.Run("after a filler", func(t *testing.T) {
		for _, o := range []func(o *source){
			func(o *source) { o.add(t, 1, attrFiller, randomRecords(rng, 13, 1, 9, 1)) },
			func(o *source) { o.add(t, 1, 0, []seen{{Offset: 13, Key: FillerKey()}}) },
		} {
			filler := &source{next: 13}
			o(filler)
			filler.add(t, 1, 0, randomRecords(rng, 14, 1, 9, 1))
			merged := mergeAll(t, &Merger{}, filler)
			require.Len(t, merged, 2)
		}
	})
	t.Run("malformed", func(t *testing.T) {
		m := &Merger{}
		taken, err := m.Add(first)
		require.NoError(t, err)
		require.True(t, taken)
		bad := bytes.Clone(second)
		bad[HeaderSize] = 0xff
		taken, err = m.Add(bad)
		require.ErrorIs(t, err, ErrCorrupt)
		require.False(t, taken)
		taken, err = m.Add(second[:70])
		require.ErrorIs(t, err, ErrCorrupt)
		require.False(t, taken)
		_, err = m.Add(second)
		require.NoError(t, err)
		require.Equal(t, 2, m.Batches)
	})
}

// FuzzMerge: a batch whose records are damaged leaves the merger as it was, and what comes out is what went in.
func FuzzMerge(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		batch, _, err := Next(b)
		if err != nil {
			return
		}
		h, err := ParseHeader(batch)
		if err != nil || h.NextOffset() > 1<<60 {
			return
		}
		m := &Merger{}
		before := &source{next: h.BaseOffset}
		if h.BaseOffset > 0 {
			before.next--
			before.add(t, 1, int16(h.Codec()%5), []seen{{Offset: before.next, Timestamp: 1, Value: []byte("v")}})
			_, err = m.Add(before.batches[0])
			require.NoError(t, err)
		}
		taken, err := m.Add(batch)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
		}
		merged, err := m.Batch()
		require.NoError(t, err)
		if m.Batches == 0 || taken && m.Batches == 1 {
			return
		}
		want := before.records
		if taken {
			err = Records(batch, func(r Record) error { want = append(want, see(r)); return nil })
			if err != nil {
				return // keys, values and headers are for the broker to judge
			}
		}
		merged = bytes.Clone(merged)
		binary.BigEndian.PutUint64(merged, uint64(m.Base))
		require.Equal(t, want, decodeAll(t, merged))
	})
}

// BenchmarkMerge joins batches of one record of 20 bytes; a record an operation.
func BenchmarkMerge(b *testing.B) {
	for _, codec := range []Codec{None, Zstd} {
		b.Run(codec.String(), func(b *testing.B) {
			s := &source{}
			for i := range int64(2000) {
				s.add(b, 1, int16(codec), []seen{{Offset: i, Timestamp: i, Value: []byte("a value of 20 bytes.")}})
			}
			m := &Merger{}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				i := n % len(s.batches)
				if i == 0 && n > 0 {
					if _, err := m.Batch(); err != nil {
						b.Fatal(err)
					}
					m.Reset()
				}
				if taken, err := m.Add(s.batches[i]); err != nil || !taken {
					b.Fatal(taken, err)
				}
			}
		})
	}
}
