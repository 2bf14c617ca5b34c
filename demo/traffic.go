package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// partition names a partition of one of the demo's topics.
type partition struct {
	topic string
	n     int32
}

func (p partition) String() string { return fmt.Sprintf("%s-%d", p.topic, p.n) }

// producer writes records at a steady rate, round robin over all partitions. The value of each record begins with the
// offset it must get.
type producer struct {
	client *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	next   map[partition]int64
	total  atomic.Int64
	failed error
}

func startProducer(bootstrap []string, rate int) (*producer, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("making the producer: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &producer{client: client, cancel: cancel, done: make(chan struct{}), next: map[partition]int64{}}
	go p.run(ctx, rate)
	return p, nil
}

func (p *producer) run(ctx context.Context, rate int) {
	defer close(p.done)
	const tick = 20 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	begin, sent := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			for due := int(now.Sub(begin).Seconds() * float64(rate)); sent < due; sent++ {
				p.send(sent)
			}
		}
	}
}

func (p *producer) send(n int) {
	to := partition{topics[n%len(topics)], int32(n / len(topics) % partitions)}
	p.mu.Lock()
	offset := p.next[to]
	p.next[to]++
	p.mu.Unlock()
	record := &kgo.Record{
		Topic: to.topic, Partition: to.n,
		Key:     []byte("customer-" + strconv.Itoa(n%97)),
		Value:   []byte(strconv.FormatInt(offset, 10) + " record " + strconv.Itoa(n) + strings.Repeat(".", n%200)),
		Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(strconv.Itoa(n))}},
	}
	p.client.Produce(context.Background(), record, func(r *kgo.Record, err error) {
		switch {
		case err != nil:
			p.fail(fmt.Errorf("producing to %v at the source: %w", to, err))
		case r.Offset != offset:
			p.fail(fmt.Errorf("producing to %v at the source: offset %d where %d was due", to, r.Offset, offset))
		default:
			p.total.Add(1)
		}
	})
}

func (p *producer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
	}
}

// stop ends producing and waits until everything is acknowledged. It may be called again.
func (p *producer) stop() {
	p.cancel()
	<-p.done
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = p.client.Flush(ctx) // what is not acknowledged is missed by compare
	p.client.Close()
}

func (p *producer) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

func (p *producer) acked() int64 { return p.total.Load() }

func (p *producer) ends() map[partition]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.next)
}

// reader checks what the consumer group reads, wherever it reads it: per partition, every offset once and in order.
type reader struct {
	mu      sync.Mutex
	next    map[partition]int64
	changed chan struct{} // closed and made anew whenever next changes
	failed  error
}

func newReader() *reader {
	return &reader{next: map[partition]int64{}, changed: make(chan struct{})}
}

func (r *reader) read(record *kgo.Record) {
	p := partition{record.Topic, record.Partition}
	text, _, _ := strings.Cut(string(record.Value), " ")
	r.mu.Lock()
	defer r.mu.Unlock()
	switch want := r.next[p]; {
	case r.failed != nil:
	case record.Offset != want:
		r.failed = fmt.Errorf("group %s read offset %d of %v where %d was next", groupName, record.Offset, p, want)
	case text != strconv.FormatInt(want, 10):
		r.failed = fmt.Errorf("group %s read a record at offset %d of %v that was written at %q", groupName, want, p, text)
	default:
		r.next[p]++
	}
	r.tell()
}

// take reads all that a poll brought, also if it was called off meanwhile: what was polled is committed by stop, and would
// be missing where the group goes on.
func (r *reader) take(polled kgo.Fetches) {
	polled.EachRecord(r.read)
	polled.EachError(func(topic string, n int32, err error) {
		if !errors.Is(err, context.Canceled) {
			r.fail(fmt.Errorf("group %s reading %s-%d: %w", groupName, topic, n, err))
		}
	})
}

// tell wakes waitFor. REQUIRES: r.mu.
func (r *reader) tell() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *reader) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = err
	}
	r.tell()
}

func (r *reader) positions() map[partition]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.next)
}

func (r *reader) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// waitFor returns when the group has read up to ends, or failed.
func (r *reader) waitFor(ctx context.Context, ends map[partition]int64) error {
	for {
		r.mu.Lock()
		missing, changed, err := 0, r.changed, r.failed
		for p, end := range ends {
			if r.next[p] < end {
				missing++
			}
		}
		r.mu.Unlock()
		if err != nil || missing == 0 {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d partitions are not read to their end: %w", missing, ctx.Err())
		}
	}
}

// groupMember is the one member of the consumer group, at the source or at the gateway.
type groupMember struct {
	client *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}
	once   sync.Once
}

// joinGroup starts to consume. With mustContinue, a partition without a committed offset is an error instead of a start
// at 0: that the offsets are there is the point.
func joinGroup(bootstrap []string, r *reader, mustContinue bool, more ...kgo.Opt) (*groupMember, error) {
	reset := kgo.NewOffset().AtStart()
	if mustContinue {
		reset = kgo.NoResetOffset()
	}
	client, err := kgo.NewClient(append(more, kgo.SeedBrokers(bootstrap...), kgo.ConsumerGroup(groupName), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(reset), kgo.DisableAutoCommit(), kgo.FetchMaxWait(200*time.Millisecond))...)
	if err != nil {
		return nil, fmt.Errorf("making the consumer: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &groupMember{client: client, cancel: cancel, done: make(chan struct{})}
	go g.run(ctx, r)
	return g, nil
}

func (g *groupMember) run(ctx context.Context, r *reader) {
	defer close(g.done)
	for ctx.Err() == nil {
		r.take(g.client.PollFetches(ctx))
		// A commit that fails is made good by the next; the last one is checked by the group that goes on there.
		_ = g.client.CommitUncommittedOffsets(ctx)
	}
}

// stop commits, leaves the group and waits. It may be called again.
func (g *groupMember) stop() {
	g.once.Do(func() {
		g.cancel()
		<-g.done
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = g.client.CommitUncommittedOffsets(ctx)
		g.client.LeaveGroup()
		g.client.Close()
	})
}
