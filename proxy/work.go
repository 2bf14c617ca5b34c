package proxy

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
)

// job is a Work that runs for a session.
type job struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	nextCorr atomic.Int32
}

// workFor is startWork if anybody waits for it.
func (s *session) workFor(h Header, work Work) {
	if s.client != nil {
		s.startWork(h, work)
	}
}

// startWork has work run on a worker; the answer comes back to the loop as workDone.
func (s *session) startWork(h Header, work Work) {
	limited, stop := context.WithTimeoutCause(s.srv.ctx, s.srv.cfg.WorkTimeout,
		fmt.Errorf("the gateway did not answer within %v", s.srv.cfg.WorkTimeout))
	ctx, cancel := context.WithCancelCause(limited)
	j := &job{ctx: ctx, cancel: cancel}
	end := func() { cancel(nil); stop() }
	ok := s.srv.workers.submit(func() {
		defer end()
		defer s.srv.metrics.working.Dec()
		frame, err := s.runWork(j, work)
		if err == nil {
			err = checkCorrelation(frame, h.CorrelationID)
		}
		if err != nil {
			err = fmt.Errorf("answering a request with API key %d version %d: %w", h.Key, h.Version, err)
		}
		s.loop.post(func() { s.workDone(j, frame, err) })
	})
	if !ok {
		end()
		s.inflight.close(reasonWork, errors.New("too many requests wait for the gateway to answer them"))
		return
	}
	s.work = j
	s.inflight.work()
	s.srv.metrics.working.Inc()
}

func (s *session) runWork(j *job, work Work) (frame []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			s.srv.log.Error("panic in the answer to a request", zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	if j.ctx.Err() != nil { // it went away while queued
		return nil, context.Cause(j.ctx)
	}
	return work(j.ctx, roundTrips{s: s, job: j})
}

// workDone puts the answer in its turn.
func (s *session) workDone(j *job, frame []byte, err error) {
	if s.gone || s.work != j {
		return
	}
	s.work = nil
	s.begin()
	s.inflight.worked(frame, err)
	s.finish()
}

// abandonWork ends a Work nobody waits for. Requests behind it may go on.
func (s *session) abandonWork() {
	if s.work == nil {
		return
	}
	s.work.cancel(errSessionClosed)
	s.work = nil
	s.inflight.worked(nil, nil)
}

// workers runs functions on at most max goroutines, which end when there is nothing to do. At most queueMax functions
// wait.
type workers struct {
	max, queueMax int

	mu      sync.Mutex
	queue   []func()
	running int
	group   sync.WaitGroup
}

func (w *workers) submit(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) >= w.queueMax {
		return false
	}
	w.queue = append(w.queue, f)
	if w.running < w.max {
		w.running++
		w.group.Go(w.run)
	}
	return true
}

func (w *workers) run() {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.running--
			w.queue = nil
			w.mu.Unlock()
			return
		}
		f := w.queue[0]
		w.queue[0] = nil
		w.queue = w.queue[1:]
		w.mu.Unlock()
		f()
	}
}

// wait waits until every function has returned, or ctx ends.
func (w *workers) wait(ctx context.Context) error { return waitFor(ctx, &w.group) }

// waitFor waits for a group. If ctx ends first the waiting goroutine stays until the group is done, as what it waits
// for does.
func waitFor(ctx context.Context, group *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
