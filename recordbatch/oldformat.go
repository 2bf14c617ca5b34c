package recordbatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/bits"
	"slices"
)

// Message formats v0 (before Kafka 0.10) and v1 (before 0.11). A message is
//
//	offset int64, size int32, CRC uint32 (IEEE, of all that follows), magic int8, attributes int8,
//	v1: timestamp int64 (ms), key and value, each with an int32 length (-1: null)
//
// Attributes: bits 0-2 codec (never zstd), and in v1 bit 3 LogAppendTime. A compressed message is a wrapper: its value
// is a sequence of uncompressed messages. Its offset is that of the last of them. Their own offsets are absolute in v0,
// relative to the first one in v1; as compaction leaves holes, the base follows only from the last one. With LogAppendTime
// the broker sets the timestamp of the wrapper alone, and it counts for all.
type oldMessage struct {
	offset     int64
	magic      int8
	attributes int8
	timestamp  int64 // -1 in v0
	key, value []byte
}

const minOldSize = lengthPrefix + minOldLength

func (m *oldMessage) codec() Codec        { return Codec(m.attributes & attrCodec) }
func (m *oldMessage) logAppendTime() bool { return m.magic == 1 && m.attributes&attrLogAppendTime != 0 }

// OldRecords decodes a whole message of format v0 or v1, with what is inside if it is compressed, and calls fn for each
// record in order; an error of fn ends it and is returned. The timestamp is that of readers, -1 in format v0, which has
// none. Checksums are checked. ErrCorrupt or ErrCRC for what is malformed or beyond the limits that Records has too.
//
// What is decompressed is streamed: memory is only used for one record (with snappy: one block) at a time. A last record
// that is cut off inside a compressed message is left out, as Kafka's readers do.
func OldRecords(message []byte, fn func(Record) error) error {
	err := oldRecords(message, fn)
	if err == errStop {
		return nil
	}
	return err
}

func oldRecords(b []byte, fn func(Record) error) error {
	m, err := parseOldMessage(b)
	if err != nil {
		return err
	}
	if m.codec() == None {
		return fn(Record{Offset: m.offset, Timestamp: m.timestamp, Key: m.key, Value: m.value})
	}
	if m.codec() > LZ4 || m.value == nil {
		return m.corrupt(errors.New("no wrapper of this format is like that"))
	}
	if m.magic == 0 && m.codec() == LZ4 {
		m.value = repairLZ4(m.value)
	}
	base := int64(0)
	if m.magic == 1 {
		last, err := lastInnerOffset(m)
		if err != nil {
			return m.corrupt(err)
		}
		base = m.offset - last
	}
	return m.inner(base, fn)
}

func (m *oldMessage) corrupt(err error) error {
	return fmt.Errorf("%w: format v%d (%v) ending at offset %d: %v", ErrCorrupt, m.magic, m.codec(), m.offset, err)
}

// inner decodes the messages inside m. base is added to their offsets.
func (m *oldMessage) inner(base int64, fn func(Record) error) error {
	s, err := openStream(m.codec(), m.value)
	if err != nil {
		return m.corrupt(err)
	}
	defer s.close()
	last := int64(-1)
	for {
		_, size, err := nextInner(s)
		if err == io.EOF {
			break
		}
		if err != nil {
			return m.corrupt(err)
		}
		b, err := s.take(size)
		if err == io.EOF {
			break // cut off
		}
		if err != nil {
			return m.corrupt(err)
		}
		i, err := parseOldMessage(b)
		if err != nil {
			return fmt.Errorf("inside the message ending at offset %d: %w", m.offset, err)
		}
		offset := base + i.offset
		switch {
		case i.codec() != None:
			return m.corrupt(errors.New("compressed message inside a compressed message"))
		case offset <= last || offset > m.offset:
			return m.corrupt(fmt.Errorf("offset %d after %d", offset, last))
		}
		last = offset
		timestamp := i.timestamp
		if i.magic == 1 && m.logAppendTime() {
			timestamp = m.timestamp
		}
		if err := fn(Record{Offset: offset, Timestamp: timestamp, Key: i.key, Value: i.value}); err != nil {
			return err
		}
	}
	if last < 0 {
		return m.corrupt(errors.New("no message inside"))
	}
	return nil
}

// lastInnerOffset returns the offset that the last message inside m claims. Decompressing twice costs less than the
// memory for all of it, and old formats are rare.
func lastInnerOffset(m oldMessage) (int64, error) {
	s, err := openStream(m.codec(), m.value)
	if err != nil {
		return 0, err
	}
	defer s.close()
	last := int64(-1)
	for {
		offset, size, err := nextInner(s)
		if err == io.EOF {
			break
		}
		if err == nil {
			err = s.skip(size)
		}
		if err == io.EOF {
			break // cut off
		}
		if err != nil {
			return 0, err
		}
		last = offset
	}
	if last < 0 || last > m.offset {
		return 0, fmt.Errorf("offset %d of the last message inside", last)
	}
	return last, nil
}

// nextInner returns the offset and the size of the next message of s, which it does not take. io.EOF at the end, also
// if the message is cut off before its size.
func nextInner(s *stream) (offset, size int64, err error) {
	head, err := s.peek(lengthPrefix)
	if err != nil {
		return 0, 0, err
	}
	offset = int64(binary.BigEndian.Uint64(head))
	length := int32(binary.BigEndian.Uint32(head[offLength:]))
	if length < minOldLength || length > MaxRecordSize || offset < 0 {
		return 0, 0, fmt.Errorf("length %d at inner offset %d", length, offset)
	}
	return offset, lengthPrefix + int64(length), nil
}

// parseOldMessage decodes a message whose end is that of b, and checks its CRC.
func parseOldMessage(b []byte) (oldMessage, error) {
	if len(b) < minOldSize {
		return oldMessage{}, fmt.Errorf("%w: message of %d bytes", ErrCorrupt, len(b))
	}
	m := oldMessage{
		offset: int64(binary.BigEndian.Uint64(b)), magic: int8(b[offMagic]), attributes: int8(b[offMagic+1]), timestamp: -1,
	}
	length := int64(int32(binary.BigEndian.Uint32(b[offLength:])))
	if length != int64(len(b)-lengthPrefix) || m.offset < 0 || m.magic < 0 || m.magic > 1 {
		return m, fmt.Errorf("%w: message of %d bytes says magic %d, length %d, offset %d", ErrCorrupt, len(b), m.magic, length, m.offset)
	}
	if want, got := binary.BigEndian.Uint32(b[lengthPrefix:]), crc32.ChecksumIEEE(b[offMagic:]); want != got {
		return m, fmt.Errorf("%w: %08x in the message, %08x computed, at offset %d", ErrCRC, want, got, m.offset)
	}
	d := decoder{b: b[offMagic+2:]}
	if m.magic == 1 {
		if t := d.take(8); t != nil {
			m.timestamp = int64(binary.BigEndian.Uint64(t))
		}
	}
	m.key, m.value = d.oldBytes(), d.oldBytes()
	if d.bad || len(d.b) > 0 {
		return m, fmt.Errorf("%w: malformed message of %d bytes at offset %d", ErrCorrupt, len(b), m.offset)
	}
	return m, nil
}

// oldBytes takes a nullable byte string with a length of four bytes.
func (d *decoder) oldBytes() []byte {
	size := d.take(4)
	if d.bad {
		return nil
	}
	n := int32(binary.BigEndian.Uint32(size))
	if n == -1 {
		return nil
	}
	return d.take(int64(n))
}

// repairLZ4 returns frame with the right checksum of its descriptor. Writers of format v0 took it over the frame's magic
// number as well (KAFKA-3160), and readers of that format do not look at it.
func repairLZ4(frame []byte) []byte {
	const magic = 4
	if len(frame) < 7 {
		return frame
	}
	end := magic + 2 // flags, block descriptor
	if frame[magic]&0x08 != 0 {
		end += 8 // content size
	}
	if frame[magic]&0x01 != 0 {
		end += 4 // dictionary
	}
	if len(frame) <= end {
		return frame
	}
	frame = slices.Clone(frame)
	frame[end] = byte(shortXXH32(frame[magic:end]) >> 8)
	return frame
}

// shortXXH32 is xxHash32 with seed 0 for less than 16 bytes.
func shortXXH32(b []byte) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h := uint32(p5) + uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		h += binary.LittleEndian.Uint32(b) * p3
		h = bits.RotateLeft32(h, 17) * p4
	}
	for _, c := range b {
		h += uint32(c) * p5
		h = bits.RotateLeft32(h, 11) * p1
	}
	h ^= h >> 15
	h *= p2
	h ^= h >> 13
	h *= p3
	return h ^ h>>16
}
