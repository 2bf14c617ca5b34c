package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// clock measures time and CPU time from one moment on.
type clock struct {
	lab   *lab
	pid   int
	began time.Time
	cpu   [3]float64
}

func (l *lab) startClock(pid int) *clock { return &clock{l, pid, time.Now(), l.cpu(pid)} }

// cpu is the CPU time so far of a process, the source's broker and the destination's.
func (l *lab) cpu(pid int) [3]float64 {
	return [3]float64{cpuSeconds(pid), cpuSeconds(l.source.PID(1)), cpuSeconds(l.destination.PID(1))}
}

// stop makes a sample of what was moved since the clock was started.
func (c *clock) stop(subject string, bytes, records int64) sample {
	seconds, now := time.Since(c.began).Seconds(), c.lab.cpu(c.pid)
	gb := float64(bytes) / 1e9
	s := sample{Subject: subject}
	s.set("seconds", seconds)
	s.set("MB/s", gb*1e3/seconds)
	s.set("records/s", float64(records)/seconds)
	s.set("CPU s/GB", (now[0]-c.cpu[0])/gb)
	s.set("source CPU s/GB", (now[1]-c.cpu[1])/gb)
	s.set("dest CPU s/GB", (now[2]-c.cpu[2])/gb)
	return s
}

// alive is ctx as long as the process lives; the cause says how it ended.
func alive(ctx context.Context, p *kafkatest.Process) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.Done():
			cancel(fmt.Errorf("the process ended: %w\n%s", errors.Join(p.Err()), p.LogTail(20)))
		case <-ctx.Done():
			cancel(nil)
		}
	}()
	return ctx
}

// watch follows a process that mirrors a dataset into a topic of the destination, from the last look at which the topic was empty
// to its last record, or for as long as limit.
func (l *lab) watch(ctx context.Context, p *kafkatest.Process, subject, topic string, data dataset, limit time.Duration) (sample, error) {
	admin, err := l.admin(l.destination)
	if err != nil {
		return sample{}, err
	}
	ctx = alive(ctx, p)
	clock, count := l.startClock(p.PID), int64(0)
	err = eventually(ctx, 10*time.Millisecond, subject+" has copied all", func() (bool, error) {
		before := l.startClock(p.PID)
		if count = offsets(ctx, admin, topic); count == 0 {
			clock = before
		}
		return count >= data.records || count > 0 && time.Since(clock.began) > limit, nil
	})
	if err != nil {
		return sample{}, fmt.Errorf("%d of %d records: %w\n%s", count, data.records, err, p.LogTail(20))
	}
	s := clock.stop(subject, data.bytes*count/data.records, count)
	s.set("peak MB", peakMB(p.PID))
	return s, nil
}
