// Package kit is what every Go client program shares: the runner's protocol, naming, the address check and the
// comparison of what was read with what was written.
package kit

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Skip is an error that says that the client cannot do this.
type Skip string

func (s Skip) Error() string { return string(s) }

type Check func() (string, error)

// GapCase is one log to read from offset 0 to its end, with read_committed.
type GapCase struct {
	Label, Topic string
	End          int64
	Records      []GapRecord
}
type GapRecord struct {
	Offset int64
	Value  string
}

// Main runs the checks named in $CHECKS. gap reads a case until its end or a deadline, and returns the records and
// the client's own idea of its final position (-1: the client does not tell).
func Main(checks map[string]Check, gap func(GapCase) ([]GapRecord, int64, error)) {
	for _, name := range strings.Split(os.Getenv("CHECKS"), ",") {
		fmt.Printf("@start %s\n", name)
		fn := checks[name]
		if label, ok := strings.CutPrefix(name, "gaps:"); ok && gap != nil {
			fn = func() (string, error) { return runGap(label, gap) }
		}
		if fn == nil {
			report("skip", name, "the client has no API for it")
			continue
		}
		detail, err := guarded(fn)
		switch e := err.(type) {
		case nil:
			report("pass", name, detail)
		case Skip:
			report("skip", name, string(e))
		default:
			report("fail", name, err.Error())
		}
	}
}

func guarded(fn Check) (detail string, err error) {
	defer func() {
		if r := recover(); r != nil {
			if skip, ok := r.(Skip); ok {
				err = skip
			} else {
				err = fmt.Errorf("%v", r)
			}
		}
	}()
	return fn()
}

func report(what, name, text string) {
	fmt.Printf("@%s %s %s\n", what, name, strings.ReplaceAll(text, "\n", " | "))
}

func runGap(label string, gap func(GapCase) ([]GapRecord, int64, error)) (string, error) {
	b, err := os.ReadFile(os.Getenv("GAPS"))
	if err != nil {
		return "", err
	}
	var cases []GapCase
	if err := json.Unmarshal(b, &cases); err != nil {
		return "", err
	}
	for _, c := range cases {
		if c.Label != label {
			continue
		}
		got, pos, err := gap(c)
		if err != nil {
			return "", fmt.Errorf("%d/%d records, position %d/%d: %w", len(got), len(c.Records), pos, c.End, err)
		}
		return CompareGap(c, got, pos)
	}
	return "", fmt.Errorf("no case %s", label)
}

func CompareGap(c GapCase, got []GapRecord, pos int64) (string, error) {
	sum := fmt.Sprintf("%d/%d records, position %d/%d", len(got), len(c.Records), pos, c.End)
	for i := range min(len(got), len(c.Records)) {
		if got[i] != c.Records[i] {
			return "", fmt.Errorf("%s: record %d is %v, not %v", sum, i, got[i], c.Records[i])
		}
	}
	if len(got) != len(c.Records) || (pos >= 0 && pos != c.End) {
		return "", fmt.Errorf("%s", sum)
	}
	return sum, nil
}

func Bootstrap() []string { return strings.Split(os.Getenv("BOOTSTRAP"), ",") }
func Client() string      { return os.Getenv("CLIENT") }

// Name is a topic, group or transactional id of this run, client and check.
func Name(check string) string { return "kc-" + os.Getenv("RUNID") + "-" + Client() + "-" + check }

func N() int {
	n, err := strconv.Atoi(os.Getenv("N"))
	if err != nil {
		return 2000
	}
	return n
}

func Key(i int) string   { return fmt.Sprintf("k%d", i) }
func Value(i int) string { return fmt.Sprintf("v%d-%s", i, strings.Repeat("abcdefghij", 10)) }

// Compare checks that values, one list per partition, are those of records i with i%len(values)==p, in order.
func Compare(values [][]string, n int) error {
	total := 0
	for p, vs := range values {
		total += len(vs)
		for k, v := range vs {
			if want := Value(k*len(values) + p); v != want {
				return fmt.Errorf("partition %d record %d: got %.20q want %.20q", p, k, v, want)
			}
		}
	}
	if total != n {
		return fmt.Errorf("read %d records, not %d", total, n)
	}
	return nil
}

// Moving is how many records the check "leader" writes, one by one, while the runner moves the partition's leader.
const Moving = 250

// Leader is that check: write sends record i and waits for the acknowledgement, read returns the values that arrive within a time. Every
// record must be read; a client that is not idempotent may write some twice.
func Leader(write func(i int) error, read func(time.Duration) []string) (string, error) {
	seen, twice := map[string]bool{}, 0
	take := func(d time.Duration) {
		for _, v := range read(d) {
			if seen[v] {
				twice++
			}
			seen[v] = true
		}
	}
	for i := range Moving {
		if err := write(i); err != nil {
			return "", fmt.Errorf("record %d: %w", i, err)
		}
		for next := time.Now().Add(20 * time.Millisecond); time.Now().Before(next); { // or all would be over before the leader moves
			take(time.Until(next))
		}
	}
	for end := time.Now().Add(120 * time.Second); len(seen) < Moving && time.Now().Before(end); {
		take(300 * time.Millisecond)
	}
	for i := range Moving {
		if !seen[Value(i)] {
			return "", fmt.Errorf("%d of %d records read, not record %d", len(seen), Moving, i)
		}
	}
	return fmt.Sprintf("%d records, %d of them twice", len(seen), twice), nil
}

// Allowed fails if host:port is not one of $ALLOWED (host:port or host:low-high, comma-separated).
func Allowed(host string, port int32) error {
	for _, a := range strings.Split(os.Getenv("ALLOWED"), ",") {
		h, ps, _ := net.SplitHostPort(a)
		lo, hi, ranged := strings.Cut(ps, "-")
		if !ranged {
			hi = lo
		}
		l, _ := strconv.Atoi(lo)
		u, _ := strconv.Atoi(hi)
		if h == host && int(port) >= l && int(port) <= u {
			return nil
		}
	}
	return fmt.Errorf("LEAK: address %s:%d is not in %s", host, port, os.Getenv("ALLOWED"))
}

// Until calls f until it is true or the time is over.
func Until(d time.Duration, f func() bool) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if f() {
			return true
		}
	}
	return f()
}
