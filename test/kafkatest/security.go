package kafkatest

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/mirrorgate/mirrorgate/test/certs"
)

// Admin is the super user of clusters with ACLs. Password has the passwords.
const Admin = "admin"

// Users are those of clusters with SASL; all mechanisms know all of them.
var Users = []string{Admin, "alice", "bob", "gateway"}

// Password is the password of a user.
func Password(user string) string { return user + "-Secret-4711" }

// Security is how clients reach a cluster. Brokers talk to each other in plaintext over other ports.
type Security struct {
	// Mechanisms of SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER (unsecured tokens). None: no SASL.
	Mechanisms []string
	// TLS on the client ports, with a certificate for 127.0.0.1 and localhost.
	TLS bool
	// ACLs: nothing is allowed but to Admin.
	ACLs bool
}

func (s *Security) protocol() string {
	switch {
	case s == nil || len(s.Mechanisms) == 0 && !s.TLS:
		return "PLAINTEXT"
	case len(s.Mechanisms) == 0:
		return "SSL"
	case s.TLS:
		return "SASL_SSL"
	}
	return "SASL_PLAINTEXT"
}

// prepareSecurity makes the certificates of a cluster.
func (c *Cluster) prepareSecurity() (err error) {
	if c.opts.Security == nil || !c.opts.Security.TLS {
		return nil
	}
	if c.Authority, err = certs.Make(filepath.Join(c.Dir, "tls")); err != nil {
		return err
	}
	c.certificate, err = c.Authority.MakePair("broker", pkix.Name{CommonName: "broker"}, host, "localhost")
	return err
}

// securityConfig is what the brokers need for it.
func (c *Cluster) securityConfig() map[string]string {
	s := c.opts.Security
	if s == nil {
		return nil
	}
	config := map[string]string{
		"listener.security.protocol.map": "CLIENT:" + s.protocol() + ",INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
	}
	if s.TLS {
		maps.Copy(config, map[string]string{
			"listener.name.client.ssl.keystore.type": "PEM", "listener.name.client.ssl.keystore.location": c.certificate.BothFile,
			"listener.name.client.ssl.truststore.type": "PEM", "listener.name.client.ssl.truststore.location": c.Authority.File,
		})
	}
	if s.ACLs {
		config["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
		config["super.users"] = "User:" + Admin + ";User:ANONYMOUS" // the brokers themselves
	}
	if len(s.Mechanisms) > 0 {
		config["sasl.enabled.mechanisms"] = strings.Join(s.Mechanisms, ",")
		config["delegation.token.secret.key"] = "tokens"
	}
	for _, mechanism := range s.Mechanisms {
		config["listener.name.client."+strings.ToLower(mechanism)+".sasl.jaas.config"] = serverLogin(mechanism)
	}
	return config
}

func serverLogin(mechanism string) string {
	var options []string
	switch mechanism {
	case "PLAIN":
		for _, user := range Users {
			options = append(options, fmt.Sprintf("user_%s=%q", user, Password(user)))
		}
	case "OAUTHBEARER":
		options = []string{`unsecuredLoginStringClaim_sub="broker"`}
	}
	return strings.TrimSpace(loginModules[mechanism]+" required "+strings.Join(options, " ")) + ";"
}

var loginModules = map[string]string{
	"PLAIN":         "org.apache.kafka.common.security.plain.PlainLoginModule",
	"SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
	"SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
	"OAUTHBEARER":   "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}

// scramFlags are what the storage tool needs to know the users.
func (c *Cluster) scramFlags() []string {
	if c.opts.Security == nil {
		return nil
	}
	var flags []string
	for _, mechanism := range c.opts.Security.Mechanisms {
		if !strings.HasPrefix(mechanism, "SCRAM") {
			continue
		}
		for _, user := range Users {
			flags = append(flags, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, user, Password(user)))
		}
	}
	return flags
}

// ClientProperties are the properties with which a user reaches this cluster by a mechanism ("" without SASL). They have no bootstrap.servers.
func (c *Cluster) ClientProperties(user, mechanism string) map[string]string {
	s := c.opts.Security
	properties := map[string]string{"security.protocol": s.protocol()}
	if s != nil && s.TLS {
		properties["ssl.truststore.type"], properties["ssl.truststore.location"] = "PEM", c.Authority.File
	}
	if mechanism != "" {
		properties["sasl.mechanism"], properties["sasl.jaas.config"] = mechanism, clientLogin(user, mechanism)
	}
	return properties
}

func clientLogin(user, mechanism string) string {
	if mechanism == "OAUTHBEARER" {
		return fmt.Sprintf(`%s required unsecuredLoginStringClaim_sub=%q;`, loginModules[mechanism], user)
	}
	return fmt.Sprintf(`%s required username=%q password=%q;`, loginModules[mechanism], user, Password(user))
}

// WriteProperties writes a properties file.
func WriteProperties(path string, settings map[string]string) error {
	return os.WriteFile(path, []byte(properties(settings)), 0o600)
}

// Mechanism is how a kgo client logs in as a user.
func Mechanism(user, mechanism string) sasl.Mechanism {
	switch mechanism {
	case "PLAIN":
		return plain.Auth{User: user, Pass: Password(user)}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: Password(user)}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: Password(user)}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: UnsecuredToken(user)}.AsMechanism()
	}
	panic("kafkatest: no mechanism " + mechanism)
}

// ClientOptions are those of a kgo client that logs in as a user at this cluster. mechanism is "" without SASL.
func (c *Cluster) ClientOptions(user, mechanism string) []kgo.Opt {
	var opts []kgo.Opt
	if c.Authority != nil {
		opts = append(opts, kgo.DialTLSConfig(&tls.Config{RootCAs: c.Authority.Pool}))
	}
	if mechanism != "" {
		opts = append(opts, kgo.SASL(Mechanism(user, mechanism)))
	}
	return opts
}

// securityKey is the same for the same security.
func (o Options) securityKey() string {
	if o.Security == nil {
		return ""
	}
	s := *o.Security
	s.Mechanisms = slices.Clone(s.Mechanisms)
	return fmt.Sprintf("%+v\n", s)
}

// UnsecuredToken is an OAUTHBEARER token without a signature, for an hour.
func UnsecuredToken(user string) string {
	now := time.Now()
	claims, _ := json.Marshal(map[string]any{"sub": user, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix()}) // cannot fail
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(claims) + "."
}

// InternalBootstrap is the address of the first broker's plaintext port for other brokers: for looking, with all rights, at what
// clients of a secured cluster have done.
func (c *Cluster) InternalBootstrap() string {
	return net.JoinHostPort(host, strconv.Itoa(c.node(1).internalPort))
}
