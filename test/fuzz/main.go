// Command fuzz runs every fuzz test of this module for the time, or the number of executions (600000x), that is given for each,
// and prints what each did and the sum, as a table. With -keep it then copies the inputs that reach the most code from
// Go's cache to testdata/fuzz, from where they are seeds for everybody.
//
//	go run ./test/fuzz -time 20s
//	go run ./test/fuzz -time 600000x -run 'Walk|Batches'
//	go run ./test/fuzz -time 10s -keep 20
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	duration := flag.String("time", "20s", "how long, or with an x at its end how many `executions`, for each test")
	pattern := flag.String("run", ".", "only tests whose names match this `regexp`")
	keep := flag.Int("keep", 0, "keep the best `n` inputs of each test in testdata/fuzz")
	flag.Parse()
	only, err := regexp.Compile(*pattern)
	if err == nil {
		err = run(ctx, os.Stdout, *duration, only, *keep)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// target is one fuzz test.
type target struct{ pkg, dir, name string }

// figures are what a run of a target came to.
type figures struct {
	executions int64
	took       time.Duration
	inputs     int // the corpus in Go's cache and in testdata
}

func run(ctx context.Context, out io.Writer, duration string, only *regexp.Regexp, keep int) error {
	targets, err := list(ctx, only)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return fmt.Errorf("no fuzz test matches %v", only)
	}
	var errs []error
	var rows []row
	for _, t := range targets {
		fmt.Fprintf(out, "== %s %s\n", t.pkg, t.name)
		got, err := fuzz(ctx, out, t, duration)
		rows = append(rows, row{t, got, err})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s of %s: %w", t.name, t.pkg, err))
		}
		if ctx.Err() != nil {
			break
		}
		if keep > 0 && err == nil {
			if err := keepBest(ctx, out, t, keep); err != nil {
				errs = append(errs, fmt.Errorf("the corpus of %s of %s: %w", t.name, t.pkg, err))
			}
		}
	}
	fmt.Fprint(out, "\n"+table(rows))
	return errors.Join(errs...)
}

// list finds the fuzz tests.
func list(ctx context.Context, only *regexp.Regexp) ([]target, error) {
	packages, err := output(ctx, ".", "go", "list", "-f", "{{.ImportPath}} {{.Dir}} {{len .TestGoFiles}} {{len .XTestGoFiles}}", "./...")
	if err != nil {
		return nil, err
	}
	var targets []target
	for line := range strings.Lines(packages) {
		var t target
		var internal, external int
		if _, err := fmt.Sscan(line, &t.pkg, &t.dir, &internal, &external); err != nil {
			return nil, fmt.Errorf("%q of go list: %w", line, err)
		}
		if internal+external == 0 {
			continue
		}
		names, err := output(ctx, ".", "go", "test", "-list", "^Fuzz", t.pkg)
		if err != nil {
			return nil, err
		}
		for name := range strings.Lines(names) {
			if t.name = strings.TrimSpace(name); strings.HasPrefix(t.name, "Fuzz") && only.MatchString(t.name) {
				targets = append(targets, t)
			}
		}
	}
	return targets, nil
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Stderr = dir, &stderr
	text, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, text, &stderr)
	}
	return string(text), nil
}

// fuzz runs one target and shows what it prints.
func fuzz(ctx context.Context, out io.Writer, t target, duration string) (figures, error) {
	// By default each input that reaches something new is made smaller for up to a minute, in which nothing else happens.
	command := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", duration, "-fuzzminimizetime", "1s", t.pkg)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 30 * time.Second
	pipe, err := command.StdoutPipe()
	if err != nil {
		return figures{}, err
	}
	command.Stderr = out
	began := time.Now()
	if err := command.Start(); err != nil {
		return figures{}, err
	}
	var got figures
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		fmt.Fprintln(out, lines.Text())
		got.read(lines.Text())
	}
	err = errors.Join(lines.Err(), command.Wait())
	got.took = time.Since(began)
	return got, err
}

// progress is a line such as "fuzz: elapsed: 3s, execs: 102 (33/sec), new interesting: 3 (total: 9)".
var progress = regexp.MustCompile(`^fuzz: elapsed: \S+, execs: (\d+) .*\(total: (\d+)\)`)

// read takes over what a line of go test says; the last one has the final numbers.
func (f *figures) read(line string) {
	m := progress.FindStringSubmatch(line)
	if m == nil {
		return
	}
	executions, err := strconv.ParseInt(m[1], 10, 64)
	inputs, err2 := strconv.Atoi(m[2])
	if errors.Join(err, err2) == nil {
		f.executions, f.inputs = executions, inputs
	}
}
