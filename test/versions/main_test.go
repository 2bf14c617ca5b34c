// Package versions tests what depends on the versions of brokers and clients: destinations of every release, every version
// of every request, and clients that move to the gateway with what they remember of the source.
package versions

import (
	"os"
	"testing"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
