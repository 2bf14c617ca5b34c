package replication

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// encoded is what is to be appended.
type encoded struct {
	pieces         []piece
	batches        int   // of the pieces
	bytes          int64 // of the batches
	rebuiltBatches int
	rebuiltBytes   int64
	// problem is why the outputs that follow cannot be copied.
	problem *problem
}

// encode makes pieces of outputs, and appends them to dst: verbatim batches as they are, gaps joined, and what must be
// encoded anew so encoded. The bytes of what was encoded anew are new ones.
//
// Readers of the mirror do not get to see what looks like a filler. So that no user's record does, the mark of fillers is
// taken off verbatim batches, where it means nothing; and a record with the key of fillers is refused, where it could be
// taken for one later: see reserved.
func (c *copier) encode(dst []piece, outputs []output, options copyOptions, asked instant) encoded {
	c.encoded = encoded{pieces: dst}
	e := &c.encoded
	for len(outputs) > 0 && e.problem == nil {
		o := &outputs[0]
		n := 1
		switch o.kind {
		case outputGap:
			e.gap(o.from, o.next)
		case outputVerbatim:
			if options.compacted {
				e.problem = reserved(o)
			}
			if e.problem == nil {
				recordbatch.ClearMark(o.batch)
				e.data(o.from, o.next, o.batch, o.timestamp, asked)
			}
		case outputReencode:
			for n < len(outputs) && outputs[n].kind == outputReencode {
				n++
			}
			c.encodeAnew(e, outputs[:n], options, asked)
		}
		outputs = outputs[n:]
	}
	done := *e
	c.encoded = encoded{}
	return done
}

// encodeAnew encodes adjacent outputs.
func (c *copier) encodeAnew(e *encoded, outputs []output, options copyOptions, asked instant) {
	c.rebuild.MaxBytes = min(recordbatch.DefaultMaxBytes, options.maxBytes)
	c.rebuild.Begin(outputs[0].from, func(p recordbatch.Piece) error {
		if p.Kind == recordbatch.Gap {
			e.gap(p.Base, p.Next)
			return nil
		}
		e.data(p.Base, p.Next, bytes.Clone(p.Batch), p.Timestamp, asked)
		e.rebuiltBatches++
		e.rebuiltBytes += int64(len(p.Batch))
		return nil
	})
	for i := range outputs {
		if c.rebuild.Add(outputs[i].batch) != nil {
			break // End returns it
		}
	}
	switch _, err := c.rebuild.End(); {
	case errors.Is(err, recordbatch.ErrFillerKey):
		e.problem = problemf(problemFinal, "%v: %s", err, whyReserved)
	case err != nil:
		e.problem = problemf(problemPassing, "the source's data is damaged: encoding anew the %s: %v", outputs[0].why, err)
	}
}

// reserved refuses records with the key that fillers have on compacted topics. The destination's log cleaner would take
// them for older versions of fillers and remove them; and of a batch that the cleaner has rewritten, only such a key says
// that it is a filler. The key is random, so whoever has it has it from a filler: this is a mirror that is read behind
// the back of its gateway.
func reserved(o *output) *problem {
	offset, found, err := recordbatch.FindFillerKey(o.batch)
	switch {
	case err != nil:
		return problemf(problemPassing, "the source's data is damaged: %v", err)
	case found:
		return problemf(problemFinal, "%v: at offset %d: %s", recordbatch.ErrFillerKey, offset, whyReserved)
	}
	return nil
}

const whyReserved = "the source topic is itself a mirror, whose fillers only its gateway hides; mirror it from there"

func (e *encoded) gap(from, next int64) {
	if n := len(e.pieces); n > 0 && e.pieces[n-1].gap() {
		e.pieces[n-1].next = next
		return
	}
	e.pieces = append(e.pieces, piece{from: from, next: next})
}

func (e *encoded) data(from, next int64, batch []byte, timestamp int64, asked instant) {
	e.pieces = append(e.pieces, piece{from: from, next: next, batch: batch, timestamp: timestamp, asked: asked})
	e.batches++
	e.bytes += int64(len(batch))
}

// String is for tests and messages.
func (p piece) String() string {
	if p.gap() {
		return fmt.Sprintf("gap %d-%d", p.from, p.next-1)
	}
	return fmt.Sprintf("%d-%d", p.from, p.next-1)
}
