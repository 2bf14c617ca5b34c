package appendlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap/zaptest"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/recordbatch"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

// valueAt is the record at an offset of the imaginary source that all tests copy.
func valueAt(offset int64) []byte {
	seed := uint64(offset) * 0x9e3779b97f4a7c15
	v := fmt.Appendf(nil, "%d/", offset)
	for range seed >> 58 {
		seed = seed*6364136223846793005 + 1442695040888963407
		v = append(v, byte(seed>>56))
	}
	return v
}

// timestamp is that of all records: too old ones would be deleted by retention during the test.
var timestamp = time.Now().UnixMilli()

// makeBatch makes the batch of the source's records at [from, to).
func makeBatch(from, to int64) Batch { return makeBatchAt(from, to, timestamp) }

// makeBatchAt is makeBatch with a timestamp.
func makeBatchAt(from, to, timestamp int64) Batch {
	var records []byte
	for o := from; o < to; o++ {
		r := kmsg.Record{OffsetDelta: int32(o - from), Key: fmt.Appendf(nil, "k%d", o%97), Value: valueAt(o)}
		body := r.AppendTo(nil)[1:] // length is a varint of 0 as yet: one byte
		r.Length = int32(len(body))
		records = r.AppendTo(records)
	}
	b := kmsg.RecordBatch{
		FirstOffset: from, Length: int32(49 + len(records)), PartitionLeaderEpoch: 3, Magic: 2,
		LastOffsetDelta: int32(to - from - 1), FirstTimestamp: timestamp, MaxTimestamp: timestamp,
		ProducerID: 4711, ProducerEpoch: 3, FirstSequence: 77, NumRecords: int32(to - from), Records: records,
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return Batch{Bytes: raw, Base: from, Next: to}
}

// compressed makes the same batch with a codec.
func compressed(t testing.TB, b Batch, codec recordbatch.Codec) Batch {
	const header = recordbatch.HeaderSize
	records := b.Bytes[header:]
	switch codec {
	case recordbatch.None:
		return b
	case recordbatch.Zstd:
		records = zstdEncoder().EncodeAll(records, nil)
	default:
		t.Fatalf("no %v here", codec)
	}
	b.Bytes = append(b.Bytes[:header:header], records...)
	b.Bytes[22] = byte(codec)
	binary.BigEndian.PutUint32(b.Bytes[8:], uint32(len(b.Bytes)-12))
	binary.BigEndian.PutUint32(b.Bytes[17:], crc32.Checksum(b.Bytes[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	return e
})

// copier is the smallest engine: it copies the imaginary source up to an end offset into a Log.
type copier struct {
	t       testing.TB
	l       *Log
	end     int64
	size    func() int64 // records of the next batch
	time    int64        // timestamp of all records
	bulk    func(from int64) bool
	codec   func(from int64) recordbatch.Codec // nil: none
	signal  chan struct{}
	quit    chan struct{}
	stopped chan struct{}

	mu     sync.Mutex
	next   int64 // -1 while not ready
	acked  int64
	readys []int64
	doubts []error
	fenced []int64
	failed error
	change chan struct{} // closed at the next event
}

func newCopier(t testing.TB, end int64, size func() int64) *copier {
	return &copier{
		t: t, end: end, size: size, time: timestamp, next: -1, acked: -1,
		signal: make(chan struct{}, 1), quit: make(chan struct{}), stopped: make(chan struct{}), change: make(chan struct{}),
	}
}

// open opens the log and copies until stop.
func (c *copier) open(client *Client, p Partition, past ...int64) *copier {
	c.l = client.Open(p, past, c)
	go c.run()
	c.t.Cleanup(c.stop)
	return c
}

func (c *copier) stop() {
	select {
	case <-c.quit:
	default:
		close(c.quit)
	}
	<-c.stopped
	c.l.Close()
}

func (c *copier) run() {
	defer close(c.stopped)
	for {
		select {
		case <-c.signal:
			c.feed()
		case <-c.quit:
			return
		}
	}
}

func (c *copier) feed() {
	for {
		c.mu.Lock()
		from := c.next
		to := min(from+c.size(), c.end)
		c.mu.Unlock()
		if from < 0 || from >= to {
			return
		}
		b := makeBatchAt(from, to, c.time)
		if c.codec != nil {
			b = compressed(c.t, b, c.codec(from))
		}
		b.Bulk = c.bulk != nil && c.bulk(from)
		err := c.l.Append(b)
		if err != nil {
			if !errors.Is(err, ErrFull) && !errors.Is(err, ErrNotReady) && !errors.Is(err, ErrFenced) && !errors.Is(err, ErrFailed) && !errors.Is(err, ErrClosed) {
				var be *BatchError
				if !errors.As(err, &be) || !c.movedSince(from) {
					c.t.Errorf("append at %d: %v", from, err)
				}
			}
			return
		}
		c.mu.Lock()
		if c.next == from { // else there was a Ready meanwhile
			c.next = to
		}
		c.mu.Unlock()
	}
}

// movedSince: a doubt and a Ready between computing a batch and appending it are no mistake.
func (c *copier) movedSince(from int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next != from
}

func (c *copier) event(f func()) {
	c.mu.Lock()
	f()
	close(c.change)
	c.change = make(chan struct{})
	c.mu.Unlock()
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

func (c *copier) Ready(end int64) {
	c.event(func() { c.next, c.acked = end, end; c.readys = append(c.readys, end) })
}
func (c *copier) Acked(next int64, batches, bytes int) {
	c.event(func() {
		if next <= c.acked {
			c.t.Errorf("Acked(%d) after %d", next, c.acked)
		}
		c.acked = next
	})
}
func (c *copier) Doubt(err error) {
	c.event(func() { c.next = -1; c.doubts = append(c.doubts, err) })
}
func (c *copier) Fenced(last int64) {
	c.event(func() { c.next = -1; c.fenced = append(c.fenced, last) })
}
func (c *copier) Failed(err error) { c.event(func() { c.next = -1; c.failed = err }) }

// extend moves the end of the source.
func (c *copier) extend(end int64) { c.event(func() { c.end = end }) }

// wait waits until the condition, which is called with c.mu, holds.
func (c *copier) wait(what string, condition func() bool) {
	c.t.Helper()
	timeout := time.After(5 * time.Minute)
	for {
		c.mu.Lock()
		ok, change := condition(), c.change
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-change:
		case <-timeout:
			c.mu.Lock()
			defer c.mu.Unlock()
			c.t.Fatalf("waiting for %s: acked %d of %d, next %d, readys %d, failed %v, last doubt %v", what, c.acked, c.end, c.next, len(c.readys), c.failed, last(c.doubts))
		}
	}
}

func last(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[len(errs)-1]
}

// waitCopied waits until everything up to the end is acknowledged.
func (c *copier) waitCopied() {
	c.t.Helper()
	c.wait("the end", func() bool {
		if c.failed != nil {
			c.t.Fatalf("failed: %v", c.failed)
		}
		return c.acked >= c.end
	})
}

func fixed(n int64) func() int64 { return func() int64 { return n } }

func random(seed uint64, most int64) func() int64 {
	r := rand.New(rand.NewPCG(seed, 1))
	return func() int64 { return 1 + r.Int64N(most) }
}

func testClient(t testing.TB, bootstrap string, change func(*Config)) *Client {
	t.Helper()
	cfg := Config{
		Broker:     broker.Config{Bootstrap: strings.Split(bootstrap, ",")},
		BackoffMin: 10 * time.Millisecond, BackoffMax: time.Second,
		Log: zaptest.NewLogger(t, zaptest.Level(zapLevel)),
	}
	if change != nil {
		change(&cfg)
	}
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func producerID(t testing.TB, c *Client) int64 {
	t.Helper()
	id, err := c.TakeProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func kgoClient(t testing.TB, bootstrap string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func createTopic(t testing.TB, bootstrap, topic string, partitions int32, replicas int16, configs map[string]*string) {
	t.Helper()
	resp, err := kadm.NewClient(kgoClient(t, bootstrap)).CreateTopic(t.Context(), partitions, replicas, configs, topic)
	if err == nil {
		err = resp.Err
	}
	if err != nil {
		t.Fatalf("creating topic %s: %v", topic, err)
	}
}

// readAll reads a partition up to the high watermark.
func readAll(t testing.TB, bootstrap, topic string, partition int32) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	adm := kadm.NewClient(kgoClient(t, bootstrap))
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, partition)
	c := kgoClient(t, bootstrap, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	var records []*kgo.Record
	for end.Offset > 0 && (len(records) == 0 || records[len(records)-1].Offset < end.Offset-1) {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("reading %s-%d: %v", topic, partition, err)
		}
		fetches.EachError(func(_ string, _ int32, err error) { t.Fatal(err) })
		records = append(records, fetches.Records()...)
	}
	return records
}

// requireCopy checks that the partition holds the source's records [0, end) at their offsets, and then the given number
// of fences and the like.
func requireCopy(t testing.TB, bootstrap, topic string, partition int32, end int64, extra int) {
	t.Helper()
	records := readAll(t, bootstrap, topic, partition)
	if int64(len(records)) != end+int64(extra) {
		t.Errorf("%s-%d holds %d records, want %d", topic, partition, len(records), end+int64(extra))
	}
	for i, r := range records {
		if r.Offset != int64(i) {
			t.Fatalf("%s-%d: record %d is at offset %d", topic, partition, i, r.Offset)
		}
		if r.Offset < end && string(r.Value) != string(valueAt(r.Offset)) {
			t.Fatalf("%s-%d: record at offset %d is %q", topic, partition, r.Offset, r.Value)
		}
	}
}
