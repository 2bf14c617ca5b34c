package versions

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// TestDefinitions: the tables of handlers/layout are what the client jar of the newest Kafka says, so that a newer one that
// carries a topic ID, a leader epoch or an address in another place fails. MIRRORGATE_KAFKA_CLIENTS is another release to
// look at.
func TestDefinitions(t *testing.T) {
	version := releases[len(releases)-1]
	if other := os.Getenv("MIRRORGATE_KAFKA_CLIENTS"); other != "" {
		version = other
	}
	kafkatest.Require(t, version)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	jars, err := kafkatest.Jars(ctx, version)
	must(t, err)
	layout := filepath.Join("..", "..", "handlers", "layout")
	command := exec.CommandContext(ctx, "go", "run", "./gen", "-check", "-jar", filepath.Join(jars, "kafka-clients-"+version+".jar"))
	if command.Dir, err = filepath.Abs(layout); err != nil {
		t.Fatal(err)
	}
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}
