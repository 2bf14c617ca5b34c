package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/test/certs"
)

// carry produces and consumes more than fits into the buffers on the way.
func carry(t *testing.T, c *kgo.Client) {
	t.Helper()
	value := make([]byte, 100_000)
	for i := range 100 {
		require.NoError(t, c.ProduceSync(testContext(t), &kgo.Record{Topic: "t", Partition: int32(i % 2), Value: value}).FirstErr())
	}
	for n := 0; n < 100; {
		fetches := c.PollFetches(testContext(t))
		require.NoError(t, fetches.Err0())
		fetches.EachRecord(func(r *kgo.Record) { require.Len(t, r.Value, len(value)) })
		n += fetches.NumRecords()
	}
}

func TestTLSOnBothSides(t *testing.T) {
	noLeaks(t)
	authority := certs.New(t, t.TempDir())
	broker := authority.Issue(t, "broker", pkix.Name{CommonName: "broker"}, "127.0.0.1")
	own := authority.Issue(t, "gateway", pkix.Name{CommonName: "gateway"}, "127.0.0.1")
	alice := authority.Issue(t, "alice", pkix.Name{CommonName: "alice"})
	destination := cluster(t, "destination", kfake.SeedTopics(2, "t"), kfake.TLS(&tls.Config{Certificates: []tls.Certificate{broker.TLS}}))
	cfg := testConfig(t, destination.ListenAddrs()[0])
	cfg.DestinationConfig = filepath.Join(t.TempDir(), "client.properties")
	require.NoError(t, os.WriteFile(cfg.DestinationConfig,
		[]byte("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location="+authority.File+"\n"), 0o600))
	cfg.TLS.Cert, cfg.TLS.Key, cfg.TLS.ClientCA = own.CertFile, own.KeyFile, authority.File
	g := start(t, cfg)
	g.awaitReady(t)

	c := client(t, g.BootstrapAddr(), kgo.ConsumeTopics("t"), kgo.MaxBufferedRecords(100),
		kgo.DialTLSConfig(&tls.Config{RootCAs: authority.Pool, Certificates: []tls.Certificate{alice.TLS}}))
	carry(t, c)
	c.Close()
	_, metrics := get(t, "http://"+g.MonitorAddr()+"/metrics")
	require.Contains(t, metrics, `mirrorgate_tls_handshakes_total{result="ok",side="client"}`)
	require.Contains(t, metrics, `mirrorgate_tls_handshakes_total{result="ok",side="broker"}`)
	require.NoError(t, g.stop())
	require.NotZero(t, g.logs.FilterMessage("client has a certificate").Len())
	require.Zero(t, g.logs.FilterMessageSnippet("does not cover").Len())
}

// All brokers at one port, told apart by the name that clients ask for.
func TestSNI(t *testing.T) {
	noLeaks(t)
	authority := certs.New(t, t.TempDir())
	own := authority.Issue(t, "gateway", pkix.Name{CommonName: "gateway"}, "*.gw.example")
	destination := cluster(t, "destination", kfake.SeedTopics(2, "t"))
	cfg := testConfig(t, destination.ListenAddrs()[0])
	cfg.Advertise = "gw.example"
	cfg.TLS = TLS{Cert: own.BothFile, ClientAuth: clientAuthRequired, SNITemplate: "broker-$(node_id).gw.example"}
	require.NoError(t, cfg.Validate())
	g := start(t, cfg)
	g.awaitReady(t)
	_, port, err := net.SplitHostPort(g.BootstrapAddr())
	require.NoError(t, err)

	dialed := make(chan string, 1000)
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) {
		host, p, err := net.SplitHostPort(addr)
		require.NoError(t, err)
		require.Equal(t, port, p)
		dialed <- host
		name := host
		if host == "gw.example" {
			name = "bootstrap.gw.example" // which the certificate covers
		}
		d := tls.Dialer{Config: &tls.Config{RootCAs: authority.Pool, ServerName: name}}
		return d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", p))
	}
	c := client(t, "gw.example:"+port, kgo.ConsumeTopics("t"), kgo.MaxBufferedRecords(100), kgo.Dialer(dial))
	carry(t, c)
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(testContext(t), c)
	require.NoError(t, err)
	require.Len(t, resp.Brokers, 2)
	for _, b := range resp.Brokers {
		require.Regexp(t, `^broker-\d\.gw\.example$`, b.Host)
	}
	c.Close()
	seen := map[string]bool{}
	for len(dialed) > 0 { // not closed: the client may be dialling still
		seen[<-dialed] = true
	}
	require.Len(t, seen, 3, "the bootstrap and two brokers: %v", seen)
	require.Equal(t, 1, g.logs.FilterMessageSnippet("does not cover").Len(), "gw.example itself")
	require.NoError(t, g.stop())
}

func TestTLSSettings(t *testing.T) {
	for flagList, want := range map[string]string{
		"--tls-key=x":                            "tls-key: given without tls-cert",
		"--tls-client-ca=x":                      "tls-client-ca: given without tls-cert",
		"--sni-template=b$(node_id).x":           "sni-template: needs TLS",
		"--tls-cert=x --sni-template=b.x":        "sni-template:",
		"--tls-cert=x --tls-client-auth=perhaps": "tls-client-auth:",
		"--tls-principal-mapping-rules=RULE:(":   "tls-principal-mapping-rules:",
	} {
		cfg := DefaultConfig()
		require.NoError(t, flags(&cfg).Parse(append(strings.Fields(flagList), "--destination=h:1")))
		require.ErrorContains(t, cfg.Validate(), want)
	}
	cfg := testConfig(t, "h:1")
	cfg.TLS.Cert = "/nowhere"
	_, err := New(cfg, nil)
	require.ErrorContains(t, err, "tls-cert", "before anything is contacted")
}
