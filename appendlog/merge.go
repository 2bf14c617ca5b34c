package appendlog

import (
	"bytes"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// Merging. Five batches of a partition are in flight at most, so small ones make a slow partition: with a producer that
// does not linger, every record is a batch, and over 100 ms a partition gets 50 batches a second through, whatever is in
// them. So when more batches wait than the window has room for, the writer makes one of them as it comes to send them.
// While there is room, each goes out at once and as it is.
//
// Merged batches are batches like any other to core and broker. Only their borders are of this gateway's making: another
// one, or this one after a restart, may draw them differently at the same offsets. A repetition with other borders is
// either not the broker's next sequence, and refused, or it is, and then nothing of it is in the log. In no case does a
// part of it count as a duplicate, as a broker compares first and last sequence.
//
// Merging takes time: for compressed batches much more than sending them. So it has to pay. The measure is pace, the
// time per batch that the connection takes with a full window: batches are merged so far as it takes for the connection
// to move mergeRates of source bytes per second, and not at all if it moves nearly as much without that. A connection on
// which many partitions share the round trips, or a broker that is busy, therefore gets compressed batches as they are.
var mergeRates = [...]struct {
	// perSecond is what the connection should move, in bytes: what merging can do with a part of one processor.
	perSecond float64
	// least is how many batches of the size of the first there must be to one.
	least int
}{
	recordbatch.None:   {256 << 20, 2},
	recordbatch.Gzip:   {4 << 20, 8},
	recordbatch.Snappy: {64 << 20, 8},
	recordbatch.LZ4:    {64 << 20, 8},
	recordbatch.Zstd:   {16 << 20, 8},
}

// mergeMemory bounds the bytes of merged batches of a Client, which come on top of those that they were made of.
const mergeMemory = 32 << 20

// mergeSize returns up to what size batches like the first should be merged; 0 if they should not.
func mergeSize(first []byte, pace time.Duration, limit int) int {
	h, err := recordbatch.ParseHeader(first)
	if err != nil || int(h.Codec()) >= len(mergeRates) {
		return 0
	}
	rate := mergeRates[h.Codec()]
	size := int(min(float64(limit), rate.perSecond*pace.Seconds()))
	if size < rate.least*len(first) {
		return 0
	}
	return size
}

// crowded reports whether more is queued than there is room for in the window.
func (c *core) crowded() bool {
	room := c.maxInFlight
	if c.state == probing {
		room = 1
	}
	return c.queue.len() > room
}

// mergeable appends to dst the batches, size bytes at most, that might be sent as one. It is none if it would be one.
func (c *core) mergeable(dst []Batch, size int) []Batch {
	for i := c.sent; i < c.queue.len(); i++ {
		b := c.queue.at(i)
		if size -= len(b.Bytes); size < 0 || b.Bulk || b.sources > 0 {
			break
		}
		dst = append(dst, b)
	}
	if len(dst) < 2 {
		return dst[:0]
	}
	return dst
}

// merge puts bytes, which hold the records of run, in the place of these batches.
func (c *core) merge(run []Batch, bytes []byte) {
	b := Batch{Bytes: bytes, Base: run[0].Base, Next: run[len(run)-1].Next, sources: len(run)}
	for _, source := range run {
		b.sourceBytes += len(source.Bytes)
	}
	c.queue.merge(c.sent, len(run), b)
}

// unmerge: what a broker has against a merged batch, it may not have against what that was made of (max.message.bytes or
// segment.bytes were lowered); and if it has, the answer should name the right one. So these are sent as they are.
func (c *core) unmerge(o outcome, b Batch) outcome {
	if b.sources == 0 || o.kind != rejected && !errors.Is(o.err, kerr.CorruptMessage) {
		return o
	}
	c.plainUntil = b.Next
	c.p.MergeBytes = len(b.Bytes) / 2
	return outcome{kind: doubtful, err: o.err}
}

// merge makes one batch of those that wait for a round trip. It runs on the writer, without a lock while it works.
func (l *Log) merge(w *writer) {
	run, limit, drops := l.mergeRun(w)
	if len(run) == 0 {
		return
	}
	merged, n := w.merge(run, limit)
	defer clear(run)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed || l.core.drops != drops || !l.core.canSend():
		return // nothing of it is queued any more
	case n < 2:
		l.core.plainUntil = run[0].Next
	case len(merged) > limit: // compressed ones may grow
		l.core.plainUntil = run[n-1].Next
	default:
		l.core.merge(run[:n], merged)
		l.countMerged()
		l.client.cfg.Metrics.merged.Add(float64(n))
	}
}

// mergeRun returns what is to be merged, in memory of the writer, and up to what size.
func (l *Log) mergeRun(w *writer) (run []Batch, limit, drops int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.core
	if c.p.MergeBytes == 0 || l.closed || l.w != w || l.fence != nil || !c.canSend() || !c.crowded() {
		return nil, 0, 0
	}
	first := c.peekSend()
	if first.Base < c.plainUntil || first.sources > 0 {
		return nil, 0, 0
	}
	size := mergeSize(first.Bytes, w.pace(), c.p.MergeBytes)
	if l.client.merged.Load()+int64(size) > mergeMemory {
		return nil, 0, 0
	}
	w.source = c.mergeable(w.source[:0], size)
	return w.source, c.p.MergeBytes, c.drops
}

// countMerged keeps the Client's sum of merged bytes. REQUIRES: mu.
func (l *Log) countMerged() {
	if now := l.core.queue.merged; now != l.merged {
		l.client.merged.Add(int64(now - l.merged))
		l.merged = now
	}
}

// merge joins as many batches of the run as it can and returns what comes of n. The bytes are new ones.
func (w *writer) merge(run []Batch, limit int) (merged []byte, n int) {
	m := &w.merger
	m.MaxBytes = limit
	m.Reset()
	defer m.Reset()
	for _, b := range run {
		recordbatch.Rebase(b.Bytes, b.Base)
		taken, err := m.Add(b.Bytes)
		if err != nil || !taken {
			break // damaged ones are for the broker to judge
		}
	}
	if m.Batches < 2 {
		return nil, m.Batches
	}
	batch, err := m.Batch()
	if err != nil {
		return nil, 0
	}
	return bytes.Clone(batch), m.Batches
}

// pace is how long the broker takes for a batch while the windows are full, on the average of late; 0 if not known.
func (w *writer) pace() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.batches == 0 {
		return 0
	}
	return time.Duration(w.roundTrip / w.batches / float64(min(w.client.cfg.MaxInFlight, w.client.cfg.MaxRequests)))
}

// measure takes a request that was answered. REQUIRES: w.mu.
func (w *writer) measure(took time.Duration, batches int) {
	if w.batches == 0 {
		w.roundTrip, w.batches = float64(took), float64(batches)
		return
	}
	const share = 1. / 8
	w.roundTrip += share * (float64(took) - w.roundTrip)
	w.batches += share * (float64(batches) - w.batches)
}
