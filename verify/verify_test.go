package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/recordbatch"
	"github.com/mirrorgate/mirrorgate/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m)) }

// log is one topic of a fake cluster, written batch by batch.
type log struct {
	t      *testing.T
	fake   *kfake.Cluster
	client *kgo.Client
	config broker.Config
}

func newLog(t *testing.T, partitions int32) *log {
	fake, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(partitions, "t"))
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.DefaultProduceTopic("t"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerLinger(time.Minute))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	// A client that knows the topic makes one batch of what it is given at once, however long that takes it. There is no such
	// partition, but to say so it has to ask.
	require.Error(t, client.ProduceSync(within(t), &kgo.Record{Partition: partitions}).FirstErr())
	return &log{t, fake, client, broker.Config{Bootstrap: fake.ListenAddrs()}}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// write produces records to partition 0, as one batch.
func (l *log) write(records ...kgo.Record) {
	l.t.Helper()
	var all []*kgo.Record
	for i := range records {
		all = append(all, &records[i])
	}
	require.NoError(l.t, l.client.ProduceSync(within(l.t), all...).FirstErr())
}

// raw produces a batch as it is.
func (l *log) raw(batch []byte) {
	l.t.Helper()
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = batch
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic, topic.TopicID, topic.Partitions = "t", l.fake.TopicInfo("t").TopicID, append(topic.Partitions, p)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.Topics = -1, 1000, append(req.Topics, topic)
	kresp, err := l.client.Broker(int(l.fake.LeaderFor("t", 0))).Request(within(l.t), req)
	require.NoError(l.t, err)
	require.Zero(l.t, kresp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}

func (l *log) deleteBefore(offset int64) {
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = offset
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic, topic.Partitions = "t", append(topic.Partitions, p)
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Topics = append(req.Topics, topic)
	_, err := req.RequestWith(within(l.t), l.client)
	require.NoError(l.t, err)
}

var epoch = time.UnixMilli(1_700_000_000_000)

// sample returns n records that differ in every field, with null and empty ones among them.
func sample(n int) []kgo.Record {
	records := make([]kgo.Record, n)
	for i := range records {
		r := &records[i]
		r.Timestamp = epoch.Add(time.Duration(i) * time.Millisecond)
		r.Key, r.Value = fmt.Appendf(nil, "key-%d", i), fmt.Appendf(nil, "value-%d", i)
		switch i % 4 {
		case 1:
			r.Key, r.Headers = nil, []kgo.RecordHeader{{Key: "h", Value: []byte("x")}, {Key: "n"}}
		case 2:
			r.Value = nil
		case 3:
			r.Key, r.Value = []byte{}, []byte{}
		}
	}
	return records
}

// run compares; change may change the options.
func run(t *testing.T, source, dest *log, change func(*Options)) Report {
	t.Helper()
	opts := Options{Source: source.config, Destination: dest.config, Topics: []string{"t"}}
	if change != nil {
		change(&opts)
	}
	r, err := Run(within(t), opts)
	require.NoError(t, err)
	require.Equal(t, r.Differences == 0, r.Equal)
	return r
}

func TestEqualLogs(t *testing.T) {
	source, dest := newLog(t, 3), newLog(t, 3)
	for i := range 5 {
		source.write(sample(10 + i)...)
		dest.write(sample(10 + i)...)
	}
	r := run(t, source, dest, nil)
	require.True(t, r.Equal, r.First)
	require.EqualValues(t, 60, r.Records)
	require.Len(t, r.Partitions, 3)
	require.Equal(t, Bounds{0, 60}, r.Partitions[0].Source)
}

// The same records in other batches, and compressed in another way, are equal.
func TestBatchBoundariesDoNotMatter(t *testing.T) {
	source, dest := newLog(t, 1), newLog(t, 1)
	records := sample(50)
	for _, chunk := range [][]kgo.Record{records[:7], records[7:8], records[8:30], records[30:]} {
		source.write(chunk...)
	}
	for chunk := range slices.Chunk(sample(50), 10) {
		dest.write(chunk...)
	}
	r := run(t, source, dest, nil)
	require.True(t, r.Equal, r.First)
	require.EqualValues(t, 50, r.Records)
}

// Every kind of difference is found, at its place, with nothing else beside it.
func TestDifferences(t *testing.T) {
	const n = 40
	set := func(at int, change func(r *kgo.Record)) func([]kgo.Record) []kgo.Record {
		return func(all []kgo.Record) []kgo.Record { change(&all[at]); return all }
	}
	for name, c := range map[string]struct {
		change func([]kgo.Record) []kgo.Record
		want   Difference
	}{
		"value":          {set(12, func(r *kgo.Record) { r.Value = []byte("other") }), Difference{"t", 0, 12, FieldValue, `"value-12"`, `"other"`}},
		"last value":     {set(n-1, func(r *kgo.Record) { r.Value = []byte("other") }), Difference{"t", 0, n - 1, FieldValue, `""`, `"other"`}},
		"key":            {set(12, func(r *kgo.Record) { r.Key = []byte("other") }), Difference{"t", 0, 12, FieldKey, `"key-12"`, `"other"`}},
		"null key":       {set(13, func(r *kgo.Record) { r.Key = []byte{} }), Difference{"t", 0, 13, FieldKey, "null", `""`}},
		"empty key":      {set(15, func(r *kgo.Record) { r.Key = nil }), Difference{"t", 0, 15, FieldKey, `""`, "null"}},
		"null value":     {set(14, func(r *kgo.Record) { r.Value = []byte{} }), Difference{"t", 0, 14, FieldValue, "null", `""`}},
		"empty value":    {set(15, func(r *kgo.Record) { r.Value = nil }), Difference{"t", 0, 15, FieldValue, `""`, "null"}},
		"timestamp":      {set(0, func(r *kgo.Record) { r.Timestamp = r.Timestamp.Add(-time.Millisecond) }), Difference{"t", 0, 0, FieldTimestamp, "1700000000000", "1699999999999"}},
		"header value":   {set(13, func(r *kgo.Record) { r.Headers[0].Value = []byte("y") }), Difference{"t", 0, 13, FieldHeaders, `h="x" n=null`, `h="y" n=null`}},
		"null header":    {set(13, func(r *kgo.Record) { r.Headers[1].Value = []byte{} }), Difference{"t", 0, 13, FieldHeaders, `h="x" n=null`, `h="x" n=""`}},
		"header key":     {set(13, func(r *kgo.Record) { r.Headers[1].Key = "m" }), Difference{"t", 0, 13, FieldHeaders, `h="x" n=null`, `h="x" m=null`}},
		"header order":   {set(13, func(r *kgo.Record) { slices.Reverse(r.Headers) }), Difference{"t", 0, 13, FieldHeaders, `h="x" n=null`, `n=null h="x"`}},
		"header missing": {set(13, func(r *kgo.Record) { r.Headers = nil }), Difference{"t", 0, 13, FieldHeaders, `h="x" n=null`, "none"}},
		"truncated end":  {func(all []kgo.Record) []kgo.Record { return all[:n-3] }, Difference{"t", 0, -1, FieldEnd, "40", "37"}},
		"extra record": {func(all []kgo.Record) []kgo.Record {
			return append(all, kgo.Record{Value: []byte("e"), Timestamp: epoch})
		}, Difference{"t", 0, n, FieldRecord, "-", `key null, value "e"`}},
		"nothing is there": {func([]kgo.Record) []kgo.Record { return nil }, Difference{"t", 0, -1, FieldEnd, "40", "0"}},
	} {
		// As one batch and as several: in the batch with the difference, and in those around it.
		for _, chunk := range []int{n, 8} {
			t.Run(fmt.Sprintf("%s/%d", name, chunk), func(t *testing.T) {
				source, dest := newLog(t, 1), newLog(t, 1)
				for part := range slices.Chunk(sample(n), chunk) {
					source.write(part...)
				}
				for part := range slices.Chunk(c.change(sample(n)), chunk) {
					dest.write(part...)
				}
				r := run(t, source, dest, nil)
				require.Equal(t, []Difference{c.want}, r.First)
				require.EqualValues(t, 1, r.Differences)
				require.EqualValues(t, 1, r.Partitions[0].Differences)
			})
		}
	}
}

// Empty is told from null also in what is decoded first on a side. It was not, which hid this difference, and made one up where the
// other side had decoded something before.
func TestEmptyFirst(t *testing.T) {
	for name, record := range map[string]kgo.Record{
		"key":    {Key: []byte{}, Value: []byte("v"), Timestamp: epoch},
		"value":  {Value: []byte{}, Timestamp: epoch},
		"header": {Headers: []kgo.RecordHeader{{Key: "", Value: []byte{}}}, Timestamp: epoch},
	} {
		t.Run(name, func(t *testing.T) {
			null := record
			switch name {
			case "key":
				null.Key = nil
			case "value":
				null.Value = nil
			case "header":
				null.Headers = []kgo.RecordHeader{{Key: "", Value: nil}}
			}
			source, dest := newLog(t, 1), newLog(t, 1)
			source.write(null)
			dest.write(record)
			require.EqualValues(t, 1, run(t, source, dest, nil).Differences)
		})
	}
}

// A record is lost in the middle: the offset is a filler, or everything behind has moved up.
func TestMissingRecord(t *testing.T) {
	source, dest := newLog(t, 1), newLog(t, 1)
	source.write(sample(10)...)
	dest.write(sample(4)...)
	dest.raw(filler(1))
	dest.write(sample(10)[5:]...)
	r := run(t, source, dest, nil)
	require.Equal(t, []Difference{{"t", 0, 4, FieldRecord, `key "key-4", value "value-4"`, "-"}}, r.First)
	require.EqualValues(t, 1, r.Differences)

	moved := newLog(t, 1)
	moved.write(slices.Delete(sample(10), 4, 5)...)
	r = run(t, source, moved, func(o *Options) { o.Differences = 100 })
	require.False(t, r.Equal)
	require.Equal(t, FieldEnd, r.First[0].Field)
	require.EqualValues(t, 4, r.First[1].Offset, "offsets count, not the order of records")
}

// filler makes a filler batch of a producer that is used once.
func filler(n int) []byte {
	batch := recordbatch.AppendFiller(nil, n, false, epoch.UnixMilli())
	recordbatch.Stamp(batch, fillers.Add(1), 0, 0)
	return batch
}

var fillers atomic.Int64

// Fillers stand for offsets without a record and for the fence at the end; a source has its gap there.
func TestFillersAreNoDifference(t *testing.T) {
	source, dest := newLog(t, 1), newLog(t, 1)
	source.write(sample(3)...)
	source.abort(499)
	source.write(sample(4)...)
	dest.write(sample(3)...)
	dest.raw(filler(500))
	dest.write(sample(4)...)
	fence := recordbatch.AppendFence(nil, false, epoch.UnixMilli())
	recordbatch.Stamp(fence, fillers.Add(1), 1, 0)
	dest.raw(fence)
	r := run(t, source, dest, nil)
	require.True(t, r.Equal, r.First)
	require.EqualValues(t, 501, r.Partitions[0].Fillers)
	require.EqualValues(t, 7, r.Records)
}

// transactional returns a producer of transactions.
func (l *log) transactional() *kgo.Client {
	tx, err := kgo.NewClient(append(l.client.Opts(), kgo.TransactionalID("x"), kgo.ProducerLinger(0))...)
	require.NoError(l.t, err)
	l.t.Cleanup(tx.Close)
	return tx
}

// abort makes a gap of n + 1 offsets: records of an aborted transaction, and its marker.
func (l *log) abort(n int) {
	tx := l.transactional()
	require.NoError(l.t, tx.BeginTransaction())
	records := sample(n)
	for i := range records {
		tx.Produce(within(l.t), &records[i], nil)
	}
	require.NoError(l.t, tx.Flush(within(l.t)))
	require.NoError(l.t, tx.EndTransaction(within(l.t), kgo.TryAbort))
}

// Transactions: markers and aborted records are gaps for a reader; a mirror has fillers there.
func TestTransactionsAtTheSource(t *testing.T) {
	source, dest := newLog(t, 1), newLog(t, 1)
	tx := source.transactional()
	for _, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		require.NoError(t, tx.BeginTransaction())
		records := sample(5)
		for i := range records {
			require.NoError(t, tx.ProduceSync(within(t), &records[i]).FirstErr())
		}
		require.NoError(t, tx.EndTransaction(within(t), commit))
	}
	dest.write(sample(5)...)
	dest.raw(filler(1 + 5 + 1))
	dest.write(sample(5)...)
	r := run(t, source, dest, nil)
	require.Equal(t, []Difference{{"t", 0, -1, FieldEnd, "18", "17"}}, r.First, "the last marker has no filler yet")
	dest.raw(filler(1))
	r = run(t, source, dest, nil)
	require.True(t, r.Equal, r.First)
	require.EqualValues(t, 10, r.Records)
}

func TestOtherStart(t *testing.T) {
	source, dest := newLog(t, 1), newLog(t, 1)
	for range 3 {
		source.write(sample(10)...)
		dest.write(sample(10)...)
	}
	dest.deleteBefore(10)
	r := run(t, source, dest, nil)
	require.Equal(t, []Difference{{"t", 0, -1, FieldStart, "0", "10"}}, r.First)
	require.EqualValues(t, 20, r.Records)
	source.deleteBefore(10)
	require.True(t, run(t, source, dest, nil).Equal)
}

func TestRangeAndPartitions(t *testing.T) {
	source, dest := newLog(t, 2), newLog(t, 2)
	source.write(sample(30)...)
	other := sample(30)
	other[5].Value, other[25].Value = []byte("a"), []byte("b")
	dest.write(other[:27]...)
	all := func(o *Options) { o.Partitions = []int32{0} }
	require.EqualValues(t, 3, run(t, source, dest, all).Differences)
	inside := func(from, to int64) Report {
		return run(t, source, dest, func(o *Options) { o.From, o.To = from, to })
	}
	require.True(t, inside(6, 25).Equal)
	require.EqualValues(t, 19, inside(6, 25).Records)
	require.EqualValues(t, 5, inside(5, 25).First[0].Offset)
	require.EqualValues(t, 25, inside(6, 26).First[0].Offset)
	require.Equal(t, Difference{"t", 0, -1, FieldEnd, "28", "27"}, inside(26, 28).First[0])
	require.True(t, run(t, source, dest, func(o *Options) { o.Partitions = []int32{1} }).Equal)
	_, err := Run(within(t), Options{Source: source.config, Destination: dest.config, Topics: []string{"t"}, Partitions: []int32{2}})
	require.ErrorContains(t, err, "no partition 2")
}

func TestMissingTopicsAndPartitions(t *testing.T) {
	source, dest := newLog(t, 3), newLog(t, 2)
	r := run(t, source, dest, nil)
	require.Equal(t, []Difference{{"t", -1, -1, FieldPartitions, "3", "2"}}, r.First)
	empty, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	defer empty.Close()
	r = run(t, source, &log{config: broker.Config{Bootstrap: empty.ListenAddrs()}}, nil)
	require.Equal(t, []Difference{{"t", -1, -1, FieldTopic, "3 partitions", "-"}}, r.First)
	_, err = Run(within(t), Options{Source: source.config, Destination: dest.config, Topics: []string{"nowhere"}})
	require.ErrorContains(t, err, "neither side")
}

func TestWaitForTheDestination(t *testing.T) {
	source, dest := newLog(t, 1), newLog(t, 1)
	source.write(sample(10)...)
	dest.write(sample(10)[:5]...)
	waiting := make(chan struct{})
	done := make(chan Report, 1)
	isWaiting := sync.OnceFunc(func() { close(waiting) })
	go func() {
		r, err := Run(within(t), Options{Source: source.config, Destination: dest.config, Topics: []string{"t"}, Wait: true,
			Progress: func(p Progress) {
				if p.Waiting {
					isWaiting()
				}
			}})
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	<-waiting
	dest.write(sample(10)[5:]...)
	r := <-done
	require.True(t, r.Equal, r.First)
	require.EqualValues(t, 10, r.Records)

	source.write(sample(1)...)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	_, err := Run(ctx, Options{Source: source.config, Destination: dest.config, Topics: []string{"t"}, Wait: true,
		Progress: func(p Progress) {
			if p.Waiting {
				cancel()
			}
		}})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "offset 10 of 11")
}

func TestBatches(t *testing.T) {
	source, same, rebuilt := newLog(t, 1), newLog(t, 1), newLog(t, 1)
	for range 3 {
		source.write(sample(100)...)
		same.write(sample(100)...)
	}
	rebuilt.write(sample(100)...)
	for part := range slices.Chunk(slices.Concat(sample(100), sample(100)), 50) {
		rebuilt.write(part...)
	}
	opts := Options{Source: source.config, Destination: same.config, Topics: []string{"t"}}
	r, err := Batches(within(t), opts)
	require.NoError(t, err)
	require.True(t, r.Verbatim, r.First)
	require.Equal(t, []BatchPartitionReport{{"t", 0, 3, 3, 0}}, r.Partitions)

	opts.Destination = rebuilt.config
	r, err = Batches(within(t), opts)
	require.NoError(t, err)
	require.False(t, r.Verbatim)
	require.Equal(t, []BatchPartitionReport{{"t", 0, 1, 1, 2}}, r.Partitions)
	require.EqualValues(t, 100, r.First[0].Offset)
	require.Contains(t, r.First[0].Source, "100 records, zstd")
	require.Contains(t, r.First[0].Destination, "50 records, zstd")
	records := run(t, source, rebuilt, nil)
	require.True(t, records.Equal, "and yet the records are the same")
}

func TestReportTexts(t *testing.T) {
	source, dest := newLog(t, 1), newLog(t, 1)
	source.write(sample(3)...)
	dest.write(sample(2)...)
	r := run(t, source, dest, nil)
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "NOT EQUAL: 1 differences")
	require.Contains(t, text.String(), "t      0          0–3     0–2")
	data, err := json.Marshal(r)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(data), `{"equal":false,"differences":1,"records":`), string(data))
	require.Contains(t, string(data), `"first":[{"topic":"t","partition":0,"offset":-1,"field":"end","source":"3","destination":"2"}]`)
}

func TestUnreachable(t *testing.T) {
	source := newLog(t, 1)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	dest := broker.Config{Bootstrap: []string{"127.0.0.1:1"}, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		defer cancel() // once it was tried
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	_, err := Run(ctx, Options{Source: source.config, Destination: dest, Topics: []string{"t"}})
	require.ErrorContains(t, err, "destination 127.0.0.1:1")
}

// The bytes behind the header are the same, and yet every timestamp differs: they are relative to one in the header.
func TestWholeBatchShiftedInTime(t *testing.T) {
	source, dest := newLog(t, 1), newLog(t, 1)
	late := sample(10)
	for i := range late {
		late[i].Timestamp = late[i].Timestamp.Add(time.Hour)
	}
	source.write(sample(10)...)
	dest.write(late...)
	r := run(t, source, dest, nil)
	require.EqualValues(t, 10, r.Differences)
	require.Equal(t, FieldTimestamp, r.First[9].Field)
}

func TestRangeInsideEqualBatches(t *testing.T) {
	source, dest := newLog(t, 1), newLog(t, 1)
	for range 3 {
		source.write(sample(10)...)
		dest.write(sample(10)...)
	}
	for _, c := range [][2]int64{{3, 27}, {10, 20}, {5, 6}, {0, 30}, {29, 100}} {
		r := run(t, source, dest, func(o *Options) { o.From, o.To = c[0], c[1] })
		require.True(t, r.Equal, r.First)
		require.Equal(t, min(c[1], 30)-c[0], r.Records)
	}
}

func TestBatchAtAnotherOffsetIsNotVerbatim(t *testing.T) {
	source, dest := newLog(t, 1), newLog(t, 1)
	source.write(sample(10)...)
	dest.raw(filler(1))
	dest.write(sample(10)...)
	r, err := Batches(within(t), Options{Source: source.config, Destination: dest.config, Topics: []string{"t"}})
	require.NoError(t, err)
	require.False(t, r.Verbatim)
	require.Equal(t, []BatchPartitionReport{{"t", 0, 0, 0, 1}}, r.Partitions)
}
