package recordbatch

import (
	"bytes"
	"errors"
)

// FindFillerKey looks in a whole batch, or message of an old format, for a record with the key that filler records have on
// compacted topics, whatever else is in it, and returns the offset of the first. Uncompressed batches cost a search for
// 16 bytes. ErrCorrupt or ErrCRC as for Records and OldRecords.
func FindFillerKey(batch []byte) (offset int64, found bool, err error) {
	h, err := ParseHeader(batch)
	old := errors.Is(err, ErrOldFormat)
	if err != nil && !old {
		return -1, false, err
	}
	if h.Codec() == None && !bytes.Contains(batch, fillerKey) {
		return -1, false, nil
	}
	look := func(r Record) error {
		if bytes.Equal(r.Key, fillerKey) {
			offset, found = r.Offset, true
			return errStop
		}
		return nil
	}
	offset = -1
	if old {
		err = OldRecords(batch, look)
	} else {
		err = Records(batch, look)
	}
	return offset, found, err
}
