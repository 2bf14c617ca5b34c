package proxy

import "errors"

// inflight is what a session owes and is owed. See the package documentation for the rule that keeps it this simple:
// nothing is added to replies while its last entry is working. It is pure: no I/O and no clock.
type inflight struct {
	// replies is what the client waits for, in the order of its requests.
	replies ring[reply]
	// expected is what the broker owes, in the order in which requests were sent to it.
	expected ring[expected]
	// held is the number of bytes in answers that wait for their turn.
	held int
}

type replyKind uint8

const (
	replyFromBroker replyKind = iota + 1 // the first expected entry that is for a client has it
	replyAnswer                          // frame is the response
	replyWorking                         // a Work is running; always the last entry
	replyClosing                         // the connection ends here; always the last entry
)

type reply struct {
	kind   replyKind
	frame  []byte
	reason string // of replyClosing, for the metric
	err    error
}

// expected is a response that the broker will send.
type expected struct {
	corr    int32
	key     int16
	version int16
	rewrite Rewrite
	stream  Stream
	// call is set if the gateway itself asked.
	call *call
	// token: the answer to a raw SASL token, which has no correlation ID.
	token bool
}

var errOrder = errors.New("a response came that no request waits for")

func (f *inflight) forward(e expected) {
	f.mustAccept()
	f.expected.push(e)
	f.replies.push(reply{kind: replyFromBroker})
}

func (f *inflight) internal(e expected) { f.expected.push(e) }

func (f *inflight) answer(frame []byte) {
	f.mustAccept()
	f.held += len(frame)
	f.replies.push(reply{kind: replyAnswer, frame: frame})
}

func (f *inflight) work() {
	f.mustAccept()
	f.replies.push(reply{kind: replyWorking})
}

func (f *inflight) close(reason string, err error) {
	f.mustAccept()
	f.replies.push(reply{kind: replyClosing, reason: reason, err: err})
}

// mustAccept: callers ask accepts first.
func (f *inflight) mustAccept() {
	if !f.accepts() {
		panic("proxy: request taken behind one that is not answered yet")
	}
}

// accepts tells whether a further request may be taken.
func (f *inflight) accepts() bool {
	last := f.replies.last()
	return last == nil || (last.kind != replyWorking && last.kind != replyClosing)
}

// worked replaces the working entry by its answer, or by the end of the connection if err is not nil.
func (f *inflight) worked(frame []byte, err error) {
	last := f.replies.last()
	if last == nil || last.kind != replyWorking {
		panic("proxy: answer of a Work that is not in flight")
	}
	if err != nil {
		*last = reply{kind: replyClosing, reason: reasonWork, err: err}
		return
	}
	f.held += len(frame)
	*last = reply{kind: replyAnswer, frame: frame}
}

// next is what the next response of the broker is for, nil if nothing is expected.
func (f *inflight) next() *expected { return f.expected.first() }

// received removes the entry whose response has arrived in full.
func (f *inflight) received() error {
	e := f.expected.first()
	if e == nil {
		return errOrder
	}
	internal := e.call != nil
	f.expected.pop()
	if internal {
		return nil
	}
	if r := f.replies.first(); r == nil || r.kind != replyFromBroker {
		return errOrder
	}
	f.replies.pop()
	return nil
}

// hasReady tells whether the first reply is an answer or the end.
func (f *inflight) hasReady() bool {
	r := f.replies.first()
	return r != nil && (r.kind == replyAnswer || r.kind == replyClosing)
}

// ready takes the first reply if it is an answer or the end.
func (f *inflight) ready() (reply, bool) {
	if !f.hasReady() {
		return reply{}, false
	}
	out := *f.replies.first()
	f.held -= len(out.frame)
	f.replies.pop()
	return out, true
}

// ring is a queue in a buffer that is used again.
type ring[T any] struct {
	buf  []T // length is zero or a power of two
	head int
	n    int
}

func (r *ring[T]) len() int { return r.n }

func (r *ring[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ring[T]) first() *T {
	if r.n == 0 {
		return nil
	}
	return r.at(0)
}

func (r *ring[T]) last() *T {
	if r.n == 0 {
		return nil
	}
	return r.at(r.n - 1)
}

func (r *ring[T]) push(v T) {
	if r.n == len(r.buf) {
		grown := make([]T, max(4, 2*len(r.buf)))
		for i := range r.n {
			grown[i] = *r.at(i)
		}
		r.buf, r.head = grown, 0
	}
	r.n++
	*r.at(r.n - 1) = v
}

func (r *ring[T]) pop() {
	var zero T
	*r.at(0) = zero
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
}
