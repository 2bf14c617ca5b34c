// Package certs makes certificate authorities and certificates for tests, as PEM files.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates. Its own is in File.
type Authority struct {
	File string // PEM
	Dir  string // where it writes
	Pool *x509.CertPool

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority that writes to dir.
func New(t testing.TB, dir string) *Authority {
	t.Helper()
	a, err := Make(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Make is New without a test.
func Make(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(240 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	a := &Authority{Dir: dir, File: filepath.Join(dir, "ca.pem"), key: key, Pool: x509.NewCertPool()}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.Pool.AddCert(a.cert)
	return a, os.WriteFile(a.File, encode("CERTIFICATE", der), 0o666)
}

// Pair is a certificate with its key, in files and in memory.
type Pair struct {
	CertFile, KeyFile string // PEM, the key as PKCS#8
	// BothFile has the key and the certificate, as Java's PEM key stores want it.
	BothFile string
	TLS      tls.Certificate
}

// Issue makes a certificate for host names and IP addresses; without any it is for a client. It is written to files named
// after name, over those of an earlier call.
func (a *Authority) Issue(t testing.TB, name string, subject pkix.Name, hosts ...string) Pair {
	t.Helper()
	p, err := a.MakePair(name, subject, hosts...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// MakePair is Issue without a test.
func (a *Authority) MakePair(name string, subject pkix.Name, hosts ...string) (p Pair, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return p, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(240 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return p, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return p, err
	}
	certPEM, keyPEM := encode("CERTIFICATE", der), encode("PRIVATE KEY", pkcs8)
	file := func(end string) string { return filepath.Join(a.Dir, name+end) }
	p = Pair{CertFile: file(".pem"), KeyFile: file(".key"), BothFile: file(".both.pem")}
	for path, text := range map[string][]byte{p.CertFile: certPEM, p.KeyFile: keyPEM, p.BothFile: append(keyPEM[:len(keyPEM):len(keyPEM)], certPEM...)} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return p, err
		}
	}
	if p.TLS, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		return p, fmt.Errorf("the certificate just made: %w", err)
	}
	return p, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return n
}
