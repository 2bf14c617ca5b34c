package replication

import "time"

// Status is what is known of one mirror partition. Offsets that are not known are -1.
type Status struct {
	Partition              int32
	State                  State
	Reason                 string // why FAILED, what it waits for, or progress; empty when all is well
	SourceHighWatermark    int64
	SourceLastStableOffset int64
	// SourceAge is how old what is said of the source is, -1 if nothing is.
	SourceAge time.Duration
	// DestinationEnd is the destination's log end offset.
	DestinationEnd int64
	// LastMirrored is the offset after the last mirrored record, the fence not counted; 0 = nothing mirrored.
	LastMirrored     int64
	RecordsPerSecond float64
}

// Lag is source high watermark less destination end, -1 if either is not known, never below 0.
func (s Status) Lag() int64 {
	if s.SourceHighWatermark < 0 || s.DestinationEnd < 0 {
		return -1
	}
	return max(0, s.SourceHighWatermark-s.DestinationEnd)
}
