package proxy

import (
	"context"
	"slices"
	"time"
)

// waiting is a request that the handler wants to be asked about again later (Decision.Wait). It is not taken yet: no reply is
// owed for it in inflight, nothing behind it is looked at, and the broker has not seen it.
type waiting struct {
	h      Header
	frame  []byte // a copy, within the server's budget
	since  time.Time
	cancel context.CancelFunc
}

// wait keeps a request until its time has come.
func (s *session) wait(h Header, frame []byte, d *Wait) {
	w := &waiting{h: h, since: time.Now()}
	s.hold(&w.frame, frame, len(frame))
	if s.ending { // there is no room for it
		s.letGo(&w.frame)
		return
	}
	s.srv.metrics.waiting.Inc()
	s.waiting = w
	s.watch(w, d)
}

// watch has w looked at again when d says so.
func (s *session) watch(w *waiting, d *Wait) {
	var ctx context.Context
	ctx, w.cancel = context.WithTimeout(s.srv.ctx, d.For)
	cancel := w.cancel
	s.srv.owned.Go(func() {
		defer cancel()
		select {
		case <-d.Until:
		case <-ctx.Done():
		}
		s.loop.post(func() { s.loop.guard(s, func() { s.askAgain(w) }) })
	})
}

// askAgain has the handler decide about a request that has waited.
func (s *session) askAgain(w *waiting) {
	if s.gone || s.waiting != w {
		return
	}
	s.begin()
	w.h.Waited = max(1, time.Since(w.since))
	d := s.handler.Request(s, w.h, w.frame)
	if d.Wait != nil {
		s.watch(w, d.Wait)
	} else {
		s.waiting = nil
		s.srv.metrics.waiting.Dec()
		s.carryOut(w.h, d)
		s.letGo(&w.frame)
	}
	s.finish()
}

// abandonWait drops a request that waits and all behind it, unseen by the broker: the client is gone, and sends them again
// somewhere else. Were those behind it sent on, they would arrive there before it.
func (s *session) abandonWait() {
	w := s.waiting
	if w == nil {
		return
	}
	s.waiting = nil
	s.srv.metrics.waiting.Dec()
	w.cancel()
	s.letGo(&w.frame)
	s.pending, s.taken = nil, 0
	s.ending = true
}

// answerAndClose sends the handler's answer, then ends the connection.
func (s *session) answerAndClose(h Header, d Decision) {
	if !s.mustLogIn(h) {
		s.answer(h, slices.Clone(d.Answer))
	}
	if !s.ending {
		s.refuse(d.Close)
	}
}
