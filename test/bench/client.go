package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// client compares what a client's produce and consume get through on its ways: franz-go, 6 partitions, 1 kB random
// records, uncompressed. What is consumed is a mirror topic, what is produced to is not.
func client(ctx context.Context, l *lab) error {
	data, err := l.dataset(ctx, "random")
	if err != nil {
		return err
	}
	ways, end, err := l.ways(ctx, data)
	if err != nil {
		return err
	}
	defer end()
	subjects := make([]subject, len(ways))
	for i, w := range ways {
		subjects[i] = subject{w.name, func(ctx context.Context) (sample, error) { return l.clientRun(ctx, w, data) }}
	}
	if _, err := l.clientRun(ctx, ways[0], data); err != nil { // the brokers have not served these ways yet
		return err
	}
	return l.rounds(ctx, subjects, func(context.Context) error { return nil })
}

func (l *lab) clientRun(ctx context.Context, w way, data dataset) (sample, error) {
	s := sample{Subject: w.name}
	if w.name == "gateway" {
		l.profiled.profile(5)
	}
	if err := l.deleteTopics(ctx, l.destination, func(t string) bool { return t == producedTopic }); err != nil {
		return s, err
	}
	if err := l.createTopic(ctx, l.destination, producedTopic, data.partitions, nil); err != nil {
		return s, err
	}
	for _, direction := range []struct {
		name string
		run  func(context.Context, way, dataset) (bytes int64, err error)
	}{{"produce", produceAll}, {"consume", consumeAll}} {
		clock := l.startClock(w.pid)
		bytes, err := direction.run(ctx, w, data)
		if err != nil {
			return s, fmt.Errorf("%s: %w", direction.name, err)
		}
		measured := clock.stop(w.name, bytes, data.records)
		rate, _ := measured.get("MB/s")
		s.set(direction.name+" MB/s", rate)
		if w.pid != 0 {
			cpu, _ := measured.get("CPU s/GB")
			s.set(direction.name+" CPU s/GB", cpu)
		}
	}
	if w.pid != 0 {
		s.set("peak MB", peakMB(w.pid))
	}
	return s, nil
}

// clientVersions are those that kafka-proxy knows too, so that all ways carry the same messages.
func clientVersions() kgo.Opt { return kgo.MaxVersions(kversion.V3_8_0()) }

const producedTopic = "produced"

// produceAll writes as many records as the dataset has to a topic that is there for this only.
func produceAll(ctx context.Context, w way, data dataset) (int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.bootstrap), clientVersions(), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(20_000), kgo.DefaultProduceTopic(producedTopic))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	value := randomBytes(rand.New(rand.NewPCG(5, 6)), 1000)
	var failed atomic.Pointer[error]
	for i := range data.records {
		client.Produce(ctx, &kgo.Record{Partition: int32(i/1000) % int32(data.partitions), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return 0, err
	}
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return data.records * int64(len(value)), nil
}

// consumeAll reads the mirrored dataset.
func consumeAll(ctx context.Context, w way, data dataset) (int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(w.bootstrap), clientVersions(), kgo.ConsumeTopics(data.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	records, bytes := int64(0), int64(0)
	for records < data.records {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return 0, err
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			r := iter.Next()
			records++
			bytes += int64(len(r.Value))
		}
	}
	return bytes, nil
}
