package main

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of `go test -json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

// report follows a test run: it prints a line for each test as it ends, and the whole output of those that fail.
type report struct {
	out     io.Writer
	results map[string]string // package.Test → pass, fail or skip
	output  map[string][]string
	reasons []string // of the failures, in short

	late     map[string]bool // tests that failed only by a wait that ran out
	broken   bool            // a package failed, but none of its tests
	unsteady []string        // tests that passed when they were tried again
	quick    time.Duration   // a pass within that time is not listed
	lenient  bool            // skipped tests are let through
}

const (
	reasonLines = 25
	reasonWidth = 600
)

func newReport(out io.Writer) *report {
	return &report{out: out, results: map[string]string{}, output: map[string][]string{}, late: map[string]bool{}}
}

func (r *report) line(line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil {
		fmt.Fprintf(r.out, "%s\n", line)
		return
	}
	name := e.Package + "." + e.Test
	top, _, _ := strings.Cut(name[len(e.Package):], "/")
	group := e.Package + top // subtests are shown with their test
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output[group] = append(r.output[group], e.Output)
	case "pass", "fail", "skip":
		if name != group {
			break
		}
		r.end(e, group)
	}
}

func (r *report) end(e event, group string) {
	if e.Test == "" {
		if e.Action == "fail" {
			fmt.Fprint(r.out, strings.Join(r.output[group], ""))
			r.broken = r.broken || len(r.failedIn(e.Package)) == 0
		}
		return
	}
	r.results[group] = e.Action
	if quick := time.Duration(e.Elapsed * float64(time.Second)); e.Action != "pass" || quick >= r.quick {
		fmt.Fprintf(r.out, "%s  %7.1fs  %s\n", strings.ToUpper(e.Action), e.Elapsed, strings.TrimPrefix(group, "github.com/mirrorgate/mirrorgate/"))
	}
	if r.late[group] = e.Action == "fail" && late(r.output[group]); e.Action == "fail" || e.Action == "skip" && !r.lenient {
		fmt.Fprint(r.out, strings.Join(r.output[group], ""))
		r.reasons = append(r.reasons, reason(group, r.output[group]))
	}
	delete(r.output, group)
}

// said begins a line that a test logged itself; logs of brokers and gateways are printed after a failure (dumped).
var said = regexp.MustCompile(`^\s+\w+\.go:\d+: `)

// dumped begins a line behind which a log of a broker or a gateway is printed. What else the files say that print them counts: that a
// broker did not start, that a gateway ended by itself or has a panic in its log.
var dumped = regexp.MustCompile(`^\s+(testing|gateway)\.go:\d+: ends? of the (shared brokers'|brokers'|gateway's) log`)

// reason is the last of what a failed test said. It is printed once more at the very end, since where only the end of a
// long output is kept, the logs of the brokers would be all that is left.
func reason(group string, output []string) string {
	var lines []string
	for _, line := range output {
		if !said.MatchString(line) || dumped.MatchString(line) {
			continue
		}
		if line = strings.TrimRight(line, "\n"); len(line) > reasonWidth {
			line = line[:reasonWidth] + "…"
		}
		lines = append(lines, line)
	}
	return group + ":\n" + strings.Join(lines[max(0, len(lines)-reasonLines):], "\n")
}

// missing names the wanted tests that neither passed nor, if the report is lenient, were skipped.
func (r *report) missing(wanted []string) []string {
	var missing []string
	for _, name := range wanted {
		switch result := r.results[name]; {
		case result == "pass", r.lenient && result == "skip":
		case result == "":
			missing = append(missing, name+" (never ended)")
		default:
			missing = append(missing, name+" ("+result+")")
		}
	}
	return missing
}

// failed lists the tests that failed, in the order of their names.
func (r *report) failed() []string { return r.failedIn("") }

// failedIn lists those of a package, of all if it is "".
func (r *report) failedIn(pkg string) []string {
	var failed []string
	for name, result := range r.results {
		if result == "fail" && (pkg == "" || strings.HasPrefix(name, pkg+".Test")) {
			failed = append(failed, name)
		}
	}
	slices.Sort(failed)
	return failed
}

func (r *report) passed(wanted []string) int {
	n := 0
	for _, name := range wanted {
		if r.results[name] == "pass" {
			n++
		}
	}
	return n
}
