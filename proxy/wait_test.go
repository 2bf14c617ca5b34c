package proxy

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// gate lets Produce requests wait until it is open.
type gate struct {
	mu     sync.Mutex
	open   bool
	change chan struct{} // closed at the next change; guarded by mu
	limit  time.Duration
	asked  atomic.Int32
}

func newGate(limit time.Duration) *gate { return &gate{change: make(chan struct{}), limit: limit} }

// turn closes or opens the gate, and has everything that waits looked at.
func (g *gate) turn(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = open
	close(g.change)
	g.change = make(chan struct{})
}

func (g *gate) handler() Handler {
	return handlerFunc{
		route: func(_ Client, h Header) Route { return Route{Whole: h.Key == keyProduce} },
		request: func(_ Client, h Header, frame []byte) Decision {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.asked.Add(1)
			switch {
			case g.open:
				return Decision{Forward: frame}
			case h.Waited >= g.limit:
				return Decision{Answer: response(h.CorrelationID, "later"), Close: errors.New("waited long enough")}
			}
			return Decision{Wait: &Wait{Until: g.change, For: g.limit - h.Waited}}
		},
	}
}

func (g *gate) awaitAsked(t *testing.T, n int32) {
	t.Helper()
	require.Eventually(t, func() bool { return g.asked.Load() == n }, wait, time.Millisecond)
}

// TestWait: a request that waits holds up what is behind it, and nothing before it; then it goes on in its place.
func TestWait(t *testing.T) {
	var seen collector
	b := newFakeBroker(t, seen.serve)
	g := newGate(time.Hour)
	s := startServer(t, b, g.handler(), nil)
	c := s.dial()
	_, err := c.Write(append(append(append(request(3, 1, 1, nil), produce(2, -1, []byte("a"))...), produce(3, 0, []byte("b"))...), request(3, 1, 4, nil)...))
	require.NoError(t, err)
	expectFrame(t, c, 1, "\x00\x01t")
	g.awaitAsked(t, 1)
	require.Eventually(t, func() bool { return value(t, s.metrics.waiting) == 1 }, wait, time.Millisecond)
	g.turn(false) // looked at, and waits on
	g.awaitAsked(t, 2)
	require.Equal(t, 1, seen.count())
	g.turn(true)
	expectFrame(t, c, 2, "\x00\x01t\xff\xff\xff\xffa")
	expectFrame(t, c, 4, "\x00\x01t")
	require.Equal(t, 4, seen.count())
	require.Zero(t, value(t, s.metrics.waiting))
	require.Zero(t, value(t, s.metrics.held))
}

// TestWaitIsOver: the answer at the end of the patience is the last thing on the connection: what is behind the request that
// was refused never reaches the broker, even if it could go by now.
func TestWaitIsOver(t *testing.T) {
	var seen collector
	b := newFakeBroker(t, seen.serve)
	g := newGate(50 * time.Millisecond)
	s := startServer(t, b, g.handler(), nil)
	c := s.dial()
	_, err := c.Write(append(append(request(3, 1, 1, nil), produce(2, -1, nil)...), request(3, 1, 3, nil)...))
	require.NoError(t, err)
	require.Equal(t, append(withLength(response(1, "\x00\x01t")), withLength(response(2, "later"))...), expectEnd(t, c))
	s.idle()
	require.Equal(t, 1, seen.count())
}

// TestWaitEnds: whoever waits goes away, or the broker does, or the gateway stops: all that was kept is dropped.
func TestWaitEnds(t *testing.T) {
	var seen collector
	b := newFakeBroker(t, seen.serve)
	g := newGate(time.Hour)
	s := startServer(t, b, g.handler(), nil)
	for i, end := range []func(c net.Conn){
		func(c net.Conn) { require.NoError(t, c.(*net.TCPConn).SetLinger(0)); c.Close() },
		func(net.Conn) { b.closeConns() },
	} {
		c := s.dial()
		_, err := c.Write(append(append(request(3, 1, 1, nil), produce(2, -1, nil)...), produce(3, 0, nil)...))
		require.NoError(t, err)
		expectFrame(t, c, 1, "\x00\x01t")
		g.awaitAsked(t, int32(i+1))
		end(c)
		s.idle()
		require.Equal(t, i+1, seen.count())
		require.Zero(t, value(t, s.metrics.held))
		require.Zero(t, value(t, s.metrics.waiting))
	}
	c := s.dial()
	_, err := c.Write(produce(2, -1, nil))
	require.NoError(t, err)
	g.awaitAsked(t, 3) // startServer stops the gateway with it
}

// TestWaitIsBounded: requests that wait count against MaxHeldBytes.
func TestWaitIsBounded(t *testing.T) {
	g := newGate(time.Hour)
	s := startServer(t, newFakeBroker(t, echo), g.handler(), func(c *Config) { c.MaxFrameBytes, c.MaxHeldBytes = 4<<20, 8<<20 })
	body := make([]byte, 3<<20)
	first := s.dial()
	_, err := first.Write(produce(1, -1, body))
	require.NoError(t, err)
	g.awaitAsked(t, 1)
	for range 3 {
		_, _ = s.dial().Write(produce(1, -1, body)) // it may be cut off in the middle
	}
	require.Eventually(t, func() bool { return s.failures(reasonHeld) >= 1 }, wait, time.Millisecond)
	require.LessOrEqual(t, s.held.Load(), int64(12<<20))
	g.turn(true)
	expectFrame(t, first, 1, "\x00\x01t\xff\xff\xff\xff"+string(body))
}
