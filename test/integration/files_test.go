package integration

import (
	"os"
	"testing"
)

// removeAll removes a directory that must be there.
func removeAll(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}
