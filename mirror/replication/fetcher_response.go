package replication

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// deliver hands the parts of an answer to their partitions, and reports whether there was no data in it.
func (f *fetcher) deliver(resp *kmsg.FetchResponse, window int32, buffer *fetchBuffer, asked instant) (empty bool) {
	content := look(resp)
	answered := make(map[cluster.TopicPartition]struct{})
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			rp := &t.Partitions[j]
			key, position, ok := f.session.lookup(t, rp.Partition)
			if !ok {
				// The broker has another idea of the session than we have, and would answer so again at once.
				f.session.startOver()
				continue
			}
			target := f.to[key]
			if _, again := answered[key]; target != nil && !again {
				answered[key] = struct{}{}
				f.deliverPartition(key, position, target, rp, window, buffer, asked, content == contentNothing)
			}
		}
	}
	if content == contentNothing {
		// An incremental answer leaves out partitions of which nothing is new: watermarks included.
		for key, target := range f.to {
			if _, ok := answered[key]; !ok {
				target.handle(evWatermarks{gen: f.want.at[key].gen, marks: unchanged, starved: true})
			}
		}
	}
	return content != contentData
}

// unchanged stands for the watermarks of the last answer.
var unchanged = watermarks{start: -1, lso: -1, hw: -1}

// content is what there is in an answer.
type content uint8

const (
	contentNothing content = iota
	contentReasons         // no data, but an error or a quota that may be why
	contentData
)

// withData counts the partitions that have data in an answer.
func withData(resp *kmsg.FetchResponse) (n int) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if len(resp.Topics[i].Partitions[j].RecordBatches) > 0 {
				n++
			}
		}
	}
	return n
}

func look(resp *kmsg.FetchResponse) content {
	c := contentNothing
	if resp.ThrottleMillis > 0 {
		c = contentReasons
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			switch rp := &resp.Topics[i].Partitions[j]; {
			case len(rp.RecordBatches) > 0:
				return contentData
			case rp.ErrorCode != 0:
				c = contentReasons
			}
		}
	}
	return c
}

func (f *fetcher) deliverPartition(key cluster.TopicPartition, position fetchPosition, target fetchTarget, rp *kmsg.FetchResponseTopicPartition, window int32, buffer *fetchBuffer, asked instant, starved bool) {
	p := problemOf(rp.ErrorCode)
	if p == nil && rp.DivergingEpoch.EndOffset >= 0 {
		p = &problem{kind: problemFinal, reason: truncatedReason(rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset, position.offset)}
	}
	if p != nil {
		f.drop(key, false)
		f.cfg.metrics.partitionError(rp.ErrorCode)
		target.handle(evSourceError{gen: position.gen, problem: *p})
		return
	}
	if rp.PreferredReadReplica >= 0 && !f.plain {
		f.plain = true
		f.log.Info("the source would have its replicas read; going on with the leader", zap.Int32("replica", rp.PreferredReadReplica))
	}
	marks := watermarks{start: rp.LogStartOffset, lso: stable(rp.LastStableOffset, rp.LogStartOffset), hw: rp.HighWatermark}
	if len(rp.RecordBatches) == 0 {
		target.handle(evWatermarks{gen: position.gen, marks: marks, starved: starved})
		return
	}
	f.drop(key, true)
	if asked.since() > f.cfg.staleAfter {
		f.cfg.metrics.slept()
		target.handle(evStale{gen: position.gen})
		return
	}
	ev, rebuilt := f.copyPartition(position, rp, asked)
	buffer.retain()
	if rebuilt > 0 {
		buffer = newFetchBuffer(f.cfg.budget, rebuilt).on(buffer)
		f.cfg.budget.Force(rebuilt)
	}
	ev.marks, ev.buffer, ev.window = marks, buffer, int64(window)
	target.handle(ev)
}

// pieceBytes is about what a batch takes on its way besides its bytes: a piece, a pendingBatch and a place in the log's queue.
const pieceBytes = 256

// copyPartition makes the event out of a partition's data. rebuilt is how many bytes of it are not the answer's own; with
// tiny batches, these are mostly what is kept of each.
func (f *fetcher) copyPartition(position fetchPosition, rp *kmsg.FetchResponseTopicPartition, asked instant) (ev *evFetched, rebuilt int64) {
	c := f.copier.copy(position.offset, rp.RecordBatches, rp.AbortedTransactions)
	e := f.copier.encode(make([]piece, 0, len(c.outputs)), c.outputs, position.copying, asked)
	ev = &evFetched{gen: position.gen, epoch: c.epoch, pieces: e.pieces, problem: e.problem, inside: inside(rp.RecordBatches, position.offset)}
	if ev.problem == nil && c.corrupt != nil {
		ev.problem = problemf(problemPassing, "the source's data is damaged: %v", c.corrupt)
	}
	f.cfg.metrics.copied(e.batches, int(e.bytes))
	f.cfg.metrics.reencoded(e.rebuiltBatches)
	rebuilt = e.rebuiltBytes
	if kept := int64(len(e.pieces)) * pieceBytes; kept > int64(len(rp.RecordBatches))/8 {
		rebuilt += kept
	}
	return ev, rebuilt
}

// drop takes a partition out of the next request until it is subscribed anew. hurry: that is to be expected at once.
func (f *fetcher) drop(key cluster.TopicPartition, hurry bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.subs[key]; s != nil && !s.hurry && s.position.gen == f.want.at[key].gen {
		f.pauseOrEnd(key, s, hurry)
	}
}

// instant is a moment on both clocks: the monotonic one stands still while a machine is suspended, the wall clock can
// be set.
type instant struct{ t time.Time }

func now() instant { return instant{time.Now()} }

// since is the larger of what both clocks say has passed.
func (i instant) since() time.Duration {
	t := time.Now()
	return max(t.Sub(i.t), t.Round(0).Sub(i.t.Round(0)))
}
