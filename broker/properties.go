package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// PropertyError says which property is wrong and why. It never holds the value of a property that may be a secret.
type PropertyError struct {
	Key    string
	Reason string
}

// Error names the property.
func (e *PropertyError) Error() string { return fmt.Sprintf("property %s: %s", e.Key, e.Reason) }

func badProperty(key, format string, args ...any) *PropertyError {
	return &PropertyError{Key: key, Reason: fmt.Sprintf(format, args...)}
}

// properties that this package understands.
const (
	propBootstrap      = "bootstrap.servers"
	propProtocol       = "security.protocol"
	propMechanism      = "sasl.mechanism"
	propJaas           = "sasl.jaas.config"
	propTokenURL       = "sasl.oauthbearer.token.endpoint.url"
	propTrustCerts     = "ssl.truststore.certificates"
	propTrustLocation  = "ssl.truststore.location"
	propTrustType      = "ssl.truststore.type"
	propKeyChain       = "ssl.keystore.certificate.chain"
	propKey            = "ssl.keystore.key"
	propKeyLocation    = "ssl.keystore.location"
	propKeyType        = "ssl.keystore.type"
	propIdentification = "ssl.endpoint.identification.algorithm"
	propClientID       = "client.id"
	propTimeout        = "request.timeout.ms"
)

var knownProperties = []string{
	propBootstrap, propProtocol, propMechanism, propJaas, propTokenURL, propTrustCerts, propTrustLocation, propTrustType,
	propKeyChain, propKey, propKeyLocation, propKeyType, propIdentification, propClientID, propTimeout,
}

// secretProperties must never be shown.
var secretProperties = []string{propJaas, propKey, "ssl.key.password", "ssl.keystore.password", "ssl.truststore.password"}

// Secret reports whether the value of a client property must be kept out of logs, errors and descriptions.
func Secret(key string) bool { return slices.Contains(secretProperties, key) }

// unsupported are properties that people may have in a client configuration and that this package cannot do, with what
// to do instead.
var unsupported = map[string]string{
	"ssl.key.password":                   "encrypted private keys are not supported: give the key unencrypted",
	"ssl.keystore.password":              "password-protected key stores are not supported: use PEM",
	"ssl.truststore.password":            "password-protected trust stores are not supported: use PEM",
	"sasl.kerberos.service.name":         "Kerberos is not supported",
	"sasl.login.callback.handler.class":  "Java classes cannot be used",
	"sasl.client.callback.handler.class": "Java classes cannot be used",
}

// ParseProperties makes a Config from properties named as in Kafka's client configuration. allowed tells which further
// keys belong to the caller and are passed over; nil allows none. The error is a *PropertyError.
//
// Understood are bootstrap.servers, security.protocol, sasl.mechanism (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512,
// OAUTHBEARER), sasl.jaas.config, sasl.oauthbearer.token.endpoint.url, ssl.truststore.certificates or .location,
// ssl.keystore.certificate.chain with ssl.keystore.key, or ssl.keystore.location (all PEM),
// ssl.endpoint.identification.algorithm, client.id and request.timeout.ms.
func ParseProperties(props map[string]string, allowed func(key string) bool) (Config, error) {
	var cfg Config
	if err := checkKeys(props, allowed); err != nil {
		return cfg, err
	}
	var err error
	if cfg.Bootstrap, err = parseBootstrap(props[propBootstrap]); err != nil {
		return Config{}, err
	}
	if ms, ok := props[propTimeout]; ok {
		n, err := strconv.ParseInt(strings.TrimSpace(ms), 10, 32)
		if err != nil || n < 1 {
			return Config{}, badProperty(propTimeout, "%q is not a number of milliseconds", ms)
		}
		cfg.RequestTimeout = time.Duration(n) * time.Millisecond
	}
	cfg.ClientID = props[propClientID]
	if len(cfg.ClientID) > 1<<15-1 {
		return Config{}, badProperty(propClientID, "longer than 32767 bytes")
	}
	useTLS, useSASL, err := parseProtocol(props)
	if err != nil {
		return Config{}, err
	}
	if useTLS {
		if cfg.TLS, err = parseTLS(props); err != nil {
			return Config{}, err
		}
	}
	if useSASL {
		if cfg.SASL, cfg.User, err = parseSASL(props); err != nil {
			return Config{}, err
		}
	}
	return cfg, nil
}

func checkKeys(props map[string]string, allowed func(string) bool) error {
	keys := make([]string, 0, len(props))
	for key := range props {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	for _, key := range keys {
		if slices.Contains(knownProperties, key) || allowed != nil && allowed(key) {
			continue
		}
		if reason, ok := unsupported[key]; ok {
			return badProperty(key, "%s", reason)
		}
		return badProperty(key, "unknown property")
	}
	return nil
}

// parseBootstrap takes a comma list with whitespace, empty entries and repetitions, as people write it.
func parseBootstrap(list string) ([]string, error) {
	var addrs []string
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" || slices.Contains(addrs, entry) {
			continue
		}
		host, port, err := net.SplitHostPort(entry)
		if err != nil {
			return nil, badProperty(propBootstrap, "%q is not host:port", entry)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" || strings.ContainsAny(host, " \t/") {
			return nil, badProperty(propBootstrap, "%q is not host:port", entry)
		}
		addrs = append(addrs, entry)
	}
	if len(addrs) == 0 {
		return nil, badProperty(propBootstrap, "no address given")
	}
	return addrs, nil
}

func parseProtocol(props map[string]string) (useTLS, useSASL bool, err error) {
	protocol := props[propProtocol]
	switch strings.ToUpper(strings.TrimSpace(protocol)) {
	case "", "PLAINTEXT":
	case "SSL":
		useTLS = true
	case "SASL_PLAINTEXT":
		useSASL = true
	case "SASL_SSL":
		useTLS, useSASL = true, true
	default:
		return false, false, badProperty(propProtocol, "%q is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL", protocol)
	}
	if !useSASL && props[propJaas] != "" {
		return false, false, badProperty(propJaas, "given, but security.protocol does not use SASL")
	}
	return useTLS, useSASL, nil
}

func parseTLS(props map[string]string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, key := range []string{propTrustType, propKeyType} {
		if kind := props[key]; kind != "" && !strings.EqualFold(kind, "PEM") {
			return nil, badProperty(key, "%q is not supported: use PEM", kind)
		}
	}
	pool, err := trusted(props)
	if err != nil {
		return nil, err
	}
	cfg.RootCAs = pool
	if cfg.Certificates, err = keyPair(props); err != nil {
		return nil, err
	}
	algorithm, given := props[propIdentification]
	switch {
	case !given, strings.EqualFold(algorithm, "https"):
	case strings.TrimSpace(algorithm) == "":
		trustWithoutName(cfg)
	default:
		return nil, badProperty(propIdentification, "%q is neither https nor empty", algorithm)
	}
	return cfg, nil
}

// trusted returns the given CAs, or nil for the system's.
func trusted(props map[string]string) (*x509.CertPool, error) {
	key, pem := propTrustCerts, []byte(props[propTrustCerts])
	if path := props[propTrustLocation]; path != "" {
		if len(pem) > 0 {
			return nil, badProperty(propTrustLocation, "given together with %s", propTrustCerts)
		}
		var err error
		if key, pem, err = readPEM(propTrustLocation, path); err != nil {
			return nil, err
		}
	}
	if len(pem) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, badProperty(key, "no PEM certificate in it")
	}
	return pool, nil
}

// keyPair returns the client certificate, if one is given.
func keyPair(props map[string]string) ([]tls.Certificate, error) {
	chain, key := []byte(props[propKeyChain]), []byte(props[propKey])
	name := propKeyChain
	if path := props[propKeyLocation]; path != "" {
		if len(chain) > 0 || len(key) > 0 {
			return nil, badProperty(propKeyLocation, "given together with %s or %s", propKeyChain, propKey)
		}
		var err error
		if name, chain, err = readPEM(propKeyLocation, path); err != nil {
			return nil, err
		}
		key = chain
	}
	switch {
	case len(chain) == 0 && len(key) == 0:
		return nil, nil
	case len(chain) == 0:
		return nil, badProperty(propKeyChain, "missing, though %s is given", propKey)
	case len(key) == 0:
		return nil, badProperty(propKey, "missing, though %s is given", propKeyChain)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, badProperty(name, "no matching PEM certificate and unencrypted private key")
	}
	return []tls.Certificate{pair}, nil
}

func readPEM(key, path string) (string, []byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", nil, badProperty(key, "%v", err)
	}
	return key, b, nil
}

// trustWithoutName checks the certificate chain of the broker, but not that its name is the one that was dialled: what
// an empty ssl.endpoint.identification.algorithm means.
func trustWithoutName(cfg *tls.Config) {
	roots := cfg.RootCAs
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errors.New("broker gave no certificate")
		}
		opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, cert := range state.PeerCertificates[1:] {
			opts.Intermediates.AddCert(cert)
		}
		_, err := state.PeerCertificates[0].Verify(opts)
		return err
	}
}
