package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// stream reads a stretch of one partition, as the batches that a reader of committed records sees, fillers taken out.
// A goroutine fetches ahead; close ends it.
type stream struct {
	side      *side
	topic     string
	partition int32
	from, to  int64
	start     atomic.Int64 // the log's start, as last heard
	fillers   int64

	fetched chan fetched
	cancel  context.CancelFunc
	items   []item
}

type fetched struct {
	items   []item
	fillers int64
	err     error
}

// item is a batch that readers see, or the decoded records of messages of an old format.
type item struct {
	header recordbatch.Header
	raw    []byte // whole batch; nil for old formats
	old    []record
}

func (i *item) firstOffset() int64 {
	if i.raw == nil {
		return i.old[0].offset
	}
	return i.header.BaseOffset
}

// payload is what is behind the batch's header: the records, compressed or not.
func (i *item) payload() []byte { return i.raw[recordbatch.HeaderSize:] }

// openStream reads offsets in [from, to).
func openStream(ctx context.Context, s *side, topic string, partition int32, from, to int64) *stream {
	ctx, cancel := context.WithCancel(ctx)
	st := &stream{
		side: s, topic: topic, partition: partition, from: from, to: to,
		fetched: make(chan fetched, 1), cancel: cancel,
	}
	go st.read(ctx)
	return st
}

// close ends the reading goroutine and waits for it.
func (s *stream) close() {
	s.cancel()
	for range s.fetched {
	}
}

// next returns the next batch, nil at the end.
func (s *stream) next() (*item, error) {
	for len(s.items) == 0 {
		f, ok := <-s.fetched
		if !ok {
			return nil, nil
		}
		if f.err != nil {
			return nil, f.err
		}
		s.fillers += f.fillers
		s.items = f.items
	}
	it := &s.items[0]
	s.items = s.items[1:]
	return it, nil
}

func (s *stream) read(ctx context.Context) {
	defer close(s.fetched)
	for at := s.from; at < s.to; {
		var rp *kmsg.FetchResponseTopicPartition
		err := s.side.retry(ctx, "reading", func() (err error) {
			rp, err = s.side.fetch(ctx, s.topic, s.partition, at)
			if errors.Is(err, kerr.OffsetOutOfRange) {
				return nil
			}
			return err
		})
		var f fetched
		if err == nil {
			f, at, err = s.take(ctx, rp, at)
		}
		f.err = err
		select {
		case s.fetched <- f:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// take turns a fetch response into items and returns where to go on.
func (s *stream) take(ctx context.Context, rp *kmsg.FetchResponseTopicPartition, at int64) (fetched, int64, error) {
	if rp.ErrorCode == kerr.OffsetOutOfRange.Code {
		b, err := s.side.bounds(ctx, s.topic, s.partition)
		if err == nil && b.Start <= at {
			err = fmt.Errorf("the %s lost its records from offset %d on", s.side.name, at)
		}
		s.start.Store(b.Start)
		return fetched{}, b.Start, err
	}
	s.start.Store(max(s.start.Load(), rp.LogStartOffset))
	if len(rp.RecordBatches) == 0 {
		if rp.HighWatermark < s.to { // a new leader may not know it yet
			return fetched{}, at, sleep(ctx, firstBackoff)
		}
		return fetched{}, s.to, nil // nothing is left up to the end: removed by the cleaner
	}
	f, next, err := s.split(rp, at)
	if err == nil && next <= at {
		err = fmt.Errorf("a fetch of the %s at offset %d brings nothing of use", s.side.name, at)
	}
	return f, next, err
}

// split cuts a response into batches and leaves out what readers do not see.
func (s *stream) split(rp *kmsg.FetchResponseTopicPartition, at int64) (f fetched, next int64, err error) {
	aborted := newAborted(rp.AbortedTransactions)
	next = at
	for rest := rp.RecordBatches; len(rest) > 0; {
		var batch []byte
		before := rest
		if batch, rest, err = recordbatch.Next(rest); err != nil {
			if errors.Is(err, recordbatch.ErrPartial) && next > at {
				return f, next, nil // the broker cut the last one off
			}
			return f, next, err
		}
		h, err := recordbatch.ParseHeader(batch)
		if errors.Is(err, recordbatch.ErrOldFormat) {
			if rest, err = s.splitOld(before, &f, &next); err != nil {
				return f, next, err
			}
			continue
		}
		if err == nil {
			err = recordbatch.CheckCRC(batch)
		}
		if err != nil {
			return f, next, err
		}
		next = max(next, h.NextOffset())
		switch {
		case aborted.hides(batch, h), h.NumRecords == 0, h.NextOffset() <= s.from, h.BaseOffset >= s.to:
		case s.side.mirror && recordbatch.IsFiller(batch, func(id int64) bool { return id >= 0 }):
			f.fillers += int64(h.NumRecords)
		default:
			f.items = append(f.items, item{header: h, raw: batch})
		}
	}
	return f, next, nil
}

// splitOld decodes the messages of formats v0 and v1 that b begins with, and returns what is behind them. Those formats
// know no transactions and no fillers. NB: not with kgo, which gives the records inside a LogAppendTime message the times
// of their producer, where Kafka's own readers see that of the message.
func (s *stream) splitOld(b []byte, f *fetched, at *int64) (rest []byte, err error) {
	it := item{}
	for rest = b; len(rest) > 0; {
		message, behind, err := recordbatch.Next(rest)
		if err != nil {
			break // cut off, or for the next one to find
		}
		h, err := recordbatch.ParseHeader(message)
		if !errors.Is(err, recordbatch.ErrOldFormat) {
			break
		}
		rest = behind
		err = recordbatch.OldRecords(message, func(r recordbatch.Record) error {
			it.old = append(it.old, record{
				offset: r.Offset, timestamp: r.Timestamp, append: h.LogAppendTime(), key: bytes.Clone(r.Key), value: bytes.Clone(r.Value),
			})
			return nil
		})
		if err != nil {
			return rest, err
		}
		*at = max(*at, h.NextOffset())
	}
	if len(it.old) > 0 {
		f.items = append(f.items, it)
	}
	return rest, nil
}

// aborted tells the batches of aborted transactions, from the list that comes with a response.
type aborted struct {
	coming []kmsg.FetchResponseTopicPartitionAbortedTransaction // by first offset
	now    map[int64]bool                                       // producers whose batches are aborted at this place
}

func newAborted(list []kmsg.FetchResponseTopicPartitionAbortedTransaction) *aborted {
	a := &aborted{coming: slices.Clone(list), now: map[int64]bool{}}
	slices.SortFunc(a.coming, func(x, y kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return int(min(1, max(-1, x.FirstOffset-y.FirstOffset)))
	})
	return a
}

// hides reports whether readers do not see the batch: it is a marker, or part of an aborted transaction.
func (a *aborted) hides(batch []byte, h recordbatch.Header) bool {
	for len(a.coming) > 0 && a.coming[0].FirstOffset <= h.LastOffset() {
		a.now[a.coming[0].ProducerID] = true
		a.coming = a.coming[1:]
	}
	if h.Control() {
		if isAbort(batch) {
			delete(a.now, h.ProducerID)
		}
		return true
	}
	return h.Transactional() && a.now[h.ProducerID]
}

// isAbort reports whether a control batch is an ABORT marker: its record's key is version (int16) and type (int16), 0.
func isAbort(batch []byte) bool {
	abort := false
	_ = recordbatch.Records(batch, func(r recordbatch.Record) error {
		abort = len(r.Key) >= 4 && binary.BigEndian.Uint16(r.Key[2:]) == 0
		return nil
	})
	return abort
}
