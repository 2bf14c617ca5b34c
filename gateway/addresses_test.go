package gateway

import (
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Behind NAT clients are told other ports than those that are bound; IPv6 addresses are told without brackets, and DNS
// names as they are.
func TestAdvertisedAddresses(t *testing.T) {
	noLeaks(t)
	destination := cluster(t, "destination", kfake.SeedTopics(1, "t"))
	ask := func(change func(*Config)) (*running, *kmsg.MetadataResponse) {
		cfg := testConfig(t, destination.ListenAddrs()[0])
		change(&cfg)
		require.NoError(t, cfg.Validate())
		g := start(t, cfg)
		g.awaitReady(t)
		c := client(t, g.BootstrapAddr())
		defer c.Close()
		resp, err := c.SeedBrokers()[0].Request(testContext(t), kmsg.NewPtrMetadataRequest())
		require.NoError(t, err)
		return g, resp.(*kmsg.MetadataResponse)
	}
	g, resp := ask(func(c *Config) {
		c.Advertise, c.Proxy.AdvertisePort, c.Proxy.AdvertiseBrokerPortBase = "gateway.example", 30000, 30000
	})
	for _, b := range resp.Brokers {
		require.Equal(t, fmt.Sprintf("gateway.example:%d", 30001+b.NodeID), fmt.Sprintf("%s:%d", b.Host, b.Port))
	}
	self := g.self()
	require.Equal(t, "gateway.example:30000", fmt.Sprintf("%s:%d", self.Host, self.Port))
	require.NoError(t, g.stop())

	if ln, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("no IPv6: %v", err)
	} else {
		require.NoError(t, ln.Close())
	}
	g, resp = ask(func(c *Config) { c.Listen, c.Advertise, c.Metrics = "[::1]:0", "[::1]", "[::1]:0" })
	for _, b := range resp.Brokers {
		require.Equal(t, "::1", b.Host)
	}
	c := client(t, g.BootstrapAddr(), kgo.DefaultProduceTopic("t"))
	require.NoError(t, c.ProduceSync(testContext(t), kgo.StringRecord("over IPv6")).FirstErr())
	c.Close()
	require.NoError(t, g.stop())
}

// A broker ID that has no port is refused before any client comes, with the setting that helps.
func TestBrokerIDsWithoutPort(t *testing.T) {
	destination := cluster(t, "destination", kfake.NumBrokers(3))
	ports := reserve(t, 3)
	for _, tt := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Proxy.MaxNodeID = 1 }, "broker ID 2 is not between 0 and 1 (max-broker-id)"},
		{func(c *Config) { c.BrokerPortBase = 65533 }, "move broker-port-base"},
		{func(c *Config) { c.Proxy.AdvertiseBrokerPortBase = 65533; c.BrokerPortBase = ports[0] - 1 }, "move advertise-broker-port-base"},
	} {
		cfg := testConfig(t, destination.ListenAddrs()[0])
		tt.change(&cfg)
		g := start(t, cfg)
		select {
		case err := <-g.done:
			g.done <- err
			require.ErrorContains(t, err, tt.want)
		case <-time.After(longEnough):
			require.Fail(t, "the gateway does not end")
		}
	}
}

// A load balancer sees at once that the gateway stops, while requests are still being answered.
func TestNotReadyWhileStopping(t *testing.T) {
	noLeaks(t)
	destination := cluster(t, "destination", kfake.SeedTopics(1, "t"))
	g := start(t, testConfig(t, destination.ListenAddrs()[0]))
	g.awaitReady(t)
	status, _ := get(t, "http://"+g.MonitorAddr()+"/readyz")
	require.Equal(t, http.StatusOK, status)

	conn, err := net.Dial("tcp", g.BootstrapAddr())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(longEnough)))
	held := make(chan struct{})
	release := make(chan struct{})
	destination.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if req.GetVersion() == 0 { // the one below; the gateway looks for brokers in a later version
			close(held)
			destination.SleepControl(func() { <-release })
		}
		return nil, nil, false
	})
	_, err = conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrMetadataRequest(), 7))
	require.NoError(t, err)
	<-held
	stopped := make(chan error, 1)
	go func() { stopped <- g.stop() }()
	require.Eventually(t, func() bool {
		status, body := get(t, "http://"+g.MonitorAddr()+"/readyz")
		return status == http.StatusServiceUnavailable && body == "stopping\n"
	}, longEnough, 5*time.Millisecond)
	status, _ = get(t, "http://"+g.MonitorAddr()+"/healthz")
	require.Equal(t, http.StatusOK, status)
	close(release)
	var size [4]byte
	_, err = conn.Read(size[:])
	require.NoError(t, err, "the request in flight is answered")
	require.NoError(t, <-stopped)
}
