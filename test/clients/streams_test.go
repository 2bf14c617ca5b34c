//go:build clients

package clients

import (
	"context"
	"encoding/binary"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

const (
	streamsRecords = 6000
	streamsKeys    = 20
	// streamsVersion is of the cluster and of the library: the newest, as streams groups are a preview in 4.1.
	streamsVersion = "4.4.0"
)

// A Kafka Streams application with exactly-once semantics counts each record once, though an instance is killed in the middle.
func TestStreams(t *testing.T) {
	cluster, gateway, leaders := ecosystem(t, streamsVersion)
	jars, err := kafkatest.Fetch(t.Context(), "kafka-streams-"+cluster.Version(), kafkatest.Artifact{Group: "org.apache.kafka", Name: "kafka-streams", Version: cluster.Version()})
	must(t, err)
	args, err := compileJava(t.Context(), jars, "StreamsApp")
	must(t, err)
	protocols := []string{"classic"}
	if hasStreamsGroups(t, cluster) {
		protocols = append(protocols, "streams")
	}
	for _, protocol := range protocols {
		for _, s := range []side{{name: "direct", bootstrap: cluster.BrokerAddr(1)}, {name: "gateway", bootstrap: gateway.Bootstrap()}} {
			t.Run(protocol+"/"+s.name, func(t *testing.T) {
				a := &streamsApp{cluster: cluster, args: args, side: s, protocol: protocol, id: "app-" + protocol + "-" + s.name}
				a.run(t)
			})
		}
	}
	leaders.report(t)
}

// ecosystem is a cluster and a gateway with taps, where leaders move.
func ecosystem(t *testing.T, version string) (*kafkatest.Cluster, *harness.Gateway, *leaders) {
	t.Helper()
	cluster := kafkatest.Start(t, kafkatest.Options{Version: version, Brokers: 3, Heap: "512m", AdvertiseHost: "localhost"})
	gateway, _ := harness.TappedGateway(t, harness.GatewayOptions{Destination: cluster.Bootstrap()}, cluster, "localhost", "127.0.0.1")
	return cluster, gateway, moveLeaders(t, cluster.Bootstrap(), 3)
}

// hasStreamsGroups says whether the release has streams groups (KIP-1071) that are no preview.
func hasStreamsGroups(t *testing.T, cluster *kafkatest.Cluster) bool {
	t.Helper()
	versions, err := harness.Admin(t, cluster.Bootstrap()).ApiVersions(t.Context())
	must(t, err)
	for _, broker := range versions {
		for _, feature := range broker.Raw().FinalizedFeatures {
			if feature.Name == "streams.version" && feature.MaxVersionLevel > 0 {
				return true
			}
		}
	}
	return false
}

type streamsApp struct {
	cluster      *kafkatest.Cluster
	args         []string
	side         side
	protocol, id string
}

func (a *streamsApp) run(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	input, output := movingTopic(t, a.side.bootstrap, a.id+"-in", 4), movingTopic(t, a.side.bootstrap, a.id+"-out", 4)
	first, second := a.start(t, input, output), a.start(t, input, output)
	producer := harness.Client(t, a.side.bootstrap, kgo.DefaultProduceTopic(input))
	consumer := harness.Client(t, a.side.bootstrap, kgo.ConsumeTopics(output), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	counts := map[string]int64{}
	read := 0
	for i := range streamsRecords / streamsKeys {
		var round []*kgo.Record
		for key := range streamsKeys {
			round = append(round, kgo.KeyStringRecord(fmt.Sprint("key", key), "x"))
		}
		must(t, producer.ProduceSync(ctx, round...).FirstErr())
		if i == streamsRecords/streamsKeys/2 {
			first.Kill()
			first = a.start(t, input, output)
		}
	}
	for read < streamsRecords {
		fetches := consumer.PollFetches(ctx)
		must(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			read++
			count := int64(binary.BigEndian.Uint64(r.Value))
			if counts[string(r.Key)]++; counts[string(r.Key)] != count {
				t.Fatalf("%s: count %d of %s came as number %d", a.id, count, r.Key, counts[string(r.Key)])
			}
		})
	}
	for key, count := range counts {
		if count != streamsRecords/streamsKeys {
			t.Errorf("%s: %s was counted %d times, not %d", a.id, key, count, streamsRecords/streamsKeys)
		}
	}
	b := &toolbox{ctx: ctx, cluster: a.cluster, address: a.side.bootstrap, config: "/dev/null", dir: t.TempDir()}
	a.look(b)
	first.Kill()
	second.Kill()
	a.remove(b)
	must(t, b.err)
}

func (a *streamsApp) start(t *testing.T, input, output string) *kafkatest.Process {
	t.Helper()
	dir := t.TempDir()
	command := exec.Command(a.args[0], append(a.args[1:], a.side.bootstrap, a.id, input, output, dir, a.protocol)...)
	stdin, err := command.StdinPipe() // kept open: the program ends with its input
	must(t, err)
	process, err := kafkatest.StartProcess(command, filepath.Join(dir, "log"))
	must(t, err)
	t.Cleanup(func() {
		process.Kill()
		stdin.Close()
		if t.Failed() {
			t.Logf("an instance's log:\n%s", process.LogTail(30))
		}
	})
	return process
}

// look has tools look at the application's group.
func (a *streamsApp) look(b *toolbox) {
	if a.protocol != "streams" {
		b.run(a.id, "kafka-consumer-groups", "--describe", "--group", a.id)
		return
	}
	b.run(a.id, "kafka-streams-groups", "--list")
	b.run(a.id, "kafka-streams-groups", "--describe", "--group", a.id)
	b.run(a.id, "kafka-streams-groups", "--describe", "--group", a.id, "--members")
}

// remove resets and deletes the group, once the broker knows that its members are gone.
func (a *streamsApp) remove(b *toolbox) {
	if a.protocol != "streams" {
		b.eventually("successful", "kafka-consumer-groups", "--delete", "--group", a.id)
		return
	}
	b.eventually("(?i)empty", "kafka-streams-groups", "--describe", "--group", a.id, "--state")
	b.eventually(a.id+"-in", "kafka-streams-groups", "--reset-offsets", "--to-earliest", "--all-input-topics", "--group", a.id, "--execute")
	b.eventually("(?i)success", "kafka-streams-groups", "--delete", "--group", a.id)
}
