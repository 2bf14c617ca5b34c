package verify

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func stretches(s Sample, topic string, partition int32, from, to int64) (all []stretch) {
	_ = s.each(topic, partition, from, to, func(r stretch) error { all = append(all, r); return nil })
	return all
}

// A sample has about the part that was asked for, follows from the seed, and does not depend on where the log starts and ends.
func TestSample(t *testing.T) {
	const to = 3_000 * sampleStretch
	for _, part := range []float64{0.001, 0.01, 0.25, 0.9} {
		s := Sample{Part: part, Seed: 7}
		require.InDelta(t, part, float64(s.size("t", 0, 0, to))/to, 0.1*part+0.002, part)
		require.Equal(t, stretches(s, "t", 0, 0, to), stretches(s, "t", 0, 0, to))
		at := int64(-1)
		for _, r := range stretches(s, "t", 0, 12_345, to-77) {
			require.Less(t, at, r.from, "in order, neighbours joined")
			require.Less(t, r.from, r.to)
			at = r.to
		}
		require.EqualValues(t, to-77, at, "the end is in it")
	}
	require.Equal(t, []stretch{{3, 99}}, stretches(Sample{}, "t", 0, 3, 99))
	require.Empty(t, stretches(Sample{Part: 0.5}, "t", 0, 99, 99))
	require.Equal(t, []stretch{{3, 99}}, stretches(Sample{Part: 1e-9}, "t", 0, 3, 99), "never nothing")

	a := Sample{Part: 0.5, Seed: 1}
	different := 0
	for n := range int64(1000) {
		for _, other := range []bool{Sample{Part: 0.5, Seed: 2}.has("t", 0, n), a.has("u", 0, n), a.has("t", 1, n)} {
			if a.has("t", 0, n) != other {
				different++
			}
		}
	}
	require.InDelta(t, 1500, different, 200, "seeds, topics and partitions have samples of their own")
	inner := stretches(a, "t", 0, 500*sampleStretch, 510*sampleStretch)
	for _, r := range inner[1 : len(inner)-1] {
		for n := r.from / sampleStretch; n < r.to/sampleStretch; n++ {
			require.True(t, a.has("t", 0, n))
		}
	}
}

// A difference in the sample is found, one outside is not, the ends always are.
func TestSampledComparison(t *testing.T) {
	source, dest := newLog(t, 1), newLog(t, 1)
	const batches, n = 40, 5_000
	sample := Sample{Part: 0.2, Seed: 3}
	in, out := int64(-1), int64(-1)
	for i := int64(1); i < batches*n/sampleStretch-1; i++ {
		if sample.has("t", 0, i) {
			in = i
		} else {
			out = i
		}
	}
	for i := range int64(batches) {
		records := make([]kgo.Record, n)
		for k := range records {
			records[k] = kgo.Record{Value: fmt.Appendf(nil, "%d", i*n+int64(k)), Timestamp: epoch}
		}
		source.write(records...)
		for _, bad := range []int64{in, out} {
			if at := bad*sampleStretch + 77; at/n == i {
				records[at%n] = kgo.Record{Value: []byte("other"), Timestamp: epoch}
			}
		}
		for k := range records {
			records[k].Context = nil
		}
		dest.write(records...)
	}
	r := run(t, source, dest, func(o *Options) { o.Sample = sample })
	require.Len(t, r.First, 1)
	require.Equal(t, in*sampleStretch+77, r.First[0].Offset)
	size := sample.size("t", 0, 0, batches*n)
	require.Equal(t, &SampleReport{Part: 0.2, Seed: 3, Offsets: size, Of: batches * n}, r.Sample)
	require.Equal(t, size, r.Records)
	require.Less(t, r.Records, int64(batches*n))
	whole := run(t, source, dest, nil)
	require.EqualValues(t, 2, whole.Differences)
	require.Nil(t, whole.Sample)

	batchesOf := func(s Sample) int64 {
		b, err := Batches(within(t), Options{Source: source.config, Destination: dest.config, Topics: []string{"t"}, Sample: s})
		require.NoError(t, err)
		require.Positive(t, b.Partitions[0].Rebuilt)
		return b.Partitions[0].Verbatim + b.Partitions[0].Rebuilt
	}
	require.Less(t, batchesOf(sample), batchesOf(Sample{})/2)

	dest.write(kgo.Record{Value: []byte("more"), Timestamp: epoch})
	r = run(t, source, dest, func(o *Options) { o.Sample = sample })
	require.EqualValues(t, 2, r.Differences, "behind the end")
}
