package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/mirrorgate/mirrorgate/appendlog"
	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// fakeDestination is a destination in memory that keeps the contract of appendlog, for tests of what is above it. The
// trouble that tests need is brought about by doubt, hold and refuse.
type fakeDestination struct {
	mu     sync.Mutex
	logs   map[cluster.TopicPartition]*fakePartition
	opened int
}

type fakePartition struct {
	batches [][]byte
	end     int64
	start   int64
	fence   int64 // -1: not fenced
	held    bool  // nothing is acknowledged
	log     *fakeLog
}

func newFakeDestination() *fakeDestination {
	return &fakeDestination{logs: make(map[cluster.TopicPartition]*fakePartition)}
}

// fakeLog is one opening. Its goroutine makes all calls of the handler.
type fakeLog struct {
	d      *fakeDestination
	p      *fakePartition
	h      appendlog.Handler
	calls  chan func()
	closed chan struct{}
	done   chan struct{}
	ready  bool              // guarded by d.mu
	next   int64             // guarded by d.mu
	queue  []appendlog.Batch // guarded by d.mu
}

const fakeQueue = 64

func (d *fakeDestination) open(id appendlog.Partition, _ []int64, h appendlog.Handler) destinationLog {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.partition(cluster.TopicPartition{Topic: id.Topic, Partition: id.Partition})
	if p.log != nil {
		panic("the log of " + id.Topic + " was opened twice")
	}
	d.opened++
	l := &fakeLog{d: d, p: p, h: h, calls: make(chan func(), 1000), closed: make(chan struct{}), done: make(chan struct{})}
	p.log = l
	go l.run()
	l.calls <- l.becomeReady
	return l
}

func (d *fakeDestination) partition(key cluster.TopicPartition) *fakePartition {
	p := d.logs[key]
	if p == nil {
		p = &fakePartition{fence: -1}
		d.logs[key] = p
	}
	return p
}

func (l *fakeLog) run() {
	defer close(l.done)
	for {
		select {
		case <-l.closed:
			return
		case call := <-l.calls:
			call()
		}
	}
}

func (l *fakeLog) becomeReady() {
	l.d.mu.Lock()
	fence, end := l.p.fence, l.p.end
	l.ready, l.next, l.queue = fence < 0, end, nil
	l.d.mu.Unlock()
	if fence >= 0 {
		l.h.Fenced(fence)
		return
	}
	l.h.Ready(end)
}

func (l *fakeLog) Append(b appendlog.Batch) error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	switch {
	case !l.ready:
		return appendlog.ErrNotReady
	case b.Base != l.next:
		return &appendlog.BatchError{Base: b.Base, Reason: fmt.Sprintf("the log ends at %d", l.next)}
	case len(l.queue) >= fakeQueue:
		return appendlog.ErrFull
	}
	l.next = b.Next
	l.queue = append(l.queue, b)
	if !l.p.held {
		l.calls <- l.write
	}
	return nil
}

// write takes one batch off the queue.
func (l *fakeLog) write() {
	l.d.mu.Lock()
	if len(l.queue) == 0 || !l.ready {
		l.d.mu.Unlock()
		return
	}
	b := l.store()
	l.d.mu.Unlock()
	l.h.Acked(b.Next, 1, len(b.Bytes))
}

// store puts the first batch of the queue into the log. REQUIRES: d.mu.
func (l *fakeLog) store() appendlog.Batch {
	b := l.queue[0]
	l.queue = l.queue[1:]
	stored := append([]byte(nil), b.Bytes...)
	binary.BigEndian.PutUint64(stored, uint64(b.Base)) // as a broker does
	l.p.batches = append(l.p.batches, stored)
	l.p.end = b.Next
	return b
}

func (l *fakeLog) Fence(ctx context.Context) (int64, error) {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	l.ready = false
	if l.p.fence < 0 {
		l.p.fence = l.p.end
		l.p.end++
	}
	return l.p.fence, nil
}

func (l *fakeLog) Close() {
	close(l.closed)
	<-l.done
	l.d.mu.Lock()
	l.p.log = nil
	l.d.mu.Unlock()
}

// doubt has an open log lose what is queued and all but the first keep batches of the log.
func (d *fakeDestination) doubt(key cluster.TopicPartition, keep int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.partition(key)
	p.log.ready = false
	p.batches = p.batches[:min(keep, len(p.batches))]
	p.end = 0
	for _, b := range p.batches {
		h, _ := recordbatch.ParseHeader(b)
		p.end = h.NextOffset()
	}
	l := p.log
	l.calls <- func() { l.h.Doubt(errors.New("connection reset")) }
	l.calls <- l.becomeReady
}

// fail has an open log fail.
func (d *fakeDestination) fail(key cluster.TopicPartition, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.partition(key).log
	l.ready = false
	l.calls <- func() { l.h.Failed(err) }
}

// hold stops acknowledging, or goes on.
func (d *fakeDestination) hold(key cluster.TopicPartition, held bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.partition(key)
	p.held = held
	if l := p.log; l != nil && !held {
		for range l.queue {
			l.calls <- l.write
		}
	}
}

// accept has a log that is held take one batch, and returns its size once that is acknowledged, 0 if there is none.
func (d *fakeDestination) accept(key cluster.TopicPartition) int {
	d.mu.Lock()
	l := d.partition(key).log
	if l == nil || !l.ready || len(l.queue) == 0 {
		d.mu.Unlock()
		return 0
	}
	b, done := l.store(), make(chan struct{})
	l.calls <- func() { l.h.Acked(b.Next, 1, len(b.Bytes)); close(done) }
	d.mu.Unlock()
	<-done
	return len(b.Bytes)
}

// fenceElsewhere is a stop by another gateway.
func (d *fakeDestination) fenceElsewhere(key cluster.TopicPartition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.partition(key)
	p.fence = p.end
	p.end++
}

func (d *fakeDestination) end(key cluster.TopicPartition) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.partition(key).end
}

// contents returns the records of a partition as "offset=value", and proves that batches are gapless.
func (d *fakeDestination) contents(key cluster.TopicPartition) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var records []string
	next := int64(0)
	for _, b := range d.partition(key).batches {
		h, err := recordbatch.ParseHeader(b)
		if err != nil {
			return nil, err
		}
		if h.BaseOffset != next {
			return nil, fmt.Errorf("batch at %d, expected %d", h.BaseOffset, next)
		}
		next = h.NextOffset()
		if err := recordbatch.Records(b, func(r recordbatch.Record) error {
			records = append(records, fmt.Sprintf("%d=%s", r.Offset, r.Value))
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// batch makes the fake a tails for checks.
func (d *fakeDestination) batch(context.Context, []string) (tails, error) { return d, nil }

func (d *fakeDestination) read(_ context.Context, key cluster.TopicPartition, producers []int64, end int64) (cluster.Tail, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.partition(key)
	tail := cluster.Tail{Start: p.start}
	for i := len(p.batches) - 1; i >= 0; i-- {
		h, err := recordbatch.ParseHeader(p.batches[i])
		if err != nil || h.NextOffset() > end {
			continue
		}
		if filler, _, err := tail.Take(p.batches[i], nil, h.NextOffset(), producers); err != nil || !filler {
			return tail, err
		}
	}
	return tail, nil
}

func (d *fakeDestination) trimmed(_ context.Context, _ cluster.TopicPartition, start, sourceStart int64) string {
	return fmt.Sprintf("trimmed: %d, %d at the source", start, sourceStart)
}

// prefill has the log hold n offsets.
func (d *fakeDestination) prefill(key cluster.TopicPartition, n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.partition(key)
	p.batches, p.end = append(p.batches, recordbatch.AppendFiller(nil, int(n), false, 0)), n
}

// queued returns how many batches are not acknowledged.
func (d *fakeDestination) queued(key cluster.TopicPartition) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.partition(key).log; l != nil {
		return len(l.queue)
	}
	return 0
}
