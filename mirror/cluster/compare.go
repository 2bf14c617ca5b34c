package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// Verdict is what a comparison found.
type Verdict struct {
	Same    bool   // the last record is there, and all that are there are the same
	Epoch   int32  // the leader epoch of the last record if Same, else -1
	Differs string // what differs, "" if nothing does
	Offset  int64  // where
}

// Compare compares with batches of the source. A record that is missing there is no difference: the topic may have
// been compacted at any time. What the source has at the offset of a record of ours has to be that record.
func (t *Tail) Compare(batches []byte) (Verdict, error) {
	last, _ := t.Last()
	verdict := Verdict{Epoch: -1}
	for len(batches) > 0 {
		batch, rest, err := recordbatch.Next(batches)
		if errors.Is(err, recordbatch.ErrPartial) {
			break
		}
		if err != nil {
			return verdict, fmt.Errorf("the source's batch cannot be read: %w", err)
		}
		batches = rest
		h, err := recordbatch.ParseHeader(batch)
		if err != nil && !errors.Is(err, recordbatch.ErrOldFormat) {
			return verdict, fmt.Errorf("the source's batch cannot be read: %w", err)
		}
		if h.Magic == 2 && h.BaseOffset > last {
			break
		}
		err = eachTailRecord(h, batch, func(r tailRecord) error {
			if what := t.differs(h, r); what != "" && verdict.Differs == "" {
				verdict.Differs, verdict.Offset = what, r.offset
			}
			if r.offset == last {
				verdict.Same, verdict.Epoch = true, h.LeaderEpoch
			}
			return nil
		})
		if err != nil {
			return verdict, fmt.Errorf("the source's batch at offset %d cannot be read: %w", h.BaseOffset, err)
		}
		if h.Magic != 2 {
			verdict.Epoch = -1
		}
	}
	verdict.Same = verdict.Same && verdict.Differs == ""
	return verdict, nil
}

// differs compares a record of the source with ours at its offset, "" if there is none.
func (t *Tail) differs(h recordbatch.Header, r tailRecord) string {
	i, found := slices.BinarySearchFunc(t.records, r.offset, func(o tailRecord, offset int64) int {
		return int(min(1, max(-1, o.offset-offset)))
	})
	if !found {
		return ""
	}
	ours := t.records[i]
	switch {
	case h.Magic == 2 && h.Control():
		return "a transaction marker at the source"
	case ours.hash != r.hash:
		return "other key, value or headers"
	case ours.timestamp != r.timestamp && r.timestamp >= 0: // message format v0 has no timestamps
		return fmt.Sprintf("timestamp %d, mirrored was %d", r.timestamp, ours.timestamp)
	}
	return ""
}

// eachTailRecord decodes a batch.
func eachTailRecord(h recordbatch.Header, batch []byte, fn func(tailRecord) error) error {
	hash := func(r recordbatch.Record) error {
		return fn(tailRecord{offset: r.Offset, timestamp: r.Timestamp, hash: hashRecord(r)})
	}
	if h.Magic == 2 {
		return recordbatch.Records(batch, hash)
	}
	return recordbatch.OldRecords(batch, hash)
}

var tailSeed = maphash.MakeSeed()

// hashRecord hashes what a record holds.
func hashRecord(r recordbatch.Record) uint64 {
	var hash maphash.Hash
	hash.SetSeed(tailSeed)
	write := func(b []byte) {
		size := int64(len(b))
		if b == nil {
			size = -1
		}
		var prefix [8]byte
		binary.LittleEndian.PutUint64(prefix[:], uint64(size))
		_, _ = hash.Write(prefix[:])
		_, _ = hash.Write(b)
	}
	write(r.Key)
	write(r.Value)
	for _, header := range r.Headers {
		write(header.Key)
		write(header.Value)
	}
	return hash.Sum64()
}
