package metamorphic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = []struct {
	name  string
	codec kgo.CompressionCodec
}{
	{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()},
	{"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
}

// transactionTimeout is longer than any story keeps a transaction open.
const transactionTimeout = time.Hour

// newProducer writes, with each flush, the records since the last one: a batch for a partition.
func (s *story) newProducer(opts ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	base := []kgo.Opt{
		kgo.SeedBrokers(s.source.Bootstrap()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ManualFlushing(),
		kgo.MaxBufferedRecords(1 << 20), kgo.MetadataMinAge(50 * time.Millisecond), kgo.TransactionTimeout(transactionTimeout),
		// A broker that is stopped or killed closes connections before it answers anything on them: nothing is given up for that.
		kgo.AlwaysRetryEOF(), kgo.UnknownTopicRetries(-1),
	}
	client, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.Close)
	return client
}

// producer is one of ten: all codecs, with and without idempotence.
func (s *story) producer(random *rand.Rand) (*kgo.Client, string) {
	c, plain := codecs[random.IntN(len(codecs))], random.IntN(3) == 0
	name, opts := c.name, []kgo.Opt{kgo.ProducerBatchCompression(c.codec)}
	if plain {
		name, opts = name+" without idempotence", append(opts, kgo.DisableIdempotentWrite())
	}
	if s.producers[name] == nil {
		s.producers[name] = s.newProducer(opts...)
	}
	return s.producers[name], name
}

// send writes records and waits for the acknowledgements.
func send(ctx context.Context, client *kgo.Client, records []*kgo.Record) error {
	var mu sync.Mutex
	var errs error
	for _, r := range records {
		client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			errs = errors.Join(errs, err)
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	return errs
}

// place picks a topic and one of its partitions.
func place(random *rand.Rand, fits func(topic) bool) (topic, int32) {
	var all []topic
	for _, t := range topics {
		if fits(t) {
			all = append(all, t)
		}
	}
	t := all[random.IntN(len(all))]
	return t, random.Int32N(t.partitions)
}

func every(topic) bool { return true }

func (s *story) produce(random *rand.Rand) {
	s.t.Helper()
	to, partition := place(random, every)
	client, name := s.producer(random)
	records := s.records(random, to, partition, count(random))
	s.do("producing", func(ctx context.Context) error { return send(ctx, client, records) })
	s.say("%s/%d: %s, %s", to.name, partition, span(records), name)
}

// count is mostly small: there are many ways for a batch to be odd, and few for a thousand records.
func count(random *rand.Rand) int {
	if random.IntN(8) == 0 {
		return 1 + random.IntN(2000)
	}
	return 1 + random.IntN(30)
}

func span(records []*kgo.Record) string {
	return fmt.Sprintf("%d records from %d on", len(records), records[0].Offset)
}

// records are made of the random numbers and the clock of the story alone.
func (s *story) records(random *rand.Rand, to topic, partition int32, n int) []*kgo.Record {
	s.produced += int64(n)
	var records []*kgo.Record
	large := n < 20 && random.IntN(10) == 0
	for i := range n {
		r := &kgo.Record{Topic: to.name, Partition: partition, Timestamp: s.timestamp(random, to)}
		r.Key = fmt.Appendf(nil, "key-%d", random.IntN(40))
		switch odd := random.IntN(12); {
		case odd == 0:
			r.Key = []byte{}
		case odd == 1 && !to.compacted:
			r.Key = nil
		}
		switch random.IntN(8) {
		case 0: // null, which is a tombstone where records are compacted
		case 1:
			r.Value = []byte{}
		default:
			r.Value = value(random, fmt.Sprintf("%d.%d ", s.steps, i), large && i == 0)
		}
		r.Headers = headers(random)
		records = append(records, r)
	}
	return records
}

func (s *story) timestamp(random *rand.Rand, to topic) time.Time {
	at := s.clock.Add(time.Duration(random.IntN(2000)) * time.Millisecond)
	if to.compacted { // there, segments end by the clock, and markers have the time of today
		return at
	}
	at = at.AddDate(0, 0, -1) // old enough for retention
	if random.IntN(50) == 0 {
		return []time.Time{time.UnixMilli(1), time.UnixMilli(1_000_000_000_000), at.AddDate(75, 0, 0)}[random.IntN(3)]
	}
	return at
}

// value begins with where in the story it was written.
func value(random *rand.Rand, begin string, large bool) []byte {
	size := random.IntN(100)
	if large {
		size = 100_000 + random.IntN(800_000)
	}
	if random.IntN(2) == 0 {
		return []byte(begin + strings.Repeat("again and ", size/10))
	}
	noise := []byte(begin)
	for range size / 8 {
		noise = fmt.Appendf(noise, "%08x", random.Uint32())
	}
	return noise
}

func headers(random *rand.Rand) []kgo.RecordHeader {
	switch random.IntN(8) {
	case 0:
		return []kgo.RecordHeader{{Key: "null"}, {Key: "empty", Value: []byte{}}, {Key: "", Value: []byte("no name")}}
	case 1:
		return []kgo.RecordHeader{{Key: "twice", Value: []byte("1")}, {Key: "twice", Value: []byte{0, 255}}}
	}
	return nil
}

// transaction is a transactional producer, whose transactions may span all partitions and stay open for many steps.
type transaction struct {
	name   string
	client *kgo.Client
	open   bool
	wrote  int
}

func (s *story) newTransaction(i int) *transaction {
	s.t.Helper()
	name := string(rune('A' + i))
	return &transaction{name: name, client: s.newProducer(kgo.TransactionalID("story-"+name), kgo.ProducerBatchCompression(codecs[2*i].codec))}
}

// open is the number of open transactions.
func (s *story) open() int {
	n := 0
	for _, x := range s.transactions {
		if x.open {
			n++
		}
	}
	return n
}

func (s *story) writeInTransaction(random *rand.Rand) {
	s.t.Helper()
	x := s.transactions[random.IntN(len(s.transactions))]
	to, partition := place(random, every)
	records := s.records(random, to, partition, count(random))
	s.do("writing in a transaction", func(ctx context.Context) error {
		if !x.open {
			if err := x.client.BeginTransaction(); err != nil {
				return err
			}
			x.open, x.wrote = true, 0
		}
		return send(ctx, x.client, records)
	})
	x.wrote += len(records)
	s.say("%s/%d: %s, in transaction %s", to.name, partition, span(records), x.name)
}

func (s *story) endTransaction(random *rand.Rand) {
	s.t.Helper()
	var open []*transaction
	for _, x := range s.transactions {
		if x.open {
			open = append(open, x)
		}
	}
	s.end(open[random.IntN(len(open))], kgo.TransactionEndTry(random.IntN(5) < 3))
}

func (s *story) end(x *transaction, commit kgo.TransactionEndTry) {
	s.t.Helper()
	s.do("ending a transaction", func(ctx context.Context) error { return x.client.EndTransaction(ctx, commit) })
	x.open = false
	verb := map[kgo.TransactionEndTry]string{kgo.TryCommit: "committed", kgo.TryAbort: "aborted"}[commit]
	s.say("transaction %s is %s, %d records", x.name, verb, x.wrote)
}
