package appendlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

const (
	listLatest        = -1
	listEarliest      = -2
	maxListOffsets    = 7
	minEpochVersion   = 3 // of OffsetForLeaderEpoch: the first that clients may use (Kafka 2.3)
	maxEpochVersion   = 4
	maxFetchVersion   = 12 // the last that names topics
	scanResponseBytes = 1 << 20
	// scanLimit bounds what is read to find where a foreign stretch begins.
	scanLimit = 64 << 20
)

// errTrails: the log is longer than what is replicated of it, so nothing may be sent yet.
var errTrails = errors.New("high watermark trails the end of the log")

// tailReader reads the end of a log on the leader's connection. One batch at most is fetched in the usual case.
type tailReader struct {
	conn *broker.Conn
	p    Partition
	past []int64
}

// read finds the end of the log and whose its last batch is. acked: up to there the log is known to be ours, -1 if
// nothing is known. deep reads the whole stretch behind acked even if the last batch is ours.
//
// ListOffsets gives the high watermark. The leader's log may be longer, as replicas follow a moment later, or stay behind
// while one is down. OffsetForLeaderEpoch, asked for the present epoch, gives the true end; until both agree, nothing is
// proved. One could think that the sequence takes care of this: what lies behind the high watermark is ours and known to
// the broker, so the next batch would be a duplicate or out of order. But see doc.go on what a broker knows of old data.
//
// The cases, by what ListOffsets(latest) = end and Fetch(end-1) say:
//
//   - end is 0: nothing was ever written.
//   - A batch comes: it is judged, and all behind it that came too. As the end was a high watermark, and a high
//     watermark lies between batches, it ends there, unless the log has grown meanwhile: then the end is where the last
//     batch ends. The cleaner keeps the last batch of every producer that the broker remembers, though perhaps without
//     records, so this is also what a compacted log gives.
//   - OFFSET_OUT_OF_RANGE, and the log starts at end: retention or DeleteRecords took everything. Nothing can be proved,
//     and nothing needs to be: the next sequence is still compared with the last one by a broker that remembers our
//     producer, and the base offset by us.
//   - OFFSET_OUT_OF_RANGE otherwise: the log was cut (unclean election). Read again.
//   - Nothing comes, and the high watermark in the response is below end: the leader has changed and knows less as yet.
//     Read again.
//   - Nothing comes, though the high watermark reaches end: the cleaner took out the last batches of producers that the
//     broker has forgotten. The last batch that is left is looked for backwards.
func (r *tailReader) read(ctx context.Context, acked int64, deep bool) (tail, error) {
	end, err := r.provenEnd(ctx)
	if err != nil {
		return tail{}, fmt.Errorf("reading the end offset: %w", err)
	}
	if end == 0 {
		return tail{deep: deep}, nil
	}
	t, err := r.readLast(ctx, end)
	if err != nil {
		return tail{}, fmt.Errorf("reading the last batch before offset %d: %w", end, err)
	}
	if t.verdict == tailForeign {
		return r.explainForeign(ctx, t, acked), nil
	}
	if deep && t.verdict <= tailOurs {
		return r.readDeep(ctx, t, acked)
	}
	return t, nil
}

// before judges the batch that ends at an offset: tailNone where the log starts there or the cleaner took it out.
func (r *tailReader) before(ctx context.Context, offset int64) (tail, error) {
	if offset == 0 {
		return tail{}, nil
	}
	got, err := r.fetch(ctx, offset-1, 1)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		start, _, err := r.listOffset(ctx, listEarliest)
		if err == nil && start < offset {
			err = fmt.Errorf("log now starts at %d, and nothing is at %d", start, offset-1)
		}
		return tail{end: offset}, err
	}
	if err != nil {
		return tail{}, err
	}
	if got.HighWatermark < offset {
		return tail{}, fmt.Errorf("%w: %d, not %d", errTrails, got.HighWatermark, offset)
	}
	batch, _, err := recordbatch.Next(got.RecordBatches)
	if errors.Is(err, recordbatch.ErrPartial) {
		return tail{end: offset}, nil
	}
	if err != nil {
		return tail{}, fmt.Errorf("%w: %v", errDamaged, err)
	}
	t, next, err := judgeBatches(batch, r.p, r.past)
	if err != nil || next > offset {
		return tail{end: offset}, err
	}
	t.end = offset
	return t, nil
}

// provenEnd returns the end of the log, once all of it is replicated.
func (r *tailReader) provenEnd(ctx context.Context) (int64, error) {
	end, epoch, err := r.listOffset(ctx, listLatest)
	if err != nil || epoch < 0 {
		return end, err
	}
	logEnd, err := r.logEnd(ctx, epoch)
	if err != nil {
		return -1, fmt.Errorf("end of leader epoch %d: %w", epoch, err)
	}
	if logEnd > end {
		return -1, fmt.Errorf("%w: %d, not %d", errTrails, end, logEnd)
	}
	return end, nil
}

// logEnd asks the leader for the end of its log, replicated or not. -1: the broker is too old to say.
func (r *tailReader) logEnd(ctx context.Context, epoch int32) (int64, error) {
	if v, ok := r.conn.Version(kmsg.NewPtrOffsetForLeaderEpochRequest().Key(), maxEpochVersion); !ok || v < minEpochVersion {
		return -1, nil
	}
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = r.p.Partition, epoch, epoch
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic, t.Partitions = r.p.Topic, append(t.Partitions, p)
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	req.Topics = append(req.Topics, t)
	kresp, err := r.ask(ctx, req, maxEpochVersion)
	if err != nil {
		return -1, err
	}
	resp := kresp.(*kmsg.OffsetForLeaderEpochResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != r.p.Partition {
		return -1, errOtherPartition
	}
	got := &resp.Topics[0].Partitions[0]
	return got.EndOffset, r.lacking(kerr.ErrorForCode(got.ErrorCode), "DESCRIBE")
}

func (r *tailReader) readLast(ctx context.Context, end int64) (tail, error) {
	got, err := r.fetch(ctx, end-1, 1)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		start, _, err := r.listOffset(ctx, listEarliest)
		if err != nil {
			return tail{}, err
		}
		if start != end {
			return tail{}, fmt.Errorf("log now starts at %d and ended at %d", start, end)
		}
		return tail{end: end, verdict: tailNone}, nil
	}
	if err != nil {
		return tail{}, err
	}
	t, next, err := judgeBatches(got.RecordBatches, r.p, r.past)
	if err != nil {
		return tail{}, err
	}
	switch {
	case next >= end:
		t.end = next
		return t, nil
	case got.HighWatermark < end:
		return tail{}, fmt.Errorf("%w: %d, not %d", errTrails, got.HighWatermark, end)
	}
	return r.searchBack(ctx, got.LogStartOffset, end)
}

// searchBack finds the last batch that the cleaner left before end, in steps that grow.
func (r *tailReader) searchBack(ctx context.Context, start, end int64) (tail, error) {
	start = max(start, 0)
	upper := end
	for step := int64(1000); upper > start; step *= 16 {
		from := max(start, upper-step)
		t, last, err := r.scan(ctx, from, upper, scanAll)
		if err != nil {
			return tail{}, err
		}
		if last >= 0 {
			t.end = end
			return t, nil
		}
		upper = from
	}
	return tail{end: end}, nil
}

// explainForeign looks for the first foreign batch behind what is known to be ours, and asks whether our producer was
// fenced. Both make the report better and are left out if they fail.
func (r *tailReader) explainForeign(ctx context.Context, t tail, acked int64) tail {
	if state, known, err := r.producerState(ctx); err == nil && known && state.ProducerEpoch > int32(r.p.Epoch) {
		return tail{end: t.end, verdict: tailFence, offset: -1}
	}
	low := acked
	if low < 0 {
		start, _, err := r.listOffset(ctx, listEarliest)
		if err != nil {
			return t
		}
		low = start
	}
	first, err := r.bisect(ctx, low, t)
	if err != nil {
		return t
	}
	return first
}

// bisect finds the first foreign batch between low and the foreign batch of t, given that everything behind a foreign
// write is foreign or shifted, which is so unless somebody wrote with great care.
func (r *tailReader) bisect(ctx context.Context, low int64, t tail) (tail, error) {
	first := t
	for low < first.offset {
		middle := low + (first.offset-low)/2
		got, err := r.fetch(ctx, middle, 1)
		if err != nil {
			return t, err
		}
		found, next, err := judgeBatches(got.RecordBatches, r.p, r.past)
		switch {
		case err != nil:
			return t, err
		case found.verdict == tailForeign && found.offset < first.offset:
			first.offset, first.producerID = found.offset, found.producerID
		case found.verdict != tailForeign && next > middle && next <= first.offset:
			low = next
		default: // nothing between middle and the first one known, as the cleaner was there: go on below
			if middle == low {
				return first, nil
			}
			return r.bisectBelow(ctx, low, middle, first)
		}
	}
	return first, nil
}

// bisectBelow goes on where the stretch from middle up to the first foreign batch known is empty.
func (r *tailReader) bisectBelow(ctx context.Context, low, middle int64, first tail) (tail, error) {
	found, _, err := r.scan(ctx, low, middle, scanLimit)
	if err == nil && found.verdict == tailForeign {
		first.offset, first.producerID = found.offset, found.producerID
	}
	return first, err
}

// readDeep is for a log whose last batch is ours and whose broker refuses the next all the same.
func (r *tailReader) readDeep(ctx context.Context, t tail, acked int64) (tail, error) {
	start, _, err := r.listOffset(ctx, listEarliest)
	if err != nil {
		return tail{}, fmt.Errorf("reading the start offset: %w", err)
	}
	found, _, err := r.scan(ctx, max(acked, start), t.end, scanLimit)
	if err != nil {
		return tail{}, fmt.Errorf("looking for a foreign write behind offset %d: %w", max(acked, start), err)
	}
	if found.verdict > tailOurs {
		found.end = t.end
		return found, nil
	}
	t.deep = true
	if state, known, err := r.producerState(ctx); err == nil && known {
		t.lastKnown, t.last = true, state.LastSequence
	}
	return t, nil
}

const scanAll = 1 << 62

// scan judges all batches from an offset up to end, limit bytes at most. last is the offset after the last of them, -1
// if there are none.
func (r *tailReader) scan(ctx context.Context, from, end, limit int64) (tail, int64, error) {
	var found tail
	last := int64(-1)
	for read := int64(0); from < end && read < limit; {
		got, err := r.fetch(ctx, from, scanResponseBytes)
		if err != nil {
			return tail{}, -1, err
		}
		t, next, err := judgeBatches(got.RecordBatches, r.p, r.past)
		if err != nil {
			return tail{}, -1, err
		}
		if next <= from {
			break // nothing more below the high watermark, or only what the cleaner left empty
		}
		if t.verdict > found.verdict {
			found = t
		}
		if found.verdict == tailForeign {
			return found, next, nil
		}
		read += int64(len(got.RecordBatches))
		from, last = next, next
	}
	return found, last, nil
}

// ask sends a request at the highest version that both sides have.
func (r *tailReader) ask(ctx context.Context, req kmsg.Request, maxVersion int16) (kmsg.Response, error) {
	if err := r.conn.SetVersion(req, maxVersion); err != nil {
		return nil, err
	}
	return r.conn.Request(ctx, req)
}

var errOtherPartition = errors.New("the answer is not for the partition asked for")

// listOffset returns an offset and the present leader epoch, -1 where the broker is too old to say.
func (r *tailReader) listOffset(ctx context.Context, timestamp int64) (offset int64, epoch int32, err error) {
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = r.p.Partition, timestamp
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic, t.Partitions = r.p.Topic, append(t.Partitions, p)
	req := kmsg.NewPtrListOffsetsRequest()
	req.Topics = append(req.Topics, t)
	kresp, err := r.ask(ctx, req, maxListOffsets)
	if err != nil {
		return -1, -1, err
	}
	resp := kresp.(*kmsg.ListOffsetsResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Topic != r.p.Topic ||
		resp.Topics[0].Partitions[0].Partition != r.p.Partition {
		return -1, -1, errOtherPartition
	}
	got := resp.Topics[0].Partitions[0]
	if err := r.lacking(kerr.ErrorForCode(got.ErrorCode), "DESCRIBE"); err != nil {
		return -1, -1, err
	}
	if got.Offset < 0 {
		return -1, -1, fmt.Errorf("offset %d", got.Offset)
	}
	return got.Offset, got.LeaderEpoch, nil
}

func (r *tailReader) fetch(ctx context.Context, offset int64, maxBytes int32) (*kmsg.FetchResponseTopicPartition, error) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = r.p.Partition, offset, maxBytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.Partitions = r.p.Topic, append(t.Partitions, p)
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxBytes = maxBytes
	req.SessionEpoch = -1
	req.Topics = append(req.Topics, t)
	kresp, err := r.ask(ctx, req, maxFetchVersion)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Topic != r.p.Topic ||
		resp.Topics[0].Partitions[0].Partition != r.p.Partition {
		return nil, errOtherPartition
	}
	got := &resp.Topics[0].Partitions[0]
	return got, r.lacking(kerr.ErrorForCode(got.ErrorCode), "READ")
}

// lacking names the right that an error is about.
func (r *tailReader) lacking(err error, right string) error {
	return broker.LacksRight(err, "%s on topic %s at the destination", right, r.p.Topic)
}

// producerState asks the leader what it knows of our producer (Kafka 2.8, KIP-664).
func (r *tailReader) producerState(ctx context.Context) (kmsg.DescribeProducersResponseTopicPartitionActiveProducer, bool, error) {
	var none kmsg.DescribeProducersResponseTopicPartitionActiveProducer
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = r.p.Topic, append(t.Partitions, r.p.Partition)
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = append(req.Topics, t)
	kresp, err := r.ask(ctx, req, 0)
	if err != nil {
		return none, false, err
	}
	resp := kresp.(*kmsg.DescribeProducersResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return none, false, errOtherPartition
	}
	got := &resp.Topics[0].Partitions[0]
	if err := r.lacking(kerr.ErrorForCode(got.ErrorCode), "READ"); err != nil {
		return none, false, err
	}
	for _, producer := range got.ActiveProducers {
		if producer.ProducerID == r.p.ProducerID {
			return producer, true, nil
		}
	}
	return none, false, nil
}

// checkBatch refuses a batch that no broker would take whole and alone at its base. A broker answers some of these
// faults for the whole request, and so for partitions that have none.
func checkBatch(b Batch) error {
	h, err := recordbatch.ParseHeader(b.Bytes)
	bad := func(reason string) error { return &BatchError{Base: b.Base, Reason: reason} }
	switch {
	case err != nil:
		return bad(err.Error())
	case h.Size() != len(b.Bytes):
		return bad(fmt.Sprintf("%d bytes, but the batch has %d", len(b.Bytes), h.Size()))
	case b.Base < 0 || int64(h.LastOffsetDelta)+1 != b.Next-b.Base:
		return bad(fmt.Sprintf("offsets up to %d, but the batch has %d", b.Next, int64(h.LastOffsetDelta)+1))
	case h.NumRecords != h.LastOffsetDelta+1:
		return bad(recordbatch.Hole.String())
	case h.Control():
		return bad(recordbatch.Control.String())
	case h.LogAppendTime():
		return bad(recordbatch.LogAppendTime.String())
	case h.Codec() > recordbatch.Zstd:
		return bad(recordbatch.UnknownCodec.String())
	}
	return nil
}
