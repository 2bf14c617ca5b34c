package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Errors of walking. They come wrapped.
var (
	ErrTruncated = errors.New("message ends too early")
	ErrMalformed = errors.New("malformed message")
	ErrVersion   = errors.New("version is not known")
)

// Spot is a marked field. Offsets are those of the slice that is walked.
type Spot struct {
	Mark Mark
	// Start and End enclose the value, for strings and records without their length.
	Start, End int
	// Field is where the field begins: the length of a string or of records, else Start.
	Field int
	// Null: a string, array or records that is null; Start and End are equal.
	Null bool
	// Compact: lengths are varints of the length plus one.
	Compact bool
}

// Walk calls visit for every marked field of a body of m at version v, which begins at b[at], in the order in which they
// lie there, and returns where the body ends. Any bytes are safe: what does not fit the layout is an error, and no
// length is believed before it was compared with what is there. visit may change b where that moves nothing; its error
// ends the walk.
//
// Versions older than those that Kafka still has are walked too, but a few have unmarked fields that the definitions no
// longer tell: the test against kmsg lists them.
func (m *Message) Walk(b []byte, at int, v int16, visit func(Spot) error) (end int, err error) {
	p := m.planFor(v)
	if p == nil {
		return 0, fmt.Errorf("%s v%d: %w", m.Name, v, ErrVersion)
	}
	if at < 0 || at > len(b) {
		return 0, fmt.Errorf("%s v%d: %w", m.Name, v, ErrTruncated)
	}
	w := walker{b: b, at: at, visit: visit}
	if err := w.walk(p); err != nil {
		return 0, fmt.Errorf("%s v%d at byte %d: %w", m.Name, v, w.at, err)
	}
	return w.at, nil
}

type walker struct {
	b     []byte
	at    int
	visit func(Spot) error
}

func (w *walker) walk(p *plan) error {
	for i := range p.steps {
		s := &p.steps[i]
		var err error
		switch {
		case s.skip > 0:
			err = w.skip(s.skip)
		case s.array:
			err = w.array(s, p.flexible)
		default:
			err = w.value(s, p.flexible)
		}
		if err != nil {
			return err
		}
	}
	if p.flexible {
		return w.tags(p)
	}
	return nil
}

func (w *walker) array(s *step, compact bool) error {
	field := w.at
	n, err := w.length(4, compact)
	if err != nil {
		return err
	}
	start := w.at
	if size := s.elementSize(); size > 0 && n > 0 {
		if n > (len(w.b)-w.at)/size {
			return ErrTruncated
		}
		w.at += n * size
	} else if err := w.elements(s, n, compact); err != nil {
		return err
	}
	if s.mark == Listeners {
		return w.visit(Spot{Mark: s.mark, Field: field, Start: start, End: w.at, Null: n < 0, Compact: compact})
	}
	return nil
}

func (w *walker) elements(s *step, n int, compact bool) error {
	for ; n > 0; n-- {
		before := w.at
		var err error
		if s.kind == Struct {
			err = w.walk(s.sub)
		} else {
			err = w.value(s, compact)
		}
		if err != nil {
			return err
		}
		if w.at == before {
			return ErrMalformed // elements of no size could be as many as they like
		}
	}
	return nil
}

// value walks over one value that is no array.
func (w *walker) value(s *step, compact bool) error {
	spot := Spot{Mark: s.mark, Field: w.at, Compact: compact}
	n := s.kind.size()
	switch s.kind {
	case Struct:
		return w.structure(s)
	case String, Bytes, Records:
		width := 4
		if s.kind == String {
			width = 2
		}
		var err error
		if n, err = w.length(width, compact); err != nil {
			return err
		}
		spot.Null = n < 0
	}
	spot.Start = w.at
	if err := w.skip(max(n, 0)); err != nil {
		return err
	}
	if s.mark == Unmarked {
		return nil
	}
	spot.End = w.at
	return w.visit(spot)
}

func (w *walker) structure(s *step) error {
	if s.nullable {
		if err := w.skip(1); err != nil {
			return err
		}
		if int8(w.b[w.at-1]) < 0 {
			return nil
		}
	}
	return w.walk(s.sub)
}

// tags walks over the tagged fields at the end of a struct.
func (w *walker) tags(p *plan) error {
	count, err := w.uvarint()
	if err != nil {
		return err
	}
	for ; count > 0; count-- {
		tag, err := w.uvarint()
		if err != nil {
			return err
		}
		field := w.at
		size, err := w.uvarint()
		if err != nil {
			return err
		}
		if int64(size) > int64(len(w.b)-w.at) {
			return ErrTruncated
		}
		if err := w.tag(p, tag, field, w.at+int(size)); err != nil {
			return err
		}
	}
	return nil
}

// tag walks over one tagged field, whose length is at w.b[field:w.at] and which ends at end.
func (w *walker) tag(p *plan, tag uint32, field, end int) error {
	var s *step
	for i := range p.tagged {
		if p.tagged[i].tag == tag {
			s = &p.tagged[i].step
		}
	}
	if s == nil {
		w.at = end
		return nil
	}
	if err := w.visit(Spot{Mark: TagSize, Field: field, Start: field, End: w.at, Compact: true}); err != nil {
		return err
	}
	whole := w.b
	w.b = whole[:end]
	var err error
	if s.array {
		err = w.array(s, true)
	} else {
		err = w.value(s, true)
	}
	w.b = whole
	if err != nil {
		return err
	}
	if w.at != end {
		return ErrMalformed
	}
	return w.visit(Spot{Mark: TagEnd, Field: end, Start: end, End: end, Compact: true})
}

func (w *walker) skip(n int) error {
	if n > len(w.b)-w.at {
		return ErrTruncated
	}
	w.at += n
	return nil
}

// length reads a length or count, -1 for null: a varint of one more if compact, else a signed integer of width bytes.
// It is not larger than what is left, as everything that is counted takes a byte at least.
func (w *walker) length(width int, compact bool) (int, error) {
	n := -1
	switch {
	case compact:
		v, err := w.uvarint()
		if err != nil {
			return 0, err
		}
		n = int(v) - 1
	case width > len(w.b)-w.at:
		return 0, ErrTruncated
	case width == 2:
		n = int(int16(binary.BigEndian.Uint16(w.b[w.at:])))
		w.at += 2
	default:
		n = int(int32(binary.BigEndian.Uint32(w.b[w.at:])))
		w.at += 4
	}
	if n > len(w.b)-w.at {
		return 0, ErrTruncated
	}
	return max(n, -1), nil
}

// uvarint reads a varint of 32 bits at most.
func (w *walker) uvarint() (uint32, error) {
	v, n := binary.Uvarint(w.b[w.at:min(w.at+5, len(w.b))])
	if n <= 0 {
		if len(w.b)-w.at >= 5 {
			return 0, ErrMalformed
		}
		return 0, ErrTruncated
	}
	if v > 1<<32-1 {
		return 0, ErrMalformed
	}
	w.at += n
	return uint32(v), nil
}
