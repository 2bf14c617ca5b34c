package replication

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/appendlog"
)

// Gaps, and the start of the log.
//
// Offsets without records come in with the data (see copier), or from one of two comparisons with the source: its log
// starts above the destination's end (fillStart), or ends in offsets that hold nothing (starved). The start of the
// destination log follows that of the source (maybeTrim), in whatever way the news comes: with an answer to a fetch or
// with a check, so also after a restart, and if nothing more is produced.

// gaps is what a machine knows of them.
type gaps struct {
	// mirrored: the partition was MIRRORING before, so that what is missing at the source was there to be copied. One that was
	// paused is told to be fresh; that its log goes on behind the floor tells the same.
	mirrored bool
	// filling is the source's start to which the log is filled in PREPARING, from fillFrom; -1 if it is not.
	filling, fillFrom int64
	// starvedTo is the least last stable offset of the answers that starving counts. emptyTo is what they let suppose, and
	// the next check must confirm: there are no records from the position up to there; 0 = nothing.
	starvedTo, emptyTo int64
	// held is why the end of the source's log, which seems to be empty, is not taken for that.
	held string
	// trimAsked is the last doTrim, trimDone what is done of it.
	trimAsked, trimDone int64
	trimTrouble         string
	// notice is what an operator should know though all is well.
	notice string
	// headBytes is the size of the batch at acked if it was appended alone; cuts counts the connections in a row that
	// ended with it at cutAt.
	headBytes int
	cuts      int
	cutAt     int64
}

const (
	// trimStep is how many filled offsets go before they are deleted while more are filled: some 60 MB of disk.
	trimStep = 100_000_000
	// cutLimit and cutBytes see cut.
	cutLimit = 6
	cutBytes = 1 << 20
)

// remark is what Describe shows as the reason.
func (m *machine) remark() string {
	switch {
	case m.reason != "":
		return m.reason
	case m.state != Mirroring && m.state != Preparing:
		return ""
	case m.held != "":
		return m.held
	case m.trimTrouble != "":
		return m.trimTrouble
	case m.low >= 0:
		return m.lowRemark()
	}
	return m.notice
}

// flush hands what is queued to the log, as far as there is room for fillers.
func (m *machine) flush() {
	if m.log != logReady {
		return
	}
	alone := m.progress.acked == m.progress.next || m.progress.inFlight == 0
	batches := m.progress.take()
	if len(batches) == 0 {
		return
	}
	if alone || batches[0].Base == m.progress.acked {
		m.headBytes = len(batches[0].Bytes)
	}
	m.do(doAppend{batches: batches})
}

// fillStart fills the log up to the start of the source's, once that is noted, and has the offsets deleted then.
func (m *machine) fillStart(start int64) {
	m.filling, m.fillFrom = start, 0
	if end := m.progress.next; end > 0 && (m.mirrored || end > m.floor.floor) {
		m.fillFrom = end
		if start > m.floor.floor { // else it was told before
			m.notice = fmt.Sprintf("records %d to %d were deleted at the source before they were copied", end, start-1)
			m.do(doTellOvertaken{from: end, next: start})
		}
	}
	if m.note(start) {
		m.progress.fill(start)
		m.flush()
	}
}

// maybeFilled looks at the source again once the log reaches its start, which may have moved meanwhile.
func (m *machine) maybeFilled() {
	if m.filling < 0 || m.progress.acked < m.filling || !m.progress.settled() || m.trimDone < m.filling && m.trimTrouble == "" {
		return
	}
	m.filling = -1
	m.check()
}

// untilBigGap cuts the answer behind the first big gap: what follows would be held for as long as the gap takes to fill.
// It is fetched again. It reports whether the answer is still whole.
func untilBigGap(ev *evFetched) bool {
	for i, p := range ev.pieces {
		if p.gap() && p.next-p.from > bigGap && i < len(ev.pieces)-1 {
			clear(ev.pieces[i+1:])
			ev.pieces, ev.epoch = ev.pieces[:i+1], -1
			return false
		}
	}
	return true
}

// starved takes an answer without data below the last stable offset, when the source had nothing else to send. Enough of
// them, each after a full wait, prove that there is nothing: the cleaner emptied the end of the log (M4). But a remote tier
// that is slow or away is answered for in the same way, for as long as it takes. So a check has to find that these
// offsets are on the broker itself, before a gap is made of them.
func (m *machine) starved() {
	if m.starving == 0 || m.marks.lso < m.starvedTo {
		m.starvedTo = m.marks.lso
	}
	if m.starving++; m.starving < starvingLimit {
		return
	}
	m.starving, m.emptyTo = 0, m.starvedTo
	m.stopAsking()
	m.checked = false
	m.resume()
}

// confirmEmpty takes the check that starved asked for. It reports whether the partition can go on.
func (m *machine) confirmEmpty(ev evOffsets) bool {
	to := min(m.emptyTo, ev.lso)
	m.emptyTo = 0
	switch {
	case to <= m.progress.next:
	case ev.remote != "":
		m.held = fmt.Sprintf("the source sends nothing from offset %d on, though its log goes on to %d: %s", m.progress.next, ev.lso, ev.remote)
		m.waiting = true
		m.wait(backoffSlow)
		return false
	default:
		m.held = ""
		m.progress.fill(to)
		m.flush()
	}
	return true
}

// barren: an answer whose data does not reach the position. A broker that goes on like that has a damaged log.
func (m *machine) barren() {
	if m.starving++; m.starving >= starvingLimit {
		m.do(doStopFetch{})
		m.doom(problemf(problemPassing, "the source answers a fetch from offset %d again and again with data that does not hold it", m.progress.next))
		return
	}
	m.waiting = true
	m.do(doStopFetch{})
	m.wait(backoffQuick)
}

// maybeTrim has the destination's log start follow the source's as far as the destination reaches. What is filled only
// to be deleted is deleted in steps, so that it takes little disk.
func (m *machine) maybeTrim() {
	to := min(m.marks.start, m.progress.acked)
	if m.log != logReady || to <= m.trimAsked || m.marks.start > max(m.marks.lso, m.filling) {
		return
	}
	if m.filling >= 0 {
		if m.progress.acked < m.filling && to-m.trimAsked < trimStep {
			return
		}
	} else if m.state != Mirroring {
		return
	}
	if m.note(m.marks.start) {
		m.trimAsked = to
		m.do(doTrim{offset: to})
	}
}

func (m *machine) trimmed(ev evTrimmed) {
	m.trimDone = max(m.trimDone, ev.start)
	if m.trimDone >= m.trimAsked {
		m.trimTrouble = ""
	}
	m.maybeFilled()
}

// trimFailed: it is no reason to hold the data back.
func (m *machine) trimFailed(ev evTrimTrouble) {
	m.trimTrouble = "the destination's log start cannot follow the source's: " + ev.err.Error()
	m.maybeFilled()
}

// needsKeys: a compacted topic refuses fillers without a key. That it became one is learned like this.
func (m *machine) needsKeys(r *appendlog.RejectedError) bool {
	return r != nil && errors.Is(r.Err, kerr.InvalidRecord) && !m.progress.backlog.keyed && m.progress.backlog.fillerAt(r.Offset)
}

// cut counts the connections that end with the same large batch on them, without an error from the broker. That is what a
// broker does to a request above its socket.request.max.bytes, for ever, and it hits all partitions on the connection.
func (m *machine) cut(err error) *problem {
	var answered *kerr.Error
	if m.log != logReady || m.progress.settled() || m.headBytes < cutBytes || errors.As(err, &answered) {
		return nil
	}
	if m.cutAt != m.progress.acked {
		m.cutAt, m.cuts = m.progress.acked, 0
	}
	if m.cuts++; m.cuts < cutLimit {
		return nil
	}
	m.cuts-- // the next try tells at once
	return problemf(problemPassing, "destination: the connection ended %d times on the batch of %d bytes for offset %d (see socket.request.max.bytes of the destination's brokers): %v",
		cutLimit, m.headBytes, m.progress.acked, err)
}
