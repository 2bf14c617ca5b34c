package recordbatch

import "fmt"

// Reason says why a batch cannot be copied as it is.
type Reason int

// The reasons, in the order in which they are looked for.
const (
	// OldFormat: message format v0 or v1.
	OldFormat Reason = iota + 1
	// Behind: the whole batch lies below the expected offset; there is nothing to copy.
	Behind
	// GapBefore: offsets between the expected one and the batch hold nothing; fill them first.
	GapBefore
	// Control: a transaction marker or another control batch; its offsets are a gap for readers.
	Control
	// Empty: the cleaner left no record; the whole batch is a gap.
	Empty
	// Overlap: the batch begins below the expected offset and reaches over it.
	Overlap
	// Hole: offsets inside the batch hold no record (LastOffsetDelta + 1 != NumRecords).
	Hole
	// LogAppendTime: a broker refuses the timestamp type or changes it.
	LogAppendTime
	// UnknownCodec: a compression that no broker known to this build has.
	UnknownCodec
)

var reasonNames = map[Reason]string{
	OldFormat: "message format v0 or v1", Behind: "batch below the expected offset", GapBefore: "gap before the batch",
	Control: "control batch", Empty: "batch without records", Overlap: "batch overlaps the expected offset",
	Hole: "hole inside the batch", LogAppendTime: "timestamps given by the broker (LogAppendTime)", UnknownCodec: "unknown compression",
}

// String describes the reason in a few words.
func (r Reason) String() string {
	if name, ok := reasonNames[r]; ok {
		return name
	}
	return fmt.Sprintf("reason %d", int(r))
}

// NotVerbatim is the error of Verbatim.
type NotVerbatim struct {
	Reason   Reason
	Expected int64
	Header   Header
}

// Error says the reason and the offsets.
func (e *NotVerbatim) Error() string {
	return fmt.Sprintf("batch %d..%d with %d records cannot be copied verbatim at offset %d: %v",
		e.Header.BaseOffset, e.Header.LastOffset(), e.Header.NumRecords, e.Expected, e.Reason)
}

// Verbatim returns nil if a broker whose log ends at expected would, after Stamp, append the batch with every record at
// its present offset, unchanged. Otherwise it returns a *NotVerbatim with the first reason that applies.
func Verbatim(h Header, expected int64) error {
	if reason := h.notVerbatim(expected); reason != 0 {
		return &NotVerbatim{Reason: reason, Expected: expected, Header: h}
	}
	return nil
}

func (h Header) notVerbatim(expected int64) Reason {
	switch {
	case h.Magic != 2:
		return OldFormat
	case h.NextOffset() <= expected:
		return Behind
	case h.BaseOffset > expected:
		return GapBefore
	case h.Control():
		return Control
	case h.NumRecords == 0:
		return Empty
	case h.BaseOffset < expected:
		return Overlap
	case int64(h.LastOffsetDelta)+1 != int64(h.NumRecords):
		return Hole
	case h.LogAppendTime():
		return LogAppendTime
	case h.Codec() > Zstd:
		return UnknownCodec
	}
	return 0
}
