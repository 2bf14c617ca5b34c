// Package security tests TLS, SASL and the life of connections with real brokers that have both, ACLs, and sessions that end
// after seconds.
package security

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/test/certs"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// sessionLifetime is after how long brokers want to see the credentials again. Clients show them when as little as 2 % of it is left, gateways
// 15 %: it must be long enough for that to be more than a busy machine's hiccups.
const sessionLifetime = 20 * time.Second

const (
	scram512 = "SCRAM-SHA-512"
	scram256 = "SCRAM-SHA-256"
)

var mechanisms = []string{"PLAIN", scram256, scram512, "OAUTHBEARER"}

// secured is a cluster with everything.
func secured(t *testing.T, name string) *kafkatest.Cluster {
	t.Helper()
	return kafkatest.Shared(t, name, kafkatest.Options{
		Heap:     "384m",
		Security: &kafkatest.Security{Mechanisms: mechanisms, TLS: true, ACLs: true},
		Settings: map[string]string{
			"connections.max.reauth.ms": strconv.FormatInt(sessionLifetime.Milliseconds(), 10),
			"broker.session.timeout.ms": "60000", // nobody kills them: they are never to lose their leadership because they were slow
		},
	})
}

// gateway is one with TLS on all sides.
type gateway struct {
	*harness.Gateway
	destination *kafkatest.Cluster
	authority   *certs.Authority
	own         certs.Pair
	dir         string
}

// startGateway starts a gateway whose own connections log in as admin with SCRAM.
func startGateway(t *testing.T, destination *kafkatest.Cluster, hosts []string, flags ...string) *gateway {
	t.Helper()
	g := &gateway{destination: destination, dir: t.TempDir()}
	g.authority, g.own = authorityFor(t, filepath.Join(g.dir, "tls"), hosts...)
	file := filepath.Join(g.dir, "destination.properties")
	must(t, kafkatest.WriteProperties(file, destination.ClientProperties(kafkatest.Admin, scram512)))
	g.Gateway = harness.StartGateway(t, harness.GatewayOptions{Destination: destination.Bootstrap(), Flags: append([]string{
		"--destination-config", file, "--tls-cert", g.own.CertFile, "--tls-key", g.own.KeyFile, "--log-level", "debug",
	}, flags...)})
	return g
}

func subject(name string) pkix.Name { return pkix.Name{CommonName: name} }

// authorityFor makes an authority and the certificate of a gateway.
func authorityFor(t *testing.T, dir string, hosts ...string) (*certs.Authority, certs.Pair) {
	t.Helper()
	authority := certs.New(t, dir)
	return authority, authority.Issue(t, "gateway", subject("gateway"), hosts...)
}

// options are those of a client of the gateway.
func (g *gateway) options(user, mechanism string) []kgo.Opt {
	return []kgo.Opt{
		kgo.DialTLSConfig(&tls.Config{RootCAs: g.authority.Pool}), kgo.SASL(kafkatest.Mechanism(user, mechanism)),
		kgo.MaxVersions(mirrormsg.Versions()),
	}
}

func (g *gateway) client(t *testing.T, user, mechanism string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return harness.Client(t, g.Bootstrap(), append(g.options(user, mechanism), opts...)...)
}

// properties writes those of a Java client of the gateway.
func (g *gateway) properties(t *testing.T, user, mechanism string, more ...string) string {
	t.Helper()
	settings := g.destination.ClientProperties(user, mechanism)
	settings["ssl.truststore.location"] = g.authority.File
	for i := 0; i < len(more); i += 2 {
		settings[more[i]] = more[i+1]
	}
	file := filepath.Join(t.TempDir(), "client.properties")
	must(t, kafkatest.WriteProperties(file, settings))
	return file
}

// allow gives a user all rights on topics and groups that begin with a prefix.
func allow(t *testing.T, cluster *kafkatest.Cluster, user, prefix string) {
	t.Helper()
	addACLs(t, cluster, kadm.NewACLs().Topics(prefix).Groups(prefix).ResourcePatternType(kadm.ACLPatternPrefixed), user)
}

// allowAll gives a user all rights.
func allowAll(t *testing.T, cluster *kafkatest.Cluster, user string) {
	t.Helper()
	addACLs(t, cluster, kadm.NewACLs().Topics("*").Groups("*").Clusters().ResourcePatternType(kadm.ACLPatternLiteral), user)
}

func addACLs(t *testing.T, cluster *kafkatest.Cluster, acls *kadm.ACLBuilder, user string) {
	t.Helper()
	harness.AddACLs(t, harness.Admin(t, cluster.InternalBootstrap()), acls.Operations(kadm.OpAll).Allow("User:"+user).AllowHosts())
}

// sourceConfig is the configuration of a mirror of a secured source, as key, value, …
func sourceConfig(source *kafkatest.Cluster, user, mechanism string) []string {
	var list []string
	for key, value := range maps.All(source.ClientProperties(user, mechanism)) {
		list = append(list, key, value)
	}
	return list
}

// quiet fails the test if the gateway ended connections by itself.
func (g *gateway) quiet(t *testing.T, before float64) {
	t.Helper()
	if now := g.Metric(t, "mirrorgate_proxy_errors_total"); now != before {
		t.Errorf("the gateway ended %v connections", now-before)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func metadata(ctx context.Context, client *kgo.Client) (*kmsg.MetadataResponse, error) {
	return kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
}
