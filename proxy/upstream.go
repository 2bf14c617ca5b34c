package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"

	"github.com/panjf2000/gnet/v2"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// dialed travels with a connection to a broker until gnet has opened it on the loop.
type dialed struct {
	s      *session
	broker string
	opened bool
}

// dial starts connecting to the broker. The goroutine always reports back to the loop, by opened or by dialFailed.
func (s *session) dial() {
	ctx, cancel := context.WithCancel(s.srv.ctx)
	s.state, s.dialCancel = upDialing, cancel
	s.srv.owned.Go(func() {
		defer cancel()
		d := &dialed{s: s}
		err := s.srv.connect(ctx, s.loop.events, d)
		if err == nil && d.opened {
			return
		}
		if err == nil {
			err = errors.New("the event loop could not watch the connection")
		}
		s.loop.post(func() { s.dialFailed(err) })
	})
}

// connect opens a connection for d and puts it on the loop.
func (srv *Server) connect(ctx context.Context, events gnet.EventLoop, d *dialed) error {
	conn, addr, err := srv.dialBroker(ctx, d.s.node)
	if err != nil {
		return err
	}
	d.broker = addr
	withoutZone(conn)
	result, err := events.Enroll(gnet.NewContext(context.Background(), d), conn)
	if err != nil {
		_ = conn.Close()
		return fmt.Errorf("enrolling the connection to %s: %w", addr, err)
	}
	return (<-result).Err
}

// dialBroker connects to a broker, or on behalf of the bootstrap listener to any.
func (srv *Server) dialBroker(ctx context.Context, node int32) (net.Conn, string, error) {
	var errs []error
	for _, addr := range srv.candidates(node) {
		attempt, cancel := context.WithTimeout(ctx, srv.cfg.ConnectTimeout)
		conn, err := srv.cfg.Dial(attempt, addr)
		cancel()
		if err == nil {
			return conn, addr, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", addr, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, "", errors.Join(errs...)
}

// candidates are the addresses to try for a session of that listener.
func (srv *Server) candidates(node int32) []string {
	srv.mu.RLock()
	defer srv.mu.RUnlock()
	if node >= 0 {
		return []string{srv.brokers[node].broker()}
	}
	addrs := slices.Clone(srv.cfg.Bootstrap)
	for _, b := range srv.brokers {
		if addr := b.broker(); !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs
}

// withoutZone removes the zone of link-local IPv6 addresses from what conn says of itself. gnet puts the memory of a
// zone's name into a pool of buffers when the connection ends, although the name belongs to package net.
func withoutZone(conn net.Conn) {
	for _, addr := range []net.Addr{conn.LocalAddr(), conn.RemoteAddr()} {
		if tcp, ok := addr.(*net.TCPAddr); ok {
			tcp.Zone = ""
		}
	}
}

// upstreamOpened is called on the loop when the broker is connected.
func (s *session) upstreamOpened(d *dialed, c gnet.Conn) {
	d.opened = true
	c.SetContext(s)
	s.up, s.state, s.broker = c, upOpen, d.broker
	s.srv.metrics.upstreams.open.Inc()
	s.srv.metrics.upstreams.total.Inc()
	s.pump() // sends what the client has sent meanwhile, or closes c if nobody wants it any more
}

func (s *session) dialFailed(err error) {
	s.begin()
	s.state = upClosed
	if s.client != nil && !s.ending {
		s.srv.metrics.failed(reasonDial)
		s.ending = true
		s.log().Warn("no broker can be reached; closing the client's connection", zap.Error(err))
	}
	s.finish()
}

// call is a request of the gateway's own.
type call struct {
	corr    int32
	request []byte // with its length
	key     int16
	version int16
	frame   chan []byte // holds one
	// asked, if not nil, is called on the loop instead of all of the above. See Decision.Ask.
	asked func(frame []byte)
}

// answer takes the response frame, which is not kept.
func (c *call) answer(frame []byte) {
	if c.asked != nil {
		c.asked(frame)
		return
	}
	c.frame <- slices.Clone(frame)
}

// roundTrips is the Upstream of one Work.
type roundTrips struct {
	s   *session
	job *job
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("mirrorgate"))

// RoundTrip implements Upstream.
func (u roundTrips) RoundTrip(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	corr := u.job.nextCorr.Add(1)
	c := &call{
		corr:    corr,
		request: formatter.AppendRequest(nil, req, corr),
		key:     req.Key(),
		version: req.GetVersion(),
		frame:   make(chan []byte, 1),
	}
	if !u.s.loop.post(func() { u.s.sendCall(u.job, c) }) {
		return nil, errSessionClosed
	}
	select {
	case frame := <-c.frame:
		return decodeResponse(req, frame)
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the broker's response to %s: %w", apiName(c.key), context.Cause(ctx))
	case <-u.job.ctx.Done():
		return nil, fmt.Errorf("waiting for the broker's response to %s: %w", apiName(c.key), context.Cause(u.job.ctx))
	}
}

// sendCall puts a request of the gateway's behind those that have been sent. If the job is no longer the session's, its
// context has ended, and the caller knows.
func (s *session) sendCall(j *job, c *call) {
	if s.gone || s.work != j || s.state != upOpen || s.request.phase == streaming {
		j.cancel(errSessionClosed)
		return
	}
	s.begin()
	s.inflight.internal(expected{corr: c.corr, key: c.key, version: c.version, call: c})
	s.toBroker(c.request)
	s.finish()
}

// decodeResponse decodes a response frame, header included.
func decodeResponse(req kmsg.Request, frame []byte) (kmsg.Response, error) {
	resp := req.ResponseKind()
	c := cursor{b: frame, end: len(frame)}
	c.skip(4)
	if resp.IsFlexible() && req.Key() != keyAPIVersions { // whose header never is (KIP-511)
		c.skipTags()
	}
	if c.err != nil {
		return nil, fmt.Errorf("header of the broker's response to %s: %w", apiName(req.Key()), c.err)
	}
	if err := resp.ReadFrom(frame[c.off:]); err != nil {
		return nil, fmt.Errorf("decoding the broker's response to %s: %w", apiName(req.Key()), err)
	}
	return resp, nil
}
