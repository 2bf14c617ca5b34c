//go:build gameday

package gameday

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// application writes and reads a topic all the time, at the gateway that it is pointed at.
type application interface {
	topic() string
	name() string
	// run points it at a gateway; what is not acknowledged is given up if it was running.
	run(bootstrap string)
	// pause ends its writes, after all of them are acknowledged.
	pause()
	ledger() []entry
}

// python is app.py: one process from the beginning to the end.
type python struct {
	t            *testing.T
	control, log string
	process      *kafkatest.Process
}

func startPython(t *testing.T, dir, bootstrap string) *python {
	t.Helper()
	interpreter, err := harness.Python(t.Context(), "confluent-kafka==2.16.1")
	if err != nil {
		t.Fatal(err)
	}
	p := &python{t: t, control: filepath.Join(dir, "control"), log: filepath.Join(dir, "librdkafka.ledger")}
	p.run(bootstrap)
	p.process = start(t, exec.Command(interpreter, "testdata/app.py", p.control, p.topic(), "payments-readers"), p.log)
	return p
}

func start(t *testing.T, command *exec.Cmd, log string) *kafkatest.Process {
	t.Helper()
	process, err := kafkatest.StartProcess(command, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(process.Kill)
	return process
}

func (p *python) topic() string        { return "payments" }
func (p *python) name() string         { return "librdkafka" }
func (p *python) run(bootstrap string) { p.command("run " + bootstrap) }
func (p *python) ledger() []entry      { return acknowledged(p.t, p.log) }

func (p *python) pause() {
	before := strings.Count(read(p.t, p.log), "P\n")
	p.command("pause")
	harness.Eventually(p.t, 2*time.Minute, "librdkafka pauses", func(context.Context) error {
		if strings.Count(read(p.t, p.log), "P\n") == before {
			return fmt.Errorf("it goes on: %s", p.process.LogTail(3))
		}
		return nil
	})
}

// command replaces the control file at once, so that it is never read half.
func (p *python) command(text string) {
	p.t.Helper()
	if err := os.WriteFile(p.control+".new", []byte(text), 0o666); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(p.control+".new", p.control); err != nil {
		p.t.Fatal(err)
	}
}

// java are Kafka's verifiable producer and consumer. They know one address, so they are started anew for another.
type java struct {
	t                  *testing.T
	dir, log           string
	runs               int
	producer, consumer *kafkatest.Process
}

func startJava(t *testing.T, dir, bootstrap string) *java {
	t.Helper()
	j := &java{t: t, dir: dir, log: filepath.Join(dir, "java.ledger")}
	settings := "retries=2147483647\nenable.idempotence=true\nlinger.ms=5\n"
	if err := os.WriteFile(filepath.Join(dir, "producer.properties"), []byte(settings), 0o666); err != nil {
		t.Fatal(err)
	}
	j.run(bootstrap)
	return j
}

func (j *java) topic() string   { return "orders" }
func (j *java) name() string    { return "Java" }
func (j *java) ledger() []entry { return acknowledged(j.t, j.log) }

func (j *java) run(bootstrap string) {
	j.t.Helper()
	j.end((*kafkatest.Process).Kill)
	j.runs++
	j.producer = j.tool("kafka-verifiable-producer", j.log, "--bootstrap-server", bootstrap, "--topic", j.topic(), "--throughput", "200",
		"--acks", "-1", "--value-prefix", fmt.Sprint(j.runs), "--producer.config", filepath.Join(j.dir, "producer.properties"))
	j.consumer = j.tool("kafka-verifiable-consumer", filepath.Join(j.dir, "java-consumer.log"), "--bootstrap-server", bootstrap, "--topic", j.topic(),
		"--group-id", "orders-readers", "--reset-policy", "earliest", "--session-timeout", "6000")
}

func (j *java) pause() {
	j.end(func(p *kafkatest.Process) { p.Stop(2 * time.Minute) }) // the producer's hook waits for what is in flight
}

func (j *java) end(how func(*kafkatest.Process)) {
	for _, process := range []*kafkatest.Process{j.producer, j.consumer} {
		if process != nil {
			how(process)
		}
	}
	j.producer, j.consumer = nil, nil
}

func (j *java) tool(name, log string, args ...string) *kafkatest.Process {
	j.t.Helper()
	command, err := kafkatest.ToolCommand(context.Background(), kafkatest.DefaultVersion, name, args...)
	if err != nil {
		j.t.Fatal(err)
	}
	return start(j.t, command, log)
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
