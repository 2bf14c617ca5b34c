package clients

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// side is one way to the cluster.
type side struct {
	name      string // "direct" or "gateway"
	bootstrap string
	allowed   string // the addresses that answers may name: host:port or host:low-high, comma-separated
}

// result is what a check came to.
type result struct {
	Outcome string // pass, fail or skip
	Text    string
	First   string // why the first try failed, where the second did not
}

// patience is how long a check may say nothing.
const patience = 8 * time.Minute

// runner runs programs.
type runner struct {
	run     string // a part of all topic names
	records int
	logs    string // where programs' output is kept
	leaders *leaders
}

// task is what one program has to do, on both sides.
type task struct {
	client client
	cmd    command
	checks []string
	gaps   [2]string // the files of logs with gaps, by side
	// lenient: checks may fail where they fail on both sides; otherwise a check that fails directly is a failure too.
	lenient bool
	judge   func(side int, check string, got result) result // looks at the results of each process, if not nil
}

// both runs a program on both sides at the same time, and once more, with other topics, where something failed: most checks have deadlines,
// and machines are busy.
func (r *runner) both(ctx context.Context, sides [2]side, k task) [2]map[string]result {
	first := r.attempts(ctx, sides, k, "", [2][]string{k.checks, k.checks})
	again := [2][]string{}
	for i := range sides {
		for _, check := range k.checks {
			sameOnBoth := k.lenient && first[0][check].Outcome == first[1][check].Outcome
			if first[i][check].Outcome == "fail" && k.client.knows(check) == "" && !sameOnBoth {
				again[i] = append(again[i], check)
			}
		}
	}
	for i, results := range r.attempts(ctx, sides, k, "r", again) {
		for check, second := range results {
			second.First = first[i][check].Text
			first[i][check] = second
		}
	}
	k.skipKnown(&first)
	return first
}

// skipKnown takes checks that cannot pass, or pass by luck, out on both sides where they fail on one.
func (k *task) skipKnown(results *[2]map[string]result) {
	for _, check := range k.checks {
		why := k.client.knows(check)
		if why == "" || results[0][check].Outcome != "fail" && results[1][check].Outcome != "fail" {
			continue
		}
		for i := range results {
			results[i][check] = result{Outcome: "skip", Text: "known: " + why + "; seen: " + results[i][check].Outcome + " " + results[i][check].Text}
		}
	}
}

func (r *runner) attempts(ctx context.Context, sides [2]side, k task, suffix string, checks [2][]string) (results [2]map[string]result) {
	var wg sync.WaitGroup
	for i, s := range sides {
		wg.Go(func() {
			results[i] = r.attempt(ctx, k.client, k.cmd, s, r.run+s.name[:1]+suffix, checks[i], k.gaps[i])
			for check, got := range results[i] {
				if k.judge != nil {
					got = k.judge(i, check, got)
				}
				results[i][check] = got
			}
		})
	}
	wg.Wait()
	return results
}

// attempt runs checks in as few processes as possible: one, and another for what is left behind a check that hangs or kills its process.
func (r *runner) attempt(ctx context.Context, c client, cmd command, s side, id string, checks []string, gaps string) map[string]result {
	results := map[string]result{}
	for left := slices.Clone(checks); len(left) > 0; {
		current, err := r.process(ctx, c, cmd, s, id, left, gaps, results)
		left = slices.DeleteFunc(left, func(check string) bool { return results[check].Outcome != "" })
		switch {
		case ctx.Err() != nil:
			return results
		case err == nil:
			for _, check := range left {
				results[check] = result{Outcome: "fail", Text: "the program did not report it"}
			}
			return results
		case len(left) > 0:
			if !slices.Contains(left, current) {
				current = left[0]
			}
			results[current] = result{Outcome: "fail", Text: err.Error()}
			left = slices.DeleteFunc(left, func(check string) bool { return check == current })
		}
	}
	return results
}

var reportLine = regexp.MustCompile(`^@(start|pass|fail|skip) (\S+) ?(.*)`)

// process runs one process, adds to results, and returns which check was under way when it ended.
func (r *runner) process(ctx context.Context, c client, cmd command, s side, id string, checks []string, gaps string, results map[string]result) (current string, err error) {
	log, err := os.OpenFile(filepath.Join(r.logs, c.name+"-"+s.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return "", err
	}
	defer log.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	process := exec.CommandContext(ctx, cmd.args[0], cmd.args[1:]...)
	process.Env = append(os.Environ(), "BOOTSTRAP="+s.bootstrap, "CLIENT="+c.name, "RUNID="+id, "CHECKS="+strings.Join(checks, ","),
		"GAPS="+gaps, "ALLOWED="+s.allowed, "N="+strconv.Itoa(r.records))
	process.Env = append(process.Env, cmd.env...)
	process.Dir = r.logs
	process.Stderr = log
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // some programs have children
	process.Cancel = func() error { return syscall.Kill(-process.Process.Pid, syscall.SIGKILL) }
	output, err := process.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := process.Start(); err != nil {
		return "", err
	}
	var hung atomic.Bool
	watchdog := time.AfterFunc(patience, func() { hung.Store(true); cancel() })
	defer watchdog.Stop()
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		watchdog.Reset(patience)
		fmt.Fprintln(log, lines.Text())
		m := reportLine.FindStringSubmatch(lines.Text())
		switch {
		case m == nil:
		case m[1] == "start":
			current = m[2]
		default:
			got := result{Outcome: m[1], Text: m[3]}
			if m[2] == leaderCheck && c.name != wireName && got.Outcome == "pass" {
				got = r.leaders.judge(got, topicName(id, c, leaderCheck))
			}
			results[m[2]] = got
			current = ""
		}
	}
	err = process.Wait()
	switch {
	case hung.Load():
		return current, fmt.Errorf("nothing was heard of it for %v", patience)
	case err != nil:
		return current, fmt.Errorf("the process died: %w (see %s)", err, log.Name())
	}
	return current, nil
}

func topicName(id string, c client, check string) string {
	return "kc-" + id + "-" + c.name + "-" + check
}

// knows says why a check cannot pass, or "".
func (c *client) knows(check string) string {
	for pattern, why := range c.known {
		prefix, open := strings.CutSuffix(pattern, "*")
		if check == pattern || open && strings.HasPrefix(check, prefix) {
			return why
		}
	}
	return ""
}
