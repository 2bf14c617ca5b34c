package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// scope is what a run of the matrix is about.
type scope struct {
	brokers int
	records int // in most topics
	jobs    int // clients at a time
	pick    func(client) bool
	checks  func(client) []string
	gaps    bool // logs that the cleaner left with gaps too, and the table is written
}

// What passes directly passes through the gateway, at the same cluster and at the same time; and no client of the gateway receives an
// address of the cluster, while leaders move.
func TestMatrix(t *testing.T) {
	m := newMatrix(t, theScope)
	m.run(t)
	m.keep(t)
	table := m.heading() + m.table(nil) + m.secondTries()
	if theScope.gaps && !t.Failed() && len(m.ran()) == len(catalog) {
		writePart(t, "matrix", table)
	}
	t.Log("\n" + table)
}

// matrix is one run of programs on both sides.
type matrix struct {
	scope   scope
	cluster *kafkatest.Cluster
	gateway *harness.Gateway
	tap     *harness.Tap
	sides   [2]side
	runner  *runner
	out     string

	commands map[string]func() (command, error) // by client

	now  int             // how many ran in this run; set at the end
	good map[string]bool // the clients without a failure; set at the end

	mu      sync.Mutex
	results map[string][2]map[string]result // by client
}

func newMatrix(t *testing.T, s scope) *matrix {
	m := &matrix{scope: s, good: map[string]bool{}, results: map[string][2]map[string]result{}}
	m.commands = installAll(t, m.picked())
	m.cluster = kafkatest.Start(t, kafkatest.Options{Version: kafkaVersion(), Brokers: s.brokers, Heap: "512m", AdvertiseHost: "localhost"})
	enableShareGroups(t, m.cluster.Bootstrap())
	m.gateway, m.tap = harness.TappedGateway(t, harness.GatewayOptions{Destination: m.cluster.Bootstrap()}, m.cluster, "localhost", "127.0.0.1")
	var direct []string
	for id := range int32(s.brokers) {
		direct = append(direct, strings.Replace(m.cluster.BrokerAddr(id+1), "127.0.0.1", "localhost", 1))
	}
	host, _, _ := strings.Cut(m.gateway.Bootstrap(), ":")
	m.sides = [2]side{
		{name: "direct", bootstrap: direct[0], allowed: strings.Join(direct, ",")},
		{name: "gateway", bootstrap: m.gateway.Bootstrap(), allowed: fmt.Sprintf("%s:%d-%d", host, m.gateway.Port, m.gateway.Port+1+s.brokers)},
	}
	m.out = outDir(t, "matrix")
	m.runner = &runner{run: fmt.Sprintf("%x", time.Now().UnixMilli()%(1<<24)), records: s.records, logs: m.out, leaders: moveLeaders(t, m.cluster.Bootstrap(), s.brokers)}
	return m
}

// outDir is a folder of out/clients in the root of the repository, empty.
func outDir(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("../../out/clients", name))
	must(t, err)
	must(t, os.RemoveAll(dir))
	must(t, os.MkdirAll(dir, 0o777))
	return dir
}

// enableShareGroups raises share.version where the release has it and does not enable it by itself.
func enableShareGroups(t *testing.T, bootstrap string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	admin := harness.Admin(t, bootstrap)
	features, err := admin.ApiVersions(ctx)
	must(t, err)
	for _, broker := range features {
		if !strings.Contains(fmt.Sprint(broker.Raw().SupportedFeatures), "share.version") {
			return
		}
		for _, feature := range broker.Raw().FinalizedFeatures {
			if feature.Name == "share.version" && feature.MaxVersionLevel > 0 {
				return
			}
		}
	}
	updated, err := admin.UpdateFeatures(ctx, false, kadm.FeatureUpdate{Feature: "share.version", MaxVersionLevel: 1, UpgradeType: 1})
	must(t, err)
	for _, feature := range updated {
		if feature.Err != nil {
			t.Fatalf("share.version: %v", feature.Err)
		}
	}
}

func (m *matrix) run(t *testing.T) {
	ctx := t.Context()
	picked := m.picked()
	cases := m.makeGaps(t)
	todo := make(chan client, len(picked))
	for _, c := range picked {
		todo <- c
	}
	close(todo)
	var wg sync.WaitGroup
	for range m.scope.jobs {
		wg.Go(func() {
			for c := range todo {
				m.client(ctx, t, c, cases)
			}
		})
	}
	wg.Wait()
	for _, c := range picked {
		m.good[c.name] = m.verdict(t, c)
	}
	t.Logf("clients of the gateway received %d bytes; moves of leaders: %d", m.tap.Bytes(), m.runner.leaders.total())
}

// picked are the clients of $MIRRORGATE_CLIENTS (names, comma-separated), or those of the scope.
func (m *matrix) picked() []client {
	names := strings.Split(os.Getenv("MIRRORGATE_CLIENTS"), ",")
	return slices.DeleteFunc(slices.Clone(catalog), func(c client) bool {
		return chosen() && !slices.Contains(names, c.name) || !chosen() && !m.scope.pick(c)
	})
}

// chosen says that only some clients are asked for.
func chosen() bool { return os.Getenv("MIRRORGATE_CLIENTS") != "" }

// makeGaps begins to make the logs with gaps, as the cleaner takes its time, and returns how to wait for them.
func (m *matrix) makeGaps(t *testing.T) (wait func() ([]gapCase, error)) {
	if !m.scope.gaps {
		return func() ([]gapCase, error) { return nil, nil }
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	made := sync.OnceValues(func() ([]gapCase, error) {
		return gapFixture{bootstrap: m.cluster.Bootstrap(), prefix: "kc-" + m.runner.run + "-"}.make(ctx)
	})
	go made() // whoever waits gets the error
	return made
}

// client runs all checks of one client, on both sides.
func (m *matrix) client(ctx context.Context, t *testing.T, c client, gaps func() ([]gapCase, error)) {
	began := time.Now()
	cmd, err := m.commands[c.name]()
	if err != nil {
		t.Errorf("%s: %v", c.name, err)
		return
	}
	results := m.runner.both(ctx, m.sides, task{client: c, cmd: cmd, checks: m.scope.checks(c)})
	if c.checks == nil && m.scope.gaps {
		cases, err := gaps()
		if err != nil {
			t.Errorf("making the logs with gaps: %v", err)
			return
		}
		file := filepath.Join(m.out, "gaps.json")
		if err := writeCases(file, cases); err != nil {
			t.Error(err)
			return
		}
		more := m.runner.both(ctx, m.sides, task{client: c, cmd: cmd, checks: checksOf(cases), gaps: [2]string{file, file}})
		for i := range results {
			for check, got := range more[i] {
				results[i][check] = got
			}
		}
	}
	m.mu.Lock()
	m.results[c.name] = results
	m.mu.Unlock()
	t.Logf("%s: %v", c.name, time.Since(began).Round(time.Second))
	m.cleanUp(ctx, t, c)
}

// cleanUp deletes what a client made: the topics of all clients would be thousands of partitions.
func (m *matrix) cleanUp(ctx context.Context, t *testing.T, c client) {
	admin := harness.Admin(t, m.cluster.Bootstrap())
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		t.Errorf("cleaning up behind %s: %v", c.name, err)
		return
	}
	var names []string
	for name := range topics {
		for _, middle := range []string{"d-", "g-", "dr-", "gr-"} {
			if rest, ours := strings.CutPrefix(name, "kc-"+m.runner.run+middle+c.name+"-"); ours && isCheck(rest) {
				names = append(names, name)
			}
		}
	}
	if len(names) > 0 {
		_, _ = admin.DeleteTopics(ctx, names...) // what stays is only in the way
	}
}

// isCheck tells the topic of a check of "franz-go" from one of "franz-go-2.1".
func isCheck(name string) bool {
	for _, check := range commonChecks {
		if name == check {
			return true
		}
	}
	return false
}

func writeCases(file string, cases []gapCase) error {
	text, err := json.Marshal(cases)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o666)
}
