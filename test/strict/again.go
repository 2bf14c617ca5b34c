package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A wait that ran out may be the fault of the machine, which stood still for a while, or of the test, or of the product. So a test
// that failed by nothing else is tried once more, by itself. If it passes then, the run passes, but ends with its name and what it said:
// it is a bug in one of the two, to be looked into. Whatever else a test fails by (a wrong record, a data race, a panic) counts at
// once, and so do more than two such tests.

// againAtMost is how many tests of a run are tried again.
const againAtMost = 2

var (
	// ranOut is what harness.Eventually says, unless the test had failed before.
	ranOut = regexp.MustCompile(`: not within [0-9.hms]+: `)
	// worse is never forgiven.
	worse = regexp.MustCompile(`WARNING: DATA RACE|^panic: |^fatal error: |test timed out|invariant`)
)

// late reports whether a test failed by a wait that ran out, and by nothing else that can be seen in its output.
func late(output []string) bool {
	waited, claims := false, 0
	for _, line := range output {
		if worse.MatchString(line) {
			return false
		}
		switch {
		case strings.Contains(line, "Error Trace:"):
			claims++
		case strings.Contains(line, "Condition never satisfied"):
			waited = true
		case said.MatchString(line) && !dumped.MatchString(line):
			waited = ranOut.MatchString(line) // the last line that the test said counts
		}
	}
	return waited && claims <= 1
}

// again tries the tests that were only late once more, and reports whether all that failed have passed now.
func again(ctx context.Context, flags []string, r *report) bool {
	failed := r.failed()
	if len(failed) == 0 || len(failed) > againAtMost || r.broken {
		return false
	}
	for _, name := range failed {
		if !r.late[name] {
			return false
		}
	}
	for _, name := range failed {
		fmt.Fprintf(r.out, "\nonce more, by itself, as a wait of it ran out: %s\n", name)
		dot := strings.LastIndex(name, ".")
		second := newReport(r.out)
		second.quick = r.quick
		err := test(ctx, append(slices.Clone(flags), "-run", "^"+name[dot+1:]+"$", name[:dot]), second)
		if err != nil || second.results[name] != "pass" {
			return false
		}
		r.results[name] = "pass"
		r.unsteady = append(r.unsteady, name)
	}
	return true
}
