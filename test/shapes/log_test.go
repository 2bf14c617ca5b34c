package shapes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// epochMillis is the timestamp of the first record of most logs: long ago, so that nothing depends on today.
const epochMillis = 1_700_000_000_000

// transactionTimeout is longer than any row keeps a transaction open, which is while all rows of its release are made and mirrored.
const transactionTimeout = time.Hour

// source is a cluster that logs are made at.
type source struct {
	*kafkatest.Cluster
	client *kgo.Client
	admin  *kadm.Client
}

func newSource(t *testing.T, version string) *source {
	t.Helper()
	cluster := kafkatest.Start(t, kafkatest.Options{Version: version, Settings: map[string]string{
		"message.max.bytes":          fmt.Sprint(sourceMaxBytes),
		"replica.fetch.max.bytes":    fmt.Sprint(sourceMaxBytes),
		"auto.create.topics.enable":  "false",
		"transaction.max.timeout.ms": fmt.Sprint(transactionTimeout.Milliseconds()),
		"log.cleaner.io.buffer.size": "8388608",
		// A log that was made by hand is shorter than the checkpoints say.
		"log.flush.start.offset.checkpoint.interval.ms": "1000",
	}})
	s := &source{Cluster: cluster, client: harness.Client(t, cluster.Bootstrap())}
	s.admin = kadm.NewClient(s.client)
	return s
}

// log is the one partition of a topic at a source.
type log struct {
	*source
	topic string

	mu      sync.Mutex
	clients []*kgo.Client
	// kept is what one hook of the row leaves for another.
	kept any
}

func (l *log) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, client := range l.clients {
		client.Close()
	}
	l.clients = nil
}

func (l *log) dir() string { return filepath.Join(l.Dir, "node-1", "data", l.topic+"-0") }

// create makes the topic and waits until its partition has a leader.
func (l *log) create(t *testing.T, configs map[string]string) {
	t.Helper()
	all := map[string]string{"retention.ms": "-1"}
	maps.Copy(all, configs)
	values := map[string]*string{}
	for key, value := range all {
		values[key] = &value
	}
	// Where ZooKeeper is used, a name is taken for a moment longer than the topic.
	harness.Eventually(t, time.Minute, "the topic is made", func(ctx context.Context) error {
		created, err := l.admin.CreateTopic(ctx, 1, 1, values, l.topic)
		return errors.Join(err, created.Err)
	})
	l.awaitLeader(t)
}

func (l *log) awaitLeader(t *testing.T) {
	t.Helper()
	harness.Eventually(t, time.Minute, "the partition has a leader", func(ctx context.Context) error {
		_, err := l.bounds(ctx)
		return err
	})
}

func (l *log) delete(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	deleted, err := l.admin.DeleteTopics(ctx, l.topic)
	if err = errors.Join(err, deleted.Error()); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, time.Minute, "the topic is gone", func(ctx context.Context) error {
		topics, err := l.admin.ListTopics(ctx)
		if err == nil && topics.Has(l.topic) {
			err = errors.New("it is still there")
		}
		return err
	})
}

func (l *log) set(t *testing.T, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// The whole set is written again: sources before 2.3 have no incremental change.
	described, err := l.admin.DescribeTopicConfigs(ctx, l.topic)
	if err != nil {
		t.Fatal(err)
	}
	changes := []kadm.AlterConfig{{Name: key, Value: &value}}
	for _, c := range described[0].Configs {
		if c.Key != key && c.Source.String() == "DYNAMIC_TOPIC_CONFIG" {
			changes = append(changes, kadm.AlterConfig{Name: c.Key, Value: c.Value})
		}
	}
	altered, err := l.admin.AlterTopicConfigsState(ctx, changes, l.topic)
	if err != nil || altered[0].Err != nil {
		t.Fatalf("setting %s of %s: %v %v", key, l.topic, err, altered)
	}
}

// trim deletes the records below an offset.
func (l *log) trim(t *testing.T, offset int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var offsets kadm.Offsets = map[string]map[int32]kadm.Offset{}
	offsets.AddOffset(l.topic, 0, offset, -1)
	deleted, err := l.admin.DeleteRecords(ctx, offsets)
	if err = errors.Join(err, deleted.Error()); err != nil {
		t.Fatal(err)
	}
}

// producer writes batches of exactly the records that it is given.
type producer struct {
	t      *testing.T
	l      *log
	client *kgo.Client
	n      int64 // records so far: the next one's number
}

// plain is without a producer ID, idempotent with one.
var plain = kgo.DisableIdempotentWrite()

func idempotent(codec kgo.CompressionCodec) kgo.Opt { return kgo.ProducerBatchCompression(codec) }

func (l *log) producer(t *testing.T, opts ...kgo.Opt) *producer {
	t.Helper()
	base := []kgo.Opt{
		kgo.SeedBrokers(l.Bootstrap()), kgo.DefaultProduceTopic(l.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ManualFlushing(), kgo.MaxBufferedRecords(1 << 20), kgo.ProducerBatchMaxBytes(64 << 20), kgo.BrokerMaxWriteBytes(100 << 20),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MetadataMinAge(50 * time.Millisecond), kgo.TransactionTimeout(transactionTimeout),
		kgo.AlwaysRetryEOF(), kgo.UnknownTopicRetries(-1),
	}
	client, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	l.clients = append(l.clients, client)
	l.mu.Unlock()
	return &producer{t: t, l: l, client: client}
}

// send writes one batch and returns the offset of its first record.
func (p *producer) send(records ...*kgo.Record) int64 {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	var mu sync.Mutex
	var errs error
	for _, r := range records {
		p.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			errs = errors.Join(errs, err)
		})
	}
	if err := p.client.Flush(ctx); err != nil {
		p.t.Fatalf("producing to %s: %v", p.l.topic, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if errs != nil {
		p.t.Fatalf("producing to %s: %v", p.l.topic, errs)
	}
	return records[0].Offset
}

// record has a timestamp of so many seconds after epochMillis.
func record(seconds int64, key, value string) *kgo.Record {
	return &kgo.Record{Key: []byte(key), Value: []byte(value), Timestamp: time.UnixMilli(epochMillis + 1000*seconds)}
}

// fill writes batches of n records each, a second apart, all with keys of their own.
func (p *producer) fill(batches, n int) {
	p.t.Helper()
	for range batches {
		var records []*kgo.Record
		for range n {
			records = append(records, record(p.n, fmt.Sprintf("key-%d", p.n), fmt.Sprintf("value-%d-%s", p.n, p.l.topic)))
			p.n++
		}
		p.send(records...)
	}
}

// transaction writes batches of n records within a transaction of its own.
func (p *producer) transaction(commit kgo.TransactionEndTry, batches, n int) {
	p.t.Helper()
	p.begin()
	p.fill(batches, n)
	p.end(commit)
	p.awaitMarker()
}

// endOn ends a transaction that another test began; it is the only open one of its log.
func (p *producer) endOn(t *testing.T, commit kgo.TransactionEndTry) {
	t.Helper()
	p.t = t
	p.end(commit)
	p.awaitMarker()
}

// awaitMarker waits for the marker of the only transaction there is: the coordinator answers before it is written.
func (p *producer) awaitMarker() {
	p.t.Helper()
	harness.Eventually(p.t, time.Minute, "the transaction's marker is written", func(ctx context.Context) error {
		b, err := p.l.bounds(ctx)
		if err == nil && b.lso != b.high {
			err = fmt.Errorf("the log is %+v", b)
		}
		return err
	})
}

func (p *producer) begin() {
	p.t.Helper()
	if err := p.client.BeginTransaction(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *producer) end(commit kgo.TransactionEndTry) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if err := p.client.EndTransaction(ctx, commit); err != nil {
		p.t.Fatal(err)
	}
}

// transactional is a producer with a transactional ID of this log.
func (l *log) transactional(t *testing.T, name string, opts ...kgo.Opt) *producer {
	t.Helper()
	return l.producer(t, append([]kgo.Opt{kgo.TransactionalID(l.topic + name)}, opts...)...)
}
