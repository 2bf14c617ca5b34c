// Package integration tests mirrorgate as its users have it: the binary as a process of its own, real Kafka brokers on
// both sides, real clients.
package integration

import (
	"os"
	"testing"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// source is the cluster that most tests mirror from; their topics have names of their own.
func source(t *testing.T) string {
	t.Helper()
	return kafkatest.Shared(t, "source", kafkatest.Options{Heap: "512m"}).Bootstrap()
}

// destination is a cluster for one test: all that a gateway knows is stored there.
func destination(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	return kafkatest.Start(t, kafkatest.Options{Heap: "512m"})
}

func gateway(t *testing.T, destination *kafkatest.Cluster, flags ...string) *harness.Gateway {
	t.Helper()
	return harness.StartGateway(t, harness.GatewayOptions{Destination: destination.Bootstrap(), Flags: flags})
}
