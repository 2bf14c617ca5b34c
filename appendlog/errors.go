package appendlog

import (
	"errors"
	"fmt"
)

// Errors of Append. None of them means that anything was sent.
var (
	// ErrFull: the queue of the Log is full. Acked tells of room.
	ErrFull = errors.New("queue of the log is full")
	// ErrNotReady: there was a doubt, or Ready has not come yet. The next Ready says where to go on.
	ErrNotReady = errors.New("end of the log is not known")
	// ErrFenced: the log is closed for ever to its producer ID, or is being closed.
	ErrFenced = errors.New("log is fenced")
	// ErrFailed: Failed was called.
	ErrFailed = errors.New("log has failed")
	// ErrClosed: the Log or its Client is closed.
	ErrClosed = errors.New("log is closed")
)

// BatchError says that a batch cannot be appended: a mistake of the caller, or a batch that no broker would take.
type BatchError struct {
	Base   int64
	Reason string
}

// Error says the offset and the reason.
func (e *BatchError) Error() string { return fmt.Sprintf("batch for offset %d: %s", e.Base, e.Reason) }

// ForeignWriteError says that the log holds, at Offset, what this gateway did not write there: somebody produces to the
// partition directly. It is permanent.
type ForeignWriteError struct {
	Topic     string
	Partition int32
	// Offset is the first offset known to be foreign. Before it everything is ours as far as it was looked at.
	Offset int64
	// Got is the base offset that the broker gave to the batch that was meant for Offset, -1 if it was found by reading
	// the log.
	Got int64
	// ProducerID wrote the foreign batch; -1 if it has none, or if it is not known (Got >= 0).
	ProducerID int64
}

// Error says the offset.
func (e *ForeignWriteError) Error() string {
	if e.Got >= 0 {
		return fmt.Sprintf("foreign write in %s-%d at offset %d: the batch for it went to offset %d", e.Topic, e.Partition, e.Offset, e.Got)
	}
	return fmt.Sprintf("foreign write in %s-%d at offset %d (producer ID %d)", e.Topic, e.Partition, e.Offset, e.ProducerID)
}

// RejectedError says that the broker will not take a batch, however often it is sent. It is permanent until the named
// setting of the topic, or the batch, is changed.
type RejectedError struct {
	Topic     string
	Partition int32
	Offset    int64
	Bytes     int
	// Setting is the setting of the topic or broker that is the likely cause; empty if there is none.
	Setting string
	// Message is what the broker said beside the code; may be empty.
	Message string
	// Err is the Kafka error.
	Err error
}

// Error says offset, size and setting.
func (e *RejectedError) Error() string {
	s := fmt.Sprintf("%s-%d refuses the batch of %d bytes for offset %d: %v", e.Topic, e.Partition, e.Bytes, e.Offset, e.Err)
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Setting != "" {
		s += " (see " + e.Setting + " of the destination topic)"
	}
	return s
}

// Unwrap returns the Kafka error.
func (e *RejectedError) Unwrap() error { return e.Err }

// SequenceError says that the broker expects another sequence than the one of the log's end, though no foreign batch
// could be found: what made the difference is not in the log any more, or someone else uses the producer ID. Permanent.
type SequenceError struct {
	Topic     string
	Partition int32
	// Offset is the log's end, and Last the sequence that the broker has for our producer.
	Offset int64
	Last   int32
}

// Error says the offset and both sequences.
func (e *SequenceError) Error() string {
	return fmt.Sprintf("%s-%d ends at offset %d, but the broker's last sequence of our producer is %d: something else was written and is gone",
		e.Topic, e.Partition, e.Offset, e.Last)
}
