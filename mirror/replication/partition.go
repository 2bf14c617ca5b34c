package replication

// machine decides what happens to one mirror partition. It is pure: no I/O, no clock, no goroutine, no lock. Events go
// in by step, effects come out, and whoever carries them out (replica) reports back with further events. So every
// transition can be played from a script: see testdata/partition.
//
//	            start                both logs fit            stop
//	INITIALIZING ───► PREPARING ────────────────► MIRRORING ───────► STOPPING ───► STOPPED
//	                   ▲  ▲  ▲   position out of      │                 ▲  fence        ▲
//	       retry, start│  │  └──────────────────────┘                 │               │
//	                   │  │          range                             │               │
//	                  FAILED ◄── from any of the three                 │               │
//	                      └───────────────── stop ─────────────────────┘               │
//	           any of PREPARING, MIRRORING, FAILED: fenced by another gateway ─────────┘
//
// The position is never stored: it is the end of the destination log, which the log tells with evLogReady and which is
// the only thing that sets progress anew. Between two evLogReady, next runs ahead of acked by what is in flight.
//
// Not every trouble is a change of state. A leader that moves, a broker that is away or a destination log in doubt are
// expected to pass within seconds to minutes and keep MIRRORING, with a reason that says what it waits for. FAILED
// means that somebody should look, even where it retries by itself.
//
// NB: an answer of a fetcher or of the source check counts only with the generation of the present doFetch or
// doCheckSource. Everything that moves the position or stops fetching takes a new generation, so that an answer to an
// old subscription can never be appended, however late it comes.
type machine struct {
	// room is how many bytes may be in flight before fetching pauses; at least leastRoom.
	room, leastRoom int64

	state     State
	reason    string // why FAILED, or what it waits for
	permanent bool
	// lastMirrored is set in STOPPED.
	lastMirrored int64

	log      logPhase
	progress progress
	marks    watermarks
	heard    uint64 // answers of the source that told or confirmed marks

	leader evLeader
	gen    uint64
	asking asking
	// waiting: the source partition had an error; a timer or a new leader ends it.
	waiting bool
	// checked: both logs were compared since the last interruption; see divergence_steps.go.
	checked bool
	// checkedAt is the position of the last check that passed, -1 if there was none.
	checkedAt int64
	// unasked: a check waits for the source partition to have a leader.
	unasked bool
	// distrusted is the position for which the source did not know the last leader epoch, -1 if there was none.
	distrusted int64
	// starving counts answers without data though there should be some.
	starving int
	// ahead: the last check found the destination ahead of the source. The second in a row decides.
	ahead bool
	// paused: fetching waits for room.
	paused bool
	// refusedAt is where a batch was refused last by the log itself, -1 if none was.
	refusedAt int64
	// foreign is the offset from which somebody else wrote to the destination, -1 if nobody did.
	foreign int64
	// doomed fails the partition once what is in flight has settled, so that all that could be copied is.
	doomed *problem
	gaps
	floor

	timer    uint64
	attempts [2]int // by backoffClass
	effects  []effect
}

type logPhase uint8

const (
	logClosed logPhase = iota
	logOpening
	logReady
)

type asking uint8

const (
	askingNothing asking = iota
	askingOffsets
	askingData
)

// starvingLimit is how many answers without any data, each after a full wait, let suppose that the source log has no
// records at its end. See starved.
const starvingLimit = 10

func newMachine(room int64) *machine {
	return &machine{
		room: room, leastRoom: room, state: Initializing, lastMirrored: -1,
		progress: progress{next: -1, acked: -1, epoch: -1},
		marks:    watermarks{start: -1, lso: -1, hw: -1},
		leader:   evLeader{broker: -1, epoch: -1},
		foreign:  -1, refusedAt: -1, distrusted: -1, checkedAt: -1, gaps: gaps{filling: -1}, floor: floor{low: -1},
	}
}

// step takes an event and returns what is to be done, in order. The slice is valid until the next step.
func (m *machine) step(ev event) []effect {
	clear(m.effects) // they hold buffers
	m.effects = m.effects[:0]
	if m.state == Unknown {
		m.stepDropped(ev)
		return m.effects
	}
	switch ev := ev.(type) {
	case evStart:
		m.start()
	case evLogReady:
		m.logReady(ev)
	case evOffsets:
		m.offsets(ev)
	case evLeader:
		m.leaderMoved(ev)
	case *evFetched:
		m.fetched(ev)
	case evWatermarks:
		m.watermarks(ev)
	case evStale:
		m.stale(ev)
	case evAcked:
		m.acked(ev)
	case evAppendRefused:
		m.appendRefused(ev)
	case evDoubt:
		m.doubt(ev)
	case evFenced:
		m.fenced(ev)
	case evLogFailed:
		m.logFailed(ev)
	case evSourceError:
		m.sourceError(ev)
	case evDiverged:
		m.diverged(ev)
	case evCheckLater:
		m.checkLater(ev)
	case evInterrupted:
		m.interrupted(ev)
	case evUnreachable:
		m.unreachable(ev)
	case evTopicLost:
		m.doom(&problem{kind: problemFinal, reason: ev.reason})
	case evTopicDenied:
		m.doom(&ev.problem)
	case evDestinationEnd:
		m.destinationEnd(ev)
	case evDestinationStart:
		m.destinationStart(ev)
	case evStartNoted:
		m.startNoted(ev)
	case evTrimmed:
		m.trimmed(ev)
	case evTrimTrouble:
		m.trimFailed(ev)
	case evRetry:
		m.retry(ev)
	case evStop:
		m.stop()
	case evFenceDone:
		m.fenceDone(ev)
	case evFenceTrouble:
		m.fenceTrouble(ev)
	case evDrop:
		m.drop()
	}
	return m.effects
}

// stepDropped only gives back what late events hold.
func (m *machine) stepDropped(ev event) {
	if ev, ok := ev.(*evFetched); ok {
		m.do(doRelease{buffer: ev.buffer})
	}
}

func (m *machine) start() {
	switch m.state {
	case Initializing, Failed:
		m.attempts = [2]int{}
		m.timer++
		m.notice = ""
		m.prepare()
	}
}

// prepare begins anew: the log is opened and tells the position.
func (m *machine) prepare() {
	m.ahead = false
	m.become(Preparing)
	m.log = logOpening
	m.do(doOpenLog{})
}

func (m *machine) logReady(ev evLogReady) {
	if m.log == logClosed || m.state != Preparing && m.state != Mirroring {
		return
	}
	m.quiet()
	m.progress.reset(ev.end)
	m.log, m.reason, m.checked = logReady, "", false
	m.trimAsked, m.trimDone = 0, 0 // a broker that was killed may have forgotten it, see destinationStart
	if m.state == Preparing {
		m.check()
		return
	}
	m.resume()
}

// check asks the source where its log begins and ends, and compares its history with ours.
func (m *machine) check() {
	if m.unasked = m.leader.broker < 0; m.unasked {
		m.reason = "the source partition has no leader"
		m.do(doRefresh{})
		m.wait(backoffQuick)
		return
	}
	m.gen++
	m.asking = askingOffsets
	m.do(doCheckSource{gen: m.gen, end: m.progress.next, epoch: m.progress.epoch, empty: m.emptyTo > 0})
}

// offsets compares both logs and, where they fit, begins to mirror.
func (m *machine) offsets(ev evOffsets) {
	if m.asking != askingOffsets || ev.gen != m.gen {
		return
	}
	m.asking = askingNothing
	m.takeMarks(watermarks{start: ev.start, lso: ev.lso, hw: ev.hw})
	m.heard++
	end := m.progress.next
	if m.state == Mirroring {
		m.compared(ev)
		return
	}
	switch {
	case end > ev.lso:
		m.destinationAhead(ev)
	case end < m.marks.start:
		m.ahead, m.reason = false, ""
		m.attempts[backoffQuick] = 0
		m.fillStart(m.marks.start)
	default:
		m.ahead, m.reason = false, ""
		m.passed(ev)
		m.attempts[backoffQuick] = 0
		m.mirrored = true
		m.become(Mirroring)
		m.maybeTrim()
		m.resume()
	}
}

// destinationAhead: copying on once the source has passed the destination's end would mix two histories, so it fails.
// But a source older than 2.2 (KIP-207) can show a low end for a moment after an election: look twice.
func (m *machine) destinationAhead(ev evOffsets) {
	reason := shorterReason(m.progress.next, ev)
	if m.ahead {
		m.fail(&problem{kind: problemFinal, reason: reason + "; way out: " + wayOut})
		return
	}
	m.ahead, m.reason = true, reason+"; looking again"
	m.wait(backoffQuick)
}

// resume fetches if nothing stands against it.
func (m *machine) resume() {
	if m.state != Mirroring || m.log != logReady || m.waiting || m.doomed != nil || m.asking != askingNothing {
		return
	}
	if m.leader.broker < 0 {
		return
	}
	if !m.checked {
		if m.progress.settled() {
			m.check()
		}
		return
	}
	if full := m.progress.bytes >= m.room; full || !m.progress.backlog.empty() {
		if !m.paused {
			m.paused = true
			m.do(doStopFetch{room: full})
		}
		return
	}
	m.paused = false
	m.gen++
	m.asking = askingData
	m.do(doFetch{gen: m.gen, broker: m.leader.broker, epoch: m.leader.epoch, offset: m.progress.next, lastEpoch: m.progress.epoch})
}

// quiet stops asking the source and gives all buffers back.
func (m *machine) quiet() {
	m.stopAsking()
	m.starving, m.emptyTo, m.held, m.waiting, m.unasked, m.doomed, m.filling = 0, 0, "", false, false, nil, -1
	m.timer++ // a timer that still runs is void
	for i := range m.progress.chunks {
		m.do(doRelease{buffer: m.progress.chunks[i].buffer})
	}
	m.progress.forget()
}

func (m *machine) stopAsking() {
	if m.asking == askingData || m.paused {
		m.do(doStopFetch{})
	}
	m.asking, m.paused = askingNothing, false
	m.gen++
}

// wait sends an evRetry later.
func (m *machine) wait(class backoffClass) {
	m.timer++
	m.attempts[class]++
	m.do(doRetry{timer: m.timer, class: class, attempt: m.attempts[class]})
}

// fail ends the mirroring, for good or until the retry.
func (m *machine) fail(p *problem) {
	m.quiet()
	m.closeLog()
	m.reason, m.permanent = p.reason, p.kind == problemFinal
	m.enter(Failed)
	if !m.permanent {
		m.wait(backoffSlow)
	}
}

// doom fails the partition, but first lets what is in flight settle.
func (m *machine) doom(p *problem) {
	switch m.state {
	case Mirroring, Preparing:
	case Failed: // a topic that is lost makes a passing failure final
		if !m.permanent && p.kind == problemFinal {
			m.fail(p)
		}
		return
	default:
		return
	}
	if m.log == logReady && !m.progress.settled() {
		m.stopAsking()
		m.doomed, m.reason = p, p.reason
		return
	}
	m.fail(p)
}

func (m *machine) closeLog() {
	m.trimAsked, m.trimTrouble = m.trimDone, "" // what was asked for is forgotten with it
	if m.log != logClosed {
		m.log = logClosed
		m.do(doCloseLog{})
	}
}

// become changes the state for a reason that is no failure.
func (m *machine) become(s State) {
	m.reason, m.permanent = "", false
	m.enter(s)
}

func (m *machine) enter(s State) {
	from := m.state
	m.state = s
	if from == s && s != Failed {
		return
	}
	m.do(doReport{from: from, to: s, reason: m.reason, permanent: m.permanent, lastMirrored: m.lastMirrored})
}

func (m *machine) do(e effect) { m.effects = append(m.effects, e) }

func (m *machine) status() replicaStatus {
	return replicaStatus{
		state: m.state, reason: m.remark(), marks: m.marks, acked: m.progress.acked, lastMirrored: m.lastMirrored,
		mirroring: m.state == Mirroring && m.log == logReady, settled: m.progress.settled(),
		filling: m.filling, fillFrom: m.fillFrom, filled: m.progress.filled,
	}
}
