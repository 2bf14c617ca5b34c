package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	idleWindow = 15 * time.Second
	idleTopics = 10
)

// idle has a mirror of many partitions of which one in a hundred gets a record a second. It measures the start, what the
// mirror costs, and how soon a record arrives in a partition that has been idle.
func idle(ctx context.Context, l *lab, prefix string, partitions int) error {
	if err := l.clusters(ctx); err != nil {
		return err
	}
	topics := make([]string, idleTopics)
	for i := range topics {
		topics[i] = fmt.Sprintf("%s-%d", prefix, i)
		// Small indexes, or a broker maps 200 GB.
		if err := l.createTopic(ctx, l.source, topics[i], partitions/idleTopics, map[string]string{"segment.index.bytes": "65536"}); err != nil {
			return err
		}
	}
	producer, err := kgo.NewClient(kgo.SeedBrokers(l.source.BrokerAddr(1)), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer producer.Close()
	load := &idleLoad{producer: producer, topics: topics, each: partitions / idleTopics}
	if err := load.toAll(ctx); err != nil {
		return fmt.Errorf("a record for every partition: %w", err)
	}
	g, err := l.newGateway(ctx)
	if err != nil {
		return err
	}
	defer g.end()
	began := time.Now()
	if err := g.mirror(ctx, l.source.Bootstrap(), topics...); err != nil {
		return err
	}
	if err := l.awaitMirrored(ctx, g, topics, partitions); err != nil {
		return err
	}
	out := sample{Subject: "mirrorgate"}
	out.set("partitions", float64(partitions))
	out.set("adding s", time.Since(began).Seconds())
	if err := g.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-g.Done()
	began = time.Now()
	if err := g.start(ctx); err != nil {
		return err
	}
	if err := l.awaitMirrored(ctx, g, topics, partitions); err != nil {
		return err
	}
	out.set("start s", time.Since(began).Seconds())
	if err := l.idleCost(ctx, g, load, &out); err != nil {
		return err
	}
	l.keep(out)
	return nil
}

// awaitMirrored waits until all partitions are MIRRORING and all their records are at the destination.
func (l *lab) awaitMirrored(ctx context.Context, g *gateway, topics []string, partitions int) error {
	err := g.until(ctx, 200*time.Millisecond, "all partitions are MIRRORING", func() (bool, error) {
		n, err := g.mirroring()
		return n == partitions, err
	})
	if err != nil {
		return err
	}
	admin, err := l.admin(l.destination)
	if err != nil {
		return err
	}
	return g.until(ctx, 200*time.Millisecond, "all records are mirrored", func() (bool, error) {
		n := int64(0)
		for _, topic := range topics {
			n += offsets(ctx, admin, topic)
		}
		return n >= int64(partitions), nil
	})
}

// idleCost measures under the load.
func (l *lab) idleCost(ctx context.Context, g *gateway, load *idleLoad, out *sample) error {
	stop, ended := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer ended()
	running.Go(func() { load.run(stop) })
	if err := pause(ctx, 5*time.Second); err != nil { // what follows the start is over
		return err
	}
	g.profile(int(idleWindow / time.Second))
	began, cpu := time.Now(), cpuSeconds(g.PID)
	late, err := l.wakeUps(ctx, load)
	if err != nil {
		return err
	}
	out.set("CPU %", (cpuSeconds(g.PID)-cpu)/time.Since(began).Seconds()*100)
	out.set("resident MB", residentMB(g.PID))
	out.set("peak MB", peakMB(g.PID))
	if len(late) > 0 {
		out.set("median new record s", median(late))
		out.set("slowest new record s", slices.Max(late))
	}
	return nil
}

// wakeUps writes a record to one idle partition after the other and measures how long each takes to the destination. With
// few partitions none is idle; then it only waits as long.
func (l *lab) wakeUps(ctx context.Context, load *idleLoad) ([]float64, error) {
	if load.live(int32(load.each) - 1) {
		return nil, pause(ctx, idleWindow)
	}
	destination, err := l.admin(l.destination)
	if err != nil {
		return nil, err
	}
	var late []float64
	random := rand.New(rand.NewPCG(7, 8))
	for end := time.Now().Add(idleWindow); time.Now().Before(end); {
		topic, partition := load.topics[random.IntN(len(load.topics))], int32(random.IntN(load.each))
		if load.live(partition) {
			continue
		}
		before, err := endOf(ctx, destination.kgo, topic, partition)
		if err != nil {
			return nil, err
		}
		if err := load.producer.ProduceSync(ctx, load.record(topic, partition)).FirstErr(); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := eventually(ctx, 5*time.Millisecond, "the record has arrived", func() (bool, error) {
			now, err := endOf(ctx, destination.kgo, topic, partition)
			return now > before, err
		}); err != nil {
			return nil, err
		}
		late = append(late, time.Since(began).Seconds())
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return late, nil
}

// idleLoad writes to the partitions.
type idleLoad struct {
	producer *kgo.Client
	topics   []string
	each     int // partitions of each topic
}

// live tells the partitions that are written to all the time: one in a hundred, the first at least.
func (l *idleLoad) live(partition int32) bool { return int(partition) < max(1, l.each/100) }

func (l *idleLoad) record(topic string, partition int32) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Value: []byte("a record that wakes up a partition")}
}

func (l *idleLoad) toAll(ctx context.Context) error {
	var records []*kgo.Record
	for _, topic := range l.topics {
		for p := range int32(l.each) {
			records = append(records, l.record(topic, p))
		}
	}
	return l.producer.ProduceSync(ctx, records...).FirstErr()
}

// run writes a record a second to each live partition.
func (l *idleLoad) run(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		for _, topic := range l.topics {
			for p := int32(0); l.live(p) && int(p) < l.each; p++ {
				l.producer.Produce(ctx, l.record(topic, p), nil)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// partitionScale is idle with fewer partitions, to see what each costs.
func partitionScale(ctx context.Context, l *lab) error {
	for _, n := range []int{10, 100, 1000} {
		prefix := fmt.Sprintf("scale-%d", n)
		if err := idle(ctx, l, prefix, n); err != nil {
			return err
		}
		own := func(t string) bool { return strings.HasPrefix(t, prefix+"-") }
		if err := l.deleteTopics(ctx, l.source, own); err != nil {
			return err
		}
		if err := l.deleteTopics(ctx, l.destination, own); err != nil {
			return err
		}
	}
	return nil
}
