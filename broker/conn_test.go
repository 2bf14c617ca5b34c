package broker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m)) }

func fake(t testing.TB, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(2, "t")}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func dialTest(t testing.TB, addr string, cfg Config) *Conn {
	t.Helper()
	c, err := Dial(t.Context(), addr, cfg)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func metadataRequest(version int16) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = version
	return req
}

func TestPipelinedInOrder(t *testing.T) {
	cluster := fake(t)
	c := dialTest(t, cluster.ListenAddrs()[0], Config{})
	const n = 200
	got := make(chan int, n)
	for i := range n {
		// Versions with and without tagged fields in the response header.
		req := metadataRequest(int16(8 + i%2))
		require.NoError(t, c.Send(req, func(body []byte, err error) {
			resp := kmsg.NewPtrMetadataResponse()
			resp.Version = req.Version
			if err == nil {
				err = resp.ReadFrom(body)
			}
			if err != nil || len(resp.Topics) != 1 {
				t.Errorf("response %d: %v", i, err)
			}
			got <- i
		}))
	}
	for i := range n {
		require.Equal(t, i, <-got)
	}
}

func TestSendFrames(t *testing.T) {
	cluster := fake(t)
	c := dialTest(t, cluster.ListenAddrs()[0], Config{ClientID: "parts"})
	req := metadataRequest(9)
	body := req.AppendTo(nil)
	type result struct {
		body []byte
		err  error
	}
	results := make(chan result, 1)
	parts := net.Buffers{body[:1], nil, body[1:]}
	require.NoError(t, c.SendFrames(req.Key(), 9, parts, func(body []byte, err error) { results <- result{body, err} }))
	r := <-results
	require.NoError(t, r.err)
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = 9
	require.NoError(t, resp.ReadFrom(r.body))
	require.Len(t, resp.Brokers, 1)
}

func TestVersions(t *testing.T) {
	cluster := fake(t)
	c := dialTest(t, cluster.ListenAddrs()[0], Config{})
	v, ok := c.Version(3, 9)
	require.True(t, ok)
	require.Equal(t, int16(9), v)
	v, ok = c.Version(3, 32000)
	require.True(t, ok)
	require.Less(t, v, int16(1000))
	_, ok = c.Version(1000, 0)
	require.False(t, ok)
	require.Error(t, c.SetVersion(kmsg.NewPtrAssignReplicasToDirsRequest(), 0))
}

// TestDeathAnswersAll: when a connection dies, every request gets the error, in order, exactly once; later ones are
// refused.
func TestDeathAnswersAll(t *testing.T) {
	cluster := fake(t)
	cluster.ControlKey(1, func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		cluster.SleepControl(func() { time.Sleep(50 * time.Millisecond) })
		return nil, errors.New("cut"), true
	})
	c := dialTest(t, cluster.ListenAddrs()[0], Config{})
	var order []int
	var mu sync.Mutex
	for i := range 20 {
		req := kmsg.NewPtrFetchRequest()
		req.Version = 11
		err := c.Send(req, func(body []byte, err error) {
			if err == nil {
				t.Errorf("response %d: no error", i)
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
		})
		if err != nil {
			break // died meanwhile
		}
	}
	<-c.Done()
	require.Error(t, c.Err())
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, order)
	for i, n := range order {
		require.Equal(t, i, n)
	}
	require.Error(t, c.Send(metadataRequest(8), func([]byte, error) { t.Error("called") }))
}

func TestCloseFromAnywhere(t *testing.T) {
	cluster := fake(t)
	c := dialTest(t, cluster.ListenAddrs()[0], Config{})
	var calls, errs atomic.Int64
	var wg, sending sync.WaitGroup
	sending.Add(4)
	for range 4 {
		wg.Go(func() {
			begun := sync.OnceFunc(sending.Done)
			for {
				calls.Add(1)
				err := c.Send(metadataRequest(8), func(_ []byte, err error) {
					calls.Add(-1)
					if err != nil && !errors.Is(err, ErrClosed) {
						errs.Add(1)
					}
				})
				begun()
				if err != nil {
					calls.Add(-1)
					return
				}
			}
		})
	}
	sending.Wait()
	c.Close()
	wg.Wait()
	<-c.Done()
	require.Zero(t, calls.Load(), "requests without an answer")
	require.Zero(t, errs.Load())
}

// hostile answers ApiVersions properly, then does to the connection what it is told.
func hostile(t testing.TB, after func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer nc.Close()
				correlation := readFrame(nc)
				if correlation == nil {
					return
				}
				resp := kmsg.NewPtrApiVersionsResponse()
				resp.Version = 3
				for key := range int16(70) {
					resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MaxVersion: 9})
				}
				writeFrame(nc, resp.AppendTo(correlation))
				after(nc)
			})
		}
	})
	return l.Addr().String()
}

// readFrame reads a request and returns its correlation ID, nil at the end.
func readFrame(nc net.Conn) []byte {
	var size [4]byte
	if _, err := io.ReadFull(nc, size[:]); err != nil {
		return nil
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(nc, frame); err != nil {
		return nil
	}
	return frame[4:8:8]
}

func writeFrame(nc net.Conn, frame []byte) {
	_, _ = nc.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
}

func TestHostileBroker(t *testing.T) {
	for name, after := range map[string]func(net.Conn){
		"response nobody asked for": func(nc net.Conn) { writeFrame(nc, []byte{0, 0, 0, 9, 1}) },
		"negative length":           func(nc net.Conn) { readFrame(nc); _, _ = nc.Write([]byte{255, 255, 255, 255}) },
		"TLS alert":                 func(nc net.Conn) { readFrame(nc); _, _ = nc.Write([]byte{21, 3, 1, 0, 2, 2, 40}) },
		"length below a header":     func(nc net.Conn) { readFrame(nc); writeFrame(nc, []byte{1, 2}) },
		"wrong correlation ID":      func(nc net.Conn) { readFrame(nc); writeFrame(nc, []byte{0, 0, 1, 1, 0, 0}) },
		"cut off response":          func(nc net.Conn) { readFrame(nc); _, _ = nc.Write([]byte{0, 0, 1, 0, 0}) },
		"malformed tags":            func(nc net.Conn) { id := readFrame(nc); writeFrame(nc, append(id, 200, 200, 200)) },
		"silence":                   func(nc net.Conn) { readFrame(nc); readFrame(nc) },
	} {
		t.Run(name, func(t *testing.T) {
			c := dialTest(t, hostile(t, after), Config{})
			if name == "silence" { // and not before: connecting may take its time
				c.cfg.RequestTimeout = 300 * time.Millisecond
			}
			_, err := c.Request(t.Context(), metadataRequest(9))
			require.Error(t, err)
			<-c.Done()
			if name == "silence" {
				require.ErrorIs(t, err, ErrTimeout)
			}
			c.Close() // the server may wait for it
		})
	}
}

// deadlineConn tells by which time something must be read from it.
type deadlineConn struct {
	net.Conn
	read *atomic.Pointer[time.Time]
}

func (c deadlineConn) SetReadDeadline(at time.Time) error {
	c.read.Store(&at)
	return c.Conn.SetReadDeadline(at)
}

// TestIdleConnectionStays: the request timeout counts only while a request waits.
func TestIdleConnectionStays(t *testing.T) {
	answer := make(chan struct{})
	defer close(answer)
	addr := hostile(t, func(nc net.Conn) {
		for id := readFrame(nc); id != nil; id = readFrame(nc) {
			<-answer
			writeFrame(nc, id)
		}
	})
	var deadline atomic.Pointer[time.Time]
	c := dialTest(t, addr, Config{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, addr)
		return deadlineConn{nc, &deadline}, err
	}})
	for range 3 {
		require.Zero(t, *deadline.Load(), "nothing is waited for")
		results := make(chan error, 1)
		sent := time.Now()
		require.NoError(t, c.SendFrames(3, 8, net.Buffers{[]byte("x")}, func(_ []byte, err error) { results <- err }))
		require.False(t, deadline.Load().Before(sent.Add(DefaultRequestTimeout)))
		answer <- struct{}{}
		require.NoError(t, <-results)
	}
}

func TestRequestContext(t *testing.T) {
	c := dialTest(t, hostile(t, func(nc net.Conn) { readFrame(nc); readFrame(nc) }), Config{RequestTimeout: time.Minute})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Request(ctx, metadataRequest(9))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	c.Close()
}

func TestSASL(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		module := "org.apache.kafka.common.security.scram.ScramLoginModule"
		if mechanism == "PLAIN" {
			module = "org.apache.kafka.common.security.plain.PlainLoginModule"
		}
		cluster := fake(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "alice", `s3"cret`))
		config := func(password string) Config {
			cfg, err := ParseProperties(map[string]string{
				"bootstrap.servers": cluster.ListenAddrs()[0], "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
				"sasl.jaas.config": module + ` required username="alice" password="` + password + `";`,
			}, nil)
			require.NoError(t, err)
			return cfg
		}
		c := dialTest(t, cluster.ListenAddrs()[0], config(`s3\"cret`))
		_, err := c.Request(t.Context(), metadataRequest(8))
		require.NoError(t, err)

		client, err := kgo.NewClient(config(`s3\"cret`).KgoOptions()...)
		require.NoError(t, err)
		require.NoError(t, client.Ping(t.Context()))
		client.Close()

		_, err = Dial(t.Context(), cluster.ListenAddrs()[0], config("wrong-password"))
		var refused *AuthenticationError
		require.ErrorAs(t, err, &refused)
		require.NotContains(t, err.Error(), "wrong-password")
	}
}

// TestReauthentication: sessions of one second, requests all the time, for several sessions (KIP-368).
func TestReauthentication(t *testing.T) {
	cluster := fake(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", "secret"),
		kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": "1000"}))
	var handshakes atomic.Int64
	cluster.ControlKey(17, func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		handshakes.Add(1)
		return nil, nil, false
	})
	cfg, err := ParseProperties(map[string]string{
		"bootstrap.servers": cluster.ListenAddrs()[0], "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
		"sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required username=alice password=secret;`,
	}, nil)
	require.NoError(t, err)
	c := dialTest(t, cluster.ListenAddrs()[0], cfg)
	var inFlight atomic.Int64
	for began := time.Now(); handshakes.Load() < 4 && time.Since(began) < time.Minute; {
		require.NoError(t, c.Err())
		inFlight.Add(1)
		require.NoError(t, c.Send(metadataRequest(8), func(_ []byte, err error) {
			inFlight.Add(-1)
			if err != nil {
				t.Errorf("request failed: %v", err)
			}
		}))
		for inFlight.Load() > 10 {
			time.Sleep(time.Millisecond) // paces the requests; nothing depends on its length
		}
	}
	require.GreaterOrEqual(t, handshakes.Load(), int64(4))
	_, err = c.Request(t.Context(), metadataRequest(8))
	require.NoError(t, err)
}

// testCA makes a CA and a server certificate for the name.
func testCA(t testing.TB, name string) (ca []byte, server tls.Certificate, certPEM, keyPEM []byte) {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, template, template, &caKey.PublicKey, caKey)
	require.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: template.NotBefore, NotAfter: template.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		leaf.IPAddresses = []net.IP{ip}
	} else {
		leaf.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, template, &key.PublicKey, caKey)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	server, err = tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), server, certPEM, keyPEM
}

func TestTLS(t *testing.T) {
	ca, good, certPEM, keyPEM := testCA(t, "127.0.0.1")
	otherCA, _, _, _ := testCA(t, "127.0.0.1")
	wrongCA, wrongName, _, _ := testCA(t, "elsewhere.example")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	secured := fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{good}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}))
	misnamed := fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{wrongName}}))
	attempt := func(cluster *kfake.Cluster, props map[string]string) error {
		addr := cluster.ListenAddrs()[0]
		props["bootstrap.servers"], props["security.protocol"] = addr, "SSL"
		cfg, err := ParseProperties(props, nil)
		require.NoError(t, err)
		c, err := Dial(t.Context(), addr, cfg)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Request(t.Context(), metadataRequest(8))
		return err
	}
	mutual := map[string]string{"ssl.truststore.certificates": string(ca), "ssl.keystore.certificate.chain": string(certPEM), "ssl.keystore.key": string(keyPEM)}
	require.NoError(t, attempt(secured, mutual))
	require.Error(t, attempt(secured, map[string]string{"ssl.truststore.certificates": string(ca)}), "no client certificate")
	mutual["ssl.truststore.certificates"] = string(otherCA)
	require.Error(t, attempt(secured, mutual), "unknown CA")
	require.Error(t, attempt(misnamed, map[string]string{"ssl.truststore.certificates": string(wrongCA)}), "wrong name")
	noName := map[string]string{"ssl.truststore.certificates": string(wrongCA), "ssl.endpoint.identification.algorithm": ""}
	require.NoError(t, attempt(misnamed, noName))
	noName["ssl.truststore.certificates"] = string(otherCA)
	require.Error(t, attempt(misnamed, noName), "the chain counts even without the name")
}

func BenchmarkSend(b *testing.B) {
	c := dialTest(b, hostile(b, func(nc net.Conn) {
		for id := readFrame(nc); id != nil; id = readFrame(nc) {
			writeFrame(nc, id)
		}
	}), Config{})
	body := make([]byte, 1000)
	window := make(chan struct{}, 100)
	b.ReportAllocs()
	for range b.N {
		window <- struct{}{}
		err := c.SendFrames(3, 8, net.Buffers{body}, func([]byte, error) { <-window })
		require.NoError(b, err)
	}
	c.Close()
}
