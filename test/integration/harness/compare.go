package harness

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SameRecords compares the topics of two addresses record by record (offset, timestamp, key, value, headers), and their
// start and end offsets. It is written without the code that it tests. It returns the number of records.
func SameRecords(t testing.TB, source, destination string, topics ...string) int64 {
	t.Helper()
	from, to := Admin(t, source), Admin(t, destination)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	ends, err := Ends(ctx, from, topics...)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sameEnds(ctx, from, to, topics), sameStarts(ctx, from, to, topics)); err != nil {
		t.Fatal(err)
	}
	var count int64
	for tp, end := range ends {
		n, err := sameRecords(ctx, source, destination, tp, end)
		count += n
		if err != nil {
			t.Errorf("%s/%d: %v", tp.Topic, tp.Partition, err)
		}
	}
	return count
}

func sameStarts(ctx context.Context, from, to *kadm.Client, topics []string) error {
	want, err := from.ListStartOffsets(ctx, topics...)
	if err != nil {
		return err
	}
	got, err := to.ListStartOffsets(ctx, topics...)
	if err != nil {
		return err
	}
	want.Each(func(o kadm.ListedOffset) {
		if other, ok := got.Lookup(o.Topic, o.Partition); !ok || other.Offset != o.Offset {
			err = errors.Join(err, fmt.Errorf("%s/%d starts at %d, source at %d", o.Topic, o.Partition, other.Offset, o.Offset))
		}
	})
	return err
}

func sameRecords(ctx context.Context, source, destination string, tp TopicPartition, end int64) (int64, error) {
	if end == 0 {
		return 0, nil
	}
	want, err := newReader(source, tp, end)
	if err != nil {
		return 0, err
	}
	defer want.client.Close()
	got, err := newReader(destination, tp, end)
	if err != nil {
		return 0, err
	}
	defer got.client.Close()
	var count int64
	for {
		a, err := want.next(ctx)
		if err != nil {
			return count, fmt.Errorf("source: %w", err)
		}
		b, err := got.next(ctx)
		if err != nil {
			return count, fmt.Errorf("destination: %w", err)
		}
		if a == nil && b == nil {
			return count, nil
		}
		if difference := differ(a, b); difference != "" {
			return count, errors.New(difference)
		}
		count++
	}
}

// reader reads a partition in order up to an end offset.
type reader struct {
	client  *kgo.Client
	records []*kgo.Record
	end     int64
	last    int64
}

func newReader(bootstrap string, tp TopicPartition, end int64) (*reader, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{tp.Topic: {tp.Partition: kgo.NewOffset().AtStart()}}),
		kgo.FetchMaxPartitionBytes(4<<20), kgo.KeepControlRecords(), kgo.MetadataMinAge(100*time.Millisecond), kgo.AlwaysRetryEOF())
	return &reader{client: client, end: end, last: -1}, err
}

// next is the next record, nil at the end.
func (r *reader) next(ctx context.Context) (*kgo.Record, error) {
	for {
		for len(r.records) > 0 {
			record := r.records[0]
			r.records = r.records[1:]
			r.last = record.Offset
			if !record.Attrs.IsControl() {
				return record, nil
			}
		}
		if r.last >= r.end-1 {
			return nil, nil
		}
		poll, cancel := context.WithTimeout(ctx, 4*time.Minute)
		fetches := r.client.PollFetches(poll)
		cancel()
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("after offset %d of %d: %w", r.last, r.end, err)
		}
		r.records = fetches.Records()
	}
}

func differ(a, b *kgo.Record) string {
	switch {
	case a == nil:
		return fmt.Sprintf("offset %d is not at the source", b.Offset)
	case b == nil:
		return fmt.Sprintf("offset %d is missing", a.Offset)
	case a.Offset != b.Offset:
		return fmt.Sprintf("offset %d where the source has %d", b.Offset, a.Offset)
	case !a.Timestamp.Equal(b.Timestamp) || a.Attrs.TimestampType() != b.Attrs.TimestampType():
		return fmt.Sprintf("offset %d: timestamp %v where the source has %v", a.Offset, b.Timestamp, a.Timestamp)
	case !equal(a.Key, b.Key):
		return fmt.Sprintf("offset %d: the keys differ", a.Offset)
	case !equal(a.Value, b.Value):
		return fmt.Sprintf("offset %d: the values differ", a.Offset)
	case len(a.Headers) != len(b.Headers):
		return fmt.Sprintf("offset %d: %d headers where the source has %d", a.Offset, len(b.Headers), len(a.Headers))
	}
	for i := range a.Headers {
		if a.Headers[i].Key != b.Headers[i].Key || !equal(a.Headers[i].Value, b.Headers[i].Value) {
			return fmt.Sprintf("offset %d: header %d differs", a.Offset, i)
		}
	}
	return ""
}

// equal tells null from empty.
func equal(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// Batch is what is compared of a record batch: everything that a verbatim copy keeps.
type Batch struct {
	Base, Last int64
	Codec      int
	Records    int32
	// CRC is over the bytes of the records as stored, compressed or not.
	CRC uint32
}

// Batches reads the raw batches of a partition through Fetch, from its start to its end.
func Batches(ctx context.Context, client *kgo.Client, topic string, partition int32) ([]Batch, error) {
	details, err := kadm.NewClient(client).ListTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	leader := details[topic].Partitions[partition].Leader
	var batches []Batch
	for offset := int64(0); ; {
		chunk, end, err := fetch(ctx, client.Broker(int(leader)), topic, partition, offset)
		if err != nil {
			return nil, fmt.Errorf("fetching %s/%d from %d: %w", topic, partition, offset, err)
		}
		for len(chunk) >= 61 {
			size := 12 + int(int32(binary.BigEndian.Uint32(chunk[8:])))
			if size > len(chunk) {
				break // cut off by the size limit of the fetch
			}
			b := parseBatch(chunk[:size])
			if b.Base >= offset {
				batches = append(batches, b)
			}
			offset = b.Last + 1
			chunk = chunk[size:]
		}
		if offset >= end {
			return batches, nil
		}
	}
}

func parseBatch(b []byte) Batch {
	base := int64(binary.BigEndian.Uint64(b))
	return Batch{
		Base: base, Last: base + int64(int32(binary.BigEndian.Uint32(b[23:]))),
		Codec:   int(binary.BigEndian.Uint16(b[21:]) & 7),
		Records: int32(binary.BigEndian.Uint32(b[57:])),
		CRC:     crc32.ChecksumIEEE(b[61:]),
	}
}

func fetch(ctx context.Context, broker *kgo.Broker, topic string, partition int32, offset int64) (records []byte, end int64, err error) {
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis, request.MinBytes, request.MaxBytes, request.SessionEpoch = 100, 1, 8<<20, -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 8<<20
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic, ft.Partitions = topic, []kmsg.FetchRequestTopicPartition{p}
	request.Topics = []kmsg.FetchRequestTopic{ft}
	response, err := broker.RetriableRequest(ctx, pinned{request})
	if err != nil {
		return nil, 0, err
	}
	topics := response.(*kmsg.FetchResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return nil, 0, errors.New("the answer is not about one partition")
	}
	answered := topics[0].Partitions[0]
	return answered.RecordBatches, answered.HighWatermark, kerr.ErrorForCode(answered.ErrorCode)
}

// pinned keeps a Fetch at the last version that names topics, so that no topic ID is needed.
type pinned struct{ *kmsg.FetchRequest }

func (pinned) MaxVersion() int16 { return 12 }

// SameBatches compares the batches of both sides, and returns how many there were per codec.
func SameBatches(t testing.TB, source, destination *kgo.Client, tp TopicPartition) map[int]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	want, err := Batches(ctx, source, tp.Topic, tp.Partition)
	if err != nil {
		t.Fatalf("source: %v", err)
	}
	got, err := Batches(ctx, destination, tp.Topic, tp.Partition)
	if err != nil {
		t.Fatalf("destination: %v", err)
	}
	codecs := map[int]int{}
	for i, b := range want {
		if i >= len(got) || got[i] != b {
			t.Errorf("%s/%d: batch %d differs: source %+v", tp.Topic, tp.Partition, i, b)
			break
		}
		codecs[b.Codec]++
	}
	if len(got) != len(want) {
		t.Errorf("%s/%d: %d batches, source has %d", tp.Topic, tp.Partition, len(got), len(want))
	}
	return codecs
}
