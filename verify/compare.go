package verify

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// record is a decoded record; null and empty are nil and not nil.
type record struct {
	offset    int64
	timestamp int64
	append    bool // the timestamp was given by the broker
	key       []byte
	value     []byte
	headers   []recordbatch.RecordHeader
}

// compare compares the task's partition.
func (t *task) compare(ctx context.Context) error {
	target, err := t.bounds(ctx)
	if err != nil {
		return err
	}
	t.compareBounds(target)
	r := &t.report
	from := max(r.Source.Start, r.Destination.Start, t.job.opts.From)
	to := r.Destination.End
	if limit := t.job.opts.To; limit > 0 {
		to = min(to, limit)
	}
	// What the destination does not have yet is in the difference of the ends, not one by one. What it has beyond the
	// source's end is looked at: a fence there is no difference.
	sourceTo := min(to, r.Source.End)
	if from >= to {
		return nil
	}
	t.plan(from, sourceTo)
	return t.job.opts.Sample.each(r.Topic, r.Partition, from, to, func(s stretch) error {
		return t.compareStretch(ctx, s.from, min(s.to, max(s.from, sourceTo)), s.to)
	})
}

// compareStretch compares the source's [from, sourceTo) with the destination's [from, to).
func (t *task) compareStretch(ctx context.Context, from, sourceTo, to int64) error {
	r := &t.report
	source := cursor{stream: openStream(ctx, t.job.source, r.Topic, r.Partition, from, sourceTo)}
	defer source.stream.close()
	dest := cursor{stream: openStream(ctx, t.job.dest, r.Topic, r.Partition, from, to)}
	defer dest.stream.close()
	t.reached = from
	err := t.merge(&source, &dest)
	r.Fillers += dest.stream.fillers
	t.done(min(to, sourceTo))
	return err
}

// plan counts how many offsets there are to compare.
func (t *task) plan(from, to int64) {
	t.report.Compared = t.job.opts.Sample.size(t.report.Topic, t.report.Partition, from, to)
	t.job.offsetsAll.Add(t.report.Compared)
}

// bounds reads where both logs start and end, waiting for the destination where that is wanted. target is the end that
// the destination must have. The destination is read first: on a live mirror it then cannot seem to be ahead.
func (t *task) bounds(ctx context.Context) (target int64, err error) {
	r := &t.report
	if t.job.opts.Wait {
		b, err := t.job.source.bounds(ctx, r.Topic, r.Partition)
		if err != nil {
			return 0, err
		}
		target = b.End
	}
	if r.Destination, err = t.awaitDestination(ctx, target); err != nil {
		return 0, err
	}
	if r.Source, err = t.job.source.bounds(ctx, r.Topic, r.Partition); err != nil {
		return 0, err
	}
	if !t.job.opts.Wait {
		target = r.Source.End
	}
	return target, nil
}

func (t *task) awaitDestination(ctx context.Context, target int64) (Bounds, error) {
	t.job.waiting.Add(1)
	defer t.job.waiting.Add(-1)
	if limit := t.job.opts.To; limit > 0 {
		target = min(target, limit)
	}
	for wait := firstBackoff; ; wait = min(2*wait, time.Second) {
		b, err := t.job.dest.bounds(ctx, t.report.Topic, t.report.Partition)
		if err != nil || b.End >= target {
			return b, err
		}
		if err := sleep(ctx, wait); err != nil {
			return b, fmt.Errorf("waiting for the destination, which is at offset %d of %d: %w", b.End, target, err)
		}
	}
}

func (t *task) compareBounds(target int64) {
	r, opts := &t.report, &t.job.opts
	if opts.From == 0 && r.Source.Start != r.Destination.Start {
		t.differ(-1, FieldStart, strconv.FormatInt(r.Source.Start, 10), strconv.FormatInt(r.Destination.Start, 10))
	}
	if opts.To == 0 && r.Destination.End < target {
		t.differ(-1, FieldEnd, strconv.FormatInt(target, 10), strconv.FormatInt(r.Destination.End, 10))
	}
	if opts.To > 0 && r.Destination.End < min(opts.To, target) {
		t.differ(-1, FieldEnd, strconv.FormatInt(min(opts.To, target), 10), strconv.FormatInt(r.Destination.End, 10))
	}
}

func (t *task) differ(offset int64, field, source, destination string) {
	t.report.Differences++
	if len(t.first) < t.job.opts.Differences {
		t.first = append(t.first, Difference{t.report.Topic, t.report.Partition, offset, field, source, destination})
	}
}

// cursor walks over a stream by batch or by record.
type cursor struct {
	stream *stream
	batch  *item // not decoded yet; nil if records are, or at the end
	queue  []record
	buffer []record // behind queue and arena, used again by each decode
	arena  []byte
	ended  bool
}

// fill makes sure that the cursor stands on a batch or a record, unless it is at the end.
func (c *cursor) fill() (err error) {
	if c.ended || c.batch != nil || len(c.queue) > 0 {
		return nil
	}
	c.batch, err = c.stream.next()
	c.ended = c.batch == nil
	return err
}

// decode turns the batch into records, those within the stream's range.
func (c *cursor) decode() error {
	b := c.batch
	c.batch = nil
	c.buffer, c.arena = c.buffer[:0], c.arena[:0]
	if b.raw == nil {
		c.queue = slices.DeleteFunc(b.old, func(r record) bool { return r.offset < c.stream.from || r.offset >= c.stream.to })
		return nil
	}
	err := recordbatch.Records(b.raw, func(r recordbatch.Record) error {
		if r.Offset < c.stream.from || r.Offset >= c.stream.to {
			return nil
		}
		own := record{offset: r.Offset, timestamp: r.Timestamp, append: b.header.LogAppendTime(), key: c.keep(r.Key), value: c.keep(r.Value)}
		if len(r.Headers) > 0 {
			own.headers = make([]recordbatch.RecordHeader, len(r.Headers))
			for i, h := range r.Headers {
				own.headers[i] = recordbatch.RecordHeader{Key: c.keep(h.Key), Value: c.keep(h.Value)}
			}
		}
		c.buffer = append(c.buffer, own)
		return nil
	})
	c.queue = c.buffer
	return err
}

// keep copies bytes that are only valid during a call; nil stays nil. Slices handed out stay valid when the arena grows
// (they keep the old one), until decode uses it again.
func (c *cursor) keep(b []byte) []byte {
	switch {
	case b == nil:
		return nil
	case len(b) == 0:
		return []byte{} // which a slice of an arena that holds nothing yet would not be
	}
	n := len(c.arena)
	c.arena = append(c.arena, b...)
	return c.arena[n:len(c.arena):len(c.arena)]
}

// merge walks over both sides in the order of offsets.
func (t *task) merge(source, dest *cursor) error {
	for {
		if err := source.fill(); err != nil {
			return err
		}
		if err := dest.fill(); err != nil {
			return err
		}
		if source.ended && dest.ended {
			return nil
		}
		if source.batch != nil && dest.batch != nil && sameBatch(source, dest) {
			t.count(int64(source.batch.header.NumRecords), source.batch.header.NextOffset())
			source.batch, dest.batch = nil, nil
			continue
		}
		decoded := false
		for _, c := range []*cursor{source, dest} {
			if c.batch != nil {
				if err := c.decode(); err != nil {
					return fmt.Errorf("reading the %s: %w", c.stream.side.name, err)
				}
				decoded = true
			}
		}
		if !decoded || (len(source.queue) > 0 && len(dest.queue) > 0) {
			t.mergeRecords(source, dest)
		}
	}
}

// mergeRecords takes records off the queues until one is empty, whose cursor may have more; all of them if the other
// cursor is at its end.
func (t *task) mergeRecords(source, dest *cursor) {
	for {
		s, d := source.queue, dest.queue
		switch {
		case len(s) > 0 && len(d) > 0 && s[0].offset == d[0].offset:
			t.compareRecord(&s[0], &d[0])
			t.count(1, s[0].offset+1)
			source.queue, dest.queue = s[1:], d[1:]
		case len(s) > 0 && (len(d) > 0 && s[0].offset < d[0].offset || len(d) == 0 && dest.ended):
			t.onlyOne(&s[0], dest, describe(&s[0]), "-")
			t.count(1, s[0].offset+1)
			source.queue = s[1:]
		case len(d) > 0 && (len(s) > 0 || source.ended):
			t.onlyOne(&d[0], source, "-", describe(&d[0]))
			dest.queue = d[1:]
		default:
			return
		}
	}
}

// onlyOne is a record that the other side does not have. If that side's log starts behind it by now, retention has
// taken it while we read.
func (t *task) onlyOne(r *record, other *cursor, source, destination string) {
	if r.offset < other.stream.start.Load() {
		t.report.Trimmed++
		return
	}
	t.differ(r.offset, FieldRecord, source, destination)
}

func (t *task) count(records, next int64) {
	t.report.Records += records
	t.job.records.Add(records)
	t.done(next)
}

// done counts the offsets below next.
func (t *task) done(next int64) {
	t.job.offsets.Add(max(0, next-t.reached))
	t.reached = max(t.reached, next)
}

// sameBatch reports whether both cursors stand on batches that hold the same records for sure, within the range.
func sameBatch(source, dest *cursor) bool {
	s, d := source.batch, dest.batch
	if s.raw == nil || d.raw == nil {
		return false
	}
	a, b := &s.header, &d.header
	return a.BaseOffset == b.BaseOffset && a.LastOffsetDelta == b.LastOffsetDelta && a.NumRecords == b.NumRecords &&
		a.Codec() == b.Codec() && a.LogAppendTime() == b.LogAppendTime() && a.BaseTimestamp == b.BaseTimestamp &&
		(!a.LogAppendTime() || a.MaxTimestamp == b.MaxTimestamp) &&
		a.BaseOffset >= source.stream.from && a.NextOffset() <= source.stream.to && bytes.Equal(s.payload(), d.payload())
}

func (t *task) compareRecord(s, d *record) {
	if s.timestamp != d.timestamp {
		t.differ(s.offset, FieldTimestamp, strconv.FormatInt(s.timestamp, 10), strconv.FormatInt(d.timestamp, 10))
	}
	switch {
	case s.append && !d.append:
		t.report.Retyped++
	case !s.append && d.append:
		t.differ(s.offset, FieldType, "CreateTime", "LogAppendTime")
	}
	if !equal(s.key, d.key) {
		t.differ(s.offset, FieldKey, shorten(s.key), shorten(d.key))
	}
	if !equal(s.value, d.value) {
		t.differ(s.offset, FieldValue, shorten(s.value), shorten(d.value))
	}
	if !slices.EqualFunc(s.headers, d.headers, func(a, b recordbatch.RecordHeader) bool {
		return bytes.Equal(a.Key, b.Key) && equal(a.Value, b.Value)
	}) {
		t.differ(s.offset, FieldHeaders, describeHeaders(s.headers), describeHeaders(d.headers))
	}
}

// equal keeps null and empty apart.
func equal(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// shorten makes a text of at most some 60 characters; where it is cut, the length follows.
func shorten(b []byte) string {
	const most = 40
	if b == nil {
		return "null"
	}
	if len(b) <= most {
		return strconv.Quote(string(b))
	}
	return fmt.Sprintf("%q… (%d bytes)", b[:most], len(b))
}

func describe(r *record) string {
	return fmt.Sprintf("key %s, value %s", shorten(r.key), shorten(r.value))
}

func describeHeaders(headers []recordbatch.RecordHeader) string {
	if len(headers) == 0 {
		return "none"
	}
	parts := make([]string, 0, 4)
	for i, h := range headers {
		if i == 3 {
			parts = append(parts, fmt.Sprintf("… (%d headers)", len(headers)))
			break
		}
		parts = append(parts, string(h.Key)+"="+shorten(h.Value))
	}
	return strings.Join(parts, " ")
}

func compareDifferences(a, b Difference) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}
