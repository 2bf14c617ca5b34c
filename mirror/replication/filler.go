package replication

import (
	"github.com/mirrorgate/mirrorgate/appendlog"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// piece is a part of the destination log to be: the offsets [from, next) with their records, or a gap.
type piece struct {
	from, next int64
	batch      []byte // nil: a gap
	// timestamp is the highest of the records, in ms; not used for a gap.
	timestamp int64
	asked     instant // when the source was asked for the batch
	// bulk: its fillers go over a connection of their own. Once set it stays: the rest of a big gap is part of it.
	bulk bool
}

func (p piece) gap() bool { return p.batch == nil }

// backlog is what is to be appended to the destination log, and is not handed to it yet. Gaps become filler batches one
// by one and only as fast as earlier ones are acknowledged: so a gap of billions of offsets takes no memory. Those of a big
// gap are marked Bulk: appendlog sends them over a connection of their own, and goes back to the other one with the first
// batch behind the gap.
//
// NB: the timestamp of a filler is the highest of the records before it, as far as this process has copied any, so that
// it does not change what a search by timestamp finds (the record before it is found first), nor how long retention keeps
// the segment. Else it is -1, "none", which no search finds either.
type backlog struct {
	pieces    []piece
	keyed     bool  // fillers carry the fixed key
	timestamp int64 // highest of the records handed out; -1 = none
	// inFlight are the fillers that are not acknowledged, bytes their size.
	inFlight []fillerBatch
	bytes    int64
}

type fillerBatch struct {
	from, next int64
	bytes      int64
}

const (
	// fillerRoom is how many bytes of fillers a partition may have in flight: four full ones. See also fillerGate.
	fillerRoom = 256 << 10
	// keptPieces is how many pieces an idle partition keeps memory for.
	keptPieces = 256
	// bigGap is the number of offsets of a gap that takes so long to fill that other partitions should not wait behind it,
	// and what comes behind it is better fetched again than kept.
	bigGap = 10 * recordbatch.FillerBatchRecords
)

// add appends a piece; a gap behind a gap makes that longer.
func (b *backlog) add(p piece) {
	if n := len(b.pieces); n > 0 && p.gap() && b.pieces[n-1].gap() {
		b.pieces[n-1].next = p.next
		return
	}
	b.pieces = append(b.pieces, p)
}

func (b *backlog) empty() bool { return len(b.pieces) == 0 }

// take appends to dst what may be appended to the log now.
func (b *backlog) take(dst []pendingBatch) []pendingBatch {
	n := 0
	for ; n < len(b.pieces); n++ {
		p := &b.pieces[n]
		if !p.gap() {
			dst = append(dst, pendingBatch{Batch: appendlog.Batch{Bytes: p.batch, Base: p.from, Next: p.next}, asked: p.asked})
			b.timestamp = max(b.timestamp, p.timestamp)
			continue
		}
		p.bulk = p.bulk || p.next-p.from > bigGap
		for p.from < p.next && b.bytes < fillerRoom {
			dst = append(dst, pendingBatch{Batch: b.fill(p), filler: true})
		}
		if p.from < p.next {
			break
		}
	}
	rest := copy(b.pieces, b.pieces[n:])
	clear(b.pieces[rest:]) // or the array would keep the batches alive
	if b.pieces = b.pieces[:rest]; rest == 0 && cap(b.pieces) > keptPieces {
		b.pieces = nil
	}
	return dst
}

// fill makes the next filler of a gap.
func (b *backlog) fill(p *piece) appendlog.Batch {
	count := min(p.next-p.from, recordbatch.FillerBatchRecords)
	batch := appendlog.Batch{Bytes: recordbatch.AppendFiller(nil, int(count), b.keyed, b.timestamp), Base: p.from, Next: p.from + count, Bulk: p.bulk}
	b.inFlight = append(b.inFlight, fillerBatch{from: batch.Base, next: batch.Next, bytes: int64(len(batch.Bytes))})
	b.bytes += int64(len(batch.Bytes))
	p.from = batch.Next
	return batch
}

// ack takes the acknowledgement of everything up to next, and returns how many offsets of fillers are among it.
func (b *backlog) ack(next int64) (offsets int64) {
	n := 0
	for ; n < len(b.inFlight) && b.inFlight[n].next <= next; n++ {
		b.bytes -= b.inFlight[n].bytes
		offsets += b.inFlight[n].next - b.inFlight[n].from
	}
	b.inFlight = b.inFlight[:copy(b.inFlight, b.inFlight[n:])]
	return offsets
}

// fillerAt reports whether the batch in flight at offset is a filler.
func (b *backlog) fillerAt(offset int64) bool {
	for _, f := range b.inFlight {
		if f.from == offset {
			return true
		}
	}
	return false
}

// forget drops what was not handed out. What is in flight is given up, too.
func (b *backlog) forget() {
	clear(b.pieces)
	b.pieces, b.inFlight, b.bytes, b.timestamp = b.pieces[:0], b.inFlight[:0], 0, -1
}
