// Package leaks looks for goroutines that tests leave behind.
//
// What a test ends often ends a moment later: a fake cluster and a client of franz-go do not wait for all of their
// goroutines. goleak gives them less than half a second, which is not enough on a machine with other things to do. Here
// they have a minute, which only a leak uses up.
package leaks

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const patience = time.Minute

// Main runs the tests of a binary and fails if goroutines are left behind them:
//
//	func TestMain(m *testing.M) { os.Exit(leaks.Main(m)) }
func Main(m *testing.M, ignore ...goleak.Option) int {
	code := m.Run()
	if code != 0 {
		return code // a test that failed may leave anything behind
	}
	if err := find(ignore); err != nil {
		fmt.Fprintln(os.Stderr, "goroutines are left behind the tests:", err)
		return 1
	}
	return 0
}

// None fails the test if there are goroutines other than those to be ignored.
func None(t testing.TB, ignore ...goleak.Option) {
	t.Helper()
	if err := find(ignore); err != nil {
		t.Error("goroutines are left:", err)
	}
}

func find(ignore []goleak.Option) error {
	for deadline := time.Now().Add(patience); ; {
		err := goleak.Find(ignore...) // it looks several times, with pauses
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
