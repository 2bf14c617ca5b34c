package proxy

import (
	"encoding/binary"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNotKafka: bytes that are no Kafka request end the connection with a word of why, and no broker hears of them.
func TestNotKafka(t *testing.T) {
	length := func(n int32) string { return string(binary.BigEndian.AppendUint32(nil, uint32(n))) }
	for _, tc := range []struct {
		name, sent, reason, log string
	}{
		{"HTTP GET", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", reasonHTTP, "looks like HTTP"},
		{"HTTP POST", "POST / HTTP/1.1\r\n", reasonHTTP, "looks like HTTP"},
		{"TLS ClientHello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", reasonTLS, "looks like TLS on a plaintext port"},
		{"negative length", length(-1) + "12345678", reasonLength, "frame length -1"},
		{"lowest length", length(math.MinInt32), reasonLength, "frame length"},
		{"zero length", length(0), reasonLength, "too small"},
		{"length 7", length(7), reasonLength, "too small"},
		{"huge length", length(math.MaxInt32), reasonLength, "frame length 2147483647"},
		{"just too long", length(DefaultConfig().MaxFrameBytes + 1), reasonLength, "frame length"},
		{"no client ID", length(8) + "\x00\x03\x00\x01\x00\x00\x00\x01", reasonHeader, "the header of API key 3 version 1 alone has 10"},
		{"no tagged fields", length(10) + "\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff", reasonHeader, "alone has 11"},
		{"client ID beyond the end", length(14) + "\x00\x00\x00\x07\x00\x00\x00\x01\x7f\xff1234", reasonHeader, "ends inside its header"},
	} {
		for _, byByte := range []bool{false, true} {
			t.Run(tc.name, func(t *testing.T) {
				b := newFakeBroker(t, echo)
				s := startServer(t, b, handlerFunc{}, nil)
				c := s.dial()
				if byByte {
					for i := range len(tc.sent) {
						if _, err := c.Write([]byte{tc.sent[i]}); err != nil {
							break // closed before the last byte, rightly
						}
					}
				} else {
					_, err := c.Write([]byte(tc.sent))
					require.NoError(t, err)
				}
				require.Empty(t, expectEnd(t, c))
				s.idle()
				require.Equal(t, 1, s.failures(tc.reason))
				lines := s.logs.FilterField(reasonField(tc.reason)).All()
				require.Len(t, lines, 1)
				require.Contains(t, lines[0].ContextMap()["error"], tc.log)
				if tc.name != "client ID beyond the end" { // its first 12 bytes are good
					require.Zero(t, b.accepted(), "a broker was dialled")
				}
			})
		}
	}
}

// TestEarlierRequestsSurviveGarbage: what came before garbage is still sent on.
func TestEarlierRequestsSurviveGarbage(t *testing.T) {
	got := make(chan struct{}, 1)
	b := newFakeBroker(t, func(*brokerConn, []byte) []byte { got <- struct{}{}; return nil })
	s := startServer(t, b, handlerFunc{}, nil)
	c := s.dial()
	_, err := c.Write(append(produce(1, 0, []byte("record")), "GET / HTTP"...))
	require.NoError(t, err)
	receive(t, got)
	expectEnd(t, c)
}

func TestOneByteAtATime(t *testing.T) {
	b := newFakeBroker(t, echo)
	s := startServer(t, b, handlerFunc{}, nil)
	c := s.dial()
	for _, x := range append(request(3, 1, 1, []byte("abc")), produce(2, 1, []byte("xyz"))...) {
		_, err := c.Write([]byte{x})
		require.NoError(t, err)
	}
	expectFrame(t, c, 1, "\x00\x01tabc")
	expectFrame(t, c, 2, "\x00\x01t\xff\xff\x00\x01xyz")
}

// TestHalfOpen: connections that stop before, in, or after the header, or send too slowly, do not stay.
func TestHalfOpen(t *testing.T) {
	big := request(3, 1, 1, make([]byte, 1000))
	whole := request(20, 1, 1, make([]byte, 1000))
	// Each time limit by itself: a client that is slow to begin must not be taken for another.
	t.Run("first byte", func(t *testing.T) {
		testHalfOpen(t, func(c *Config) { c.FirstByteTimeout = time.Second }, reasonFirstByte, map[string][]byte{
			"nothing": nil, "length only": big[:4], "part of the header": big[:11],
		})
	})
	t.Run("frame", func(t *testing.T) {
		testHalfOpen(t, func(c *Config) { c.FrameTimeout = time.Second }, reasonFrame, map[string][]byte{
			"header only": big[:12], "all but one byte": big[:len(big)-1], "all but one byte, held": whole[:len(whole)-1],
			"one whole, then a part": append(request(3, 1, 0, nil), big[:5]...),
		})
	})
}

func testHalfOpen(t *testing.T, limit func(*Config), reason string, starts map[string][]byte) {
	b := newFakeBroker(t, echo)
	s := startServer(t, b, handlerFunc{route: func(_ Client, h Header) Route { return Route{Whole: h.Key == 20} }}, limit)
	var group sync.WaitGroup
	for name, start := range starts {
		for range 20 {
			c := s.dial()
			_, err := c.Write(start)
			require.NoError(t, err, name)
			group.Go(func() { expectEnd(t, c) })
		}
	}
	group.Wait()
	s.idle()
	require.Equal(t, 20*len(starts), s.failures(reason))
	require.Eventually(t, func() bool { return b.open() == 0 }, wait, time.Millisecond)
}

// TestSlowLoris: a byte now and then does not keep a request alive for ever.
func TestSlowLoris(t *testing.T) {
	b := newFakeBroker(t, echo)
	s := startServer(t, b, handlerFunc{}, func(c *Config) { c.FrameTimeout = 80 * time.Millisecond })
	c := s.dial()
	_, err := c.Write(request(3, 1, 1, make([]byte, 8000))[:20])
	require.NoError(t, err)
	end := make(chan struct{})
	go func() { expectEnd(t, c); close(end) }()
	tick := time.NewTicker(20 * time.Millisecond) // four bytes in each FrameTimeout
	defer tick.Stop()
	for deadline := time.After(wait); ; {
		select {
		case <-tick.C:
			_, _ = c.Write([]byte{0})
		case <-end:
			require.Equal(t, 1, s.failures(reasonFrame))
			return
		case <-deadline:
			t.Fatal("still alive")
		}
	}
}

func TestIdle(t *testing.T) {
	b := newFakeBroker(t, echo)
	s := startServer(t, b, handlerFunc{}, func(c *Config) { c.IdleTimeout = time.Second })
	c := s.dial()
	_, err := c.Write(request(3, 1, 1, nil))
	require.NoError(t, err)
	expectFrame(t, c, 1, "\x00\x01t")
	require.Empty(t, expectEnd(t, c))
	require.Equal(t, 1, s.failures(reasonIdle))
}

func TestMaxConnections(t *testing.T) {
	b := newFakeBroker(t, echo)
	s := startServer(t, b, handlerFunc{}, func(c *Config) { c.MaxConnections = 3 })
	var conns []*net.TCPConn
	for range 3 {
		c := s.dial()
		_, err := c.Write(request(3, 1, 1, nil))
		require.NoError(t, err)
		expectFrame(t, c, 1, "\x00\x01t")
		conns = append(conns, c)
	}
	expectEnd(t, s.dial())
	require.Equal(t, 1, s.failures(reasonConnections))
	conns[0].Close()
	require.Eventually(t, func() bool { return s.sessions.Load() == 2 }, wait, time.Millisecond)
	c := s.dial()
	_, err := c.Write(request(3, 1, 2, nil))
	require.NoError(t, err)
	expectFrame(t, c, 2, "\x00\x01t")
}

// TestBadBroker: answers that cannot be right end the connection; none of them reaches the client.
func TestBadBroker(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer string // raw bytes
		reason string
	}{
		{"wrong correlation ID", "\x00\x00\x00\x05\x00\x00\x00\x09x", reasonOrder},
		{"negative length", "\xff\xff\xff\xff\x00\x00\x00\x01", reasonResponse},
		{"too short", "\x00\x00\x00\x03\x00\x00\x00\x01", reasonResponse},
		{"a TLS alert", "\x15\x03\x03\x00\x02\x02\x46", reasonTLS},
		{"HTTP", "HTTP/1.1 400 Bad Request\r\n\r\n", reasonOrder},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newFakeBroker(t, func(c *brokerConn, _ []byte) []byte {
				_, _ = c.Write([]byte(tc.answer))
				return nil
			})
			s := startServer(t, b, handlerFunc{}, nil)
			c := s.dial()
			_, err := c.Write(request(3, 1, 1, nil))
			require.NoError(t, err)
			require.Empty(t, expectEnd(t, c))
			require.Equal(t, 1, s.failures(tc.reason))
		})
	}
}

func TestUnaskedResponse(t *testing.T) {
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte {
		_, _ = c.Write(append(withLength(echo(c, frame)), withLength(response(1, "again"))...))
		return nil
	})
	s := startServer(t, b, handlerFunc{}, nil)
	c := s.dial()
	_, err := c.Write(request(3, 1, 1, nil))
	require.NoError(t, err)
	got := expectEnd(t, c)
	require.Equal(t, string(withLength(response(1, "\x00\x01t"))), string(got), "the right answer, and nothing more")
	require.Equal(t, 1, s.failures(reasonOrder))
}

// TestMaxHeldBytes: the memory of requests that must be seen whole is bounded over all connections.
func TestMaxHeldBytes(t *testing.T) {
	b := newFakeBroker(t, echo)
	s := startServer(t, b, handlerFunc{route: whole, request: func(_ Client, _ Header, f []byte) Decision { return Decision{Forward: f} }},
		func(c *Config) { c.MaxFrameBytes, c.MaxHeldBytes, c.Loops = 4<<20, 8<<20, 1 })
	frame := request(3, 1, 1, make([]byte, 3<<20))
	var conns []*net.TCPConn
	for range 10 {
		c := s.dial()
		if _, err := c.Write(frame[:len(frame)-1]); err == nil {
			conns = append(conns, c)
		}
	}
	require.Eventually(t, func() bool { return s.failures(reasonHeld) >= 5 }, wait, time.Millisecond)
	require.LessOrEqual(t, s.held.Load(), int64(10<<20)) // a loop doubles one buffer, and then ends that connection
	for _, c := range conns {
		c.Close()
	}
	s.idle()
	require.Zero(t, s.held.Load())
	require.Zero(t, value(t, s.metrics.held))
	c := s.dial()
	_, err := c.Write(frame)
	require.NoError(t, err)
	got, err := readFrame(c)
	require.NoError(t, err)
	require.Len(t, got, len(frame)-8)
	require.Eventually(t, func() bool { return s.held.Load() == 0 }, wait, time.Millisecond)
}

// TestHandlerFaults: a handler that fails or breaks its contract costs that connection only.
func TestHandlerFaults(t *testing.T) {
	other := []byte("\x00\x03\x00\x01\x00\x00\x00\x63\x00\x01t") // correlation ID 99
	for name, tc := range map[string]struct {
		h      handlerFunc
		reason string
	}{
		"route panics": {handlerFunc{route: func(Client, Header) Route { panic("x") }}, reasonPanic},
		"request panics": {handlerFunc{route: whole, request: func(Client, Header, []byte) Decision { panic("x") }},
			reasonPanic},
		"nothing decided": {handlerFunc{route: whole, request: func(Client, Header, []byte) Decision { return Decision{} }},
			reasonHandler},
		"answer to another request": {handlerFunc{route: whole, request: func(Client, Header, []byte) Decision {
			return Decision{Answer: response(99, "")}
		}}, reasonHandler},
		"answer too short": {handlerFunc{route: whole, request: func(Client, Header, []byte) Decision {
			return Decision{Answer: []byte{0}}
		}}, reasonHandler},
		"forwards another request": {handlerFunc{route: whole, request: func(Client, Header, []byte) Decision {
			return Decision{Forward: other}
		}}, reasonHandler},
		"forwards no request": {handlerFunc{route: whole, request: func(Client, Header, []byte) Decision {
			return Decision{Forward: []byte{1, 2}}
		}}, reasonHandler},
		"rewrite fails": {handlerFunc{route: func(Client, Header) Route {
			return Route{Rewrite: func([]byte) ([]byte, error) { return nil, net.ErrClosed }}
		}}, reasonRewrite},
		"rewrite panics": {handlerFunc{route: func(Client, Header) Route {
			return Route{Rewrite: func([]byte) ([]byte, error) { panic("x") }}
		}}, reasonPanic},
		"rewrite changes the correlation ID": {handlerFunc{route: func(Client, Header) Route {
			return Route{Rewrite: func([]byte) ([]byte, error) { return response(99, ""), nil }}
		}}, reasonRewrite},
		"route closes": {handlerFunc{route: func(Client, Header) Route { return Route{Close: net.ErrClosed} }}, reasonHandler},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFakeBroker(t, echo)
			good := handlerFunc{
				route: func(c Client, h Header) Route {
					if h.Version == 0 {
						return Route{}
					}
					return tc.h.Route(c, h)
				},
				request: tc.h.request,
			}
			s := startServer(t, b, good, func(c *Config) { c.Loops = 1 })
			bystander, c := s.dial(), s.dial()
			_, err := c.Write(request(3, 1, 1, nil))
			require.NoError(t, err)
			require.Empty(t, expectEnd(t, c))
			require.Equal(t, 1, s.failures(tc.reason), strings.TrimSpace(name))
			_, err = bystander.Write(request(3, 0, 2, nil))
			require.NoError(t, err)
			expectFrame(t, bystander, 2, "\x00\x01t")
		})
	}
}
