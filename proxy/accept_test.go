package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// namedAccept lets clients say in a first line which server name they ask for. An empty one is refused.
func namedAccept(ctx context.Context, conn net.Conn) (Accepted, error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var line []byte
	for b := make([]byte, 1); ; line = append(line, b[0]) {
		if _, err := io.ReadFull(conn, b); err != nil {
			conn.Close()
			return Accepted{}, fmt.Errorf("hello: %w", err)
		}
		if b[0] == '\n' {
			break
		}
	}
	if len(line) == 0 {
		conn.Close()
		return Accepted{}, errors.New("no name")
	}
	return Accepted{Conn: conn, ServerName: string(line), Principal: "CN=" + string(line)}, nil
}

func TestBrokersByName(t *testing.T) {
	b := newFakeBroker(t, echo)
	host, port := b.hostPort()
	nodes := make(chan int32, 10)
	h := handlerFunc{route: func(c Client, _ Header) Route { nodes <- c.Node(); return Route{} }}
	s := startServer(t, b, h, func(c *Config) {
		c.Accept, c.BrokerHost, c.AdvertiseHost = namedAccept, "broker-$(node_id).GW.example", "gw.example"
		c.MaxNodeID = 5 // is for ports
	})
	_, bootPort := s.AdvertisedBootstrap()
	for _, node := range []int32{0, 3, 70_000} {
		name, p, err := s.Advertise(node, host, port)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("broker-%d.GW.example", node), name)
		require.Equal(t, bootPort, p, "all at the port of the bootstrap listener")
	}
	_, _, err := s.Advertise(4, "BROKER-3.gw.example", bootPort)
	require.ErrorContains(t, err, "which is the gateway")
	_, _, err = s.Advertise(-1, host, port)
	require.Error(t, err)

	for name, want := range map[string]int32{
		"gw.example": -1, "anything": -1, "broker-3.gw.example": 3, "Broker-3.Gw.Example.": 3, "broker-70000.gw.example": 70_000,
		"broker-03.gw.example": -1, "broker-+3.gw.example": -1, "broker-x.gw.example": -1, "broker-.gw.example": -1, "broker-3.gw.example.org": -1,
	} {
		c := s.dial()
		_, err := c.Write(append([]byte(name+"\n"), request(3, 1, 1, nil)...))
		require.NoError(t, err)
		expectFrame(t, c, 1, "\x00\x01t")
		require.Equal(t, want, receive(t, nodes), name)
		require.NoError(t, c.Close())
	}
	s.idle()
	require.Equal(t, 1, s.logs.FilterMessage("client has a certificate").FilterField(zap.String("principal", "CN=broker-3.gw.example")).Len())

	c := s.dial()
	_, err = c.Write([]byte("broker-9.gw.example\n"))
	require.NoError(t, err)
	require.Empty(t, expectEnd(t, c))
	s.idle()
	require.Equal(t, 1, s.failures(reasonHandshake))
	require.Equal(t, 1, s.logs.FilterMessageSnippet("no broker 9 is known").Len())
	c = s.dial()
	_, err = c.Write([]byte("\n"))
	require.NoError(t, err)
	require.Empty(t, expectEnd(t, c))
	s.idle()
	require.Equal(t, 2, s.failures(reasonHandshake))
	c = s.dial()
	require.NoError(t, c.CloseWrite())
	require.Empty(t, expectEnd(t, c))
	s.idle()
	require.Equal(t, 2, s.failures(reasonHandshake), "who just leaves is no failure")
}

// TestAdvertiseByNameBeforeStart: the names are told with a port although it may be any free one.
func TestAdvertiseByNameBeforeStart(t *testing.T) {
	srv := newServer(t, func(c *Config) { c.Accept, c.BrokerHost = namedAccept, "b$(node_id)" })
	name, port, err := srv.Advertise(1, "10.0.0.1", 9092)
	require.NoError(t, err)
	require.Equal(t, "b1", name)
	require.NoError(t, srv.Start(context.Background(), handlerFunc{}))
	_, bootPort := srv.AdvertisedBootstrap()
	require.Equal(t, bootPort, port)
}

// TestAccepts: no more of them run at once than may, slow ones end, and stopping does not wait for them.
func TestAccepts(t *testing.T) {
	b := newFakeBroker(t, echo)
	var running, most atomic.Int32
	accept := func(ctx context.Context, conn net.Conn) (Accepted, error) {
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		return namedAccept(ctx, conn)
	}
	s := startServer(t, b, handlerFunc{}, func(c *Config) { c.Accept, c.MaxAccepts, c.AcceptTimeout = accept, 3, time.Second })
	var silent []net.Conn
	for range 4 {
		silent = append(silent, s.dial())
	}
	c := s.dial()
	_, err := c.Write(append([]byte("x\n"), request(3, 1, 1, nil)...))
	require.NoError(t, err)
	expectFrame(t, c, 1, "\x00\x01t")
	for _, c := range silent {
		require.Empty(t, expectEnd(t, c))
	}
	require.LessOrEqual(t, most.Load(), int32(3))

	s = startServer(t, b, handlerFunc{}, func(c *Config) { c.Accept, c.MaxAccepts, c.AcceptTimeout = accept, 3, time.Hour })
	for range 5 {
		s.dial()
	}
	require.Eventually(t, func() bool { return running.Load() == 3 }, wait, time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	require.NoError(t, s.Stop(ctx))
	require.NoError(t, ctx.Err())
}

func TestCheckBrokerHost(t *testing.T) {
	for _, good := range []string{"broker-$(node_id).gw.example", "$(node_id).x", "b$(node_id)", "A_$(node_id)-x.Y"} {
		require.NoError(t, CheckBrokerHost(good), good)
	}
	for _, bad := range []string{"", "broker.example", "$(node_id)-$(node_id)", "b $(node_id)", "b$(node_id):9092", ".$(node_id)", "10.0.0.$(node_id)",
		string(bytes.Repeat([]byte("x"), 60)) + "$(node_id)"} {
		require.Error(t, CheckBrokerHost(bad), bad)
	}
	_, err := New(Config{Listen: "127.0.0.1:0", Bootstrap: []string{"h:1"}, BrokerHost: "b$(node_id)"}, nil, nil)
	require.ErrorContains(t, err, "Accept")
}

func TestAPINames(t *testing.T) {
	b := newFakeBroker(t, echo)
	s := startServer(t, b, handlerFunc{}, func(c *Config) { c.APINames = map[int16]string{107: "CreateMirror", 5100: "ListMirrors"} })
	c := s.dial()
	for i, key := range []int16{107, 5100, 5101, 108} {
		_, err := c.Write(request(key, 0, int32(i), nil))
		require.NoError(t, err)
		_, err = readFrame(c)
		require.NoError(t, err)
	}
	for name, want := range map[string]float64{"CreateMirror": 1, "ListMirrors": 1, "other": 1, "key_108": 1} {
		require.Equal(t, want, value(t, s.metrics.requests.WithLabelValues(name)), name)
	}
	require.Equal(t, 1.0, value(t, s.metrics.session(-1)))
}

// TestRequireLogin: who has not logged in gets nothing from the gateway that brokers would not give.
func TestRequireLogin(t *testing.T) {
	var metadata atomic.Int32
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte {
		switch key := binary.BigEndian.Uint16(frame); {
		case key == 17 || key == 36 || key == 18:
			return echo(c, frame)
		case c.n == 1: // not logged in
			c.Close()
			return nil
		case key == 3:
			metadata.Add(1)
			resp := kmsg.NewPtrMetadataResponse()
			resp.Version = 4
			return resp.AppendTo(bytes.Clone(frame[4:8]))
		}
		return echo(c, frame)
	})
	h := handlerFunc{route: func(_ Client, h Header) Route { return Route{Whole: h.Key == 95 || h.Key == 96 || h.Key == 18} }, request: func(_ Client, h Header, _ []byte) Decision {
		if h.Key == 96 {
			return Decision{Work: func(context.Context, Upstream) ([]byte, error) { return response(h.CorrelationID, "worked"), nil }}
		}
		return Decision{Answer: response(h.CorrelationID, "answered")}
	}}
	s := startServer(t, b, h, func(c *Config) { c.RequireLogin = true })
	for _, key := range []int16{95, 96} {
		c := s.dial()
		_, err := c.Write(request(key, 0, 1, nil))
		require.NoError(t, err)
		require.Empty(t, expectEnd(t, c))
	}
	require.Zero(t, metadata.Load())

	c := s.dial()
	send := func(key int16, corr int32, want string) {
		t.Helper()
		_, err := c.Write(request(key, 0, corr, nil))
		require.NoError(t, err)
		expectFrame(t, c, corr, want)
	}
	send(18, 1, "answered") // which everybody may ask
	send(36, 2, "\x00\x01t")
	send(95, 3, "answered")
	send(96, 4, "worked")
	require.Equal(t, int32(1), metadata.Load(), "asked once")
	c = s.dial()
	send(36, 1, "\x00\x01t")
	send(2, 2, "\x00\x01t")
	send(96, 3, "worked")
	require.Equal(t, int32(1), metadata.Load(), "not asked where the broker has answered anything")
}
