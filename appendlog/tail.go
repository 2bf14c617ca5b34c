package appendlog

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// verdict says whose the last batch of a log is.
type verdict int8

const (
	// tailNone: there is no batch: the log is empty, or starts at its end, or the cleaner took the last ones out.
	tailNone verdict = iota
	// tailOurs: written by this mirror, in this or an earlier incarnation, at the offset that its sequence says.
	tailOurs
	// tailFence: the fence of our producer ID.
	tailFence
	// tailForeign: anything else.
	tailForeign
)

var verdictNames = [...]string{"none", "ours", "fence", "foreign"}

func (v verdict) String() string { return verdictNames[v] }

// tail is what a reading of a log's end found.
type tail struct {
	end     int64
	verdict verdict
	// offset is that of the fence, or the first foreign one.
	offset int64
	// producerID is the foreign writer's, -1 if it has none.
	producerID int64
	// deep: the stretch since the last acknowledgement was read too, and lastKnown tells whether the broker gave last,
	// the sequence of the last batch of our producer that it has.
	deep      bool
	lastKnown bool
	last      int32
}

// sequenceBehind: a deep reading found our producer at an older sequence than that of the log's end, so that the broker
// will never take the next one. Our producer being ahead is another thing: the high watermark trails the log's end.
func (t tail) sequenceBehind() bool {
	if !t.deep || !t.lastKnown {
		return false
	}
	ahead := (int64(t.last) - int64(recordbatch.Sequence(t.end-1))) & (1<<31 - 1)
	return ahead >= 1<<30
}

// judgeBatch says whose a batch is that lies in the log. past are producer IDs of earlier incarnations; their fences
// count as ours, as a later incarnation goes on behind them. So does everything below p.From.
//
// A batch that the cleaner rewrote, even down to no records, keeps base offset, producer ID, epoch and base sequence, so
// this works for it as well.
func judgeBatch(h recordbatch.Header, p Partition, past []int64) verdict {
	aligned := h.BaseSequence == recordbatch.Sequence(h.BaseOffset)
	isFence := h.BaseSequence == 0 && h.LastOffsetDelta == 0
	switch {
	case h.NextOffset() <= p.From:
		return tailOurs
	case h.Control(), h.Magic != 2:
		return tailForeign
	case h.ProducerID == p.ProducerID && h.ProducerEpoch > p.Epoch && isFence:
		return tailFence
	case h.ProducerID == p.ProducerID && h.ProducerEpoch <= p.Epoch && aligned:
		return tailOurs
	case slices.Contains(past, h.ProducerID) && h.ProducerID != p.ProducerID && (aligned || h.ProducerEpoch > 0 && isFence):
		return tailOurs
	}
	return tailForeign
}

// errDamaged says that a Fetch response holds what cannot be a log.
var errDamaged = errors.New("damaged batches in a fetch response")

// judgeBatches judges the batches of a Fetch response, which may end in a partial one. It returns the verdict over all,
// the gravest counting, and the offset after the last whole batch, -1 if there is none.
func judgeBatches(raw []byte, p Partition, past []int64) (t tail, next int64, err error) {
	next = -1
	for len(raw) > 0 {
		batch, rest, err := recordbatch.Next(raw)
		if errors.Is(err, recordbatch.ErrPartial) {
			return t, next, nil
		}
		if err != nil {
			return t, next, fmt.Errorf("%w: %v", errDamaged, err)
		}
		raw = rest
		h, err := recordbatch.ParseHeader(batch)
		if err != nil && !errors.Is(err, recordbatch.ErrOldFormat) {
			return t, next, fmt.Errorf("%w: %v", errDamaged, err)
		}
		v := judgeBatch(h, p, past)
		if t.verdict == tailForeign {
			v = tailForeign // the first foreign batch is the one to name
		} else if v == tailForeign {
			t.offset, t.producerID = h.BaseOffset, h.ProducerID
		} else if v == tailFence {
			t.offset = h.BaseOffset
		}
		t.verdict = max(t.verdict, v)
		next = max(next, h.NextOffset())
	}
	return t, next, nil
}
