package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// collector is a broker that records correlation IDs and answers nothing with acks=0.
type collector struct {
	mu   sync.Mutex
	seen []int32
}

func (r *collector) serve(c *brokerConn, frame []byte) []byte {
	h := Header{Key: int16(binary.BigEndian.Uint16(frame)), Version: int16(binary.BigEndian.Uint16(frame[2:])), Size: int32(len(frame))}
	r.mu.Lock()
	r.seen = append(r.seen, int32(binary.BigEndian.Uint32(frame[4:])))
	r.mu.Unlock()
	if acks, err := produceAcks(h, frame); h.Key == 0 && err == nil && acks == 0 {
		return nil
	}
	return echo(c, frame)
}

func (r *collector) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// TestAcks0 (P9): thousands of requests that get no response leave no trace in the order of those that do.
func TestAcks0(t *testing.T) {
	var r collector
	b := newFakeBroker(t, r.serve)
	s := startServer(t, b, handlerFunc{}, nil)
	c := s.dial()
	var stream []byte
	for i := range int32(10_000) {
		stream = append(stream, produce(i, 0, []byte("record"))...)
	}
	stream = append(stream, request(3, 1, 10_000, nil)...)
	_, err := c.Write(stream)
	require.NoError(t, err)
	expectFrame(t, c, 10_000, "\x00\x01t")
	require.Equal(t, 10_001, r.count())
}

// TestLastWords (P11): what a client sent before it closed reaches the broker, even if the broker was not connected yet or
// is busy with a long poll.
func TestLastWords(t *testing.T) {
	const n = 2000
	var stream []byte
	for i := range int32(n) {
		stream = append(stream, produce(i, 0, []byte("record"))...)
	}
	t.Run("before the broker is connected", func(t *testing.T) {
		var r collector
		b := newFakeBroker(t, r.serve)
		connect := make(chan struct{})
		s := startServer(t, b, handlerFunc{}, func(c *Config) {
			c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
				select {
				case <-connect:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				return net.Dial("tcp", addr)
			}
		})
		c := s.dial()
		_, err := c.Write(stream)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.Eventually(t, func() bool { return value(t, s.metrics.fromClient) > 0 }, wait, time.Millisecond)
		close(connect)
		require.Eventually(t, func() bool { return r.count() == n }, wait, time.Millisecond)
		s.idle()
	})
	t.Run("behind a long poll", func(t *testing.T) {
		var r collector
		poll, polled := make(chan struct{}), make(chan struct{})
		b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte {
			if frame[1] == 1 {
				close(polled)
				<-poll
				return echo(c, frame)
			}
			return r.serve(c, frame)
		})
		s := startServer(t, b, handlerFunc{}, nil)
		c := s.dial()
		_, err := c.Write(request(1, 4, -1, nil))
		require.NoError(t, err)
		receive(t, polled)
		_, err = c.Write(stream)
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.Eventually(t, func() bool { return value(t, s.metrics.clients.open) == 0 }, wait, time.Millisecond)
		close(poll)
		require.Eventually(t, func() bool { return r.count() == n }, wait, time.Millisecond)
		s.idle()
		require.Eventually(t, func() bool { return b.open() == 0 }, wait, time.Millisecond) // it may not have seen the end yet
	})
	t.Run("behind an answer of the gateway", func(t *testing.T) {
		var r collector
		b := newFakeBroker(t, r.serve)
		working, ended := make(chan struct{}), make(chan error, 1)
		s := startServer(t, b, handlerFunc{
			route: func(_ Client, h Header) Route { return Route{Whole: h.Key == 20} },
			request: func(Client, Header, []byte) Decision {
				return Decision{Work: func(ctx context.Context, _ Upstream) ([]byte, error) {
					close(working)
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return nil, ctx.Err()
				}}
			}}, nil)
		c := s.dial()
		_, err := c.Write(request(20, 1, -1, nil))
		require.NoError(t, err)
		receive(t, working)
		// Behind the Work the client is read until something waits, so the end may be seen or not. Reset it is always seen.
		_, err = c.Write(produce(0, 0, nil))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return value(t, s.metrics.paused) == 1 }, wait, time.Millisecond)
		require.NoError(t, c.SetLinger(0))
		require.NoError(t, c.Close())
		require.ErrorIs(t, receive(t, ended), errSessionClosed)
		require.Eventually(t, func() bool { return r.count() == 1 }, wait, time.Millisecond)
		s.idle()
	})
}

// TestLongPoll (P27): a request behind a long poll waits, and nothing is lost or swapped.
func TestLongPoll(t *testing.T) {
	poll := make(chan struct{})
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte {
		if frame[1] == 1 {
			<-poll
		}
		return echo(c, frame)
	})
	s := startServer(t, b, handlerFunc{}, nil)
	c := s.dial()
	_, err := c.Write(append(request(1, 4, 1, nil), request(12, 1, 2, nil)...))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return value(t, s.metrics.inFlight) == 2 }, wait, time.Millisecond)
	close(poll)
	expectFrame(t, c, 1, "\x00\x01t")
	expectFrame(t, c, 2, "\x00\x01t")
}

// TestMaxInFlight: of 1,000 requests in one write, the broker never has more than the limit.
func TestMaxInFlight(t *testing.T) {
	release := make(chan struct{})
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte { <-release; return echo(c, frame) })
	s := startServer(t, b, handlerFunc{}, func(c *Config) { c.MaxInFlight = 10 })
	c := s.dial()
	var stream []byte
	for i := range int32(1000) {
		stream = append(stream, request(3, 1, i, nil)...)
	}
	_, err := c.Write(stream)
	require.NoError(t, err)
	for i := range int32(1000) {
		require.Eventually(t, func() bool { return value(t, s.metrics.inFlight) == float64(min(10, 1000-i)) }, wait, 100*time.Microsecond)
		release <- struct{}{}
		expectFrame(t, c, i, "\x00\x01t")
	}
}

// TestBrokerDown (P19): a broker that is down costs its own clients only, and the log says which broker it was.
func TestBrokerDown(t *testing.T) {
	b := newFakeBroker(t, echo)
	s := startServer(t, b, handlerFunc{}, nil)
	down, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := down.Addr().(*net.TCPAddr)
	require.NoError(t, down.Close())
	host, port, err := s.Advertise(7, "127.0.0.1", int32(addr.Port))
	require.NoError(t, err)

	up := s.dial()
	_, err = up.Write(request(3, 1, 1, nil))
	require.NoError(t, err)
	expectFrame(t, up, 1, "\x00\x01t")

	c, err := net.Dial("tcp", hostPort(host, port))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(wait)))
	_, err = c.Write(request(3, 1, 1, nil))
	require.NoError(t, err)
	require.Empty(t, expectEnd(t, c))
	require.Equal(t, 1, s.failures(reasonDial))
	lines := s.logs.FilterMessage("no broker can be reached; closing the client's connection").All()
	require.Len(t, lines, 1)
	require.Contains(t, lines[0].ContextMap()["error"], addr.String())

	_, err = up.Write(request(3, 1, 2, nil))
	require.NoError(t, err)
	expectFrame(t, up, 2, "\x00\x01t")
}

// TestBootstrapTriesAll: the bootstrap listener reaches the cluster while any broker is up.
func TestBootstrapTriesAll(t *testing.T) {
	b := newFakeBroker(t, echo)
	s := startServer(t, b, handlerFunc{}, func(c *Config) { c.Bootstrap = []string{" 127.0.0.1:1, 127.0.0.1:2 ,", "127.0.0.1:1"} })
	host, port := b.hostPort()
	_, _, err := s.Advertise(1, host, port)
	require.NoError(t, err)
	for range 10 {
		c := s.dial()
		_, err := c.Write(request(3, 1, 1, nil))
		require.NoError(t, err)
		expectFrame(t, c, 1, "\x00\x01t")
	}
}

// TestBrokerLeaves: what the broker sent before it closed reaches the client, however slowly that reads.
func TestBrokerLeaves(t *testing.T) {
	big := strings.Repeat("x", 20<<20)
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte {
		_, _ = c.Write(withLength(response(1, big)))
		c.Close()
		return nil
	})
	s := startServer(t, b, handlerFunc{}, nil)
	c := s.dial()
	_, err := c.Write(request(3, 1, 1, nil))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return value(t, s.metrics.paused) > 0 }, wait, time.Millisecond)
	expectFrame(t, c, 1, big)
	require.Empty(t, expectEnd(t, c))
}

// TestLeaveWhileDialling (P16): clients that go away while the broker is dialled leave nothing behind.
func TestLeaveWhileDialling(t *testing.T) {
	b := newFakeBroker(t, echo)
	var dialling atomic.Int32
	s := startServer(t, b, handlerFunc{}, func(c *Config) {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			dialling.Add(1)
			defer dialling.Add(-1)
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err == nil && dialling.Load()%2 == 0 {
				runtime.Gosched()
			}
			return conn, err
		}
	})
	for range 300 {
		c := s.dial()
		_, err := c.Write(request(3, 1, 1, nil))
		require.NoError(t, err)
		require.NoError(t, c.SetLinger(0)) // a reset, seen even while the connection is not read
		require.NoError(t, c.Close())
	}
	s.idle()
	require.Zero(t, dialling.Load())
	require.Eventually(t, func() bool { return b.open() == 0 }, wait, time.Millisecond)
}

// TestChurn: 10,000 connections come and go, at every point of their life, and leave nothing.
func TestChurn(t *testing.T) {
	b := newFakeBroker(t, echo)
	s := startServer(t, b, handlerFunc{}, nil)
	c := s.dial()
	_, err := c.Write(request(3, 1, 1, nil))
	require.NoError(t, err)
	expectFrame(t, c, 1, "\x00\x01t")
	c.Close()
	s.idle()
	require.Eventually(t, func() bool { return b.open() == 0 }, wait, time.Millisecond)
	goroutines, files := runtime.NumGoroutine(), fds(t)

	frame := request(3, 1, 1, nil)
	addr := s.Addr()
	var group sync.WaitGroup
	for n := range 4 {
		group.Go(func() {
			for i := range 2500 {
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				switch (i + n) % 5 {
				case 0: // nothing
				case 1:
					_, _ = conn.Write(frame[:6])
				case 2:
					_, _ = conn.Write(frame)
				case 3:
					_, _ = conn.Write(frame)
					if _, err := readFrame(conn); err != nil {
						t.Error(err)
					}
				case 4:
					_, _ = conn.Write(append(bytes.Clone(frame), frame[:9]...))
					_ = conn.(*net.TCPConn).SetLinger(0)
				}
				conn.Close()
			}
		})
	}
	group.Wait()
	s.idle()
	require.Eventually(t, func() bool { return b.open() == 0 }, wait, time.Millisecond)
	require.Eventually(t, func() bool { return fds(t) <= files }, wait, 10*time.Millisecond, "descriptors leaked")
	// gnet's pool keeps the goroutines that enrolled connections for some seconds.
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= goroutines+2 }, 2*wait, 50*time.Millisecond, "goroutines leaked")
}

func TestStop(t *testing.T) {
	release, got := make(chan struct{}), make(chan struct{}, 10)
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte {
		got <- struct{}{}
		if frame[1] == 1 {
			<-release
		}
		return echo(c, frame)
	})
	// One loop: that the idle connection ends then says that the others know too.
	s := startServer(t, b, handlerFunc{}, func(c *Config) { c.Loops = 1 })
	busy, idle, partial := s.dial(), s.dial(), s.dial()
	_, err := busy.Write(request(1, 4, 1, nil))
	require.NoError(t, err)
	_, err = idle.Write(request(3, 1, 2, nil))
	require.NoError(t, err)
	whole := request(3, 1, 3, []byte("abc"))
	_, err = partial.Write(whole[:len(whole)-1])
	require.NoError(t, err)
	expectFrame(t, idle, 2, "\x00\x01t")
	receive(t, got)
	receive(t, got)
	require.Eventually(t, func() bool { return value(t, s.metrics.inFlight) == 2 }, wait, time.Millisecond)

	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(context.Background()) }()
	require.Empty(t, expectEnd(t, idle), "an idle connection closes at once")
	_, err = net.Dial("tcp", s.Addr())
	require.Error(t, err, "no new connections")
	_, err = busy.Write(request(3, 1, 4, nil)) // too late
	require.NoError(t, err)
	_, err = partial.Write(whole[len(whole)-1:]) // was under way
	require.NoError(t, err)
	expectFrame(t, partial, 3, "\x00\x01tabc")
	close(release)
	expectFrame(t, busy, 1, "\x00\x01t")
	require.Empty(t, expectEnd(t, busy), "the request that came after Stop is not answered")
	require.NoError(t, receive(t, stopped))
}

func TestStopDoesNotWaitForEver(t *testing.T) {
	release := make(chan struct{})
	b := newFakeBroker(t, func(*brokerConn, []byte) []byte { <-release; return nil })
	defer close(release)
	working := make(chan struct{})
	s := startServer(t, b, handlerFunc{
		route: func(_ Client, h Header) Route { return Route{Whole: h.Key == 20} },
		request: func(Client, Header, []byte) Decision {
			return Decision{Work: func(ctx context.Context, up Upstream) ([]byte, error) {
				close(working)
				_, err := up.RoundTrip(ctx, kmsg.NewPtrApiVersionsRequest())
				return nil, err
			}}
		}}, nil)
	c, w := s.dial(), s.dial()
	_, err := c.Write(request(3, 1, 1, nil))
	require.NoError(t, err)
	_, err = w.Write(request(20, 1, 1, nil))
	require.NoError(t, err)
	receive(t, working)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, s.Stop(ctx))
	expectEnd(t, c)
	expectEnd(t, w)
}

// TestStopReportsStuckWork: a Work that ignores its context does not hang Stop, nor crash what it reports to.
func TestStopReportsStuckWork(t *testing.T) {
	b := newFakeBroker(t, echo)
	stuck, working := make(chan struct{}), make(chan struct{})
	cfg := DefaultConfig()
	cfg.Listen, cfg.Bootstrap = "127.0.0.1:0", []string{b.addr()}
	srv, err := New(cfg, nil, nil)
	require.NoError(t, err)
	require.NoError(t, srv.Start(context.Background(), handlerFunc{route: whole, request: func(_ Client, h Header, _ []byte) Decision {
		return Decision{Work: func(_ context.Context, up Upstream) ([]byte, error) {
			close(working)
			<-stuck
			_, err := up.RoundTrip(context.Background(), kmsg.NewPtrApiVersionsRequest())
			if !errors.Is(err, errSessionClosed) {
				t.Errorf("round trip of a server that has stopped: %v", err)
			}
			return response(h.CorrelationID, ""), nil
		}}
	}}))
	c, err := net.Dial("tcp", srv.Addr())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write(request(3, 1, 1, nil))
	require.NoError(t, err)
	receive(t, working)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorContains(t, srv.Stop(ctx), "does not end")
	close(stuck)
	require.NoError(t, srv.workers.wait(context.Background()))
}
