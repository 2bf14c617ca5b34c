package main

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestLate(t *testing.T) {
	wait := "    a_test.go:7: the topic is mirrored: not within 1m0s: not yet\n"
	testify := []string{"    a_test.go:7: \n", "        \tError Trace:\t/a_test.go:7\n", "        \tError:      \tCondition never satisfied\n"}
	for name, tt := range map[string]struct {
		output []string
		want   bool
	}{
		"a wait":                        {[]string{"    a_test.go:6: a log line\n", wait}, true},
		"and then logs":                 {[]string{wait, "    gateway.go:95: end of the gateway's log (/tmp/log):\n", "    testing.go:99: ends of the brokers' logs:\n"}, true},
		"and the gateway died":          {[]string{wait, "    gateway.go:77: the gateway ended by itself: exit status 2\n", "    gateway.go:95: end of the gateway's log (/tmp/log):\n"}, false},
		"and the gateway panicked":      {[]string{wait, "    gateway.go:85: the gateway's log has panic: oh\n", "    testing.go:99: ends of the shared brokers' logs:\n"}, false},
		"of testify":                    {testify, true},
		"of testify, behind a claim":    {append([]string{"        \tError Trace:\t/a_test.go:5\n", "        \tError:      \tNot equal\n"}, testify...), false},
		"a claim":                       {[]string{"    a_test.go:7: a record is missing\n"}, false},
		"a claim behind a wait":         {[]string{wait, "    a_test.go:9: a record is missing\n"}, false},
		"a wait of a test that failed":  {[]string{"    a_test.go:6: a record is missing\n", strings.Replace(wait, "not within", "not in", 1)}, false},
		"a wait, and a race":            {[]string{"WARNING: DATA RACE\n", wait}, false},
		"a wait in a package that died": {[]string{wait, "panic: oh\n"}, false},
		"nothing":                       {nil, false},
	} {
		if got := late(tt.output); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A test that was only late is tried again, and told; one that failed by something else is not.
func TestAgain(t *testing.T) {
	t.Setenv("STRICT_MARKER", filepath.Join(t.TempDir(), "marker"))
	var out strings.Builder
	if err := run(t.Context(), []string{"-run", "TestSteady|TestLate", "./testdata/unsteady"}, &out); err != nil {
		t.Errorf("a test that was late once: %v\n%s", err, out.String())
	}
	for _, want := range []string{"FAIL  ", "UNSTEADY: ", "unsteady.TestLate passed only when it was tried again", "what was said last by ", "2 of 2 tests passed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	t.Setenv("STRICT_MARKER", filepath.Join(t.TempDir(), "marker"))
	out.Reset()
	err := run(t.Context(), []string{"./testdata/unsteady"}, &out)
	if err == nil || strings.Contains(out.String(), "once more") {
		t.Errorf("a test that was late, and one that was wrong: %v\n%s", err, out.String())
	}
}
