package replication

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/appendlog"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// TestPartitionScripts plays the stories in testdata/partition. Each file is one partition; a command is an event, its
// output the effects and, where it changed, what DescribeMirrors would say. Rewrite with -rewrite.
//
//	new room=BYTES [fresh] [compacted] [source-start=N] [note]  a partition (first command); note: source starts are
//	                                 noted by start-noted alone, not at once
//	start | stop | drop | fence-done at=N | fence-trouble MSG
//	leader broker=N epoch=N          metadata
//	topic-lost MSG
//	append-refused MSG | log-ready end=N | acked next=N [batches=N] | doubt MSG | fenced last=N | log-failed [permanent] [foreign=N] [invalid-record=N] MSG
//	offsets start=N lso=N hw=N [epoch=N] [gen=N] | diverged|check-later [gen=N] MSG | interrupted [gen=N]
//	fetched FROM-TO ~FROM-TO… [size=BYTES] [epoch=N] [start=N] [lso=N] [hw=N] [gen=N] [problem=OFFSET] [inside]   (~: a gap)
//	nothing start=N lso=N hw=N [starved] [times=N] [gen=N] | trimmed start=N | trim-trouble MSG
//	error moved|range|passing|final [gen=N] MSG
//	unreachable MSG | stale [gen=N] | destination-start start=N | destination-end end=N acked=N
//	start-noted start=N | retry [timer=N]
func TestPartitionScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/partition", func(t *testing.T, path string) {
		s := &partitionScript{t: t, buffers: make(map[*fetchBuffer]string)}
		datadriven.RunTest(t, path, s.run)
	})
}

type partitionScript struct {
	t       *testing.T
	m       *machine
	budget  *Budget
	buffers map[*fetchBuffer]string
	last    string
	note    bool
	end     int64 // of what was appended
}

func (s *partitionScript) run(t *testing.T, td *datadriven.TestData) string {
	if td.Cmd == "new" {
		room := 1000
		td.MaybeScanArgs(t, "room", &room)
		s.m, s.budget = newMachine(int64(room)), NewBudget(1<<20)
		s.m.mirrored, s.m.progress.backlog.keyed = !td.HasArg("fresh"), td.HasArg("compacted")
		start := int64(0)
		td.MaybeScanArgs(t, "source-start", &start)
		s.m.knowFloor(start)
		s.note = td.HasArg("note")
		return s.status()
	}
	times := 1
	td.MaybeScanArgs(t, "times", &times)
	var out strings.Builder
	for range times {
		ev := s.event(t, td)
		if ready, ok := ev.(evLogReady); ok {
			s.end = ready.end
		}
		s.step(ev, &out)
	}
	s.check()
	if status := s.status(); status != s.last {
		out.WriteString(status)
		s.last = status
	}
	if out.Len() == 0 {
		return "nothing"
	}
	return out.String()
}

// step plays an event, and whatever it leads to at once.
func (s *partitionScript) step(ev event, out *strings.Builder) {
	noted := int64(-1)
	for _, e := range s.m.step(ev) {
		if note, ok := e.(doNoteStart); ok && !s.note {
			noted = note.start
			continue
		}
		fmt.Fprintln(out, s.effect(e))
	}
	if noted >= 0 {
		s.step(evStartNoted{start: noted}, out)
	}
}

// check proves the invariants that hold after every step.
func (s *partitionScript) check() {
	p := &s.m.progress
	require.LessOrEqual(s.t, p.acked, p.next)
	require.Equal(s.t, len(p.chunks) > 0, s.budget.Used() > 0, "bytes are accounted for exactly while a chunk is held")
	require.False(s.t, s.m.asking == askingData && s.m.state != Mirroring, "data is only asked for while mirroring")
	require.False(s.t, s.m.state == Failed && s.m.log != logClosed)
}

func (s *partitionScript) event(t *testing.T, td *datadriven.TestData) event {
	num := func(key string, def int64) int64 { v := def; td.MaybeScanArgs(t, key, &v); return v }
	gen := uint64(num("gen", int64(s.m.gen)))
	err := errors.New(td.Input)
	marks := watermarks{start: num("start", max(0, s.m.marks.start)), lso: num("lso", s.m.marks.lso), hw: num("hw", s.m.marks.hw)}
	switch td.Cmd {
	case "start":
		return evStart{}
	case "stop":
		return evStop{}
	case "drop":
		return evDrop{}
	case "fence-done":
		return evFenceDone{fence: num("at", -1)}
	case "fence-trouble":
		return evFenceTrouble{err: err}
	case "leader":
		return evLeader{broker: int32(num("broker", 1)), epoch: int32(num("epoch", 0))}
	case "topic-lost":
		return evTopicLost{reason: td.Input}
	case "log-ready":
		return evLogReady{end: num("end", 0)}
	case "acked":
		return evAcked{next: num("next", 0), batches: int(num("batches", 1)), bytes: int(num("bytes", 100))}
	case "append-refused":
		return evAppendRefused{err: err}
	case "doubt":
		return evDoubt{err: err}
	case "fenced":
		return evFenced{last: num("last", -1)}
	case "log-failed":
		ev := evLogFailed{err: err, permanent: td.HasArg("permanent"), foreign: num("foreign", -1)}
		if at := num("invalid-record", -1); at >= 0 {
			ev.rejected = &appendlog.RejectedError{Offset: at, Err: kerr.InvalidRecord}
		}
		return ev
	case "offsets":
		return evOffsets{gen: gen, start: marks.start, lso: marks.lso, hw: marks.hw, epoch: int32(num("epoch", -1)), remote: td.Input}
	case "diverged":
		return evDiverged{gen: gen, reason: td.Input}
	case "check-later":
		return evCheckLater{gen: gen, reason: td.Input}
	case "interrupted":
		return evInterrupted{gen: gen}
	case "fetched":
		return s.fetched(td, gen, marks, num)
	case "nothing":
		return evWatermarks{gen: gen, marks: marks, starved: td.HasArg("starved")}
	case "trimmed":
		return evTrimmed{start: marks.start}
	case "trim-trouble":
		return evTrimTrouble{err: err}
	case "error":
		kind := map[string]problemKind{"moved": problemMoved, "range": problemRange, "passing": problemPassing, "final": problemFinal}[td.CmdArgs[0].Key]
		return evSourceError{gen: gen, problem: problem{kind: kind, reason: td.Input}}
	case "unreachable":
		return evUnreachable{err: err}
	case "stale":
		return evStale{gen: gen}
	case "destination-end":
		return evDestinationEnd{end: num("end", 0), acked: num("acked", 0)}
	case "destination-start":
		return evDestinationStart{start: num("start", 0)}
	case "start-noted":
		return evStartNoted{start: num("start", 0)}
	case "retry":
		return evRetry{timer: uint64(num("timer", int64(s.m.timer)))}
	}
	td.Fatalf(t, "unknown command %s", td.Cmd)
	return nil
}

func (s *partitionScript) fetched(td *datadriven.TestData, gen uint64, marks watermarks, num func(string, int64) int64) event {
	size := int(num("size", 100))
	ev := &evFetched{gen: gen, inside: td.HasArg("inside"), marks: marks, epoch: int32(num("epoch", 0))}
	bytes := 0
	for _, arg := range td.CmdArgs {
		var from, to int64
		if n, _ := fmt.Sscanf(arg.Key, "~%d-%d", &from, &to); n == 2 {
			ev.pieces = append(ev.pieces, piece{from: from, next: to + 1})
		} else if n, _ := fmt.Sscanf(arg.Key, "%d-%d", &from, &to); n == 2 {
			ev.pieces = append(ev.pieces, piece{from: from, next: to + 1, batch: make([]byte, size)})
			bytes += size
		}
	}
	if at := num("problem", -1); at >= 0 {
		ev.problem = problemf(problemFinal, "the record at offset %d has the key that is reserved for fillers", at)
	}
	total := int64(max(bytes, 1))
	s.budget.Force(total)
	ev.buffer = newFetchBuffer(s.budget, total)
	s.buffers[ev.buffer] = fmt.Sprintf("buffer %d", len(s.buffers)+1)
	return ev
}

func (s *partitionScript) effect(e effect) string {
	switch e := e.(type) {
	case doOpenLog:
		return "open log"
	case doResetLog:
		return "read the log's end again"
	case doCloseLog:
		return "close log"
	case doCheckSource:
		if e.empty {
			return fmt.Sprintf("compare the logs before %d, and see whether what follows is remote (gen %d)", e.end, e.gen)
		}
		return fmt.Sprintf("compare the logs before %d (gen %d)", e.end, e.gen)
	case doFetch:
		return fmt.Sprintf("fetch from %d at broker %d, leader epoch %d, last epoch %d (gen %d)", e.offset, e.broker, e.epoch, e.lastEpoch, e.gen)
	case doStopFetch:
		if e.room {
			return "stop fetching until there is room"
		}
		return "stop fetching"
	case doAppend:
		return s.appended(e)
	case doTrim:
		return fmt.Sprintf("move the destination's log start to %d", e.offset)
	case doNoteStart:
		return fmt.Sprintf("note that the source starts at %d", e.start)
	case doTellLow:
		return fmt.Sprintf("tell that the source starts at %d, below %d", e.start, e.floor)
	case doTellOvertaken:
		return fmt.Sprintf("tell that %d to %d were lost", e.from, e.next-1)
	case doRelease:
		e.buffer.release()
		return "release " + s.buffers[e.buffer]
	case doRefresh:
		return "refresh metadata"
	case doRetry:
		return fmt.Sprintf("retry, %s, attempt %d (timer %d)", map[backoffClass]string{backoffQuick: "quick", backoffSlow: "slow"}[e.class], e.attempt, e.timer)
	case doFence:
		return "fence"
	case doReport:
		text := fmt.Sprintf("%v → %v", e.from, e.to)
		if e.reason != "" {
			text += ": " + e.reason
		}
		if e.permanent {
			text += " [for good]"
		}
		if e.to == Stopped {
			text += fmt.Sprintf(" (last mirrored %d)", e.lastMirrored)
		}
		return text
	}
	return fmt.Sprintf("%#v", e)
}

// appended describes batches, and proves that they go on where the log ends. Fillers in a row are told together.
func (s *partitionScript) appended(e doAppend) string {
	text, fillers, from, bulk := "append", 0, int64(0), ""
	tell := func(next int64) {
		switch {
		case fillers == 1:
			text += fmt.Sprintf(" %sfiller %d-%d", bulk, from, next-1)
		case fillers > 1:
			text += fmt.Sprintf(" %d %sfillers %d-%d", fillers, bulk, from, next-1)
		}
		fillers = 0
	}
	for _, b := range e.batches {
		require.Equal(s.t, s.end, b.Base, "a batch begins where the one before it ends")
		h, err := recordbatch.ParseHeader(b.Bytes)
		if err == nil && h.Filler() {
			require.EqualValues(s.t, b.Next-b.Base, h.NumRecords)
			lane := ""
			if b.Bulk {
				lane = "bulk "
			}
			if fillers == 0 || lane != bulk {
				tell(b.Base)
				from, bulk = b.Base, lane
			}
			fillers++
		} else {
			require.False(s.t, b.Bulk, "records are never bulk")
			tell(s.end)
			text += fmt.Sprintf(" %d-%d", b.Base, b.Next-1)
		}
		s.end = b.Next
	}
	tell(s.end)
	return text
}

func (s *partitionScript) status() string {
	m := s.m
	text := fmt.Sprintf("  = %v next %d acked %d in flight %d (%d bytes)", m.state, m.progress.next, m.progress.acked, m.progress.inFlight, m.progress.bytes)
	if reason := m.status().reason; reason != "" {
		text += " — " + reason
	}
	return text + "\n"
}
