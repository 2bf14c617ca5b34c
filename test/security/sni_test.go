package security

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// TestBrokersByName: Kafka's client reaches two brokers at one port of the gateway, by their names.
func TestBrokersByName(t *testing.T) {
	destination := kafkatest.Start(t, kafkatest.Options{Brokers: 2, Heap: "256m"})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	harness.CreateTopics(t, destination.Bootstrap(), harness.Topic{Name: "named", Partitions: 4})
	dir := t.TempDir()
	authority, own := authorityFor(t, dir, "gw.example", "*.gw.example")
	gw := harness.StartGateway(t, harness.GatewayOptions{Destination: destination.Bootstrap(), Flags: []string{
		"--tls-cert", own.CertFile, "--tls-key", own.KeyFile, "--sni-template", "broker-$(node_id).gw.example", "--advertise", "gw.example",
	}})
	hosts, file := filepath.Join(dir, "hosts"), filepath.Join(dir, "client.properties")
	must(t, os.WriteFile(hosts, []byte("127.0.0.1 gw.example broker-1.gw.example broker-2.gw.example\n"), 0o666))
	must(t, kafkatest.WriteProperties(file, map[string]string{
		"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": authority.File}))
	command, err := kafkatest.ToolCommand(ctx, destination.Version(), "kafka-producer-perf-test", "--topic", "named", "--num-records", "1000",
		"--throughput", "-1", "--record-size", "100", "--producer.config", file,
		"--producer-props", "bootstrap.servers=gw.example:"+strconv.Itoa(gw.Port), "acks=all", "partitioner.ignore.keys=true", "batch.size=200")
	must(t, err)
	command.Env = append(os.Environ(), "JAVA_TOOL_OPTIONS=-Djdk.net.hosts.file="+hosts)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	ends, err := harness.Ends(ctx, harness.Admin(t, destination.Bootstrap()), "named")
	must(t, err)
	if total := harness.Total(ends); total != 1000 {
		t.Errorf("%d records arrived", total)
	}
	if err := contains(gw.Log(), "does not cover"); err == nil {
		t.Error("the gateway complains about its certificate")
	}
	for _, broker := range []int{1, 2} {
		harness.Eventually(t, time.Minute, fmt.Sprintf("broker %d has no sessions any more", broker), func(context.Context) error {
			if n := gw.Metric(t, "mirrorgate_proxy_sessions", fmt.Sprintf(`broker="%d"`, broker)); n != 0 {
				return fmt.Errorf("it has %v", n)
			}
			return nil
		})
	}
}
