package main

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestMissing(t *testing.T) {
	r := newReport(io.Discard)
	for _, line := range []string{
		`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1}`,
		`{"Action":"pass","Package":"p","Test":"TestB/sub"}`,
		`{"Action":"skip","Package":"p","Test":"TestC"}`,
		`{"Action":"fail","Package":"p","Test":"TestD"}`,
	} {
		r.line([]byte(line))
	}
	wanted := []string{"p.TestA", "p.TestB", "p.TestC", "p.TestD"}
	if got := fmt.Sprint(r.missing(wanted)); got != "[p.TestB (never ended) p.TestC (skip) p.TestD (fail)]" {
		t.Errorf("strict: %s", got)
	}
	r.lenient = true
	if got := fmt.Sprint(r.missing(wanted)); got != "[p.TestB (never ended) p.TestD (fail)]" {
		t.Errorf("lenient: %s", got)
	}
	if r.passed(wanted) != 1 {
		t.Errorf("passed %d, want 1", r.passed(wanted))
	}
}

// What a failed test and its subtests printed must be seen, what a passed one printed must not.
func TestOutputOfFailures(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	for _, line := range []string{
		`{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1}`,
		`{"Action":"output","Package":"p","Test":"TestD/sub","Output":"loud\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestD/sub"}`,
		`{"Action":"fail","Package":"p","Test":"TestD"}`,
	} {
		r.line([]byte(line))
	}
	if got := out.String(); strings.Contains(got, "quiet") || strings.Count(got, "loud") != 1 {
		t.Errorf("printed:\n%s", got)
	}
}

func TestReason(t *testing.T) {
	output := []string{"=== RUN TestD\n", "    a_test.go:1: early\n"}
	for range reasonLines {
		output = append(output, "    a_test.go:2: wrong\n", "    testing.go:50: ends of the brokers' logs:\n", "        23:58 WARN\n")
	}
	want := "p.TestD:\n" + strings.TrimSuffix(strings.Repeat("    a_test.go:2: wrong\n", reasonLines), "\n")
	if got := reason("p.TestD", output); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A run of a package with a skipped test must fail, a clean one must not.
func TestRun(t *testing.T) {
	t.Setenv("MIRRORGATE_SKIP_KAFKA", "")
	if err := run(t.Context(), []string{"./testdata/skips"}, io.Discard); err == nil || !strings.Contains(err.Error(), "TestSkipped (skip)") {
		t.Errorf("with a skipped test: %v", err)
	}
	if err := run(t.Context(), []string{"-run", "TestPasses/sub", "./testdata/skips"}, io.Discard); err != nil {
		t.Errorf("without: %v", err)
	}
	if err := run(t.Context(), []string{"-run", "NoSuchTest", "./testdata/skips"}, io.Discard); err == nil {
		t.Error("no test matched, and nothing was said")
	}
}
