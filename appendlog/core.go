package appendlog

import (
	"errors"
	"fmt"
)

// state is where a core stands.
//
//	           start                    ours, or empty               acknowledged
//	idle ───────────────▶ reading ───────────────────────▶ probing ───────────────▶ pipelined
//	                      ▲  ▲  │ foreign: failed             │  ▲      idle, other conn. │
//	                 wake │  │  │ fence: fenced               │  └── reading (keeps queue) ┤
//	                      │  │  │ cannot read: waiting        │                           │
//	                   waiting◀─┴────────── draining ◀────────┴──────────── error ────────┘
//	                            in flight = 0  │
//	                                           └─▶ failed, fenced
//
// Fence leads from every state over draining and reading to fencing, if need be confirming, and then fenced.
type state int8

const (
	idle       state = iota // not started
	reading                 // the log's end and its last batch are being read
	waiting                 // pause after a doubt, then reading
	probing                 // the end is known; one batch at a time
	pipelined               // a batch was acknowledged since: several at a time
	draining                // an error was seen, or a fence is wanted: nothing is sent until nothing is in flight
	fencing                 // the fence is in flight
	confirming              // the fence is in the log, though not where the log was proved to end: what is before it is being read
	fenced                  // closed for ever to this producer ID
	failed                  // permanent error
)

var stateNames = [...]string{"idle", "reading", "waiting", "probing", "pipelined", "draining", "fencing", "confirming", "fenced", "failed"}

func (s state) String() string { return stateNames[s] }

// refusalLimit is how often in a row, at an unmoved end, the broker refuses a sequence (or the bytes) before the whole
// stretch since the last acknowledgement is read. A high watermark that trails the log's end makes a few refusals normal.
const refusalLimit = 6

// effectKind tells what the shell has to do.
type effectKind int8

const (
	callReady  effectKind = iota + 1 // Handler.Ready(offset)
	callAcked                        // Handler.Acked(offset, batches, bytes)
	callDoubt                        // Handler.Doubt(err)
	callFenced                       // Handler.Fenced(offset)
	callFailed                       // Handler.Failed(err)
	doRead                           // read the end, then call endRead or readFailed; deep: with the stretch from offset on
	doWait                           // pause for the attempt-th time, then call wake
	doFence                          // send the fence, then call fenceResult
	doConfirm                        // read the batch before offset, where the fence is, then call fenceConfirmed or readFailed
	fenceDone                        // answer those who wait in Log.Fence with offset and err
)

type effect struct {
	kind    effectKind
	offset  int64
	batches int
	bytes   int
	attempt int
	deep    bool
	err     error
}

// core is the state machine of one partition. It does no I/O and knows no time: events come in as method calls, and
// what is to be done comes out in effects, in order. It is not safe for concurrent use.
type core struct {
	p           Partition
	maxInFlight int

	state   state
	effects []effect

	// queue holds what is not acknowledged, gapless and in order; the first sent of them are in flight.
	queue ring
	sent  int
	// drops counts the times that the queue was forgotten; plainUntil is the offset below which nothing is merged.
	drops      int
	plainUntil int64
	// acked is the offset up to which the log is known to hold our batches: the end that was read, or the last
	// acknowledgement since. -1 before the first reading.
	acked int64
	// ready: Ready was called and no doubt came since, so Append may go on at next.
	ready bool
	next  int64
	// bulk is the lane: what is in flight was sent on the connection for such batches, and the end is read there.
	bulk bool
	// keep: this reading was not caused by an error; if it finds the end at acked, the queue stays.
	keep bool

	// cause is the first error of the present draining, unless a graver one came.
	cause outcome
	// attempts counts doubts since the last acknowledgement; refusals those with the sequence refused at one end.
	attempts, refusals int
	lastEnd            int64
	lastOurs           bool // what the last reading found before lastEnd, or nothing was there

	// giveWay: this is the start, or the last batch was refused: perhaps another gateway is at work. Nothing is sent
	// until the end is found twice in a row at the same place, or where it was believed to be: at restEnd.
	giveWay bool
	restEnd int64

	fenceWanted bool
	fenceSent   bool  // it may be in the log: what lies behind it is of no concern
	fenceOffset int64 // known once confirming or fenced, else -1
	hasFailed   bool  // Failed was called
	toldFenced  bool  // Fenced was called
}

func newCore(p Partition, maxInFlight int) core {
	return core{p: p, maxInFlight: maxInFlight, acked: -1, lastEnd: -1, fenceOffset: -1}
}

func (c *core) emit(e effect) { c.effects = append(c.effects, e) }

// start begins with the first reading. A log with something in it is looked at twice before the first batch: whoever
// left it a moment ago may still be at work.
func (c *core) start() {
	if c.state == idle {
		c.giveWay, c.restEnd = true, 0
		c.read()
	}
}

// append queues a batch behind the last one.
func (c *core) append(b Batch) error {
	switch {
	case c.state == fenced, c.fenceWanted:
		return ErrFenced
	case c.state == failed:
		return ErrFailed
	case !c.ready:
		return ErrNotReady
	case b.Base != c.next:
		return &BatchError{Base: b.Base, Reason: fmt.Sprintf("the next offset is %d", c.next)}
	}
	c.queue.push(b)
	c.next = b.Next
	c.maybeChangeLane()
	return nil
}

// canSend reports whether nextSend has a batch.
func (c *core) canSend() bool {
	if c.sent == c.queue.len() || c.lane() != c.bulk {
		return false
	}
	return c.state == probing && c.sent == 0 || c.state == pipelined && c.sent < c.maxInFlight
}

// lane tells where the next batch belongs. REQUIRES: one is queued that is not sent.
func (c *core) lane() bool { return c.queue.at(c.sent).Bulk }

// maybeChangeLane goes on in the lane of the next batch once nothing is in flight in the other one. That is another
// connection, so it begins with a reading, as any new connection does. Every batch of the old lane has been answered for
// good by then: an answer that was lost is a doubt, which drops the queue.
func (c *core) maybeChangeLane() {
	if c.sent == 0 && c.queue.len() > 0 && c.lane() != c.bulk && (c.state == probing || c.state == pipelined) {
		c.bulk = c.lane()
		c.markStale()
	}
}

// peekSend returns the batch that nextSend would.
func (c *core) peekSend() Batch { return c.queue.at(c.sent) }

// nextSend takes the next batch to send. REQUIRES: canSend. It returns false, and fails the log, if the batch would not
// stand directly behind what was acknowledged or is in flight: that would be a fault of this package.
func (c *core) nextSend() (Batch, bool) {
	b := c.queue.at(c.sent)
	behind := c.acked
	if c.sent > 0 {
		behind = c.queue.at(c.sent - 1).Next
	}
	if b.Base != behind || b.Next <= b.Base {
		c.trouble(outcome{kind: foreign, err: fmt.Errorf("appendlog: batch for offsets %d to %d is not directly behind %d", b.Base, b.Next-1, behind)})
		c.maybeDrained()
		return Batch{}, false
	}
	c.sent++
	return b, true
}

// result is the answer to the batch for offset base, which must be the oldest in flight.
func (c *core) result(base int64, o outcome) {
	b := c.queue.pop()
	c.sent--
	o = c.checkOffset(o, b)
	if b.Base != base {
		o = outcome{kind: foreign, err: fmt.Errorf("appendlog: answer for offset %d, but %d is the oldest in flight", base, b.Base)}
	}
	o = c.unmerge(o, b)
	switch {
	case o.kind != appended:
		c.trouble(o)
	case c.cause.kind == appended:
		c.acknowledge(b)
	default:
		// Draining: a batch behind one that failed was appended at its own offset, so the failed one is in the log too.
		// The reading that follows will tell.
	}
	c.maybeDrained()
	c.maybeChangeLane()
}

// checkOffset turns a success at another offset than the one expected into what it is.
func (c *core) checkOffset(o outcome, b Batch) outcome {
	switch {
	case o.kind != appended || o.base == b.Base:
		return o
	case o.base < 0:
		return outcome{kind: doubtful, err: fmt.Errorf("batch for offset %d: answer has no base offset", b.Base)}
	}
	err := &ForeignWriteError{Topic: c.p.Topic, Partition: c.p.Partition, Offset: b.Base, Got: o.base, ProducerID: -1}
	return outcome{kind: foreign, err: err}
}

func (c *core) acknowledge(b Batch) {
	c.acked = b.Next
	c.attempts, c.refusals = 0, 0
	if c.state == probing {
		c.state = pipelined
	}
	c.emit(effect{kind: callAcked, offset: b.Next, batches: max(1, b.sources), bytes: b.size()})
}

// trouble begins to drain. The first error counts, as those behind it are often its consequence; but a fence and a
// foreign write are never that.
func (c *core) trouble(o outcome) {
	c.state = draining
	c.ready = false
	if c.cause.kind == appended || o.kind >= fencedOff && o.kind > c.cause.kind {
		c.cause = o
	}
}

// maybeDrained goes on once nothing is in flight.
func (c *core) maybeDrained() {
	if c.state != draining || c.sent > 0 {
		return
	}
	cause := c.cause
	c.cause = outcome{}
	c.drop()
	switch {
	case c.fenceWanted:
		if cause.kind == rejected || cause.kind == foreign {
			c.tellFailed(cause.err)
		}
		c.read()
	case cause.kind == foreign, cause.kind == rejected:
		c.fail(cause.err)
	case cause.kind == fencedOff:
		c.becomeFenced(-1)
	default:
		if cause.kind == refused {
			c.refusals++
			c.giveWay, c.restEnd = true, c.acked
		}
		c.doubt(cause.err)
	}
}

// drop forgets the queue. REQUIRES: nothing is in flight.
func (c *core) drop() {
	c.queue.clear()
	c.drops++
	c.ready = false
	c.keep = false
}

func (c *core) read() {
	c.state = reading
	c.emit(effect{kind: doRead, offset: c.acked, deep: c.refusals >= refusalLimit})
}

func (c *core) doubt(err error) {
	c.emit(effect{kind: callDoubt, err: err})
	c.pause()
}

func (c *core) pause() {
	c.state = waiting
	c.attempts++
	c.emit(effect{kind: doWait, attempt: c.attempts})
}

// wake: the pause is over.
func (c *core) wake() {
	if c.state == waiting {
		c.read()
	}
}

// markStale: the connection is another one than that on which the end was proved, or the proof is too old. The end is
// read again before anything else is sent.
func (c *core) markStale() {
	if c.sent == 0 && (c.state == probing || c.state == pipelined) {
		c.keep = true
		c.read()
	}
}

// rest: nothing was sent for a moment. One batch alone goes first again, as the broker may have forgotten the producer.
func (c *core) rest() {
	if c.sent == 0 && c.state == pipelined {
		c.state = probing
	}
}

// readFailed: the end could not be read, or nothing could be proved about it.
func (c *core) readFailed(err error) {
	if c.state != reading && c.state != confirming {
		return
	}
	c.drop()
	c.doubt(err)
}

// endRead: the end of the log was read.
func (c *core) endRead(t tail) {
	if c.state != reading {
		return
	}
	if t.end != c.lastEnd {
		// Somebody gets on: another gateway with the same mirror. That is no reason to suspect anybody, nor to slow down
		// to the utmost.
		c.refusals, c.attempts = 0, min(c.attempts, 5)
	}
	c.lastEnd, c.lastOurs = t.end, t.verdict <= tailOurs
	switch {
	case t.verdict == tailFence && t.offset < 0 && c.fenceWanted:
		c.drop()
		c.sendFence() // there already, somewhere: the repetition is answered with its offset
	case t.verdict == tailFence && c.fenceWanted:
		c.drop()
		c.confirm(t.offset)
	case t.verdict == tailFence:
		c.drop()
		c.becomeFenced(t.offset)
	case t.verdict == tailForeign:
		c.drop()
		c.failOrFence(c.foreignIn(t))
	case t.sequenceBehind():
		c.drop()
		c.failOrFence(&SequenceError{Topic: c.p.Topic, Partition: c.p.Partition, Offset: t.end, Last: t.last})
	case c.fenceWanted:
		c.drop()
		c.sendFence()
	case c.giveWay && t.end != c.restEnd:
		first := c.acked < 0 && c.attempts == 0 && c.restEnd == 0
		c.restEnd = t.end
		c.drop()
		if first { // no doubt yet, only a second look
			c.pause()
		} else {
			c.doubt(fmt.Errorf("%w: it has got to offset %d", errBusy, t.end))
		}
	default:
		c.giveWay = false
		c.becomeReady(t.end)
	}
}

// foreignIn is the foreign write that a reading found.
func (c *core) foreignIn(t tail) error {
	return &ForeignWriteError{Topic: c.p.Topic, Partition: c.p.Partition, Offset: t.offset, Got: -1, ProducerID: t.producerID}
}

// errBusy: see rule 6 in doc.go.
var errBusy = errors.New("another gateway writes to the log")

var errMoved = errors.New("the log does not end where it did: another gateway wrote to it, or it lost its tail")

func (c *core) becomeReady(end int64) {
	c.state = probing
	if c.keep && end == c.acked {
		c.keep = false
		c.maybeChangeLane()
		return
	}
	if c.keep {
		c.emit(effect{kind: callDoubt, err: fmt.Errorf("%w: %d, was %d", errMoved, end, c.acked)})
	}
	c.drop()
	c.acked, c.next, c.ready = end, end, true
	c.emit(effect{kind: callReady, offset: end})
}

func (c *core) fail(err error) {
	c.state = failed
	c.drop()
	c.tellFailed(err)
}

// failOrFence: a permanent error does not keep a fence from being set.
func (c *core) failOrFence(err error) {
	if !c.fenceWanted {
		c.fail(err)
		return
	}
	if !c.fenceSent {
		c.tellFailed(err)
	}
	c.sendFence()
}

func (c *core) tellFailed(err error) {
	if !c.hasFailed {
		c.hasFailed = true
		c.emit(effect{kind: callFailed, err: err})
	}
}

// fence asks for the fence.
func (c *core) fence() {
	wanted := c.fenceWanted
	c.fenceWanted = true
	switch c.state {
	case fenced:
		switch {
		case wanted:
			c.emit(effect{kind: fenceDone, offset: c.fenceOffset})
		case c.fenceOffset >= 0:
			c.confirm(c.fenceOffset)
		default: // it is there, as the broker refuses our epoch; sent again, it is answered with its offset
			c.sendFence()
		}
	case idle, failed:
		c.read()
	case waiting:
		if !wanted {
			c.read()
		}
	case probing, pipelined:
		c.queue.truncate(c.sent)
		c.drops++
		c.trouble(outcome{})
		c.maybeDrained()
	case reading, draining, fencing, confirming:
		c.ready = false // what is queued goes when the reading or draining ends
	}
}

func (c *core) sendFence() {
	c.state = fencing
	c.fenceSent = true
	c.emit(effect{kind: doFence})
}

// fenceResult is the answer to the fence.
func (c *core) fenceResult(o outcome) {
	if c.state != fencing {
		return
	}
	switch {
	case o.kind == appended && o.base >= 0:
		c.confirm(o.base)
	case o.kind == fencedOff:
		c.becomeFenced(-1) // a yet higher epoch: not ours, but as closed
	case o.kind == rejected:
		c.state = failed
		c.fenceWanted = false
		c.tellFailed(o.err)
		c.emit(effect{kind: fenceDone, offset: -1, err: o.err})
	default:
		if o.err == nil {
			o.err = errors.New("fence: answer has no base offset")
		}
		c.doubt(o.err)
	}
}

// confirm: something of ours that was on its way can have got into the log between the reading and the fence, and a broker
// that has forgotten the producer takes it at any offset. Nothing comes behind it any more that would show that.
func (c *core) confirm(fence int64) {
	if c.lastOurs && fence == c.lastEnd || c.hasFailed {
		c.becomeFenced(fence)
		return
	}
	c.state = confirming
	c.fenceOffset = fence
	c.emit(effect{kind: doConfirm, offset: fence})
}

// fenceConfirmed: the batch before the fence was read.
func (c *core) fenceConfirmed(t tail) {
	if c.state != confirming {
		return
	}
	if t.verdict == tailForeign {
		c.tellFailed(c.foreignIn(t))
	}
	c.becomeFenced(c.fenceOffset)
}

func (c *core) becomeFenced(last int64) {
	c.state = fenced
	c.drop()
	c.fenceOffset = last
	if !c.toldFenced {
		c.toldFenced = true
		c.emit(effect{kind: callFenced, offset: last})
	}
	c.emit(effect{kind: fenceDone, offset: last})
}

// unreachable: the broker could not be reached with the next batch. If others are still in flight, their results come
// and say the same.
func (c *core) unreachable(err error) {
	if c.sent == 0 && (c.state == probing || c.state == pipelined) {
		c.drop()
		c.doubt(err)
	}
}
