package integration

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// Every version of Fetch, from every offset (of records, inside fillers, at the very end), with limits on the size from one byte
// on: an answer has the source's records and no filler, leaves none out, and brings the reader further. So it is after the
// destination's cleaner has worked on the fillers.
func TestFillersAreHiddenFromEveryFetch(t *testing.T) {
	from, to := source(t), destination(t)
	plain, compacted := "hiding-plain", "hiding-compacted"
	harness.CreateTopics(t, from, harness.Topic{Name: plain, Partitions: 1}, harness.Topic{Name: compacted, Partitions: 1, Configs: map[string]string{
		"cleanup.policy": "compact", "segment.ms": "10000", "min.cleanable.dirty.ratio": "0.0001", "min.compaction.lag.ms": "0",
	}})
	for _, topic := range []string{plain, compacted} {
		w := hidingWriter{t: t, bootstrap: from, topic: topic, at: time.Now().Truncate(time.Millisecond)}
		w.write(5)
		w.abort(40)
		w.write(3)
		w.abort(1)
		w.write(5)
		if topic == plain {
			w.abort(3000) // ends in a filler, larger than the limits
		}
	}
	gw := gateway(t, to)
	client, direct := gw.Client(t), harness.Client(t, to.Bootstrap())
	harness.CreateMirror(t, client, "hiding", from)
	harness.AddTopics(t, client, "hiding", plain, compacted)
	harness.WaitMirrored(t, client, "hiding", from, to.Bootstrap(), time.Minute, plain, compacted)
	// The first filler is gone or has lost its mark.
	harness.Eventually(t, time.Minute, "the destination's cleaner was there", func(ctx context.Context) error {
		got, err := reading(t, direct, compacted).fetch(ctx, 12, 5, 1, 0)
		switch {
		case err != nil:
			return err
		case len(got.RecordBatches) < 61:
			return errors.New("the broker sends nothing")
		case binary.BigEndian.Uint64(got.RecordBatches) == 5 && got.RecordBatches[22]&0x80 != 0:
			return errors.New("the first filler is as it was written")
		}
		return nil
	})
	for _, topic := range []string{plain, compacted} {
		t.Run(topic, func(t *testing.T) { hiddenFromEveryFetch(t, harness.Client(t, from), client, topic) })
	}
}

func hiddenFromEveryFetch(t *testing.T, source, gateway *kgo.Client, topic string) {
	want, end := written(t, source, topic, 13), endOf(t, source, topic)
	mirror := reading(t, gateway, topic)
	newest, fetches := kmsg.NewPtrFetchRequest().MaxVersion(), 0
	for version := int16(4); version <= newest; version++ {
		for _, size := range []int32{1, 100, 1 << 20} {
			isolation := int8(fetches % 2)
			step := int64(1)
			for at := int64(0); at < end; at += step {
				if at > 120 { // inside the large one
					step = 487
				}
				got, next := mirror.once(t, version, at, size, isolation)
				fetches++
				if next <= at {
					t.Fatalf("version %d, %d bytes: a fetch from %d goes on at %d", version, size, at, next)
				}
				for offset, value := range got {
					if want[offset] != value {
						t.Fatalf("version %d, %d bytes, from %d: offset %d has %q, at the source %q", version, size, at, offset, value, want[offset])
					}
				}
				for offset, value := range want {
					if _, ok := got[offset]; !ok && offset >= at && offset < next {
						t.Fatalf("version %d, %d bytes, from %d: offset %d (%q) is left out", version, size, at, offset, value)
					}
				}
			}
		}
	}
	t.Logf("%d fetches in versions 4 to %d, log of %d offsets with %d records", fetches, newest, end, len(want))
}

// written returns the records of a hidingWriter, of which there have to be so many.
func written(t *testing.T, source *kgo.Client, topic string, records int) map[int64]string {
	t.Helper()
	want, end := map[int64]string{}, endOf(t, source, topic)
	reader := reading(t, source, topic)
	for at := int64(0); at < end; {
		records, next := reader.once(t, 12, at, 1<<20, 1)
		maps.Copy(want, records)
		at = max(next, at+1)
	}
	if len(want) != records {
		t.Fatalf("the source has %d records, want %d", len(want), records)
	}
	return want
}

func endOf(t *testing.T, client *kgo.Client, topic string) int64 {
	t.Helper()
	ends, err := harness.Ends(t.Context(), kadm.NewClient(client), topic)
	if err != nil {
		t.Fatal(err)
	}
	return ends[harness.TopicPartition{Topic: topic}]
}

func shown(r *kgo.Record) string {
	return fmt.Sprintf("%d %s %s", r.Timestamp.UnixMilli(), r.Key, r.Value)
}

// rawReader reads partition 0 of a topic.
type rawReader struct {
	topic  string
	id     [16]byte
	leader *kgo.Broker
}

func reading(t *testing.T, client *kgo.Client, topic string) rawReader {
	t.Helper()
	details, err := kadm.NewClient(client).ListTopics(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return rawReader{topic, details[topic].ID, client.Broker(int(details[topic].Partitions[0].Leader))}
}

// once returns the records of one fetch from an offset on, and where a reader goes on.
func (r rawReader) once(t *testing.T, version int16, at int64, size int32, isolation int8) (map[int64]string, int64) {
	t.Helper()
	got, err := r.fetch(t.Context(), version, at, size, isolation)
	if err != nil {
		t.Fatalf("version %d from %d: %v", version, at, err)
	}
	for b := got.RecordBatches; len(b) >= 61; b = b[min(len(b), 12+int(binary.BigEndian.Uint32(b[8:]))):] {
		if b[22]&0x80 != 0 {
			t.Fatalf("version %d, %d bytes, from %d: a filler at %d", version, size, at, binary.BigEndian.Uint64(b))
		}
	}
	level := kgo.ReadUncommitted()
	if isolation == 1 {
		level = kgo.ReadCommitted()
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: at, Topic: r.topic, IsolationLevel: level}, got, kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		t.Fatalf("version %d from %d: %v", version, at, fp.Err)
	}
	records := map[int64]string{}
	for _, record := range fp.Records {
		records[record.Offset] = shown(record)
	}
	return records, next
}

// fetch is one Fetch in one version of the protocol.
func (r rawReader) fetch(ctx context.Context, version int16, at int64, size int32, isolation int8) (*kmsg.FetchResponseTopicPartition, error) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = at, size
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic, ft.TopicID, ft.Partitions = r.topic, r.id, []kmsg.FetchRequestTopicPartition{p}
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis, request.MinBytes, request.MaxBytes, request.SessionEpoch, request.IsolationLevel = 100, 1, size, -1, isolation
	request.Topics = []kmsg.FetchRequestTopic{ft}
	response, err := r.leader.RetriableRequest(ctx, fetchPinned{request, version})
	if err != nil {
		return nil, err
	}
	topics := response.(*kmsg.FetchResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return nil, errors.New("the answer is not about one partition")
	}
	return &topics[0].Partitions[0], kerr.ErrorForCode(topics[0].Partitions[0].ErrorCode)
}

type fetchPinned struct {
	*kmsg.FetchRequest
	version int16
}

func (p fetchPinned) MaxVersion() int16 { return p.version }

// hidingWriter writes records with keys of their own, 20 s of their time after each other, so that each begins a segment.
type hidingWriter struct {
	t                *testing.T
	bootstrap, topic string
	at               time.Time
	n                int
}

func (w *hidingWriter) record() *kgo.Record {
	w.n++
	return &kgo.Record{Topic: w.topic, Key: fmt.Appendf(nil, "key-%d", w.n), Value: fmt.Appendf(nil, "value-%d", w.n), Timestamp: w.at}
}

func (w *hidingWriter) write(n int) {
	w.t.Helper()
	client := harness.Client(w.t, w.bootstrap)
	for range n {
		w.at = w.at.Add(20 * time.Second)
		if err := client.ProduceSync(w.t.Context(), w.record()).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *hidingWriter) abort(n int) {
	w.t.Helper()
	client := harness.Client(w.t, w.bootstrap, kgo.TransactionalID(fmt.Sprintf("%s-%d", w.topic, w.n)))
	if err := client.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	var records []*kgo.Record
	for range n {
		records = append(records, w.record())
	}
	err := client.ProduceSync(w.t.Context(), records...).FirstErr()
	if err = errors.Join(err, client.EndTransaction(w.t.Context(), kgo.TryAbort)); err != nil {
		w.t.Fatal(err)
	}
	admin := harness.Admin(w.t, w.bootstrap)
	harness.Eventually(w.t, time.Minute, "the marker is written", func(ctx context.Context) error {
		stable, err := admin.ListCommittedOffsets(ctx, w.topic)
		if err != nil {
			return err
		}
		ends, err := harness.Ends(ctx, admin, w.topic)
		o, _ := stable.Lookup(w.topic, 0)
		if err == nil && o.Offset != ends[harness.TopicPartition{Topic: w.topic}] {
			err = fmt.Errorf("stable up to %d", o.Offset)
		}
		return err
	})
}
