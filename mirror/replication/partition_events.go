package replication

import (
	"fmt"

	"github.com/mirrorgate/mirrorgate/appendlog"
)

// An event is something that happened to a mirror partition; machine.step says what follows from it.
type event interface{ isEvent() }

type (
	// evStart: the owner wants the partition mirrored. Ends a FAILED state.
	evStart struct{}
	// evLogReady: the destination log ends at end, is ours, and takes batches from there. Nothing is in flight.
	evLogReady struct{ end int64 }
	// evOffsets answers a doCheckSource.
	evOffsets struct {
		gen            uint64
		start, lso, hw int64
		// epoch is the source leader epoch of the record before the destination's end, -1 if not known.
		epoch int32
		// remote is why records at the end may be in the source's remote storage, if doCheckSource asked; "" = they cannot.
		remote string
	}
	// evDiverged answers a doCheckSource: the logs are not those of one history any more.
	evDiverged struct {
		gen    uint64
		reason string
	}
	// evCheckLater answers a doCheckSource: something does not answer now. reason says which side.
	evCheckLater struct {
		gen    uint64
		reason string
	}
	// evInterrupted answers a doFetch: the connection is not the one that the last check belongs to.
	evInterrupted struct{ gen uint64 }
	// evLeader: metadata says who leads the source partition. broker is -1 where nobody does.
	evLeader struct{ broker, epoch int32 }
	// evFetched answers a doFetch with data: what it holds, contiguous from the offset that was asked for, and why what
	// follows cannot be copied.
	evFetched struct {
		gen uint64
		// inside: the offset that was asked for is inside a batch of the source.
		inside bool
		pieces []piece
		// epoch is the source leader epoch of the last batch, -1 if there was none.
		epoch   int32
		problem *problem
		marks   watermarks
		// window is how many bytes of the partition an answer may bring now, 0 if that is not known.
		window int64
		buffer *fetchBuffer // what the batches alias
	}
	// evWatermarks: the source has nothing at the position of a doFetch. starved: nor had it any other data to send,
	// though its last stable offset is higher.
	evWatermarks struct {
		gen     uint64
		marks   watermarks
		starved bool
	}
	// evStale: data is to be appended that was asked for so long ago that another gateway may own the partition now. gen
	// is that of the doFetch, or 0 for data that was taken in before.
	evStale struct{ gen uint64 }
	// evAcked: the destination has everything up to next.
	evAcked struct {
		next    int64
		batches int
		bytes   int
	}
	// evAppendRefused: the log does not take a batch that should be the next one.
	evAppendRefused struct{ err error }
	// evDoubt: the destination log looks for its end by itself; evLogReady will follow.
	evDoubt struct{ err error }
	// evFenced: somebody fenced the partition. last is the offset of the fence, or -1.
	evFenced struct{ last int64 }
	// evLogFailed: the destination log is dead. permanent: opening it again would not help. foreign is the offset from
	// which somebody else wrote, -1 if that is not the reason.
	evLogFailed struct {
		err       error
		permanent bool
		foreign   int64
		// rejected is the err of a batch that the broker never takes, else nil.
		rejected *appendlog.RejectedError
	}
	// evSourceError answers a doFetch or doCheckSource with an error of this partition.
	evSourceError struct {
		gen uint64
		problem
	}
	// evUnreachable: the source, or the broker that leads the partition there, does not answer. It is being retried.
	evUnreachable struct{ err error }
	// evTopicLost: metadata is sure that the source topic was deleted or re-created.
	evTopicLost struct{ reason string }
	// evTopicDenied: metadata refuses to tell about the source topic.
	evTopicDenied struct{ problem }
	// evDestinationEnd: the destination was seen to end at end; acked is what was acknowledged when it was asked.
	evDestinationEnd struct{ end, acked int64 }
	// evTrimmed: the destination log starts at start, or above.
	evTrimmed struct{ start int64 }
	// evTrimTrouble: a doTrim did not succeed. It is being retried.
	evTrimTrouble struct{ err error }
	// evRetry: the time of a doRetry is over.
	evRetry struct{ timer uint64 }
	// evStop: the owner wants the partition fenced.
	evStop struct{}
	// evFenceDone: the fence is at offset fence.
	evFenceDone struct{ fence int64 }
	// evFenceTrouble: the fence could not be set. It is being retried.
	evFenceTrouble struct{ err error }
	// evDrop: the owner lets go.
	evDrop struct{}
)

func (evStart) isEvent()          {}
func (evLogReady) isEvent()       {}
func (evOffsets) isEvent()        {}
func (evLeader) isEvent()         {}
func (*evFetched) isEvent()       {}
func (evWatermarks) isEvent()     {}
func (evStale) isEvent()          {}
func (evAcked) isEvent()          {}
func (evAppendRefused) isEvent()  {}
func (evDoubt) isEvent()          {}
func (evFenced) isEvent()         {}
func (evLogFailed) isEvent()      {}
func (evDiverged) isEvent()       {}
func (evCheckLater) isEvent()     {}
func (evInterrupted) isEvent()    {}
func (evSourceError) isEvent()    {}
func (evUnreachable) isEvent()    {}
func (evTopicLost) isEvent()      {}
func (evTopicDenied) isEvent()    {}
func (evDestinationEnd) isEvent() {}
func (evTrimmed) isEvent()        {}
func (evTrimTrouble) isEvent()    {}
func (evRetry) isEvent()          {}
func (evStop) isEvent()           {}
func (evFenceDone) isEvent()      {}
func (evFenceTrouble) isEvent()   {}
func (evDrop) isEvent()           {}

// watermarks are the offsets of the source log that come with each fetch; -1 = not known.
type watermarks struct{ start, lso, hw int64 }

// stable returns the last stable offset that counts, of the one that a broker names and its log start. Where records of an
// open transaction were deleted with DeleteRecords, and the new start is inside a batch, the broker names that batch's base
// offset (seen on 4.1), which is below the start.
func stable(lso, start int64) int64 { return max(lso, start) }

// problemKind says what to do about an error of one source partition.
type problemKind uint8

const (
	// problemMoved: leadership, a broker or metadata is on the move. Look again soon, and keep the state.
	problemMoved problemKind = iota + 1
	// problemRange: the position is not within the source log. Compare both logs again.
	problemRange
	// problemPassing: somebody has to do something (a right, a disk), but then it goes on by itself: FAILED, retried.
	problemPassing
	// problemFinal: FAILED for good.
	problemFinal
)

// problem is an error of one source partition, or a batch that cannot be copied.
type problem struct {
	kind   problemKind
	reason string
}

func problemf(kind problemKind, format string, args ...any) *problem {
	return &problem{kind: kind, reason: fmt.Sprintf(format, args...)}
}

// An effect is what the machine wants done. Effects are carried out in order, by one goroutine at a time.
type effect interface{ isEffect() }

type (
	// doOpenLog: open the destination log; it answers with evLogReady, evDoubt, evFenced or evLogFailed.
	doOpenLog struct{}
	// doResetLog: have the log look for its end again, as after a doubt.
	doResetLog struct{}
	// doCloseLog: let go of the log. Events of it that still come are dropped. A doTrim is forgotten.
	doCloseLog struct{}
	// doCheckSource: ask for the source's start, stable and end offsets, and compare the logs before end, which is the
	// destination's. epoch is the source leader epoch of the record before end, -1 if not known.
	doCheckSource struct {
		gen   uint64
		end   int64
		epoch int32
		// empty: the source seems to have no records from end on; find out whether they can be in remote storage.
		empty bool
	}
	// doFetch: fetch from offset at the given leader. It replaces an earlier doFetch, and stays until its answer with
	// data or an error, or doStopFetch.
	doFetch struct {
		gen    uint64
		broker int32
		epoch  int32 // leader epoch as metadata has it, -1 = not known
		offset int64
		// lastEpoch is the leader epoch of the record before offset, by which the source finds a divergence (KIP-595);
		// -1 = not known.
		lastEpoch int32
	}
	// doStopFetch ends the doFetch. room: it comes back as soon as batches are acknowledged.
	doStopFetch struct{ room bool }
	// doAppend: append the batches to the log, in order.
	doAppend struct{ batches []pendingBatch }
	// doTrim: have the destination log start at offset; it is answered with evTrimmed, sooner or later. It replaces an
	// earlier doTrim.
	doTrim struct{ offset int64 }
	// doTellOvertaken: the offsets [from, next) were deleted at the source before they were copied.
	doTellOvertaken struct{ from, next int64 }
	// doRelease: nobody refers to the buffer on this partition's account any more.
	doRelease struct{ buffer *fetchBuffer }
	// doRefresh: look at the source's metadata soon.
	doRefresh struct{}
	// doRetry: send evRetry{timer} later; attempt counts from 1. It replaces an earlier doRetry.
	doRetry struct {
		timer   uint64
		class   backoffClass
		attempt int
	}
	// doFence: settle what is in flight and fence the log, opening it if need be. A doTrim is forgotten.
	doFence struct{}
	// doReport: the state changed.
	doReport struct {
		from, to     State
		reason       string
		permanent    bool
		lastMirrored int64
	}
)

func (doOpenLog) isEffect()       {}
func (doResetLog) isEffect()      {}
func (doCloseLog) isEffect()      {}
func (doCheckSource) isEffect()   {}
func (doFetch) isEffect()         {}
func (doStopFetch) isEffect()     {}
func (doAppend) isEffect()        {}
func (doTrim) isEffect()          {}
func (doTellOvertaken) isEffect() {}
func (doRelease) isEffect()       {}
func (doRefresh) isEffect()       {}
func (doRetry) isEffect()         {}
func (doFence) isEffect()         {}
func (doReport) isEffect()        {}

// backoffClass selects a range of waiting times.
type backoffClass uint8

const (
	// backoffQuick is for what settles by itself: elections, moved leaders, a broker that starts.
	backoffQuick backoffClass = iota
	// backoffSlow is for FAILED: 1 s … 5 min.
	backoffSlow
)
