package clients

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Attributes of a record batch.
const (
	transactionalBit = 0x10
	controlBit       = 0x20
)

// gapCase is a log of one partition that programs read from offset 0 to its end, committed records only.
type gapCase struct {
	Label, Topic string
	End          int64
	Records      []gapRecord
}

type gapRecord struct {
	Offset int64
	Value  string
}

func checksOf(cases []gapCase) []string {
	var checks []string
	for _, c := range cases {
		checks = append(checks, "gaps:"+c.Label)
	}
	return checks
}

// gapFixture makes topics with gaps.
type gapFixture struct {
	bootstrap string
	prefix    string // of topic names
}

// make makes three topics whose logs the cleaner leaves with empty batches, and returns what a reader of committed records must
// see of them. The expectation comes from parsing the raw logs here, not from a client's consumer.
func (f gapFixture) make(ctx context.Context) ([]gapCase, error) {
	topic := f.prefix + "gaps"
	ctl, end := topic+"-ctl", topic+"-end"
	for t, ms := range map[string]string{topic: "500", ctl: "500", end: "3600000"} {
		err := f.create(ctx, t, map[string]string{"cleanup.policy": "compact", "segment.ms": ms, "segment.bytes": "1048576",
			"min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "0", "max.compaction.lag.ms": "1000", "delete.retention.ms": "0"})
		if err != nil {
			return nil, err
		}
	}
	if err := f.write(ctx, topic, ctl, end); err != nil {
		return nil, err
	}
	var cases []gapCase
	for _, want := range []struct {
		label, topic string
		enough       func(logStats) bool
	}{
		{"real", topic, func(st logStats) bool { return st.empty >= 5 }},
		{"real-ctl", ctl, func(st logStats) bool { return st.emptyControl >= 1 }},
		{"real-end", end, func(st logStats) bool { return st.empty == 1 }},
	} {
		c, err := f.cleaned(ctx, want.label, want.topic, want.enough)
		if err != nil {
			return nil, err
		}
		cases = append(cases, c)
	}
	return cases, nil
}

func (f gapFixture) write(ctx context.Context, topic, ctl, end string) error {
	if err := f.emptyAtSegmentEnd(ctx, end); err != nil {
		return err
	}
	// The marker of a transaction whose records are all overwritten becomes an empty control batch.
	if err := f.transactions(ctx, ctl, "key", ctl); err != nil {
		return err
	}
	// Eight idempotent producers, one after the other and all alive, overwrite the same keys: the last batch of all but the last producer loses
	// its records, and the cleaner keeps it empty for the producer's sequence number.
	for p := range 8 {
		if err := f.overwrite(ctx, topic, p); err != nil {
			return err
		}
		if err := f.overwrite(ctx, ctl, p); err != nil {
			return err
		}
		if p == 3 {
			if err := f.transactions(ctx, topic, "tx-mid", topic+"-mid"); err != nil {
				return err
			}
		}
		roll()
	}
	return f.transactions(ctx, topic, "tx-end", topic+"-end") // ends the log with a control batch
}

// roll waits for longer than segment.ms, so that the next append begins a segment: what is awaited is the passing of time itself.
func roll() { time.Sleep(600 * time.Millisecond) }

func (f gapFixture) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(f.bootstrap, ",")...), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
}

// create makes a topic of one partition and waits until a broker leads it.
func (f gapFixture) create(ctx context.Context, topic string, configs map[string]string) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	defer client.Close()
	values := map[string]*string{}
	for key, value := range configs {
		values[key] = &value
	}
	admin := kadm.NewClient(client)
	if _, err := admin.CreateTopic(ctx, 1, 1, values, topic); err != nil {
		return fmt.Errorf("creating %s: %w", topic, err)
	}
	for {
		listed, err := admin.ListEndOffsets(ctx, topic)
		if err == nil && listed.Error() == nil && len(listed[topic]) == 1 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s has no leader: %w", topic, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// emptyAtSegmentEnd makes three segments of ten records with 100,000-byte keys. The first ends with a batch whose only record is
// overwritten in the second; they are too large to be merged, and a broker's answer holds data of one segment: that for the empty
// batch's offset holds nothing else.
func (f gapFixture) emptyAtSegmentEnd(ctx context.Context, topic string) error {
	for segment := range 3 {
		big := make([]*kgo.Record, 10)
		for i := range big {
			key := fmt.Sprintf("%d-%d-%s", segment, i, strings.Repeat("k", 100_000))
			big[i] = &kgo.Record{Key: []byte(key), Value: fmt.Appendf(nil, "big%d-%d", segment, i)}
		}
		small := &kgo.Record{Key: []byte("key"), Value: fmt.Appendf(nil, "small%d", segment)}
		for _, records := range [][]*kgo.Record{big, {small}} {
			if err := f.produce(ctx, topic, records, 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// produce writes records by a producer of its own, so many a batch.
func (f gapFixture) produce(ctx context.Context, topic string, records []*kgo.Record, batch int) error {
	client, err := f.client(kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	for ; len(records) > 0; records = records[batch:] {
		if err := client.ProduceSync(ctx, records[:batch]...).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// overwrite writes key0 to key4 three times, in three batches of one idempotent producer.
func (f gapFixture) overwrite(ctx context.Context, topic string, p int) error {
	var records []*kgo.Record
	for b := range 3 {
		for k := range 5 {
			records = append(records, &kgo.Record{Key: fmt.Appendf(nil, "key%d", k), Value: fmt.Appendf(nil, "p%d-b%d-k%d", p, b, k)})
		}
	}
	return f.produce(ctx, topic, records, 5)
}

// transactions writes a commit, an abort and a commit, of three records each.
func (f gapFixture) transactions(ctx context.Context, topic, prefix, id string) error {
	client, err := f.client(kgo.DefaultProduceTopic(topic), kgo.TransactionalID(id))
	if err != nil {
		return err
	}
	defer client.Close()
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		for k := range 3 {
			key := fmt.Sprintf("%s-%d-%d", prefix, i, k)
			if prefix == "key" {
				key = fmt.Sprintf("key%d", k)
			}
			value := fmt.Appendf(nil, "%s-commit:%v", key, bool(end))
			if err := client.ProduceSync(ctx, &kgo.Record{Key: []byte(key), Value: value}).FirstErr(); err != nil {
				return err
			}
		}
		if err := client.EndTransaction(ctx, end); err != nil {
			return err
		}
		roll()
	}
	return nil
}

// cleaned waits until the cleaner has done its work, and has nothing left to do.
func (f gapFixture) cleaned(ctx context.Context, label, topic string, enough func(logStats) bool) (gapCase, error) {
	ticker := time.NewTicker(1500 * time.Millisecond)
	defer ticker.Stop()
	for last := ""; ; {
		c, stats, err := f.readLog(ctx, label, topic)
		if err != nil {
			return c, fmt.Errorf("%s: %w", topic, err)
		}
		before := last
		last = fmt.Sprint(c, stats)
		if enough(stats) && last == before {
			return c, nil
		}
		select {
		case <-ctx.Done():
			return c, fmt.Errorf("%s: the cleaner did not leave the empty batches: %+v", topic, stats)
		case <-ticker.C:
		}
	}
}

type logStats struct{ batches, empty, control, emptyControl int }

// readLog fetches the raw batches of partition 0 and walks them.
func (f gapFixture) readLog(ctx context.Context, label, topic string) (gapCase, logStats, error) {
	c, stats := gapCase{Label: label, Topic: topic}, logStats{}
	aborted := map[int64][]int64{} // producer ID → first offsets of its aborted transactions
	client, err := f.client(kgo.MaxVersions(maxFetch12()))
	if err != nil {
		return c, stats, err
	}
	defer client.Close()
	details, err := kadm.NewClient(client).ListTopics(ctx, topic)
	if err != nil {
		return c, stats, err
	}
	leader := client.Broker(int(details[topic].Partitions[0].Leader))
	for {
		p, err := rawFetch(ctx, leader, topic, c.End)
		if err != nil {
			return c, stats, err
		}
		for _, a := range p.AbortedTransactions {
			aborted[a.ProducerID] = append(aborted[a.ProducerID], a.FirstOffset)
		}
		for raw := p.RecordBatches; len(raw) >= 61; {
			var b kmsg.RecordBatch
			if err := b.ReadFrom(raw); err != nil {
				break
			}
			raw = raw[12+b.Length:]
			if err := stats.walk(&b, &c, aborted); err != nil {
				return c, stats, err
			}
		}
		if c.End >= p.HighWatermark {
			return c, stats, nil
		}
		if len(p.RecordBatches) == 0 {
			return c, stats, fmt.Errorf("no batch at %d below the high watermark %d", c.End, p.HighWatermark)
		}
	}
}

func rawFetch(ctx context.Context, leader *kgo.Broker, topic string, offset int64) (*kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.IsolationLevel, req.MaxBytes, req.MinBytes, req.MaxWaitMillis, req.SessionEpoch = 1, 10<<20, 1, 100, -1
	t, p := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	t.Topic, p.FetchOffset, p.PartitionMaxBytes = topic, offset, 10<<20
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := leader.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	fetched := resp.(*kmsg.FetchResponse)
	if len(fetched.Topics) != 1 || len(fetched.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("fetching %s: error %d", topic, fetched.ErrorCode)
	}
	got := &fetched.Topics[0].Partitions[0]
	return got, kerr.ErrorForCode(got.ErrorCode)
}

func (st *logStats) walk(b *kmsg.RecordBatch, c *gapCase, aborted map[int64][]int64) error {
	st.batches++
	c.End = b.FirstOffset + int64(b.LastOffsetDelta) + 1
	if b.NumRecords == 0 {
		st.empty++
		if b.Attributes&controlBit != 0 {
			st.emptyControl++
		}
		return nil
	}
	first := aborted[b.ProducerID]
	isAborted := b.Attributes&transactionalBit != 0 && len(first) > 0 && first[0] <= b.FirstOffset
	if b.Attributes&controlBit != 0 {
		st.control++
		if isAborted { // its abort marker (a commit marker cannot follow an open aborted transaction)
			aborted[b.ProducerID] = first[1:]
		}
		return nil
	}
	if isAborted {
		return nil
	}
	rest := b.Records
	for range b.NumRecords {
		var r kmsg.Record
		if err := r.ReadFrom(rest); err != nil {
			return fmt.Errorf("a record that does not parse, in the batch at %d: %w", b.FirstOffset, err)
		}
		c.Records = append(c.Records, gapRecord{Offset: b.FirstOffset + int64(r.OffsetDelta), Value: string(r.Value)})
		rest = rest[len(r.AppendTo(nil)):]
	}
	return nil
}

// maxFetch12 are all versions but those of Fetch that know topics only by ID.
func maxFetch12() *kversion.Versions {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(1, 12)
	return versions
}
