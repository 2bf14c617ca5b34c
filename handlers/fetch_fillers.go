package handlers

import (
	"fmt"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// Offsets that hold no record at the source are filled at the destination with filler batches, which readers must not
// see. They are taken out of the answers; a hole between batches is what every client knows from compacted topics. But
// if nothing were left, some clients would ask for the same offset for ever, and others would never see the end of the
// partition: then one genuine COMMIT marker stands at the last offset of the fillers, as after any transaction. This
// needs no index and no state, and was tried on 13 clients.

// records takes the fillers out of the record data of one partition, and shows the leader epochs of what stays.
func (e *editor) records(s layout.Spot) error {
	base := e.topics.base()
	if s.End-s.Start < recordbatch.HeaderSize || base == 0 && !e.latest.AnyProducers() {
		return nil
	}
	var (
		data   = e.frame[s.Start:s.End]
		first  = len(e.edits) // the edit of the length, if there is any
		last   recordbatch.Header
		kept   int // bytes of whole batches that stay
		hidden int
	)
	rest := data
	for {
		batch, tail, err := recordbatch.Next(rest)
		if err != nil {
			break // the cut-off batch at the end of an answer, or what the client must judge
		}
		start := s.End - len(rest)
		rest = tail
		if !recordbatch.IsFiller(batch, e.latest.IsProducer) {
			kept += len(batch)
			if base > 0 {
				showEpoch(batch[recordbatch.LeaderEpochAt:], base) // the checksum begins behind it
			}
			continue
		}
		if last, err = recordbatch.ParseHeader(batch); err != nil {
			return fmt.Errorf("filler batch: %w", err)
		}
		if last.LeaderEpoch >= 0 {
			last.LeaderEpoch += base
		}
		if hidden++; hidden == 1 {
			e.edits = append(e.edits, edit{start: s.Field, end: s.Start})
		}
		e.replace(start, start+len(batch), nil)
	}
	if hidden == 0 {
		return nil
	}
	e.h.metrics.fillers.Add(float64(hidden))
	if kept == 0 {
		e.marker(s, rest, last)
	}
	e.endRecords(s, first)
	return nil
}

// marker puts a marker in the place of all that is left, which is nothing or a batch that is cut off: a client could
// not take that for progress either.
func (e *editor) marker(s layout.Spot, rest []byte, last recordbatch.Header) {
	with := recordbatch.AppendCommitMarker(nil, last.LastOffset(), last.LeaderEpoch, last.ProducerID, last.ProducerEpoch, last.MaxTimestamp)
	e.replace(s.End-len(rest), s.End, with)
}

// endRecords gives the record data its new length.
func (e *editor) endRecords(s layout.Spot, first int) {
	n := s.End - s.Start
	for _, edit := range e.edits[first+1:] {
		n += len(edit.with) - (edit.end - edit.start)
	}
	length := &e.edits[first]
	length.with = appendLength(nil, n, 4, s.Compact)
	e.grown += len(length.with) - (length.end - length.start)
}
