package recordbatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// HeaderSize is the length of the header of a batch in bytes.
const HeaderSize = 61

// LeaderEpochAt is where the leader epoch is in a batch, an int32 that the checksum does not cover.
const LeaderEpochAt = 12

const (
	offBaseOffset      = 0
	offLength          = 8
	offLeaderEpoch     = LeaderEpochAt
	offMagic           = 16
	offCRC             = 17
	offAttributes      = 21
	offLastOffsetDelta = 23
	offBaseTimestamp   = 27
	offMaxTimestamp    = 35
	offProducerID      = 43
	offProducerEpoch   = 51
	offBaseSequence    = 53
	offNumRecords      = 57

	// lengthPrefix is the size of what the length field does not count: base offset and length.
	lengthPrefix = 12
	// minOldLength is the smallest length of a message of format v0: CRC, magic, attributes, null key, null value.
	minOldLength = 14
)

// Attribute bits.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
	attrFiller        = 0x80
)

// Errors of parsing. They come wrapped: compare with errors.Is.
var (
	// ErrPartial: the bytes end inside a batch, which is normal at the end of a Fetch response.
	ErrPartial = errors.New("batch is cut off")
	// ErrOldFormat: a message of format v0 or v1.
	ErrOldFormat = errors.New("old message format")
	// ErrCorrupt: the bytes cannot be a batch.
	ErrCorrupt = errors.New("corrupt batch")
	// ErrCRC: the checksum does not match.
	ErrCRC = errors.New("batch has a wrong CRC")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Codec is the compression of a batch, as in its attributes.
type Codec int8

// The codecs of Kafka.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// String returns the name that Kafka's compression.type uses.
func (c Codec) String() string {
	if c >= None && c <= Zstd {
		return [...]string{"none", "gzip", "snappy", "lz4", "zstd"}[c]
	}
	return fmt.Sprintf("codec %d", int8(c))
}

// Header is the decoded header of a batch. Timestamps are in milliseconds.
type Header struct {
	BaseOffset      int64
	Length          int32 // bytes after this field: the batch is 12 bytes longer
	LeaderEpoch     int32
	Magic           int8
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	NumRecords      int32
}

// LastOffset returns the offset of the last record that the batch had when it was written; the cleaner may have taken
// that record out since.
func (h Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// NextOffset returns the offset after the last one.
func (h Header) NextOffset() int64 { return h.LastOffset() + 1 }

// Size returns the length of the whole batch in bytes.
func (h Header) Size() int { return lengthPrefix + int(h.Length) }

// Codec returns the compression of the records.
func (h Header) Codec() Codec { return Codec(h.Attributes & attrCodec) }

// Transactional reports whether the batch is part of a transaction.
func (h Header) Transactional() bool { return h.Attributes&attrTransactional != 0 }

// Control reports whether the batch holds a control record, such as a transaction marker.
func (h Header) Control() bool { return h.Attributes&attrControl != 0 }

// LogAppendTime reports whether MaxTimestamp, given by the broker, is the timestamp of every record.
func (h Header) LogAppendTime() bool { return h.Attributes&attrLogAppendTime != 0 }

// Filler reports whether the bit is set that marks filler batches. It is no proof: see IsFiller.
func (h Header) Filler() bool { return h.Attributes&attrFiller != 0 }

// ParseHeader decodes the header of the batch that b starts with. b may end after the header. For message formats v0
// and v1 it returns ErrOldFormat together with what is known: BaseOffset (for a compressed message the offset of its
// last record, in v0 and v1), Length, Magic, CRC, the codec and timestamp type, and the timestamp of v1; ProducerID is -1.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < offCRC {
		return Header{}, fmt.Errorf("%w: %d bytes", ErrPartial, len(b))
	}
	h := Header{
		BaseOffset:  int64(binary.BigEndian.Uint64(b[offBaseOffset:])),
		Length:      int32(binary.BigEndian.Uint32(b[offLength:])),
		LeaderEpoch: int32(binary.BigEndian.Uint32(b[offLeaderEpoch:])),
		Magic:       int8(b[offMagic]),
	}
	switch h.Magic {
	case 2:
	case 0, 1:
		return parseOld(b, h)
	default:
		return Header{}, fmt.Errorf("%w: magic %d at offset %d", ErrCorrupt, h.Magic, h.BaseOffset)
	}
	if h.Length < HeaderSize-lengthPrefix {
		return Header{}, fmt.Errorf("%w: length %d at offset %d", ErrCorrupt, h.Length, h.BaseOffset)
	}
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("%w: %d bytes", ErrPartial, len(b))
	}
	h.CRC = binary.BigEndian.Uint32(b[offCRC:])
	h.Attributes = int16(binary.BigEndian.Uint16(b[offAttributes:]))
	h.LastOffsetDelta = int32(binary.BigEndian.Uint32(b[offLastOffsetDelta:]))
	h.BaseTimestamp = int64(binary.BigEndian.Uint64(b[offBaseTimestamp:]))
	h.MaxTimestamp = int64(binary.BigEndian.Uint64(b[offMaxTimestamp:]))
	h.ProducerID = int64(binary.BigEndian.Uint64(b[offProducerID:]))
	h.ProducerEpoch = int16(binary.BigEndian.Uint16(b[offProducerEpoch:]))
	h.BaseSequence = int32(binary.BigEndian.Uint32(b[offBaseSequence:]))
	h.NumRecords = int32(binary.BigEndian.Uint32(b[offNumRecords:]))
	return h, h.check()
}

// check refuses what no broker writes and what would break arithmetic on offsets.
func (h Header) check() error {
	switch {
	case h.LastOffsetDelta < 0, h.NumRecords < 0, int64(h.NumRecords) > int64(h.LastOffsetDelta)+1:
		return fmt.Errorf("%w: %d records and last offset delta %d at offset %d", ErrCorrupt, h.NumRecords, h.LastOffsetDelta, h.BaseOffset)
	case h.BaseOffset < 0, h.NextOffset() < 0:
		return fmt.Errorf("%w: base offset %d with last offset delta %d", ErrCorrupt, h.BaseOffset, h.LastOffsetDelta)
	}
	return nil
}

// parseOld decodes what formats v0 and v1 have: offset, size, CRC, magic, attributes, and in v1 a timestamp. The magic
// sits at the same place as in v2.
func parseOld(b []byte, h Header) (Header, error) {
	minLength := int32(minOldLength)
	if h.Magic == 1 {
		minLength += 8
	}
	if h.Length < minLength || h.BaseOffset < 0 {
		return Header{}, fmt.Errorf("%w: magic %d, length %d at offset %d", ErrCorrupt, h.Magic, h.Length, h.BaseOffset)
	}
	if len(b) < lengthPrefix+int(minLength) {
		return Header{}, fmt.Errorf("%w: %d bytes", ErrPartial, len(b))
	}
	h.CRC = binary.BigEndian.Uint32(b[lengthPrefix:])
	h.LeaderEpoch, h.ProducerID, h.ProducerEpoch, h.BaseSequence, h.NumRecords = -1, -1, -1, -1, 1
	h.Attributes = int16(b[offMagic+1]) & (attrCodec | attrLogAppendTime)
	h.BaseTimestamp, h.MaxTimestamp = -1, -1
	if h.Magic == 1 {
		h.BaseTimestamp = int64(binary.BigEndian.Uint64(b[offMagic+2:]))
		h.MaxTimestamp = h.BaseTimestamp
	}
	return h, fmt.Errorf("%w: magic %d at offset %d", ErrOldFormat, h.Magic, h.BaseOffset)
}

// Next cuts the first batch (or message of an old format) off b, without copying. ErrPartial: b, which may be empty,
// ends before that batch does. A length that cannot be is ErrCorrupt. The contents of the batch are not checked.
func Next(b []byte) (batch, rest []byte, err error) {
	if len(b) < offCRC {
		return nil, b, fmt.Errorf("%w: %d bytes", ErrPartial, len(b))
	}
	length, magic := int32(binary.BigEndian.Uint32(b[offLength:])), int8(b[offMagic])
	minLength := int32(HeaderSize - lengthPrefix)
	if magic == 0 || magic == 1 {
		minLength = minOldLength
	}
	if length < minLength || magic < 0 || magic > 2 {
		return nil, b, fmt.Errorf("%w: length %d, magic %d", ErrCorrupt, length, magic)
	}
	size := lengthPrefix + int(length)
	if size > len(b) {
		return nil, b, fmt.Errorf("%w: %d of %d bytes", ErrPartial, len(b), size)
	}
	return b[:size:size], b[size:], nil
}

// CheckCRC verifies the checksum of a whole batch of format v2.
func CheckCRC(batch []byte) error {
	h, err := whole(batch)
	if err != nil {
		return err
	}
	if got := crc32.Checksum(batch[offAttributes:], castagnoli); got != h.CRC {
		return fmt.Errorf("%w: %08x in the header, %08x computed, at offset %d", ErrCRC, h.CRC, got, h.BaseOffset)
	}
	return nil
}

// whole parses the header and requires that batch is exactly one batch.
func whole(batch []byte) (Header, error) {
	h, err := ParseHeader(batch)
	if err != nil {
		return h, err
	}
	if h.Size() != len(batch) {
		return h, fmt.Errorf("%w: %d bytes, header says %d, at offset %d", ErrCorrupt, len(batch), h.Size(), h.BaseOffset)
	}
	return h, nil
}
