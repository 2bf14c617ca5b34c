package appendlog

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

func TestJudgeBatch(t *testing.T) {
	p := Partition{ProducerID: 7}
	past := []int64{3, 5, 7}
	header := func(pid int64, epoch int16, base int64, seq int32) recordbatch.Header {
		return recordbatch.Header{Magic: 2, BaseOffset: base, ProducerID: pid, ProducerEpoch: epoch, BaseSequence: seq, LastOffsetDelta: 9, NumRecords: 10}
	}
	one := func(h recordbatch.Header) recordbatch.Header { h.LastOffsetDelta, h.NumRecords = 0, 1; return h }
	empty := func(h recordbatch.Header) recordbatch.Header { h.NumRecords = 0; return h }
	control := func(h recordbatch.Header) recordbatch.Header { h.Attributes = 0x20; return h }
	old := func(h recordbatch.Header) recordbatch.Header { h.Magic = 1; return h }
	for name, c := range map[string]struct {
		h    recordbatch.Header
		want verdict
	}{
		"ours":                            {header(7, 0, 1000, 1000), tailOurs},
		"ours, beyond 2^31":               {header(7, 0, 1<<31+5, 5), tailOurs},
		"ours, emptied by the cleaner":    {empty(header(7, 0, 1000, 1000)), tailOurs},
		"ours, shifted":                   {header(7, 0, 1001, 1000), tailForeign},
		"our fence":                       {one(header(7, 1, 1000, 0)), tailFence},
		"our fence, emptied":              {empty(one(header(7, 1, 1000, 0))), tailFence},
		"our producer, higher epoch":      {header(7, 1, 1000, 1000), tailForeign},
		"past":                            {header(5, 0, 1000, 1000), tailOurs},
		"past, shifted":                   {header(5, 0, 1001, 1000), tailForeign},
		"past fence":                      {one(header(3, 1, 1000, 0)), tailOurs},
		"past producer, sequence 0":       {one(header(3, 0, 1000, 0)), tailForeign},
		"stranger":                        {header(8, 0, 1000, 1000), tailForeign},
		"no producer":                     {header(-1, -1, 1000, -1), tailForeign},
		"marker under our ID":             {control(one(header(7, 0, 1000, 1000))), tailForeign},
		"message of an old format":        {old(header(-1, -1, 1000, -1)), tailForeign},
		"first batch, which is no fence":  {one(header(7, 0, 0, 0)), tailOurs},
		"first batch at exactly 2^31 · 3": {one(header(7, 0, 3<<31, 0)), tailOurs},
	} {
		require.Equal(t, c.want, judgeBatch(c.h, p, past), name)
	}
	p.From = 1010
	require.Equal(t, tailOurs, judgeBatch(header(8, 0, 1000, 0), p, past), "a stranger's, below From")
	require.Equal(t, tailOurs, judgeBatch(control(one(header(8, 0, 1009, 0))), p, past), "a marker below From")
	require.Equal(t, tailOurs, judgeBatch(old(one(header(-1, -1, 1009, -1))), p, past), "an old message below From")
	require.Equal(t, tailForeign, judgeBatch(header(8, 0, 1001, 0), p, past), "it reaches beyond From")
	require.Equal(t, tailForeign, judgeBatch(header(8, 0, 1010, 0), p, past), "it begins at From")
}

func TestJudgeBatches(t *testing.T) {
	p := Partition{Topic: "t", ProducerID: 7}
	at := func(base int64, pid int64, epoch int16, seq int32) []byte {
		b := recordbatch.AppendFence(nil, false, 1)
		recordbatch.Stamp(b, pid, epoch, seq)
		b[7] = byte(base) // the base offset is not covered by the CRC
		return b
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	partial := at(99, 7, 0, 99)[:70]

	got, next, err := judgeBatches(join(at(5, 7, 0, 5), at(6, 7, 0, 6), partial), p, nil)
	require.NoError(t, err)
	require.Equal(t, tail{verdict: tailOurs}, got)
	require.Equal(t, int64(7), next)

	got, next, err = judgeBatches(join(at(5, 7, 0, 5), at(6, 9, 0, 0), at(7, 7, 0, 6)), p, nil)
	require.NoError(t, err)
	require.Equal(t, tail{verdict: tailForeign, offset: 6, producerID: 9}, got)
	require.Equal(t, int64(8), next)

	got, _, err = judgeBatches(join(at(5, 7, 0, 5), at(6, 7, 1, 0)), p, nil)
	require.NoError(t, err)
	require.Equal(t, tail{verdict: tailFence, offset: 6}, got)

	got, next, err = judgeBatches(partial, p, nil)
	require.NoError(t, err)
	require.Equal(t, tail{}, got)
	require.Equal(t, int64(-1), next)

	_, _, err = judgeBatches(bytes.Repeat([]byte{0xff}, 100), p, nil)
	require.ErrorIs(t, err, errDamaged)
}

func TestSequenceBehind(t *testing.T) {
	for _, c := range []struct {
		end  int64
		last int32
		want bool
	}{
		{100, 99, false}, {100, 119, false}, {100, 98, true}, {100, 0, true},
		{1<<31 + 5, 4, false}, {1<<31 + 5, 3, true}, {1<<31 + 5, 1<<31 - 1, true}, {1 << 31, 5, false}, {1 << 31, 1<<31 - 1, false},
	} {
		got := tail{end: c.end, deep: true, lastKnown: true, last: c.last}
		require.Equal(t, c.want, got.sequenceBehind(), "end %d, last %d", c.end, c.last)
	}
	require.False(t, tail{end: 100, last: 0}.sequenceBehind())
	require.False(t, tail{end: 100, deep: true}.sequenceBehind())
}
