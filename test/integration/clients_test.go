package integration

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// Real clients do all their things through the gateway, with ordinary topics and with the mirror topic "catalog", and
// never receive an address of the destination.
func TestClients(t *testing.T) {
	catalog := harness.Topic{Name: "catalog", Partitions: 3, Codec: kgo.Lz4Compression()}
	random := harness.Random(t)
	from := source(t)
	to := kafkatest.Start(t, kafkatest.Options{AdvertiseHost: "localhost", Heap: "512m"})
	harness.CreateTopics(t, from, catalog)
	harness.MustFill(t, from, random, catalogRecords, catalog)
	gw, _ := harness.TappedGateway(t, harness.GatewayOptions{Destination: to.Bootstrap()}, to, "localhost", "127.0.0.1")
	harness.CreateMirror(t, gw.Client(t), "clients", from)
	harness.AddTopics(t, gw.Client(t), "clients", catalog.Name)
	harness.WaitMirrored(t, gw.Client(t), "clients", from, to.Bootstrap(), time.Minute, catalog.Name)

	t.Run("franz-go", func(t *testing.T) { franzGo(t, gw) })
	t.Run("librdkafka", func(t *testing.T) { librdkafka(t, gw) })
	t.Run("java", func(t *testing.T) { javaTools(t, gw, to) })
}

const catalogRecords = 1000

func franzGo(t *testing.T, gw *harness.Gateway) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	admin := harness.Admin(t, gw.Bootstrap())
	franz := harness.Topic{Name: "franz", Partitions: 3, Codec: kgo.ZstdCompression()}
	harness.CreateTopics(t, gw.Bootstrap(), franz)
	harness.MustFill(t, gw.Bootstrap(), harness.Random(t), 3000, franz)
	for _, topic := range []string{"franz", "catalog"} {
		want := map[string]int{"franz": 3000, "catalog": catalogRecords}[topic]
		group := "franz-" + topic
		consumer := gw.Client(t, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
		for range want {
			pollOne(ctx, t, consumer)
		}
		if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
			t.Fatal(err)
		}
		lag, err := admin.Lag(ctx, group)
		if err = errors.Join(err, lag.Error()); err != nil {
			t.Fatal(err)
		}
		if total := lag[group].Lag.Total(); total != 0 || len(lag[group].Members) != 1 {
			t.Errorf("%s: lag %d with %d members, want 0 with 1", group, total, len(lag[group].Members))
		}
	}
	franzTransaction(ctx, t, gw)
	err := gw.Client(t).ProduceSync(ctx, &kgo.Record{Topic: "catalog", Value: []byte("x")}).FirstErr()
	if !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("writing to a mirror topic: %v, want POLICY_VIOLATION", err)
	}
	franzAdmin(ctx, t, admin)
}

// franzTransaction aborts one transaction and commits one that reads catalog and writes franz-out.
func franzTransaction(ctx context.Context, t *testing.T, gw *harness.Gateway) {
	t.Helper()
	harness.CreateTopics(t, gw.Bootstrap(), harness.Topic{Name: "franz-out", Partitions: 1})
	session, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(gw.Bootstrap()), kgo.TransactionalID("franz"), kgo.ConsumerGroup("franz-transactions"),
		kgo.ConsumeTopics("catalog"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for _, commit := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		fetches := session.PollRecords(ctx, 10)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		if err := session.Begin(); err != nil {
			t.Fatal(err)
		}
		record := &kgo.Record{Topic: "franz-out", Value: fmt.Appendf(nil, "commit=%v", bool(commit))}
		if err := session.ProduceSync(ctx, record).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if done, err := session.End(ctx, commit); err != nil || done != bool(commit) {
			t.Fatalf("ending a transaction with %v: %v, %v", commit, done, err)
		}
	}
	reader := gw.Client(t, kgo.ConsumeTopics("franz-out"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if record := pollOne(ctx, t, reader); string(record.Value) != "commit=true" {
		t.Errorf("a reader of committed records got %q", record.Value)
	}
}

func franzAdmin(ctx context.Context, t *testing.T, admin *kadm.Client) {
	t.Helper()
	value := "123456789"
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, "franz")
	if err != nil || altered[0].Err != nil {
		t.Fatalf("altering: %v %v", err, altered)
	}
	grown, err := admin.CreatePartitions(ctx, 1, "franz")
	if err = errors.Join(err, grown.Error()); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 30*time.Second, "the changes are seen", func(ctx context.Context) error {
		details, err := admin.ListTopics(ctx, "franz")
		if err != nil {
			return err
		}
		configs, err := admin.DescribeTopicConfigs(ctx, "franz")
		if err != nil {
			return err
		}
		found := ""
		for _, c := range configs[0].Configs {
			if c.Key == "retention.ms" {
				found = c.MaybeValue()
			}
		}
		if n := len(details["franz"].Partitions); n != 4 || found != value {
			return fmt.Errorf("%d partitions, retention.ms=%s", n, found)
		}
		return nil
	})
	if _, err := admin.DescribeBrokerConfigs(ctx, 1); err != nil {
		t.Errorf("DescribeConfigs of a broker: %v", err)
	}
	if _, err := admin.DescribeAllLogDirs(ctx, nil); err != nil {
		t.Errorf("DescribeLogDirs: %v", err)
	}
	if _, err := admin.DescribeTransactions(ctx); err != nil {
		t.Errorf("DescribeTransactions: %v", err)
	}
	deleted, err := admin.DeleteTopics(ctx, "franz")
	if err = errors.Join(err, deleted.Error()); err != nil {
		t.Errorf("deleting: %v", err)
	}
}

func librdkafka(t *testing.T, gw *harness.Gateway) {
	python, err := harness.Python(t.Context(), "confluent-kafka==2.16.1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	output, err := exec.CommandContext(ctx, python, "testdata/librdkafka.py", gw.Bootstrap(), fmt.Sprint(catalogRecords)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	t.Logf("\n%s", output)
	for _, step := range []string{"admin", "produce", "consume", "group", "transactions", "mirror", "readonly"} {
		if !strings.Contains(string(output), "ok "+step+"\n") {
			t.Errorf("the step %s was not done", step)
		}
	}
}

// javaTools uses Kafka's own tools, which have the Java client inside.
func javaTools(t *testing.T, gw *harness.Gateway, to *kafkatest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	run := func(want, name string, args ...string) string {
		t.Helper()
		output, err := to.Tool(ctx, name, append([]string{"--bootstrap-server", gw.Bootstrap()}, args...)...)
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, output)
		}
		if !regexp.MustCompile(want).Match(output) {
			t.Fatalf("%s %v: no %q in\n%s", name, args, want, output)
		}
		return string(output)
	}
	run("Created topic java", "kafka-topics", "--create", "--topic", "java", "--partitions", "3", "--replication-factor", "1")
	run("Created topic java-out", "kafka-topics", "--create", "--topic", "java-out", "--partitions", "1", "--replication-factor", "1")
	run(`(?m)^catalog$`, "kafka-topics", "--list")
	run(`PartitionCount: 3`, "kafka-topics", "--describe", "--topic", "java")

	run(`"sent":2000,"acked":2000`, "kafka-verifiable-producer", "--topic", "java", "--max-messages", "2000", "--acks", "-1")
	for _, protocol := range []string{"classic", "consumer"} {
		for topic, records := range map[string]int{"java": 2000, "catalog": catalogRecords} {
			group := "java-" + protocol + "-" + topic
			output := run("records_consumed", "kafka-verifiable-consumer", "--topic", topic, "--group-id", group,
				"--group-protocol", protocol, "--max-messages", fmt.Sprint(records), "--reset-policy", "earliest")
			if strings.Contains(output, `"success":false`) {
				t.Errorf("%s consumer of %s could not commit:\n%s", protocol, topic, output)
			}
		}
		run(`(?m)^\S+\s+catalog\s+0\s+(\d+)\s+\d+\s+0\s`, "kafka-consumer-groups", "--describe", "--group", "java-"+protocol+"-catalog")
	}
	run("Processed a total of 1000 messages", "kafka-console-consumer", "--topic", "catalog", "--from-beginning", "--max-messages", "1000", "--timeout-ms", "180000")

	run("Completed updating config", "kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", "java", "--add-config", "retention.ms=86400000")
	run("retention.ms=86400000", "kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "java")
	run("num.network.threads", "kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "1", "--all")
	run(`java:0:\d+`, "kafka-get-offsets", "--topic", "java")
	run(`"version":1`, "kafka-log-dirs", "--describe", "--topic-list", "java")
	run(`Produce\(0\)`, "kafka-broker-api-versions")

	copied, err := to.Tool(ctx, "kafka-transactional-message-copier", "--broker-list", gw.Bootstrap(), "--transactional-id", "java-copier",
		"--consumer-group", "java-copier", "--input-topic", "catalog", "--input-partition", "0", "--output-topic", "java-out", "--transaction-size", "100", "--max-messages", "300")
	if err != nil {
		t.Fatalf("transactional copier: %v\n%s", err, copied)
	}
	run("Processed a total of 300 messages", "kafka-console-consumer", "--topic", "java-out", "--from-beginning", "--max-messages", "300",
		"--timeout-ms", "180000", "--isolation-level", "read_committed")
	run("java-copier", "kafka-transactions", "list")

	refused, err := to.Tool(ctx, "kafka-verifiable-producer", "--bootstrap-server", gw.Bootstrap(), "--topic", "catalog", "--max-messages", "1")
	if !strings.Contains(string(refused), "PolicyViolation") {
		t.Errorf("writing to a mirror topic: %v\n%s", err, refused)
	}
}
