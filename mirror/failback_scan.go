package mirror

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// logScan reads what a reader with read_committed would get of [from, to) of a partition, in order.
type logScan struct {
	client   *kgo.Client
	key      partitionKey
	from, to int64
	// isFiller tells batches that readers do not see; nil: none.
	isFiller func(batch []byte) bool
}

const (
	scanBytes = 1 << 20 // of one fetch
	// emptyAnswers in a row, at a position below the high watermark and the last stable offset, say that nothing is left there:
	// the cleaner emptied the end of the log.
	emptyAnswers = 5
	scanWaitMs   = 200
)

var errScanEnd = errors.New("the reader wants no more")

// records yields the records, or an error as the last thing. A record is valid until the next one.
func (s logScan) records(ctx context.Context) iter.Seq2[recordbatch.Record, error] {
	return func(yield func(recordbatch.Record, error) bool) {
		var aborted abortedTransactions
		empty := 0
		for position := s.from; position < s.to; {
			got, err := s.fetch(ctx, position)
			if err != nil {
				yield(recordbatch.Record{}, err)
				return
			}
			aborted.begin(got.AbortedTransactions)
			next, err := s.read(got.RecordBatches, position, &aborted, yield)
			switch {
			case errors.Is(err, errScanEnd):
				return
			case err == nil && next == position:
				if empty++; empty == emptyAnswers {
					err = s.nothingLeft(got, position)
					next = s.to
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
func (s logScan) read(data []byte, position int64, aborted *abortedTransactions, yield func(recordbatch.Record, error) bool) (int64, error) {
	next := position
	for len(data) > 0 && next < s.to {
		batch, rest, err := recordbatch.Next(data)
		if errors.Is(err, recordbatch.ErrPartial) {
			break
		}
		var h recordbatch.Header
		if err == nil {
			h, err = recordbatch.ParseHeader(batch)
		}
		if err != nil && !errors.Is(err, recordbatch.ErrOldFormat) {
			return next, fmt.Errorf("%s-%d at offset %d: %w", s.key.topic, s.key.partition, next, err)
		}
		data = rest
		hidden := h.Magic == 2 && (aborted.covers(h) || h.Control() || s.isFiller != nil && s.isFiller(batch))
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

func (s logScan) readBatch(h recordbatch.Header, batch []byte, position int64, yield func(recordbatch.Record, error) bool) error {
	each := func(r recordbatch.Record) error {
		if r.Offset >= position && r.Offset < s.to && !yield(r, nil) {
			return errScanEnd
		}
		return nil
	}
	read := recordbatch.Records
	if h.Magic != 2 {
		read = recordbatch.OldRecords
	}
	if err := read(batch, each); err != nil && !errors.Is(err, errScanEnd) {
		return fmt.Errorf("%s-%d: batch at offset %d: %w", s.key.topic, s.key.partition, h.BaseOffset, err)
	} else if err != nil {
		return err
	}
	return nil
}

// nothingLeft judges answers without data below the end.
func (s logScan) nothingLeft(got *kmsg.FetchResponseTopicPartition, position int64) error {
	where := fmt.Sprintf("%s-%d from offset %d on", s.key.topic, s.key.partition, position)
	switch {
	case got.HighWatermark < s.to:
		return fmt.Errorf("%s cannot be read up to %d: its high watermark is %d", where, s.to, got.HighWatermark)
	case got.LastStableOffset >= 0 && got.LastStableOffset < s.to:
		return fmt.Errorf("%s waits for the end of an open transaction (last stable offset %d)", where, got.LastStableOffset)
	}
	return nil
}

func (s logScan) fetch(ctx context.Context, position int64) (*kmsg.FetchResponseTopicPartition, error) {
	leader, err := destinationTails{s.client}.leader(ctx, s.key)
	if err != nil {
		return nil, fmt.Errorf("leader of %s-%d: %w", s.key.topic, s.key.partition, err)
	}
	got, err := fetchSome(ctx, s.client.Broker(int(leader.broker)), s.key, leader.epoch, position, scanBytes, scanWaitMs)
	if err != nil {
		return nil, fmt.Errorf("read %s-%d at offset %d: %w", s.key.topic, s.key.partition, position, err)
	}
	return got, nil
}

// recordsOf reads what clients would get of a range of the topic at the destination.
func (t *topicRun) recordsOf(ctx context.Context, partition int32, from, to int64) iter.Seq2[recordbatch.Record, error] {
	scan := logScan{
		client: t.m.cfg.Destination, key: partitionKey{t.name, partition}, from: from, to: to,
		isFiller: func(batch []byte) bool { return recordbatch.IsFiller(batch, t.m.Topics().IsProducer) },
	}
	return scan.records(ctx)
}
