package shapes

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

var transactionShapes = []shape{
	{
		name: "transaction-committed", on: []string{newest, quorum, zoo, oldest},
		make: func(t *testing.T, l *log) {
			l.producer(t).fill(1, 5)
			l.transactional(t, "", idempotent(kgo.Lz4Compression())).transaction(kgo.TryCommit, 3, 10)
			l.producer(t).fill(1, 5)
		},
		proof: func(f facts) bool { return f.transactional == 3 && f.commits == 1 && f.aborts == 0 && f.ends == "data" },
	},
	{
		name: "transaction-aborted", on: []string{newest, quorum, zoo, oldest},
		make: func(t *testing.T, l *log) {
			l.producer(t).fill(1, 5)
			l.transactional(t, "", idempotent(kgo.GzipCompression())).transaction(kgo.TryAbort, 3, 10)
			l.producer(t).fill(1, 5)
		},
		proof: func(f facts) bool { return f.transactional == 3 && f.commits == 0 && f.aborts == 1 && f.ends == "data" },
	},
	{
		name: "transactions-interleaved", on: []string{newest, zoo},
		make: func(t *testing.T, l *log) {
			a, b, c, other := l.transactional(t, "a"), l.transactional(t, "b"), l.transactional(t, "c"), l.producer(t)
			for round := range 6 {
				for i, p := range []*producer{a, b, c} {
					p.begin()
					p.fill(1, 1+i)
				}
				other.fill(1, 2)
				a.fill(1, 2)
				b.end(kgo.TransactionEndTry(round%2 == 0))
				c.fill(2, 1)
				a.end(kgo.TransactionEndTry(round%3 == 0))
				other.fill(1, 1)
				c.end(kgo.TransactionEndTry(round%2 == 1))
			}
		},
		proof: func(f facts) bool { return f.commits+f.aborts == 18 && f.commits == 8 && f.lso == f.high },
	},
	{
		name: "ends-in-commit-marker", on: []string{newest},
		make: func(t *testing.T, l *log) {
			l.transactional(t, "").transaction(kgo.TryCommit, 1, 3)
		},
		proof: func(f facts) bool { return f.ends == "commit" && f.records == 3 },
	},
	{
		name: "ends-in-aborted-batch", on: []string{newest},
		make: func(t *testing.T, l *log) {
			l.producer(t).fill(1, 3)
			l.transactional(t, "").transaction(kgo.TryAbort, 1, 3)
		},
		proof: func(f facts) bool { return f.ends == "abort" && f.batches == 3 },
	},
	{
		name: "all-aborted", on: []string{newest},
		make: func(t *testing.T, l *log) {
			for i := range 5 {
				l.transactional(t, fmt.Sprint(i)).transaction(kgo.TryAbort, 2, 3)
			}
		},
		proof: func(f facts) bool { return f.transactional == f.batches-5 && f.aborts == 5 },
	},
	{
		// The mirror holds at the last stable offset and says so; what is behind comes when the transaction ends.
		name: "hanging-transaction", on: []string{newest, zoo},
		make: func(t *testing.T, l *log) {
			l.producer(t).fill(2, 5)
			hanging := l.transactional(t, "")
			hanging.begin()
			hanging.fill(1, 3)
			l.producer(t).fill(2, 5)
			l.kept = hanging
		},
		proof: func(f facts) bool { return f.lso == 10 && f.high == 23 },
		says:  `waits for an open transaction at offset 10 \(last stable offset\), source high watermark 23`,
		change: func(t *testing.T, l *log) {
			l.kept.(*producer).endOn(t, kgo.TryCommit)
		},
	},
	{
		// The broker names a last stable offset below its log start: the base offset of the batch that the start is in.
		name: "trimmed-behind-a-hanging-transaction", on: []string{newest, zoo},
		make: func(t *testing.T, l *log) {
			hanging := l.transactional(t, "")
			hanging.begin()
			hanging.fill(1, 3)
			l.producer(t).fill(2, 10)
			l.trim(t, 17)
			l.kept = hanging
		},
		proof: func(f facts) bool { return f.start == 17 && f.lso == 17 && f.high == 23 },
		change: func(t *testing.T, l *log) {
			l.kept.(*producer).endOn(t, kgo.TryCommit)
		},
	},
}
