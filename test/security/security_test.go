package security

import (
	"testing"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// TestSecured runs on one gateway between two clusters with TLS, SASL, ACLs and sessions of seconds.
func TestSecured(t *testing.T) {
	source, destination := secured(t, "source"), secured(t, "destination")
	keyFile, keyText := secretKey(t)
	g := startGateway(t, destination, []string{"127.0.0.1"}, "--secret-key-file", keyFile)
	withSource := func(run func(*testing.T, *gateway, *kafkatest.Cluster)) func(*testing.T, *gateway) {
		return func(t *testing.T, g *gateway) { run(t, g, source) }
	}
	for _, test := range []struct {
		name string
		run  func(t *testing.T, g *gateway)
	}{
		{"PassThrough", passThrough},
		{"Refusals", refusals},
		{"DelegationTokens", delegationTokens},
		{"RawTokens", rawTokens},
		{"Java", javaOverTLS},
		{"CommandLine", commandLine},
		{"SessionsEnd", withSource(sessionsEnd)},
		{"NewCertificate", newCertificate},
		{"Restarts", restarts},
		{"SecretsStay", func(t *testing.T, g *gateway) { secretsStay(t, g, source, keyText) }},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, g) })
	}
}
