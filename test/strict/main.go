// Command strict runs `go test` on the given packages and fails if any of their tests did not run to a pass: a test that
// was skipped, or that is listed but never reported, counts as a failure. It takes the arguments of go test.
//
// Only with MIRRORGATE_SKIP_KAFKA=1 are skipped tests let through; it says so at the end.
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
	wanted, err := list(ctx, args)
	if err != nil {
		return err
	}
	report := newReport(out)
	testErr := test(ctx, args, report)
	lenient := os.Getenv("MIRRORGATE_SKIP_KAFKA") == "1"
	for _, reason := range report.reasons {
		fmt.Fprintf(out, "\nwhat was said last by %s\n\n", reason)
	}
	missing := report.missing(wanted, lenient)
	fmt.Fprintf(out, "%d of %d tests passed in %v\n", report.passed(wanted), len(wanted), time.Since(began).Round(time.Second))
	if lenient {
		fmt.Fprintln(out, "MIRRORGATE_SKIP_KAFKA=1: the tests that need real Kafka were SKIPPED")
	}
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

// list asks for the names of all tests that the arguments select, as package.Test.
func list(ctx context.Context, args []string) ([]string, error) {
	pattern, rest := ".", slices.Clone(args)
	if i := slices.Index(rest, "-run"); i >= 0 && i+1 < len(rest) {
		pattern = rest[i+1]
		rest = slices.Delete(rest, i, i+2)
	}
	// A pattern with slashes selects subtests; listing knows only the tests themselves.
	pattern, _, _ = strings.Cut(pattern, "/")
	command := exec.CommandContext(ctx, "go", append([]string{"test", "-json", "-list", pattern}, rest...)...)
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
