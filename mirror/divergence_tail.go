package mirror

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// tails is what a check needs of the destination.
type tails interface {
	// batch returns what reads logs of these topics, for the moment: their leaders are asked for once.
	batch(ctx context.Context, topics []string) (tails, error)
	// read returns the log start and the records of the last batch before end that is no filler.
	read(ctx context.Context, key partitionKey, producers []int64, end int64) (logTail, error)
	// trimmed says why a log start above the source's cannot be explained by the topic's retention, "" if it can.
	trimmed(ctx context.Context, key partitionKey, start, sourceStart int64) string
}

// logTail is the end of a destination log.
type logTail struct {
	start   int64
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

// last returns the offset of the last record.
func (t *logTail) last() (int64, bool) {
	if len(t.records) == 0 {
		return -1, false
	}
	return t.records[len(t.records)-1].offset, true
}

// tailVerdict is what a comparison found. epoch is the source leader epoch of the last record if same.
type tailVerdict struct {
	same    bool // the last record is there, and all that are there are the same
	epoch   int32
	differs string // what differs, "" if nothing does
	offset  int64  // where
}

// compare compares with batches of the source. A record that is missing there is no difference: the topic may have
// been compacted at any time. What the source has at the offset of a record of ours has to be that record.
func (t *logTail) compare(batches []byte) (tailVerdict, error) {
	last, _ := t.last()
	verdict := tailVerdict{epoch: -1}
	for len(batches) > 0 {
		batch, rest, err := recordbatch.Next(batches)
		if errors.Is(err, recordbatch.ErrPartial) {
			break
		}
		if err != nil {
			return verdict, fmt.Errorf("the source's batch cannot be read: %w", err)
		}
		batches = rest
		h, err := recordbatch.ParseHeader(batch)
		if err != nil && !errors.Is(err, recordbatch.ErrOldFormat) {
			return verdict, fmt.Errorf("the source's batch cannot be read: %w", err)
		}
		if h.Magic == 2 && h.BaseOffset > last {
			break
		}
		err = eachTailRecord(h, batch, func(r tailRecord) error {
			if what := t.differs(h, r); what != "" && verdict.differs == "" {
				verdict.differs, verdict.offset = what, r.offset
			}
			if r.offset == last {
				verdict.same, verdict.epoch = true, h.LeaderEpoch
			}
			return nil
		})
		if err != nil {
			return verdict, fmt.Errorf("the source's batch at offset %d cannot be read: %w", h.BaseOffset, err)
		}
		if h.Magic != 2 {
			verdict.epoch = -1
		}
	}
	verdict.same = verdict.same && verdict.differs == ""
	return verdict, nil
}

// differs compares a record of the source with ours at its offset, "" if there is none.
func (t *logTail) differs(h recordbatch.Header, r tailRecord) string {
	i, found := slices.BinarySearchFunc(t.records, r.offset, func(o tailRecord, offset int64) int {
		return int(min(1, max(-1, o.offset-offset)))
	})
	if !found {
		return ""
	}
	ours := t.records[i]
	switch {
	case h.Magic == 2 && h.Control():
		return "a transaction marker at the source"
	case ours.hash != r.hash:
		return "other key, value or headers"
	case ours.timestamp != r.timestamp && r.timestamp >= 0: // message format v0 has no timestamps
		return fmt.Sprintf("timestamp %d, mirrored was %d", r.timestamp, ours.timestamp)
	}
	return ""
}

// inside reports whether an offset is inside the v2 batch that holds it, if data begins with that, and not at its start.
func inside(data []byte, offset int64) bool {
	for len(data) > 0 {
		batch, rest, err := recordbatch.Next(data)
		if err != nil {
			return false
		}
		h, err := recordbatch.ParseHeader(batch)
		if err != nil || h.NextOffset() > offset {
			return err == nil && h.BaseOffset < offset
		}
		data = rest // brokers may begin with batches wholly below
	}
	return false
}

// eachTailRecord decodes a batch.
func eachTailRecord(h recordbatch.Header, batch []byte, fn func(tailRecord) error) error {
	hash := func(r recordbatch.Record) error {
		return fn(tailRecord{offset: r.Offset, timestamp: r.Timestamp, hash: hashRecord(r)})
	}
	if h.Magic == 2 {
		return recordbatch.Records(batch, hash)
	}
	return recordbatch.OldRecords(batch, hash)
}

var tailSeed = maphash.MakeSeed()

// hashRecord hashes what a record holds.
func hashRecord(r recordbatch.Record) uint64 {
	var hash maphash.Hash
	hash.SetSeed(tailSeed)
	write := func(b []byte) {
		size := int64(len(b))
		if b == nil {
			size = -1
		}
		var prefix [8]byte
		binary.LittleEndian.PutUint64(prefix[:], uint64(size))
		_, _ = hash.Write(prefix[:])
		_, _ = hash.Write(b)
	}
	write(r.Key)
	write(r.Value)
	for _, header := range r.Headers {
		write(header.Key)
		write(header.Value)
	}
	return hash.Sum64()
}

// fetchOnce reads one batch or more at or behind an offset from the leader, by the topic's name: what it is, a check has
// found out before.
func fetchOnce(ctx context.Context, b *kgo.Broker, key partitionKey, epoch int32, offset int64) (*kmsg.FetchResponseTopicPartition, error) {
	return fetchSome(ctx, b, key, epoch, offset, 1, 0)
}

// fetchSome reads, with read_committed, about so many bytes, at least one batch.
func fetchSome(ctx context.Context, b *kgo.Broker, key partitionKey, epoch int32, offset int64, bytes, waitMs int32) (*kmsg.FetchResponseTopicPartition, error) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.FetchOffset, p.PartitionMaxBytes = key.partition, epoch, offset, bytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic = key.topic
	t.Partitions = append(t.Partitions, p)
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.SessionEpoch, req.MaxBytes, req.IsolationLevel = -1, -1, bytes, committed
	if waitMs > 0 {
		req.MaxWaitMillis, req.MinBytes = waitMs, 1
	}
	req.Topics = append(req.Topics, t)
	kresp, err := b.RetriableRequest(ctx, namedFetch{req}) // a connection that died meanwhile proves nothing
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("the answer is about %d topics", len(resp.Topics))
	}
	got := &resp.Topics[0].Partitions[0]
	return got, kerr.ErrorForCode(got.ErrorCode)
}

// namedFetch is a Fetch of at most the last version that names topics.
type namedFetch struct{ *kmsg.FetchRequest }

func (namedFetch) MaxVersion() int16 { return 12 }

// destinationTails reads at the destination.
type destinationTails struct{ client *kgo.Client }

// tails returns what checks use, nil if nothing is to be read.
func (c ReplicatorConfig) tails() tails {
	switch {
	case c.readTails != nil:
		return c.readTails
	case c.DestinationAdmin != nil:
		return destinationTails{c.DestinationAdmin}
	}
	return nil
}

func (d destinationTails) read(ctx context.Context, key partitionKey, producers []int64, end int64) (logTail, error) {
	leader, err := d.leader(ctx, key)
	if err != nil {
		return logTail{}, err
	}
	return d.readAt(ctx, leader, key, producers, end)
}

// readAt is read where the leader is known.
func (d destinationTails) readAt(ctx context.Context, leader evLeader, key partitionKey, producers []int64, end int64) (logTail, error) {
	tail := logTail{start: -1}
	for before, tries := end, 0; tries < mostFillers; tries++ {
		got, err := fetchOnce(ctx, d.client.Broker(int(leader.broker)), key, leader.epoch, before-1)
		if errors.Is(err, kerr.OffsetOutOfRange) {
			return d.emptied(ctx, tail, key, leader)
		}
		if err != nil {
			return tail, err
		}
		tail.start = max(tail.start, got.LogStartOffset)
		filler, base, err := tail.take(got.RecordBatches, got.AbortedTransactions, before, producers)
		switch {
		case err != nil:
			return tail, err
		case base < 0 && got.HighWatermark < before:
			return tail, fmt.Errorf("its high watermark is %d, behind its end %d", got.HighWatermark, before)
		case !filler || base <= max(tail.start, 0): // it holds records, or is the first that there is
			return tail, nil
		}
		before = base
	}
	return tail, nil
}

// take takes the batch of a response that holds the offset before before. base is that batch's, -1 if there is none. filler: it
// holds nothing for readers. In a log that is continued, that can be a marker or an aborted transaction, too (listed).
func (t *logTail) take(batches []byte, listed []kmsg.FetchResponseTopicPartitionAbortedTransaction, before int64, producers []int64) (filler bool, base int64, err error) {
	var aborted abortedTransactions
	aborted.begin(listed)
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
		hidden := h.Magic == 2 && (aborted.covers(h) || h.Control())
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
func (d destinationTails) emptied(ctx context.Context, tail logTail, key partitionKey, leader evLeader) (logTail, error) {
	starts, err := listOffsetsAt(ctx, d.client.Broker(int(leader.broker)), map[partitionKey]evLeader{key: leader}, earliest, uncommitted)
	if err != nil {
		return tail, err
	}
	if p := starts[key].problem(); p != nil {
		return tail, errors.New(p.reason)
	}
	tail.start = max(tail.start, starts[key].offset)
	return tail, nil
}

func (d destinationTails) leader(ctx context.Context, key partitionKey) (evLeader, error) {
	leaders, err := d.leaders(ctx, []string{key.topic})
	if err != nil {
		return evLeader{}, err
	}
	return leaderOf(leaders, key)
}

// trimmed: the mirror trims only up to the floor. Beyond it, only retention may delete, which can be ahead of the source's
// by a segment or by its settings.
func (d destinationTails) trimmed(ctx context.Context, key partitionKey, start, sourceStart int64) string {
	configs, err := topicConfig(ctx, d.client, key.topic)
	if err != nil {
		return "" // cannot be proved
	}
	values := make(map[string]string)
	for _, c := range configs {
		values[c.Key] = c.MaybeValue()
	}
	if retains(values) {
		return ""
	}
	return fmt.Sprintf("trimmed: the destination log starts at %d, the source's at %d, and neither this mirror nor retention (cleanup.policy=%s, retention.ms=%s, retention.bytes=%s) deletes at the destination what the source has: somebody deleted records %d to %d behind the gateway; way out: remove the topic from the mirror to keep the rest, or remove it, delete it at the destination and add it again to have all records",
		start, sourceStart, values["cleanup.policy"], values["retention.ms"], values["retention.bytes"], sourceStart, start-1)
}

// retains reports whether settings of a topic let brokers delete by age or size.
func retains(values map[string]string) bool {
	if !strings.Contains(values["cleanup.policy"], "delete") {
		return false
	}
	return values["retention.ms"] != "-1" || values["retention.bytes"] != "-1"
}
