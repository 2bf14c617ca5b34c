package proxy

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"
	"go.uber.org/zap"
)

// errStopped: the server is being stopped.
var errStopped = errors.New("the gateway is stopping")

// errSessionClosed is what RoundTrip returns once its client or broker connection is gone.
var errSessionClosed = errors.New("the client's connection to the broker is closed")

type upState uint8

const (
	upNone    upState = iota // no request yet
	upDialing                // a goroutine is at it and will report
	upOpen
	upShut // our half is shut; what the broker still sends is dropped
	upClosed
)

// reading is whether a connection is read.
type reading uint8

const (
	readOn     reading = iota
	readPaused         // its events are off
	readStale          // they were turned off, but it has been read since: gnet may have turned them on again
)

func (r *reading) wasRead() {
	if *r == readPaused {
		*r = readStale
	}
}

// session pairs a client connection with a broker connection. See the package documentation. Everything happens on the
// loop, between begin and finish; finish settles what follows from it. Being closed by gnet may happen in between.
type session struct {
	id        uint64
	node      int32 // -1 on the bootstrap listener
	remote    string
	principal string // by its certificate; the destination does not know it
	srv       *Server
	loop      *loop
	handler   Handler

	client gnet.Conn // nil once closed
	up     gnet.Conn // nil unless upOpen or upShut
	state  upState
	broker string // the broker's address, once connected

	inflight inflight
	pending  []byte // received from the client, not taken yet
	taken    int    // how much of pending has been taken
	request  requestState
	response responseState
	tokens   tokenState

	busy   bool // between begin and finish
	ending bool // no request is taken any more, nothing more is written to the client
	gone   bool // removed from the loop

	clientHigh, upHigh bool // the outbound buffer rose above the high watermark and is not below the low one yet
	clientRead, upRead reading
	drained            int // outbound bytes when last looked at

	dialCancel context.CancelFunc // while upDialing
	work       *job               // the Work that runs
	waiting    *waiting           // the request that waits

	opened, moved           int64 // loop time of the accept, and of the last byte in any direction
	frameSince, frameMoved  int64 // since when a request is incomplete (0: none is), and its last byte
	lingerUntil             int64 // 0: not ending
	sawRequest              bool
	loggedIn                bool // see Config.RequireLogin
	countedFlight, countedP int  // what the gauges have been told
}

var _ Client = (*session)(nil)

// ID implements Client.
func (s *session) ID() uint64 { return s.id }

// RemoteAddr implements Client.
func (s *session) RemoteAddr() string { return s.remote }

// Node implements Client.
func (s *session) Node() int32 { return s.node }

func (s *session) log() *zap.Logger {
	log := s.srv.log.With(zap.Uint64("session", s.id), zap.String("client", s.remote), zap.Int32("node", s.node), zap.String("broker", s.broker))
	if s.principal != "" {
		log = log.With(zap.String("principal", s.principal))
	}
	return log
}

func (s *session) begin() { s.busy = true }

// finish settles everything that may follow from what happened since begin.
func (s *session) finish() {
	if s.gone {
		return
	}
	s.marks()
	if s.client == nil {
		s.abandonWork()
	}
	s.sendAnswers()
	s.takePending()
	s.sendAnswers()
	s.frameClock()
	if s.loop.stopping && !s.ending && s.client != nil && s.inflight.replies.len() == 0 && s.request.phase == atStart {
		s.ending = true
	}
	if s.state == upClosed {
		s.ending = true
	}
	s.endClient()
	s.endUpstream()
	s.flow()
	s.busy = false
	s.count()
	if s.client == nil && (s.state == upNone || s.state == upClosed) {
		s.leave()
	}
}

func (s *session) pump() {
	s.begin()
	s.finish()
}

// closed is called by gnet when a connection is gone, for whichever reason; within a call of ours too.
func (s *session) closed(c gnet.Conn, err error) {
	switch {
	case c == s.client:
		s.client = nil
		s.srv.metrics.clients.open.Dec()
		if err != nil {
			s.log().Debug("client closed the connection", zap.Error(err))
		}
	case c == s.up:
		s.up = nil
		s.state = upClosed
		s.srv.metrics.upstreams.open.Dec()
		if err != nil && !s.ending && s.client != nil {
			s.brokerLeft(err)
		}
	}
	if !s.busy {
		s.pump()
	}
}

func (s *session) brokerLeft(err error) {
	n := s.inflight.replies.len()
	if n == 0 {
		s.log().Debug("broker closed the connection", zap.Error(err))
		return
	}
	s.fail(reasonBroker, fmt.Errorf("broker closed the connection with %d requests in flight: %w", n, err))
}

// fail ends the session in an orderly way: what is in the outbound buffers still leaves.
func (s *session) fail(reason string, err error) {
	if s.ending {
		return
	}
	s.ending = true
	s.srv.metrics.failed(reason)
	s.log().Warn("connection ended: "+reason, zap.String("reason", reason), zap.Error(err)) // lines are sampled by their text
}

// abort ends the session at once.
func (s *session) abort(reason string, err error) {
	if s.gone {
		return
	}
	if !s.ending || reason == reasonLinger {
		s.srv.metrics.failed(reason)
		s.log().Warn("connection ended: "+reason, zap.String("reason", reason), zap.Error(err))
	}
	s.begin()
	s.ending = true
	s.closeClient()
	s.closeUp()
	s.finish()
}

func (s *session) closeClient() {
	if c := s.client; c != nil {
		_ = s.loop.events.Close(c) // calls closed
	}
}

func (s *session) closeUp() {
	if c := s.up; c != nil {
		_ = s.loop.events.Close(c)
	}
}

// endClient closes the client's connection when the session ends and what it was promised is out.
func (s *session) endClient() {
	if !s.ending || s.client == nil {
		return
	}
	if s.client.OutboundBuffered() == 0 {
		s.closeClient()
		return
	}
	s.linger()
}

// endUpstream lets go of the broker when no request will be sent to it any more.
func (s *session) endUpstream() {
	if s.client != nil && !s.ending {
		return
	}
	s.abandonWork()
	s.abandonWait()
	s.ending = s.ending || s.state != upDialing || s.unread() == 0
	if !s.ending {
		return // the client is gone, but left requests that go out when the broker is connected
	}
	s.pending, s.taken = nil, 0
	switch s.state {
	case upDialing:
		s.dialCancel()
	case upOpen:
		s.linger()
		if s.up.OutboundBuffered() > 0 {
			return
		}
		if s.inflight.expected.len() == 0 {
			s.closeUp()
			return
		}
		s.state = upShut
		_ = syscall.Shutdown(s.up.Fd(), syscall.SHUT_WR)
	case upShut:
		if s.inflight.expected.len() == 0 {
			s.closeUp()
		}
	}
}

func (s *session) linger() {
	if s.lingerUntil == 0 {
		s.lingerUntil = s.loop.now + int64(s.srv.cfg.LingerTimeout)
	}
}

// leave takes the session off its loop. REQUIRES: both connections are gone and no dial is under way.
func (s *session) leave() {
	s.gone = true
	s.abandonWork()
	s.abandonWait()
	s.inflight = inflight{}
	s.letGo(&s.request.buf)
	s.letGo(&s.response.buf)
	s.clientRead, s.upRead = readOn, readOn
	s.count()
	s.srv.metrics.session(s.node).Dec()
	delete(s.loop.sessions, s)
	delete(s.loop.draining, s)
	s.srv.release()
}

// marks compares the outbound buffers with the watermarks.
func (s *session) marks() {
	mark := func(c gnet.Conn, high *bool) {
		switch n := outbound(c); {
		case n > s.srv.cfg.OutboundHigh:
			*high = true
		case n <= s.srv.cfg.OutboundLow:
			*high = false
		}
	}
	mark(s.client, &s.clientHigh)
	mark(s.up, &s.upHigh)
}

func outbound(c gnet.Conn) int {
	if c == nil {
		return 0
	}
	return c.OutboundBuffered()
}

// flow pauses and resumes reading, and enforces the limits that count where it cannot be paused.
func (s *session) flow() {
	s.marks()
	if out := max(outbound(s.client), outbound(s.up)); out > s.srv.cfg.OutboundMax {
		s.abortFromFinish(reasonSlow, fmt.Errorf("%d bytes wait for a peer that does not read", out))
	}
	if n := s.unread(); n > s.srv.cfg.PendingMax {
		s.abortFromFinish(reasonPending, fmt.Errorf("%d bytes of requests wait for earlier ones", n))
	}
	s.pause(s.client, &s.clientRead, s.upHigh || s.ending || (s.unread() > 0 && s.blocked()))
	s.pause(s.up, &s.upRead, s.clientHigh && !s.ending)
	if s.awaitsDrain() {
		s.loop.awaitDrain(s)
	}
}

// abortFromFinish is abort for callers inside finish, which does the rest.
func (s *session) abortFromFinish(reason string, err error) {
	s.fail(reason, err)
	s.closeClient()
	s.closeUp()
}

func (s *session) pause(c gnet.Conn, r *reading, want bool) {
	switch {
	case c == nil:
		*r = readOn
	case want && *r != readPaused:
		if s.loop.poller.pause(c) {
			*r = readPaused
		}
	case !want && *r != readOn:
		if s.loop.poller.resume(c) {
			*r = readOn
		}
	}
}

// awaitsDrain tells whether something happens when an outbound buffer has drained.
func (s *session) awaitsDrain() bool {
	return s.clientHigh || s.upHigh ||
		(s.ending && (s.client != nil || s.state == upOpen)) ||
		(s.client == nil && s.state == upOpen)
}

// checkDrain looks at the outbound buffers and reports whether they have become smaller.
func (s *session) checkDrain() bool {
	n := outbound(s.client) + outbound(s.up)
	progress := n < s.drained
	s.drained = n
	if progress {
		s.moved = s.loop.now
	}
	s.pump()
	return progress
}

func (s *session) checkDeadlines() {
	cfg, now := &s.srv.cfg, s.loop.now
	over := func(since int64, limit time.Duration) bool { return now-since > int64(limit) }
	switch {
	case s.lingerUntil != 0:
		if now > s.lingerUntil {
			s.abort(reasonLinger, errors.New("outstanding bytes did not leave in time"))
		}
	case s.client == nil || s.ending:
	case !s.sawRequest && over(s.opened, cfg.FirstByteTimeout):
		s.timeout(reasonFirstByte, errors.New("no request header since the connection was opened"))
	case s.clientRead != readOn:
		// It cannot send. The time starts again when it can.
		if s.frameSince != 0 {
			s.frameSince, s.frameMoved = now, now
		}
		if over(s.moved, cfg.IdleTimeout) {
			s.timeout(reasonIdle, errors.New("nothing moved: the peer does not read"))
		}
	case s.frameSince != 0 && (over(s.frameMoved, cfg.FrameTimeout) || over(s.frameSince, cfg.FrameTimeout+s.request.allowance())):
		s.timeout(reasonFrame, fmt.Errorf("request is incomplete, %d bytes are missing", s.request.left))
	case over(s.moved, cfg.IdleTimeout):
		s.timeout(reasonIdle, errors.New("idle"))
	}
}

func (s *session) timeout(reason string, err error) {
	s.begin()
	s.fail(reason, err)
	s.finish()
}

// frameClock notes since when a request is incomplete.
func (s *session) frameClock() {
	if s.request.phase == atStart && (s.unread() == 0 || s.blocked()) {
		s.frameSince = 0
	} else if s.frameSince == 0 {
		s.frameSince = s.loop.now
	}
}

// count brings the gauges up to date.
func (s *session) count() {
	if n := s.inflight.replies.len(); n != s.countedFlight {
		s.srv.metrics.inFlight.Add(float64(n - s.countedFlight))
		s.countedFlight = n
	}
	n := 0
	if s.clientRead != readOn {
		n++
	}
	if s.upRead != readOn {
		n++
	}
	if n != s.countedP {
		s.srv.metrics.paused.Add(float64(n - s.countedP))
		s.countedP = n
	}
}
