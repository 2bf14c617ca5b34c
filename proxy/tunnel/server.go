package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/proxy"
)

// ServerConfig says how TLS with clients is done. All files are PEM.
type ServerConfig struct {
	// CertFile has the certificate and the chain up to, without, the root; KeyFile its unencrypted private key. Required. They
	// may be one file.
	CertFile, KeyFile string
	// ClientCAFile has the certificates that those of clients must lead to. Empty: clients are not asked for one.
	ClientCAFile string
	// ClientCertOptional lets in clients that have no certificate. One that is given must be valid all the same.
	ClientCertOptional bool
	// Principals names clients by their certificates, for logs. Nil: the subject.
	Principals *PrincipalRules
	// Limits of the connections.
	Limits Limits
}

// Server ends the TLS of clients.
type Server struct {
	certificates *certificates
	principals   *PrincipalRules
	tls          *tls.Config
	group        *group
	log          *zap.Logger
}

// NewServer reads the files. m and log may be nil.
func NewServer(cfg ServerConfig, m *Metrics, log *zap.Logger) (*Server, error) {
	if m == nil {
		m = NewMetrics(nil)
	}
	if log == nil {
		log = zap.NewNop()
	}
	c := &certificates{cfg: cfg, metrics: m, log: log, checked: time.Now()}
	c.stamps = c.look()
	if err := c.load(); err != nil {
		return nil, err
	}
	return &Server{
		certificates: c,
		principals:   cfg.Principals,
		tls:          &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.config(time.Now()), nil }},
		group:        newGroup(cfg.Limits, m.side("client")),
		log:          log,
	}, nil
}

// Expect warns if the certificate, now or after a reload, does not cover one of the names (or IP addresses) that clients are told.
func (s *Server) Expect(names ...string) { s.certificates.expect(names...) }

// Accept does the handshake on a connection from a client; it is a proxy.Config.Accept. It closes conn on an error.
func (s *Server) Accept(ctx context.Context, conn net.Conn) (proxy.Accepted, error) {
	start := time.Now()
	remote := tls.Server(conn, s.tls)
	err := remote.HandshakeContext(ctx)
	s.group.metrics.handshake(start, err)
	if err != nil {
		_ = conn.Close()
		return proxy.Accepted{}, explain(err)
	}
	state := remote.ConnectionState()
	accepted := proxy.Accepted{ServerName: state.ServerName}
	if len(state.PeerCertificates) > 0 {
		accepted.Principal = s.principals.Name(DistinguishedName(state.PeerCertificates[0].RawSubject))
	}
	accepted.Conn, err = s.group.start(remote)
	return accepted, err
}

// Close ends all connections: what was written to them is sent first, until ctx ends.
func (s *Server) Close(ctx context.Context) { s.group.close(ctx) }

// explain says what a failed handshake means. The result wraps io.EOF if the client left without a word.
func explain(err error) error {
	var header tls.RecordHeaderError
	switch kind := result(err); {
	case errors.As(err, &header):
		return fmt.Errorf("TLS handshake: the client does not speak TLS%s", looksLike(header.RecordHeader))
	case kind == "closed":
		return fmt.Errorf("TLS handshake: the client left: %w (%w)", io.EOF, err)
	case kind == "timeout":
		return errors.New("TLS handshake: it was not done in time")
	case kind == "certificate":
		return fmt.Errorf("TLS handshake: client certificate: %w", err)
	case kind == "refused":
		return fmt.Errorf("TLS handshake: refused by the client, which may not trust the gateway's certificate: %w", err)
	}
	return fmt.Errorf("TLS handshake: %w", err)
}

// looksLike guesses what the first five bytes of a client are if not TLS.
func looksLike(b [5]byte) string {
	switch string(b[:4]) {
	case "GET ", "POST", "HEAD", "PUT ":
		return ", but HTTP"
	}
	// The length of a Kafka request, and the upper byte of its API key.
	if b[0] < 8 && b[4] == 0 {
		return ", but plaintext Kafka: set its security.protocol to SSL or SASL_SSL"
	}
	return ""
}
