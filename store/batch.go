package store

import (
	"encoding/binary"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// nonceHeader is the record header that says who wrote a record, and for which offset:
// <writer>/<counter>/<expected offset>.
const nonceHeader = "n"

// logRecord is one record of the state log.
type logRecord struct {
	offset     int64
	key, value []byte // value nil: tombstone
	nonce      string
}

// valid reports whether the record is where its writer meant it to be. Only then had its writer seen everything before
// it. Every reader applies the same rule to the same log, so all agree on what counts.
func (r *logRecord) valid() bool {
	i := strings.LastIndexByte(r.nonce, '/')
	if i < 0 {
		return false
	}
	at, err := strconv.ParseInt(r.nonce[i+1:], 10, 64)
	return err == nil && at == r.offset
}

func makeNonce(writer string, counter uint64, offset int64) string {
	return writer + "/" + strconv.FormatUint(counter, 10) + "/" + strconv.FormatInt(offset, 10)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// buildBatch makes an uncompressed record batch v2 for base. The offsets on the wire are relative to 0, as a broker wants.
func buildBatch(producer int64, base, nowMs int64, records []logRecord) []byte {
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1,
		Magic:                2,
		LastOffsetDelta:      int32(len(records) - 1),
		FirstTimestamp:       nowMs,
		MaxTimestamp:         nowMs,
		ProducerID:           producer,
		FirstSequence:        int32(base & 0x7fffffff),
		NumRecords:           int32(len(records)),
	}
	for i := range records {
		r := kmsg.Record{
			OffsetDelta: int32(i),
			Key:         records[i].key,
			Value:       records[i].value,
			Headers:     []kmsg.Header{{Key: nonceHeader, Value: []byte(records[i].nonce)}},
		}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // its own length is one byte while it is 0
		b.Records = r.AppendTo(b.Records)
	}
	b.Length = int32(61 - 12 + len(b.Records))
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], castagnoli))
	return raw
}
