// Command strict runs `go test` on the given packages and fails if any of their tests did not run to a pass: a test that
// was skipped, or that is listed but never reported, counts as a failure. It takes the arguments of go test. Tests that
// failed only by a wait that ran out are tried once more (again.go).
//
// With -unit as its first argument, for unit tests, it lets skipped tests through and lists no test that took less than a second.
// Else skipped tests are let through only with MIRRORGATE_SKIP_KAFKA=1; it says so at the end.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "strict:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	began := time.Now()
	report := newReport(out)
	kafkaSkipped := os.Getenv("MIRRORGATE_SKIP_KAFKA") == "1"
	report.lenient = kafkaSkipped
	if len(args) > 0 && args[0] == "-unit" {
		args, kafkaSkipped = args[1:], false
		report.lenient, report.quick = true, time.Second
	}
	flags, pattern, packages := split(args)
	wanted, err := list(ctx, flags, pattern, packages)
	if err != nil {
		return err
	}
	testErr := test(ctx, args, report)
	if testErr != nil && again(ctx, flags, report) {
		testErr = nil
	}
	for _, reason := range report.reasons {
		fmt.Fprintf(out, "\nwhat was said last by %s\n\n", reason)
	}
	fmt.Fprintf(out, "%d of %d tests passed in %v\n", report.passed(wanted), len(wanted), time.Since(began).Round(time.Second))
	if kafkaSkipped {
		fmt.Fprintln(out, "MIRRORGATE_SKIP_KAFKA=1: the tests that need real Kafka were SKIPPED")
	}
	return conclude(report, wanted, testErr)
}

// conclude names the tests that were unsteady, and returns why the run failed.
func conclude(r *report, wanted []string, testErr error) error {
	for _, name := range r.unsteady {
		fmt.Fprintf(r.out, "UNSTEADY: %s passed only when it was tried again: a bug of the test, or of the product\n", name)
	}
	missing := r.missing(wanted)
	switch {
	case testErr != nil:
		return testErr
	case len(missing) > 0:
		return fmt.Errorf("these tests did not run to a pass: %s", strings.Join(missing, ", "))
	case len(wanted) == 0:
		return errors.New("no tests match")
	}
	return nil
}

// split takes the arguments of go test apart: its flags without -run, the pattern of -run, and the packages.
func split(args []string) (flags []string, pattern string, packages []string) {
	pattern = "."
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "-run" && i+1 < len(args):
			i++
			pattern = args[i]
		case strings.Contains(arg, "/"):
			packages = append(packages, arg)
		default:
			flags = append(flags, arg)
		}
	}
	return flags, pattern, packages
}

// list asks for the names of all tests that a pattern selects in the packages, as package.Test.
func list(ctx context.Context, flags []string, pattern string, packages []string) ([]string, error) {
	// A pattern with slashes selects subtests; listing knows only the tests themselves.
	pattern, _, _ = strings.Cut(pattern, "/")
	command := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-json", "-list", pattern}, flags, packages)...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	var names []string
	for line := range strings.Lines(string(output)) {
		var e event
		if json.Unmarshal([]byte(line), &e) != nil || e.Action != "output" && e.Action != "build-output" {
			continue
		}
		if name := strings.TrimSpace(e.Output); strings.HasPrefix(name, "Test") {
			names = append(names, e.Package+"."+name)
		} else if err != nil {
			fmt.Fprint(os.Stderr, e.Output)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listing the tests: %w", err)
	}
	return names, nil
}

func test(ctx context.Context, args []string, report *report) error {
	command := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-count", "1"}, args...)...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 30 * time.Second
	command.Stderr = os.Stderr
	pipe, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		report.line(lines.Bytes())
	}
	if err := errors.Join(lines.Err(), command.Wait()); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}
