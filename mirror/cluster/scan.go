package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// Scan reads what a reader with read_committed would get of [from, to) of a partition, in order.
type Scan struct {
	Client    *kgo.Client
	Partition TopicPartition
	From, To  int64
	// IsFiller tells batches that readers do not see; nil: none.
	IsFiller func(batch []byte) bool
}

const (
	scanBytes = 1 << 20 // of one fetch
	// emptyAnswers in a row, at a position below the high watermark and the last stable offset, say that nothing is left there:
	// the cleaner emptied the end of the log.
	emptyAnswers = 5
	scanWaitMs   = 200
)

var errScanEnd = errors.New("the reader wants no more")

// Records yields the records, or an error as the last thing. A record is valid until the next one.
func (s Scan) Records(ctx context.Context) iter.Seq2[recordbatch.Record, error] {
	return func(yield func(recordbatch.Record, error) bool) {
		var aborted AbortedTransactions
		empty := 0
		for position := s.From; position < s.To; {
			got, err := s.fetch(ctx, position)
			if err != nil {
				yield(recordbatch.Record{}, err)
				return
			}
			aborted.Begin(got.AbortedTransactions)
			next, err := s.read(got.RecordBatches, position, &aborted, yield)
			switch {
			case errors.Is(err, errScanEnd):
				return
			case err == nil && next == position:
				if empty++; empty == emptyAnswers {
					err = s.nothingLeft(got, position)
					next = s.To
				}
			default:
				empty = 0
			}
			if err != nil {
				yield(recordbatch.Record{}, err)
				return
			}
			position = next
		}
	}
}

// read yields the records of an answer and returns the position behind it.
func (s Scan) read(data []byte, position int64, aborted *AbortedTransactions, yield func(recordbatch.Record, error) bool) (int64, error) {
	next := position
	for len(data) > 0 && next < s.To {
		batch, rest, err := recordbatch.Next(data)
		if errors.Is(err, recordbatch.ErrPartial) {
			break
		}
		var h recordbatch.Header
		if err == nil {
			h, err = recordbatch.ParseHeader(batch)
		}
		if err != nil && !errors.Is(err, recordbatch.ErrOldFormat) {
			return next, fmt.Errorf("%s-%d at offset %d: %w", s.Partition.Topic, s.Partition.Partition, next, err)
		}
		data = rest
		hidden := h.Magic == 2 && (aborted.Covers(h) || h.Control() || s.IsFiller != nil && s.IsFiller(batch))
		if h.NextOffset() <= position {
			continue
		}
		if !hidden {
			if err := s.readBatch(h, batch, position, yield); err != nil {
				return next, err
			}
		}
		next = max(next, h.NextOffset())
	}
	return next, nil
}

func (s Scan) readBatch(h recordbatch.Header, batch []byte, position int64, yield func(recordbatch.Record, error) bool) error {
	each := func(r recordbatch.Record) error {
		if r.Offset >= position && r.Offset < s.To && !yield(r, nil) {
			return errScanEnd
		}
		return nil
	}
	read := recordbatch.Records
	if h.Magic != 2 {
		read = recordbatch.OldRecords
	}
	if err := read(batch, each); err != nil && !errors.Is(err, errScanEnd) {
		return fmt.Errorf("%s-%d: batch at offset %d: %w", s.Partition.Topic, s.Partition.Partition, h.BaseOffset, err)
	} else if err != nil {
		return err
	}
	return nil
}

// nothingLeft judges answers without data below the end.
func (s Scan) nothingLeft(got *kmsg.FetchResponseTopicPartition, position int64) error {
	where := fmt.Sprintf("%s-%d from offset %d on", s.Partition.Topic, s.Partition.Partition, position)
	switch {
	case got.HighWatermark < s.To:
		return fmt.Errorf("%s cannot be read up to %d: its high watermark is %d", where, s.To, got.HighWatermark)
	case got.LastStableOffset >= 0 && got.LastStableOffset < s.To:
		return fmt.Errorf("%s waits for the end of an open transaction (last stable offset %d)", where, got.LastStableOffset)
	}
	return nil
}

func (s Scan) fetch(ctx context.Context, position int64) (*kmsg.FetchResponseTopicPartition, error) {
	leader, err := LeaderNow(ctx, s.Client, s.Partition)
	if err != nil {
		return nil, fmt.Errorf("leader of %s-%d: %w", s.Partition.Topic, s.Partition.Partition, err)
	}
	got, err := Fetch(ctx, s.Client.Broker(int(leader.Broker)), s.Partition, leader.Epoch, position, scanBytes, scanWaitMs)
	if err != nil {
		return nil, fmt.Errorf("read %s-%d at offset %d: %w", s.Partition.Topic, s.Partition.Partition, position, err)
	}
	return got, nil
}
