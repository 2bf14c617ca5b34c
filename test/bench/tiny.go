package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
)

// tiny lets a mirror and MirrorMaker 2 copy a topic whose batches have one record each, as producers make them that do
// not linger.
func tiny(ctx context.Context, l *lab) error {
	if err := l.clusters(ctx); err != nil {
		return err
	}
	data, err := l.fillTiny(ctx, l.records*3/10)
	if err != nil {
		return fmt.Errorf("filling: %w", err)
	}
	return l.rounds(ctx, []subject{
		{"mirrorgate", func(ctx context.Context) (sample, error) { return l.mirrorRun(ctx, data) }},
		{"mm2", func(ctx context.Context) (sample, error) { return l.mm2Run(ctx, "mm2", data, nil) }},
	}, func(ctx context.Context) error { return readAll(ctx, l.source, data) })
}

// fillTiny makes the topic: 6 partitions, values of 100 random bytes.
func (l *lab) fillTiny(ctx context.Context, records int) (dataset, error) {
	d := dataset{topic: "tiny", partitions: 6}
	if err := l.createTopic(ctx, l.source, d.topic, d.partitions, nil); err != nil {
		return d, err
	}
	random := rand.New(rand.NewPCG(3, 4))
	var frames [2][][]byte // by connection; each has three partitions of its own
	for range records / d.partitions {
		for c := range frames {
			var parts []producePart
			for p := c; p < d.partitions; p += len(frames) {
				parts = append(parts, producePart{int32(p), oneRecord(randomBytes(random, 100))})
			}
			frames[c] = append(frames[c], produceFrame(d.topic, parts...))
		}
	}
	d.records = int64(records / d.partitions * d.partitions)
	var wg sync.WaitGroup
	var errs [len(frames)]error
	for c := range frames {
		w, err := dialWire(ctx, l.source.BrokerAddr(1))
		if err != nil {
			return d, err
		}
		defer w.close()
		wg.Go(func() { errs[c] = w.pipeline(frames[c], replayDepth, produced) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return d, err
	}
	admin, err := l.admin(l.source)
	if err != nil {
		return d, err
	}
	d.bytes, err = stored(ctx, admin, d.topic)
	return d, err
}
