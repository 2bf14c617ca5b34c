package clients

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// verdict fails the test where a client did not do through the gateway what it does directly, and says whether all is well.
func (m *matrix) verdict(t *testing.T, c client) bool {
	t.Helper()
	results, ran := m.results[c.name]
	if !ran {
		t.Errorf("%s did not run", c.name)
		return false
	}
	passed, good := 0, true
	fail := func(format string, args ...any) {
		t.Helper()
		good = false
		t.Errorf(format, args...)
	}
	for check, direct := range results[0] {
		through := results[1][check]
		if direct.Outcome == "pass" && through.Outcome == "pass" {
			passed++
		}
		switch {
		case direct.Outcome == "fail":
			fail("%s %s fails directly: %s\n\tthrough the gateway: %s %s\n\tthe first try: %s", c.name, check, direct.Text, through.Outcome, through.Text, direct.First)
		case through.Outcome != direct.Outcome:
			fail("%s %s: directly %s, through the gateway %s: %s\n\tthe first try: %s", c.name, check, direct.Outcome, through.Outcome, through.Text, through.First)
		case direct.First != "" || through.First != "":
			t.Logf("%s %s passed at the second try only: directly %q, through the gateway %q", c.name, check, direct.First, through.First)
		}
	}
	if passed == 0 {
		fail("%s passed nothing", c.name)
	}
	return good
}

// keep notes the results of the clients without a failure in out/clients, and takes those of earlier runs for the clients that were not in this
// one: so the table is complete once each client has passed, in whatever runs.
func (m *matrix) keep(t *testing.T) {
	t.Helper()
	m.now = len(m.results)
	if !m.scope.gaps {
		return
	}
	dir, err := filepath.Abs(filepath.Join("../../out/clients", "results-"+m.cluster.Version()))
	must(t, err)
	must(t, os.MkdirAll(dir, 0o777))
	for _, c := range catalog {
		file := filepath.Join(dir, c.name+".json")
		results, ran := m.results[c.name]
		if ran {
			text, err := json.Marshal(results)
			must(t, err)
			if m.good[c.name] {
				must(t, os.WriteFile(file, text, 0o666))
			}
			continue
		}
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		must(t, err)
		must(t, json.Unmarshal(text, &results))
		m.results[c.name] = results
	}
}
