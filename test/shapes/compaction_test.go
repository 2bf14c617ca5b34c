package shapes

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// compacting makes the cleaner work at once on all but the last segment. A batch 10 s younger than the first of its
// segment begins a new one.
var compacting = map[string]string{
	"cleanup.policy": "compact", "segment.ms": "10000", "min.cleanable.dirty.ratio": "0.0001", "min.compaction.lag.ms": "0",
}

// today is the time now, for record. A broker that starts forgets producers whose last record is older than a day, and the
// cleaner keeps the emptied last batch only of those that it knows.
func today() int64 { return time.Now().Unix() - epochMillis/1000 }

// overwrite makes every second of 20 keys obsolete that batches of the given codecs hold, and begins a new segment.
func overwrite(t *testing.T, l *log, opts ...kgo.Opt) {
	for i, codec := range l.codecs() {
		p := l.producer(t, append(opts, kgo.ProducerBatchCompression(codec))...)
		var records, newer []*kgo.Record
		for k := range 20 {
			key := fmt.Sprintf("%d-%d", i, k)
			records = append(records, record(0, key, "first value of "+key))
			if k%2 == 1 {
				newer = append(newer, record(100, key, "second value of "+key))
			}
		}
		p.send(records...)
		l.kept = append(keptRecords(l), newer...)
	}
	p := l.producer(t, opts...)
	p.send(keptRecords(l)...)
	p.send(record(200, "end", "of the log"))
}

func keptRecords(l *log) []*kgo.Record {
	records, _ := l.kept.([]*kgo.Record)
	return records
}

var compactionShapes = []shape{
	{
		name: "holes-inside-batches", on: []string{newest, quorum, zoo, oldest},
		configs: compacting,
		make:    func(t *testing.T, l *log) { overwrite(t, l) },
		proof:   func(f facts) bool { return f.holesInside >= 4 && f.empty == 0 },
	},
	{
		name: "holes-between-batches", on: []string{newest, zoo, oldest},
		configs: compacting,
		make: func(t *testing.T, l *log) {
			p := l.producer(t, plain)
			for i := range 30 {
				p.send(record(int64(i)/10, fmt.Sprint(i%7), fmt.Sprintf("value %d", i)))
			}
			p.send(record(100, "0", "again"))
			p.send(record(200, "end", "of the log"))
		},
		proof: func(f facts) bool { return f.holesBetween > 0 && f.records == 8 && f.empty == 0 },
	},
	{
		// The last batch of a producer stays, without records, for as long as its sequence is needed.
		name: "emptied-batch", on: []string{newest, zoo},
		configs: compacting,
		make: func(t *testing.T, l *log) {
			now := today()
			l.producer(t).send(record(now, "kept", "v"), record(now, "a", "v"))
			l.producer(t).send(record(now, "a", "v"), record(now, "b", "v"))
			l.producer(t).send(record(now+100, "a", "again"), record(now+100, "b", "again"))
			l.producer(t).send(record(now+200, "end", "of the log"))
		},
		proof: func(f facts) bool { return f.empty == 1 },
	},
	{
		name: "emptied-batches-in-a-row", on: []string{newest},
		configs: compacting,
		make: func(t *testing.T, l *log) {
			now := today()
			for range 12 {
				l.producer(t).send(record(now, "a", "v"), record(now, "b", "v"))
			}
			l.producer(t).send(record(now+100, "a", "again"), record(now+100, "b", "again"))
			l.producer(t).send(record(now+200, "end", "of the log"))
		},
		proof: func(f facts) bool { return f.emptyRun >= 10 },
	},
	{
		// The records that emptied the last batch are lost with the end of the log, as on a broken disk.
		name: "emptied-tail", on: []string{newest},
		configs: compacting,
		make: func(t *testing.T, l *log) {
			now := today()
			for i := range 4 {
				l.producer(t).send(record(now, fmt.Sprint(i), "first"), record(now, "a", "v"))
			}
			l.producer(t).send(record(now, "a", "v"), record(now, "b", "v"))
			l.producer(t).send(record(now+100, "a", "again"), record(now+100, "b", "again"))
			l.producer(t).send(record(now+200, "end", "of the log"))
			l.awaitShape(t, func(f facts) bool { return f.empty == 1 && f.holesInside == 4 })
		},
		disk: func(t *testing.T, _ *log, dir string) {
			loseActiveSegment(t, dir)
			cutBatches(t, dir, 1)
		},
		proof: func(f facts) bool { return f.ends == "empty" && f.records > 0 && f.next == f.high },
	},
	{
		name: "compacted-transactions", on: []string{newest},
		configs: compacting,
		make: func(t *testing.T, l *log) {
			// Markers have the time of today, and a segment is as old as its first record: these have it too.
			now := today()
			a, b := l.transactional(t, "a"), l.transactional(t, "b")
			for round := now; round < now+300; round += 100 {
				for _, p := range []*producer{a, b} {
					p.begin()
					p.send(record(round, "a", "v"), record(round, fmt.Sprint(round), "v"))
					p.end(kgo.TransactionEndTry(p == a))
				}
			}
			l.producer(t).send(record(now+400, "a", "again"))
			l.producer(t).send(record(now+500, "end", "of the log"))
		},
		proof: func(f facts) bool { return f.holesInside+f.holesBetween+f.empty > 0 && f.commits > 0 && f.records < 10 },
	},
	{
		name: "tombstones", on: []string{newest},
		configs: compacting,
		make: func(t *testing.T, l *log) {
			p := l.producer(t)
			for k := range int64(10) {
				p.send(record(k/5, fmt.Sprint(k), "v"), record(k/5, "x", "v"))
			}
			for k := range int64(5) {
				p.send(&kgo.Record{Key: fmt.Append(nil, k), Timestamp: record(100, "", "").Timestamp})
			}
			p.send(record(200, "x", "again"))
			p.send(record(300, "end", "of the log"))
		},
		// The cleaner stamps batches with tombstones that it keeps: bit 6, the delete horizon.
		proof: func(f facts) bool { return f.bits&0x40 != 0 && f.holesInside > 0 },
	},
	{
		name: "wide-hole", on: []string{newest},
		make: func(*testing.T, *log) {},
		disk: func(t *testing.T, _ *log, dir string) {
			segment := encode(data(0), oneRecord(0))
			segment = append(segment, encode(data(250_000), oneRecord(1), oneRecord(2))...)
			segment = append(segment, encode(data(2_000_000), oneRecord(3))...)
			writeSegment(t, dir, 0, segment)
		},
		proof: func(f facts) bool { return f.widest == 1_749_998 && f.records == 4 },
	},
}

var lookalikeShapes = []shape{
	{
		// What a filler looks like on an ordinary topic, but from a user.
		name: "looks-like-a-filler", on: []string{newest},
		make: func(t *testing.T, l *log) {
			p := l.producer(t)
			p.fill(1, 2)
			for _, n := range []int{1, 3} {
				p.send(lookalikes(n, nil)...)
			}
			l.producer(t, idempotent(kgo.ZstdCompression())).send(lookalikes(1000, nil)...)
			p.fill(1, 2)
		},
		proof: func(f facts) bool { return f.records == 1008 },
	},
	{
		name: "looks-like-a-filler-with-the-fixed-key", on: []string{newest},
		configs: map[string]string{"cleanup.policy": "compact"},
		make: func(t *testing.T, l *log) {
			p := l.producer(t)
			p.fill(1, 2)
			p.send(lookalikes(1, fixedKey)...)
			p.send(lookalikes(3, fixedKey)...)
			p.send(&kgo.Record{Key: fixedKey, Timestamp: record(0, "", "").Timestamp})
			p.fill(1, 2)
		},
		proof: func(f facts) bool { return f.records == 9 },
		// Nobody has these 16 bytes by accident: a log that holds them is a mirror itself.
		want: outcome{failed: "reserved for fillers"},
	},
	{
		name: "unused-bits-set", on: []string{newest},
		make: func(t *testing.T, l *log) {
			for i, bits := range []int16{0x40, 0x80, 0xc0} {
				for _, mark := range []bool{false, true} {
					batch := data(0)
					batch.Attributes = bits
					batch.ProducerID, batch.ProducerEpoch = int64(1000+2*i), 0
					if mark {
						batch.ProducerID++
					}
					batch.FirstSequence = 0
					r := oneRecord(int64(i))
					if mark {
						r = kmsg.Record{Headers: []kmsg.Header{{Key: gapHeader}}}
					}
					l.raw(t, batch, r, oneRecord(99))
				}
			}
		},
		proof: func(f facts) bool { return uint16(f.bits) == 0xc0 && f.records == 12 },
	},
}

// Literal, so that a change of the code shows: logs hold these.
const gapHeader = "mirrorgate.gap"

var fixedKey = []byte{0x9e, 0x1d, 0x4b, 0xa3, 0x62, 0xf7, 0x48, 0x0c, 0xb5, 0x27, 0xd8, 0x71, 0x3a, 0xe6, 0x05, 0xcf}

func lookalikes(n int, key []byte) []*kgo.Record {
	var records []*kgo.Record
	for i := range n {
		r := &kgo.Record{Key: key, Timestamp: record(0, "", "").Timestamp}
		if i == 0 {
			r.Headers = []kgo.RecordHeader{{Key: gapHeader}}
		}
		records = append(records, r)
	}
	return records
}
