//go:build clients

package clients

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// Logs that no broker has pass through a gateway unchanged: client → gateway → made-up logs → broker, beside client → made-up logs → broker.
// Many clients fail at many of these logs; where one reads a log directly, it reads it through the gateway.
func TestMadeLogs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cluster := kafkatest.Start(t, kafkatest.Options{Version: kafkaVersion(), Heap: "512m"})
	run := fmt.Sprintf("%x", time.Now().UnixMilli()%(1<<24))
	var logs [2][]*madeLog
	for i, name := range []string{"d", "g"} {
		logs[i] = madeLogs("kc-" + run + name + "-made-")
	}
	server, err := serveMadeLogs(ctx, cluster.BrokerAddr(1), append(logs[0], logs[1]...))
	must(t, err)
	t.Cleanup(server.close)
	gateway, tap := harness.TappedGateway(t, harness.GatewayOptions{Destination: server.addr()}, cluster, "127.0.0.1", fmt.Sprintf(":%d", server.port))
	host, _, _ := strings.Cut(gateway.Bootstrap(), ":")
	m := &matrix{scope: theScope, cluster: cluster, gateway: gateway, tap: tap, results: map[string][2]map[string]result{}, out: outDir(t, "made")}
	m.commands = installAll(t, m.picked())
	m.sides = [2]side{
		{name: "direct", bootstrap: server.addr(), allowed: server.addr()},
		{name: "gateway", bootstrap: gateway.Bootstrap(), allowed: fmt.Sprintf("%s:%d-%d", host, gateway.Port, gateway.Port+2)},
	}
	m.runner = &runner{run: run, records: theScope.records, logs: m.out}
	var files [2]string
	var cases [2][]gapCase
	for i, s := range m.sides {
		for _, l := range logs[i] {
			cases[i] = append(cases[i], l.gapCase)
		}
		files[i] = filepath.Join(m.out, s.name+".json")
		must(t, writeCases(files[i], cases[i]))
	}
	checks := checksOf(cases[0])
	for _, c := range m.picked() {
		if c.checks != nil {
			continue
		}
		cmd, err := m.commands[c.name]()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		m.results[c.name] = m.runner.both(t.Context(), m.sides, task{client: c, cmd: cmd, checks: checks, gaps: files, lenient: true,
			judge: func(side int, check string, got result) result {
				for _, made := range cases[side] {
					if made.Label == strings.TrimPrefix(check, "gaps:") {
						return server.judge(c.name, made, got)
					}
				}
				return got
			}})
		for check, direct := range m.results[c.name][0] {
			if through := m.results[c.name][1][check]; direct.Outcome == "pass" && through.Outcome != "pass" {
				t.Errorf("%s %s: directly %s (%s), through the gateway %s: %s", c.name, check, direct.Outcome, direct.Text, through.Outcome, through.Text)
			}
		}
	}
	table := m.madeHeading(checks) + m.table(checks)
	if !t.Failed() && !chosen() {
		writePart(t, "made", table)
	}
	t.Log("\n" + table)
}

// madeHeading says what was run, and counts.
func (m *matrix) madeHeading(checks []string) string {
	passed, failed, more := 0, 0, 0
	for _, results := range m.results {
		for check, through := range results[1] {
			switch direct := results[0][check]; {
			case direct.Outcome == "pass":
				passed++
			case through.Outcome == "pass":
				more++
			default:
				failed++
			}
		}
	}
	return fmt.Sprintf("%s, Kafka %s, %d logs, %d programs: %d times a log was read directly and through the gateway, %d times neither way, %d times through the\n"+
		"gateway alone. Clients of the gateway received %.1f MB, without an address of what is behind it.\n\n", time.Now().UTC().Format("2006-01-02"), m.cluster.Version(),
		len(checks), len(m.results), passed, failed, more, float64(m.tap.Bytes())/1e6)
}
