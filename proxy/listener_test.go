package proxy

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

func newServer(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Listen, cfg.Bootstrap = "127.0.0.1:0", []string{"127.0.0.1:1"}
	change(&cfg)
	srv, err := New(cfg, nil, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, srv.Stop(context.Background())) })
	return srv
}

// TestAdvertise: a broker gets a listener when it is first seen, and keeps it wherever it moves.
func TestAdvertise(t *testing.T) {
	who := func(name string) func(*brokerConn, []byte) []byte {
		return func(_ *brokerConn, frame []byte) []byte { return append(frame[4:8:8], name...) }
	}
	one, two := newFakeBroker(t, who("one")), newFakeBroker(t, who("two"))
	node := make(chan int32, 10)
	s := startServer(t, one, handlerFunc{route: func(c Client, _ Header) Route { node <- c.Node(); return Route{} }}, nil)
	host, port := one.hostPort()
	h, p, err := s.Advertise(5, host, port)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", h)
	ask := func(want string) net.Conn {
		c, err := net.Dial("tcp", hostPort(h, p))
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(wait)))
		_, err = c.Write(request(3, 1, 1, nil))
		require.NoError(t, err)
		expectFrame(t, c, 1, want)
		require.Equal(t, int32(5), receive(t, node))
		return c
	}
	old := ask("one")
	host, port = two.hostPort()
	h2, p2, err := s.Advertise(5, host, port)
	require.NoError(t, err)
	require.Equal(t, hostPort(h, p), hostPort(h2, p2))
	ask("two")
	_, err = old.Write(request(3, 1, 2, nil))
	require.NoError(t, err)
	expectFrame(t, old, 2, "one")

	bootHost, bootPort := s.AdvertisedBootstrap()
	require.Equal(t, s.Addr(), hostPort(bootHost, bootPort))
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _, _ = s.Advertise(5, host, port) }))
	for _, self := range []int32{bootPort, p} {
		_, _, err = s.Advertise(6, "127.0.0.1", self)
		require.ErrorContains(t, err, "which is the gateway")
	}
	require.NoError(t, s.Stop(context.Background()))
	_, _, err = s.Advertise(9, host, port)
	require.ErrorIs(t, err, errStopped)
}

// TestAdvertiseBeforeStart (P18): listeners of known brokers are there before the bootstrap listener is.
func TestAdvertiseBeforeStart(t *testing.T) {
	b := newFakeBroker(t, echo)
	host, port := b.hostPort()
	srv := newServer(t, func(*Config) {})
	h, p, err := srv.Advertise(0, host, port)
	require.NoError(t, err)
	c, err := net.Dial("tcp", hostPort(h, p))
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write(request(3, 1, 1, nil))
	require.NoError(t, err)
	require.NoError(t, srv.Start(context.Background(), handlerFunc{}))
	require.NoError(t, c.SetDeadline(time.Now().Add(wait)))
	expectFrame(t, c, 1, "\x00\x01t")
	require.Error(t, srv.Start(context.Background(), handlerFunc{}))
}

// TestIPv6: gateway, brokers and what clients are told may all be IPv6 addresses.
func TestIPv6(t *testing.T) {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6: %v", err)
	}
	b := newFakeBrokerAt(t, ln, echo)
	s := startServer(t, b, handlerFunc{}, func(c *Config) { c.Listen = "[::1]:0" })
	host, port := b.hostPort()
	require.Equal(t, "::1", host)
	h, p, err := s.Advertise(3, host, port)
	require.NoError(t, err)
	require.Equal(t, "::1", h)
	for _, addr := range []string{s.Addr(), hostPort(h, p)} {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		require.NoError(t, c.SetDeadline(time.Now().Add(wait)))
		_, err = c.Write(request(3, 1, 1, nil))
		require.NoError(t, err)
		expectFrame(t, c, 1, "\x00\x01t")
		require.NoError(t, c.Close())
	}
	_, _, err = s.Advertise(4, "::1", p)
	require.ErrorContains(t, err, "which is the gateway")
}

func TestBrokerPorts(t *testing.T) {
	free, err := kafkatest.ReservePorts(1)
	require.NoError(t, err)
	defer free.Release()
	base := free.Numbers[0]
	srv := newServer(t, func(c *Config) {
		c.BrokerPortBase, c.AdvertiseHost, c.AdvertiseBrokerPortBase, c.AdvertisePort = base, "kafka.example.com", 30000, 29999
	})
	h, p, err := srv.Advertise(0, "10.0.0.1", 9092)
	require.NoError(t, err)
	require.Equal(t, "kafka.example.com:30000", hostPort(h, p))
	require.Equal(t, base, srv.brokers[0].ln.Addr().(*net.TCPAddr).Port)
	for _, node := range []int32{-1, 65535 - int32(base) + 1, 65536, 1_000_000_000} {
		_, _, err = srv.Advertise(node, "10.0.0.1", 9092)
		require.ErrorContains(t, err, "broker ID")
	}
	for host, port := range map[string]int32{"": 9092, "h": 0, "x": -1, "y": 65536} {
		_, _, err = srv.Advertise(1, host, port)
		require.ErrorContains(t, err, "no usable address")
	}
	require.NoError(t, srv.Start(context.Background(), handlerFunc{}))
	h, p = srv.AdvertisedBootstrap()
	require.Equal(t, "kafka.example.com:29999", hostPort(h, p))

	taken := newServer(t, func(c *Config) { c.BrokerPortBase = base })
	_, _, err = taken.Advertise(0, "10.0.0.1", 9092)
	require.ErrorContains(t, err, "address already in use")
	limited := newServer(t, func(c *Config) { c.MaxNodeID = 9 })
	_, _, err = limited.Advertise(10, "10.0.0.1", 9092)
	require.ErrorContains(t, err, "max-broker-id")
	fixed := newServer(t, func(c *Config) { c.Listen, c.BrokerPortBase = "127.0.0.1:30005", 30000 })
	_, _, err = fixed.Advertise(5, "10.0.0.1", 9092)
	require.ErrorContains(t, err, "broker-port-base", "the port of the bootstrap listener")
}

func TestAdvertiseHost(t *testing.T) {
	ctx := context.Background()
	require.Equal(t, "127.0.0.1", advertiseHost(ctx, "127.0.0.1", net.IPv4(127, 0, 0, 1)))
	require.Equal(t, "localhost", advertiseHost(ctx, "localhost", net.IPv4(127, 0, 0, 1)))
	for _, any := range []net.IP{nil, net.IPv4zero, net.IPv6unspecified} {
		got := advertiseHost(ctx, "", any)
		require.NotEmpty(t, got)
		require.NotContains(t, []string{"0.0.0.0", "::"}, got)
		_, err := net.LookupHost(got)
		require.NoError(t, err, "clients could not resolve it either")
	}
}

func TestConfig(t *testing.T) {
	good := func() Config {
		c := DefaultConfig()
		c.Listen, c.Bootstrap = ":0", []string{"a:1"}
		return c
	}
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no bootstrap":   {func(c *Config) { c.Bootstrap = []string{" , "} }, "no address"},
		"bootstrap":      {func(c *Config) { c.Bootstrap = []string{"a"} }, "missing port"},
		"bootstrap port": {func(c *Config) { c.Bootstrap = []string{"a:0"} }, "not host:port"},
		"listen":         {func(c *Config) { c.Listen = "nowhere" }, "Listen"},
		"workers":        {func(c *Config) { c.Workers = -1 }, "Workers is -1"},
		"watermarks":     {func(c *Config) { c.OutboundLow = c.OutboundHigh + 1 }, "OutboundLow"},
		"base":           {func(c *Config) { c.BrokerPortBase = 65536 }, "BrokerPortBase"},
	} {
		c := good()
		tc.change(&c)
		_, err := New(c, nil, nil)
		require.ErrorContains(t, err, tc.want, name)
	}
	c := Config{Listen: ":0", Bootstrap: []string{"b:2, a:1,", "b:2", "[::1]:3"}}
	require.NoError(t, c.complete())
	require.Equal(t, []string{"b:2", "a:1", "[::1]:3"}, c.Bootstrap)
	require.Equal(t, DefaultConfig().IdleTimeout, c.IdleTimeout)
}
