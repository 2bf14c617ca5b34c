package clients

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// document is where the tables of whole runs are kept, between marks.
const document = "../../docs/clients.md"

// writePart replaces what is between the marks of a part of the document.
func writePart(t *testing.T, part, text string) {
	t.Helper()
	old, err := os.ReadFile(document)
	must(t, err)
	begin, end := fmt.Appendf(nil, "<!-- begin %s -->\n", part), fmt.Appendf(nil, "<!-- end %s -->\n", part)
	before, rest, found := bytes.Cut(old, begin)
	_, after, closed := bytes.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no part %q", document, part)
	}
	must(t, os.WriteFile(document, slices.Concat(before, begin, []byte(text), end, after), 0o666))
}

// ran are the clients that have results.
func (m *matrix) ran() []client {
	return slices.DeleteFunc(slices.Clone(catalog), func(c client) bool { return m.results[c.name][1] == nil })
}

// heading says what was run, and counts.
func (m *matrix) heading() string {
	count := map[string]int{}
	for _, c := range m.ran() {
		for _, got := range m.results[c.name][1] {
			count[got.Outcome]++
		}
	}
	ofLast := ""
	if m.now < len(m.ran()) {
		ofLast = fmt.Sprintf(" in the last run, of %d programs,", m.now)
	}
	return fmt.Sprintf("%s, Kafka %s, %d brokers, %d programs: %d checks passed directly and through the gateway, %d skipped on both sides. Clients of\n"+
		"the gateway received %.1f MB%s without an address of the cluster in it; leaders moved %d times.\n\n", time.Now().UTC().Format("2006-01-02"),
		m.cluster.Version(), m.scope.brokers, len(m.ran()), count["pass"], count["skip"], float64(m.tap.Bytes())/1e6, ofLast, m.runner.leaders.total())
}

// table shows the results, checks down and clients across: + passed on both sides, · skipped on both (no API, or a bug of the client's own),
// F failed. checks is its order; nil is that of commonChecks.
func (m *matrix) table(checks []string) string {
	clients, other := m.ran(), []client(nil)
	clients = slices.DeleteFunc(clients, func(c client) bool {
		if c.checks != nil {
			other = append(other, c)
		}
		return c.checks != nil
	})
	if checks == nil {
		for _, c := range clients {
			for check := range m.results[c.name][1] {
				if !slices.Contains(checks, check) {
					checks = append(checks, check)
				}
			}
		}
		slices.SortFunc(checks, byCatalog)
	}
	var b strings.Builder
	b.WriteString("| check |")
	for _, c := range clients {
		fmt.Fprintf(&b, " %s |", strings.TrimSpace(c.title+" "+c.version))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(clients)) + "\n")
	for _, check := range checks {
		b.WriteString("| " + check + " |")
		for _, c := range clients {
			fmt.Fprintf(&b, " %s |", m.mark(c, check))
		}
		b.WriteString("\n")
	}
	for _, c := range other {
		fmt.Fprintf(&b, "\n%s:", c.title)
		for _, check := range c.checks {
			fmt.Fprintf(&b, " %s %s", check, m.mark(c, check))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (m *matrix) mark(c client, check string) string {
	switch m.results[c.name][1][check].Outcome {
	case "pass":
		return "+"
	case "skip":
		return "·"
	case "fail":
		return "F"
	}
	return " "
}

// secondTries names what passed at the second try only.
func (m *matrix) secondTries() string {
	var tries []string
	for _, c := range m.ran() {
		for i, s := range m.sides {
			for check, got := range m.results[c.name][i] {
				if got.First != "" && got.Outcome == "pass" {
					tries = append(tries, fmt.Sprintf("%s of %s (%s)", check, c.name, s.name))
				}
			}
		}
	}
	if tries == nil {
		return ""
	}
	slices.Sort(tries)
	return "\nPassed at the second try: " + strings.Join(tries, ", ") + ".\n"
}

// byCatalog orders checks as commonChecks has them, then by name.
func byCatalog(a, b string) int {
	place := func(check string) int {
		if i := slices.Index(commonChecks, check); i >= 0 {
			return i
		}
		return len(commonChecks)
	}
	if d := place(a) - place(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}
