//go:build gameday

package gameday

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const (
	partitions = 3
	atWork     = 8 * time.Second // how long the applications work in each chapter
)

var topics = []string{"orders", "payments"}

// day is the game day: an old cluster and a new one, a gateway in front of each, and two applications.
type day struct {
	t                *testing.T
	began            time.Time
	old, new         *kafkatest.Cluster
	oldGate, newGate *harness.Gateway
	book             *runbook
	apps             []application
	// before is what each application had been acknowledged when the old cluster died, and last where its mirror ended.
	before map[string]int
	last   map[string]map[int32]int64
	result result
}

// result is what is written to out/gameday.json.
type result struct {
	FailoverSeconds   float64
	WritePauseSeconds float64
	LostRecords       int
	Topics            []audit
}

func TestGameDay(t *testing.T) {
	d := begin(t)
	d.mirror()
	d.kill()
	d.failover()
	d.failback()
	d.cutOver()
	d.audit()
	d.book.allRan()
}

func (d *day) tell(format string, args ...any) {
	fmt.Printf("%6.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *day) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatal(err)
	}
}

func begin(t *testing.T) *day {
	d := &day{t: t, began: time.Now(), before: map[string]int{}, last: map[string]map[int32]int64{}}
	opts := kafkatest.Options{Heap: "384m"}
	d.old, d.new = kafkatest.Start(t, opts), kafkatest.Start(t, opts)
	d.oldGate = harness.StartGateway(t, harness.GatewayOptions{Destination: d.old.Bootstrap()})
	d.newGate = harness.StartGateway(t, harness.GatewayOptions{Destination: d.new.Bootstrap()})
	d.book = openRunbook(t, "OLD="+d.oldGate.Bootstrap(), "NEW="+d.newGate.Bootstrap(), "SOURCE="+d.oldGate.Bootstrap(), "TOPICS="+strings.Join(topics, ","))
	for _, topic := range topics {
		harness.CreateTopics(t, d.oldGate.Bootstrap(), harness.Topic{Name: topic, Partitions: partitions})
	}
	d.apps = []application{startJava(t, t.TempDir(), d.oldGate.Bootstrap()), startPython(t, t.TempDir(), d.oldGate.Bootstrap())}
	d.work("the applications work at the old cluster, through its gateway")
	return d
}

// work lets the applications work for a while, and sees that they do.
func (d *day) work(what string) {
	d.t.Helper()
	for _, app := range d.apps {
		before := len(app.ledger())
		harness.Eventually(d.t, 2*time.Minute, app.name()+" works", func(context.Context) error {
			if now := len(app.ledger()); now < before+100 {
				return fmt.Errorf("%d records more are acknowledged", now-before)
			}
			return nil
		})
	}
	time.Sleep(atWork)
	var counts []string
	for _, app := range d.apps {
		counts = append(counts, fmt.Sprintf("%s %d", app.name(), len(app.ledger())))
	}
	d.tell("%s (acknowledged by now: %s)", what, strings.Join(counts, ", "))
}

func (d *day) mirror() {
	d.book.run("mirror")
	d.awaitLag(d.newGate, "m", 1000)
	d.book.run("watch")
	d.book.run("pause")
	d.work("mirror m copies to the new cluster, and was paused and resumed once")
}

// kill lets the mirror fall behind for a moment, so that there is something to lose, and kills the old cluster.
func (d *day) kill() {
	d.newGate.Pause(d.t)
	d.work("the new cluster's gateway hangs (SIGSTOP), and the mirror falls behind")
	d.old.Kill(1)
	d.newGate.Resume(d.t)
	d.tell("the old cluster is killed")
}

func (d *day) failover() {
	out, took := d.book.run("failover")
	d.result.FailoverSeconds = took.Seconds()
	d.tell("failover in %.1f s:\n%s", took.Seconds(), indent(out))
	for _, topic := range topics {
		offsets, err := harness.LastMirrored(d.t.Context(), d.newGate.Client(d.t), "m", topic)
		d.must(err)
		d.last[topic] = offsets
	}
	for _, app := range d.apps {
		app.run(d.newGate.Bootstrap())
		d.before[app.topic()] = len(app.ledger()) // nothing can be acknowledged between
	}
	d.work("the applications go on at the new cluster")
}

func (d *day) failback() {
	d.must(d.old.Restart(d.t.Context(), 1))
	d.tell("the old cluster is back")
	d.oldGate.WaitReady(d.t)
	out, took := d.book.run("failback")
	d.tell("failback in %.1f s:\n%s", took.Seconds(), indent(out))
	d.awaitLag(d.oldGate, "back", 1000)
	d.work("mirror back copies to the old cluster")
}

func (d *day) cutOver() {
	paused := time.Now()
	for _, app := range d.apps {
		app.pause()
	}
	d.awaitLag(d.oldGate, "back", 0)
	d.book.run("verify")
	out, _ := d.book.run("cutover")
	for _, app := range d.apps {
		app.run(d.oldGate.Bootstrap())
	}
	d.result.WritePauseSeconds = time.Since(paused).Seconds()
	d.tell("cut-over home, without writes for %.1f s (stopping and starting the applications included):\n%s", d.result.WritePauseSeconds, indent(out))
	d.work("the applications work at the old cluster again")
	for _, app := range d.apps {
		app.pause()
	}
	d.book.run("delete")
}

// awaitLag waits until every partition is MIRRORING with so little lag.
func (d *day) awaitLag(gate *harness.Gateway, mirror string, most int64) {
	d.t.Helper()
	client := gate.Client(d.t, kgo.MetadataMinAge(time.Second))
	harness.Eventually(d.t, 2*time.Minute, "lag", func(ctx context.Context) error {
		described, err := harness.Describe(ctx, client, mirror)
		for _, topic := range topics {
			if err == nil && len(described[topic]) != partitions {
				err = fmt.Errorf("%d partitions of %s", len(described[topic]), topic)
			}
			for n, p := range described[topic] {
				if p.State != "MIRRORING" || p.Lag < 0 || p.Lag > most {
					err = errors.Join(err, fmt.Errorf("%s/%d is %s with lag %d %s", topic, n, p.State, p.Lag, p.Reason))
				}
			}
		}
		return err
	})
}

// audit compares the ledgers with the final log, and prints and writes what came out.
func (d *day) audit() {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\ntopic\tapplication\tacknowledged\tin the final log once, at its offset\tnot given by the dead source\tproblems")
	for _, app := range d.apps {
		final := contents(d.t, d.oldGate.Bootstrap(), app.topic())
		diverged := contents(d.t, d.oldGate.Bootstrap(), app.topic()+".diverged")
		a := auditTopic(app.topic(), app.name(), app.ledger(), final, diverged, d.before[app.topic()], d.last[app.topic()])
		d.result.Topics = append(d.result.Topics, a)
		d.result.LostRecords += len(a.Lost)
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\n", a.Topic, a.Application, a.Acknowledged, a.Once, len(a.Lost), len(a.Problems))
		for _, problem := range a.Problems[:min(10, len(a.Problems))] {
			d.t.Errorf("%s: %s", a.Topic, problem)
		}
	}
	d.must(table.Flush())
	content, err := json.MarshalIndent(d.result, "", "  ")
	d.must(err)
	file := filepath.Join("..", "..", "out", "gameday.json")
	d.must(os.MkdirAll(filepath.Dir(file), 0o777))
	d.must(os.WriteFile(file, content, 0o666))
	fmt.Printf("\nfailover %.1f s, write pause of the cut-over %.1f s, %d records that the dead source had not given, each saved in TOPIC.diverged: out/gameday.json lists them\n",
		d.result.FailoverSeconds, d.result.WritePauseSeconds, d.result.LostRecords)
	if d.result.LostRecords == 0 {
		d.t.Error("the dead source had given everything: the mirror did not fall behind, and nothing was shown")
	}
}

func indent(text string) string { return "         " + strings.ReplaceAll(text, "\n", "\n         ") }
