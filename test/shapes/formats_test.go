package shapes

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

const (
	formatV0 = "0.9.0"
	formatV1 = "0.10.2"
)

// oldCodecs are those that formats v0 and v1 can be compressed with.
var oldCodecs = codecs[:4]

func fillOld(t *testing.T, l *log) {
	for _, codec := range oldCodecs {
		p := l.producer(t, plain, idempotent(codec))
		p.fill(2, 10)
		p.fill(3, 1)
	}
}

// setFormat changes the format of a topic and writes records until it is in force.
func (l *log) setFormat(t *testing.T, version string, magic int8) {
	t.Helper()
	l.set(t, "message.format.version", version)
	p := l.producer(t, plain)
	harness.Eventually(t, time.Minute, "the format is in force", func(ctx context.Context) error {
		before, err := l.inspect(ctx)
		if err != nil {
			return err
		}
		p.fill(1, 1)
		after, err := l.inspect(ctx)
		if err == nil && after.magics[magic] == before.magics[magic] {
			err = errors.New("it is not")
		}
		return err
	})
}

var formatShapes = []shape{
	{
		name: "format-v0", on: []string{zoo, oldest, ancient},
		configs: map[string]string{"message.format.version": formatV0},
		make:    fillOld,
		proof:   func(f facts) bool { return f.magics[0] == f.batches && len(f.codecs) == 4 && f.high == 92 },
	},
	{
		name: "format-v1", on: []string{zoo, oldest, ancient},
		configs: map[string]string{"message.format.version": formatV1},
		make:    fillOld,
		proof:   func(f facts) bool { return f.magics[1] == f.batches && len(f.codecs) == 4 && f.high == 92 },
	},
	{
		name: "format-v1-append-time", on: []string{zoo, oldest},
		configs: map[string]string{"message.format.version": formatV1, "message.timestamp.type": "LogAppendTime"},
		make:    fillOld,
		proof:   func(f facts) bool { return f.magics[1] == f.batches && f.appendTime == f.batches },
	},
	{
		name: "formats-mixed", on: []string{zoo, oldest, ancient},
		configs: map[string]string{"message.format.version": formatV0},
		make: func(t *testing.T, l *log) {
			fillOld(t, l)
			l.setFormat(t, formatV1, 1)
			fillOld(t, l)
			l.setFormat(t, "1.0", 2)
			l.producer(t).fill(3, 10)
			l.transactional(t, "").transaction(kgo.TryCommit, 1, 5)
			l.setFormat(t, formatV1, 1)
			l.producer(t, plain).fill(3, 1)
		},
		proof: func(f facts) bool {
			return f.magics[0] >= 29 && f.magics[1] >= 32 && f.magics[2] >= 6 && f.commits == 1 && f.ends == "data"
		},
	},
	{
		name: "format-v1-compacted", on: []string{zoo, oldest},
		configs: map[string]string{
			"cleanup.policy": "compact", "segment.ms": "10000", "min.cleanable.dirty.ratio": "0.0001", "message.format.version": formatV1,
		},
		make: func(t *testing.T, l *log) {
			for i, codec := range oldCodecs {
				p := l.producer(t, plain, idempotent(codec))
				at := int64(100 * i)
				p.send(record(at, "a", "v"), record(at, "b", "v"), record(at, "kept"+string(rune('0'+i)), "v"), record(at, "c", "v"), record(at, "d", "v"))
			}
			p := l.producer(t, plain)
			p.send(record(400, "a", "v"), record(400, "b", "v"), record(400, "c", "v"), record(400, "d", "v"))
			p.send(record(500, "end", "of the log"))
		},
		// The last two batches are 5 messages; of each of the compressed ones before, one is left. Offsets show the holes.
		proof: func(f facts) bool { return f.magics[1] == f.batches && f.batches == 4+4+1 && f.high == 25 },
	},
}

const recreated = "deleted and made again"

func recreateLonger(t *testing.T, l *log) {
	l.delete(t)
	l.create(t, nil)
	p := l.producer(t)
	p.n = 1000 // other records than before
	p.fill(30, 5)
}

var divergenceShapes = []shape{
	{
		name: "recreated-with-fewer-records", on: []string{newest, zoo, oldest},
		make:  func(t *testing.T, l *log) { l.producer(t).fill(10, 5) },
		proof: func(f facts) bool { return f.high == 50 },
		change: func(t *testing.T, l *log) {
			l.delete(t)
			l.create(t, nil)
			l.producer(t).fill(2, 5)
		},
		want: outcome{failed: recreated + "|diverged"},
	},
	{
		name: "recreated-with-more-records", on: []string{newest, zoo},
		make:   func(t *testing.T, l *log) { l.producer(t).fill(10, 5) },
		proof:  func(f facts) bool { return f.high == 50 },
		change: func(t *testing.T, l *log) { recreateLonger(t, l) },
		want:   outcome{failed: recreated},
	},
	{
		// Before 2.8 there is no topic ID to tell the topics apart.
		name: "recreated-without-topic-ids", on: []string{oldest},
		make:   func(t *testing.T, l *log) { l.producer(t).fill(10, 5) },
		proof:  func(f facts) bool { return f.high == 50 },
		change: func(t *testing.T, l *log) { recreateLonger(t, l) },
		want:   outcome{failed: recreated + "|diverged"},
	},
	{
		name: "truncated", on: []string{newest, zoo},
		make:  func(t *testing.T, l *log) { l.producer(t, plain).fill(10, 5) },
		proof: func(f facts) bool { return f.high == 50 },
		crash: func(t *testing.T, _ *log, dir string) { cutBatches(t, dir, 3) },
		want:  outcome{failed: "diverged"},
	},
	{
		// By the time that the mirror looks, the log is longer than before: only the leader epoch tells.
		name: "truncated-and-grown", on: []string{newest, zoo},
		make:      func(t *testing.T, l *log) { l.producer(t, plain).fill(10, 5) },
		proof:     func(f facts) bool { return f.high == 50 },
		crash:     func(t *testing.T, _ *log, dir string) { cutBatches(t, dir, 3) },
		recovered: func(t *testing.T, l *log) { l.producer(t, plain).fill(10, 6) },
		want:      outcome{failed: "diverged"},
	},
}
