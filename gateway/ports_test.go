package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/test/faultproxy"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// From the first moment that the bootstrap port takes a connection, every broker's port does, and every address that an
// answer names is served at once: clients that come back after a restart go to the brokers that they know.
func TestBrokerPortsAreBoundFirst(t *testing.T) {
	noLeaks(t)
	const nodes = 5
	destination := cluster(t, "destination", kfake.NumBrokers(nodes), kfake.SeedTopics(nodes, "t"))
	ports := reserve(t, 1+nodes)
	cfg := testConfig(t, destination.ListenAddrs()[0])
	cfg.Listen = loopback(ports[0])
	for range 5 {
		g := start(t, cfg)
		conn := dialAsSoonAsPossible(t, g, cfg.Listen)
		for _, port := range ports[1:] {
			served(t, loopback(port))
		}
		for range 5 {
			named := metadata(t, conn)
			require.Len(t, named, nodes)
			for _, addr := range named {
				served(t, addr)
			}
		}
		require.NoError(t, conn.Close())
		require.NoError(t, g.stop())
	}
}

// reserve keeps ports in a row for the test.
func reserve(t *testing.T, n int) []int {
	t.Helper()
	ports, err := kafkatest.ReserveRange(n)
	require.NoError(t, err)
	t.Cleanup(ports.Release)
	return ports.Numbers
}

func dialAsSoonAsPossible(t *testing.T, g *running, addr string) net.Conn {
	t.Helper()
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			require.NoError(t, conn.SetDeadline(time.Now().Add(longEnough)))
			return conn
		}
		select {
		case err := <-g.done:
			g.done <- err
			t.Fatalf("the gateway ended: %v", err)
		default:
		}
	}
}

// served has one request answered by whoever listens at the address; its first try must do.
func served(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(longEnough)))
	ask(t, conn, kmsg.NewPtrApiVersionsRequest())
}

// metadata is which addresses the brokers have, as a client is told.
func metadata(t *testing.T, conn net.Conn) []string {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	require.NoError(t, resp.ReadFrom(ask(t, conn, req)))
	var named []string
	for _, b := range resp.Brokers {
		named = append(named, net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))))
	}
	return named
}

// ask sends a request of version 0 and returns the body of the answer.
func ask(t *testing.T, conn net.Conn, req kmsg.Request) []byte {
	t.Helper()
	_, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1))
	require.NoError(t, err)
	var size [4]byte
	_, err = io.ReadFull(conn, size[:])
	require.NoError(t, err)
	answer := make([]byte, int(size[0])<<24|int(size[1])<<16|int(size[2])<<8|int(size[3]))
	_, err = io.ReadFull(conn, answer)
	require.NoError(t, err)
	return answer[4:]
}

// Behind NAT every connection of a client goes to a forwarded port: the ones that it is told are all that it can reach.
func TestClientsBehindNAT(t *testing.T) {
	noLeaks(t)
	const nodes = 2
	destination := cluster(t, "destination", kfake.NumBrokers(nodes), kfake.SeedTopics(nodes, "t"))
	inside := reserve(t, 1+nodes)
	outside := reserve(t, 1+nodes)
	cfg := testConfig(t, destination.ListenAddrs()[0])
	cfg.Listen = loopback(inside[0])
	cfg.Advertise, cfg.Proxy.AdvertisePort, cfg.Proxy.AdvertiseBrokerPortBase = "localhost", outside[0], outside[0]
	require.NoError(t, cfg.Validate())
	g := start(t, cfg)
	g.awaitReady(t)
	forwarded := map[string]bool{}
	for i, port := range outside {
		forwarder, err := faultproxy.Listen(loopback(port), loopback(inside[i]))
		require.NoError(t, err)
		defer forwarder.Close()
		forwarded[net.JoinHostPort("localhost", strconv.Itoa(port))] = true
	}
	var dialer net.Dialer
	c := client(t, net.JoinHostPort("localhost", strconv.Itoa(outside[0])), kgo.DefaultProduceTopic("t"),
		kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !forwarded[addr] {
				return nil, fmt.Errorf("%s is not forwarded", addr)
			}
			return dialer.DialContext(ctx, "tcp4", addr)
		}))
	for partition := range int32(nodes) {
		require.NoError(t, c.ProduceSync(testContext(t), &kgo.Record{Partition: partition, Value: []byte("x")}).FirstErr())
	}
	c.Close()
	require.NoError(t, g.stop())
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
