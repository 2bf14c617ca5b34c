package mirrormsg

import (
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A coder writes a message or reads one. Every message describes its fields once, in wire order, in a method
// code(*coder), which serves both directions; so they cannot come to differ.
type coder struct {
	reading bool
	w       []byte
	r       kbin.Reader
	err     error
}

var errShort = errors.New("the message ends too early")

// coded is a message or an element of one.
type coded interface{ code(c *coder) }

// appendMessage appends m to dst.
func appendMessage(dst []byte, m coded) []byte {
	c := coder{w: dst}
	m.code(&c)
	return c.w
}

// readMessage reads m, which has its default values, from all of src.
func readMessage(src []byte, m coded) error {
	c := coder{reading: true, r: kbin.Reader{Src: src}}
	m.code(&c)
	return c.complete()
}

func (c *coder) complete() error {
	switch {
	case c.err != nil:
		return c.err
	case !c.r.Ok():
		return errShort
	case len(c.r.Src) > 0:
		return fmt.Errorf("%d bytes are left over behind the message", len(c.r.Src))
	}
	return nil
}

// fail ends the reading; later reads return zero values, and no loop goes on.
func (c *coder) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.r.Src = nil
}

func (c *coder) ok() bool { return c.err == nil && c.r.Ok() }

func (c *coder) bool(v *bool) {
	if c.reading {
		*v = c.r.Bool()
		return
	}
	c.w = kbin.AppendBool(c.w, *v)
}

func (c *coder) int8(v *int8) {
	if c.reading {
		*v = c.r.Int8()
		return
	}
	c.w = kbin.AppendInt8(c.w, *v)
}

func (c *coder) int16(v *int16) {
	if c.reading {
		*v = c.r.Int16()
		return
	}
	c.w = kbin.AppendInt16(c.w, *v)
}

func (c *coder) int32(v *int32) {
	if c.reading {
		*v = c.r.Int32()
		return
	}
	c.w = kbin.AppendInt32(c.w, *v)
}

func (c *coder) int64(v *int64) {
	if c.reading {
		*v = c.r.Int64()
		return
	}
	c.w = kbin.AppendInt64(c.w, *v)
}

func (c *coder) float64(v *float64) {
	if c.reading {
		*v = c.r.Float64()
		return
	}
	c.w = kbin.AppendFloat64(c.w, *v)
}

func (c *coder) uuid(v *[16]byte) {
	if c.reading {
		*v = c.r.Uuid()
		return
	}
	c.w = kbin.AppendUuid(c.w, *v)
}

// string codes a string that must not be null; name is for the error.
func (c *coder) string(name string, v *string) {
	if !c.reading {
		c.w = kbin.AppendCompactString(c.w, *v)
		return
	}
	if s := c.r.CompactNullableString(); s != nil {
		*v = *s
	} else if c.ok() {
		c.fail(fmt.Errorf("%s is null, which it must not be", name))
	}
}

func (c *coder) nullableString(v **string) {
	if c.reading {
		*v = c.r.CompactNullableString()
		return
	}
	c.w = kbin.AppendCompactNullableString(c.w, *v)
}

// arrayLen codes the length of an array whose elements take at least least bytes each. A null array is read as an empty
// one, and never written.
func (c *coder) arrayLen(n, least int) int {
	if !c.reading {
		c.w = kbin.AppendCompactArrayLen(c.w, n)
		return n
	}
	read := int64(c.r.CompactArrayLen())
	if read*int64(least) > int64(len(c.r.Src)) {
		c.fail(errShort)
	}
	if read < 0 || !c.ok() {
		return 0
	}
	return int(read)
}

// array codes an array of structures. least is the fewest bytes that one can take on the wire.
func array[T any, P interface {
	*T
	coded
	Default()
}](c *coder, v *[]T, least int) {
	elements(c, v, least, func(element *T) {
		if c.reading {
			P(element).Default()
		}
		P(element).code(c)
	})
}

// strings codes an array of strings that must not be null.
func (c *coder) strings(name string, v *[]string) {
	elements(c, v, 1, func(element *string) { c.string(name, element) })
}

// elements codes an array, one element at a time.
func elements[T any](c *coder, v *[]T, least int, code func(*T)) {
	n := c.arrayLen(len(*v), least)
	if !c.reading {
		for i := range *v {
			code(&(*v)[i])
		}
		return
	}
	*v = nil
	// Grown as elements really come: an element is larger in memory than on the wire.
	for i := 0; i < n && c.ok(); i++ {
		var element T
		code(&element)
		*v = append(*v, element)
	}
}

// tag is a tagged field that this package knows; its number is its place in the call of tags. It is written if set.
type tag struct {
	set  bool
	code func(*coder)
}

// tags codes the tagged fields at the end of a structure: the known ones in order, then the unknown ones, which all have
// higher numbers.
func (c *coder) tags(unknown *kmsg.Tags, known ...tag) {
	if c.reading {
		c.readTags(unknown, known)
		return
	}
	type field struct {
		number uint32
		value  []byte
	}
	var fields []field
	for number, t := range known {
		if t.set {
			value := coder{}
			t.code(&value)
			fields = append(fields, field{uint32(number), value.w})
		}
	}
	unknown.Each(func(number uint32, value []byte) {
		if number >= uint32(len(known)) {
			fields = append(fields, field{number, value})
		}
	})
	c.w = kbin.AppendUvarint(c.w, uint32(len(fields)))
	for _, f := range fields {
		c.w = kbin.AppendUvarint(c.w, f.number)
		c.w = kbin.AppendUvarint(c.w, uint32(len(f.value)))
		c.w = append(c.w, f.value...)
	}
}

func (c *coder) readTags(unknown *kmsg.Tags, known []tag) {
	for n := c.r.Uvarint(); n > 0 && c.ok(); n-- {
		number, size := c.r.Uvarint(), c.r.Uvarint()
		value := c.r.Span(int(size))
		if !c.ok() {
			return
		}
		if int64(number) >= int64(len(known)) {
			unknown.Set(number, slices.Clone(value))
			continue
		}
		inner := coder{reading: true, r: kbin.Reader{Src: value}}
		known[number].code(&inner)
		if err := inner.complete(); err != nil {
			c.fail(fmt.Errorf("tagged field %d: %w", number, err))
		}
	}
}
