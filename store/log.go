package store

import (
	"context"
	"errors"

	"github.com/mirrorgate/mirrorgate/appendlog"
)

// ErrRefused is what an Appender returns when the broker refused a batch because the log does not end at its base, or
// took it at another offset. Whether the record counts is decided by reading the log, not by the answer.
var ErrRefused = errors.New("the state partition does not end where the batch belongs")

// ErrUncertain is what an Appender returns when it is not known whether the batch was appended. The same batch is sent
// again until there is an answer; the broker recognises it.
var ErrUncertain = errors.New("it is not known whether the batch was appended")

// Appender appends to partitions of the state topic by compare-and-append.
type Appender interface {
	// Append sends one batch as an idempotent Produce whose sequence is its base offset, and waits for the answer. It
	// returns nil if the broker answered with the base offset (for an appended batch, or for a duplicate: perhaps that
	// of another gateway), an error that is ErrRefused or ErrUncertain, or else a permanent error.
	Append(ctx context.Context, p appendlog.Partition, b appendlog.Batch) error
}

// stateLog is the state topic as the store sees it: a Kafka topic, or memory.
type stateLog interface {
	Appender
	// newProducer returns a producer ID that nobody ever used.
	newProducer(ctx context.Context) (int64, error)
	// end returns the end offset (high watermark) of a state partition.
	end(ctx context.Context, partition int32) (int64, error)
	// ends returns the end offsets of all state partitions.
	ends(ctx context.Context) ([]int64, error)
	// nextSequence returns the sequence that the partition's leader expects next of a producer; known is false if it
	// does not know the producer.
	nextSequence(ctx context.Context, partition int32, producer int64) (next int32, known bool, err error)
	// follow reads all partitions and delivers what it reads until ctx ends; it then returns ctx's error. Any other
	// error is permanent. For each partition the first segment is delivered even when there is nothing to read.
	follow(ctx context.Context, from []position, deliver func(segment) error) error
}

// position is how far a state partition was applied.
type position struct {
	next   int64
	seenMs int64 // when the partition was last known to be read to its end; 0 = never
}

// segment is a stretch of a state partition in log order.
type segment struct {
	partition int32
	// reset: the local view of the partition is no prefix of the log (it was truncated, or tombstones may be gone):
	// it is built anew from this segment on, and taken into use once resetEnd was read.
	reset    bool
	resetEnd int64
	records  []logRecord
	// caughtUp: the segment reaches the end of the log.
	caughtUp bool
	// next is the offset after the segment; it may be beyond the last record.
	next int64
}
