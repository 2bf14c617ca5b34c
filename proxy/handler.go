package proxy

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Header is what the gateway reads of every request before it decides how to route it.
type Header struct {
	Key           int16
	Version       int16
	CorrelationID int32
	// Size is the length of the whole frame in bytes, without its four length bytes.
	Size int32
	// Waited is for how long the request has waited since the handler first decided so (Decision.Wait); 0 if it has not.
	Waited time.Duration
}

// Handler decides what happens to requests. It is the seam between the proxy, which knows bytes and order, and the
// package handlers, which knows what the bytes mean. All its methods run on event loops: they must not block.
type Handler interface {
	// Route is called once per request, as soon as its header is there.
	Route(c Client, h Header) Route
	// Request is called with the whole frame (request header included, length excluded) of a request whose route
	// asked for it. The frame belongs to the proxy: it may be changed in place during the call, and may be returned
	// in the decision, but not kept otherwise.
	Request(c Client, h Header, frame []byte) Decision
}

// Client identifies a client connection to a handler.
type Client interface {
	// ID is unique within the life of the process.
	ID() uint64
	// RemoteAddr is the client's address, for logs.
	RemoteAddr() string
	// Node is the destination broker this session is paired with, -1 on the bootstrap listener.
	Node() int32
}

// Rewrite changes a whole response frame (response header included, length excluded) and returns the frame to send,
// which may be the same slice. It runs on the event loop. An error closes the connection with that reason.
type Rewrite func(frame []byte) ([]byte, error)

// Stream starts the rewriting of a response frame of size bytes (length excluded) that is too large to be held: it is
// rewritten as it passes, and keeps its length. It returns nil if it cannot.
type Stream func(size int) Passage

// Passage rewrites one response frame on its way. It runs on the event loop. An error closes the connection, in the middle
// of the frame.
type Passage interface {
	// Feed takes the next bytes of the frame, which it may change in place, and returns what can go to the client. The
	// slices are valid until the next call.
	Feed(data []byte) ([][]byte, error)
	// End is called when the whole frame was fed. What Feed has returned must have the frame's length by then.
	End() error
}

// Opening decides about a large request by its beginning: start is what has come of its frame (request header included, length
// excluded), openingBytes at least. It returns how the request goes to the broker as it comes, or nil if it
// travels as the rest of its route says. start may be changed in place only if it passes. It runs on the event loop.
type Opening func(start []byte) *Pass

// Pass is how a request travels that goes to the broker as it comes.
type Pass struct {
	// Rewrite and Stream are as in Route.
	Rewrite Rewrite
	Stream  Stream
	// Still is asked before each further part of the request goes, as a slow client may take long to send it. An error ends
	// the connection: the broker never gets the rest, and so takes nothing of it.
	Still func() error
}

// Work answers a request from the gateway itself. It runs on a worker goroutine, may block until ctx ends, and may use
// the client's own broker connection through up. It returns the whole response frame.
type Work func(ctx context.Context, up Upstream) ([]byte, error)

// Route says how a request travels.
type Route struct {
	// Whole: collect the whole request and call Handler.Request, whose decision then counts instead of this route.
	Whole bool
	// Opening, if not nil, is asked first about a large request.
	Opening Opening
	// Rewrite is applied to the response; nil streams it through untouched.
	Rewrite Rewrite
	// Stream is used instead of Rewrite, if it is not nil, for large responses.
	Stream Stream
	// Close, if not nil, ends the connection with this reason.
	Close error
}

// Decision says what happens to a request that was seen whole. Exactly one of Forward, Answer, Work, Wait and Close is set;
// but Answer and Close may be together: then the connection ends behind the answer.
type Decision struct {
	// Forward is the request frame to send to the broker. Its API key may be another than that of the client's request.
	Forward []byte
	// Ask, if not nil, is a request of the gateway's own that is sent directly before Forward; Asked is called on the
	// loop with the whole frame of its response, before Rewrite. The frame is only valid during the call.
	Ask   kmsg.Request
	Asked func(frame []byte)
	// Rewrite is applied to the response of a forwarded request; nil streams it through.
	Rewrite Rewrite
	// Stream is used instead of Rewrite, if it is not nil, for large responses.
	Stream Stream
	// NoResponse: the forwarded request will get no response (Produce with acks=0).
	NoResponse bool
	// Answer is the whole response frame, sent in its turn; the broker does not see the request.
	Answer []byte
	// Work produces the response on a worker; it is sent in its turn.
	Work Work
	// Wait keeps the request, and all behind it on its connection, and asks the handler again later. The frame must not have
	// been changed.
	Wait *Wait
	// Close ends the connection with this reason, after the responses before it.
	Close error
}

// Wait says when a request that waits is looked at again. If its client goes away meanwhile, the request and all behind it
// are dropped.
type Wait struct {
	// Until ends the wait when it is closed.
	Until <-chan struct{}
	// For bounds it; it must be more than 0.
	For time.Duration
}

// Upstream sends requests of the gateway's own over a client's broker connection, in order with the client's, so that
// they carry the client's authenticated identity.
type Upstream interface {
	// RoundTrip sends req at the version set in it and waits for the decoded response.
	RoundTrip(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// Addresses maps destination brokers to the addresses that clients of the gateway use.
type Addresses interface {
	// Advertise records that the destination says broker node is at host:port, makes sure that a listener for it is
	// bound, and returns the address that clients must use instead. It does not block. Node IDs outside the port
	// range are an error that names the setting.
	Advertise(node int32, host string, port int32) (advertisedHost string, advertisedPort int32, err error)
}
