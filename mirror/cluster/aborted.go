package cluster

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// AbortedTransactions tells which batches of a read_committed answer belong to aborted transactions. A source lists
// them by producer and first offset; they end at the producer's abort marker.
type AbortedTransactions struct {
	listed []kmsg.FetchResponseTopicPartitionAbortedTransaction // by first offset, not open yet
	open   map[int64]struct{}                                   // producers with an aborted transaction under way
}

// Begin starts an answer that lists these; it sorts and keeps them. What was open at the end of the answer before is forgotten.
func (a *AbortedTransactions) Begin(listed []kmsg.FetchResponseTopicPartitionAbortedTransaction) {
	a.listed = listed
	clear(a.open)
	slices.SortFunc(a.listed, func(x, y kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return int(min(1, max(-1, x.FirstOffset-y.FirstOffset)))
	})
}

// Covers takes the batches of an answer in order and reports whether one holds aborted records.
func (a *AbortedTransactions) Covers(h recordbatch.Header) bool {
	if len(a.listed) == 0 && len(a.open) == 0 {
		return false
	}
	for len(a.listed) > 0 && a.listed[0].FirstOffset <= h.LastOffset() {
		if a.open == nil {
			a.open = make(map[int64]struct{})
		}
		a.open[a.listed[0].ProducerID] = struct{}{}
		a.listed = a.listed[1:]
	}
	if !h.Transactional() {
		return false
	}
	_, aborted := a.open[h.ProducerID]
	if aborted && h.Control() {
		// A producer has one transaction at a time, so its next marker ends the aborted one.
		delete(a.open, h.ProducerID)
		return false
	}
	return aborted
}
