package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// dataset is a topic of the source.
type dataset struct {
	topic      string
	partitions int
	records    int64
	bytes      int64 // as stored by the source
}

// dataset returns the dataset of that name at the common source, made on first use; its content is the same in every run.
func (l *lab) dataset(ctx context.Context, name string) (dataset, error) {
	if d, ok := l.datasets[name]; ok {
		return d, nil
	}
	if err := l.clusters(ctx); err != nil {
		return dataset{}, err
	}
	d, err := l.fill(ctx, l.source, name, 6, l.records)
	if err != nil {
		return d, fmt.Errorf("filling %s: %w", name, err)
	}
	if err := l.warmUp(ctx, d); err != nil {
		return d, fmt.Errorf("warming up: %w", err)
	}
	l.datasets[name] = d
	return d, nil
}

// fill makes a dataset at a cluster.
func (l *lab) fill(ctx context.Context, cluster *kafkatest.Cluster, name string, partitions, records int) (dataset, error) {
	d := dataset{topic: name, partitions: partitions, records: int64(records)}
	if err := l.createTopic(ctx, cluster, name, partitions, nil); err != nil {
		return d, err
	}
	admin, err := l.admin(cluster)
	if err != nil {
		return d, err
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(cluster.BrokerAddr(1)), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(100_000),
		kgo.ProducerBatchMaxBytes(64 << 10),
	}
	var value func(i int) []byte
	random := rand.New(rand.NewPCG(1, 2))
	switch name {
	case "random", "wan":
		opts = append(opts, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(1_000_000))
		value = func(int) []byte { return randomBytes(random, 1000) }
	case "json":
		opts = append(opts, kgo.ProducerBatchCompression(kgo.ZstdCompression()))
		value = func(i int) []byte { return event(random, i) }
	default:
		return d, errors.New("there is no such dataset")
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return d, err
	}
	defer client.Close()
	var failed atomic.Pointer[error]
	for i := range records {
		// Long runs of a partition make full batches.
		record := &kgo.Record{Topic: name, Partition: int32(i/1000) % int32(partitions), Key: fmt.Appendf(nil, "%d", i), Value: value(i)}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return d, err
	}
	if err := failed.Load(); err != nil {
		return d, *err
	}
	d.bytes, err = stored(ctx, admin, name)
	fmt.Printf("%s: %d records, %.0f MB stored\n", name, d.records, float64(d.bytes)/1e6)
	return d, err
}

func randomBytes(random *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		v := random.Uint64()
		for j := range 8 {
			b[i+j] = byte(v >> (8 * j))
		}
	}
	return b
}

// event is a JSON document of about 0.9 kB as applications write them: zstd makes it about a fifth.
func event(random *rand.Rand, i int) []byte {
	words := strings.Fields("account balance cart checkout coupon customer delivery discount express gift invoice item " +
		"order parcel payment pending price quantity refund region return shipping status stock store total voucher warehouse")
	var b strings.Builder
	fmt.Fprintf(&b, `{"eventId":"%016x","sequence":%d,"type":"order.%s","occurredAt":"2025-0%d-%02dT%02d:%02d:%02dZ","customer":{"id":%d,"segment":%q,"country":%q},"items":[`,
		random.Uint64(), i, words[random.IntN(len(words))], 1+random.IntN(9), 1+random.IntN(28), random.IntN(24), random.IntN(60), random.IntN(60),
		random.IntN(1_000_000), words[random.IntN(5)], []string{"DE", "FR", "NL", "PL"}[random.IntN(4)])
	for item := range 5 {
		if item > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"sku":"SKU-%05d","description":"%s %s %s","quantity":%d,"price":{"amount":%d.%02d,"currency":"EUR"}}`, random.IntN(20_000),
			words[random.IntN(len(words))], words[random.IntN(len(words))], words[random.IntN(len(words))], 1+random.IntN(9), random.IntN(500), random.IntN(100))
	}
	fmt.Fprintf(&b, `],"shipping":{"method":%q,"status":%q},"trace":"%016x"}`, words[random.IntN(len(words))], words[random.IntN(len(words))], random.Uint64())
	return []byte(b.String())
}

// readAll reads the dataset once, without looking into it: its pages are in memory for everyone alike.
func readAll(ctx context.Context, cluster *kafkatest.Cluster, data dataset) error {
	return eachBatch(ctx, cluster, data, func(int32, []byte) bool { return true })
}
