//go:build clients

package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// Two workers of Kafka Connect in distributed mode, with exactly-once sources, carry the lines of a file to a topic and from there to another
// file; one of them is killed in the middle.
func TestConnect(t *testing.T) {
	cluster, gateway, leaders := ecosystem(t, kafkaVersion())
	for _, s := range []side{{name: "direct", bootstrap: cluster.BrokerAddr(1)}, {name: "gateway", bootstrap: gateway.Bootstrap()}} {
		t.Run(s.name, func(t *testing.T) {
			c := &connect{cluster: cluster, side: s, dir: t.TempDir()}
			c.run(t)
		})
	}
	leaders.report(t)
}

type connect struct {
	cluster *kafkatest.Cluster
	side    side
	dir     string
	ports   []int
}

// workerHost is where workers listen: not an address of the cluster, as workers tell each other theirs through Kafka.
const workerHost = "127.0.0.4"

func (c *connect) run(t *testing.T) {
	ports, err := kafkatest.ReserveRange(2)
	must(t, err)
	t.Cleanup(ports.Release)
	c.ports = ports.Numbers
	workers := []*kafkatest.Process{c.start(t, 0), c.start(t, 1)}
	harness.Eventually(t, 4*time.Minute, "a worker answers", func(ctx context.Context) error { return c.call(ctx, 0, http.MethodGet, "/connectors", nil, nil) })
	in, out, topic := filepath.Join(c.dir, "in.txt"), filepath.Join(c.dir, "out.txt"), movingTopic(t, c.side.bootstrap, "connect-"+c.side.name, 1)
	c.lines(t, in, 0, 1000)
	c.connector(t, "source", map[string]string{"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "tasks.max": "1", "file": in, "topic": topic,
		"exactly.once.support": "required"})
	c.connector(t, "sink", map[string]string{"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector", "tasks.max": "1", "file": out, "topics": topic,
		"consumer.override.isolation.level": "read_committed"})
	c.arrived(t, out, 1000)
	workers[1].Kill()
	c.lines(t, in, 1000, 2000)
	c.arrived(t, out, 2000)
	must(t, c.call(t.Context(), 0, http.MethodDelete, "/connectors/source", nil, nil))
	must(t, c.call(t.Context(), 0, http.MethodDelete, "/connectors/sink", nil, nil))
	workers[0].Kill()
}

func (c *connect) start(t *testing.T, worker int) *kafkatest.Process {
	t.Helper()
	jars, err := kafkatest.Jars(t.Context(), c.cluster.Version())
	must(t, err)
	file, err := kafkatest.Fetch(t.Context(), "connect-file-"+c.cluster.Version(), kafkatest.Artifact{Group: "org.apache.kafka", Name: "connect-file", Version: c.cluster.Version()})
	must(t, err)
	group := "connect-" + c.side.name
	config := filepath.Join(c.dir, fmt.Sprintf("worker-%d.properties", worker))
	must(t, kafkatest.WriteProperties(config, map[string]string{
		"bootstrap.servers": c.side.bootstrap, "group.id": group, "exactly.once.source.support": "enabled",
		"config.storage.topic": group + "-configs", "offset.storage.topic": group + "-offsets", "status.storage.topic": group + "-status",
		"config.storage.replication.factor": "2", "offset.storage.replication.factor": "2", "status.storage.replication.factor": "2",
		"offset.storage.partitions": "5", "key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
		"listeners": fmt.Sprintf("http://%s:%d", workerHost, c.ports[worker]), "rest.advertised.host.name": workerHost,
		"session.timeout.ms": "10000", "scheduled.rebalance.max.delay.ms": "2000", "offset.flush.interval.ms": "1000", "connector.client.config.override.policy": "All",
	}))
	java, err := kafkatest.Java()
	must(t, err)
	connectors, err := filepath.Glob(filepath.Join(file, "connect-file-*.jar")) // what else is there is in jars too
	must(t, err)
	path := strings.Join(append([]string{filepath.Join(jars, "*")}, connectors...), string(os.PathListSeparator))
	command := exec.Command(java, "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", path,
		"org.apache.kafka.connect.cli.ConnectDistributed", config)
	process, err := kafkatest.StartProcess(command, filepath.Join(c.dir, fmt.Sprintf("worker-%d.log", worker)))
	must(t, err)
	t.Cleanup(func() {
		process.Kill()
		if t.Failed() {
			t.Logf("worker %d:\n%s", worker, process.LogTail(40))
		}
	})
	return process
}

// call asks a worker's REST API.
func (c *connect) call(ctx context.Context, worker int, method, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://%s:%d%s", workerHost, c.ports[worker], path), bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, content)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(content, answer)
}

func (c *connect) connector(t *testing.T, name string, config map[string]string) {
	t.Helper()
	harness.Eventually(t, 2*time.Minute, "connector "+name+" is made", func(ctx context.Context) error {
		return c.call(ctx, 0, http.MethodPut, "/connectors/"+name+"/config", config, nil)
	})
}

func (c *connect) lines(t *testing.T, file string, from, to int) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	must(t, err)
	defer f.Close()
	for i := from; i < to; i++ {
		_, err := fmt.Fprintf(f, "line %d\n", i)
		must(t, err)
	}
}

// arrived waits for n lines. The source is exactly-once; the sink may write lines again after a worker's death, so each must be there at least once.
func (c *connect) arrived(t *testing.T, file string, n int) {
	t.Helper()
	harness.Eventually(t, 4*time.Minute, fmt.Sprintf("%d lines arrive", n), func(ctx context.Context) error {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for line := range strings.Lines(string(content)) {
			seen[strings.TrimSpace(line)] = true
		}
		for i := range n {
			if !seen[fmt.Sprintf("line %d", i)] {
				return fmt.Errorf("%d lines, line %d is not there", len(seen), i)
			}
		}
		return nil
	})
}
