package gateway

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/mirrorgate/mirrorgate/proxy"
	"github.com/mirrorgate/mirrorgate/proxy/tunnel"
)

// TLS is how clients reach the gateway. Without Cert it is plaintext.
type TLS struct {
	// Cert is a PEM file with the certificate and its chain, Key one with the private key; empty: in Cert too. They are read again
	// when they change; open connections stay.
	Cert, Key string
	// ClientCA is a PEM file with the certificates that clients' own must lead to (mTLS). Empty: they need none. What
	// they prove is logged and cannot be passed on: the destination sees their SASL identity, if they have one.
	ClientCA string
	// ClientAuth is required, or requested: then clients without a certificate are let in too.
	ClientAuth string
	// PrincipalRules names clients in logs by their certificates, in the form of ssl.principal.mapping.rules.
	PrincipalRules string
	// SNITemplate, if not empty, has all brokers served at the port of Listen, each under a host name of its own:
	// broker-$(node_id).gateway.example. DNS must lead all of them to the gateway, and the certificate cover them.
	SNITemplate string
}

func (t *TLS) flags(p *proxy.Config, fs *pflag.FlagSet) {
	fs.StringVar(&t.Cert, "tls-cert", t.Cert, "PEM file with the certificate (chain) for clients; turns TLS on")
	fs.StringVar(&t.Key, "tls-key", t.Key, "PEM file with the private key (default: in tls-cert)")
	fs.StringVar(&t.ClientCA, "tls-client-ca", t.ClientCA, "PEM file with the authorities of client certificates; turns mTLS on")
	fs.StringVar(&t.ClientAuth, "tls-client-auth", t.ClientAuth, "required or requested: whether clients need a certificate if tls-client-ca is given")
	fs.StringVar(&t.PrincipalRules, "tls-principal-mapping-rules", t.PrincipalRules, "names clients in logs by their certificates, as Kafka's ssl.principal.mapping.rules")
	fs.StringVar(&t.SNITemplate, "sni-template", t.SNITemplate, "serves all brokers at the port of --listen under names like 'broker-$(node_id).gateway.example'; needs TLS")
	fs.DurationVar(&p.AcceptTimeout, "tls-handshake-timeout", p.AcceptTimeout, "longest TLS handshake with a client")
	fs.IntVar(&p.MaxAccepts, "max-tls-handshakes", p.MaxAccepts, "most TLS handshakes with clients at one time; further clients wait")
}

// on reports whether clients use TLS.
func (t *TLS) on() bool { return t.Cert != "" }

// validate reports what cannot be, by check.
func (t *TLS) validate(check func(ok bool, format string, args ...any)) {
	check(t.on() || t.Key == "", "tls-key: given without tls-cert")
	check(t.on() || t.ClientCA == "", "tls-client-ca: given without tls-cert")
	check(t.on() || t.SNITemplate == "", "sni-template: needs TLS with clients, as the name comes with the TLS handshake; give tls-cert")
	check(t.ClientAuth == clientAuthRequired || t.ClientAuth == clientAuthRequested, "tls-client-auth: %q is neither required nor requested", t.ClientAuth)
	if _, err := tunnel.ParsePrincipalRules(t.PrincipalRules); err != nil {
		check(false, "tls-principal-mapping-rules: %v", err)
	}
	if t.SNITemplate != "" {
		if err := proxy.CheckBrokerHost(t.SNITemplate); err != nil {
			check(false, "sni-template: %v", err)
		}
	}
}

const (
	clientAuthRequired  = "required"
	clientAuthRequested = "requested"
)

// tunnels are the TLS ends beside the proxy; nil where a side has none.
type tunnels struct {
	clients *tunnel.Server
	brokers *tunnel.Dialer
}

// newTunnels reads the files of the client side and completes what the proxy is configured with.
func (g *Gateway) newTunnels(p *proxy.Config) (t tunnels, err error) {
	metrics := tunnel.NewMetrics(g.registry)
	limits := tunnel.Limits{WriteTimeout: p.IdleTimeout, LingerTimeout: p.LingerTimeout}
	if g.destination.TLS != nil {
		t.brokers = tunnel.NewDialer(g.destination.TLS, limits, metrics)
		p.Dial = t.brokers.Dial
	}
	settings := &g.cfg.TLS
	if !settings.on() {
		return t, nil
	}
	rules, err := tunnel.ParsePrincipalRules(settings.PrincipalRules)
	if err != nil {
		return t, fmt.Errorf("tls-principal-mapping-rules: %w", err)
	}
	cfg := tunnel.ServerConfig{
		CertFile: settings.Cert, KeyFile: settings.Key, ClientCAFile: settings.ClientCA,
		ClientCertOptional: settings.ClientAuth == clientAuthRequested, Principals: rules, Limits: limits,
	}
	if cfg.KeyFile == "" {
		cfg.KeyFile = cfg.CertFile
	}
	if t.clients, err = tunnel.NewServer(cfg, metrics, g.log.Named("tls")); err != nil {
		return t, fmt.Errorf("tls-cert, tls-key, tls-client-ca: %w", err)
	}
	p.Accept, p.BrokerHost = t.clients.Accept, settings.SNITemplate
	return t, nil
}

// expect has a warning logged if clients will refuse the gateway by one of these names.
func (t tunnels) expect(names ...string) {
	if t.clients != nil {
		t.clients.Expect(names...)
	}
}

// close sends what the proxy has written last, to peers that take it at once, and ends all connections. REQUIRES: the
// proxy has stopped.
func (t tunnels) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	if t.clients != nil {
		wg.Go(func() { t.clients.Close(ctx) })
	}
	if t.brokers != nil {
		wg.Go(func() { t.brokers.Close(ctx) })
	}
	wg.Wait()
}
