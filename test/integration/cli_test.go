package integration

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// The commands of the README, from the creation of a mirror to the switch-over.
func TestCommandLine(t *testing.T) {
	topics := []harness.Topic{{Name: "cli-orders", Partitions: 3}, {Name: "cli-payments", Partitions: 1}}
	random := harness.Random(t)
	from, to := source(t), destination(t)
	harness.CreateTopics(t, from, topics...)
	harness.MustFill(t, from, random, 600, topics...)
	gw := gateway(t, to)
	mirrors := func(command string, args ...string) string {
		t.Helper()
		args = append([]string{"mirrors", command, "--bootstrap-server", gw.Bootstrap()}, args...)
		output, err := harness.Run(t, args...)
		if err != nil {
			t.Fatalf("mirrorgate %s: %v\n%s", strings.Join(args, " "), err, output)
		}
		return output
	}
	mirrors("create", "--mirror", "cli", "--mirror-config", "bootstrap.servers="+from, "--mirror-config", "mirror.metadata.refresh.interval.ms=1000")
	mirrors("add-topics", "--mirror", "cli", "--topics", "cli-orders,cli-payments", "--wait")
	if list := mirrors("list"); !strings.Contains(list, "cli") || !strings.Contains(list, from) {
		t.Errorf("list does not show the mirror:\n%s", list)
	}
	var described struct {
		Mirrors []struct {
			Name   string
			Topics []struct {
				Name       string
				Partitions []struct {
					State string
					Lag   int64
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(standardOutput(t, "mirrors", "describe", "--bootstrap-server", gw.Bootstrap(), "--mirror", "cli", "--json")), &described); err != nil {
		t.Fatal(err)
	}
	partitions := 0
	for _, topic := range described.Mirrors[0].Topics {
		for _, p := range topic.Partitions {
			if partitions++; p.State != "MIRRORING" || p.Lag != 0 {
				t.Errorf("%s is %s with lag %d after --wait", topic.Name, p.State, p.Lag)
			}
		}
	}
	if partitions != 4 {
		t.Errorf("describe shows %d partitions, want 4", partitions)
	}
	verify := []string{"verify", "--source", from, "--destination", gw.Bootstrap(), "--topics", "cli-orders,cli-payments"}
	if output, err := harness.Run(t, verify...); err != nil {
		t.Errorf("verify: %v\n%s", err, output)
	}
	mirrors("remove-topics", "--mirror", "cli", "--topics", "cli-orders")
	record := &kgo.Record{Topic: "cli-orders", Value: []byte("after the switch")}
	if err := gw.Client(t).ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Errorf("writing after the switch: %v", err)
	}
	output, err := harness.Run(t, verify...)
	var exit *exec.ExitError
	if !asExit(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("verify of logs that differ: %v, want exit status 1\n%s", err, output)
	}
	if output, err := harness.Run(t, "mirrors", "describe", "--bootstrap-server", gw.Bootstrap(), "--mirror", "no-such"); err == nil {
		t.Errorf("describing an unknown mirror succeeded:\n%s", output)
	}
}

func asExit(err error, target **exec.ExitError) bool {
	exit, ok := err.(*exec.ExitError)
	*target = exit
	return ok
}

func standardOutput(t *testing.T, args ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), harness.Binary(t), args...).Output()
	if err != nil {
		t.Fatalf("mirrorgate %s: %v", strings.Join(args, " "), err)
	}
	return string(output)
}
