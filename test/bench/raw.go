package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// rawLimit bounds how much of a dataset is held in memory for the raw replay.
const rawLimit = 500 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// replay is a dataset, or the beginning of it, as requests in memory: as much as no mirror can avoid. Each connection has
// the same share of the partitions in all its requests.
type replay struct {
	frames [][][]byte // by connection
	bytes  int        // of batches
}

// replayConnections and replayDepth are what a broker on these machines was fastest with.
const (
	replayConnections = 2
	replayDepth       = 5
)

// newReplay reads batches of the dataset and makes them requests for a topic of as many partitions.
func newReplay(ctx context.Context, source *kafkatest.Cluster, data dataset, topic string, limit int) (*replay, error) {
	r := &replay{frames: make([][][]byte, min(replayConnections, data.partitions))}
	batches := make([][][]byte, data.partitions)
	err := eachBatch(ctx, source, data, func(partition int32, batch []byte) bool {
		batches[partition] = append(batches[partition], anonymous(batch))
		r.bytes += len(batch)
		return r.bytes < limit
	})
	for c := range r.frames {
		for more := true; more; {
			more = false
			var parts []producePart
			for p := c; p < data.partitions; p += len(r.frames) {
				if len(batches[p]) > 0 {
					parts = append(parts, producePart{int32(p), batches[p][0]})
					batches[p] = batches[p][1:]
					more = true
				}
			}
			if more {
				r.frames[c] = append(r.frames[c], produceFrame(topic, parts...))
			}
		}
	}
	return r, err
}

// throw sends all requests to broker 1.
func (r *replay) throw(ctx context.Context, cluster *kafkatest.Cluster) error {
	var wg sync.WaitGroup
	errs := make([]error, len(r.frames))
	for i, frames := range r.frames {
		w, err := dialWire(ctx, cluster.BrokerAddr(1))
		if err != nil {
			return err
		}
		defer w.close()
		wg.Go(func() { errs[i] = w.pipeline(frames, replayDepth, produced) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// rawRun throws a dataset at a new topic of the destination: no mirror can be faster.
func rawRun(ctx context.Context, l *lab, data dataset) (sample, error) {
	const topic = "raw"
	defer l.deleteTopics(ctx, l.destination, func(t string) bool { return t == topic })
	r, err := newReplay(ctx, l.source, data, topic, rawLimit)
	if err != nil {
		return sample{}, err
	}
	if err := l.createTopic(ctx, l.destination, topic, data.partitions, nil); err != nil {
		return sample{}, err
	}
	clock := l.startClock(os.Getpid())
	if err := r.throw(ctx, l.destination); err != nil {
		return sample{}, err
	}
	return clock.stop("raw", int64(r.bytes), data.records*int64(r.bytes)/data.bytes), nil
}

// warmUp makes both brokers compile their code before any clock runs.
func (l *lab) warmUp(ctx context.Context, data dataset) error {
	const topic = "warm-up"
	r, err := newReplay(ctx, l.source, data, topic, 200<<20)
	if err != nil {
		return err
	}
	if err := l.createTopic(ctx, l.destination, topic, data.partitions, nil); err != nil {
		return err
	}
	for range warmUpThrows {
		if err := r.throw(ctx, l.destination); err != nil {
			return err
		}
	}
	return l.deleteTopics(ctx, l.destination, func(t string) bool { return t == topic })
}

// warmUpThrows is after how many a broker takes them no faster. After one, the first replay that was measured took four
// times as long as the third.
const warmUpThrows = 5

// anonymous makes a copy of a batch that any producer may send.
func anonymous(batch []byte) []byte {
	b := append([]byte(nil), batch...)
	binary.BigEndian.PutUint64(b, 0)
	binary.BigEndian.PutUint64(b[43:], ^uint64(0)) // producer ID, epoch and sequence -1
	binary.BigEndian.PutUint16(b[51:], 0xffff)
	binary.BigEndian.PutUint32(b[53:], 0xffffffff)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

// oneRecord is a batch of one record with that value, no key and no headers.
func oneRecord(value []byte) []byte {
	record := kmsg.Record{Value: value}
	record.Length = int32(len(record.AppendTo(nil)) - 1) // a length of 0 takes one byte
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1,
		Records: record.AppendTo(nil),
	}
	batch.FirstTimestamp = time.Now().UnixMilli()
	batch.MaxTimestamp = batch.FirstTimestamp
	b := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))
	return b
}

// eachBatch fetches the batches of a dataset, partition by partition in turns, until all were seen or f returns false.
// f must not keep the batch.
func eachBatch(ctx context.Context, cluster *kafkatest.Cluster, data dataset, f func(partition int32, batch []byte) bool) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.BrokerAddr(1)))
	if err != nil {
		return err
	}
	defer client.Close()
	next := make([]int64, data.partitions)
	for ended := 0; ended < data.partitions; {
		ended = 0
		for partition := range int32(data.partitions) {
			records, end, err := fetch(ctx, client, data.topic, partition, next[partition])
			if err != nil {
				return fmt.Errorf("fetching %s/%d: %w", data.topic, partition, err)
			}
			for len(records) >= 61 {
				size := 12 + int(int32(binary.BigEndian.Uint32(records[8:])))
				if size > len(records) {
					break
				}
				if !f(partition, records[:size]) {
					return nil
				}
				next[partition] = int64(binary.BigEndian.Uint64(records)) + int64(int32(binary.BigEndian.Uint32(records[23:]))) + 1
				records = records[size:]
			}
			if next[partition] >= end {
				ended++
			}
		}
	}
	return nil
}

// oldFetch is at the last version that names topics.
type oldFetch struct{ *kmsg.FetchRequest }

func (oldFetch) MaxVersion() int16 { return 12 }

func fetch(ctx context.Context, client *kgo.Client, topic string, partition int32, offset int64) (records []byte, end int64, err error) {
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis, request.MinBytes, request.MaxBytes, request.SessionEpoch = 100, 1, 8<<20, -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 8<<20
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic, ft.Partitions = topic, []kmsg.FetchRequestTopicPartition{p}
	request.Topics = []kmsg.FetchRequestTopic{ft}
	response, err := client.Broker(1).RetriableRequest(ctx, oldFetch{request})
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
