package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/panjf2000/gnet/v2"
	"go.uber.org/zap"
)

// loop is what the sessions of one event loop share. All fields but srv and events are touched on that loop only.
type loop struct {
	srv    *Server
	events gnet.EventLoop
	poller poller

	sessions map[*session]struct{}
	// draining are the sessions that wait for an outbound buffer to get smaller.
	draining map[*session]struct{}
	timer    *time.Timer
	interval time.Duration

	// now is the time in nanoseconds, as of the last tick. It is good enough for deadlines and costs nothing.
	now      int64
	stopping bool

	prefix [lengthBytes]byte
	iov    [2][]byte
}

// Waiting sessions are looked at after drainMin while their buffers get smaller, and less often while they do not.
const (
	drainMin = time.Millisecond
	drainMax = 64 * time.Millisecond
)

func newLoop(srv *Server, c gnet.Conn) *loop {
	return &loop{
		srv:      srv,
		events:   c.EventLoop(),
		poller:   pollerOf(c),
		sessions: make(map[*session]struct{}),
		draining: make(map[*session]struct{}),
		interval: drainMin,
		now:      time.Now().UnixNano(),
	}
}

// post runs f on the loop, soon. It returns false, and f never runs, if the server has ended.
func (l *loop) post(f func()) bool {
	l.srv.engineMu.RLock()
	defer l.srv.engineMu.RUnlock()
	if l.srv.engineDone {
		return false
	}
	return l.events.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
		f()
		return nil
	})) == nil
}

// guard runs f for s; a panic in it, which is a bug of this package or of the handler, ends that connection only.
func (l *loop) guard(s *session, f func()) {
	defer func() {
		if r := recover(); r != nil {
			s.panicked(r)
		}
	}()
	f()
}

func (s *session) panicked(r any) {
	s.log().Error("panic while serving a connection", zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
	s.abort(reasonPanic, fmt.Errorf("panic: %v", r))
}

// awaitDrain has s looked at again soon.
func (l *loop) awaitDrain(s *session) {
	if _, ok := l.draining[s]; ok {
		return
	}
	l.draining[s] = struct{}{}
	if l.timer == nil {
		l.timer = time.AfterFunc(drainMin, func() { l.post(l.drain) })
	} else if len(l.draining) == 1 || l.interval > drainMin {
		l.timer.Reset(drainMin)
	}
	l.interval = drainMin
}

func (l *loop) drain() {
	progress := false
	for s := range l.draining {
		l.guard(s, func() { progress = s.checkDrain() || progress })
		if s.gone || !s.awaitsDrain() {
			delete(l.draining, s)
		}
	}
	if len(l.draining) == 0 {
		return
	}
	if progress {
		l.interval = drainMin
	} else {
		l.interval = min(2*l.interval, drainMax)
	}
	l.timer.Reset(l.interval)
}

// tick updates the clock and enforces deadlines.
func (l *loop) tick() {
	l.now = time.Now().UnixNano()
	for s := range l.sessions {
		l.guard(s, s.checkDeadlines)
	}
}

// stop lets every session end as soon as nothing is in flight.
func (l *loop) stop() {
	l.stopping = true
	for s := range l.sessions {
		l.guard(s, s.pump)
	}
}

func (l *loop) abortAll() {
	l.stopping = true
	for s := range l.sessions {
		s.abort(reasonStop, errStopped)
	}
}

func (l *loop) release() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// writeFrame writes a length and a frame to c in one call. The frame is not kept.
func (l *loop) writeFrame(c gnet.Conn, frame []byte) {
	binary.BigEndian.PutUint32(l.prefix[:], uint32(len(frame)))
	l.iov[0], l.iov[1] = l.prefix[:], frame
	_, _ = c.Writev(l.iov[:]) // on an error gnet has closed c, and the session knows
	l.iov[0], l.iov[1] = nil, nil
}
