package unsteady

import (
	"os"
	"testing"
)

func TestSteady(*testing.T) {}

// TestLate fails the first time, as a wait does; TestWrong fails each time, by something else.
func TestLate(t *testing.T) {
	marker := os.Getenv("STRICT_MARKER")
	if _, err := os.Stat(marker); err == nil {
		return
	}
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Fatalf("it happens: not within 1m0s: not yet")
}

func TestWrong(t *testing.T) { t.Error("a record is missing") }
