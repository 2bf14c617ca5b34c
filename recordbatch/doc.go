// Package recordbatch reads and rewrites record batches of Kafka's message format v2 (KIP-98) as bytes, without
// decoding records where that is not needed. It is pure: no I/O, no clock, no state.
//
// A batch on the wire and in a log segment is
//
//	 0  base offset        int64
//	 8  length             int32   of all that follows
//	12  leader epoch       int32   set by the broker, not covered by the CRC
//	16  magic              int8    2
//	17  CRC-32C            uint32  of all that follows
//	21  attributes         int16
//	23  last offset delta  int32
//	27  base timestamp     int64   ms
//	35  max timestamp      int64   ms
//	43  producer ID        int64
//	51  producer epoch     int16
//	53  base sequence      int32
//	57  number of records  int32
//	61  records, compressed as a whole
//
// Attributes: bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon (KIP-534: base timestamp is
// then the time at which the cleaner may drop tombstones; record timestamps are still base + delta), 7 unused by Kafka
// and kept by brokers as sent: here it marks the gateway's filler batches.
//
// Two things of this format are used by the whole gateway. Everything that a broker, on appending, takes from the
// producer sits in the header, so a batch can be moved to another cluster by rewriting 61 bytes (Stamp). And the cleaner
// of a compacted topic leaves LastOffsetDelta alone when it takes records out, so that the header always says where the
// next batch begins at the earliest (NextOffset), even for a batch with no record left.
package recordbatch
