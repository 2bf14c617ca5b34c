package replication

import "fmt"

// # The floor
//
// Where the source deletes records, its log starts higher, the mirror follows, and cannot go back. But the source can: a
// broker that is killed forgets the DeleteRecords of the last minute (it writes log starts down every
// log.flush.start.offset.checkpoint.interval.ms), and a follower that is elected may not have heard of one. Then its log
// starts lower again, with the records that were deleted.
//
// The floor of a partition is the highest start of the source's log that the mirror has acted upon. What is below was deleted
// at somebody's wish, and stays deleted: the start that counts for gaps and for the mirror's own start is never below the
// floor. So a mirror that starts there was not trimmed by a stranger; one that starts above it was.
//
// The floor is durable before anything is done because of it (doNoteStart): a process that knew it no more would take
// the fillers below it for a mirror of the records that are there again.

type floor struct {
	floor int64
	// noteAsked is the last doNoteStart, noted what is durable of it.
	noteAsked, noted int64
	// low is where the source's log starts if that is below the floor, else -1.
	low int64
	// suspect is the start of the destination because of which the logs were compared last.
	suspect int64
}

type (
	// evStartNoted: it is durable that the source's log started at start.
	evStartNoted struct{ start int64 }
	// evDestinationStart: the destination was seen to start at start.
	evDestinationStart struct{ start int64 }
	// doNoteStart: make durable that the source's log starts at start; it is answered with evStartNoted, sooner or later.
	doNoteStart struct{ start int64 }
	// doTellLow: the source's log starts at start, below the floor.
	doTellLow struct{ start, floor int64 }
)

func (evStartNoted) isEvent()       {}
func (evDestinationStart) isEvent() {}
func (doNoteStart) isEffect()       {}
func (doTellLow) isEffect()         {}

// knowFloor takes what an earlier process noted.
func (m *machine) knowFloor(start int64) {
	m.floor.floor, m.noteAsked, m.noted = start, start, start
}

// takeMarks takes what the source says of its log.
func (m *machine) takeMarks(marks watermarks) {
	low := int64(-1)
	if marks.start >= 0 && marks.start < m.floor.floor {
		low = marks.start
	}
	if low >= 0 && m.low < 0 {
		m.do(doTellLow{start: low, floor: m.floor.floor})
	}
	m.low = low
	m.marks = marks
	m.marks.start = max(marks.start, m.floor.floor)
}

// note raises the floor, and reports whether that is durable.
func (m *machine) note(start int64) bool {
	m.floor.floor = max(m.floor.floor, start)
	if m.noted >= start {
		return true
	}
	if m.noteAsked < start {
		m.noteAsked = start
		m.do(doNoteStart{start: start})
	}
	return false
}

func (m *machine) startNoted(ev evStartNoted) {
	m.noted = max(m.noted, ev.start)
	if m.filling > m.progress.next && m.noted >= m.filling {
		m.progress.fill(m.filling)
		m.flush()
		return
	}
	m.maybeTrim()
}

// destinationStart: a start below what was deleted is a broker that was killed before it wrote the deletion down (the
// destination's do that, too): the deletion is repeated. One above the floor is a deletion that the mirror did not ask for;
// the comparison of both logs judges it.
func (m *machine) destinationStart(ev evDestinationStart) {
	switch {
	case m.state != Mirroring || m.log != logReady:
	case ev.start < m.trimDone:
		m.trimAsked, m.trimDone = ev.start, ev.start
		m.maybeTrim()
	case ev.start > m.marks.start && ev.start != m.suspect && m.doomed == nil:
		m.suspect = ev.start
		m.stopAsking()
		m.checked = false
		m.resume()
	}
}

func (m *machine) lowRemark() string {
	return fmt.Sprintf("the source's log starts at %d again, though it was deleted up to %d (a broker that is killed forgets a deletion of the last minute): the mirror keeps its start",
		m.low, m.floor.floor)
}
