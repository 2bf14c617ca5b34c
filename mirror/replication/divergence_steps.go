package replication

import "fmt"

// # When both logs are compared
//
// A source can change its history behind our back: an unclean election truncates it, a topic is deleted and made again,
// another cluster answers at the same address. Data of another history must never be appended, not even once. So there
// is a check (doCheckSource, divergence_check.go) before the first append after anything behind which a history can
// change:
//
//   - the destination log was opened or its end read again (start, restart, doubt, suspended process);
//   - the source partition answered with an error, or metadata has another leader or leader epoch for it;
//   - the connection over which it is fetched is not the one that was there when the last check began (evInterrupted).
//
// Between two checks, a source partition is read over one connection from a leader whose epoch the request names. Such a
// leader never truncates. What is left is a topic that is deleted and made again while no fetch of it is under way; by
// topic ID (Fetch v13) the source refuses the next one. docs/fidelity.md says what is left without IDs.

// passed takes a check that found nothing against going on.
func (m *machine) passed(ev evOffsets) {
	m.checked, m.checkedAt = true, m.progress.next
	if m.progress.epoch < 0 && m.distrusted != m.progress.next {
		m.progress.epoch = ev.epoch
	}
}

// compared takes the answer to a check in MIRRORING. What does not fit is looked at as at the start.
func (m *machine) compared(ev evOffsets) {
	if m.progress.next > ev.lso || m.progress.next < m.marks.start {
		m.resetToPreparing()
		return
	}
	m.attempts[backoffQuick] = 0
	m.reason = ""
	m.passed(ev)
	if m.confirmEmpty(ev) {
		m.resume()
	}
}

func (m *machine) diverged(ev evDiverged) {
	if m.asking != askingOffsets || ev.gen != m.gen {
		return
	}
	m.asking = askingNothing
	m.doom(&problem{kind: problemFinal, reason: ev.reason})
}

// checkLater asks again after a pause.
func (m *machine) checkLater(ev evCheckLater) {
	if m.asking != askingOffsets || ev.gen != m.gen {
		return
	}
	m.asking = askingNothing
	m.waiting = m.state == Mirroring
	m.reason = ev.reason
	m.do(doRefresh{})
	m.wait(backoffQuick)
}

func (m *machine) interrupted(ev evInterrupted) {
	if m.asking != askingData || ev.gen != m.gen {
		return
	}
	m.asking, m.checked = askingNothing, false
	m.gen++
	m.resume()
}

// doubted looks whether data can be of the history that was mirrored, and has dealt with it if not.
//
// Our end lies between two batches of the source, and where it does not, because a batch was copied in parts, there was a
// check at this very end. So data that begins inside a batch without one calls for it: its topic may have been made
// again and refilled between two fetches.
func (m *machine) doubted(ev *evFetched) bool {
	if ev.epoch >= 0 && ev.epoch < m.progress.epoch {
		m.epochRegressed(ev)
		return true
	}
	if !ev.inside || m.checkedAt == m.progress.next {
		return false
	}
	m.do(doRelease{buffer: ev.buffer})
	m.checked = false
	m.resume()
	if m.asking != askingData {
		m.do(doStopFetch{})
	}
	return true
}

// epochRegressed fails the partition, as the data is of an older leader epoch than what was copied before it: within one
// history the epochs of batches never fall.
func (m *machine) epochRegressed(ev *evFetched) {
	m.do(doRelease{buffer: ev.buffer})
	m.do(doStopFetch{})
	m.doom(&problem{kind: problemFinal, reason: fmt.Sprintf(
		"diverged: the source's records from offset %d on are of leader epoch %d, the mirrored ones before them of epoch %d: the source topic was made again, or another cluster took its place; way out: %s",
		m.progress.next, ev.epoch, m.progress.epoch, wayOut)})
}

// wayOut is what an operator can do about a source that has another history than the mirror.
const wayOut = "remove the topic from the mirror (it keeps what was mirrored), or, to mirror what the source has now, " +
	"remove it, delete it at the destination and add it again"

// shorterReason is for a source log that ends before the destination's.
func shorterReason(end int64, ev evOffsets) string {
	return fmt.Sprintf("diverged: the destination log ends at %d, the source log at %d (high watermark %d): the source lost records that were copied before",
		end, ev.lso, ev.hw)
}

// truncatedReason is for a source log that was cut at offset at and may have grown since.
func truncatedReason(epoch int32, at, end int64) string {
	return fmt.Sprintf("diverged: the source truncated its log at %d (unclean election, or the topic was made again?), where its leader epoch %d now ends; records %d to %d of the mirror are not at the source any more; way out: %s",
		at, epoch, at, end-1, wayOut)
}
