package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// responseState is where the session is in the response that arrives from the broker.
type responseState struct {
	within bool // a frame has begun; left bytes of it are to come
	left   int
	// passage rewrites a large response as it passes; prefix bytes of its length are to come.
	passage Passage
	prefix  int
	hold    bool   // it is needed whole, in buf
	buf     []byte // with the length
	start   [responsePeek]byte
	have    int // bytes in start: the start of a frame that came in pieces
}

// fromBroker is called with what has been read from the broker. As with requests, responses that stream are written
// together: data[sent:off] goes to the client as it is.
func (s *session) fromBroker(data []byte) {
	s.moved = s.loop.now
	s.upRead.wasRead()
	s.srv.metrics.fromBroker.Add(float64(len(data)))
	r := &s.response
	off, sent := 0, 0
	flush := func() {
		if sent < off {
			s.toClient(data[sent:off])
		}
		sent = off
	}
	for off < len(data) && s.up != nil {
		switch {
		case !r.within:
			need := s.responseNeeds()
			if r.have == 0 && len(data)-off >= need {
				if reason, err := s.openResponse(data[off:off+need], len(data)-off); err != nil {
					flush()
					s.failBroker(reason, err)
				}
			} else {
				flush()
				off += s.gatherStart(data[off:], need)
				sent = off
			}
		case r.hold:
			flush()
			off += s.holdResponse(data[off:])
			sent = off
		case r.passage != nil:
			flush()
			n := min(r.left, len(data)-off)
			s.pass(data[off : off+n])
			off += n
			sent = off
		default:
			n := min(r.left, len(data)-off)
			off += n
			r.left -= n
		}
		if r.within && r.left == 0 {
			s.closeResponse(flush)
		}
	}
	flush()
}

// responseNeeds is how many bytes say whose response comes next.
func (s *session) responseNeeds() int {
	if e := s.inflight.next(); e != nil && e.token {
		return lengthBytes
	}
	return responsePeek
}

// gatherStart collects the start of a response of which the last read had only a part.
func (s *session) gatherStart(data []byte, need int) int {
	r := &s.response
	n := copy(r.start[r.have:need], data)
	r.have += n
	if r.have >= lengthBytes && r.have < need && looksLikeTLS(r.start[:]) { // an alert has 7 bytes
		s.failBroker(reasonTLS, errors.New("the broker's port looks like TLS"))
		return n
	}
	if r.have < need {
		return n
	}
	if reason, err := s.openResponse(r.start[:need], need); err != nil {
		s.failBroker(reason, err)
		return n
	}
	r.have = 0
	switch {
	case r.passage != nil:
		s.pass(r.start[:need])
		return n
	case r.hold:
		s.hold(&r.buf, r.start[:need], r.left)
	default:
		s.toClient(r.start[:need])
	}
	r.left -= need
	if r.hold && r.left == 0 {
		s.deliver(r.buf[lengthBytes:])
	}
	return n
}

// failBroker ends the session because of what the broker sent, of which nothing more can be understood.
func (s *session) failBroker(reason string, err error) {
	s.fail(reason, err)
	s.closeUp()
}

// openResponse matches the response that begins with b with the request it must be for. there is how much of it has come.
func (s *session) openResponse(b []byte, there int) (reason string, err error) {
	e := s.inflight.next()
	var size, corr int32
	if e != nil && e.token {
		if size = int32(binary.BigEndian.Uint32(b)); size < 0 || size > tokenMax {
			err = lengthError(b, size, tokenMax)
		}
	} else {
		size, corr, err = peekResponse(b)
	}
	switch {
	case err != nil:
		reason = frameReason(err, reasonResponse)
		if reason == reasonLength {
			reason = reasonResponse
		}
		return reason, fmt.Errorf("response of the broker: %w", err)
	case e == nil:
		return reasonOrder, errOrder
	case !e.token && corr != e.corr:
		return reasonOrder, fmt.Errorf("response with correlation ID %d, but %d is next (API key %d version %d)", corr, e.corr, e.key, e.version)
	}
	r := &s.response
	if r.passage = s.passage(e, size, there); r.passage != nil {
		r.prefix = lengthBytes
	}
	if r.hold = r.passage == nil && s.holds(e); r.hold && size > s.srv.cfg.MaxFrameBytes {
		return reasonResponse, fmt.Errorf("response of %d bytes to a request with API key %d is too large to be rewritten", size, e.key)
	}
	s.loggedIn = s.loggedIn || provesLogin(e)
	r.within, r.left = true, lengthBytes+int(size)
	return "", nil
}

// streamFrom is the size in bytes from which on a response that can be rewritten on its way is not held. Smaller ones are
// rewritten as a whole, which leaves no traces of what was taken out.
const streamFrom = 128 << 10

// passage returns what rewrites a response on its way, nil if it is held or passes untouched. One that is there in full
// costs nothing to hold.
func (s *session) passage(e *expected, size int32, there int) Passage {
	if e.stream == nil || e.call != nil || s.client == nil || size < streamFrom || lengthBytes+int(size) <= there {
		return nil
	}
	return e.stream(int(size))
}

// pass sends on what the passage makes of the next bytes of a response.
func (s *session) pass(data []byte) {
	r := &s.response
	r.left -= len(data)
	n := min(r.prefix, len(data))
	if n > 0 {
		s.toClient(data[:n])
		r.prefix -= n
	}
	pieces, err := r.passage.Feed(data[n:])
	s.toClientPieces(pieces)
	if err == nil && r.left == 0 {
		err = r.passage.End()
	}
	if err != nil {
		e := s.inflight.next()
		s.failBroker(reasonRewrite, fmt.Errorf("response to API key %d version %d: %w", e.key, e.version, err))
	}
}

// holds tells whether a response must be there in full: the gateway's own, and those to rewrite, if there is still a
// client for them.
func (s *session) holds(e *expected) bool {
	return e.call != nil || (e.rewrite != nil && s.client != nil)
}

// holdResponse takes what data has of a response that is needed whole. A frame that is there in full is not copied.
func (s *session) holdResponse(data []byte) int {
	r := &s.response
	if len(r.buf) == 0 && len(data) >= r.left {
		n := r.left
		r.left = 0
		s.deliver(data[lengthBytes:n:n])
		return n
	}
	n := min(r.left, len(data))
	s.hold(&r.buf, data[:n], len(r.buf)+r.left)
	if r.left -= n; r.left == 0 {
		s.deliver(r.buf[lengthBytes:])
	}
	return n
}

// deliver hands a whole response to whom it is for.
func (s *session) deliver(frame []byte) {
	e := s.inflight.next()
	if e.call != nil {
		e.call.answer(frame)
		return
	}
	if s.client == nil || s.ending {
		return
	}
	out, err := e.rewrite(frame)
	if err == nil {
		err = checkCorrelation(out, e.corr)
	}
	if err != nil {
		s.fail(reasonRewrite, fmt.Errorf("response to API key %d version %d: %w", e.key, e.version, err))
		return
	}
	s.toClientFrame(out)
}

// closeResponse is called when a response has arrived in full.
func (s *session) closeResponse(flush func()) {
	s.letGo(&s.response.buf)
	s.response = responseState{}
	if err := s.inflight.received(); err != nil {
		s.failBroker(reasonOrder, err)
		return
	}
	if s.inflight.hasReady() {
		flush()
		s.sendAnswers()
	}
}

// sendAnswers sends the answers whose turn it is.
func (s *session) sendAnswers() {
	for {
		r, ok := s.inflight.ready()
		if !ok {
			return
		}
		if r.kind == replyClosing {
			s.fail(r.reason, r.err)
			return
		}
		s.toClientFrame(r.frame)
	}
}

// toClient writes raw bytes to the client.
func (s *session) toClient(b []byte) {
	if s.client != nil && !s.ending {
		s.srv.metrics.toClient.Add(float64(len(b)))
		_, _ = s.client.Write(b) // on an error gnet has closed it, and called closed
	}
}

// maxPieces is how many the kernel is given at a time (it takes 1024).
const maxPieces = 512

// toClientPieces writes pieces. They are not kept.
func (s *session) toClientPieces(pieces [][]byte) {
	n := 0
	for _, p := range pieces {
		n += len(p)
	}
	for some := range slices.Chunk(pieces, maxPieces) {
		if s.client == nil || s.ending {
			return
		}
		_, _ = s.client.Writev(some) // on an error gnet has closed it, and called closed
	}
	s.srv.metrics.toClient.Add(float64(n))
}

func (s *session) toClientFrame(frame []byte) {
	if s.client != nil && !s.ending {
		s.srv.metrics.toClient.Add(float64(lengthBytes + len(frame)))
		s.loop.writeFrame(s.client, frame)
	}
}
