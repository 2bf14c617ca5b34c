package replication

import "fmt"

// The events of the data path and of the end of a partition.

// fetched takes data from the source. REQUIRES: the pieces are contiguous from the offset that was asked for.
func (m *machine) fetched(ev *evFetched) {
	if m.asking != askingData || ev.gen != m.gen {
		m.do(doRelease{buffer: ev.buffer}) // the answer to a subscription that is over
		return
	}
	m.sourceAnswered(ev.marks)
	m.asking, m.room = askingNothing, max(m.leastRoom, fetchRoom*ev.window)
	if m.doubted(ev) {
		return
	}
	whole := untilBigGap(ev)
	if !m.progress.append(ev.pieces, ev.epoch, ev.buffer) {
		m.do(doRelease{buffer: ev.buffer})
	}
	m.flush()
	switch {
	case whole && ev.problem != nil:
		m.do(doStopFetch{})
		m.doom(ev.problem)
		return
	case len(ev.pieces) == 0:
		m.barren()
		return
	}
	m.starving, m.held = 0, ""
	m.maybeTrim()
	m.resume()
	if m.asking == askingNothing && !m.paused {
		m.do(doStopFetch{}) // or the fetcher would keep a place for it
	}
}

// watermarks: an answer without data. It is "caught up" only if the position is the last stable offset.
func (m *machine) watermarks(ev evWatermarks) {
	if m.asking != askingData || ev.gen != m.gen {
		return
	}
	m.sourceAnswered(ev.marks)
	m.maybeTrim()
	if m.marks.lso <= m.progress.next {
		m.starving, m.held = 0, ""
		if m.progress.settled() {
			m.attempts[backoffSlow] = 0
		}
		if m.marks.lso == m.progress.next && m.marks.hw > m.marks.lso {
			m.reason = fmt.Sprintf("waits for an open transaction at offset %d (last stable offset), source high watermark %d", m.marks.lso, m.marks.hw)
		}
		return
	}
	if ev.starved {
		m.starved()
	}
}

// sourceAnswered: the leader is there and knows the partition.
func (m *machine) sourceAnswered(marks watermarks) {
	if marks != unchanged {
		m.takeMarks(marks)
	}
	m.heard++
	m.attempts[backoffQuick] = 0
	m.reason = ""
}

// stale: a process that slept may have lost the partition, and what it holds may be of another age. Only the log can
// tell whether it is still ours.
func (m *machine) stale(ev evStale) {
	current := m.asking == askingData && ev.gen == m.gen
	if !current && (ev.gen != 0 || m.log != logReady || m.state != Mirroring && m.state != Preparing) {
		return
	}
	m.resetLog()
	m.reason = "the process was suspended: reading the destination's end again"
}

func (m *machine) resetLog() {
	m.quiet()
	m.log = logOpening
	m.do(doResetLog{})
}

func (m *machine) acked(ev evAcked) {
	if m.log != logReady || !m.progress.ack(ev.next, ev.batches, ev.bytes) {
		return
	}
	m.attempts[backoffSlow], m.refusedAt = 0, -1
	for {
		c, ok := m.progress.popChunk()
		if !ok {
			break
		}
		m.do(doRelease{buffer: c.buffer})
	}
	m.flush()
	if m.doomed != nil && m.progress.settled() {
		m.fail(m.doomed)
		return
	}
	m.maybeTrim()
	m.resume()
	m.maybeFilled()
}

// appendRefused: either the log has moved without us noticing, which reading its end repairs, or the batch is one that
// no log would take.
func (m *machine) appendRefused(ev evAppendRefused) {
	if m.log != logReady || m.state != Mirroring && m.state != Preparing {
		return
	}
	if m.refusedAt == m.progress.acked {
		m.fail(&problem{kind: problemPassing, reason: "destination: " + ev.err.Error()})
		return
	}
	m.refusedAt = m.progress.acked
	m.resetLog()
	m.reason = "destination: " + ev.err.Error()
}

func (m *machine) doubt(ev evDoubt) {
	if m.log == logClosed || m.state != Preparing && m.state != Mirroring {
		return
	}
	if p := m.cut(ev.err); p != nil {
		m.fail(p)
		return
	}
	m.quiet()
	m.log = logOpening
	m.reason = "destination: " + ev.err.Error()
}

// fenced: another gateway stopped the partition. While STOPPING it may be our own fence, whose outcome comes with
// evFenceDone.
func (m *machine) fenced(ev evFenced) {
	if m.log == logClosed || m.state == Stopping {
		return
	}
	m.quiet()
	m.closeLog()
	m.lastMirrored = ev.last
	m.become(Stopped)
}

func (m *machine) logFailed(ev evLogFailed) {
	if m.log == logClosed {
		return
	}
	if m.state == Stopping {
		if ev.foreign >= 0 {
			m.foreign = ev.foreign // found while the fence was set: what lies behind is not the source's
		}
		return
	}
	if m.needsKeys(ev.rejected) {
		m.progress.backlog.keyed = true
		m.quiet()
		m.closeLog()
		m.prepare()
		return
	}
	kind := problemPassing
	if ev.permanent {
		kind = problemFinal
	}
	m.foreign = ev.foreign
	m.fail(&problem{kind: kind, reason: "destination: " + ev.err.Error()})
}

func (m *machine) leaderMoved(ev evLeader) {
	if ev == m.leader {
		return
	}
	recheck := m.unasked || m.leader.broker >= 0 && m.asking == askingOffsets
	m.leader, m.checked = ev, false
	if recheck {
		m.reason = ""
		m.check() // the answer under way may be of the leader before
		return
	}
	if m.state != Mirroring || m.asking == askingOffsets {
		return
	}
	if m.asking == askingData {
		m.stopAsking()
	}
	if m.doomed != nil {
		return
	}
	if ev.broker < 0 {
		m.reason = "the source partition has no leader"
		return
	}
	m.reason = ""
	if m.waiting {
		m.waiting = false
		m.timer++
	}
	m.resume()
}

func (m *machine) sourceError(ev evSourceError) {
	if m.asking == askingNothing || ev.gen != m.gen {
		return
	}
	checking := m.asking == askingOffsets
	m.asking, m.checked = askingNothing, false
	switch ev.kind {
	case problemMoved:
		m.waiting = !checking || m.state == Mirroring
		m.reason = "source: " + ev.reason
		m.do(doRefresh{})
		m.wait(backoffQuick)
	case problemRange:
		// The records are gone on one of the sides; which, only a comparison of both logs tells.
		m.distrusted = m.progress.next
		m.do(doRefresh{})
		m.resetToPreparing()
	default:
		m.doom(&problem{kind: ev.kind, reason: "source: " + ev.reason})
	}
}

// resetToPreparing looks at both logs again. What is in flight is given up, and found by its end if it arrived.
func (m *machine) resetToPreparing() {
	m.ahead = false
	m.become(Preparing)
	m.resetLog()
}

func (m *machine) unreachable(ev evUnreachable) {
	if m.doomed == nil && (m.state == Preparing || m.state == Mirroring) {
		m.reason = "source: " + ev.err.Error()
	}
}

// destinationEnd: on an idle partition, an end that is not ours means a foreign write, a fence or a lost tail. The log
// finds out which.
func (m *machine) destinationEnd(ev evDestinationEnd) {
	if m.state != Mirroring || m.log != logReady || !m.progress.settled() || m.progress.acked != ev.acked {
		return
	}
	if ev.end != ev.acked {
		m.resetLog()
	}
}

func (m *machine) retry(ev evRetry) {
	if ev.timer != m.timer {
		return
	}
	switch {
	case m.state == Failed && !m.permanent:
		m.prepare()
	case m.state == Preparing && m.log == logReady && m.asking == askingNothing && m.filling < 0:
		m.check()
	case m.state == Mirroring && m.waiting:
		m.waiting = false
		m.resume()
	}
}

func (m *machine) stop() {
	if m.state == Stopped || m.state == Stopping {
		return
	}
	m.stopAsking()
	m.doomed, m.waiting, m.notice, m.filling = nil, false, "", -1
	m.progress.backlog.forget()
	m.timer++
	m.become(Stopping)
	if m.log == logClosed {
		m.log = logOpening // for the fence
	}
	m.do(doFence{})
}

// fenceDone: where a foreign write had failed the partition, the records between the last mirrored one and the fence
// are not ours.
func (m *machine) fenceDone(ev evFenceDone) {
	if m.state != Stopping {
		return
	}
	m.quiet()
	m.closeLog()
	m.lastMirrored = ev.fence
	if m.foreign >= 0 {
		m.lastMirrored = min(ev.fence, m.foreign)
	}
	m.become(Stopped)
}

func (m *machine) fenceTrouble(ev evFenceTrouble) {
	if m.state == Stopping {
		m.reason = "fence: " + ev.err.Error()
	}
}

func (m *machine) drop() {
	m.quiet()
	m.closeLog()
	m.state, m.reason = Unknown, ""
}
