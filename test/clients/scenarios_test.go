//go:build clients

package clients

import (
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

func topicsScenario(b *toolbox) {
	topic := b.topic("", "--partitions", "3", "--replication-factor", "2")
	b.run(topic, "kafka-topics", "--list")
	b.run("PartitionCount: 3", "kafka-topics", "--describe", "--topic", topic)
	b.run("", "kafka-topics", "--alter", "--topic", topic, "--partitions", "5")
	b.eventually("PartitionCount: 5", "kafka-topics", "--describe", "--topic", topic)
	b.refused("TopicExistsException", "kafka-topics", "--create", "--topic", topic)
	b.run("", "kafka-topics", "--delete", "--topic", topic)
}

func configsScenario(b *toolbox) {
	topic := b.topic("")
	of := func(kind, name string, args ...string) []string {
		return append(args, "--entity-type", kind, "--entity-name", name)
	}
	b.run("Completed updating", "kafka-configs", of("topics", topic, "--alter", "--add-config", "retention.ms=12345678,cleanup.policy=[compact,delete]")...)
	b.eventually("retention.ms=12345678", "kafka-configs", of("topics", topic, "--describe")...)
	b.run("Completed updating", "kafka-configs", of("topics", topic, "--alter", "--delete-config", "retention.ms")...)
	b.run("Completed updating", "kafka-configs", of("brokers", "2", "--alter", "--add-config", "log.cleaner.threads=2")...)
	b.eventually("log.cleaner.threads=2", "kafka-configs", of("brokers", "2", "--describe")...)
	b.run("Completed updating", "kafka-configs", of("brokers", "2", "--alter", "--delete-config", "log.cleaner.threads")...)
	b.run("num.network.threads", "kafka-configs", of("brokers", "1", "--describe", "--all")...)
	b.run("Completed updating", "kafka-configs", of("groups", b.name, "--alter", "--add-config", "consumer.heartbeat.interval.ms=6000")...)
	b.eventually("consumer.heartbeat.interval.ms=6000", "kafka-configs", of("groups", b.name, "--describe")...)
	b.run("Completed updating", "kafka-configs", of("client-metrics", b.name, "--alter", "--add-config", "metrics=org.apache.kafka.producer.,interval.ms=60000")...)
	b.eventually("interval.ms=60000", "kafka-configs", of("client-metrics", b.name, "--describe")...)
	b.run(b.name, "kafka-client-metrics", "--list")
}

func quotasScenario(b *toolbox) {
	for _, entity := range [][]string{
		{"--entity-type", "users", "--entity-name", b.name},
		{"--entity-type", "clients", "--entity-name", b.name},
		{"--entity-type", "users", "--entity-name", b.name, "--entity-type", "clients", "--entity-name", b.name},
		{"--entity-type", "clients", "--entity-default"},
	} {
		b.run("Completed updating", "kafka-configs", append([]string{"--alter", "--add-config", "producer_byte_rate=99000000,consumer_byte_rate=98000000"}, entity...)...)
		b.eventually("producer_byte_rate=9.9E7", "kafka-configs", append([]string{"--describe"}, entity...)...)
		b.run("Completed updating", "kafka-configs", append([]string{"--alter", "--delete-config", "producer_byte_rate,consumer_byte_rate"}, entity...)...)
	}
	b.run("Completed updating", "kafka-configs", "--alter", "--add-config", "connection_creation_rate=5000", "--entity-type", "ips", "--entity-name", "10.1.2.3")
	b.eventually("connection_creation_rate=5000", "kafka-configs", "--describe", "--entity-type", "ips", "--entity-name", "10.1.2.3")
}

func scramScenario(b *toolbox) {
	user := []string{"--entity-type", "users", "--entity-name", b.name}
	b.run("Completed updating", "kafka-configs", append(user, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=4096,password=a-new-password]")...)
	b.eventually("SCRAM-SHA-512=iterations=4096", "kafka-configs", append(user, "--describe")...)
	topic := b.topic("")
	b.run("Adding ACLs|Current ACLs", "kafka-acls", "--add", "--allow-principal", "User:"+b.name, "--operation", "Describe", "--topic", topic)
	properties := map[string]string{}
	maps.Copy(properties, b.cluster.ClientProperties(toolUser, toolMechanism))
	properties["sasl.jaas.config"] = fmt.Sprintf(`org.apache.kafka.common.security.scram.ScramLoginModule required username=%q password="a-new-password";`, b.name)
	other := b.as(properties)
	other.eventually("(?m)^"+topic+"$", "kafka-topics", "--list")
	b.err = errors.Join(b.err, other.err)
	b.run("Completed updating", "kafka-configs", append(user, "--alter", "--delete-config", "SCRAM-SHA-512")...)
}

func tokensScenario(b *toolbox) {
	made := b.run("HMAC", "kafka-delegation-tokens", "--create", "--max-life-time-period", "86400000", "--renewer-principal", "User:admin")
	id := b.find(`(?m)^(\S{20,24})\s+\S{60,}`, made)
	hmac := b.find(`(?m)^\S{20,24}\s+(\S{60,})`, made)
	b.eventually(id, "kafka-delegation-tokens", "--describe", "--owner-principal", "User:admin")
	properties := map[string]string{}
	maps.Copy(properties, b.cluster.ClientProperties(toolUser, toolMechanism))
	properties["sasl.jaas.config"] = fmt.Sprintf(`org.apache.kafka.common.security.scram.ScramLoginModule required username=%q password=%q tokenauth="true";`, id, hmac)
	other := b.as(properties)
	other.eventually("__consumer_offsets|(?s).*", "kafka-topics", "--list")
	b.err = errors.Join(b.err, other.err)
	b.run("", "kafka-delegation-tokens", "--renew", "--renew-time-period", "3600000", "--hmac", hmac)
	b.run("", "kafka-delegation-tokens", "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
}

func aclsScenario(b *toolbox) {
	topic := b.topic("")
	bob := b.as(b.cluster.ClientProperties("bob", toolMechanism))
	bob.refused("TopicAuthorizationException|Not authorized|Could not match any topic-partitions", "kafka-get-offsets", "--topic", topic)
	acl := []string{"--allow-principal", "User:bob", "--operation", "Read", "--operation", "Describe", "--topic", topic}
	b.run("", "kafka-acls", append([]string{"--add"}, acl...)...)
	b.eventually("User:bob", "kafka-acls", "--list", "--topic", topic)
	bob.eventually(topic+":0:0", "kafka-get-offsets", "--topic", topic)
	b.run("", "kafka-acls", append([]string{"--remove", "--force"}, acl...)...)
	bob.refused("ClusterAuthorizationException|not authorized|Cluster authorization failed", "kafka-acls", "--list")
	b.err = errors.Join(b.err, bob.err)
}

func reassignScenario(b *toolbox) {
	topic := b.topic("", "--replica-assignment", "1:2")
	b.lines(topic, 1000)
	topics := b.file("topics.json", fmt.Sprintf(`{"version":1,"topics":[{"topic":%q}]}`, topic))
	b.run("Proposed partition reassignment", "kafka-reassign-partitions", "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2,3")
	plan := func(replicas string) string {
		return b.file("plan.json", fmt.Sprintf(`{"version":1,"partitions":[{"topic":%q,"partition":0,"replicas":[%s]}]}`, topic, replicas))
	}
	file := plan("3,1")
	b.run("Successfully started", "kafka-reassign-partitions", "--execute", "--reassignment-json-file", file, "--throttle", "50000000")
	b.eventually("is completed", "kafka-reassign-partitions", "--verify", "--reassignment-json-file", file)
	b.eventually(`Replicas: 3,1`, "kafka-topics", "--describe", "--topic", topic)
	b.run("No partition reassignments found|Current partition reassignments", "kafka-reassign-partitions", "--list")
	b.run("cancel|Cancel|None of the specified", "kafka-reassign-partitions", "--cancel", "--reassignment-json-file", plan("3,1"))
}

func electionScenario(b *toolbox) {
	topic := b.topic("", "--replica-assignment", "2:3")
	file := b.file("plan.json", fmt.Sprintf(`{"version":1,"partitions":[{"topic":%q,"partition":0,"replicas":[3,2]}]}`, topic))
	b.run("Successfully started", "kafka-reassign-partitions", "--execute", "--reassignment-json-file", file)
	b.eventually("Leader: 2.*Replicas: 3,2", "kafka-topics", "--describe", "--topic", topic)
	b.eventually("uccessfully completed leader election|already elected", "kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
	b.eventually("Leader: 3.*Replicas: 3,2", "kafka-topics", "--describe", "--topic", topic)
	b.run("", "kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
	b.run("Valid replica already elected", "kafka-leader-election", "--election-type", "unclean", "--topic", topic, "--partition", "0")
}

func recordsScenario(b *toolbox) {
	topic := b.topic("")
	b.lines(topic, 10)
	b.run(topic+":0:10", "kafka-get-offsets", "--topic", topic)
	file := b.file("offsets.json", fmt.Sprintf(`{"partitions":[{"topic":%q,"partition":0,"offset":5}],"version":1}`, topic))
	b.run("low_watermark: 5", "kafka-delete-records", "--offset-json-file", file)
	b.run(topic+":0:5", "kafka-get-offsets", "--topic", topic, "--time", "earliest")
	b.run(topic+`:0:\d`, "kafka-get-offsets", "--topic", topic, "--time", "max-timestamp")
	b.run(topic, "kafka-log-dirs", "--describe", "--topic-list", topic)
}

func clusterScenario(b *toolbox) {
	b.run("Cluster ID", "kafka-cluster", "cluster-id")
	b.run(`(?m)^1\s`, "kafka-cluster", "list-endpoints")
	b.run(`Produce\(0\)`, "kafka-broker-api-versions")
	b.run("metadata.version", "kafka-features", "describe")
	b.run("LeaderId", "kafka-metadata-quorum", "describe", "--status")
	b.run("NodeId", "kafka-metadata-quorum", "describe", "--replication")
}

func consoleScenario(b *toolbox) {
	topic := b.topic("", "--partitions", "3")
	codecs := []string{"none", "gzip", "snappy", "lz4", "zstd"}
	for _, codec := range codecs {
		b.lines(topic, 100, "--compression-codec", codec)
	}
	b.run("Processed a total of "+strconv.Itoa(100*len(codecs)), "kafka-console-consumer", "--topic", topic, "--from-beginning",
		"--max-messages", strconv.Itoa(100*len(codecs)), "--timeout-ms", "60000")
}

func perfScenario(b *toolbox) {
	topic := b.topic("-"+leaderCheck, "--partitions", "3", "--replication-factor", "1") // its first partition moves
	b.run("20000 records sent", "kafka-producer-perf-test", "--topic", topic, "--num-records", "20000", "--record-size", "500", "--throughput", "-1",
		"--producer-props", "bootstrap.servers="+b.address)
	b.run(`, 20000,`, "kafka-consumer-perf-test", "--topic", topic, "--messages", "20000", "--timeout", "60000")
}

func groupsScenario(b *toolbox) {
	topic, group := b.topic("", "--partitions", "2"), b.name
	b.lines(topic, 20)
	b.run("Processed a total of 20", "kafka-console-consumer", "--topic", topic, "--from-beginning", "--group", group, "--max-messages", "20", "--timeout-ms", "60000")
	b.run(group, "kafka-consumer-groups", "--list")
	b.run(group, "kafka-groups", "--list")
	b.run(`(?m)^`+group+`\s+`+topic+`\s+0\s+\d+\s+\d+\s+0\s`, "kafka-consumer-groups", "--describe", "--group", group)
	b.run("Empty", "kafka-consumer-groups", "--describe", "--group", group, "--state")
	b.run("", "kafka-consumer-groups", "--describe", "--group", group, "--members")
	for _, how := range [][]string{{"--to-earliest"}, {"--to-offset", "3"}, {"--shift-by", "1"}, {"--to-datetime", "2020-01-01T00:00:00.000"}, {"--to-latest"}} {
		b.eventually(topic+`\s+0\s+\d+`, "kafka-consumer-groups", append([]string{"--reset-offsets", "--execute", "--group", group, "--topic", topic}, how...)...)
	}
	b.run("ucce", "kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
	b.run("successful", "kafka-consumer-groups", "--delete", "--group", group)
}

func transactionsScenario(b *toolbox) {
	topic, id := b.topic(""), b.name
	client := b.client(kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic))
	if b.err != nil {
		return
	}
	defer client.Close()
	b.err = errors.Join(client.BeginTransaction(), client.ProduceSync(b.ctx, kgo.StringRecord("x")).FirstErr(), client.EndTransaction(b.ctx, kgo.TryCommit),
		client.BeginTransaction(), client.ProduceSync(b.ctx, kgo.StringRecord("y")).FirstErr())
	b.run(id, "kafka-transactions", "list")
	b.run("Ongoing", "kafka-transactions", "describe", "--transactional-id", id)
	producers := b.run(`ProducerId`, "kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0")
	start := b.find(`(?m)\s(\d+)\s*$`, producers)
	b.run("", "kafka-transactions", "find-hanging", "--broker-id", "1")
	b.run("", "kafka-transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", start)
	b.eventually(`None`, "kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0")
}

func shareScenario(b *toolbox) {
	topic, group := b.topic(""), b.name
	b.run("Completed updating", "kafka-configs", "--alter", "--add-config", "share.auto.offset.reset=earliest", "--entity-type", "groups", "--entity-name", group)
	b.eventually("share.auto.offset.reset=earliest", "kafka-configs", "--describe", "--entity-type", "groups", "--entity-name", group)
	b.lines(topic, 10)
	b.run("Processed a total of 10", "kafka-console-share-consumer", "--topic", topic, "--group", group, "--max-messages", "10", "--timeout-ms", "60000")
	b.run(group, "kafka-share-groups", "--list")
	b.run(topic, "kafka-share-groups", "--describe", "--group", group)
	b.run("", "kafka-share-groups", "--describe", "--group", group, "--members")
	if b.since(4, 2) {
		b.eventually(topic, "kafka-share-groups", "--reset-offsets", "--to-earliest", "--group", group, "--topic", topic, "--execute")
	}
	b.run("", "kafka-share-groups", "--delete", "--group", group)
}
