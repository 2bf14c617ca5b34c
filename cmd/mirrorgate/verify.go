package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/verify"
)

// verifyError ends verify with a code of its own: 1 only says that the logs differ.
type verifyError struct {
	err  error
	code int
}

func (e *verifyError) Error() string { return e.err.Error() }
func (e *verifyError) Unwrap() error { return e.err }
func (e *verifyError) ExitCode() int { return e.code }

// verifyFlags are the flags of verify.
type verifyFlags struct {
	source, destination             string
	sourceConfig, destinationConfig string
	topics                          []string
	partitions                      string
	from, to                        int64
	sample                          string
	seed                            uint64
	wait, batches, json, quiet      bool
	timeout                         time.Duration
	differences, parallel           int
}

func newVerifyCommand() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare topics of two clusters record by record",
		Long: `Verify reads topics on both clusters as a reader of committed records does, and compares offset, timestamp, key, value and
headers of every record, and where the logs start and end. The destination can be read directly or through the gateway;
the filler records that stand for offsets without a record are counted when it is read directly, and are no difference.

Exit codes: 0 equal, 1 different, 2 the comparison could not be made.`,
		Example: `  mirrorgate verify --source old-kafka:9092 --destination kafka:9092 --topics orders,payments
  mirrorgate verify --source old-kafka:9092 --destination gateway:9092 --topics orders --wait --timeout 10m
  mirrorgate verify --source old-kafka:9093 --source-config tls.properties --destination kafka:9092 --topics orders --json
  mirrorgate verify --source old-kafka:9092 --destination kafka:9092 --topics orders --partitions 0,3-5 --from 1000 --to 2000
  mirrorgate verify --source old-kafka:9092 --destination kafka:9092 --topics orders --sample 1%
  mirrorgate verify --source old-kafka:9092 --destination kafka:9092 --topics orders --batches`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runVerify(cmd, &f) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.source, "source", "", "`addresses` (host:port, with commas) of the source")
	flags.StringVar(&f.destination, "destination", "", "`addresses` of the destination, or of a gateway before it")
	flags.StringSliceVar(&f.topics, "topics", nil, "topics to compare, with a comma between `names`")
	flags.StringVar(&f.sourceConfig, "source-config", "", "properties `file` of a Kafka client, for security at the source")
	flags.StringVar(&f.destinationConfig, "destination-config", "", "the same `file` for the destination")
	flags.StringVar(&f.partitions, "partitions", "", "only these `partitions`, such as 0,3-5")
	flags.Int64Var(&f.from, "from", 0, "first `offset` to compare")
	flags.Int64Var(&f.to, "to", 0, "`offset` to stop before")
	flags.StringVar(&f.sample, "sample", "", "compare only this `part` of the offsets, such as 1%, and where the logs start and end")
	flags.Uint64Var(&f.seed, "seed", 0, "`number` that selects the sample; 0 picks one, which the report names")
	flags.BoolVar(&f.wait, "wait", false, "wait until the destination has what the source has now")
	flags.DurationVar(&f.timeout, "timeout", 0, "give up after this `time`, such as 10m")
	flags.BoolVar(&f.batches, "batches", false, "compare batches instead: were they copied without being built anew?")
	flags.IntVar(&f.differences, "differences", 10, "how many differences to show; all are counted")
	flags.IntVar(&f.parallel, "parallel", 4, "how many partitions to compare at a time")
	flags.BoolVar(&f.json, "json", false, "print the report as JSON")
	flags.BoolVar(&f.quiet, "quiet", false, "show no progress")
	return cmd
}

func runVerify(cmd *cobra.Command, f *verifyFlags) error {
	opts, err := f.options()
	if err != nil {
		return err
	}
	if !f.quiet && !f.json {
		opts.Progress = func(p verify.Progress) { showProgress(cmd.ErrOrStderr(), p) }
	}
	ctx := cmd.Context()
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("not done within --timeout %s", f.timeout))
		defer cancel()
	}
	var report interface{ WriteText(io.Writer) error }
	var different error
	if f.batches {
		var r verify.BatchReport
		r, err = verify.Batches(ctx, opts)
		report = &r
		if !r.Verbatim {
			different = errors.New("some batches were built anew")
		}
	} else {
		var r verify.Report
		r, err = verify.Run(ctx, opts)
		report = &r
		if !r.Equal {
			different = errors.New("the logs differ")
		}
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return &verifyError{err, exitUsage}
	}
	if err := writeReport(cmd.OutOrStdout(), report, f.json); err != nil {
		return &verifyError{err, exitUsage}
	}
	if different != nil {
		return &verifyError{different, exitFailure}
	}
	return nil
}

func writeReport(w io.Writer, report interface{ WriteText(io.Writer) error }, asJSON bool) error {
	if !asJSON {
		return report.WriteText(w)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(report)
}

func (f *verifyFlags) options() (verify.Options, error) {
	opts := verify.Options{
		Topics: f.topics, From: f.from, To: f.to, Wait: f.wait, Differences: f.differences, Parallel: f.parallel,
	}
	var err error
	if opts.Source, err = clusterConfig("source", f.source, f.sourceConfig); err != nil {
		return opts, err
	}
	if opts.Destination, err = clusterConfig("destination", f.destination, f.destinationConfig); err != nil {
		return opts, err
	}
	switch {
	case len(f.topics) == 0:
		return opts, usagef("--topics is missing: which topics are to be compared?")
	case f.from < 0 || f.to < 0 || f.to > 0 && f.to <= f.from:
		return opts, usagef("--from %d --to %d is no range of offsets", f.from, f.to)
	case f.differences < 1 || f.parallel < 1:
		return opts, usagef("--differences and --parallel must be 1 or more")
	}
	if opts.Sample, err = parseSample(f.sample, f.seed); err != nil {
		return opts, err
	}
	opts.Partitions, err = parsePartitions(f.partitions)
	return opts, err
}

// clusterConfig makes a connection's configuration of an address and a properties file; either may be missing if the
// file has the address.
func clusterConfig(side, address, file string) (broker.Config, error) {
	props := map[string]string{}
	if file != "" {
		read, err := broker.ReadPropertiesFile(file)
		if err != nil {
			return broker.Config{}, usagef("--%s-config: %s", side, err)
		}
		maps.Copy(props, read)
	}
	if address != "" {
		props["bootstrap.servers"] = address
	}
	if props["bootstrap.servers"] == "" {
		return broker.Config{}, usagef("--%s is missing: the address of the %s cluster", side, side)
	}
	// Other settings of a client's file do not matter here; one for security that is not understood does.
	cfg, err := broker.ParseProperties(props, func(key string) bool {
		return !slices.ContainsFunc([]string{"security.", "sasl.", "ssl."}, func(p string) bool { return strings.HasPrefix(key, p) })
	})
	if err != nil {
		return cfg, usagef("configuration of the %s: %s", side, err)
	}
	return cfg, nil
}

// parseSample reads a percentage.
func parseSample(text string, seed uint64) (verify.Sample, error) {
	if text == "" {
		if seed != 0 {
			return verify.Sample{}, usagef("--seed %d selects a sample; --sample is missing", seed)
		}
		return verify.Sample{}, nil
	}
	percent, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "%")), 64)
	if err != nil || !(percent > 0 && percent < 100) {
		return verify.Sample{}, usagef("--sample: %q is no percentage between 0%% and 100%%", text)
	}
	for seed == 0 {
		seed = uint64(rand.Uint32()) // short enough to be typed again
	}
	return verify.Sample{Part: percent / 100, Seed: seed}, nil
}

// parsePartitions reads a list such as 0,3-5; an empty one means all.
func parsePartitions(list string) ([]int32, error) {
	if list == "" {
		return nil, nil
	}
	var out []int32
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		a, errA := strconv.ParseInt(strings.TrimSpace(low), 10, 32)
		b, errB := strconv.ParseInt(strings.TrimSpace(high), 10, 32)
		if errA != nil || errB != nil || a < 0 || b < a || b-a > 1_000_000 {
			return nil, usagef("--partitions: %q is neither a partition nor a range such as 3-5", part)
		}
		for p := a; p <= b; p++ {
			out = append(out, int32(p))
		}
	}
	return out, nil
}

func showProgress(w io.Writer, p verify.Progress) {
	if p.Waiting && p.Records == 0 {
		fmt.Fprintln(w, "waiting for the destination to catch up")
		return
	}
	percent := 100.0
	if p.Offsets > 0 {
		percent = 100 * float64(p.OffsetsDone) / float64(p.Offsets)
	}
	fmt.Fprintf(w, "%3.0f %%  %d of %d partitions  %d records  %.0f records/s  %.0f MB/s\n",
		percent, p.PartitionsDone, p.Partitions, p.Records, p.RecordsPerSecond, p.BytesPerSecond/1e6)
}
