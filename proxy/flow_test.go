package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestPollerFound fails when a new gnet keeps its epoll descriptor elsewhere: reading could not be paused any more.
func TestPollerFound(t *testing.T) {
	b := newFakeBroker(t, echo)
	s := startServer(t, b, handlerFunc{}, nil)
	c := s.dial()
	_, err := c.Write(request(3, 1, 1, nil))
	require.NoError(t, err)
	expectFrame(t, c, 1, "\x00\x01t")
	s.mu.RLock()
	defer s.mu.RUnlock()
	require.NotEmpty(t, s.loops)
	for _, l := range s.loops {
		require.Positive(t, int(l.poller))
	}
	require.Equal(t, poller(-1), pollerOf(struct{ gnet.Conn }{}))
}

// TestClientStopsReading (P26): a consumer that stops reading is not buffered for, and gets everything when it reads again.
func TestClientStopsReading(t *testing.T) {
	const responses, size = 150, 1 << 20
	body := strings.Repeat("0123456789abcdef", size/16)
	var written atomic.Int64
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte {
		_, err := c.Write(withLength(append(frame[4:8:8], body...)))
		if err == nil {
			written.Add(size)
		}
		return nil
	})
	same := func(f []byte) ([]byte, error) { return f, nil }
	for _, route := range []Route{{}, {Rewrite: same}, {Rewrite: same, Stream: func(int) Passage { return through{} }}} {
		written.Store(0)
		h := handlerFunc{route: func(Client, Header) Route { return route }}
		s := startServer(t, b, h, nil)
		base := heap()
		c := s.dial()
		for i := range int32(responses) {
			_, err := c.Write(request(1, 4, i, nil))
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool { return value(t, s.metrics.paused) >= 1 }, wait, time.Millisecond)
		stable := int64(-1)
		require.Eventually(t, func() bool {
			n := written.Load()
			same := n == stable
			stable = n
			return same
		}, wait, 300*time.Millisecond, "the broker is never held up")
		require.Less(t, stable, int64(60<<20), "bytes that the broker could write")
		taken := value(t, s.metrics.toClient)
		require.Less(t, int64(taken), int64(40<<20), "bytes that the proxy took for a client that does not read")
		require.Less(t, int64(heap())-int64(base), int64(50<<20), "memory")
		for i := range int32(responses) {
			require.NoError(t, c.SetDeadline(time.Now().Add(wait)))
			frame, err := readFrame(c)
			require.NoError(t, err)
			require.Equal(t, i, int32(binary.BigEndian.Uint32(frame)))
			require.True(t, string(frame[4:]) == body)
		}
	}
}

// through is a Passage that changes nothing.
type through struct{}

func (through) Feed(data []byte) ([][]byte, error) { return [][]byte{bytes.Clone(data)}, nil }
func (through) End() error                         { return nil }

// TestBrokerStopsReading: a producer is slowed down to what the broker takes.
func TestBrokerStopsReading(t *testing.T) {
	const n, size = 150, 1 << 20
	read := make(chan struct{})
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte {
		<-read
		return response(int32(binary.BigEndian.Uint32(frame[4:])), "ok")
	})
	s := startServer(t, b, handlerFunc{}, nil)
	c := s.dial()
	var written atomic.Int64
	failed := make(chan error, 1)
	go func() {
		body := make([]byte, size)
		for i := range int32(n) {
			if _, err := c.Write(produce(i, 1, body)); err != nil {
				failed <- err
				return
			}
			written.Add(size)
		}
		failed <- nil
	}()
	stable := int64(-1)
	require.Eventually(t, func() bool {
		w := written.Load()
		same := w > 0 && w == stable
		stable = w
		return same
	}, wait, 300*time.Millisecond, "the producer is never held up")
	require.Less(t, int64(value(t, s.metrics.fromClient)), int64(40<<20), "bytes that the proxy took for a broker that does not read")
	close(read)
	for i := range int32(n) {
		require.NoError(t, c.SetDeadline(time.Now().Add(wait)))
		expectFrame(t, c, i, "ok")
	}
	require.NoError(t, <-failed)
}

// TestWithoutPause: where reading cannot be paused, memory is bounded by closing.
func TestWithoutPause(t *testing.T) {
	body := strings.Repeat("x", 1<<20)
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte { return append(frame[4:8:8], body...) })
	s := startServer(t, b, handlerFunc{}, func(c *Config) {
		c.Loops, c.MaxFrameBytes, c.OutboundHigh, c.OutboundLow, c.OutboundMax = 1, 1<<20, 1<<20, 0, 8<<20
	})
	first := s.dial()
	_, err := first.Write(request(3, 1, 0, nil))
	require.NoError(t, err)
	expectFrame(t, first, 0, body)
	crippled := make(chan struct{})
	s.everyLoop(func(l *loop) { l.poller = -1; close(crippled) })
	receive(t, crippled)
	c := s.dial()
	for i := range int32(100) {
		if _, err := c.Write(request(3, 1, i, nil)); err != nil {
			break
		}
	}
	require.Eventually(t, func() bool { return s.failures(reasonSlow) == 1 }, wait, time.Millisecond)
}

// TestWork: what a Work can do and what becomes of it.
func TestWork(t *testing.T) {
	var seen collector
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte {
		if frame[1] == keyAPIVersions {
			return apiVersionsAnswer(frame, 33)
		}
		if frame[1] == 60 { // DescribeCluster, whose response header has tagged fields
			resp := kmsg.NewPtrDescribeClusterResponse()
			resp.ClusterID = "the cluster"
			return resp.AppendTo(append(frame[4:8:8], 0))
		}
		return seen.serve(c, frame)
	})
	type outcome struct {
		work Work
		want string // response body
		end  string // or the error in the log
	}
	for name, o := range map[string]outcome{
		"round trips": {work: func(ctx context.Context, up Upstream) ([]byte, error) {
			resp, err := up.RoundTrip(ctx, kmsg.NewPtrDescribeClusterRequest())
			if err != nil {
				return nil, err
			}
			v, err := up.RoundTrip(ctx, kmsg.NewPtrApiVersionsRequest())
			if err != nil || v.(*kmsg.ApiVersionsResponse).ErrorCode != 33 {
				return nil, errors.New("wrong ApiVersions response")
			}
			return response(1, resp.(*kmsg.DescribeClusterResponse).ClusterID), nil
		}, want: "the cluster"},
		"error":       {work: func(context.Context, Upstream) ([]byte, error) { return nil, errors.New("it broke") }, end: "it broke"},
		"panic":       {work: func(context.Context, Upstream) ([]byte, error) { panic("oops") }, end: "panic: oops"},
		"wrong reply": {work: func(context.Context, Upstream) ([]byte, error) { return response(2, ""), nil }, end: "correlation ID 2, not 1"},
		"too long": {work: func(ctx context.Context, _ Upstream) ([]byte, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, end: "did not answer within 100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, b, handlerFunc{
				route:   func(_ Client, h Header) Route { return Route{Whole: h.Key == 20} },
				request: func(Client, Header, []byte) Decision { return Decision{Work: o.work} },
			}, func(c *Config) {
				if name == "too long" {
					c.WorkTimeout = 100 * time.Millisecond
				}
			})
			c := s.dial()
			_, err := c.Write(append(append(request(3, 1, 0, nil), request(20, 1, 1, nil)...), request(3, 1, 2, nil)...))
			require.NoError(t, err)
			expectFrame(t, c, 0, "\x00\x01t")
			if o.end == "" {
				expectFrame(t, c, 1, o.want)
				expectFrame(t, c, 2, "\x00\x01t")
				return
			}
			require.Empty(t, expectEnd(t, c), "what comes behind a failed answer is not answered")
			require.Equal(t, 1, s.failures(reasonWork))
			require.Contains(t, s.logs.FilterField(reasonField(reasonWork)).All()[0].ContextMap()["error"], o.end)
		})
	}
}

// TestWorkEndsWithClient: a client that goes away, or a broker, ends the context of what it asked for.
func TestWorkEndsWithClient(t *testing.T) {
	b := newFakeBroker(t, echo)
	started, ended := make(chan struct{}), make(chan error)
	s := startServer(t, b, handlerFunc{route: whole, request: func(Client, Header, []byte) Decision {
		return Decision{Work: func(ctx context.Context, up Upstream) ([]byte, error) {
			started <- struct{}{}
			<-ctx.Done()
			_, err := up.RoundTrip(context.Background(), kmsg.NewPtrApiVersionsRequest())
			ended <- err
			return nil, err
		}}
	}}, nil)
	for _, end := range []func(c net.Conn){
		func(c net.Conn) { c.Close() },
		func(net.Conn) {
			// The gateway is connected once the kernel says so, which may be before the broker has accepted.
			require.Eventually(t, func() bool { return b.accepted() == 2 }, wait, time.Millisecond)
			b.closeConns()
		},
	} {
		c := s.dial()
		_, err := c.Write(request(3, 1, 1, nil))
		require.NoError(t, err)
		receive(t, started)
		end(c)
		require.ErrorIs(t, receive(t, ended), errSessionClosed)
		s.idle()
	}
}

// TestRefusalKeepsItsPlace: an end that the handler decides comes after the responses before it.
func TestRefusalKeepsItsPlace(t *testing.T) {
	release := make(chan struct{})
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte { <-release; return echo(c, frame) })
	s := startServer(t, b, handlerFunc{
		route:   func(_ Client, h Header) Route { return Route{Whole: h.Key == 0} },
		request: func(Client, Header, []byte) Decision { return Decision{Close: errors.New("read-only")} },
	}, nil)
	c := s.dial()
	_, err := c.Write(append(append(request(3, 1, 1, nil), produce(2, 0, nil)...), request(3, 1, 3, nil)...))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return value(t, s.metrics.inFlight) == 2 }, wait, time.Millisecond)
	close(release)
	require.Equal(t, withLength(response(1, "\x00\x01t")), expectEnd(t, c))
}

// TestRawTokens: after SaslHandshake v0 the authentication is no Kafka request, and passes.
func TestRawTokens(t *testing.T) {
	for _, tc := range []struct {
		mechanism string
		tokens    []string
		silent    bool
	}{
		{"PLAIN", []string{"\x00user\x00secret"}, false},
		{"SCRAM-SHA-256", []string{"n,,n=user,r=x", "c=biws,r=x,p=y"}, false},
		{"GSSAPI", []string{"token", "", "wrap"}, true},
	} {
		t.Run(tc.mechanism, func(t *testing.T) {
			b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte {
				switch {
				case c.n == 1 || c.n > 1+len(tc.tokens):
					return echo(c, frame)
				case tc.silent && c.n == 1+len(tc.tokens):
					return nil
				case len(frame) == 0 || tc.mechanism == "PLAIN":
					return []byte{} // an empty token
				}
				return append([]byte("re:"), frame...)
			})
			routed := make(chan int16, 10)
			s := startServer(t, b, handlerFunc{route: func(_ Client, h Header) Route { routed <- h.Key; return Route{} }}, nil)
			c := s.dial()
			_, err := c.Write(request(17, 0, 1, append([]byte{0, byte(len(tc.mechanism))}, tc.mechanism...)))
			require.NoError(t, err)
			_, err = readFrame(c)
			require.NoError(t, err)
			for i, token := range tc.tokens {
				_, err := c.Write(withLength([]byte(token)))
				require.NoError(t, err)
				if tc.silent && i == len(tc.tokens)-1 {
					continue
				}
				got, err := readFrame(c)
				require.NoError(t, err)
				if token == "" || tc.mechanism == "PLAIN" {
					require.Empty(t, got)
				} else {
					require.Equal(t, "re:"+token, string(got))
				}
			}
			_, err = c.Write(request(3, 1, 2, nil))
			require.NoError(t, err)
			expectFrame(t, c, 2, "\x00\x01t")
			require.Equal(t, int16(17), receive(t, routed))
			require.Equal(t, int16(3), receive(t, routed), "tokens are not routed")
		})
	}
}

// TestDialSeam: a dialer may hand over one end of a socket pair and stand between it and the broker, as TLS will.
func TestDialSeam(t *testing.T) {
	b := newFakeBroker(t, func(_ *brokerConn, frame []byte) []byte { return append(frame[4:8:8], make([]byte, 5<<20)...) })
	var copies sync.WaitGroup
	s := startServer(t, b, handlerFunc{}, func(c *Config) {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				return nil, err
			}
			var ends [2]net.Conn
			for i, fd := range pair {
				f := os.NewFile(uintptr(fd), "pair")
				if ends[i], err = net.FileConn(f); err != nil {
					return nil, err
				}
				f.Close()
			}
			copies.Go(func() { _, _ = io.Copy(conn, ends[1]); conn.Close() })
			copies.Go(func() { _, _ = io.Copy(ends[1], conn); ends[1].Close() })
			return ends[0], nil
		}
	})
	for range 3 {
		c := s.dial()
		for i := range int32(4) {
			_, err := c.Write(request(3, 1, i, nil))
			require.NoError(t, err)
		}
		for i := range int32(4) {
			frame, err := readFrame(c)
			require.NoError(t, err)
			require.Equal(t, i, int32(binary.BigEndian.Uint32(frame)))
			require.Len(t, frame, 4+5<<20)
		}
		require.NoError(t, c.Close())
	}
	s.idle()
	copies.Wait()
}

// TestDeadClientWhilePaused: a client that dies while it is not read is noticed.
func TestDeadClientWhilePaused(t *testing.T) {
	body := strings.Repeat("x", 64<<20)
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte { return append(frame[4:8:8], body...) })
	s := startServer(t, b, handlerFunc{}, nil)
	c := s.dial()
	_, err := c.Write(request(3, 1, 1, nil))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return value(t, s.metrics.paused) >= 1 }, wait, time.Millisecond)
	_, err = io.ReadFull(c, make([]byte, 1000))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	s.idle()
	require.Eventually(t, func() bool { return b.open() == 0 }, wait, time.Millisecond)
}
