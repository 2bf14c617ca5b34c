package clients

import (
	"os"
	"testing"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// kafkaVersion is the release of the destination: $MIRRORGATE_CLIENTS_KAFKA, or the one of all tests.
func kafkaVersion() string {
	if version := os.Getenv("MIRRORGATE_CLIENTS_KAFKA"); version != "" {
		return version
	}
	return kafkatest.DefaultVersion
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
