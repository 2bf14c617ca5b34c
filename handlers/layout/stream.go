package layout

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Sink is told what a Stream meets. What it is given may be changed in place, but keeps its length.
type Sink interface {
	// Field is called with the value of a marked field that is in no tagged field; null is empty.
	Field(mark Mark, value []byte)
	// Tagged is called with a whole tagged field that has marked fields inside: its number, size and body, of which body
	// is the last part. walk visits these as Walk does, by their place in body.
	Tagged(field, body []byte, walk func(visit func(Spot) error) error) error
	// Begin is called before the record data of one partition, of size bytes.
	Begin(size int)
	// Records is called with the next of these bytes and appends those to send to out; over all calls that must be size bytes.
	// last says that no more come.
	Records(data []byte, last bool, out Pieces) (Pieces, error)
}

// Stream walks over a message that arrives in pieces and lets it pass, as far as it came, with the same length. It holds
// no more than one field, so that large messages cost no memory.
//
//	NewStream ──► Feed … Feed ──► End
type Stream struct {
	m        *Message
	version  int16
	flexible bool
	left     int // bytes that have not been taken
	levels   []level
	now      op
	hold     Gather
	sink     Sink
}

// level is a struct or an array that the stream is in.
type level struct {
	plan *plan // of a struct
	next int   // the step that is next
	tags int   // tagged fields to come; -1: their number has not been read

	elements *step // of an array
	n        int   // elements to come
}

// op is what the stream does with the next bytes.
type op struct {
	kind opKind
	step *step
	n    int   // bytes
	plan *plan // of opTag: the struct that the field is in
	// Of a tagged field with marked fields inside: what of it has been taken. It goes on when it is complete.
	field []byte
}

type opKind uint8

const (
	opEnd opKind = iota
	opSkip
	opField
	opNullable
	opCount   // of an array
	opLength  // of a string, bytes or records
	opRecords // n bytes of them are to come
	opTagCount
	opTag
	opTagSize
	opTagged // n bytes of body
)

// maxHeld bounds a field that is held, in bytes: addresses of all brokers.
const maxHeld = 1 << 20

// NewStream makes a stream for a frame of size bytes that holds a response of m at that version, header included. It
// returns nil if the tables do not know the version.
func NewStream(m *Message, version int16, size int, sink Sink) *Stream {
	p := m.planFor(version)
	if p == nil {
		return nil
	}
	s := &Stream{m: m, version: version, flexible: p.flexible, left: size, sink: sink}
	const correlationID = 4
	header := &plan{steps: []step{{skip: correlationID}}, flexible: p.flexible}
	s.levels = append(make([]level, 0, 8), level{plan: p, tags: -1}, level{plan: header, tags: -1})
	return s
}

// Feed takes the next bytes of the frame and appends to out what can go on. The pieces are parts of data and of the stream's
// own buffers: they are valid until the next call.
func (s *Stream) Feed(data []byte, out Pieces) (Pieces, error) {
	if len(data) > s.left {
		return out, s.fail(ErrMalformed)
	}
	if s.now.kind == opEnd && len(s.levels) > 0 {
		s.advance()
	}
	for off := 0; off < len(data); {
		if s.now.kind == opEnd {
			return out, s.fail(fmt.Errorf("%w: bytes behind its end", ErrMalformed))
		}
		n, piece, done, err := s.take(data[off:], &out)
		off += n
		s.left -= n
		out = out.Append(piece)
		if err != nil {
			return out, s.fail(err)
		}
		if done {
			s.advance()
		}
	}
	return out, nil
}

// End is called behind the last byte.
func (s *Stream) End() error {
	if s.now.kind != opEnd || s.left != 0 || len(s.levels) > 0 {
		return s.fail(ErrTruncated)
	}
	return nil
}

func (s *Stream) fail(err error) error {
	return fmt.Errorf("%s v%d, %d bytes before its end: %w", s.m.Name, s.version, s.left, err)
}

// take does the current operation with the bytes in data: it returns how many it took, what of that can go on, and
// whether the operation is done.
func (s *Stream) take(data []byte, out *Pieces) (n int, piece []byte, done bool, err error) {
	o := &s.now
	switch o.kind {
	case opSkip, opRecords:
		n = min(o.n, len(data))
		if piece = data[:n]; o.kind == opRecords {
			*out, err = s.sink.Records(piece, o.n == n, *out)
			piece = nil
		}
		if o.n -= n; o.n == 0 {
			*o, done = op{}, true
		}
		return n, piece, done, err
	case opField, opNullable, opTagged:
		n, piece = s.hold.Take(data, o.n)
	case opCount, opLength:
		n, piece = s.takeLength(data)
	default:
		n, piece = s.hold.TakeUvarint(data)
	}
	if piece == nil {
		return n, nil, false, nil
	}
	piece, err = s.did(piece, s.left-n)
	return n, piece, true, err
}

func (s *Stream) takeLength(data []byte) (int, []byte) {
	switch {
	case s.flexible:
		return s.hold.TakeUvarint(data)
	case s.now.kind == opLength && s.now.step.kind == String:
		return s.hold.Take(data, 2)
	}
	return s.hold.Take(data, 4)
}

// did looks at a whole piece of structure, behind which left bytes come, and returns what can go on now.
func (s *Stream) did(piece []byte, left int) ([]byte, error) {
	o := s.now
	s.now = op{} // unless something follows at once
	switch o.kind {
	case opField:
		s.sink.Field(o.step.mark, piece)
	case opNullable:
		if int8(piece[0]) >= 0 {
			s.levels = append(s.levels, level{plan: o.step.sub, tags: -1})
		}
	case opCount, opLength:
		return piece, s.counted(o, piece, left)
	case opTagged:
		whole := append(o.field, piece...)
		body := whole[len(o.field):]
		return whole, s.sink.Tagged(whole, body, func(visit func(Spot) error) error { return walkTagged(o.step, body, visit) })
	default:
		return s.tagged(o, piece, left)
	}
	return piece, nil
}

// counted goes on behind the length of something.
func (s *Stream) counted(o op, piece []byte, left int) error {
	n, err := lengthOf(piece, s.flexible)
	if err != nil || n > left {
		return ErrMalformed
	}
	switch {
	case n <= 0:
		if o.kind == opLength && o.step.mark != Unmarked && o.step.mark != RecordData {
			s.sink.Field(o.step.mark, nil)
		}
	case o.kind == opCount:
		if size := o.step.elementSize(); size > 0 {
			if n > left/size {
				return ErrTruncated
			}
			s.now = op{kind: opSkip, n: n * size}
		} else {
			s.levels = append(s.levels, level{elements: o.step, n: n})
		}
	case o.step.mark == RecordData:
		s.sink.Begin(n)
		s.now = op{kind: opRecords, n: n}
	case o.step.mark != Unmarked && o.step.kind == String:
		if n > maxHeld {
			return ErrMalformed
		}
		s.now = op{kind: opField, step: o.step, n: n}
	default:
		s.now = op{kind: opSkip, n: n}
	}
	return nil
}

// walkTagged visits the marked fields in the body of a tagged field.
func walkTagged(tagged *step, body []byte, visit func(Spot) error) error {
	w := walker{b: body, visit: visit}
	var err error
	if tagged.array {
		err = w.array(tagged, true)
	} else {
		err = w.value(tagged, true)
	}
	if err == nil && w.at != len(body) {
		err = ErrMalformed
	}
	return err
}

// tagged goes on behind a number that belongs to tagged fields.
func (s *Stream) tagged(o op, piece []byte, left int) ([]byte, error) {
	v, err := uvarintOf(piece)
	if err != nil {
		return nil, err
	}
	switch o.kind {
	case opTagCount:
		s.levels[len(s.levels)-1].tags = int(v)
		return piece, nil
	case opTag:
		s.now = op{kind: opTagSize}
		for i := range o.plan.tagged {
			if o.plan.tagged[i].tag == v {
				s.now.step, s.now.field = &o.plan.tagged[i].step, bytes.Clone(piece)
				return nil, nil
			}
		}
		return piece, nil
	}
	switch {
	case int64(v) > int64(left):
		return nil, ErrTruncated
	case o.field == nil && v > 0:
		s.now = op{kind: opSkip, n: int(v)}
	case o.field == nil:
	case v == 0 || v > maxHeld:
		return nil, ErrMalformed
	default:
		s.now = op{kind: opTagged, n: int(v), step: o.step, field: append(o.field, piece...)}
		return nil, nil
	}
	return piece, nil
}

// advance decides what comes next.
func (s *Stream) advance() {
	for s.now.kind == opEnd && len(s.levels) > 0 {
		top := &s.levels[len(s.levels)-1]
		switch {
		case top.elements != nil && top.n > 0:
			if top.n--; top.elements.kind == Struct { // nullable is the array then, not what is in it
				s.levels = append(s.levels, level{plan: top.elements.sub, tags: -1})
			} else {
				s.value(top.elements)
			}
		case top.plan != nil && top.next < len(top.plan.steps):
			next := &top.plan.steps[top.next]
			top.next++
			switch {
			case next.skip > 0:
				s.now = op{kind: opSkip, n: next.skip}
			case next.array:
				s.now = op{kind: opCount, step: next}
			default:
				s.value(next)
			}
		case top.plan != nil && s.flexible && top.tags < 0:
			s.now = op{kind: opTagCount}
		case top.plan != nil && s.flexible && top.tags > 0:
			top.tags--
			s.now = op{kind: opTag, plan: top.plan}
		default:
			s.levels = s.levels[:len(s.levels)-1]
		}
	}
}

func (s *Stream) value(v *step) {
	size := v.kind.size()
	switch {
	case v.kind == Struct && v.nullable:
		s.now = op{kind: opNullable, step: v, n: 1}
	case v.kind == Struct:
		s.levels = append(s.levels, level{plan: v.sub, tags: -1})
	case size == 0:
		s.now = op{kind: opLength, step: v}
	case v.mark == Unmarked:
		s.now = op{kind: opSkip, n: size}
	default:
		s.now = op{kind: opField, step: v, n: size}
	}
}

func lengthOf(b []byte, compact bool) (int, error) {
	switch {
	case compact:
		v, err := uvarintOf(b)
		return int(v) - 1, err
	case len(b) == 2:
		return int(int16(binary.BigEndian.Uint16(b))), nil
	}
	return int(int32(binary.BigEndian.Uint32(b))), nil
}

func uvarintOf(b []byte) (uint32, error) {
	v, n := binary.Uvarint(b)
	if n != len(b) || v > 1<<32-1 {
		return 0, ErrMalformed
	}
	return uint32(v), nil
}
