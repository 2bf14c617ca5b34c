package recordbatch

import "encoding/binary"

// Sequence returns the sequence number of the record at offset: the offset modulo 2^31, which is how Kafka's producers
// wrap as well (2^31 - 1 is followed by 0).
func Sequence(offset int64) int32 { return int32(offset & (1<<31 - 1)) }

// Stamp rewrites the header of a whole v2 batch in place so that a broker takes it as a plain idempotent produce of the
// given producer: base offset 0 (any other is refused without a word of why), leader epoch -1, producer and sequence,
// CRC. The transactional bit is cleared, as a broker refuses the whole request for it, and the delete horizon bit,
// which is the source cleaner's promise and not the destination's. Records, timestamps, codec and record count are not
// touched, nor read: the checksum is corrected, not computed, so one that was wrong stays wrong. It does not allocate.
//
// REQUIRES: ParseHeader accepted the batch, and it is no control batch.
func Stamp(batch []byte, producerID int64, epoch int16, sequence int32) {
	before := headSum(batch)
	binary.BigEndian.PutUint64(batch[offBaseOffset:], 0)
	binary.BigEndian.PutUint32(batch[offLeaderEpoch:], 0xffffffff)
	attributes := binary.BigEndian.Uint16(batch[offAttributes:])
	binary.BigEndian.PutUint16(batch[offAttributes:], attributes&^(attrTransactional|attrDeleteHorizon))
	binary.BigEndian.PutUint64(batch[offProducerID:], uint64(producerID))
	binary.BigEndian.PutUint16(batch[offProducerEpoch:], uint16(epoch))
	binary.BigEndian.PutUint32(batch[offBaseSequence:], uint32(sequence))
	rehead(batch, before)
}

// Rebase sets the base offset of a whole v2 batch, which its CRC does not cover.
func Rebase(batch []byte, offset int64) {
	binary.BigEndian.PutUint64(batch[offBaseOffset:], uint64(offset))
}

// ClearMark takes the mark of fillers (bit 7, which nothing else uses) off a whole batch of format v2 that holds records
// of a user. It does nothing to other formats.
func ClearMark(batch []byte) {
	if len(batch) >= HeaderSize && batch[offMagic] == 2 && batch[offAttributes+1]&attrFiller != 0 {
		before := headSum(batch)
		batch[offAttributes+1] &^= attrFiller
		rehead(batch, before)
	}
}
