package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrClosed is what requests get when Close ended the connection before their response came.
var ErrClosed = errors.New("connection is closed")

// ErrTimeout is wrapped by the error of a connection that ended because a response was overdue.
var ErrTimeout = errors.New("no response in time")

const (
	// requestHeader is the size of the fixed part of a request: length, key, version, correlation ID.
	requestHeader = 4 + 2 + 2 + 4
	// readStep is how many bytes of a response must arrive within the request timeout to keep the connection.
	readStep = 1 << 20
)

// Conn is a pipelined connection to one broker. All methods may be called concurrently.
type Conn struct {
	addr     string
	cfg      Config
	nc       net.Conn
	versions map[int16]versionRange

	// sendMu orders requests: it is held while a request is queued and written, so that responses come in the order
	// of the queue. Lock order: sendMu before mu.
	sendMu sync.Mutex
	// parked holds requests back while SASL re-authentication is under way (reauth).
	parked []parked
	reauth bool

	mu          sync.Mutex
	pending     []call // requests without a response, oldest first
	correlation int32
	err         error // why the connection ended

	dead chan struct{} // closed with err set
	done chan struct{} // closed when all calls have been answered after that
	wg   sync.WaitGroup
}

type call struct {
	correlation int32
	flexible    bool // the response header has tagged fields
	done        func(body []byte, err error)
}

type parked struct {
	buffers net.Buffers
	call    call
}

type versionRange struct{ min, max int16 }

// Dial connects to a broker at host:port, asks for its versions and authenticates. ctx bounds only the dialling; the
// connection lives until Close, or until it breaks.
func Dial(ctx context.Context, addr string, cfg Config) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.requestTimeout())
	defer cancel()
	nc, err := cfg.dial(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connecting to broker %s: %w", addr, err)
	}
	c := &Conn{addr: addr, cfg: cfg, nc: nc, dead: make(chan struct{}), done: make(chan struct{})}
	c.wg.Add(1)
	go c.read()
	if err := c.greet(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("connecting to broker %s: %w", addr, err)
	}
	return c, nil
}

// greet does what comes before the first real request.
func (c *Conn) greet(ctx context.Context) error {
	if err := c.fetchVersions(ctx); err != nil {
		return fmt.Errorf("asking for API versions: %w", err)
	}
	if c.cfg.SASL == nil {
		return nil
	}
	lifetime, err := c.authenticate(ctx, c.requestNow)
	if err != nil {
		return err
	}
	if lifetime > 0 {
		c.wg.Add(1)
		go c.keepAuthenticated(lifetime)
	}
	return nil
}

// Addr returns the address that was dialled.
func (c *Conn) Addr() string { return c.addr }

// Version returns the highest version of the API key that the broker has and that is not above max, and false if there
// is none.
func (c *Conn) Version(key, max int16) (int16, bool) {
	r, ok := c.versions[key]
	v := min(r.max, max)
	return v, ok && v >= r.min
}

// SetVersion sets the version of req to the highest that the broker has, max and the package kmsg at most.
func (c *Conn) SetVersion(req kmsg.Request, max int16) error {
	v, ok := c.Version(req.Key(), min(max, req.MaxVersion()))
	if !ok {
		return fmt.Errorf("broker %s has no usable version of %s", c.addr, kmsg.NameForKey(req.Key()))
	}
	req.SetVersion(v)
	return nil
}

// Send sends req at the version set in it. done is called exactly once, from one goroutine for all requests, in the
// order in which they were sent: with the response behind its header, which is done's to keep, or with the error that
// ended the connection. It must not block, nor call Close. When Send returns an error, the request was not sent and done
// is not called. Send blocks while the socket takes no more bytes (RequestTimeout at most).
func (c *Conn) Send(req kmsg.Request, done func(body []byte, err error)) error {
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(c.cfg.clientID())).AppendRequest(nil, req, 0)
	return c.send(net.Buffers{frame}, call{flexible: flexibleResponse(req.Key(), req.GetVersion()), done: done}, false)
}

// SendFrames is Send for a request body that is put together by the caller, without copying it: parts are written one
// after the other behind the request header. They must not change until done is called.
func (c *Conn) SendFrames(key, version int16, parts net.Buffers, done func(body []byte, err error)) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	buffers := make(net.Buffers, 1, len(parts)+1)
	buffers[0] = c.appendHeader(key, version, size)
	buffers = append(buffers, parts...)
	return c.send(buffers, call{flexible: flexibleResponse(key, version), done: done}, false)
}

// appendHeader makes the header of a request whose body has size bytes.
func (c *Conn) appendHeader(key, version int16, size int) []byte {
	id := c.cfg.clientID()
	flexible := flexibleRequest(key, version)
	h := make([]byte, requestHeader, requestHeader+2+len(id)+1)
	binary.BigEndian.PutUint16(h[4:], uint16(key))
	binary.BigEndian.PutUint16(h[6:], uint16(version))
	h = binary.BigEndian.AppendUint16(h, uint16(len(id)))
	h = append(h, id...)
	if flexible {
		h = append(h, 0)
	}
	binary.BigEndian.PutUint32(h, uint32(len(h)-4+size))
	return h
}

// send queues and writes a frame whose first buffer holds the header. urgent frames pass by the parked ones.
func (c *Conn) send(buffers net.Buffers, cl call, urgent bool) error {
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	if c.reauth && !urgent {
		if err := c.Err(); err != nil {
			return err
		}
		c.parked = append(c.parked, parked{buffers, cl})
		return nil
	}
	return c.writeLocked(buffers, cl)
}

// writeLocked. REQUIRES: sendMu. Once the call is queued, its done is called by the reader, whatever happens.
func (c *Conn) writeLocked(buffers net.Buffers, cl call) error {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return c.err
	}
	c.correlation++
	cl.correlation = c.correlation
	binary.BigEndian.PutUint32(buffers[0][8:], uint32(cl.correlation))
	if len(c.pending) == 0 {
		_ = c.nc.SetReadDeadline(time.Now().Add(c.cfg.requestTimeout())) // fails only when closed; the read then fails too
	}
	c.pending = append(c.pending, cl)
	c.mu.Unlock()

	_ = c.nc.SetWriteDeadline(time.Now().Add(c.cfg.requestTimeout()))
	if _, err := buffers.WriteTo(c.nc); err != nil {
		c.fail(fmt.Errorf("writing to broker %s: %w", c.addr, timeoutError(err)))
	}
	return nil
}

// Request sends req at the version set in it and waits for the decoded response.
func (c *Conn) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return c.request(ctx, req, false)
}

func (c *Conn) requestNow(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return c.request(ctx, req, true)
}

func (c *Conn) request(ctx context.Context, req kmsg.Request, urgent bool) (kmsg.Response, error) {
	type result struct {
		body []byte
		err  error
	}
	results := make(chan result, 1)
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID(c.cfg.clientID())).AppendRequest(nil, req, 0)
	cl := call{flexible: flexibleResponse(req.Key(), req.GetVersion()), done: func(body []byte, err error) { results <- result{body, err} }}
	if err := c.send(net.Buffers{frame}, cl, urgent); err != nil {
		return nil, err
	}
	select {
	case r := <-results:
		if r.err != nil {
			return nil, r.err
		}
		resp := req.ResponseKind()
		if err := resp.ReadFrom(r.body); err != nil {
			return nil, fmt.Errorf("decoding %s response of broker %s: %w", kmsg.NameForKey(req.Key()), c.addr, err)
		}
		return resp, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// read is the goroutine that reads responses.
func (c *Conn) read() {
	defer c.wg.Done()
	for {
		cl, body, err := c.readResponse()
		if err != nil {
			c.fail(err)
			c.failPending()
			return
		}
		cl.done(body, nil)
	}
}

// readResponse reads one response and takes its call off the queue.
func (c *Conn) readResponse() (call, []byte, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(c.nc, prefix[:]); err != nil {
		return call{}, nil, fmt.Errorf("reading from broker %s: %w", c.addr, timeoutError(err))
	}
	size := int64(int32(binary.BigEndian.Uint32(prefix[:])))
	if size < 4 || size > c.cfg.maxResponseBytes() {
		return call{}, nil, fmt.Errorf("reading from broker %s: response of %d bytes (limit %d)", c.addr, size, c.cfg.maxResponseBytes())
	}
	frame := make([]byte, size)
	for at := 0; at < len(frame); {
		n, err := io.ReadFull(c.nc, frame[at:min(at+readStep, len(frame))])
		if err != nil {
			return call{}, nil, fmt.Errorf("reading from broker %s: %w", c.addr, timeoutError(err))
		}
		if at += n; at < len(frame) {
			_ = c.nc.SetReadDeadline(time.Now().Add(c.cfg.requestTimeout()))
		}
	}
	cl, err := c.match(int32(binary.BigEndian.Uint32(frame)))
	if err != nil {
		return call{}, nil, err
	}
	body := frame[4:]
	if cl.flexible {
		if body, err = skipTags(body); err != nil {
			// The call is off the queue already, so it gets its error here.
			err = fmt.Errorf("reading from broker %s: %w", c.addr, err)
			c.fail(err)
			cl.done(nil, err)
			return call{}, nil, err
		}
	}
	return cl, body, nil
}

// match takes the oldest call off the queue, which the response must be for, and starts the clock for the next one.
func (c *Conn) match(correlation int32) (call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 || c.pending[0].correlation != correlation {
		return call{}, fmt.Errorf("reading from broker %s: response has correlation ID %d, which is not the one expected", c.addr, correlation)
	}
	cl := c.pending[0]
	c.pending[0] = call{}
	c.pending = c.pending[1:]
	var deadline time.Time
	if len(c.pending) > 0 {
		deadline = time.Now().Add(c.cfg.requestTimeout())
	}
	_ = c.nc.SetReadDeadline(deadline)
	return cl, nil
}

// fail ends the connection with the first error. It does not wait.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	close(c.dead)
	_ = c.nc.Close()
}

// failPending answers every call that is left, in order. It runs on the reader, after fail. Once it has sendMu, no write
// is under way any more and none will be: the bytes of a request whose done is called are not looked at again, whatever
// the caller then does with them.
func (c *Conn) failPending() {
	c.sendMu.Lock()
	held := c.parked
	c.parked = nil
	c.mu.Lock()
	pending := c.pending
	c.pending = nil
	err := c.err
	c.mu.Unlock()
	c.sendMu.Unlock()
	for _, cl := range pending {
		cl.done(nil, err)
	}
	for _, p := range held {
		p.call.done(nil, err)
	}
	close(c.done)
}

// Abort ends the connection with err for all requests without a response, and does not wait for that.
func (c *Conn) Abort(err error) { c.fail(err) }

// Close ends the connection and waits until every done was called. It must not be called from a done.
func (c *Conn) Close() {
	c.fail(fmt.Errorf("broker %s: %w", c.addr, ErrClosed))
	c.wg.Wait()
}

// Done is closed when the connection has ended and every request has had its done called.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended, nil while it works.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func timeoutError(err error) error {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return fmt.Errorf("%w (%v)", ErrTimeout, err)
	}
	return err
}

// skipTags skips the tagged fields of a response header.
func skipTags(b []byte) ([]byte, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, io.ErrUnexpectedEOF
	}
	b = b[n:]
	for range count {
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, io.ErrUnexpectedEOF
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, io.ErrUnexpectedEOF
		}
		b = b[n+int(size):]
	}
	return b, nil
}

const keyApiVersions = 18

func flexibleRequest(key, version int16) bool {
	req := kmsg.RequestForKey(key)
	if req == nil {
		return false
	}
	req.SetVersion(version)
	return req.IsFlexible()
}

// flexibleResponse: the response to ApiVersions never has tagged fields in its header (KIP-511).
func flexibleResponse(key, version int16) bool {
	return key != keyApiVersions && flexibleRequest(key, version)
}
