package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// requestPhase is where the session is in the request that arrives.
type requestPhase uint8

const (
	atStart    requestPhase = iota // between frames
	opening                        // large; the handler decides by its start whether it streams or is collected
	deciding                       // it streams, but its start must tell whether a response comes
	streaming                      // left bytes go through as they come
	collecting                     // left bytes go into buf
)

type requestState struct {
	phase requestPhase
	h     Header
	route Route
	left  int
	buf   []byte
	// still is Pass.Still of a request that streams.
	still func() error
}

// slowestClient is how fast a request must arrive at least, in bytes a second; see Config.FrameTimeout.
const slowestClient = 16 << 10

// allowance is the extra time that a request gets for its size.
func (r *requestState) allowance() time.Duration {
	if r.phase == atStart {
		return 0
	}
	return time.Duration(r.h.Size) * time.Second / slowestClient
}

// tokenState counts the raw SASL tokens that follow a SaslHandshake v0.
type tokenState struct {
	left       int
	lastSilent bool
}

// tokenMax bounds one raw SASL token; Kerberos tickets with large authorization data are below it.
const tokenMax = 1 << 20

// fromClient is called with what has been read from the client.
func (s *session) fromClient(data []byte) {
	s.moved, s.frameMoved = s.loop.now, s.loop.now
	s.clientRead.wasRead()
	s.srv.metrics.fromClient.Add(float64(len(data)))
	if s.ending {
		return
	}
	if s.unread() > 0 {
		s.pending = append(s.pending, data...) // finish takes it from there
		return
	}
	if n := s.consume(data); n < len(data) {
		s.pending, s.taken = append(s.pending[:0], data[n:]...), 0
	}
}

// unread is how many received bytes have not been taken.
func (s *session) unread() int { return len(s.pending) - s.taken }

// keepPending is the largest pending buffer that an otherwise idle session keeps.
const keepPending = 16 << 10

// takePending takes what had to wait, if it may go now.
func (s *session) takePending() {
	if s.unread() == 0 || s.ending {
		return
	}
	s.taken += s.consume(s.pending[s.taken:])
	switch {
	case s.unread() == 0 && cap(s.pending) > keepPending:
		s.pending, s.taken = nil, 0
	case s.unread() == 0:
		s.pending, s.taken = s.pending[:0], 0
	case s.taken > len(s.pending)/2:
		s.pending = s.pending[:copy(s.pending, s.pending[s.taken:])]
		s.taken = 0
	}
}

// blocked tells whether the next request must wait. What a client left behind when it went is only held up by dialling.
func (s *session) blocked() bool {
	if s.ending || s.waiting != nil || s.state > upOpen || s.state == upDialing || !s.inflight.accepts() {
		return true
	}
	if s.client == nil {
		return false
	}
	return s.loop.stopping || s.clientHigh || s.upHigh ||
		s.inflight.replies.len() >= s.srv.cfg.MaxInFlight || s.inflight.held > s.srv.cfg.OutboundHigh
}

// consume takes as much of data as may go and returns how much that was. Requests that stream are not written one by
// one: data[sent:off] is what goes to the broker as it is.
func (s *session) consume(data []byte) int {
	off, sent := 0, 0
	flush := func() bool {
		if sent < off {
			s.toBroker(data[sent:off])
		}
		sent = off
		return s.up != nil || s.state < upOpen
	}
	for more := true; more && off < len(data) && !s.ending; {
		switch s.request.phase {
		case atStart:
			more = s.startRequest(data[off:], flush)
		case opening:
			more = s.open(data[off:])
		case deciding:
			more = s.decideStream(data[off:])
		case streaming:
			if err := s.mayPass(); err != nil {
				flush()
				s.fail(reasonHandler, err)
				break
			}
			n := min(s.request.left, len(data)-off)
			off += n
			if s.request.left -= n; s.request.left == 0 {
				s.endRequest()
			}
		case collecting:
			if !flush() {
				return len(data)
			}
			off += s.collect(data[off:])
			sent = off
		}
	}
	flush()
	if s.ending {
		return len(data)
	}
	return off
}

func (s *session) endRequest() {
	s.letGo(&s.request.buf)
	s.request = requestState{}
	s.frameSince = 0
}

// startRequest routes the request that begins with b. It returns false if it has to wait.
func (s *session) startRequest(b []byte, flush func() bool) bool {
	if s.blocked() {
		return false
	}
	if s.tokens.left > 0 {
		return s.startToken(b)
	}
	h, ok, err := peekRequest(b, s.srv.cfg.MaxFrameBytes)
	if err != nil {
		flush()
		s.failFrame(err)
		return false
	}
	if !ok {
		return false
	}
	s.sawRequest = true
	if s.state == upNone {
		s.dial()
		return false
	}
	s.srv.metrics.request(h.Key)
	route := s.handler.Route(s, h)
	switch {
	case route.Close != nil:
		s.refuse(route.Close)
		return false
	case route.Opening != nil && h.Size >= openFrom:
		s.request = requestState{phase: opening, h: h, route: route, left: lengthBytes + int(h.Size)}
	case route.Whole:
		s.request = requestState{phase: collecting, h: h, left: lengthBytes + int(h.Size)}
	default:
		s.request = requestState{phase: deciding, h: h, route: route, left: lengthBytes + int(h.Size)}
	}
	s.frameSince = 0
	return true
}

func (s *session) failFrame(err error) { s.fail(frameReason(err, reasonHeader), err) }

// refuse ends the connection after the responses before.
func (s *session) refuse(err error) { s.inflight.close(reasonHandler, err) }

// decideStream notes which response the request that begins with b will get, and lets it go.
func (s *session) decideStream(b []byte) bool {
	silent, err := s.readAhead(s.request.h, b[lengthBytes:])
	if err == errMore {
		return false
	}
	if err != nil {
		s.failFrame(err)
		return false
	}
	if !silent {
		h := s.request.h
		s.inflight.forward(expected{corr: h.CorrelationID, key: h.Key, version: h.Version, rewrite: s.request.route.Rewrite, stream: s.request.route.Stream})
	}
	s.request.phase = streaming
	return true
}

// readAhead reads what the proxy itself must know of a request that goes to the broker: whether it gets no response.
func (s *session) readAhead(h Header, frame []byte) (silent bool, err error) {
	switch {
	case h.Key == keyProduce:
		acks, err := produceAcks(h, frame)
		return acks == 0, err
	case h.Key == keySaslHandshake && h.Version == 0:
		n, lastSilent, err := saslTokens(h, frame)
		if err == nil {
			s.tokens = tokenState{left: n, lastSilent: lastSilent}
		}
		return false, err
	}
	return false, nil
}

// startToken streams a raw SASL token. Its answer is one too, without a correlation ID.
func (s *session) startToken(b []byte) bool {
	if len(b) < lengthBytes {
		return false
	}
	size := int32(binary.BigEndian.Uint32(b))
	if size < 0 || size > tokenMax {
		s.failFrame(lengthError(b, size, tokenMax))
		return false
	}
	s.tokens.left--
	if s.tokens.left > 0 || !s.tokens.lastSilent {
		s.inflight.forward(expected{token: true, key: keySaslHandshake})
	}
	s.request = requestState{phase: streaming, h: Header{Key: keySaslHandshake, Size: size}, left: lengthBytes + int(size)}
	return true
}

// collect takes what data has of a request that the handler wants whole. A frame that is there in full is not copied.
func (s *session) collect(data []byte) int {
	r := &s.request
	size := int(r.h.Size)
	if len(r.buf) == 0 && r.left == lengthBytes+size && len(data) >= r.left {
		n := r.left
		s.decide(r.h, data[lengthBytes:n:n])
		return n
	}
	n := min(r.left, len(data))
	s.hold(&r.buf, data[:n], lengthBytes+size)
	if r.left -= n; r.left == 0 && !s.ending {
		s.decide(r.h, r.buf[lengthBytes:])
	}
	return n
}

// decide does what the handler says about a whole request.
func (s *session) decide(h Header, frame []byte) {
	collected := s.request.buf // frame may be in it
	s.request.buf = nil
	defer s.letGo(&collected)
	s.endRequest()
	d := s.handler.Request(s, h, frame)
	if d.Wait != nil {
		s.wait(h, frame, d.Wait)
		return
	}
	s.carryOut(h, d)
}

func (s *session) carryOut(h Header, d Decision) {
	switch {
	case d.Answer != nil && d.Close != nil:
		s.answerAndClose(h, d)
	case d.Close != nil:
		s.refuse(d.Close)
	case d.Answer != nil && s.mustLogIn(h):
		answer := slices.Clone(d.Answer)
		s.workFor(h, afterLogin(func(context.Context, Upstream) ([]byte, error) { return answer, nil }))
	case d.Answer != nil:
		s.answer(h, d.Answer)
	case d.Work != nil && s.mustLogIn(h):
		s.workFor(h, afterLogin(d.Work))
	case d.Work != nil:
		s.workFor(h, d.Work)
	case d.Forward != nil:
		s.forward(h, d)
	default:
		s.fail(reasonHandler, fmt.Errorf("handler decided nothing about a request with API key %d", h.Key))
	}
}

func (s *session) answer(h Header, frame []byte) {
	if err := checkCorrelation(frame, h.CorrelationID); err != nil {
		s.fail(reasonHandler, fmt.Errorf("answer to a request with API key %d: %w", h.Key, err))
		return
	}
	if s.inflight.replies.len() == 0 {
		s.toClientFrame(frame)
		return
	}
	s.inflight.answer(slices.Clone(frame)) // it may be part of the request
}

func (s *session) forward(h Header, d Decision) {
	sent, err := peekForward(d.Forward, h.CorrelationID, s.srv.cfg.MaxFrameBytes)
	if err != nil {
		s.fail(reasonHandler, fmt.Errorf("handler's version of a request with API key %d: %w", h.Key, err))
		return
	}
	silent, err := s.readAhead(sent, d.Forward)
	if err != nil {
		s.failFrame(err)
		return
	}
	if d.Ask != nil {
		s.ask(h, d.Ask, d.Asked)
	}
	if !silent && !d.NoResponse {
		s.inflight.forward(expected{corr: h.CorrelationID, key: sent.Key, version: sent.Version, rewrite: d.Rewrite, stream: d.Stream})
	}
	s.toBrokerFrame(d.Forward)
}

// ask sends a request of the gateway's own, with the client's correlation ID, whose response no client sees.
func (s *session) ask(h Header, req kmsg.Request, asked func(frame []byte)) {
	s.inflight.internal(expected{corr: h.CorrelationID, key: req.Key(), version: req.GetVersion(), call: &call{asked: asked}})
	s.toBroker(formatter.AppendRequest(nil, req, h.CorrelationID))
}

// peekForward reads the start of a request frame that a handler wants to send, and checks that it can be sent.
func peekForward(frame []byte, correlationID, maxBytes int32) (Header, error) {
	var start [requestPeek]byte
	binary.BigEndian.PutUint32(start[:], uint32(len(frame)))
	copy(start[lengthBytes:], frame)
	h, _, err := peekRequest(start[:], maxBytes)
	if err == nil && h.CorrelationID != correlationID {
		err = fmt.Errorf("correlation ID %d became %d", correlationID, h.CorrelationID)
	}
	return h, err
}

// checkCorrelation checks that a response frame of the gateway's own answers that request.
func checkCorrelation(frame []byte, want int32) error {
	if len(frame) < 4 {
		return fmt.Errorf("response of %d bytes", len(frame))
	}
	if got := int32(binary.BigEndian.Uint32(frame)); got != want {
		return fmt.Errorf("correlation ID %d, not %d", got, want)
	}
	return nil
}

// toBroker writes raw bytes to the broker.
func (s *session) toBroker(b []byte) {
	if s.up != nil && s.state == upOpen {
		s.srv.metrics.toBroker.Add(float64(len(b)))
		_, _ = s.up.Write(b) // on an error gnet has closed it, and called closed
	}
}

func (s *session) toBrokerFrame(frame []byte) {
	if s.up != nil && s.state == upOpen {
		s.srv.metrics.toBroker.Add(float64(lengthBytes + len(frame)))
		s.loop.writeFrame(s.up, frame)
	}
}
