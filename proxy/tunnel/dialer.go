package tunnel

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// Dialer makes TLS connections to brokers.
type Dialer struct {
	config *tls.Config
	group  *group
	dialer net.Dialer
}

// NewDialer returns a dialer that uses config; an empty ServerName means the host that is dialled. m may be nil.
func NewDialer(config *tls.Config, limits Limits, m *Metrics) *Dialer {
	return &Dialer{config: config, group: newGroup(limits, m.side("broker"))}
}

// Dial connects to a broker; it is a proxy.Config.Dial. The connection returned is plain; closing it closes the one to the broker.
func (d *Dialer) Dial(ctx context.Context, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	config := d.config
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName = host
	}
	conn, err := d.dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	remote := tls.Client(conn, config)
	err = remote.HandshakeContext(ctx)
	d.group.metrics.handshake(start, err)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS with broker %s: %w", addr, err)
	}
	return d.group.start(remote)
}

// Close ends all connections: what was written to them is sent first, until ctx ends.
func (d *Dialer) Close(ctx context.Context) { d.group.close(ctx) }
