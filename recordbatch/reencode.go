package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrFillerKey is the error of a Rebuilder for a record that has the key of fillers, see FillerKey.
var ErrFillerKey = errors.New("record with the key that is reserved for fillers")

// PieceKind says what a Piece is.
type PieceKind uint8

// The kinds of pieces.
const (
	// Data: a gapless batch.
	Data PieceKind = iota + 1
	// Gap: offsets without a record.
	Gap
)

// Piece is a part of what a Rebuilder makes: the offsets [Base, Next) are a batch of as many records, or a gap.
type Piece struct {
	Kind       PieceKind
	Base, Next int64
	// Batch is for Data a whole v2 batch with base offset 0, no producer and CreateTime; Stamp it. It is memory of the
	// Rebuilder: valid, and free to be changed, until the function that got the piece returns.
	Batch []byte
	// Timestamp, in ms, is for Data the highest of the records, and for a Gap that of the last record before it, -1 if
	// the Rebuilder has seen none since Begin.
	Timestamp int64
}

// RebuildStats counts what a Rebuilder made since Begin.
type RebuildStats struct {
	Next         int64 // the offset after the last piece
	Batches      int64 // pieces of data
	Records      int64
	Bytes        int64 // of all Batches
	Gaps         int64 // pieces that are gaps
	GapOffsets   int64
	Skipped      int64 // records below the expected offset
	SizeSplits   int64 // batches that were ended because of MaxBytes
	SmallBatches int64 // batches of one record: many of them mean a log with a hole after every second record
}

// DefaultMaxBytes is MaxBytes where it is 0: below the default of Kafka's max.message.bytes, 1,048,588.
const DefaultMaxBytes = 1_000_000

// rawLimit is how many bytes of records a compressed batch holds at most, unless MaxBytes is more. It bounds memory.
const rawLimit = 8 << 20

// A Rebuilder encodes records anew where a broker would refuse or change the batches that they come in: v2 batches with
// holes or with append times, batches that begin below the expected offset, and messages of formats v0 and v1. What it
// makes is gapless v2 batches with the same records at the same offsets, and the gaps between them.
//
// A hole ends a batch, as fillers and data never share one. So the worst case, a log in which every second record is
// left, becomes as many batches as it has records. They are handed out one at a time, from memory that is used again,
// and small ones are not compressed. Where there is no hole, adjacent sources of one codec are joined, so that messages
// of old formats, each of which is a batch of its own, do not become one batch each.
//
// A Rebuilder holds the records of one batch at a time, uncompressed and compressed: up to MaxBytes if the codec is none,
// else up to 8 MiB and their compressed form, or one record if that is larger. What a source decompresses to is streamed.
//
// Kept are offset, key and value (null or empty), headers and timestamp, and the codec unless the batch is small or would
// grow. The timestamp is what readers of the source see: the append time where that counts, and -1 in format v0, which
// brokers take. Not kept are producer, transactional bit, delete horizon and the mark of fillers, which means nothing in a
// source: so no record of a user is hidden. Control batches and batches without records are gaps. A record with the key that
// fillers have on compacted topics is refused with ErrFillerKey, as it could be hidden later, with all of its batch.
//
// Use: Begin, then Add and AddGap in the order of offsets, then End. The zero value is ready; a Rebuilder is used by one
// goroutine.
type Rebuilder struct {
	// MaxBytes is the size above which a batch is split, 0 for DefaultMaxBytes. A larger batch holds one record.
	MaxBytes int

	emit     func(Piece) error
	position int64 // all offsets below are in run, in the open gap, or handed out
	gap      int64 // where the open gap begins, which ends at position; position if there is none
	run      builder
	part     builder // of a run that turned out too large
	codec    Codec   // of run
	raw      int     // size of run's records above which it ends, if compressed: follows the compression ratio
	last     int64   // timestamp of the last record
	stats    RebuildStats
	err      error
	old      Codec // codec of the old message that addOld decodes
	addOld   func(Record) error
}

// Begin starts at the expected offset: records below are skipped. emit gets every piece in order; its error ends
// the rebuilding and is returned as it is.
func (r *Rebuilder) Begin(expected int64, emit func(Piece) error) {
	if r.addOld == nil {
		r.addOld = r.oldRecord
	}
	r.emit, r.position, r.gap = emit, expected, expected
	r.run.reset()
	r.part.reset()
	r.raw = r.maxBytes()
	r.last, r.err, r.stats = -1, nil, RebuildStats{Next: expected}
}

// Rebuild is Begin, Add and End for one batch.
func (r *Rebuilder) Rebuild(batch []byte, expected int64, emit func(Piece) error) (RebuildStats, error) {
	r.Begin(expected, emit)
	_ = r.Add(batch) // End returns it
	return r.End()
}

// Add takes the records of a whole v2 batch, whose CRC it does not check, or of a whole message of format v0 or v1. Offsets
// between what came before and the first record become a gap, as do those up to the end of the batch. The records must
// be for readers to see: aborted ones are for AddGap.
//
// An error (ErrCorrupt, ErrCRC, ErrFillerKey, or of emit) is final until the next Begin. What was handed out before is right.
func (r *Rebuilder) Add(batch []byte) error {
	if r.err != nil {
		return r.err
	}
	if len(batch) >= minOldSize && (batch[offMagic] == 0 || batch[offMagic] == 1) {
		r.err = r.takeOld(batch) // without ParseHeader, whose error is made at some cost
		return r.err
	}
	h, err := ParseHeader(batch)
	if err == nil {
		err = r.take(h, batch)
	}
	r.err = err
	return err
}

// AddGap says that there are no records up to next. It does nothing if that is behind.
func (r *Rebuilder) AddGap(next int64) error {
	if r.err == nil {
		r.err = r.gapTo(next)
	}
	return r.err
}

// End hands out what is left. Its error is the first one since Begin.
func (r *Rebuilder) End() (RebuildStats, error) {
	if r.err == nil {
		r.err = r.flush()
	}
	if r.err == nil {
		r.err = r.emitGap()
	}
	r.emit = nil
	return r.stats, r.err
}

func (r *Rebuilder) maxBytes() int {
	if r.MaxBytes > 0 {
		return r.MaxBytes
	}
	return DefaultMaxBytes
}

func (r *Rebuilder) take(h Header, batch []byte) error {
	switch {
	case h.Size() != len(batch):
		return fmt.Errorf("%w: %d bytes, header says %d, at offset %d", ErrCorrupt, len(batch), h.Size(), h.BaseOffset)
	case h.NextOffset() <= r.position:
		r.stats.Skipped += int64(h.NumRecords)
		return nil
	case h.NumRecords == 0 && len(batch) > HeaderSize:
		return h.corrupt(1, fmt.Errorf("%d bytes left", len(batch)-HeaderSize))
	case h.Control(), h.NumRecords == 0:
		return r.gapTo(h.NextOffset())
	}
	b, err := openBodies(h, batch[HeaderSize:])
	if err != nil {
		return fmt.Errorf("%w: %v at offset %d", ErrCorrupt, err, h.BaseOffset)
	}
	defer b.close()
	last := int64(-1)
	for i := range h.NumRecords {
		record, err := nextRecord(&b, h, last)
		if err != nil {
			return h.corrupt(int64(i)+1, err)
		}
		last = record.offsetDelta
		if err := r.takeRecord(h, record); err != nil {
			return err
		}
	}
	if err := b.end(); err != nil {
		return h.corrupt(int64(h.NumRecords)+1, err)
	}
	return r.gapTo(h.NextOffset())
}

// nextRecord takes the next record of a batch whose last one had the offset delta last.
func nextRecord(b *bodies, h Header, last int64) (body, error) {
	raw, err := b.next()
	if err != nil {
		return body{}, err
	}
	record, ok := splitBody(raw)
	switch {
	case !ok || !checkTail(record.tail):
		err = fmt.Errorf("malformed record of %d bytes", len(raw))
	case record.offsetDelta <= last, record.offsetDelta > int64(h.LastOffsetDelta):
		err = fmt.Errorf("offset delta %d after %d", record.offsetDelta, last)
	}
	return record, err
}

func (r *Rebuilder) takeRecord(h Header, record body) error {
	offset, timestamp := h.BaseOffset+record.offsetDelta, h.BaseTimestamp+record.timestampDelta
	if h.LogAppendTime() {
		timestamp = h.MaxTimestamp
	}
	if offset < r.position {
		r.stats.Skipped++
		return nil
	}
	key := decoder{b: record.tail}
	if bytes.Equal(key.bytes(), fillerKey) {
		return fmt.Errorf("%w: at offset %d", ErrFillerKey, offset)
	}
	if err := r.prepare(offset, timestamp, h.Codec(), len(record.tail)); err != nil {
		return err
	}
	r.run.add(timestamp, record.attributes, record.tail)
	r.taken(timestamp)
	return nil
}

func (r *Rebuilder) takeOld(message []byte) error {
	last := int64(binary.BigEndian.Uint64(message)) // OldRecords checks it
	switch next := last + 1; {
	case next <= 0:
		return fmt.Errorf("%w: message at offset %d", ErrCorrupt, last)
	case next <= r.position:
		r.stats.Skipped++ // what a compressed message holds is not looked at
		return nil
	}
	r.old = Codec(message[offMagic+1] & attrCodec)
	if err := OldRecords(message, r.addOld); err != nil {
		return err
	}
	return r.gapTo(last + 1)
}

func (r *Rebuilder) oldRecord(record Record) error {
	if record.Offset < r.position {
		r.stats.Skipped++
		return nil
	}
	if bytes.Equal(record.Key, fillerKey) {
		return fmt.Errorf("%w: at offset %d", ErrFillerKey, record.Offset)
	}
	if err := r.prepare(record.Offset, record.Timestamp, r.old, len(record.Key)+len(record.Value)+11); err != nil {
		return err
	}
	r.run.addKeyValue(record.Timestamp, record.Key, record.Value)
	r.taken(record.Timestamp)
	return nil
}

func (r *Rebuilder) taken(timestamp int64) {
	r.position++
	r.gap = r.position
	r.last = timestamp
}

// maxHead is the most that length, attributes and deltas of a record take.
const maxHead = 5 + 1 + 10 + 5

// prepare makes the run end at offset, which is position or above, with room for a record with a tail of that size.
func (r *Rebuilder) prepare(offset, timestamp int64, codec Codec, tail int) error {
	if err := r.gapTo(offset); err != nil {
		return err
	}
	if r.run.count() > 0 {
		limit := r.maxBytes()
		if codec != None {
			limit = r.raw
		}
		full := len(r.run.buf)+maxHead+tail > limit
		if codec == r.codec && !full {
			return nil
		}
		if full {
			r.stats.SizeSplits++
		}
		if err := r.flush(); err != nil {
			return err
		}
	}
	if err := r.emitGap(); err != nil {
		return err
	}
	r.codec = codec
	r.run.begin(offset, timestamp)
	return nil
}

// gapTo opens a gap, or makes the open one longer, if next is above the position. What is before it is handed out.
func (r *Rebuilder) gapTo(next int64) error {
	if next <= r.position {
		return nil
	}
	if err := r.flush(); err != nil {
		return err
	}
	r.position = next
	return nil
}

func (r *Rebuilder) emitGap() error {
	if r.gap == r.position {
		return nil
	}
	p := Piece{Kind: Gap, Base: r.gap, Next: r.position, Timestamp: r.last}
	r.gap = r.position
	r.stats.Gaps++
	r.stats.GapOffsets += p.Next - p.Base
	r.stats.Next = p.Next
	return r.emit(p)
}

// flush hands out the run, if there is one.
func (r *Rebuilder) flush() error {
	if r.run.count() == 0 {
		return nil
	}
	batch, err := r.run.finish(r.codec)
	if err != nil {
		return fmt.Errorf("encoding offsets %d to %d: %w", r.run.base, r.run.next-1, err)
	}
	r.learn(len(batch))
	if len(batch) > r.maxBytes() && r.run.count() > 1 {
		err = r.split(len(batch))
	} else {
		err = r.emitBatch(&r.run, batch)
	}
	r.run.base = r.run.next
	return err
}

func (r *Rebuilder) emitBatch(b *builder, batch []byte) error {
	r.stats.Batches++
	r.stats.Records += b.count()
	r.stats.Bytes += int64(len(batch))
	if b.count() == 1 {
		r.stats.SmallBatches++
	}
	r.stats.Next = b.next
	return r.emit(Piece{Kind: Data, Base: b.base, Next: b.next, Batch: batch, Timestamp: b.maxTimestamp})
}
