package verify

import (
	"fmt"
	"hash/fnv"
	"math"
)

// # Sampling
//
// Offsets are divided into stretches of sampleStretch, counted from 0. A stretch is in the sample if a hash of the seed, the topic,
// the partition and its number is below the wanted part of all hashes. So the sample depends on the seed alone: not on where the
// log starts or ends at the moment, nor on the order of the work, and a later run with the same seed reads the same stretches, and new ones
// behind them. The first and the last stretch of a log are always in it, for its ends are where mirrors go wrong.

// sampleStretch is a compromise: a stretch costs a request at least, of some MB, and many small ones find more than few large ones.
const sampleStretch = 10_000

// Sample says which part of the offsets is compared. The zero value is all.
type Sample struct {
	// Part is that part, between 0 and 1.
	Part float64
	// Seed selects the stretches.
	Seed uint64
}

func (s Sample) check() error {
	if math.IsNaN(s.Part) || s.Part < 0 || s.Part >= 1 {
		return fmt.Errorf("a sample of %v is not between 0 and 1", s.Part)
	}
	return nil
}

func (s Sample) all() bool { return s.Part == 0 }

// has reports whether the stretch number n of a partition is in the sample.
func (s Sample) has(topic string, partition int32, n int64) bool {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s/%d/%d", s.Seed, topic, partition, n)
	// FNV's high bits depend little on the last bytes: mix (the finalizer of MurmurHash3).
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return float64(x) < s.Part*math.MaxUint64
}

// stretch is the offsets [from, to).
type stretch struct{ from, to int64 }

// each calls fn with the stretches of [from, to) that are in the sample, neighbours joined.
func (s Sample) each(topic string, partition int32, from, to int64, fn func(stretch) error) error {
	if from >= to {
		return nil
	}
	if s.all() {
		return fn(stretch{from, to})
	}
	first, last := from/sampleStretch, (to-1)/sampleStretch
	for n := first; n <= last; n++ {
		if n != first && n != last && !s.has(topic, partition, n) {
			continue
		}
		begin := n
		for n < last && (n+1 == last || s.has(topic, partition, n+1)) {
			n++
		}
		if err := fn(stretch{max(from, begin*sampleStretch), min(to, (n+1)*sampleStretch)}); err != nil {
			return err
		}
	}
	return nil
}

// size is the number of offsets of [from, to) that are in the sample.
func (s Sample) size(topic string, partition int32, from, to int64) (n int64) {
	_ = s.each(topic, partition, from, to, func(r stretch) error { n += r.to - r.from; return nil })
	return n
}
