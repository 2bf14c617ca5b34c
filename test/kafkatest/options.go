package kafkatest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// DefaultVersion is the Kafka that is started where Options name none.
const DefaultVersion = "4.1.0"

// Options describe a cluster. The zero value is one broker of DefaultVersion.
type Options struct {
	// Version is a release of Apache Kafka, OldestVersion or later. ZooKeeper is started too before 3.3.
	Version string
	// Brokers is the number of nodes, all of them brokers and controllers, with IDs from 1; 0 means 1.
	Brokers int
	// Settings are broker properties on top of (and stronger than) those that make tests quick.
	Settings map[string]string
	// NodeSettings are Settings of single nodes, stronger still.
	NodeSettings map[int32]map[string]string
	// Heap is the maximal Java heap of each broker; "" means 320m.
	Heap string
	// Advertise, where it has a node, is the host:port that the node tells clients instead of the port it listens on.
	Advertise map[int32]string
	// AdvertiseHost is told to clients instead of 127.0.0.1 by the nodes that are not in Advertise.
	AdvertiseHost string
	// Security of the client ports; nil is plaintext.
	Security *Security
	// Throughput runs the brokers with the JVM's usual compiler and collector instead of those that start fastest.
	// For benchmarks.
	Throughput bool
}

func (o Options) withDefaults() (Options, error) {
	if o.Version == "" {
		o.Version = DefaultVersion
	}
	if o.Brokers == 0 {
		o.Brokers = 1
	}
	if o.Heap == "" {
		o.Heap = "320m"
	}
	major, minor, err := parseVersion(o.Version)
	if err != nil {
		return o, err
	}
	if oldestMajor, oldestMinor, _ := parseVersion(OldestVersion); major < oldestMajor || major == oldestMajor && minor < oldestMinor {
		return o, fmt.Errorf("kafkatest: Kafka %s does not start on Java 17; use %s or later", o.Version, OldestVersion)
	}
	return o, nil
}

// key is the same for options that mean the same cluster.
func (o Options) key() string {
	nodes := slices.Sorted(maps.Keys(o.NodeSettings))
	var b strings.Builder
	b.WriteString(o.securityKey())
	fmt.Fprintf(&b, "%s/%d/%s/%v/%s/%v\n%s", o.Version, o.Brokers, o.Heap, o.Throughput, o.AdvertiseHost, o.Advertise, properties(o.Settings))
	for _, node := range nodes {
		fmt.Fprintf(&b, "%d\n%s", node, properties(o.NodeSettings[node]))
	}
	return b.String()
}

func parseVersion(version string) (major, minor int, err error) {
	parts := strings.Split(version, ".")
	if len(parts) >= 2 {
		major, err = strconv.Atoi(parts[0])
		if err == nil {
			minor, err = strconv.Atoi(parts[1])
		}
	}
	if len(parts) < 2 || err != nil {
		return 0, 0, fmt.Errorf("kafkatest: %q is not a Kafka version", version)
	}
	return major, minor, nil
}

// properties is a Java properties file of values without line ends.
func properties(settings map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s=%s\n", key, strings.ReplaceAll(settings[key], `\`, `\\`))
	}
	return b.String()
}

// quick are the settings that keep a test's broker small and prompt.
func quick(brokers int) map[string]string {
	replicas := strconv.Itoa(min(brokers, 3))
	inSync := strconv.Itoa(max(1, min(brokers, 3)-1))
	return map[string]string{
		"offsets.topic.replication.factor":                            replicas,
		"offsets.topic.num.partitions":                                "5",
		"transaction.state.log.replication.factor":                    replicas,
		"transaction.state.log.min.isr":                               inSync,
		"transaction.state.log.num.partitions":                        "5",
		"share.coordinator.state.topic.replication.factor":            replicas,
		"share.coordinator.state.topic.min.isr":                       inSync,
		"share.coordinator.state.topic.num.partitions":                "5",
		"group.initial.rebalance.delay.ms":                            "0",
		"group.min.session.timeout.ms":                                "1000",
		"log.cleaner.backoff.ms":                                      "500",
		"log.cleaner.dedupe.buffer.size":                              "8388608", // the default would take 128 MB of the heap
		"log.initial.task.delay.ms":                                   "500",
		"log.retention.check.interval.ms":                             "1000",
		"log.segment.delete.delay.ms":                                 "1000",
		"broker.heartbeat.interval.ms":                                "500",
		"broker.session.timeout.ms":                                   "6000", // a killed broker may come back only then
		"num.network.threads":                                         "2",
		"num.io.threads":                                              "4",
		"num.recovery.threads.per.data.dir":                           "2",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
	}
}
