// Package verify compares two logs record by record, as a reader of committed records sees them: offset, timestamp, key,
// value and headers, and where the logs start and end. It is how a mirror is shown to be exact.
//
// All of it, a range of offsets, or a sample (sample.go).
//
// Both sides are fetched as batches. Two batches at the same offset with the same header fields and the same bytes behind
// the header hold the same records, so they are compared as bytes and not decoded: a verbatim mirror is verified at the
// speed of reading. Only where batches differ are their records decoded and compared one by one.
package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mirrorgate/mirrorgate/broker"
)

// Options say what to compare.
type Options struct {
	Source, Destination broker.Config
	// Topics have the same name on both sides.
	Topics []string
	// Partitions limits the comparison to these; nil means all.
	Partitions []int32
	// From and To limit it to offsets in [From, To); 0 and 0 mean everything. With From, the log starts are not compared,
	// with To, the ends are not.
	From, To int64
	// Sample: compare a part of the offsets only. Where the logs start and end is compared in any case.
	Sample Sample
	// Wait: wait until the destination has everything that the source had at the start, until ctx ends.
	Wait bool
	// Differences is how many differences are kept in the report, 0 means 10. All are counted.
	Differences int
	// Parallel is how many partitions are compared at the same time, 0 means 4. Each holds some MB in memory.
	Parallel int
	// Progress, if not nil, is called about once a second from one goroutine.
	Progress func(Progress)
}

// Progress is how far a comparison is.
type Progress struct {
	Partitions, PartitionsDone int
	// Offsets is how many offsets of the source there are to compare, OffsetsDone how many are done.
	Offsets, OffsetsDone int64
	Records              int64
	Bytes                int64 // fetched, both sides
	RecordsPerSecond     float64
	BytesPerSecond       float64
	// Waiting: the destination does not have everything yet (Options.Wait).
	Waiting bool
}

// Report is the result of a comparison. Its JSON form is documented in docs/verify.md.
type Report struct {
	Equal       bool    `json:"equal"`
	Differences int64   `json:"differences"`
	Records     int64   `json:"records"` // of the source that were compared
	Bytes       int64   `json:"bytes"`   // fetched, both sides
	Seconds     float64 `json:"seconds"`
	// Sample is nil if everything was compared.
	Sample     *SampleReport     `json:"sample,omitempty"`
	Partitions []PartitionReport `json:"partitions"`
	// First are the first differences, by topic, partition and offset.
	First []Difference `json:"first"`
}

// SampleReport says how much was compared, and how to compare the same again.
type SampleReport struct {
	Part    float64 `json:"part"` // that was asked for
	Seed    uint64  `json:"seed"`
	Offsets int64   `json:"offsets"` // in the sample
	Of      int64   `json:"of"`      // that both logs have
}

// Bounds are the ends of a log: that of readers of committed records, the last stable offset.
type Bounds struct {
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

// PartitionReport is the result for one partition.
type PartitionReport struct {
	Topic       string `json:"topic"`
	Partition   int32  `json:"partition"`
	Source      Bounds `json:"source"`
	Destination Bounds `json:"destination"`
	Records     int64  `json:"records"`
	// Compared is the number of the source's offsets that were compared, with or without a record.
	Compared int64 `json:"compared"`
	// Fillers counts the filler records that the destination has in the place of offsets without a record, which are seen
	// only when it is read directly and not through the gateway. They are no difference; nor is a fence at the end.
	Fillers int64 `json:"fillers"`
	// Retyped counts the records whose timestamp was given by the source's broker (LogAppendTime) and is kept at the
	// destination as an ordinary one (CreateTime), for no producer can set the type. They are no difference.
	Retyped int64 `json:"retyped"`
	// Trimmed counts the records that one side removed (retention) while they were compared.
	Trimmed     int64 `json:"trimmed"`
	Differences int64 `json:"differences"`
}

// What a Difference is about.
const (
	FieldTopic      = "topic"      // missing on one side
	FieldPartitions = "partitions" // their number
	FieldStart      = "start"      // the log's start offset
	FieldEnd        = "end"        // the log's end
	FieldRecord     = "record"     // missing on one side
	FieldTimestamp  = "timestamp"
	FieldType       = "timestamp type"
	FieldKey        = "key"
	FieldValue      = "value"
	FieldHeaders    = "headers"
)

// Difference is one difference. Source and Destination are shortened texts of what is there; "-" is nothing.
type Difference struct {
	Topic       string `json:"topic"`
	Partition   int32  `json:"partition"` // -1 for those of a whole topic
	Offset      int64  `json:"offset"`    // -1 for those that have none
	Field       string `json:"field"`
	Source      string `json:"source"`
	Destination string `json:"destination"`
}

// Run compares. Differences are in the report; an error means that the comparison could not be made or finished.
func Run(ctx context.Context, opts Options) (Report, error) {
	started := time.Now()
	j, err := newJob(ctx, opts)
	if err != nil {
		return Report{}, err
	}
	defer j.close()
	err = j.each(ctx, func(ctx context.Context, t *task) error { return t.compare(ctx) })
	r := j.report()
	r.Seconds = time.Since(started).Seconds()
	return r, err
}

// job is one run over all partitions.
type job struct {
	opts       Options
	source     *side
	dest       *side
	tasks      []*task
	whole      []Difference // those of topics
	done       atomic.Int64
	waiting    atomic.Int64
	records    atomic.Int64
	offsets    atomic.Int64
	offsetsAll atomic.Int64
}

// task is one partition. Its counters belong to the goroutine that works on it until that is done.
type task struct {
	job     *job
	report  PartitionReport
	first   []Difference
	reached int64 // the offset up to which progress was counted
}

func newJob(ctx context.Context, opts Options) (*job, error) {
	if len(opts.Topics) == 0 {
		return nil, errors.New("no topics to compare")
	}
	if opts.From < 0 || opts.To < 0 || (opts.To > 0 && opts.To <= opts.From) {
		return nil, fmt.Errorf("the range of offsets %d to %d is empty", opts.From, opts.To)
	}
	if err := opts.Sample.check(); err != nil {
		return nil, err
	}
	if opts.Differences == 0 {
		opts.Differences = 10
	}
	if opts.Parallel <= 0 {
		opts.Parallel = 4
	}
	j := &job{opts: opts}
	var err error
	if j.source, err = openSide(ctx, "source", opts.Source, opts.Topics); err != nil {
		return nil, err
	}
	if j.dest, err = openSide(ctx, "destination", opts.Destination, opts.Topics); err != nil {
		j.source.close()
		return nil, err
	}
	j.dest.mirror = true
	if err := j.plan(); err != nil {
		j.close()
		return nil, err
	}
	return j, nil
}

func (j *job) close() {
	j.source.close()
	j.dest.close()
}

// plan makes a task of every partition that both sides have; topics and partitions that only one has are differences.
func (j *job) plan() error {
	for _, topic := range slices.Compact(slices.Sorted(slices.Values(j.opts.Topics))) {
		have, want := j.dest.partitions(topic), j.source.partitions(topic)
		switch {
		case have == 0 && want == 0:
			return fmt.Errorf("topic %s is on neither side", topic)
		case have == 0 || want == 0:
			j.whole = append(j.whole, Difference{topic, -1, -1, FieldTopic, presence(want), presence(have)})
			continue
		case have != want:
			j.whole = append(j.whole, Difference{topic, -1, -1, FieldPartitions, fmt.Sprint(want), fmt.Sprint(have)})
		}
		for p := range min(have, want) {
			if j.opts.Partitions == nil || slices.Contains(j.opts.Partitions, p) {
				j.tasks = append(j.tasks, &task{job: j, report: PartitionReport{Topic: topic, Partition: p}})
			}
		}
		for _, p := range j.opts.Partitions {
			if p < 0 || p >= max(have, want) {
				return fmt.Errorf("topic %s has no partition %d", topic, p)
			}
		}
	}
	return nil
}

func presence(partitions int32) string {
	if partitions == 0 {
		return "-"
	}
	return fmt.Sprintf("%d partitions", partitions)
}

// each works on all tasks, some at a time, and shows progress meanwhile.
func (j *job) each(ctx context.Context, do func(context.Context, *task) error) error {
	progressCtx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { j.showProgress(progressCtx) })
	defer wg.Wait()
	defer stop()

	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(j.opts.Parallel)
	for _, t := range j.tasks {
		g.Go(func() error {
			if err := do(ctx, t); err != nil {
				return fmt.Errorf("topic %s partition %d: %w", t.report.Topic, t.report.Partition, err)
			}
			j.done.Add(1)
			return nil
		})
	}
	return g.Wait()
}

func (j *job) showProgress(ctx context.Context) {
	if j.opts.Progress == nil {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	lastRecords, lastBytes, last := int64(0), int64(0), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, records, bytes := time.Now(), j.records.Load(), j.bytes()
		seconds := now.Sub(last).Seconds()
		j.opts.Progress(Progress{
			Partitions: len(j.tasks), PartitionsDone: int(j.done.Load()),
			Offsets: j.offsetsAll.Load(), OffsetsDone: j.offsets.Load(), Records: records, Bytes: bytes,
			RecordsPerSecond: float64(records-lastRecords) / seconds, BytesPerSecond: float64(bytes-lastBytes) / seconds,
			Waiting: j.waiting.Load() > 0,
		})
		lastRecords, lastBytes, last = records, bytes, now
	}
}

func (j *job) bytes() int64 { return j.source.bytes.Load() + j.dest.bytes.Load() }

func (j *job) report() Report {
	r := Report{Records: j.records.Load(), Bytes: j.bytes(), First: slices.Clone(j.whole), Differences: int64(len(j.whole))}
	r.Partitions = make([]PartitionReport, 0, len(j.tasks))
	for _, t := range j.tasks {
		r.Partitions = append(r.Partitions, t.report)
		r.Differences += t.report.Differences
		r.First = append(r.First, t.first...)
	}
	slices.SortStableFunc(r.First, func(a, b Difference) int { return compareDifferences(a, b) })
	r.First = r.First[:min(len(r.First), j.opts.Differences)]
	r.Equal = r.Differences == 0
	r.Sample = j.sample()
	return r
}

func (j *job) sample() *SampleReport {
	if j.opts.Sample.all() {
		return nil
	}
	s := &SampleReport{Part: j.opts.Sample.Part, Seed: j.opts.Sample.Seed}
	for _, t := range j.tasks {
		s.Offsets += t.report.Compared
		s.Of += t.common()
	}
	return s
}

// common is the number of offsets that both logs have, of those that are to be compared.
func (t *task) common() int64 {
	from, to := max(t.report.Source.Start, t.report.Destination.Start, t.job.opts.From), min(t.report.Source.End, t.report.Destination.End)
	if limit := t.job.opts.To; limit > 0 {
		to = min(to, limit)
	}
	return max(0, to-from)
}
