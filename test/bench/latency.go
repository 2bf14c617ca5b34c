package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	latencyRate   = 500             // records a second
	latencyWindow = 8 * time.Second // of one measurement
	latencyWarmUp = 6 * time.Second
)

// latency compares how soon records are readable at the destination. Both mirrors run all the time, each with a topic of its
// own, and are measured in turns.
func latency(ctx context.Context, l *lab) error {
	if err := l.clusters(ctx); err != nil {
		return err
	}
	for _, topic := range []string{"live-a", "live-b"} {
		if err := l.createTopic(ctx, l.source, topic, 1, nil); err != nil {
			return err
		}
	}
	m, err := l.newMM2(ctx, l.source, "live-b", nil)
	if err != nil {
		return err
	}
	g, err := l.newGateway(ctx)
	if err != nil {
		return err
	}
	defer g.end()
	if err := g.mirror(ctx, l.source.Bootstrap(), "live-a"); err != nil {
		return err
	}
	var streams []*stream
	defer func() {
		for _, s := range streams {
			s.close()
		}
	}()
	for _, s := range []struct{ name, from, to string }{{"mirrorgate", "live-a", "live-a"}, {"mm2", "live-b", m.topic}} {
		opened, err := l.openStream(ctx, s.name, s.from, s.to)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		streams = append(streams, opened)
		if _, err := opened.run(ctx, latencyWarmUp); err != nil {
			return fmt.Errorf("%s, warming up: %w", s.name, err)
		}
	}
	subjects := make([]subject, len(streams))
	for i, s := range streams {
		subjects[i] = subject{s.name, func(ctx context.Context) (sample, error) { return s.run(ctx, latencyWindow) }}
	}
	return l.rounds(ctx, subjects, func(context.Context) error { return nil })
}

// stream writes records to a topic of the source and reads the mirrored topic.
type stream struct {
	name      string
	topic     string
	producer  *kgo.Client
	consumer  *kgo.Client
	number    uint64
	mu        sync.Mutex
	acked     map[uint64]time.Time
	delivered map[uint64]time.Time
	stop      context.CancelFunc
	reading   sync.WaitGroup
}

// openStream returns when the first record has passed.
func (l *lab) openStream(ctx context.Context, name, from, to string) (*stream, error) {
	s := &stream{name: name, topic: from, acked: map[uint64]time.Time{}, delivered: map[uint64]time.Time{}}
	var err error
	if s.producer, err = kgo.NewClient(kgo.SeedBrokers(l.source.BrokerAddr(1)), kgo.ProducerLinger(0)); err != nil {
		return nil, err
	}
	if err := s.produce(ctx, 0); err != nil {
		return nil, err
	}
	admin, err := l.admin(l.destination)
	if err != nil {
		return nil, err
	}
	if err := eventually(ctx, 50*time.Millisecond, to+" has a record", func() (bool, error) { return offsets(ctx, admin, to) > 0, nil }); err != nil {
		return nil, err
	}
	if s.consumer, err = kgo.NewClient(kgo.SeedBrokers(l.destination.BrokerAddr(1)), kgo.ConsumeTopics(to), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())); err != nil {
		return nil, err
	}
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.reading.Go(func() { s.read(reading) })
	return s, nil
}

func (s *stream) close() {
	s.stop()
	s.reading.Wait()
	s.producer.Close()
	s.consumer.Close()
}

func (s *stream) produce(ctx context.Context, number uint64) error {
	value := make([]byte, 100)
	binary.BigEndian.PutUint64(value, number)
	results := s.producer.ProduceSync(ctx, &kgo.Record{Topic: s.topic, Value: value})
	return results.FirstErr()
}

func (s *stream) read(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := s.consumer.PollFetches(ctx)
		now := time.Now()
		s.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) { s.delivered[binary.BigEndian.Uint64(r.Value)] = now })
		s.mu.Unlock()
	}
}

// run writes at the rate for some time and waits until all has arrived.
func (s *stream) run(ctx context.Context, window time.Duration) (sample, error) {
	ticker := time.NewTicker(time.Second / latencyRate)
	defer ticker.Stop()
	var failed error
	began, first := time.Now(), s.number+1
	for end := time.Now().Add(window); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return sample{}, ctx.Err()
		case <-ticker.C:
		}
		s.number++
		value, number := make([]byte, 100), s.number
		binary.BigEndian.PutUint64(value, number)
		s.producer.Produce(ctx, &kgo.Record{Topic: s.topic, Value: value}, func(_ *kgo.Record, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.acked[number] = time.Now(); err != nil {
				failed = err
			}
		})
	}
	seconds := time.Since(began).Seconds()
	if err := s.producer.Flush(ctx); err != nil {
		return sample{}, err
	}
	wanted := s.number - first + 1
	var late []float64
	err := eventually(ctx, 20*time.Millisecond, "all has arrived", func() (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		late = late[:0]
		for n := first; n <= s.number; n++ {
			if at, ok := s.delivered[n]; ok {
				late = append(late, at.Sub(s.acked[n]).Seconds()*1e3)
			}
		}
		return uint64(len(late)) == wanted, failed
	})
	if err != nil {
		return sample{}, err
	}
	out := sample{Subject: s.name}
	out.set("records/s", float64(wanted)/seconds)
	out.set("p50 ms", percentile(late, 0.50))
	out.set("p99 ms", percentile(late, 0.99))
	out.set("max ms", slices.Max(late))
	return out, nil
}
