package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/mirrorgate/mirrorgate/test/leaks"
)

// wait bounds what must happen soon.
const wait = 2 * time.Minute

func TestMain(m *testing.M) {
	os.Exit(leaks.Main(m,
		// gnet's pool for enrolling connections belongs to the process.
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*goWorker).run.func1")))
}

// handlerFunc is a Handler made of two functions; a nil one passes everything.
type handlerFunc struct {
	route   func(c Client, h Header) Route
	request func(c Client, h Header, frame []byte) Decision
}

func (f handlerFunc) Route(c Client, h Header) Route {
	if f.route == nil {
		return Route{}
	}
	return f.route(c, h)
}

func (f handlerFunc) Request(c Client, h Header, frame []byte) Decision {
	return f.request(c, h, frame)
}

// fakeBroker is a TCP server that reads frames and answers what serve says; nil is no answer.
type fakeBroker struct {
	t     *testing.T
	ln    net.Listener
	serve func(c *brokerConn, frame []byte) []byte
	group sync.WaitGroup

	mu    sync.Mutex
	conns map[*brokerConn]struct{}
	total int
}

type brokerConn struct {
	net.Conn
	b *fakeBroker
	n int // frames read
}

func newFakeBroker(t *testing.T, serve func(c *brokerConn, frame []byte) []byte) *fakeBroker {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return newFakeBrokerAt(t, ln, serve)
}

func newFakeBrokerAt(t *testing.T, ln net.Listener, serve func(c *brokerConn, frame []byte) []byte) *fakeBroker {
	b := &fakeBroker{t: t, ln: ln, serve: serve, conns: make(map[*brokerConn]struct{})}
	b.group.Go(b.accept)
	t.Cleanup(b.stop)
	return b
}

func (b *fakeBroker) addr() string { return b.ln.Addr().String() }

func (b *fakeBroker) hostPort() (string, int32) {
	addr := b.ln.Addr().(*net.TCPAddr)
	return addr.IP.String(), int32(addr.Port)
}

func (b *fakeBroker) accept() {
	for {
		conn, err := b.ln.Accept()
		if err != nil {
			return
		}
		c := &brokerConn{Conn: conn, b: b}
		b.mu.Lock()
		b.conns[c] = struct{}{}
		b.total++
		b.mu.Unlock()
		b.group.Go(func() { b.run(c) })
	}
}

func (b *fakeBroker) run(c *brokerConn) {
	defer func() {
		b.mu.Lock()
		delete(b.conns, c)
		b.mu.Unlock()
		c.Close()
	}()
	for {
		frame, err := readFrame(c)
		if err != nil {
			return
		}
		c.n++
		if resp := b.serve(c, frame); resp != nil {
			if _, err := c.Write(withLength(resp)); err != nil {
				return
			}
		}
	}
}

func (b *fakeBroker) open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.conns)
}

func (b *fakeBroker) accepted() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}

func (b *fakeBroker) closeConns() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		c.Close()
	}
}

func (b *fakeBroker) stop() {
	b.ln.Close()
	b.closeConns()
	b.group.Wait()
}

// echo answers with the correlation ID and everything behind the fixed part of the header.
func echo(_ *brokerConn, frame []byte) []byte {
	return append(bytes.Clone(frame[4:8]), frame[8:]...)
}

func withLength(frame []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}

func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(r, frame)
	return frame, err
}

// request makes a frame with its length: key, version, correlation ID, client ID "t", body.
func request(key, version int16, corr int32, body []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(corr))
	b = append(b, 0, 1, 't')
	if flexibleRequest(key, version) {
		b = append(b, 0)
	}
	return withLength(append(b, body...))
}

// produce makes a Produce v7 frame with these acks and some bytes that stand for the records.
func produce(corr int32, acks int16, body []byte) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0xff, 0xff}, uint16(acks))
	return request(0, 7, corr, append(b, body...))
}

type testServer struct {
	*Server
	t       *testing.T
	metrics *Metrics
	logs    *observer.ObservedLogs
}

// startServer starts a proxy in front of the broker; change may adapt its configuration.
func startServer(t *testing.T, b *fakeBroker, h Handler, change func(*Config)) *testServer {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Bootstrap = []string{b.addr()}
	cfg.Loops = 2
	if change != nil {
		change(&cfg)
	}
	core, logs := observer.New(zap.DebugLevel)
	m := NewMetrics(prometheus.NewRegistry())
	srv, err := New(cfg, m, zap.New(core))
	require.NoError(t, err)
	require.NoError(t, srv.Start(context.Background(), h))
	s := &testServer{Server: srv, t: t, metrics: m, logs: logs}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		require.NoError(t, srv.Stop(ctx))
		require.Zero(t, srv.sessions.Load())
		require.Zero(t, value(t, m.clients.open), "open client connections")
		require.Zero(t, value(t, m.upstreams.open), "open broker connections")
		require.Zero(t, value(t, m.inFlight), "requests in flight")
		require.Zero(t, value(t, m.paused), "paused connections")
	})
	return s
}

func (s *testServer) dial() *net.TCPConn {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	require.NoError(s.t, conn.SetDeadline(time.Now().Add(wait)))
	return conn.(*net.TCPConn)
}

// failures is how many connections ended for a reason.
func (s *testServer) failures(reason string) int {
	return int(value(s.t, s.metrics.errors.WithLabelValues(reason)))
}

// idle waits until no session is left.
func (s *testServer) idle() {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.sessions.Load() == 0 }, wait, time.Millisecond, "sessions are left")
}

func value(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var out dto.Metric
	require.NoError(t, m.Write(&out))
	if out.Gauge != nil {
		return out.Gauge.GetValue()
	}
	return out.Counter.GetValue()
}

func expectFrame(t *testing.T, r io.Reader, corr int32, body string) {
	t.Helper()
	frame, err := readFrame(r)
	require.NoError(t, err)
	require.Equal(t, corr, int32(binary.BigEndian.Uint32(frame)), "correlation ID")
	require.Equal(t, body, string(frame[4:]))
}

// expectEnd reads to the end of the connection, which must come, and returns what came before.
func expectEnd(t *testing.T, c net.Conn) []byte {
	t.Helper()
	b, err := io.ReadAll(c)
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "the connection was not closed")
	return b
}

func response(corr int32, body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(corr)), body...)
}

func fds(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("needs /proc")
	}
	return len(entries)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// apiVersionsAnswer is a response to the ApiVersions v0 requests that tests use as round trips: code is its error code.
func apiVersionsAnswer(frame []byte, code int16) []byte {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = code
	return resp.AppendTo(bytes.Clone(frame[4:8]))
}

func whole(Client, Header) Route { return Route{Whole: true} }

func reasonField(reason string) zap.Field { return zap.String("reason", reason) }

// receive waits for something on ch.
func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(wait):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

func hostPort(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
