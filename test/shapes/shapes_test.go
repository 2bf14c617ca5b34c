package shapes

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
	"github.com/mirrorgate/mirrorgate/verify"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Most of what rows do is to wait.
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	code := harness.Main(m)
	if classes != "" {
		_ = os.RemoveAll(classes)
	}
	os.Exit(code)
}

var only = flag.String("shapes", "", "regular expression of the `names` of rows to run, as release/row")

// patience is how long a mirror may take to become what is expected of it.
const patience = 8 * time.Minute

// suite has what all groups share.
type suite struct {
	destination *kafkatest.Cluster
	direct      *kgo.Client // of the destination
	gateway     *harness.Gateway
	rpc         *kgo.Client
}

// group is the rows of one source release and one kind of destination.
type group struct {
	*suite
	source *source
	mirror string
	rows   []*row
}

// row is a shape at a source.
type row struct {
	*shape
	log    *log
	broken atomic.Bool // a step failed: the later ones are left out
	done   bool        // its last outcome was seen
}

// Every row of the table.
func TestShapes(t *testing.T) {
	to := kafkatest.Start(t, kafkatest.Options{Heap: "640m"})
	s := &suite{destination: to, direct: harness.Client(t, to.Bootstrap())}
	s.gateway = harness.StartGateway(t, harness.GatewayOptions{Destination: to.Bootstrap()})
	s.rpc = s.gateway.Client(t)
	for _, version := range releases {
		if len(rowsOf(version, false))+len(rowsOf(version, true)) == 0 {
			continue
		}
		t.Run(version, func(t *testing.T) {
			began := time.Now()
			source := newSource(t, version)
			for _, appendTime := range []bool{false, true} {
				g := &group{suite: s, source: source, mirror: "shapes-" + version, rows: rowsOf(version, appendTime)}
				if len(g.rows) == 0 {
					continue
				}
				if appendTime {
					g.mirror += "-append-time"
					s.appendTimeDefault(t)
				}
				g.run(t)
			}
			t.Logf("%s: %v", version, time.Since(began).Round(time.Second))
		})
	}
}

func rowsOf(version string, appendTime bool) (rows []*row) {
	wanted := regexp.MustCompile(*only)
	for _, s := range table() {
		if s.appendTime == appendTime && slices.Contains(s.on, version) && wanted.MatchString(version+"/"+s.name) {
			rows = append(rows, &row{shape: &s})
		}
	}
	return rows
}

// The table itself: names, and that every row can fail.
func TestTable(t *testing.T) {
	names := map[string]bool{}
	for _, s := range table() {
		if names[s.name] || len(s.on) == 0 || s.make == nil || s.proof == nil {
			t.Errorf("row %s is there twice or incomplete", s.name)
		}
		names[s.name] = true
		if s.pendingIssue != "" && (s.today.same() || !regexp.MustCompile(`^\d+: .`).MatchString(s.pendingIssue)) {
			t.Errorf("row %s is pending, but does not say on what and what happens today", s.name)
		}
	}
	if len(names) < 25 {
		t.Errorf("%d rows", len(names))
	}
}

// appendTimeDefault makes LogAppendTime the default of the destination, for the rest of the test.
func (s *suite) appendTimeDefault(t *testing.T) {
	t.Helper()
	set := func(ctx context.Context, config kadm.AlterConfig) error {
		altered, err := kadm.NewClient(s.direct).AlterBrokerConfigs(ctx, []kadm.AlterConfig{config})
		if err == nil {
			err = altered[0].Err
		}
		return err
	}
	value := "LogAppendTime"
	if err := set(t.Context(), kadm.AlterConfig{Name: "log.message.timestamp.type", Value: &value}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set(context.Background(), kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "log.message.timestamp.type"}); err != nil {
			t.Error(err)
		}
	})
}

func (g *group) run(t *testing.T) {
	for _, r := range g.rows {
		r.log = &log{source: g.source, topic: g.mirror + "." + r.name}
		t.Cleanup(r.log.close)
	}
	g.each(t, "made", g.rows, func(t *testing.T, r *row) {
		r.log.create(t, r.configs)
		r.make(t, r.log)
	})
	g.whileSourceStopped(t, func(r *row) func(*testing.T, *log, string) { return r.disk })
	g.each(t, "proved", g.rows, func(t *testing.T, r *row) { r.prove(t) })

	harness.CreateMirror(t, g.rpc, g.mirror, g.source.Bootstrap())
	var topics []string
	for _, r := range g.rows {
		if !r.broken.Load() {
			topics = append(topics, r.log.topic)
		}
	}
	harness.AddTopics(t, g.rpc, g.mirror, topics...)
	g.await(t, added)
	g.change(t)
	g.pause(t)
	g.restartGateway(t)
	g.crash(t)
	g.read(t)
}

// each runs a step for rows at the same time, each as a subtest. Rows that broke before are left out.
func (g *group) each(t *testing.T, name string, rows []*row, do func(*testing.T, *row)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		for _, r := range rows {
			if r.broken.Load() {
				continue
			}
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				defer func() {
					if t.Failed() {
						r.broken.Store(true)
					}
				}()
				do(t, r)
			})
		}
	})
}

// alive are the rows with something left to happen that has, for example, a hook.
func (g *group) alive(has func(*row) bool) (rows []*row) {
	for _, r := range g.rows {
		if !r.done && has(r) {
			rows = append(rows, r)
		}
	}
	return rows
}

func (r *row) prove(t *testing.T) { r.log.awaitShape(t, r.proof) }

// awaitShape waits until the raw log has a shape: the cleaner takes its time.
func (l *log) awaitShape(t *testing.T, proof func(facts) bool) {
	t.Helper()
	harness.Eventually(t, time.Minute, "the log has the shape", func(ctx context.Context) error {
		f, err := l.inspect(ctx)
		if err == nil && !proof(f) {
			err = fmt.Errorf("it has not: %v", f)
		}
		return err
	})
}

// whileSourceStopped runs a hook of rows that changes files.
func (g *group) whileSourceStopped(t *testing.T, hook func(*row) func(*testing.T, *log, string)) {
	t.Helper()
	rows := g.alive(func(r *row) bool { return hook(r) != nil && !r.broken.Load() })
	if len(rows) == 0 {
		return
	}
	if err := g.source.Stop(1); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		hook(r)(t, r.log, r.log.dir())
	}
	if err := g.source.Restart(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for _, r := range g.rows {
		if !r.broken.Load() {
			r.log.awaitLeader(t)
		}
	}
}

func (g *group) change(t *testing.T) {
	rows := g.alive(func(r *row) bool { return r.shape.change != nil })
	if len(rows) == 0 {
		return
	}
	g.each(t, "change", rows, func(t *testing.T, r *row) { r.shape.change(t, r.log) })
	g.await(t, changed)
}

func (g *group) pause(t *testing.T) {
	rows := g.alive(func(r *row) bool { return r.whilePaused != nil && !r.broken.Load() })
	if len(rows) == 0 {
		return
	}
	var topics []string
	for _, r := range rows {
		topics = append(topics, r.log.topic)
	}
	harness.PauseTopics(t, g.rpc, g.mirror, topics...)
	g.each(t, "paused", rows, func(t *testing.T, r *row) { r.whilePaused(t, r.log) })
	harness.ResumeTopics(t, g.rpc, g.mirror, topics...)
	g.await(t, resumed)
}

func (g *group) restartGateway(t *testing.T) {
	rows := g.alive(func(r *row) bool { return r.gatewayDown != nil })
	before := map[string]int64{}
	var filling []*row
	for _, r := range g.rows {
		if r.shape.want.preparing && !r.broken.Load() {
			filling = append(filling, r)
			at, err := boundsOf(t.Context(), g.direct, r.log.topic)
			if err != nil {
				t.Fatal(err)
			}
			before[r.log.topic] = at.high
		}
	}
	if len(rows)+len(filling) == 0 {
		return
	}
	g.gateway.Kill()
	g.each(t, "gateway-down", rows, func(t *testing.T, r *row) { r.gatewayDown(t, r.log) })
	g.gateway.Start(t)
	g.await(t, restarted)
	g.each(t, "fills-on", filling, func(t *testing.T, r *row) { g.fillsOn(t, r, before[r.log.topic]) })
}

// fillsOn: a log that is being filled goes on from where it was before the restart. The rest would take minutes.
func (g *group) fillsOn(t *testing.T, r *row, before int64) {
	harness.Eventually(t, patience, "it is filled on", func(ctx context.Context) error {
		at, err := boundsOf(ctx, g.direct, r.log.topic)
		switch {
		case err != nil:
			return err
		case at.high < before:
			t.Fatalf("it is filled up to %d, before the restart it was %d", at.high, before)
		case at.high == before:
			return fmt.Errorf("it stays at %d", before)
		}
		return g.check(ctx, t, r, r.shape.want)
	})
	at, err := boundsOf(t.Context(), g.direct, r.log.topic)
	t.Logf("filled up to %d before the gateway was killed, now up to %d (%v)", before, at.high, err)
	harness.RemoveTopics(t, g.rpc, g.mirror, r.log.topic)
}

func (g *group) crash(t *testing.T) {
	g.whileSourceStopped(t, func(r *row) func(*testing.T, *log, string) { return r.shape.crash })
	rows := g.alive(func(r *row) bool { return r.shape.crash != nil })
	if len(rows) == 0 {
		return
	}
	g.each(t, "recovered", rows, func(t *testing.T, r *row) {
		if r.recovered != nil {
			r.recovered(t, r.log)
		}
	})
	g.await(t, crashed)
}

// await waits until every row is what is expected after a step.
func (g *group) await(t *testing.T, at step) {
	t.Helper()
	g.each(t, at.String(), g.alive(func(*row) bool { return true }), func(t *testing.T, r *row) {
		want := r.expected(at)
		harness.Eventually(t, patience, fmt.Sprintf("%+v", want), func(ctx context.Context) error { return g.check(ctx, t, r, want) })
		r.done = !want.readable()
		if r.pendingIssue != "" && r.done {
			t.Logf("PENDING %s", r.pendingIssue)
		}
	})
}

// check compares what is with what is wanted. It ends the test where waiting is of no use.
func (g *group) check(ctx context.Context, t *testing.T, r *row, want outcome) error {
	described, err := harness.Describe(ctx, g.rpc, g.mirror)
	if err != nil {
		return err
	}
	p, ok := described[r.log.topic][0]
	if !ok {
		return fmt.Errorf("%s is not in the mirror", r.log.topic)
	}
	if want.failed != "" {
		if p.State == "FAILED" && regexp.MustCompile(want.failed).MatchString(p.Reason) {
			return nil
		}
		return fmt.Errorf("it is %s %q, want FAILED", p.State, p.Reason)
	}
	if want.preparing {
		if p.State == "PREPARING" && regexp.MustCompile(`\d+ ?%`).MatchString(p.Reason) {
			return nil
		}
		return fmt.Errorf("it is %s %q, want PREPARING with progress", p.State, p.Reason)
	}
	if p.State == "FAILED" {
		t.Fatalf("FAILED: %s", p.Reason)
	}
	from, err := r.log.bounds(ctx)
	if err != nil {
		return err
	}
	to, err := boundsOf(ctx, g.direct, r.log.topic)
	if err != nil {
		return err
	}
	if want.says != "" && !regexp.MustCompile(want.says).MatchString(p.Reason) {
		return fmt.Errorf("it says %q, want %q", p.Reason, want.says)
	}
	return sameBounds(p, from, to, want)
}

func sameBounds(p harness.Partition, from, to bounds, want outcome) error {
	switch {
	case p.State != "MIRRORING":
		return fmt.Errorf("it is %s %s", p.State, p.Reason)
	case to.high != from.lso:
		return fmt.Errorf("the mirror ends at %d, the source at %d (high watermark %d): %s", to.high, from.lso, from.high, p.Reason)
	case (to.start != from.start) != want.start:
		return fmt.Errorf("the mirror starts at %d, the source at %d", to.start, from.start)
	case p.SourceLastStableOffset != from.lso || p.SourceOffset != from.high || p.DestinationOffset != to.high:
		return fmt.Errorf("described as %+v, source %+v", p, from)
	}
	return nil
}

// read compares the mirrors with the sources, record for record.
func (g *group) read(t *testing.T) {
	t.Helper()
	rows := g.alive(func(r *row) bool { return !r.broken.Load() })
	if len(rows) == 0 {
		return
	}
	want, logs := reading{}, map[string]bounds{}
	for _, r := range rows {
		topic, bounds, err := r.log.reference(t.Context())
		if err != nil {
			t.Fatalf("reading %s at the source: %v", r.log.topic, err)
		}
		want[r.log.topic], logs[r.log.topic] = topic, bounds
	}
	t.Run("verify", func(t *testing.T) { g.verify(t, rows) })
	for _, reader := range readers {
		for _, isolation := range []string{"read_committed", "read_uncommitted"} {
			t.Run(reader.name+"-"+isolation, func(t *testing.T) {
				got, err := reader.read(t.Context(), g.gateway.Bootstrap(), isolation, logs)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range rows {
					t.Run(r.name, func(t *testing.T) {
						err := reader.differs(want[r.log.topic], got[r.log.topic])
						switch {
						case r.pending().unequal && err == nil:
							t.Errorf("the readers see the same: the row is no longer pending on %s", r.pendingIssue)
						case r.pending().unequal:
							t.Logf("PENDING %s: %v", r.pendingIssue, err)
						case err != nil:
							t.Error(err)
						}
					})
				}
			})
		}
	}
}

// verify compares directly with the destination. (That the readers of a row see something else is not always seen here.)
func (g *group) verify(t *testing.T, rows []*row) {
	var topics []string
	pending, found := map[string]bool{}, map[string]bool{}
	for _, r := range rows {
		topics = append(topics, r.log.topic)
		pending[r.log.topic] = r.pending().verify || r.pending().unequal
	}
	report, err := verify.Run(t.Context(), verify.Options{
		Source:      broker.Config{Bootstrap: []string{g.source.Bootstrap()}},
		Destination: broker.Config{Bootstrap: []string{g.destination.Bootstrap()}},
		Topics:      topics, Differences: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range report.First {
		if found[d.Topic] = true; !pending[d.Topic] {
			t.Errorf("%s at %d: %s: source %s, destination %s", d.Topic, d.Offset, d.Field, d.Source, d.Destination)
		}
	}
	for _, r := range rows {
		if r.pending().verify && !found[r.log.topic] {
			t.Errorf("%s is equal: the row is no longer pending on %s", r.log.topic, r.pendingIssue)
		}
	}
	if len(report.Partitions) != len(topics) {
		t.Errorf("%d of %d partitions compared", len(report.Partitions), len(topics))
	}
	t.Logf("%d records compared", report.Records)
}
