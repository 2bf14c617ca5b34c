package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// oneByOne is a Passage that gives its bytes in many pieces, holds some of them back, and turns 'a' into 'A'.
type oneByOne struct {
	held   []byte
	failAt int // bytes; 0: never
	fed    int
	ended  error
}

var errPassage = errors.New("what arrives is no answer")

func (o *oneByOne) Feed(data []byte) ([][]byte, error) {
	o.fed += len(data)
	if o.failAt > 0 && o.fed >= o.failAt {
		return nil, errPassage
	}
	all := append(o.held, bytes.ReplaceAll(data, []byte("a"), []byte("A"))...)
	give := len(all)
	if o.held == nil && give > 10 { // the first time
		give -= 10
	}
	o.held = bytes.Clone(all[give:])
	var out [][]byte
	for piece := all[:give]; len(piece) > 0; {
		n := min(len(piece), 1+len(piece)/200)
		out, piece = append(out, piece[:n]), piece[n:]
	}
	return out, nil
}

func (o *oneByOne) End() error { return o.ended }

// TestStreamedResponse: large responses pass through what rewrites them on the way, small ones and those that are there
// in full are rewritten as a whole, and each in its order.
func TestStreamedResponse(t *testing.T) {
	const large = 1 << 20
	size := func(corr uint32) int { return int(corr%5) * large / 4 }
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte {
		return append(frame[4:8:8], bytes.Repeat([]byte("a"), size(binary.BigEndian.Uint32(frame[4:])))...)
	})
	var streams atomic.Int32
	h := handlerFunc{route: func(_ Client, h Header) Route {
		return Route{
			Rewrite: func(f []byte) ([]byte, error) { return append(f[:4:4], bytes.Repeat([]byte("w"), len(f)-4)...), nil },
			Stream: func(n int) Passage {
				if n != 4+size(uint32(h.CorrelationID)) {
					t.Errorf("size of %d is said to be %d", h.CorrelationID, n)
				}
				streams.Add(1)
				return &oneByOne{}
			},
		}
	}}
	s := startServer(t, b, h, nil)
	c := s.dial()
	const requests = 25
	for i := range int32(requests) {
		_, err := c.Write(request(1, 4, i, nil))
		require.NoError(t, err)
	}
	for i := range uint32(requests) {
		frame, err := readFrame(c)
		require.NoError(t, err)
		require.Equal(t, i, binary.BigEndian.Uint32(frame))
		body := frame[4:]
		require.Len(t, body, size(i))
		if len(body) == 0 {
			continue
		}
		require.Contains(t, "Aw", string(body[0]))
		require.Equal(t, len(body), bytes.Count(body, body[:1]))
	}
	require.Equal(t, int32(requests*4/5), streams.Load())
}

// TestStreamedResponseFails: an answer that turns out to be none ends the connection, and the gateway serves on.
func TestStreamedResponseFails(t *testing.T) {
	b := newFakeBroker(t, func(_ *brokerConn, frame []byte) []byte {
		return append(frame[4:8:8], make([]byte, 4<<20)...)
	})
	var passage atomic.Pointer[oneByOne]
	h := handlerFunc{route: func(Client, Header) Route {
		return Route{Rewrite: func(f []byte) ([]byte, error) { return f, nil }, Stream: func(int) Passage { return passage.Load() }}
	}}
	s := startServer(t, b, h, nil)
	for _, bad := range []*oneByOne{{failAt: 1 << 20}, {ended: errPassage}} {
		passage.Store(bad)
		c := s.dial()
		_, err := c.Write(request(1, 4, 7, nil))
		require.NoError(t, err)
		_ = c.SetReadDeadline(time.Now().Add(wait))
		_, err = readFrame(c)
		if bad.ended == nil {
			require.Error(t, err, "a part of it, at most")
		}
		var one [1]byte
		_, err = c.Read(one[:])
		require.Error(t, err, "the connection ends")
	}
	passage.Store(&oneByOne{})
	c := s.dial()
	_, err := c.Write(request(1, 4, 8, nil))
	require.NoError(t, err)
	frame, err := readFrame(c)
	require.NoError(t, err)
	require.Len(t, frame, 4+4<<20)
}
