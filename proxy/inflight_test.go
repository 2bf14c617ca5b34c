package proxy

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestInflightModel runs random steps against the plain description of what must come out: every reply once, in request
// order, whenever the answers arrive.
func TestInflightModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var f inflight
		var next, out byte
		var broker []bool // what the broker owes: true for the client's
		emit := func() {
			for {
				r, ok := f.ready()
				if !ok {
					return
				}
				require.Equal(t, []byte{out}, r.frame)
				out++
			}
		}
		working := false
		for next < 250 {
			switch step := rng.IntN(6); {
			case step < 3 && f.accepts():
				require.False(t, working)
				switch rng.IntN(3) {
				case 0:
					f.forward(expected{corr: int32(next)})
					broker = append(broker, true)
				case 1:
					f.answer([]byte{next})
				case 2:
					f.work()
					working = true
				}
				next++
			case step == 3 && working:
				f.internal(expected{corr: -1, call: &call{}})
				broker = append(broker, false)
			case step == 4 && working:
				f.worked([]byte{next - 1}, nil)
				working = false
			case step == 5 && len(broker) > 0:
				e := f.next()
				require.Equal(t, broker[0], e.call == nil)
				if broker[0] {
					require.Equal(t, int32(out), e.corr, "the response is not the client's next")
					out++
				}
				require.NoError(t, f.received())
				broker = broker[1:]
			}
			emit()
			require.Equal(t, len(broker), f.expected.len())
			require.Equal(t, int(next-out), f.replies.len())
			held := 0
			for i := range f.replies.len() {
				held += len(f.replies.at(i).frame)
			}
			require.Equal(t, held, f.held)
		}
	}
}

func TestInflightRefusesWhatCannotBe(t *testing.T) {
	var f inflight
	require.ErrorIs(t, f.received(), errOrder, "nothing is expected")
	require.Nil(t, f.next())
	require.Panics(t, func() { f.worked(nil, nil) })
	f.work()
	for _, add := range []func(){
		func() { f.forward(expected{}) }, func() { f.answer(nil) }, f.work, func() { f.close("", nil) },
	} {
		require.Panics(t, add, "a request behind a Work")
	}
	f.worked(nil, errors.New("no"))
	require.False(t, f.accepts(), "nothing comes behind the end")
	r, ok := f.ready()
	require.True(t, ok)
	require.Equal(t, replyClosing, r.kind)
}
