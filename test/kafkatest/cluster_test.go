package kafkatest_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

func client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	// A broker may not have heard yet of a topic that was just made.
	c, err := kgo.NewClient(append(opts, kgo.UnknownTopicRetries(-1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func produce(ctx context.Context, t *testing.T, c *kgo.Client, topic, value string) {
	t.Helper()
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// A record written before a SIGKILL is there after a restart on the same address, and tools can be run.
func TestClusterKeepsDataOverKill(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	began := time.Now()
	cluster := kafkatest.Start(t, kafkatest.Options{})
	t.Logf("started in %v", time.Since(began))
	c := client(t, kgo.SeedBrokers(cluster.Bootstrap()))
	if _, err := kadm.NewClient(c).CreateTopic(ctx, 2, 1, nil, "kept"); err != nil {
		t.Fatal(err)
	}
	produce(ctx, t, c, "kept", "before")
	address := cluster.BrokerAddr(1)
	cluster.Kill(1)
	if pid := cluster.PID(1); pid != 0 {
		t.Fatalf("killed broker has process %d", pid)
	}
	if err := cluster.Restart(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if cluster.BrokerAddr(1) != address {
		t.Fatalf("moved from %s to %s", address, cluster.BrokerAddr(1))
	}
	output, err := cluster.Tool(ctx, "kafka-console-consumer", "--bootstrap-server", cluster.Bootstrap(),
		"--topic", "kept", "--from-beginning", "--max-messages", "1")
	if err != nil || !strings.Contains(string(output), "before") {
		t.Fatalf("console consumer: %v\n%s", err, output)
	}
}

func TestThreeBrokersAdvertise(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cluster := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Advertise: map[int32]string{2: "192.0.2.1:4711"}, AdvertiseHost: "localhost"})
	brokers, err := kadm.NewClient(client(t, kgo.SeedBrokers(cluster.BrokerAddr(1)))).ListBrokers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range brokers {
		got = append(got, fmt.Sprintf("%s:%d", b.Host, b.Port))
	}
	want := []string{strings.Replace(cluster.BrokerAddr(1), "127.0.0.1", "localhost", 1), "192.0.2.1:4711",
		strings.Replace(cluster.BrokerAddr(3), "127.0.0.1", "localhost", 1)}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("advertised %v, want %v", got, want)
	}
}

func TestSharedIsOneCluster(t *testing.T) {
	a := kafkatest.Shared(t, "a", kafkatest.Options{})
	if b := kafkatest.Shared(t, "a", kafkatest.Options{Brokers: 1}); a != b {
		t.Fatal("two clusters for the same options")
	}
}

func TestTooOldReleaseRefused(t *testing.T) {
	if _, err := kafkatest.Run(t.Context(), t.TempDir(), kafkatest.Options{Version: "0.8.2.2"}); err == nil || !strings.Contains(err.Error(), "Java 17") {
		t.Fatalf("got %v", err)
	}
}

// Without Java a test must be told what to install, not skipped.
func TestMissingJava(t *testing.T) {
	t.Setenv("MIRRORGATE_JAVA", "no-such-java")
	_, err := kafkatest.Run(t.Context(), t.TempDir(), kafkatest.Options{})
	if err == nil || !strings.Contains(err.Error(), "apt-get install openjdk-17") {
		t.Fatalf("got %v", err)
	}
}
