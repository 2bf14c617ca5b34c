package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// marker stands for the topic in the produce requests of these tests: the handler decides by its first byte, and makes the
// second 'x' where a request passes.
const (
	passes  = 'p'
	refused = 'r'
	waits   = 'w'
)

// marked is where the marker is in the frame of produce.
const marked = 15

// openings decides by markers. What it has to see whole is answered with "no", or goes through the gate.
type openings struct {
	t      *testing.T
	gate   *gate
	still  func() error
	stream bool // what does not pass by its opening streams all the same
	opened atomic.Int32
	whole  atomic.Int32
}

func (o *openings) route(_ Client, h Header) Route {
	if h.Key != keyProduce {
		return Route{}
	}
	return Route{Whole: !o.stream, Opening: func(start []byte) *Pass {
		o.opened.Add(1)
		if len(start) < openingBytes || len(start) > int(h.Size) {
			o.t.Errorf("%d bytes of %d are the start", len(start), h.Size)
		}
		if start[marked] != passes {
			return nil
		}
		start[marked+1] = 'x'
		return &Pass{Still: o.still}
	}}
}

func (o *openings) request(c Client, h Header, frame []byte) Decision {
	o.whole.Add(1)
	switch frame[marked] {
	case passes:
		return Decision{Forward: frame}
	case waits:
		return o.gate.handler().Request(c, h, frame)
	}
	return Decision{Answer: response(h.CorrelationID, "no")}
}

// markedProduce is a request of size bytes for the handler above.
func markedProduce(corr int32, acks int16, mark byte, size int) []byte {
	body := bytes.Repeat([]byte{'0' + byte(corr%10)}, size)
	body[0], body[1] = mark, '-'
	return produce(corr, acks, body)
}

// summary answers with the length of a request and the byte that follows its marker.
func summary(_ *brokerConn, frame []byte) []byte {
	if binary.BigEndian.Uint16(frame) == keyProduce && binary.BigEndian.Uint16(frame[13:]) == 0 {
		return nil
	}
	out := append(frame[4:8:8], frame[len(frame)-1])
	out = binary.BigEndian.AppendUint32(out, uint32(len(frame)))
	if len(frame) > marked+1 {
		out = append(out, frame[marked+1])
	}
	return out
}

func summaryOf(frame []byte, second byte) string {
	out := binary.BigEndian.AppendUint32([]byte{frame[len(frame)-1]}, uint32(len(frame)-lengthBytes))
	return string(append(out, second))
}

// TestOpenings: large requests go by their beginning, others as a whole, each in its order and with the answers that they
// have, however what the client sends is cut into pieces.
func TestOpenings(t *testing.T) {
	o := &openings{t: t}
	s := startServer(t, newFakeBroker(t, summary), handlerFunc{route: o.route, request: o.request}, nil)
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := s.dial()
		var stream []byte
		var want []string
		for corr := range int32(40) {
			size := []int{2, 1000, openFrom - 100, openFrom, 100 << 10, 600 << 10}[rng.IntN(6)]
			mark := []byte{passes, refused}[rng.IntN(2)]
			acks := int16(rng.IntN(2))
			frame := markedProduce(corr, acks, mark, size)
			stream = append(stream, frame...)
			second := byte('-')
			if len(frame) >= lengthBytes+openFrom {
				second = 'x'
			}
			switch {
			case mark == refused:
				want = append(want, string(response(corr, "no")))
			case acks == 1:
				want = append(want, string(response(corr, summaryOf(frame, second))))
			}
		}
		go send(c, stream, rng)
		for _, answer := range want {
			got, err := readFrame(c)
			require.NoError(t, err)
			require.Equal(t, answer, string(got))
		}
	}
	require.NotZero(t, o.opened.Load())
	require.NotZero(t, o.whole.Load())
	require.Eventually(t, func() bool { return s.held.Load() == 0 }, wait, time.Millisecond)
}

// send writes in pieces, small ones mostly.
func send(c net.Conn, stream []byte, rng *rand.Rand) {
	for len(stream) > 0 {
		n := min(len(stream), 1+rng.IntN(1<<rng.IntN(19)))
		if _, err := c.Write(stream[:n]); err != nil {
			return
		}
		stream = stream[n:]
	}
}

// TestNothingIsHeldOfWhatPasses: a request that passes is at the broker as far as it has come.
func TestNothingIsHeldOfWhatPasses(t *testing.T) {
	var got atomic.Int64
	b := newFakeBroker(t, summary)
	o := &openings{t: t}
	s := startServer(t, b, handlerFunc{route: o.route, request: o.request}, nil)
	c := s.dial()
	frame := markedProduce(1, 1, passes, 8<<20)
	_, err := c.Write(frame[:4<<20])
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		got.Store(int64(value(t, s.metrics.toBroker)))
		return got.Load() == 4<<20
	}, wait, time.Millisecond)
	require.Zero(t, value(t, s.metrics.held))
	_, err = c.Write(frame[4<<20:])
	require.NoError(t, err)
	expectFrame(t, c, 1, summaryOf(frame, 'x'))
}

// TestPassesNoMore: what a request passed by may no longer be so before its end has come. Then the broker gets what was before
// it, and never the whole of it.
func TestPassesNoMore(t *testing.T) {
	var seen collector
	var asked atomic.Int32
	var no atomic.Bool
	o := &openings{t: t, still: func() error {
		asked.Add(1)
		if no.Load() {
			return errors.New("it is read-only now")
		}
		return nil
	}}
	s := startServer(t, newFakeBroker(t, seen.serve), handlerFunc{route: o.route, request: o.request}, nil)
	c := s.dial()
	frame := markedProduce(2, 1, passes, 1<<20)
	_, err := c.Write(append(request(3, 1, 1, nil), frame[:1<<19]...))
	require.NoError(t, err)
	expectFrame(t, c, 1, "\x00\x01t")
	require.Eventually(t, func() bool { return int(value(t, s.metrics.toBroker)) >= 1<<19 }, wait, time.Millisecond)
	no.Store(true)
	_, _ = c.Write(append(frame[1<<19:], request(3, 1, 3, nil)...)) // the connection may end before all of it is written
	require.Empty(t, expectEnd(t, c))
	s.idle()
	require.Equal(t, []int32{1}, seen.seen)
	require.Positive(t, asked.Load())
	require.Equal(t, 1, s.failures(reasonHandler))
}

// TestOpeningOfWhatStreams: a request that need not be seen whole goes on whatever its opening says.
func TestOpeningOfWhatStreams(t *testing.T) {
	o := &openings{t: t, stream: true}
	s := startServer(t, newFakeBroker(t, summary), handlerFunc{route: o.route}, nil)
	c := s.dial()
	for i, mark := range []byte{passes, refused} {
		frame := markedProduce(int32(i), 1, mark, 100<<10)
		_, err := c.Write(frame)
		require.NoError(t, err)
		expectFrame(t, c, int32(i), summaryOf(frame, []byte{'x', '-'}[i]))
	}
	require.Equal(t, int32(2), o.opened.Load())
}

// TestOpeningBehindOneThatWaits: a request that would pass keeps its place behind one that waits.
func TestOpeningBehindOneThatWaits(t *testing.T) {
	o := &openings{t: t, gate: newGate(time.Hour)}
	s := startServer(t, newFakeBroker(t, summary), handlerFunc{route: o.route, request: o.request}, nil)
	c := s.dial()
	first, second := markedProduce(1, 1, waits, 100<<10), markedProduce(2, 1, passes, 100<<10)
	_, err := c.Write(append(bytes.Clone(first), second...))
	require.NoError(t, err)
	o.gate.awaitAsked(t, 1)
	require.Equal(t, int32(1), o.opened.Load(), "what is behind it is not looked at")
	o.gate.turn(true)
	expectFrame(t, c, 1, summaryOf(first, '-'))
	expectFrame(t, c, 2, summaryOf(second, 'x'))
}
