package tunnel

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/mirrorgate/mirrorgate/proxy"
	"github.com/mirrorgate/mirrorgate/test/certs"
	"github.com/mirrorgate/mirrorgate/test/leaks"
)

func TestMain(m *testing.M) {
	os.Exit(leaks.Main(m,
		// gnet, which this package gets with the proxy, has a pool that belongs to the process.
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock")))
}

// patience is when something that must happen soon is taken to hang.
const patience = 2 * time.Minute

// pipe is a TCP connection over loopback.
func pipe(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	dialled, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	accepted, err := ln.Accept()
	require.NoError(t, err)
	for _, c := range []net.Conn{dialled, accepted} {
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	}
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

// setup is a server with a certificate for broker-*.gw.example and 127.0.0.1.
type setup struct {
	*Server
	authority *certs.Authority
	cfg       ServerConfig
	logs      *observer.ObservedLogs
	metrics   *Metrics
}

func newSetup(t *testing.T, change func(*setup)) *setup {
	t.Helper()
	s := &setup{authority: certs.New(t, t.TempDir())}
	pair := s.authority.Issue(t, "gateway", pkix.Name{CommonName: "one"}, "*.gw.example", "127.0.0.1")
	s.cfg = ServerConfig{CertFile: pair.CertFile, KeyFile: pair.KeyFile}
	if change != nil {
		change(s)
	}
	core, logs := observer.New(zap.DebugLevel)
	s.logs, s.metrics = logs, NewMetrics(nil)
	var err error
	s.Server, err = NewServer(s.cfg, s.metrics, zap.New(core))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Close(ctx)
	})
	return s
}

type outcome struct {
	accepted proxy.Accepted
	err      error
}

// accept does the server's side of a handshake.
func (s *setup) accept(t *testing.T, conn net.Conn) <-chan outcome {
	results := make(chan outcome, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		accepted, err := s.Accept(ctx, conn)
		if err == nil {
			t.Cleanup(func() { accepted.Conn.Close() })
			err = accepted.Conn.SetDeadline(time.Now().Add(patience))
		}
		results <- outcome{accepted, err}
	}()
	return results
}

// connect makes a connection through a tunnel.
func (s *setup) connect(t *testing.T, cfg *tls.Config) (*tls.Conn, outcome) {
	t.Helper()
	a, b := pipe(t)
	result := s.accept(t, b)
	if cfg == nil {
		cfg = &tls.Config{ServerName: "broker-3.gw.example"}
	}
	cfg.RootCAs = s.authority.Pool
	client := tls.Client(a, cfg)
	_ = client.Handshake()
	return client, <-result
}

func TestServerCarriesBothWays(t *testing.T) {
	s := newSetup(t, nil)
	client, got := s.connect(t, nil)
	require.NoError(t, got.err)
	require.Equal(t, "broker-3.gw.example", got.accepted.ServerName)
	require.Empty(t, got.accepted.Principal)
	near := got.accepted.Conn

	// In pieces of all sizes, so that small and large buffers are used.
	random := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	for _, way := range []struct {
		from io.Writer
		to   io.Reader
	}{{client, near}, {near, client}} {
		go func() {
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 1+random.IntN(1<<random.IntN(18)))
				_, _ = way.from.Write(rest[:n])
				rest = rest[n:]
			}
		}()
		read := make([]byte, len(data))
		_, err := io.ReadFull(way.to, read)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, read))
	}
}

// A loop that writes and closes at once loses nothing, and the peer that has sent something unread gets no reset.
func TestLastBytesArrive(t *testing.T) {
	s := newSetup(t, nil)
	for range 20 {
		client, got := s.connect(t, nil)
		require.NoError(t, got.err)
		_, err := client.Write(make([]byte, 100_000)) // the loop reads none of it
		require.NoError(t, err)
		answer := bytes.Repeat([]byte("x"), 150_000)
		_, err = got.accepted.Conn.Write(answer)
		require.NoError(t, err)
		require.NoError(t, got.accepted.Conn.Close())
		read, err := io.ReadAll(client)
		require.NoError(t, err)
		require.Equal(t, len(answer), len(read))
		require.NoError(t, client.Close())
	}
}

func TestHalfClose(t *testing.T) {
	s := newSetup(t, nil)
	client, got := s.connect(t, nil)
	require.NoError(t, got.err)
	near := got.accepted.Conn.(*net.UnixConn)
	_, err := near.Write([]byte("last words"))
	require.NoError(t, err)
	require.NoError(t, near.CloseWrite())
	read, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Equal(t, "last words", string(read))
	_, err = client.Write([]byte("answer"))
	require.NoError(t, err)
	require.NoError(t, client.Close())
	read, err = io.ReadAll(near)
	require.NoError(t, err)
	require.Equal(t, "answer", string(read))
}

// Peers that do nothing any more are given up, so that nothing is left.
func TestLimits(t *testing.T) {
	s := newSetup(t, func(s *setup) {
		s.cfg.Limits = Limits{WriteTimeout: 50 * time.Millisecond, LingerTimeout: 50 * time.Millisecond}
	})
	_, silent := s.connect(t, nil) // does not end when told to
	require.NoError(t, silent.err)
	require.NoError(t, silent.accepted.Conn.Close())
	_, full := s.connect(t, nil) // does not read
	require.NoError(t, full.err)
	go func() { _, _ = full.accepted.Conn.Write(make([]byte, 64<<20)) }()
	done := make(chan struct{})
	go func() { s.group.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
		require.Fail(t, "connections are left")
	}
}

func TestHandshakeErrors(t *testing.T) {
	s := newSetup(t, nil)
	for name, test := range map[string]struct {
		send string
		want string
	}{
		"plaintext Kafka": {"\x00\x00\x00\x15\x00\x12\x00\x03\x00\x00\x00\x00\x00\x04test\x00\x05abcd", "plaintext Kafka: set its security.protocol"},
		"HTTP":            {"GET / HTTP/1.1\r\n\r\n", "but HTTP"},
		"nonsense":        {"\xff\xff\xff\xff\xff\xff", "does not speak TLS"},
		"nothing":         {"", "EOF"},
	} {
		a, b := pipe(t)
		result := s.accept(t, b)
		_, err := a.Write([]byte(test.send))
		require.NoError(t, err)
		require.NoError(t, a.CloseWrite())
		// A plaintext client takes whatever it gets for a length: it must get nothing.
		got, _ := io.ReadAll(a)
		require.Empty(t, got, name)
		err = (<-result).err
		require.ErrorContains(t, err, test.want, name)
		if name == "nothing" {
			require.ErrorIs(t, err, io.EOF)
		}
	}
	// A client that does not trust the certificate.
	_, got := s.connect(t, &tls.Config{ServerName: "elsewhere.example"})
	require.ErrorContains(t, got.err, "refused by the client")

	// A client that stops in the middle.
	_, b := pipe(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := s.Accept(ctx, b)
	require.ErrorContains(t, err, "not done in time")
}

func TestClientCertificates(t *testing.T) {
	rules, err := ParsePrincipalRules(`RULE:^CN=(.*?),.*$/$1/L, DEFAULT`)
	require.NoError(t, err)
	var alice, stranger certs.Pair
	issue := func(s *setup) {
		alice = s.authority.Issue(t, "alice", pkix.Name{CommonName: "Alice", Organization: []string{"Example"}})
		stranger = certs.New(t, t.TempDir()).Issue(t, "mallory", pkix.Name{CommonName: "mallory"})
		s.cfg.ClientCAFile, s.cfg.Principals = s.authority.File, rules
	}
	with := func(pair certs.Pair) *tls.Config {
		return &tls.Config{ServerName: "127.0.0.1", Certificates: []tls.Certificate{pair.TLS},
			// Else it gives none that the server does not ask for.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair.TLS, nil }}
	}
	required := newSetup(t, issue)
	_, got := required.connect(t, with(alice))
	require.NoError(t, got.err)
	require.Equal(t, "alice", got.accepted.Principal)
	_, got = required.connect(t, with(stranger))
	require.ErrorContains(t, got.err, "client certificate")
	_, got = required.connect(t, &tls.Config{ServerName: "127.0.0.1"})
	require.ErrorContains(t, got.err, "client certificate")

	requested := newSetup(t, func(s *setup) { issue(s); s.cfg.ClientCertOptional = true })
	_, got = requested.connect(t, &tls.Config{ServerName: "127.0.0.1"})
	require.NoError(t, got.err)
	require.Empty(t, got.accepted.Principal)
	_, got = requested.connect(t, with(stranger))
	require.ErrorContains(t, got.err, "client certificate")
}

// New files are taken without disturbing anybody, and broken ones are not taken.
func TestReload(t *testing.T) {
	s := newSetup(t, nil)
	s.Expect("broker-1.gw.example", "gw.example")
	warnings := func(part string) int { return s.logs.FilterMessageSnippet(part).Len() }
	require.Equal(t, 1, warnings("does not cover"))

	old, got := s.connect(t, nil)
	require.NoError(t, got.err)
	look := func() { // as the first handshake a second later does
		s.certificates.mu.Lock()
		s.certificates.checked = time.Time{}
		s.certificates.mu.Unlock()
	}
	subject := func() string {
		look()
		client, got := s.connect(t, nil)
		require.NoError(t, got.err)
		return client.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	require.Equal(t, "one", subject())

	require.NoError(t, os.WriteFile(s.cfg.KeyFile, []byte("half a k"), 0o600))
	require.Equal(t, "one", subject())
	require.Equal(t, "one", subject())
	require.Equal(t, 1, warnings("cannot be used"), "said once")
	for _, entry := range s.logs.All() {
		require.False(t, strings.Contains(entry.Message, "half a k"))
		for _, v := range entry.ContextMap() {
			text, _ := v.(string)
			require.NotContains(t, text, "half a k")
		}
	}

	s.authority.Issue(t, "gateway", pkix.Name{CommonName: "two"}, "*.gw.example", "gw.example")
	require.Equal(t, "two", subject())
	s.authority.Issue(t, "gateway", pkix.Name{CommonName: "three"}, "*.gw.example")
	require.Equal(t, "three", subject())
	require.Equal(t, 2, warnings("does not cover"), "once for each certificate")

	_, err := old.Write([]byte("still here"))
	require.NoError(t, err)
	read := make([]byte, 10)
	_, err = io.ReadFull(got.accepted.Conn, read)
	require.NoError(t, err)
	require.Equal(t, "still here", string(read))
}

func TestServerFiles(t *testing.T) {
	authority := certs.New(t, t.TempDir())
	one := authority.Issue(t, "one", pkix.Name{CommonName: "one"}, "localhost")
	two := authority.Issue(t, "two", pkix.Name{CommonName: "two"}, "localhost")
	for _, cfg := range []ServerConfig{
		{}, {CertFile: one.CertFile}, {CertFile: one.CertFile, KeyFile: two.KeyFile}, {CertFile: one.KeyFile, KeyFile: one.KeyFile},
		{CertFile: one.CertFile, KeyFile: one.KeyFile, ClientCAFile: "/nowhere"}, {CertFile: one.CertFile, KeyFile: one.KeyFile, ClientCAFile: one.KeyFile},
	} {
		_, err := NewServer(cfg, nil, nil)
		require.Error(t, err)
		require.NotContains(t, err.Error(), "PRIVATE")
	}
	s, err := NewServer(ServerConfig{CertFile: one.BothFile, KeyFile: one.BothFile}, nil, nil)
	require.NoError(t, err)
	s.Close(context.Background())
	stopped := &setup{Server: s, authority: authority}
	_, got := stopped.connect(t, &tls.Config{ServerName: "localhost"})
	require.ErrorIs(t, got.err, errClosed)
}

func TestDialer(t *testing.T) {
	authority := certs.New(t, t.TempDir())
	broker := authority.Issue(t, "broker", pkix.Name{CommonName: "broker"}, "127.0.0.1")
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{broker.TLS}})
	require.NoError(t, err)
	defer ln.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(conn, conn)
			conn.Close()
		}
	}()
	metrics := NewMetrics(nil)
	dialer := NewDialer(&tls.Config{RootCAs: authority.Pool}, Limits{}, metrics)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	_, err = dialer.Dial(context.Background(), "localhost:"+port)
	require.ErrorContains(t, err, "to match localhost", "the name that was dialled is checked")

	conn, err := dialer.Dial(context.Background(), ln.Addr().String())
	require.NoError(t, err)
	_, err = conn.Write([]byte("echo"))
	require.NoError(t, err)
	read := make([]byte, 4)
	_, err = io.ReadFull(conn, read)
	require.NoError(t, err)
	require.Equal(t, "echo", string(read))
	require.NoError(t, conn.Close())
	dialer.Close(context.Background())
	_, err = dialer.Dial(context.Background(), ln.Addr().String())
	require.ErrorIs(t, err, errClosed)
	require.NoError(t, ln.Close())
	<-served
}

// BenchmarkTunnel is the cost of TLS and of the socket pair, both ends included.
func BenchmarkTunnel(b *testing.B) {
	authority, err := certs.Make(b.TempDir())
	require.NoError(b, err)
	pair := authority.Issue(b, "gateway", pkix.Name{CommonName: "one"}, "127.0.0.1")
	s, err := NewServer(ServerConfig{CertFile: pair.CertFile, KeyFile: pair.KeyFile}, nil, nil)
	require.NoError(b, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	accepted := make(chan proxy.Accepted, 1)
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			a, _ := s.Accept(context.Background(), conn)
			accepted <- a
		}
	}()
	client, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{RootCAs: authority.Pool})
	require.NoError(b, err)
	near := (<-accepted).Conn
	buf := make([]byte, 1<<20)
	b.SetBytes(int64(len(buf)))
	go func() {
		for {
			if _, err := client.Write(buf); err != nil {
				return
			}
		}
	}()
	read := make([]byte, len(buf))
	for b.Loop() {
		_, err := io.ReadFull(near, read)
		require.NoError(b, err)
	}
	_, _ = near.Close(), client.Close()
	s.Close(context.Background())
}
