package shapes

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// expiring makes retention take all segments but those with records of the last hour, once that is set.
var expiring = map[string]string{"segment.ms": "10000"}

func (l *log) expire(t *testing.T, want func(bounds) bool) {
	t.Helper()
	l.set(t, "retention.ms", "3600000")
	harness.Eventually(t, time.Minute, "retention has worked", func(ctx context.Context) error {
		b, err := l.bounds(ctx)
		if err == nil && !want(b) {
			err = fmt.Errorf("the log is %+v", b)
		}
		return err
	})
}

var startShapes = []shape{
	{
		name: "trimmed-before", on: []string{newest, zoo},
		make: func(t *testing.T, l *log) {
			l.producer(t).fill(20, 5)
			l.trim(t, 33) // inside a batch
		},
		proof: func(f facts) bool { return f.start == 33 && f.high == 100 },
	},
	{
		name: "trimmed-to-the-end", on: []string{newest},
		make: func(t *testing.T, l *log) {
			l.producer(t).fill(20, 5)
			l.trim(t, 100)
		},
		proof: func(f facts) bool { return f.start == 100 && f.high == 100 },
	},
	{
		name: "trimmed-compacted", on: []string{newest},
		configs: map[string]string{"cleanup.policy": "compact,delete"},
		make: func(t *testing.T, l *log) {
			l.producer(t).fill(20, 5)
			l.trim(t, 40)
			l.set(t, "cleanup.policy", "compact")
		},
		proof: func(f facts) bool { return f.start == 40 && f.high == 100 },
	},
	{
		// Nothing is produced after the trim: it must be seen all the same.
		name: "trimmed-while-mirroring", on: []string{newest, oldest},
		make:   func(t *testing.T, l *log) { l.producer(t).fill(20, 5) },
		proof:  func(f facts) bool { return f.start == 0 && f.high == 100 },
		change: func(t *testing.T, l *log) { l.trim(t, 57) },
	},
	{
		name: "trimmed-while-paused", on: []string{newest, zoo},
		make:        func(t *testing.T, l *log) { l.producer(t).fill(20, 5) },
		proof:       func(f facts) bool { return f.start == 0 && f.high == 100 },
		whilePaused: func(t *testing.T, l *log) { l.trim(t, 57) },
	},
	{
		name: "trimmed-ahead-while-paused", on: []string{newest},
		make:  func(t *testing.T, l *log) { l.producer(t).fill(20, 5) },
		proof: func(f facts) bool { return f.start == 0 && f.high == 100 },
		whilePaused: func(t *testing.T, l *log) {
			l.producer(t).fill(20, 5)
			l.trim(t, 150)
		},
		want: outcome{says: "records 100 to 149 were deleted at the source before they were copied"},
	},
	{
		name: "trimmed-while-gateway-down", on: []string{newest},
		make:        func(t *testing.T, l *log) { l.producer(t).fill(20, 5) },
		proof:       func(f facts) bool { return f.start == 0 && f.high == 100 },
		gatewayDown: func(t *testing.T, l *log) { l.trim(t, 57) },
	},
	{
		name: "trimmed-ahead-of-the-mirror", on: []string{newest},
		make:  func(t *testing.T, l *log) { l.producer(t).fill(20, 5) },
		proof: func(f facts) bool { return f.start == 0 && f.high == 100 },
		gatewayDown: func(t *testing.T, l *log) {
			l.producer(t).fill(20, 5)
			l.trim(t, 150)
		},
	},
	{
		name: "retention-overtakes", on: []string{newest, zoo},
		configs: expiring,
		make:    func(t *testing.T, l *log) { l.producer(t, plain).fill(5, 10) },
		proof:   func(f facts) bool { return f.start == 0 && f.high == 50 },
		gatewayDown: func(t *testing.T, l *log) {
			p := l.producer(t, plain)
			p.fill(10, 10)
			recent := record(0, "recent", "record")
			recent.Timestamp = time.Now()
			p.send(recent)
			l.expire(t, func(b bounds) bool { return b.start > 50 && b.start < b.high })
		},
		want: outcome{says: `records 50 to \d+ were deleted at the source before they were copied`},
	},
	{
		name: "retention-took-everything", on: []string{newest},
		configs: expiring,
		make: func(t *testing.T, l *log) {
			l.producer(t).fill(5, 10)
			l.expire(t, func(b bounds) bool { return b.start == 50 })
		},
		proof: func(f facts) bool { return f.start == 50 && f.high == 50 },
	},
	{
		name: "starts-at-20-million", on: []string{newest},
		make:  func(*testing.T, *log) {},
		disk:  func(t *testing.T, _ *log, dir string) { writeSegment(t, dir, 20_000_000, tenBatches(20_000_000)) },
		proof: func(f facts) bool { return f.start == 20_000_000 && f.records == 20 },
	},
	{
		// Minutes of filling.
		name: "starts-beyond-int32", on: []string{newest},
		make:  func(*testing.T, *log) {},
		disk:  func(t *testing.T, _ *log, dir string) { writeSegment(t, dir, 9_000_000_000, tenBatches(9_000_000_000)) },
		proof: func(f facts) bool { return f.start == 9_000_000_000 && f.records == 20 },
		want:  outcome{preparing: true},
	},
}

func tenBatches(base int64) (segment []byte) {
	for i := range int64(10) {
		segment = append(segment, encode(data(base+2*i), oneRecord(2*i), oneRecord(2*i+1))...)
	}
	return segment
}
