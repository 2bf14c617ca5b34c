package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is what a run found.
type report struct {
	Date    string    `json:"date"`
	Commit  string    `json:"commit"`
	Machine machine   `json:"machine"`
	Kafka   string    `json:"kafka"`
	Targets []verdict `json:"targets"`
	Samples []sample  `json:"samples"`

	chosen []benchmark
}

// machine is where it ran.
type machine struct {
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

func newReport(c config, chosen []benchmark, samples []sample) *report {
	r := &report{Date: time.Now().UTC().Format(time.RFC3339), Commit: commit(), Machine: thisMachine(), Kafka: c.version, Samples: samples, chosen: chosen}
	for _, t := range targets {
		if slices.ContainsFunc(chosen, func(b benchmark) bool { return b.name == t.benchmark }) {
			r.Targets = append(r.Targets, t.judge(samples))
		}
	}
	return r
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func thisMachine() machine {
	return machine{CPU: field("/proc/cpuinfo", "model name"), CPUs: runtime.NumCPU(), Memory: field("/proc/meminfo", "MemTotal"),
		Kernel: strings.TrimSpace(firstLine("/proc/sys/kernel/osrelease")), Go: runtime.Version()}
}

// field is the first value of that name in a file of "name : value" lines.
func field(path, name string) string {
	file, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// of are the samples of one subject of a benchmark.
func of(samples []sample, benchmark, subject string) []sample {
	return slices.DeleteFunc(slices.Clone(samples), func(s sample) bool { return s.Benchmark != benchmark || s.Subject != subject })
}

// numbers are the values of that name in samples.
func numbers(samples []sample, name string) []float64 {
	var found []float64
	for _, s := range samples {
		if v, ok := s.get(name); ok {
			found = append(found, v)
		}
	}
	return found
}

func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s, %d CPUs (%s), %s, Linux %s, Kafka %s, commit %s. Everything shares this machine. Medians of the rounds.\n",
		r.Date, r.Machine.CPUs, r.Machine.CPU, r.Machine.Memory, r.Machine.Kernel, r.Kafka, r.Commit)
	for _, b := range r.chosen {
		r.printBenchmark(w, b)
	}
	if len(r.Targets) == 0 {
		return
	}
	fmt.Fprintln(w, "\nTargets")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, v := range r.Targets {
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", v.mark(), v.Benchmark, v.Wanted, v.found())
	}
	table.Flush()
}

func (r *report) printBenchmark(w io.Writer, b benchmark) {
	var subjects, names []string
	for _, s := range r.Samples {
		if s.Benchmark != b.name {
			continue
		}
		if !slices.Contains(subjects, s.Subject) {
			subjects = append(subjects, s.Subject)
		}
		for _, v := range s.Values {
			if !slices.Contains(names, v.name) {
				names = append(names, v.name)
			}
		}
	}
	if len(subjects) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s: %s\n", b.name, b.what)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\t%s\t\n", strings.Join(names, "\t"))
	for _, subject := range subjects {
		row := []string{subject}
		for _, name := range names {
			if found := numbers(of(r.Samples, b.name, subject), name); len(found) > 0 {
				row = append(row, format(median(found)))
			} else {
				row = append(row, "–")
			}
		}
		fmt.Fprintf(table, "%s\t\n", strings.Join(row, "\t"))
	}
	table.Flush()
}

func (r *report) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o666); err != nil {
		return fmt.Errorf("writing the results: %w", err)
	}
	fmt.Println("\nresults written to", path)
	return nil
}
