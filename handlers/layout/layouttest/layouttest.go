// Package layouttest makes random messages out of the definitions of package layout, for tests. It shares no code with
// the walker.
package layouttest

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
)

// Generator makes messages. The zero value of each func is a random value.
type Generator struct {
	Rand *rand.Rand
	// String, UUID and Int give the values of fields; nil, or ok false, for a random one.
	String  func(f *layout.Field) (s string, ok bool)
	UUID    func(f *layout.Field) (id [16]byte, ok bool)
	Int     func(f *layout.Field) (n int64, ok bool)
	Records func() []byte
	// Null, if not nil, is told of strings and bytes that are null.
	Null func(f *layout.Field)
	// NoTags leaves tagged fields out, known and unknown ones.
	NoTags bool
	// NoNull leaves nulls out.
	NoNull bool
	// Spots are what a walk over the last message must report, with offsets from where it began. TagSize and TagEnd
	// are left out, and so is Field.
	Spots []layout.Spot

	start int
}

// Append appends a random body of m at version v to b.
func (g *Generator) Append(b []byte, m *layout.Message, v int16) []byte {
	g.Spots, g.start = g.Spots[:0], len(b)
	return g.fields(b, m.Fields, v, m.Flexible.Has(v))
}

func (g *Generator) fields(b []byte, fields []layout.Field, v int16, flexible bool) []byte {
	var tagged []*layout.Field
	for i := range fields {
		f := &fields[i]
		switch {
		case !f.Versions.Has(v):
		case f.Tagged.Has(v):
			tagged = append(tagged, f)
		default:
			b = g.field(b, f, v, flexible)
		}
	}
	if !flexible {
		return b
	}
	return g.tags(b, tagged, v)
}

// tags appends a random choice of the known tagged fields and sometimes one of a version to come.
func (g *Generator) tags(b []byte, tagged []*layout.Field, v int16) []byte {
	type tag struct {
		f       *layout.Field
		unknown bool
	}
	var tags []tag
	for _, f := range tagged {
		if !g.NoTags && g.Rand.IntN(3) > 0 {
			tags = append(tags, tag{f: f})
		}
	}
	if !g.NoTags && g.Rand.IntN(4) == 0 {
		tags = append(tags, tag{unknown: true})
	}
	b = binary.AppendUvarint(b, uint64(len(tags)))
	for _, t := range tags {
		if t.unknown {
			b = binary.AppendUvarint(b, 1000+uint64(g.Rand.IntN(5)))
			n := g.Rand.IntN(200)
			b = binary.AppendUvarint(b, uint64(n))
			for range n {
				b = append(b, byte(g.Rand.Uint32()))
			}
			continue
		}
		b = g.tag(b, t.f, v)
	}
	return b
}

func (g *Generator) tag(b []byte, f *layout.Field, v int16) []byte {
	b = binary.AppendUvarint(b, uint64(f.Tag))
	before, start := len(g.Spots), g.start
	g.start = 0
	content := g.field(nil, f, v, true)
	g.start = start
	b = binary.AppendUvarint(b, uint64(len(content)))
	for i := before; i < len(g.Spots); i++ {
		g.Spots[i].Start += len(b) - start
		g.Spots[i].End += len(b) - start
	}
	return append(b, content...)
}

func (g *Generator) field(b []byte, f *layout.Field, v int16, flexible bool) []byte {
	null := f.Nullable.Has(v) && !g.NoNull && g.Rand.IntN(4) == 0
	if !f.Array {
		return g.value(b, f, v, flexible, null)
	}
	n := g.Rand.IntN(4)
	switch {
	case null:
		n = -1
	case f.Tagged.Has(v):
		n++ // nobody writes a tagged field that is empty
	}
	b = appendLength(b, n, 4, flexible)
	first, start := len(g.Spots), len(b)
	for range n {
		b = g.value(b, f, v, flexible, false)
	}
	if f.Mark == layout.Listeners {
		g.Spots = append(g.Spots[:first], layout.Spot{Mark: f.Mark, Start: start - g.start, End: len(b) - g.start, Null: null, Compact: flexible})
	}
	return b
}

func (g *Generator) value(b []byte, f *layout.Field, v int16, flexible, null bool) []byte {
	width := 4
	switch f.Kind {
	case layout.Struct:
		if f.Nullable.Has(v) && !f.Array {
			if null {
				return append(b, 0xff)
			}
			b = append(b, 1)
		}
		return g.fields(b, f.Fields, v, flexible)
	case layout.String:
		width = 2
		fallthrough
	case layout.Bytes, layout.Records:
		content := g.bytes(f)
		n := len(content)
		if null {
			n, content = -1, nil
			if g.Null != nil {
				g.Null(f)
			}
		}
		b = appendLength(b, n, width, flexible)
		g.spot(f, len(b), len(content), null, flexible)
		return append(b, content...)
	case layout.UUID:
		id := g.uuid(f)
		g.spot(f, len(b), 16, false, flexible)
		return append(b, id[:]...)
	}
	return g.number(b, f, flexible)
}

func (g *Generator) spot(f *layout.Field, at, n int, null, flexible bool) {
	if f.Mark != layout.Unmarked {
		g.Spots = append(g.Spots, layout.Spot{Mark: f.Mark, Start: at - g.start, End: at - g.start + n, Null: null, Compact: flexible})
	}
}

func (g *Generator) number(b []byte, f *layout.Field, flexible bool) []byte {
	size := map[layout.Kind]int{layout.Bool: 1, layout.Int8: 1, layout.Int16: 2, layout.Uint16: 2, layout.Int32: 4,
		layout.Int64: 8, layout.Float64: 8}[f.Kind]
	n := int64(g.Rand.Uint64())
	if f.Kind == layout.Bool {
		n &= 1
	}
	if g.Int != nil {
		if given, ok := g.Int(f); ok {
			n = given
		}
	}
	g.spot(f, len(b), size, false, flexible)
	var buf [8]byte
	binary.BigEndian.PutUint64(buf[:], uint64(n))
	return append(b, buf[8-size:]...)
}

func (g *Generator) uuid(f *layout.Field) (id [16]byte) {
	if g.UUID != nil {
		if given, ok := g.UUID(f); ok {
			return given
		}
	}
	for i := range id {
		id[i] = byte(g.Rand.Uint32())
	}
	return id
}

func (g *Generator) bytes(f *layout.Field) []byte {
	switch {
	case f.Kind == layout.Records && g.Records != nil:
		return g.Records()
	case f.Kind == layout.String && g.String != nil:
		if s, ok := g.String(f); ok {
			return []byte(s)
		}
	}
	content := make([]byte, g.Rand.IntN(150))
	for i := range content {
		content[i] = 'a' + byte(g.Rand.IntN(26))
	}
	return content
}

func appendLength(b []byte, n, width int, flexible bool) []byte {
	switch {
	case flexible:
		return binary.AppendUvarint(b, uint64(n+1))
	case width == 2:
		return binary.BigEndian.AppendUint16(b, uint16(n))
	}
	return binary.BigEndian.AppendUint32(b, uint32(n))
}
