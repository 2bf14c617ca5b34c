package replication

import (
	"errors"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// A copier turns the record bytes of one fetched partition into what is to be written to the destination: pieces that
// cover the offsets from the position on without a hole. It is pure, and on the verbatim path neither copies nor decodes
// records. It works in two steps: copy tells what is to be done with each batch, and encode does it.
//
// The CRC of every batch is checked here although the destination checks it again: the header is stamped anew in
// between, CRC included, which would turn damage on the way into validity.
//
// A copier is used by one goroutine. The zero value is ready.
type copier struct {
	outputs []output
	aborted cluster.AbortedTransactions
	rebuild recordbatch.Rebuilder
	encoded encoded // under way
}

// copyOptions say what the destination topic is like.
type copyOptions struct {
	compacted bool
	maxBytes  int // of a batch; 0 = Kafka's default
}

// output is a piece of the destination log. [from, next) are its offsets.
type output struct {
	kind       outputKind
	from, next int64
	// batch are the bytes of verbatim and re-encode outputs; they alias the fetch response.
	batch []byte
	// timestamp is the highest of a verbatim batch, in ms.
	timestamp int64
	// why describes a gap, or what stands against a verbatim copy.
	why string
}

type outputKind uint8

const (
	outputVerbatim outputKind = iota
	// outputGap: offsets without records for readers.
	outputGap
	// outputReencode: records that a broker would refuse or change as they are.
	outputReencode
)

// copied is what a copier made of a partition's data.
type copied struct {
	outputs []output // valid until the copier is used again
	next    int64    // the position after them
	epoch   int32    // source leader epoch of the last batch, -1 if there was none
	// corrupt is why the rest of the data is of no use.
	corrupt error
}

// copy reads data, which a source answered to a fetch from position. aborted are the transactions that the answer lists
// as aborted.
func (c *copier) copy(position int64, data []byte, aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction) copied {
	c.outputs = c.outputs[:0]
	c.aborted.Begin(aborted)
	result := copied{next: position, epoch: -1}
	for len(data) > 0 {
		batch, rest, err := recordbatch.Next(data)
		if errors.Is(err, recordbatch.ErrPartial) {
			break // a response may end inside a batch; the next fetch brings all of it
		}
		var h recordbatch.Header
		if err == nil {
			h, err = recordbatch.ParseHeader(batch)
		}
		if err != nil && !errors.Is(err, recordbatch.ErrOldFormat) {
			result.corrupt = fmt.Errorf("reading the batch at or after offset %d: %w", result.next, err)
			break
		}
		if err == nil {
			if err := recordbatch.CheckCRC(batch); err != nil {
				result.corrupt = fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
				break
			}
		}
		data = rest
		if next := c.take(h, batch, result.next); next > result.next {
			result.next, result.epoch = next, h.LeaderEpoch
		}
	}
	result.outputs = c.outputs
	return result
}

// take adds the outputs of one batch and returns the position after it.
func (c *copier) take(h recordbatch.Header, batch []byte, position int64) int64 {
	if h.Magic != 2 {
		return c.takeOld(h, batch, position)
	}
	aborted := c.aborted.Covers(h)
	if h.NextOffset() <= position {
		return position // wholly below: brokers answer with the batch that holds the position, and what precedes it
	}
	if h.BaseOffset > position {
		c.add(output{kind: outputGap, from: position, next: h.BaseOffset, why: "offsets without records (removed by compaction or retention)"})
		position = h.BaseOffset
	}
	o := output{from: position, next: h.NextOffset()}
	switch err := recordbatch.Verbatim(h, position); {
	case aborted:
		o.kind, o.why = outputGap, "records of an aborted transaction"
	case err == nil:
		o.batch, o.timestamp = batch, h.MaxTimestamp
	default:
		o.kind, o.why = explain(err)
		if o.kind == outputReencode {
			o.batch = batch
		}
	}
	c.add(o)
	return o.next
}

// takeOld handles message formats v0 and v1, whose messages have no last offset of their own: one message at a time.
func (c *copier) takeOld(h recordbatch.Header, batch []byte, position int64) int64 {
	if h.BaseOffset < position || h.BaseOffset == math.MaxInt64 {
		return position
	}
	c.add(output{kind: outputReencode, from: position, next: h.BaseOffset + 1, batch: batch, why: fmt.Sprintf("message format v%d", h.Magic)})
	return h.BaseOffset + 1
}

func (c *copier) add(o output) { c.outputs = append(c.outputs, o) }

// explain says what a batch is that is not verbatim.
func explain(err error) (outputKind, string) {
	var nv *recordbatch.NotVerbatim
	if !errors.As(err, &nv) {
		return outputReencode, err.Error()
	}
	switch nv.Reason {
	case recordbatch.Control:
		return outputGap, "transaction marker"
	case recordbatch.Empty:
		return outputGap, "batch without records, left by compaction"
	case recordbatch.Overlap:
		return outputReencode, fmt.Sprintf("the destination ends inside the source's batch %d to %d", nv.Header.BaseOffset, nv.Header.LastOffset())
	case recordbatch.Hole:
		return outputReencode, fmt.Sprintf("compacted batch %d to %d, of whose records %d are left", nv.Header.BaseOffset, nv.Header.LastOffset(), nv.Header.NumRecords)
	case recordbatch.LogAppendTime:
		return outputReencode, "timestamps given by the source's broker (message.timestamp.type=LogAppendTime)"
	default:
		return outputReencode, nv.Reason.String()
	}
}
