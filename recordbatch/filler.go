package recordbatch

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// GapHeader is the key of the header that the first record of every filler batch carries. Its value is null in a filler
// and "fence" in a fence.
const GapHeader = "mirrorgate.gap"

// FillerBatchRecords is the number of records of a full filler batch: measured best, 16 M offsets/s and 0.58 bytes an
// offset.
const FillerBatchRecords = 100_000

// fillerKey is the key of all filler records on compacted topics, where brokers want one. Random, never to be changed:
// logs hold it.
var fillerKey = []byte{0x9e, 0x1d, 0x4b, 0xa3, 0x62, 0xf7, 0x48, 0x0c, 0xb5, 0x27, 0xd8, 0x71, 0x3a, 0xe6, 0x05, 0xcf}

// FillerKey returns a copy of the fixed key of filler records on compacted topics.
func FillerKey() []byte { return bytes.Clone(fillerKey) }

// AppendFiller appends a batch of count filler records to dst, which Stamp must still give its producer and sequence.
// keyed: for a compacted topic, records carry the fixed key (a null value makes them tombstones, so the cleaner takes
// them out again). All records have the given timestamp (ms). count must be 1 or more, FillerBatchRecords at most.
func AppendFiller(dst []byte, count int, keyed bool, timestamp int64) []byte {
	if count < 1 || count > FillerBatchRecords {
		panic("recordbatch: filler of no or too many records")
	}
	payload, codec := fillerPayload(count, keyed)
	return appendBatch(dst, unstamped(attrFiller|int16(codec), count, timestamp), payload)
}

// AppendFence appends the one-record batch that closes a partition to a producer ID; Stamp it with the producer's
// epoch + 1 and sequence 0. To readers it is a filler batch like any other.
func AppendFence(dst []byte, keyed bool, timestamp int64) []byte {
	payload := appendFillerRecord(nil, 0, keyed, []byte("fence"))
	return appendBatch(dst, unstamped(attrFiller, 1, timestamp), payload)
}

// template is what differs between the batches that are made here.
type template struct {
	offset      int64
	leaderEpoch int32
	attributes  int16
	count       int32
	timestamp   int64
	producerID  int64
	epoch       int16
}

func unstamped(attributes int16, count int, timestamp int64) template {
	return template{leaderEpoch: -1, attributes: attributes, count: int32(count), timestamp: timestamp, producerID: -1, epoch: -1}
}

// appendBatch appends a whole batch. Its sequence is -1, and the CRC is right for what it holds.
func appendBatch(dst []byte, t template, payload []byte) []byte {
	start := len(dst)
	b := binary.BigEndian
	dst = b.AppendUint64(dst, uint64(t.offset))
	dst = b.AppendUint32(dst, uint32(HeaderSize-lengthPrefix+len(payload)))
	dst = b.AppendUint32(dst, uint32(t.leaderEpoch))
	dst = append(dst, 2)
	dst = b.AppendUint32(dst, 0)
	dst = b.AppendUint16(dst, uint16(t.attributes))
	dst = b.AppendUint32(dst, uint32(t.count-1))
	dst = b.AppendUint64(dst, uint64(t.timestamp))
	dst = b.AppendUint64(dst, uint64(t.timestamp))
	dst = b.AppendUint64(dst, uint64(t.producerID))
	dst = b.AppendUint16(dst, uint16(t.epoch))
	dst = b.AppendUint32(dst, 0xffffffff)
	dst = b.AppendUint32(dst, uint32(t.count))
	dst = append(dst, payload...)
	batch := dst[start:]
	b.PutUint32(batch[offCRC:], crc32.Checksum(batch[offAttributes:], castagnoli))
	return dst
}

// appendFillerRecord appends one record with a null value. mark: the gap header with that value, if it is the first.
func appendFillerRecord(dst []byte, delta int32, keyed bool, mark []byte) []byte {
	var body [96]byte
	r := append(body[:0], 0, 0) // attributes, timestamp delta
	r = binary.AppendVarint(r, int64(delta))
	if keyed {
		r = binary.AppendVarint(r, int64(len(fillerKey)))
		r = append(r, fillerKey...)
	} else {
		r = append(r, 1) // null
	}
	r = append(r, 1) // null value
	if delta == 0 {
		r = binary.AppendVarint(r, 1)
		r = binary.AppendVarint(r, int64(len(GapHeader)))
		r = append(r, GapHeader...)
		if mark == nil {
			r = append(r, 1)
		} else {
			r = binary.AppendVarint(r, int64(len(mark)))
			r = append(r, mark...)
		}
	} else {
		r = append(r, 0)
	}
	dst = binary.AppendVarint(dst, int64(len(r)))
	return append(dst, r...)
}

// fullPayloads holds the payload of the full filler batch, without and with keys. It depends on nothing else (timestamp
// and offset are in the header), and a long gap is made of these.
var fullPayloads = [2]func() []byte{
	sync.OnceValue(func() []byte { return zstdPayload(FillerBatchRecords, false) }),
	sync.OnceValue(func() []byte { return zstdPayload(FillerBatchRecords, true) }),
}

func fillerPayload(count int, keyed bool) ([]byte, Codec) {
	switch {
	case count == 1:
		return appendFillerRecord(nil, 0, keyed, nil), None
	case count == FillerBatchRecords && keyed:
		return fullPayloads[1](), Zstd
	case count == FillerBatchRecords:
		return fullPayloads[0](), Zstd
	}
	return zstdPayload(count, keyed), Zstd
}

var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(128<<10))
	if err != nil {
		panic("recordbatch: zstd encoder: " + err.Error()) // options are constant
	}
	return e
})

func zstdPayload(count int, keyed bool) []byte {
	var raw []byte
	for i := range count {
		raw = appendFillerRecord(raw, int32(i), keyed, nil)
	}
	return zstdEncoder().EncodeAll(raw, nil)
}

// AppendCommitMarker appends a genuine COMMIT marker, as a transaction coordinator writes it, for readers: the read path
// puts it in the place of filler batches when nothing else would be left of an answer. It stands at offset, the last one
// of what it hides. leaderEpoch and producerEpoch are those of the batch it replaces; timestamp is in ms.
func AppendCommitMarker(dst []byte, offset int64, leaderEpoch int32, producerID int64, producerEpoch int16, timestamp int64) []byte {
	payload := []byte{
		32, 0, 0, 0, // length 16, attributes, timestamp delta, offset delta
		8, 0, 0, 0, 1, // key: version 0, type 1 (COMMIT)
		12, 0, 0, 0, 0, 0, 0, // value: version 0, coordinator epoch 0
		0, // no headers
	}
	return appendBatch(dst, template{
		offset: offset, leaderEpoch: leaderEpoch, attributes: attrTransactional | attrControl, count: 1,
		timestamp: timestamp, producerID: producerID, epoch: producerEpoch,
	}, payload)
}

// IsFiller reports whether a whole batch is a filler (or fence) that readers must not see. isProducer tells the producer
// IDs of mirrors. The rule, exact in both directions as long as the batch came from a broker:
//
//   - it is a v2 batch of a mirror's producer, neither control nor transactional; and
//   - bit 7 is set, and its first record has no value, no key or the fixed key, and the gap header; or
//   - the bit is gone, because the log cleaner wrote the batch anew (so it lacks records, or has a delete horizon, which
//     no batch has that was copied), and its first record has the fixed key and no value; or
//   - it has no records left, so that nothing can be hidden wrongly by leaving it out.
//
// The last rule but one is exact because on compacted topics a user's record with the fixed key is not copied at all
// (FindFillerKey). Fillers are never mixed with data in one batch, and the cleaner does not join batches, so the first record speaks for
// all. The decision costs at most the decompression of a few bytes a record.
func IsFiller(batch []byte, isProducer func(int64) bool) bool {
	h, err := whole(batch)
	if err != nil || h.Control() || h.Transactional() || !isProducer(h.ProducerID) {
		return false
	}
	if h.NumRecords == 0 {
		return true
	}
	if !h.Filler() && !mayBeCleanedFiller(h) {
		return false
	}
	filler := false
	err = Records(batch, func(r Record) error {
		filler = isFillerRecord(r, h.Filler())
		return errStop
	})
	return err == nil && filler
}

// mayBeCleanedFiller tells, without decoding, data batches from fillers that lost their bit: the cleaner has written them,
// and what remains of a filler compresses to about a byte a record and is small in any codec, most data is not.
func mayBeCleanedFiller(h Header) bool {
	payload := int64(h.Size() - HeaderSize)
	cleaned := h.Attributes&attrDeleteHorizon != 0 || int64(h.NumRecords) <= int64(h.LastOffsetDelta)
	return cleaned && payload <= 512+32*int64(h.NumRecords)
}

func isFillerRecord(r Record, marked bool) bool {
	if r.Value != nil {
		return false
	}
	if bytes.Equal(r.Key, fillerKey) {
		return true
	}
	return marked && r.Key == nil && len(r.Headers) == 1 && string(r.Headers[0].Key) == GapHeader
}
