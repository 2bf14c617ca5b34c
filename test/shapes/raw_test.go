package shapes

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// bounds are the offsets of a log. lso is the last stable offset, or start where the broker names a lower one: it names the
// base offset of a batch that start is in, if records of an open transaction were deleted before it (4.1).
type bounds struct{ start, lso, high int64 }

func (l *log) bounds(ctx context.Context) (bounds, error) { return boundsOf(ctx, l.client, l.topic) }

// boundsOf asks for the start and both ends of partition 0.
func boundsOf(ctx context.Context, client *kgo.Client, topic string) (b bounds, err error) {
	for _, ask := range []struct {
		at        *int64
		timestamp int64
		isolation int8
	}{{&b.start, -2, 0}, {&b.lso, -1, 1}, {&b.high, -1, 0}} {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = ask.timestamp
		lt := kmsg.NewListOffsetsRequestTopic()
		lt.Topic, lt.Partitions = topic, append(lt.Partitions, p)
		request := kmsg.NewPtrListOffsetsRequest()
		request.IsolationLevel, request.Topics = ask.isolation, append(request.Topics, lt)
		response, err := request.RequestWith(ctx, client)
		if err != nil {
			return b, fmt.Errorf("offsets of %s: %w", topic, err)
		}
		if len(response.Topics) != 1 || len(response.Topics[0].Partitions) != 1 {
			return b, errors.New("ListOffsets: the answer is not about one partition")
		}
		got := response.Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
			return b, fmt.Errorf("offsets of %s: %w", topic, err)
		}
		*ask.at = got.Offset
	}
	b.lso = max(b.lso, b.start)
	return b, nil
}

// pinned keeps a Fetch at the last version that names topics.
type pinned struct{ *kmsg.FetchRequest }

func (pinned) MaxVersion() int16 { return 12 }

func fetch(ctx context.Context, client *kgo.Client, topic string, offset int64, isolation int8) (*kmsg.FetchResponseTopicPartition, error) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.FetchOffset, p.PartitionMaxBytes = offset, 32<<20
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic, ft.Partitions = topic, append(ft.Partitions, p)
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis, request.MaxBytes, request.SessionEpoch, request.IsolationLevel = 100, 32<<20, -1, isolation
	request.Topics = append(request.Topics, ft)
	response, err := client.Broker(1).RetriableRequest(ctx, pinned{request})
	if err != nil {
		return nil, fmt.Errorf("fetching %s from %d: %w", topic, offset, err)
	}
	topics := response.(*kmsg.FetchResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return nil, errors.New("Fetch: the answer is not about one partition")
	}
	got := &topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return nil, fmt.Errorf("fetching %s from %d: %w", topic, offset, err)
	}
	return got, nil
}

// facts are what can be seen in the raw log of a partition.
type facts struct {
	bounds
	batches, records int
	magics           map[int8]int
	codecs           map[string]int
	transactional    int // data batches
	commits, aborts  int // markers
	empty            int // batches without records
	emptyRun         int // the most of them in a row
	holesInside      int // batches that lack records
	holesBetween     int
	widest           int64 // the longest run of offsets without records between batches
	appendTime       int
	bits             int16          // attribute bits 6 and 7 of data batches
	producers        map[int64]bool // IDs
	largest          int            // batch, bytes
	minTime, maxTime int64
	ends             string // what the last batch is: data, commit, abort, empty
	next             int64  // offset after the last batch
}

func (f facts) String() string { type bare facts; return fmt.Sprintf("%+v", bare(f)) }

// inspect reads the raw log, as a reader of uncommitted records does.
func (l *log) inspect(ctx context.Context) (facts, error) {
	f := facts{magics: map[int8]int{}, codecs: map[string]int{}, producers: map[int64]bool{}}
	var err error
	if f.bounds, err = l.bounds(ctx); err != nil {
		return f, err
	}
	f.next = f.start
	run := 0
	for f.next < f.high {
		got, err := fetch(ctx, l.client, l.topic, f.next, 0)
		if err != nil {
			return f, err
		}
		before := f.next
		for rest := got.RecordBatches; ; {
			var batch []byte
			batch, rest, err = recordbatch.Next(rest)
			if errors.Is(err, recordbatch.ErrPartial) {
				break
			}
			if err != nil {
				return f, err
			}
			h, err := recordbatch.ParseHeader(batch)
			if err != nil && !errors.Is(err, recordbatch.ErrOldFormat) {
				return f, err
			}
			if h.NextOffset() <= f.next {
				continue // also wanted by the broker's index, but seen already
			}
			if run = f.add(h, batch, run); run > f.emptyRun {
				f.emptyRun = run
			}
		}
		if f.next == before {
			return f, fmt.Errorf("nothing can be fetched from offset %d of %d", f.next, f.high)
		}
	}
	return f, nil
}

// add counts a batch; run is the number of empty ones before it in a row.
func (f *facts) add(h recordbatch.Header, batch []byte, run int) int {
	if hole := h.BaseOffset - f.next; hole > 0 && h.Magic == 2 {
		f.holesBetween++
		f.widest = max(f.widest, hole)
	}
	f.next = h.NextOffset()
	f.batches++
	f.magics[h.Magic]++
	f.largest = max(f.largest, len(batch))
	switch {
	case h.Control():
		f.ends = "abort"
		if isCommit(batch) {
			f.ends = "commit"
			f.commits++
		} else {
			f.aborts++
		}
		return 0
	case h.NumRecords == 0:
		f.ends = "empty"
		f.empty++
		return run + 1
	}
	f.ends = "data"
	f.records += int(h.NumRecords)
	f.codecs[h.Codec().String()]++
	f.producers[h.ProducerID] = true
	if f.minTime == 0 || h.BaseTimestamp < f.minTime {
		f.minTime = h.BaseTimestamp
	}
	f.maxTime = max(f.maxTime, h.MaxTimestamp)
	if h.Transactional() {
		f.transactional++
	}
	if h.LogAppendTime() {
		f.appendTime++
	}
	if h.Magic == 2 && h.NumRecords != h.LastOffsetDelta+1 {
		f.holesInside++
	}
	f.bits |= h.Attributes & 0xc0
	return 0
}

func isCommit(batch []byte) (commit bool) {
	_ = recordbatch.Records(batch, func(r recordbatch.Record) error {
		commit = len(r.Key) >= 4 && r.Key[3] == 1
		return nil
	})
	return commit
}

// raw is a batch that no producer makes, appended to the log through Produce.
func (l *log) raw(t *testing.T, batch kmsg.RecordBatch, records ...kmsg.Record) int64 {
	t.Helper()
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = encode(batch, records...)
	pt := kmsg.NewProduceRequestTopic()
	pt.Topic, pt.Partitions = l.topic, append(pt.Partitions, p)
	request := kmsg.NewPtrProduceRequest()
	request.Acks, request.TimeoutMillis, request.Topics = -1, 30000, append(request.Topics, pt)
	request.Version = 9
	response, err := l.client.Broker(1).RetriableRequest(t.Context(), pinnedProduce{request})
	if err != nil {
		t.Fatal(err)
	}
	got := response.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		t.Fatalf("producing a batch by hand: %v", err)
	}
	return got.BaseOffset
}

type pinnedProduce struct{ *kmsg.ProduceRequest }

func (pinnedProduce) MaxVersion() int16 { return 9 }
