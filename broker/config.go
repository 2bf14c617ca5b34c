package broker

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
)

// Defaults of Config.
const (
	DefaultClientID         = "mirrorgate"
	DefaultRequestTimeout   = 30 * time.Second
	DefaultMaxResponseBytes = 256 << 20
	dialTimeout             = 10 * time.Second
)

// Config says how to reach a cluster.
type Config struct {
	// Bootstrap are host:port addresses. Dial takes its address apart from these.
	Bootstrap []string
	// TLS, if not nil, is used on every connection. An empty ServerName means the host that is dialled.
	TLS *tls.Config
	// SASL authenticates every connection, if not nil.
	SASL sasl.Mechanism
	// User is whom SASL logs in, where that can be told without logging in: not with tokens. Else "".
	User string
	// ClientID is what brokers see in logs and quotas. Empty: "mirrorgate".
	ClientID string
	// RequestTimeout ends a connection on which a response is overdue that long. 0: 30 s. It must be longer than what
	// requests tell the broker to wait.
	RequestTimeout time.Duration
	// MaxResponseBytes bounds a response. 0: 256 MiB.
	MaxResponseBytes int64
	// DialContext makes TCP connections, for tests and unusual networks; nil: net.Dialer. TLS is done on top.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
}

// KgoOptions returns what a kgo client needs to reach the same cluster. kgo does not create topics by itself unless
// told to, and these options do not tell it.
func (c Config) KgoOptions() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap...),
		kgo.ClientID(c.clientID()),
		kgo.Dialer(c.dial),
		kgo.RequestTimeoutOverhead(c.requestTimeout()),
		kgo.DisableClientMetrics(),
	}
	if c.SASL != nil {
		opts = append(opts, kgo.SASL(c.SASL))
	}
	return opts
}

// String describes the configuration without secrets.
func (c Config) String() string {
	security := "plaintext"
	if c.TLS != nil {
		security = "tls"
	}
	if c.SASL != nil {
		security += "+" + c.SASL.Name()
	}
	return fmt.Sprintf("%s (%s, client.id %s)", strings.Join(c.Bootstrap, ","), security, c.clientID())
}

// GoString keeps secrets out of %#v as well.
func (c Config) GoString() string { return "broker.Config{" + c.String() + "}" }

func (c Config) clientID() string {
	if c.ClientID == "" {
		return DefaultClientID
	}
	return c.ClientID
}

func (c Config) requestTimeout() time.Duration {
	if c.RequestTimeout <= 0 {
		return DefaultRequestTimeout
	}
	return c.RequestTimeout
}

func (c Config) maxResponseBytes() int64 {
	if c.MaxResponseBytes <= 0 {
		return DefaultMaxResponseBytes
	}
	return c.MaxResponseBytes
}

// dial makes the TCP connection and does the TLS handshake.
func (c Config) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dialContext := c.DialContext
	if dialContext == nil {
		dialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext
	}
	nc, err := dialContext(ctx, network, addr)
	if err != nil || c.TLS == nil {
		return nc, err
	}
	tlsConfig := c.TLS
	if tlsConfig.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			_ = nc.Close()
			return nil, err
		}
		tlsConfig = tlsConfig.Clone()
		tlsConfig.ServerName = host
	}
	tc := tls.Client(nc, tlsConfig)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return tc, nil
}
