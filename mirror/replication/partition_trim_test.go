package replication

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A destination broker that was killed has forgotten deletions that it had not written down. They are repeated: on an idle
// partition when that is seen, on others when the log is in order again after the doubt.
func TestDestinationForgetsTrim(t *testing.T) {
	m := newMachine(1 << 20)
	var trims func(ev event) []int64
	trims = func(ev event) []int64 {
		var offsets []int64
		var noted event
		for _, effect := range m.step(ev) {
			switch e := effect.(type) {
			case doTrim:
				offsets = append(offsets, e.offset)
			case doNoteStart:
				noted = evStartNoted(e)
			}
		}
		if noted != nil {
			offsets = append(offsets, trims(noted)...)
		}
		return offsets
	}
	ready := func(start int64) []int64 {
		return append(trims(evLogReady{end: 100}), trims(evOffsets{gen: m.gen, start: start, lso: 100, hw: 100, epoch: -1})...)
	}
	m.step(evStart{})
	m.step(evLeader{broker: 1})
	require.Equal(t, []int64{60}, ready(60))
	m.step(evTrimmed{start: 60})

	require.Empty(t, trims(evDestinationStart{start: 60}))
	require.Equal(t, []int64{60}, trims(evDestinationStart{start: 20}))
	m.step(evTrimmed{start: 60})
	require.Empty(t, trims(evDestinationStart{start: 60}))

	m.step(evDoubt{err: errors.New("the connection is gone")})
	again := ready(60)
	again = append(again, trims(evWatermarks{gen: m.gen, marks: watermarks{start: 60, lso: 100, hw: 100}})...)
	require.Equal(t, []int64{60}, again)
}
