package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// Tail is the end of a log: its last batch that readers see something of.
type Tail struct {
	Start   int64
	records []tailRecord // ascending; none if there is nothing to compare
}

// tailRecord is a record as readers see it.
type tailRecord struct {
	offset, timestamp int64
	hash              uint64
}

const (
	// mostTailRecords bounds what is kept of a batch: its last records.
	mostTailRecords = 1000
	// mostFillers is over how many filler batches the last record is looked for.
	mostFillers = 8
)

// Last returns the offset of the last record, false if there is none.
func (t *Tail) Last() (int64, bool) {
	if len(t.records) == 0 {
		return -1, false
	}
	return t.records[len(t.records)-1].offset, true
}

// Cut forgets the records from an offset on.
func (t *Tail) Cut(end int64) {
	for n := len(t.records); n > 0 && t.records[n-1].offset >= end; n-- {
		t.records = t.records[:n-1]
	}
}

// ReadTail reads, at a partition's leader, the log start and the records of the last batch before end that is no filler of
// the producers.
func ReadTail(ctx context.Context, client *kgo.Client, leader Leader, key TopicPartition, producers []int64, end int64) (Tail, error) {
	tail := Tail{Start: -1}
	for before, tries := end, 0; tries < mostFillers; tries++ {
		got, err := FetchOnce(ctx, client.Broker(int(leader.Broker)), key, leader.Epoch, before-1)
		if errors.Is(err, kerr.OffsetOutOfRange) {
			err = tail.emptied(ctx, client.Broker(int(leader.Broker)), key, leader)
			return tail, err
		}
		if err != nil {
			return tail, err
		}
		tail.Start = max(tail.Start, got.LogStartOffset)
		filler, base, err := tail.Take(got.RecordBatches, got.AbortedTransactions, before, producers)
		switch {
		case err != nil:
			return tail, err
		case base < 0 && got.HighWatermark < before:
			return tail, fmt.Errorf("its high watermark is %d, behind its end %d", got.HighWatermark, before)
		case !filler || base <= max(tail.Start, 0): // it holds records, or is the first that there is
			return tail, nil
		}
		before = base
	}
	return tail, nil
}

// ReadTailNow is ReadTail where the leader has to be asked for.
func ReadTailNow(ctx context.Context, client *kgo.Client, key TopicPartition, producers []int64, end int64) (Tail, error) {
	leader, err := LeaderNow(ctx, client, key)
	if err != nil {
		return Tail{}, err
	}
	return ReadTail(ctx, client, leader, key, producers, end)
}

// Take takes the batch of a response that holds the offset before before. base is that batch's, -1 if there is none. filler: it
// holds nothing for readers. In a log that is continued, that can be a marker or an aborted transaction, too (listed).
func (t *Tail) Take(batches []byte, listed []kmsg.FetchResponseTopicPartitionAbortedTransaction, before int64, producers []int64) (filler bool, base int64, err error) {
	var aborted AbortedTransactions
	aborted.Begin(listed)
	for len(batches) > 0 {
		batch, rest, err := recordbatch.Next(batches)
		if errors.Is(err, recordbatch.ErrPartial) {
			break
		}
		if err != nil {
			return false, -1, err
		}
		batches = rest
		h, err := recordbatch.ParseHeader(batch)
		if err != nil && !errors.Is(err, recordbatch.ErrOldFormat) {
			return false, -1, err
		}
		hidden := h.Magic == 2 && (aborted.Covers(h) || h.Control())
		if h.NextOffset() < before || h.BaseOffset >= before {
			continue
		}
		if hidden || recordbatch.IsFiller(batch, func(id int64) bool { return slices.Contains(producers, id) }) {
			return true, h.BaseOffset, nil
		}
		err = eachTailRecord(h, batch, func(r tailRecord) error {
			if len(t.records) == mostTailRecords {
				t.records = append(t.records[:0], t.records[mostTailRecords/2:]...)
			}
			t.records = append(t.records, r)
			return nil
		})
		return false, h.BaseOffset, err
	}
	return false, -1, nil
}

// emptied: the log has no record below its end any more; where does it start?
func (t *Tail) emptied(ctx context.Context, b *kgo.Broker, key TopicPartition, leader Leader) error {
	starts, err := ListOffsetsAt(ctx, b, map[TopicPartition]Leader{key: leader}, Earliest, ReadUncommitted)
	if err != nil {
		return err
	}
	start, ok := starts[key]
	if err := kerr.ErrorForCode(start.Code); err != nil || !ok {
		return fmt.Errorf("asking for its log start: %w", cmp.Or(err, errNoOffset))
	}
	t.Start = max(t.Start, start.Offset)
	return nil
}

var errNoOffset = errors.New("no answer to ListOffsets")
