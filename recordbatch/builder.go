package recordbatch

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
)

// minCompressed is the size in bytes of records below which compressing a batch is not tried: codecs have headers of
// their own, and a compacted log can make thousands of batches of one record.
const minCompressed = 128

// A builder makes a gapless batch of format v2, record by record. The batch is not stamped: base offset 0, no producer;
// attributes say the codec and nothing else. The memory is reused for the next one.
type builder struct {
	buf           []byte // room for the header, then records
	compressed    []byte // the same for the compressed form
	base, next    int64  // offsets
	baseTimestamp int64
	maxTimestamp  int64
}

var noHeader [HeaderSize]byte

// begin starts a batch whose first record will have that offset. Timestamps are written as differences from baseTimestamp,
// which need not be that of a record: with a delete horizon it is not.
func (b *builder) begin(offset, baseTimestamp int64) {
	b.buf = append(b.buf[:0], noHeader[:]...)
	b.base, b.next = offset, offset
	b.baseTimestamp, b.maxTimestamp = baseTimestamp, math.MinInt64
}

func (b *builder) count() int64 { return b.next - b.base }

// reset forgets the batch, and memory that was needed for something unusually large.
func (b *builder) reset() {
	b.base, b.next = 0, 0
	if cap(b.buf) > keptBuffer {
		b.buf = nil
	}
	if cap(b.compressed) > keptBuffer {
		b.compressed = nil
	}
}

// head appends length, attributes and deltas of the record at next, whose tail has that size. The difference of two
// timestamps may overflow; the reader's sum then does so too and gives the timestamp back.
func (b *builder) head(timestamp int64, attributes byte, tail int) {
	timestampDelta, offsetDelta := timestamp-b.baseTimestamp, b.next-b.base
	b.buf = binary.AppendVarint(b.buf, int64(1+varintSize(timestampDelta)+varintSize(offsetDelta)+tail))
	b.buf = append(b.buf, attributes)
	b.buf = binary.AppendVarint(b.buf, timestampDelta)
	b.buf = binary.AppendVarint(b.buf, offsetDelta)
	b.next++
	b.maxTimestamp = max(b.maxTimestamp, timestamp)
}

// add appends a record with the key, value and headers in tail.
func (b *builder) add(timestamp int64, attributes byte, tail []byte) {
	b.head(timestamp, attributes, len(tail))
	b.buf = append(b.buf, tail...)
}

// addKeyValue appends a record without headers.
func (b *builder) addKeyValue(timestamp int64, key, value []byte) {
	b.head(timestamp, 0, bytesSize(key)+bytesSize(value)+1)
	b.buf = appendBytes(b.buf, key)
	b.buf = appendBytes(b.buf, value)
	b.buf = append(b.buf, 0)
}

// finish completes the batch, compressed with codec if that makes it smaller. It is valid until the builder is used
// again; the uncompressed records stay in buf until then, too.
func (b *builder) finish(codec Codec) ([]byte, error) {
	batch, used := b.buf, None
	if codec != None && len(b.buf)-HeaderSize >= minCompressed {
		var err error
		b.compressed, err = appendCompressed(append(b.compressed[:0], noHeader[:]...), codec, b.buf[HeaderSize:])
		if err != nil {
			return nil, err
		}
		if len(b.compressed) < len(b.buf) {
			batch, used = b.compressed, codec
		}
	}
	b.putHeader(batch, used)
	return batch, nil
}

func (b *builder) putHeader(batch []byte, codec Codec) {
	e := binary.BigEndian
	e.PutUint64(batch[offBaseOffset:], 0)
	e.PutUint32(batch[offLength:], uint32(len(batch)-lengthPrefix))
	e.PutUint32(batch[offLeaderEpoch:], 0xffffffff)
	batch[offMagic] = 2
	e.PutUint16(batch[offAttributes:], uint16(codec))
	e.PutUint32(batch[offLastOffsetDelta:], uint32(b.count()-1))
	e.PutUint64(batch[offBaseTimestamp:], uint64(b.baseTimestamp))
	e.PutUint64(batch[offMaxTimestamp:], uint64(b.maxTimestamp))
	e.PutUint64(batch[offProducerID:], 0xffffffffffffffff)
	e.PutUint16(batch[offProducerEpoch:], 0xffff)
	e.PutUint32(batch[offBaseSequence:], 0xffffffff)
	e.PutUint32(batch[offNumRecords:], uint32(b.count()))
	e.PutUint32(batch[offCRC:], crc32.Checksum(batch[offAttributes:], castagnoli))
}

// varintSize returns how many bytes binary.AppendVarint appends.
func varintSize(v int64) int {
	zigzag := uint64(v<<1) ^ uint64(v>>63)
	return (bits.Len64(zigzag|1) + 6) / 7
}

// bytesSize returns how many bytes appendBytes appends.
func bytesSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // -1
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}
