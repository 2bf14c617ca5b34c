package shapes

import (
	"testing"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

const (
	newest = kafkatest.DefaultVersion
	quorum = "3.9.1" // the last 3.x
	zoo    = "2.8.2" // ZooKeeper, topic IDs in metadata but not in Fetch, can hold formats v0 and v1
	oldest = "2.1.1" // the oldest release that is supported as a source
	// ancient is the oldest that starts on Java 17.
	ancient = kafkatest.OldestVersion
)

var releases = []string{newest, quorum, zoo, oldest, ancient}

// A shape is a row of the table.
type shape struct {
	name string
	// on are the releases of the source.
	on []string
	// appendTime: the destination's brokers default to LogAppendTime.
	appendTime bool
	// configs of the source topic, which has one partition.
	configs map[string]string

	// make fills the topic.
	make func(t *testing.T, l *log)
	// disk changes the files of the partition while the source is stopped, before anything is mirrored.
	disk func(t *testing.T, l *log, dir string)
	// proof reports whether the raw log at the source has the shape. It is asked until it does.
	proof func(f facts) bool

	// change does something to the log while it is mirrored.
	change func(t *testing.T, l *log)
	// whilePaused does something to the log while the mirror is paused.
	whilePaused func(t *testing.T, l *log)
	// gatewayDown does something to the log while no gateway runs.
	gatewayDown func(t *testing.T, l *log)
	// crash changes the files of the partition while the source is stopped, after it was mirrored.
	crash func(t *testing.T, l *log, dir string)
	// recovered does something to the log after the source's restart.
	recovered func(t *testing.T, l *log)

	// says matches the reason that is shown while nothing has happened to the log since it was made; "": it is not looked at.
	says string
	// want is what becomes of the mirror at the end; the zero value: it is the same.
	want outcome
	// pendingIssue names what is missing for that, as "issue: what". Then today is what is seen instead.
	pendingIssue string
	today        outcome
}

// An outcome is what becomes of a mirror.
type outcome struct {
	// at is the step after which it is seen.
	at step
	// failed: the partition is FAILED, with a reason that matches.
	failed string
	// says: it is the same, and shown with a reason that matches; "": the reason is not looked at.
	says string
	// preparing: it is PREPARING and shows progress, for longer than a test can take: it is seen to go on over a restart of the
	// gateway, beside all other rows, and then given up.
	preparing bool
	// start: the mirror's log start does not follow.
	start bool
	// unequal: the mirror is believed to be all right, but readers see something else.
	unequal bool
	// verify: readers see the same, but verify reports differences.
	verify bool
}

// A step is a part of what a group of rows goes through.
type step int

const (
	added step = iota
	changed
	resumed   // after a pause
	restarted // the gateway
	crashed   // the source
	numSteps
)

func (s step) String() string {
	return [...]string{"added", "changed", "resumed", "gateway-restarted", "source-restarted"}[s]
}

// lastStep is the one after which a row has its final state.
func (s *shape) lastStep() step {
	switch {
	case s.crash != nil:
		return crashed
	case s.gatewayDown != nil:
		return restarted
	case s.whilePaused != nil:
		return resumed
	case s.change != nil:
		return changed
	}
	return added
}

// pending is what is seen today of a row that is pending.
func (s *shape) pending() outcome {
	if s.pendingIssue == "" {
		return outcome{}
	}
	return s.today
}

// expected is the outcome after a step.
func (s *shape) expected(at step) outcome {
	if s.pendingIssue != "" && at >= s.today.at {
		return s.today
	}
	if at >= s.lastStep() {
		want := s.want
		if at > s.lastStep() {
			want.says = "" // a gateway that starts anew has nothing to say about what was before
		}
		return want
	}
	if at == added {
		return outcome{says: s.says}
	}
	return outcome{}
}

// same reports whether the mirror is as the source.
func (o outcome) same() bool { return o == outcome{at: o.at} }

// readable reports whether there is a mirror that readers can be sent to.
func (o outcome) readable() bool { return o.failed == "" && !o.preparing && !o.start }

// A table of the whole suite. The order is that of the documentation.
func table() []shape {
	var all []shape
	for _, part := range [][]shape{plainShapes, transactionShapes, compactionShapes, startShapes, timestampShapes, sizeShapes, lookalikeShapes, formatShapes, divergenceShapes} {
		all = append(all, part...)
	}
	return all
}
