package kafkatest

import (
	"archive/zip"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

const (
	pauseSignal  = syscall.SIGSTOP
	resumeSignal = syscall.SIGCONT
)

// toolClasses are the classes of Kafka's command-line tools by the names of their scripts, without the package: that
// has changed over the releases.
var toolClasses = map[string]string{
	"kafka-acls":                         "AclCommand",
	"kafka-broker-api-versions":          "BrokerApiVersionsCommand",
	"kafka-client-metrics":               "ClientMetricsCommand",
	"kafka-cluster":                      "ClusterTool",
	"kafka-configs":                      "ConfigCommand",
	"kafka-console-consumer":             "consumer.ConsoleConsumer",
	"kafka-console-producer":             "ConsoleProducer",
	"kafka-console-share-consumer":       "consumer.ConsoleShareConsumer",
	"kafka-consumer-groups":              "consumer.group.ConsumerGroupCommand",
	"kafka-consumer-perf-test":           "ConsumerPerformance",
	"kafka-delegation-tokens":            "DelegationTokenCommand",
	"kafka-delete-records":               "DeleteRecordsCommand",
	"kafka-dump-log":                     "DumpLogSegments",
	"kafka-features":                     "FeatureCommand",
	"kafka-get-offsets":                  "GetOffsetShell",
	"kafka-groups":                       "GroupsCommand",
	"kafka-leader-election":              "LeaderElectionCommand",
	"kafka-log-dirs":                     "LogDirsCommand",
	"kafka-metadata-quorum":              "MetadataQuorumCommand",
	"kafka-producer-perf-test":           "ProducerPerformance",
	"kafka-reassign-partitions":          "reassign.ReassignPartitionsCommand",
	"kafka-share-groups":                 "consumer.group.ShareGroupCommand",
	"kafka-storage":                      "StorageTool",
	"kafka-streams-application-reset":    "StreamsResetter",
	"kafka-streams-groups":               "streams.StreamsGroupCommand",
	"kafka-topics":                       "TopicCommand",
	"kafka-transactional-message-copier": "TransactionalMessageCopier",
	"kafka-transactions":                 "TransactionsCommand",
	"kafka-verifiable-consumer":          "VerifiableConsumer",
	"kafka-verifiable-producer":          "VerifiableProducer",
}

// Tool runs one of Kafka's command-line tools of this cluster's release, by script name ("kafka-topics") or full class
// name, and returns what it wrote to both outputs. The arguments are the tool's own: they name the address to talk to,
// which need not be this cluster's.
func (c *Cluster) Tool(ctx context.Context, name string, args ...string) ([]byte, error) {
	command, err := ToolCommand(ctx, c.opts.Version, name, args...)
	if err != nil {
		return nil, err
	}
	output, err := command.CombinedOutput()
	if err != nil {
		return output, fmt.Errorf("kafkatest: %s: %w", name, err)
	}
	return output, nil
}

// ToolCommand is a command that runs a tool of a Kafka release, for callers that need its input or outputs. It dies with
// this process.
func ToolCommand(ctx context.Context, version, name string, args ...string) (*exec.Cmd, error) {
	java, err := Java()
	if err != nil {
		return nil, err
	}
	jars, err := Jars(ctx, version)
	if err != nil {
		return nil, err
	}
	class, err := toolClass(jars, name)
	if err != nil {
		return nil, err
	}
	flags := append(jvmFlags("256m", false), "-cp", filepath.Join(jars, "*"), class)
	command := exec.CommandContext(ctx, java, append(flags, args...)...)
	command.SysProcAttr = dieWithParent()
	return command, nil
}

func toolClass(jars, name string) (string, error) {
	class, ok := toolClasses[strings.TrimSuffix(name, ".sh")]
	if !ok {
		if strings.Contains(name, ".") {
			return name, nil
		}
		return "", fmt.Errorf("kafkatest: unknown tool %s", name)
	}
	classes, err := classIndex(jars)
	if err != nil {
		return "", err
	}
	for _, pkg := range []string{"org.apache.kafka.tools.", "kafka.admin.", "kafka.tools."} {
		if classes[strings.ReplaceAll(pkg+class, ".", "/")+".class"] {
			return pkg + class, nil
		}
	}
	return "", fmt.Errorf("kafkatest: %s has no %s", jars, name)
}

var (
	indexMu sync.Mutex
	indexes = map[string]map[string]bool{}
)

// classIndex lists the classes of the jars that hold tools.
func classIndex(jars string) (map[string]bool, error) {
	indexMu.Lock()
	defer indexMu.Unlock()
	if index := indexes[jars]; index != nil {
		return index, nil
	}
	index := map[string]bool{}
	for _, pattern := range []string{"kafka-tools-*.jar", "kafka_*.jar"} {
		files, err := filepath.Glob(filepath.Join(jars, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if err := addClasses(index, file); err != nil {
				return nil, err
			}
		}
	}
	indexes[jars] = index
	return index, nil
}

func addClasses(index map[string]bool, file string) error {
	reader, err := zip.OpenReader(file)
	if err != nil {
		return fmt.Errorf("kafkatest: %s: %w", file, err)
	}
	defer reader.Close()
	for _, entry := range reader.File {
		index[entry.Name] = true
	}
	return nil
}
