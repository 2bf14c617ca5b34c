//go:build clients

package clients

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// madeLog is a log that no broker has: madeServer serves it.
type madeLog struct {
	gapCase
	batches []madeBatch
	onePer  bool  // one batch for each answer
	beyond  int64 // by how much the high watermark is above the last batch
}

type madeBatch struct {
	raw         []byte
	first, last int64
}

// records appends n records to the log, as empty, hole and marker append what their names say.
func (l *madeLog) records(n int) *madeLog { return l.gapped(0, n, 0) }

// gapped is a batch of n records with the offsets of the first head and the last tail records compacted away.
func (l *madeLog) gapped(head, n, tail int) *madeLog {
	var body []byte
	for i := head; i < head+n; i++ {
		offset := l.End + int64(i)
		value := fmt.Sprintf("r%d", offset)
		body = appendRecord(body, int32(i), []byte("k"), []byte(value))
		l.Records = append(l.Records, gapRecord{Offset: offset, Value: value})
	}
	return l.add(kmsg.RecordBatch{LastOffsetDelta: int32(head + n + tail - 1), FirstTimestamp: 1e12, MaxTimestamp: 1e12,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(n), Records: body})
}

// marker is a control batch with a commit marker at its last offset.
func (l *madeLog) marker(delta int32) *madeLog {
	body := appendRecord(nil, delta, []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 0})
	return l.add(kmsg.RecordBatch{Attributes: transactionalBit | controlBit, LastOffsetDelta: delta, FirstTimestamp: 1e12, MaxTimestamp: 1e12,
		ProducerID: 77, FirstSequence: -1, NumRecords: 1, Records: body})
}

func (l *madeLog) hole(n int64) *madeLog {
	l.End += n
	return l
}

func appendRecord(body []byte, delta int32, key, value []byte) []byte {
	r := kmsg.Record{OffsetDelta: delta, Key: key, Value: value}
	r.Length = int32(len(r.AppendTo(nil)) - 1) // the zero Length takes one byte
	return r.AppendTo(body)
}

// empty is what DefaultRecordBatch.writeEmptyHeader makes: 61 bytes, no records, baseTimestamp −1.
func (l *madeLog) empty(delta int32, attributes int16, producer int64) *madeLog {
	b := kmsg.RecordBatch{Attributes: attributes, LastOffsetDelta: delta, FirstTimestamp: -1, MaxTimestamp: 1e12, ProducerID: producer}
	if producer < 0 {
		b.ProducerEpoch, b.FirstSequence = -1, -1
	}
	return l.add(b)
}

func (l *madeLog) add(b kmsg.RecordBatch) *madeLog {
	b.FirstOffset, b.Magic, b.Length = l.End, 2, int32(49+len(b.Records))
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	l.batches = append(l.batches, madeBatch{raw, l.End, l.End + int64(b.LastOffsetDelta)})
	l.End += int64(b.LastOffsetDelta) + 1
	return l
}

func madeLogs(prefix string) []*madeLog {
	var logs []*madeLog
	log := func(label string, onePer bool) *madeLog {
		l := &madeLog{gapCase: gapCase{Label: label, Topic: prefix + label}, onePer: onePer}
		logs = append(logs, l)
		return l
	}
	const ctl = transactionalBit | controlBit
	log("control", false).records(10).records(10) // no gap: the harness itself
	// empty batches
	log("small", false).records(10).empty(4, 0, 77).records(10)                                   // as the cleaner leaves it
	log("nopid", false).records(10).empty(4, 0, -1).records(10)                                   // no producer ID
	log("large", false).records(10).empty(100_000, 0, 77).records(10)                             // large lastOffsetDelta
	log("first", false).empty(4, 0, 77).records(10)                                               // first in the log
	log("run", false).records(10).empty(4, 0, 77).empty(4, 0, 78).empty(0, 0, 79).records(10)     // three in a row
	log("only", true).records(10).empty(4, 0, 77).records(10)                                     // an answer with only the empty batch
	log("only-large", true).records(10).empty(100_000, 0, -1).records(10)                         // the same, large
	log("only-run", true).records(10).empty(4, 0, 77).empty(4, 0, 78).empty(0, 0, 79).records(10) // three such answers in a row
	log("last", false).records(10).empty(4, 0, 77)                                                // last in the log
	log("last-only", true).records(10).empty(4, 0, 77)                                            // last, in an answer of its own
	log("last-large", true).records(10).empty(100_000, 0, 77)                                     // the same, large
	log("alone", true).empty(4, 0, 77)                                                            // nothing else in the log
	log("txn", true).records(10).empty(4, transactionalBit, 77).records(10)                       // transactional flag set
	log("ctl", false).records(10).empty(0, ctl, 77).records(10)                                   // empty control batch, as the cleaner leaves it
	// other ways to show a gap
	log("hole", false).records(10).hole(5).records(10)                     // no batch at those offsets
	log("hole-large", true).records(10).hole(100_000).records(10)          // the same, large, batches one by one
	log("hole-last", true).records(10).beyond = 5                          // nothing more to read below the high watermark
	log("head", true).records(10).gapped(5, 10, 0).records(10)             // a batch whose first records are gone
	log("tail", true).records(10).gapped(0, 10, 5).records(10)             // a batch whose last records are gone
	log("tail-large", true).records(10).gapped(0, 10, 100_000).records(10) // the same, large
	log("tail-last", true).records(10).gapped(0, 10, 5)                    // the same, last in the log
	log("marker", true).records(10).marker(4).records(10)                  // a commit marker with lastOffsetDelta 4
	log("marker-large", true).records(10).marker(100_000).records(10)      // the same, large
	log("marker-run", false).records(10).marker(4).marker(4).records(10)   // two in a row
	log("marker-last", true).records(10).marker(4)                         // last in the log
	return logs
}
