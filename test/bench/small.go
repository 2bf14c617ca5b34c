package main

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// smallRequests are those of each way in one round.
const smallRequests = 3000

// small compares how long a produce of one record of 100 B takes on its ways, one request at a time. The ways take turns
// after each request, so that all meet the same moods of the machine.
func small(ctx context.Context, l *lab) error {
	data, err := l.dataset(ctx, "json")
	if err != nil {
		return err
	}
	ways, end, err := l.ways(ctx, data)
	if err != nil {
		return err
	}
	defer end()
	const topic = "small"
	if err := l.createTopic(ctx, l.destination, topic, 1, nil); err != nil {
		return err
	}
	frame := produceFrame(topic, producePart{0, oneRecord(bytes.Repeat([]byte("x"), 100))})
	wires := make([]*wire, len(ways))
	for i, w := range ways {
		if wires[i], err = dialEventually(ctx, w.broker); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		defer wires[i].close()
	}
	if _, err := smallRound(wires, frame, smallRequests/3); err != nil {
		return err
	}
	for l.round = range max(l.repeat, 3) {
		times, err := smallRound(wires, frame, smallRequests)
		if err != nil {
			return err
		}
		direct := percentile(times[0], 0.5)
		for i, w := range ways {
			s := sample{Subject: w.name}
			s.set("p50 ms", ms(percentile(times[i], 0.50)))
			s.set("p99 ms", ms(percentile(times[i], 0.99)))
			if i > 0 {
				s.set("added p50 ms", ms(percentile(times[i], 0.50)-direct))
			}
			l.keep(s)
		}
	}
	return nil
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

func smallRound(wires []*wire, frame []byte, requests int) ([][]time.Duration, error) {
	times := make([][]time.Duration, len(wires))
	for n := range requests {
		for i := range wires {
			at := (n + i) % len(wires) // none always comes after the same one
			began := time.Now()
			answer, err := wires[at].roundTrip(frame)
			if err != nil {
				return nil, err
			}
			times[at] = append(times[at], time.Since(began))
			if err := produced(answer); err != nil {
				return nil, err
			}
		}
	}
	return times, nil
}

// dialEventually connects to a process that may not listen yet.
func dialEventually(ctx context.Context, addr string) (w *wire, err error) {
	err = eventually(ctx, 50*time.Millisecond, addr+" listens", func() (bool, error) {
		w, err = dialWire(ctx, addr)
		return err == nil, err
	})
	return w, err
}
