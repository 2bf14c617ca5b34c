package security

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// passThrough: clients log in at the destination through the gateway by every mechanism, as themselves.
func passThrough(t *testing.T, g *gateway) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	harness.CreateTopics(t, g.destination.InternalBootstrap(), harness.Topic{Name: "pass-through", Partitions: 2})
	allow(t, g.destination, "alice", "pass-")
	errorsBefore := g.Metric(t, "mirrorgate_proxy_errors_total")
	for i, mechanism := range mechanisms {
		alice := g.client(t, "alice", mechanism, kgo.ConsumeTopics("pass-through"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		record := kgo.KeyStringRecord(mechanism, "by alice")
		record.Topic = "pass-through"
		must(t, alice.ProduceSync(ctx, record).FirstErr())
		seen := 0
		for seen <= i {
			fetches := alice.PollFetches(ctx)
			must(t, fetches.Err())
			seen += fetches.NumRecords()
		}
		bob := g.client(t, "bob", mechanism)
		err := bob.ProduceSync(ctx, &kgo.Record{Topic: "pass-through", Value: []byte("by bob")}).FirstErr()
		if !errors.Is(err, kerr.TopicAuthorizationFailed) {
			t.Errorf("%s: bob may write: %v", mechanism, err)
		}
	}
	g.quiet(t, errorsBefore)
}

// refusals reach the client as the broker's own.
func refusals(t *testing.T, g *gateway) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	trusting := kgo.DialTLSConfig(&tls.Config{RootCAs: g.authority.Pool})
	for _, wrong := range []kgo.Opt{
		kgo.SASL(plain.Auth{User: "alice", Pass: "wrong"}.AsMechanism()),
		kgo.SASL(scram.Auth{User: "alice", Pass: "wrong"}.AsSha512Mechanism()),
	} {
		client := harness.Client(t, g.Bootstrap(), trusting, wrong, kgo.RetryTimeout(5*time.Second))
		if _, err := metadata(ctx, client); !errors.Is(err, kerr.SaslAuthenticationFailed) {
			t.Errorf("a wrong password: %v", err)
		}
	}
	// The list of mechanisms is the broker's.
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Mechanism, req.Version = "GSSAPI", 1
	raw := harness.Client(t, g.Bootstrap(), trusting)
	kresp, err := raw.SeedBrokers()[0].Request(ctx, req)
	must(t, err)
	resp := kresp.(*kmsg.SASLHandshakeResponse)
	slices.Sort(resp.SupportedMechanisms)
	if want := slices.Sorted(slices.Values(mechanisms)); resp.ErrorCode != kerr.UnsupportedSaslMechanism.Code || !slices.Equal(want, resp.SupportedMechanisms) {
		t.Errorf("GSSAPI: error %d, mechanisms %v", resp.ErrorCode, resp.SupportedMechanisms)
	}
	// Nothing is to be had without logging in.
	if _, err := metadata(ctx, harness.Client(t, g.Bootstrap(), trusting, kgo.RequestRetries(0), kgo.RetryTimeout(time.Second))); err == nil {
		t.Error("a client that has not logged in gets metadata")
	}
	stranger := harness.Client(t, g.Bootstrap(), trusting, kgo.RequestRetries(0), kgo.RetryTimeout(time.Second))
	coordinator := kmsg.NewPtrFindCoordinatorRequest()
	coordinator.Version, coordinator.CoordinatorType, coordinator.CoordinatorKeys = 4, 3, []string{"some-mirror"}
	if _, err := stranger.SeedBrokers()[0].Request(ctx, coordinator); err == nil {
		t.Error("a client that has not logged in gets the coordinator of a mirror")
	}
	// Plaintext at the TLS port: the gateway says what is wrong.
	if _, err := metadata(ctx, harness.Client(t, g.Bootstrap(), kgo.RequestRetries(0), kgo.RetryTimeout(time.Second))); err == nil {
		t.Error("a plaintext client gets metadata")
	}
	harness.Eventually(t, 10*time.Second, "the log names the mistake", func(context.Context) error {
		return contains(g.Log(), "plaintext Kafka: set its security.protocol to SSL or SASL_SSL")
	})
}

// delegationTokens are asked for and used through the gateway.
func delegationTokens(t *testing.T, g *gateway) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	alice := kadm.NewClient(g.client(t, "alice", scram256))
	token, err := alice.CreateDelegationToken(ctx, kadm.CreateDelegationToken{MaxLifetime: time.Hour})
	must(t, err)
	harness.Eventually(t, time.Minute, "the broker knows the token", func(ctx context.Context) error { // the controller made it
		known, err := alice.DescribeDelegationTokens(ctx)
		if err == nil && !slices.ContainsFunc(known, func(k kadm.DelegationToken) bool { return k.TokenID == token.TokenID }) {
			err = fmt.Errorf("it knows %d others", len(known))
		}
		return err
	})
	auth := scram.Auth{User: token.TokenID, Pass: base64.StdEncoding.EncodeToString(token.HMAC), IsToken: true}
	bearer := harness.Client(t, g.Bootstrap(), kgo.DialTLSConfig(&tls.Config{RootCAs: g.authority.Pool}), kgo.SASL(auth.AsSha256Mechanism()))
	must(t, bearer.ProduceSync(ctx, &kgo.Record{Topic: "pass-through", Value: []byte("by alice's token")}).FirstErr())
}

// rawTokens: the first kind of SASL exchange, whose tokens are no Kafka requests (SaslHandshake v0).
func rawTokens(t *testing.T, g *gateway) {
	conn, err := tls.Dial("tcp", g.BrokerAddr(1), &tls.Config{RootCAs: g.authority.Pool})
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(3*time.Minute)))
	exchange := func(b []byte) []byte {
		t.Helper()
		_, err := conn.Write(b)
		must(t, err)
		var size [4]byte
		_, err = io.ReadFull(conn, size[:])
		must(t, err)
		answer := make([]byte, binary.BigEndian.Uint32(size[:]))
		_, err = io.ReadFull(conn, answer)
		must(t, err)
		return answer
	}
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.Mechanism = "PLAIN"
	formatter := kmsg.NewRequestFormatter(kmsg.FormatterClientID("old"))
	if answer := exchange(formatter.AppendRequest(nil, handshake, 1)); len(answer) < 6 || binary.BigEndian.Uint16(answer[4:]) != 0 {
		t.Fatalf("SaslHandshake v0: %x", answer)
	}
	token := "\x00alice\x00" + kafkatest.Password("alice")
	if answer := exchange(append(binary.BigEndian.AppendUint32(nil, uint32(len(token))), token...)); len(answer) != 0 {
		t.Fatalf("PLAIN token: %x", answer)
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 9
	answer := exchange(formatter.AppendRequest(nil, req, 2))
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = 9
	must(t, resp.ReadFrom(answer[5:]))
	if len(resp.Brokers) != 1 || len(resp.Topics) == 0 {
		t.Errorf("metadata has %d brokers, %d topics", len(resp.Brokers), len(resp.Topics))
	}
}

// commandLine: mirrorgate's own commands log in as any client does.
func commandLine(t *testing.T, g *gateway) {
	output, err := harness.Run(t, "mirrors", "list", "--bootstrap-server", g.Bootstrap(),
		"--command-config", g.properties(t, kafkatest.Admin, scram512))
	if err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	output, err = harness.Run(t, "mirrors", "list", "--bootstrap-server", g.Bootstrap(), "--command-config", g.properties(t, "bob", "OAUTHBEARER"))
	if err == nil || contains(output, "CLUSTER_AUTHORIZATION_FAILED") != nil {
		t.Errorf("bob may list mirrors: %v\n%s", err, output)
	}
}

// javaOverTLS: Kafka's own client logs in through the gateway.
func javaOverTLS(t *testing.T, g *gateway) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, mechanism := range []string{"PLAIN", "OAUTHBEARER"} {
		output, err := g.destination.Tool(ctx, "kafka-topics", "--bootstrap-server", g.Bootstrap(), "--list",
			"--command-config", g.properties(t, "alice", mechanism))
		if err == nil {
			err = contains(string(output), "pass-through")
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", mechanism, err, output)
		}
	}
}

func contains(text, part string) error {
	if !strings.Contains(text, part) {
		return fmt.Errorf("%q is not there", part)
	}
	return nil
}
