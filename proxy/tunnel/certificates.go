package tunnel

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
)

// recheck is how often handshakes look whether the files have changed.
const recheck = time.Second

// certificates reads the server's certificate, and reads it again when the files have changed: connections that are open go on
// with the old one, later handshakes get the new one. Files that cannot be used (half written, or key and certificate do
// not fit yet) are reported once and the old certificate stays in use.
type certificates struct {
	cfg     ServerConfig
	metrics *Metrics
	log     *zap.Logger

	mu      sync.Mutex // guards the following
	current *tls.Config
	leaf    *x509.Certificate
	stamps  []stamp // of the files as of the last attempt to load them
	failed  string  // why that attempt failed, "" if it did not
	checked time.Time
	names   []string // that the certificate should cover
	missing []string // those of which it was said that it does not
}

// stamp tells whether a file has changed.
type stamp struct {
	modified time.Time
	size     int64
}

// config is called for every handshake.
func (c *certificates) config(now time.Time) *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.checked) >= recheck || now.Before(c.checked) {
		c.checked = now
		c.maybeReload()
	}
	return c.current
}

// maybeReload. REQUIRES: mu.
func (c *certificates) maybeReload() {
	stamps := c.look()
	if slices.Equal(stamps, c.stamps) && c.failed == "" {
		return
	}
	c.stamps = stamps
	err := c.load()
	switch {
	case err == nil:
		c.failed = ""
	case err.Error() != c.failed:
		c.failed = err.Error()
		c.metrics.reloads.WithLabelValues("failed").Inc()
		c.log.Error("the certificate files cannot be used; the certificate that was loaded before stays in use", zap.Error(err))
	}
}

func (c *certificates) look() []stamp {
	var stamps []stamp
	for _, file := range []string{c.cfg.CertFile, c.cfg.KeyFile, c.cfg.ClientCAFile} {
		var s stamp
		if info, err := os.Stat(file); err == nil {
			s = stamp{info.ModTime(), info.Size()}
		}
		stamps = append(stamps, s)
	}
	return stamps
}

// load reads the files. REQUIRES: mu.
func (c *certificates) load() error {
	pair, err := loadKeyPair(c.cfg.CertFile, c.cfg.KeyFile)
	if err != nil {
		return err
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if c.cfg.ClientCAFile != "" {
		text, err := os.ReadFile(c.cfg.ClientCAFile)
		if err != nil {
			return fmt.Errorf("certificates of clients: %w", err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("certificates of clients: %s has no PEM certificate", c.cfg.ClientCAFile)
		}
		config.SessionTicketsDisabled = true // else who was once let in could come back after the file has changed
		config.ClientAuth = tls.RequireAndVerifyClientCert
		if c.cfg.ClientCertOptional {
			config.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	c.current, c.leaf, c.missing = config, pair.Leaf, nil
	c.metrics.reloads.WithLabelValues("ok").Inc()
	c.metrics.expiry.Set(float64(pair.Leaf.NotAfter.Unix()))
	c.describe()
	c.checkNames()
	return nil
}

// loadKeyPair never quotes the key.
func loadKeyPair(certFile, keyFile string) (tls.Certificate, error) {
	chain, err := os.ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate: %w", err)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("private key: %w", err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s are no matching PEM certificate and unencrypted private key: %w", certFile, keyFile, err)
	}
	if pair.Leaf == nil {
		return tls.Certificate{}, errors.New("certificate: it has no leaf")
	}
	return pair, nil
}

func (c *certificates) describe() {
	fingerprint := sha256.Sum256(c.leaf.Raw)
	log := c.log.With(zap.String("subject", DistinguishedName(c.leaf.RawSubject)), zap.Strings("names", c.leaf.DNSNames),
		zap.Stringers("addresses", c.leaf.IPAddresses), zap.Time("notAfter", c.leaf.NotAfter), zap.String("sha256", hex.EncodeToString(fingerprint[:])))
	switch now := time.Now(); {
	case now.After(c.leaf.NotAfter):
		log.Warn("certificate for clients loaded, but it has expired")
	case now.Before(c.leaf.NotBefore):
		log.Warn("certificate for clients loaded, but it is not valid yet", zap.Time("notBefore", c.leaf.NotBefore))
	default:
		log.Info("certificate for clients loaded")
	}
}

// expect adds names that clients check the certificate against.
func (c *certificates) expect(names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.names)
	for _, name := range names {
		if !slices.Contains(c.names, name) {
			c.names = append(c.names, name)
		}
	}
	if len(c.names) > before {
		c.checkNames()
	}
}

// checkNames warns of names that the certificate does not cover, once for each certificate. REQUIRES: mu.
func (c *certificates) checkNames() {
	for _, name := range c.names {
		if err := c.leaf.VerifyHostname(name); err != nil && !slices.Contains(c.missing, name) {
			c.missing = append(c.missing, name)
			c.log.Warn("the certificate does not cover a name that clients are told; they will refuse it unless they do not check names",
				zap.String("name", name), zap.Error(err))
		}
	}
}
