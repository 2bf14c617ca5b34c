package verify

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// BatchReport is the result of Batches.
type BatchReport struct {
	// Verbatim is true if every batch of the source was found as it is.
	Verbatim   bool                   `json:"verbatim"`
	Seconds    float64                `json:"seconds"`
	Sample     *SampleReport          `json:"sample,omitempty"`
	Partitions []BatchPartitionReport `json:"partitions"`
	// First are the first batches that were not.
	First []BatchDifference `json:"first"`
}

// BatchPartitionReport counts the batches of one partition: those of the source that readers see.
type BatchPartitionReport struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// Verbatim were found at the destination with the same bytes behind the header; Compressed of them are compressed.
	Verbatim   int64 `json:"verbatim"`
	Compressed int64 `json:"compressed"`
	// Rebuilt begin at the destination at the same offset with other bytes, or not at all.
	Rebuilt int64 `json:"rebuilt"`
}

// BatchDifference is a batch that was not found as it is.
type BatchDifference struct {
	Topic       string `json:"topic"`
	Partition   int32  `json:"partition"`
	Offset      int64  `json:"offset"`
	Source      string `json:"source"`
	Destination string `json:"destination"`
}

// Batches compares batches instead of records: whether each batch of the source is at the destination at the same offset
// with the same bytes behind its header, which shows that it was copied without being decompressed and built anew. A
// batch that was rebuilt may hold the same records; Run tells. Differences of the logs' ends are not looked at. Of opts,
// Wait, Sample and Progress are used as by Run.
func Batches(ctx context.Context, opts Options) (BatchReport, error) {
	started := time.Now()
	j, err := newJob(ctx, opts)
	if err != nil {
		return BatchReport{}, err
	}
	defer j.close()
	if len(j.whole) > 0 {
		d := j.whole[0]
		return BatchReport{}, fmt.Errorf("topic %s differs in its partitions: %s at the source, %s at the destination", d.Topic, d.Source, d.Destination)
	}
	reports := make([]BatchPartitionReport, len(j.tasks))
	firsts := make([][]BatchDifference, len(j.tasks))
	err = j.each(ctx, func(ctx context.Context, t *task) error {
		i := slices.Index(j.tasks, t)
		return t.compareBatches(ctx, &reports[i], &firsts[i])
	})
	r := BatchReport{Verbatim: err == nil, Partitions: reports, First: slices.Concat(firsts...), Seconds: time.Since(started).Seconds(), Sample: j.sample()}
	for i := range reports {
		r.Verbatim = r.Verbatim && reports[i].Rebuilt == 0
	}
	r.First = r.First[:min(len(r.First), j.opts.Differences)]
	return r, err
}

func (t *task) compareBatches(ctx context.Context, r *BatchPartitionReport, first *[]BatchDifference) error {
	r.Topic, r.Partition = t.report.Topic, t.report.Partition
	if _, err := t.bounds(ctx); err != nil {
		return err
	}
	from := max(t.report.Source.Start, t.report.Destination.Start, t.job.opts.From)
	to := min(t.report.Source.End, t.report.Destination.End)
	if limit := t.job.opts.To; limit > 0 {
		to = min(to, limit)
	}
	if from >= to {
		return nil
	}
	t.plan(from, to)
	return t.job.opts.Sample.each(r.Topic, r.Partition, from, to, func(s stretch) error {
		return t.compareBatchesOf(ctx, s, r, first)
	})
}

// compareBatchesOf compares the batches that begin in a stretch.
func (t *task) compareBatchesOf(ctx context.Context, within stretch, r *BatchPartitionReport, first *[]BatchDifference) error {
	from, to := within.from, within.to
	t.reached = from
	defer t.done(to)
	source := openStream(ctx, t.job.source, r.Topic, r.Partition, from, to)
	defer source.close()
	dest := openStream(ctx, t.job.dest, r.Topic, r.Partition, from, to)
	defer dest.close()
	d, err := dest.next()
	if err != nil {
		return err
	}
	for {
		s, err := source.next()
		if err != nil || s == nil {
			return err
		}
		if s.firstOffset() < from && !t.job.opts.Sample.all() {
			continue
		}
		for d != nil && d.firstOffset() < s.firstOffset() {
			if d, err = dest.next(); err != nil {
				return err
			}
		}
		t.countBatch(r, first, s, d)
	}
}

func (t *task) countBatch(r *BatchPartitionReport, first *[]BatchDifference, s, d *item) {
	if s.raw != nil {
		t.count(int64(s.header.NumRecords), s.header.NextOffset())
	}
	if d != nil && s.raw != nil && d.raw != nil && s.firstOffset() == d.firstOffset() && bytes.Equal(s.payload(), d.payload()) {
		r.Verbatim++
		if s.header.Codec() != recordbatch.None {
			r.Compressed++
		}
		return
	}
	r.Rebuilt++
	if len(*first) < t.job.opts.Differences {
		*first = append(*first, BatchDifference{r.Topic, r.Partition, s.firstOffset(), describeBatch(s), describeBatch(d)})
	}
}

func describeBatch(i *item) string {
	switch {
	case i == nil:
		return "-"
	case i.raw == nil:
		return fmt.Sprintf("old message format from offset %d", i.firstOffset())
	}
	return fmt.Sprintf("batch at %d: %d records, %s, %d bytes, crc32c %08x", i.header.BaseOffset, i.header.NumRecords, i.header.Codec(),
		len(i.payload()), crc32.Checksum(i.payload(), castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
