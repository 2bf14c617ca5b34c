// Command bench measures a mirror and the gateway beside what people would use instead, on the same data in the same run,
// and says which targets are met. It starts its own Kafka clusters on loopback; see -h and docs/performance.md.
//
// Clusters, mirrors and clients share one machine: ratios within a run mean something, figures alone do not.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

type config struct {
	mirrorgate string
	kafkaProxy string
	version    string
	only       string
	records    int
	repeat     int
	json       string
	profiles   string
	heap       string
	mm2Heap    string
	patience   time.Duration
}

// benchmark is one thing to measure. Those that are not standard run only when they are named.
type benchmark struct {
	name, what string
	standard   bool
	run        func(ctx context.Context, l *lab) error
}

// benchmarks are in the order in which they run. The one that leaves 10,000 partitions behind is the last that uses the
// common clusters.
func benchmarks() []benchmark {
	return []benchmark{
		{"catchup-random", "a mirror catches up: 6 partitions, 1 kB random records, uncompressed", true, catchUp("random")},
		{"catchup-json", "a mirror catches up: 6 partitions, 0.9 kB JSON in zstd", true, catchUp("json")},
		{"tiny", "a mirror catches up: batches of one record of 100 B", true, tiny},
		{"wan", "a mirror catches up: one partition, the source 100 ms away", true, wan},
		{"gap", "a leading gap of the source is filled", true, gap},
		{"verify", "mirrorgate verify compares a mirrored topic", true, verifySpeed},
		{"latency", "source acknowledgement → consumer of the mirror, 500 records/s", true, latency},
		{"small", "a small produce through the gateway, one at a time", true, small},
		{"client", "clients produce and consume through the gateway", true, client},
		{"clients", "10, 100, 1,000 and 9,500 idle clients of the gateway", false, idleClients},
		{"slow-clients", "100 clients fetch 50 MB each and do not read the answers", false, slowClients},
		{"partitions", "10, 100 and 1,000 mirror partitions, 99 % idle", false, partitionScale},
		{"idle", "10,000 mirror partitions, 99 % idle", true, func(ctx context.Context, l *lab) error { return idle(ctx, l, "idle", 10_000) }},
	}
}

func main() {
	var c config
	flag.StringVar(&c.mirrorgate, "mirrorgate", "bin/mirrorgate", "the binary to measure")
	flag.StringVar(&c.kafkaProxy, "kafka-proxy", "", "binary of grepplabs/kafka-proxy (default: built with go install, once)")
	flag.StringVar(&c.version, "kafka", kafkatest.DefaultVersion, "version of Kafka and MirrorMaker 2")
	flag.StringVar(&c.only, "run", "", "comma-separated names of benchmarks (default: all but those in brackets below)")
	flag.IntVar(&c.records, "records", 1_000_000, "records of the big datasets, about 1 kB each")
	flag.IntVar(&c.repeat, "repeat", 3, "rounds of each measurement; peers take turns within a round, tables show medians")
	flag.StringVar(&c.json, "json", "out/bench.json", "file for all results")
	flag.StringVar(&c.profiles, "profiles", "", "directory for CPU profiles of the gateway (makes it a little slower)")
	flag.StringVar(&c.heap, "heap", "1g", "heap of each Kafka broker")
	flag.StringVar(&c.mm2Heap, "mm2-heap", "2g", "heap of MirrorMaker 2 (2g as in connect-mirror-maker.sh)")
	flag.DurationVar(&c.patience, "patience", 10*time.Minute, "longest single benchmark")
	quick := flag.Bool("quick", false, "one round of 150,000 records, to see that it works")
	flag.Usage = usage
	flag.Parse()
	if *quick {
		c.records, c.repeat = 150_000, 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, c); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "Usage: bench [flags]\n\nBenchmarks:")
	for _, b := range benchmarks() {
		name := b.name
		if !b.standard {
			name = "[" + name + "]"
		}
		fmt.Fprintf(os.Stderr, "  %-16s %s\n", name, b.what)
	}
	fmt.Fprintln(os.Stderr, "\nFlags:")
	flag.PrintDefaults()
}

// run measures everything that was asked for. A benchmark that fails does not keep the others from running.
func run(ctx context.Context, c config) error {
	chosen, err := choose(c.only)
	if err != nil {
		return err
	}
	l, err := newLab(c)
	if err != nil {
		return err
	}
	defer l.close()
	if slices.ContainsFunc(chosen, func(b benchmark) bool { return strings.HasPrefix(b.name, "catchup-") }) {
		l.sourceBrokers = 2
	}
	var failed []string
	for _, b := range chosen {
		began := time.Now()
		fmt.Printf("\n%s: %s\n", b.name, b.what)
		l.benchmark, l.round = b.name, 0
		limited, cancel := context.WithTimeout(ctx, c.patience)
		err := l.tidy(limited)
		if err == nil {
			err = b.run(limited, l)
		}
		cancel()
		l.endProcesses()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			fmt.Printf("%s FAILED: %v\n", b.name, err)
			failed = append(failed, b.name)
			continue
		}
		fmt.Printf("%s took %.0f s\n", b.name, time.Since(began).Seconds())
	}
	r := newReport(c, chosen, l.samples)
	r.print(os.Stdout)
	if err := r.write(c.json); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

func choose(only string) ([]benchmark, error) {
	all := benchmarks()
	if only == "" {
		return slices.DeleteFunc(all, func(b benchmark) bool { return !b.standard }), nil
	}
	names := strings.Split(only, ",")
	for _, name := range names {
		if !slices.ContainsFunc(all, func(b benchmark) bool { return b.name == name }) {
			return nil, fmt.Errorf("there is no benchmark %q; -h lists them", name)
		}
	}
	return slices.DeleteFunc(all, func(b benchmark) bool { return !slices.Contains(names, b.name) }), nil
}
