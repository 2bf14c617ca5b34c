package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Server is the proxy: a bootstrap listener, a listener for each broker that was advertised, and the sessions.
//
//	New ──► Start ──► Stop
//	  └────────────────┘     (Advertise from New until Stop)
type Server struct {
	cfg        Config
	metrics    *Metrics
	log        *zap.Logger
	handler    Handler
	advertised string       // the host that clients are told
	listenAddr *net.TCPAddr // of the bootstrap listener, resolved; its port may be 0

	ctx    context.Context // of dials and Work
	cancel context.CancelFunc
	// accepting ends when the listeners are closed.
	accepting     context.Context
	stopAccepting context.CancelFunc

	mu        sync.RWMutex // guards the following
	started   bool
	stopped   bool
	bootstrap *listener
	brokers   map[int32]*listener
	loops     map[gnet.EventLoop]*loop

	engine *gnet.Client
	// engineMu and engineDone keep posts from an engine that has ended.
	engineMu   sync.RWMutex
	engineDone bool

	sessions  atomic.Int64
	held      atomic.Int64   // bytes; see Config.MaxHeldBytes
	live      sync.WaitGroup // sessions
	acceptors sync.WaitGroup // accept loops, and Accept functions
	accepts   chan struct{}  // holds one for each Accept that runs
	owned     sync.WaitGroup // dials, and the ticker
	workers   workers
}

var _ Addresses = (*Server)(nil)

// New makes a server. Nothing is bound before Start or Advertise. m and log may be nil.
func New(cfg Config, m *Metrics, log *zap.Logger) (*Server, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("proxy configuration: %w", err)
	}
	addr, err := net.ResolveTCPAddr("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("proxy configuration: Listen: %w", err)
	}
	if m == nil {
		m = NewMetrics(nil)
	}
	if log == nil {
		log = zap.NewNop()
	}
	m.names = cfg.APINames
	if cfg.Dial == nil {
		dialer := new(net.Dialer)
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) }
	}
	srv := &Server{
		cfg:        cfg,
		metrics:    m,
		log:        log.WithOptions(zap.WrapCore(sampled)),
		listenAddr: addr,
		advertised: cfg.AdvertiseHost,
		brokers:    make(map[int32]*listener),
		loops:      make(map[gnet.EventLoop]*loop),
		accepts:    make(chan struct{}, cfg.MaxAccepts),
		workers:    workers{max: cfg.Workers, queueMax: cfg.MaxConnections},
	}
	srv.ctx, srv.cancel = context.WithCancel(context.Background())
	srv.accepting, srv.stopAccepting = context.WithCancel(srv.ctx)
	if srv.advertised == "" {
		ctx, cancel := context.WithTimeout(srv.ctx, 2*time.Second)
		defer cancel()
		host, _, _ := net.SplitHostPort(cfg.Listen)
		srv.advertised = advertiseHost(ctx, host, addr.IP)
	}
	return srv, nil
}

// sampled limits how often the same line is logged: 20 times a minute, then every 1,000th. A broker that is down must not
// fill the log with the clients that try to reach it: one librdkafka client alone tries 20 times a second, as the gateway
// accepts it each time. The metrics count them all.
func sampled(core zapcore.Core) zapcore.Core {
	return zapcore.NewSamplerWithOptions(core, time.Minute, 20, 1000)
}

// Start binds the bootstrap listener and serves clients with h until Stop. Brokers that were advertised before are
// reachable from the same moment. ctx bounds the start only. After an error the server must still be stopped.
func (srv *Server) Start(ctx context.Context, h Handler) error {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	switch {
	case srv.stopped:
		return errStopped
	case srv.started:
		return errors.New("the proxy has been started before")
	case ctx.Err() != nil:
		return ctx.Err()
	}
	srv.handler = h
	if err := srv.bindBootstrap(); err != nil {
		return err
	}
	bootstrap := srv.bootstrap
	if err := srv.startEngine(); err != nil {
		return fmt.Errorf("starting event loops: %w", err)
	}
	srv.started = true
	srv.owned.Go(srv.ticker)
	for _, b := range srv.brokers {
		if b.ln != nil {
			srv.serve(b)
		}
	}
	srv.serve(bootstrap)
	srv.log.Info("listening", zap.Stringer("listen", bootstrap.ln.Addr()),
		zap.String("advertised", net.JoinHostPort(bootstrap.host, strconv.Itoa(int(bootstrap.port)))),
		zap.Strings("bootstrap", srv.cfg.Bootstrap))
	return nil
}

// readBuffer is the most that a loop reads from one connection at a time, in bytes; a loop has one such buffer.
const readBuffer = 256 << 10

func (srv *Server) startEngine() error {
	engine, err := gnet.NewClient(&events{srv: srv},
		gnet.WithNumEventLoop(srv.cfg.Loops),
		gnet.WithReadBufferCap(readBuffer),
		gnet.WithLogger(gnetLog{srv.log.Named("gnet").Sugar()}),
		// Connections come from package net, which has set it; gnet leaks the descriptor when setting it fails.
		gnet.WithTCPNoDelay(gnet.TCPDelay))
	if err != nil {
		return err
	}
	if err := engine.Start(); err != nil {
		return err
	}
	srv.engine = engine
	return nil
}

// Addr is the address that the bootstrap listener is bound to. REQUIRES: started.
func (srv *Server) Addr() string {
	srv.mu.RLock()
	defer srv.mu.RUnlock()
	return srv.bootstrap.ln.Addr().String()
}

// AdvertisedBootstrap is what clients are told for the bootstrap listener. REQUIRES: started.
func (srv *Server) AdvertisedBootstrap() (host string, port int32) {
	srv.mu.RLock()
	defer srv.mu.RUnlock()
	return srv.bootstrap.host, srv.bootstrap.port
}

// Stop ends the server: no connection is accepted and no request taken any more, responses that are under way leave until
// ctx ends, then everything is closed. It returns when all goroutines are gone, but for a Work that does not end
// when its context does: then Stop gives up after a second more and says so. The second and later calls do nothing.
func (srv *Server) Stop(ctx context.Context) error {
	srv.mu.Lock()
	if srv.stopped {
		srv.mu.Unlock()
		return nil
	}
	srv.stopped = true
	started := srv.started
	srv.stopAccepting()
	for _, b := range srv.brokers {
		if b.ln != nil {
			_ = b.ln.Close()
		}
	}
	if srv.bootstrap != nil {
		_ = srv.bootstrap.ln.Close()
	}
	srv.mu.Unlock()
	if !started {
		srv.cancel()
		return nil
	}
	srv.acceptors.Wait()
	srv.everyLoop((*loop).stop)
	late := waitFor(ctx, &srv.live)
	srv.cancel()
	if late != nil {
		srv.everyLoop((*loop).abortAll)
		srv.live.Wait()
	}
	srv.owned.Wait()
	grace, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	stuck := srv.workers.wait(grace)
	err := srv.stopEngine()
	if stuck != nil {
		return errors.New("stopping the proxy: an answer to a request does not end")
	}
	return err
}

func (srv *Server) stopEngine() error {
	srv.engineMu.Lock()
	srv.engineDone = true
	srv.engineMu.Unlock()
	err := srv.engine.Stop()
	srv.mu.Lock()
	defer srv.mu.Unlock()
	for _, l := range srv.loops {
		l.release()
	}
	if err != nil {
		return fmt.Errorf("stopping event loops: %w", err)
	}
	return nil
}

// everyLoop runs f on every loop that has had a connection, soon.
func (srv *Server) everyLoop(f func(*loop)) {
	srv.mu.RLock()
	defer srv.mu.RUnlock()
	for _, l := range srv.loops {
		l.post(func() { f(l) })
	}
}

// loopOf returns what belongs to the event loop of c. It is called on that loop.
func (srv *Server) loopOf(c gnet.Conn) *loop {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	l := srv.loops[c.EventLoop()]
	if l == nil {
		l = newLoop(srv, c)
		srv.loops[c.EventLoop()] = l
		if l.poller < 0 {
			srv.log.Debug("reading cannot be paused on this system; connections of slow clients are closed at OutboundMax")
		}
	}
	return l
}

// ticker gives the loops the time.
func (srv *Server) ticker() {
	t := time.NewTicker(srv.tickInterval())
	defer t.Stop()
	for {
		select {
		case <-t.C:
			srv.everyLoop((*loop).tick)
		case <-srv.ctx.Done():
			return
		}
	}
}

// tickInterval makes deadlines exact to a quarter, and to a second at most.
func (srv *Server) tickInterval() time.Duration {
	c := &srv.cfg
	least := min(c.FirstByteTimeout, c.FrameTimeout, c.IdleTimeout, c.LingerTimeout)
	return min(max(least/4, 5*time.Millisecond), time.Second)
}

// events receives what happens on the loops.
type events struct {
	gnet.BuiltinEventEngine
	srv *Server
}

func (e *events) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	switch v := c.Context().(type) {
	case *arrival:
		e.srv.clientOpened(v, c)
	case *dialed:
		defer v.s.recovered()
		v.s.upstreamOpened(v, c)
	}
	return nil, gnet.None
}

func (e *events) OnTraffic(c gnet.Conn) gnet.Action {
	s, ok := c.Context().(*session)
	if !ok {
		return gnet.Close
	}
	defer s.recovered()
	data, _ := c.Next(-1)
	s.begin()
	if c == s.client {
		s.fromClient(data)
	} else {
		s.fromBroker(data)
	}
	s.finish()
	return gnet.None
}

func (e *events) OnClose(c gnet.Conn, err error) gnet.Action {
	if s, ok := c.Context().(*session); ok {
		defer s.recovered()
		s.closed(c, err)
	}
	return gnet.None
}

// recovered ends a session in whose service a handler or this package has panicked, and no other.
func (s *session) recovered() {
	if r := recover(); r != nil {
		s.panicked(r)
	}
}

// gnetLog takes gnet's own messages, which are of use to somebody who debugs the proxy only.
type gnetLog struct{ log *zap.SugaredLogger }

func (l gnetLog) Debugf(format string, args ...any) { l.log.Debugf(format, args...) }
func (l gnetLog) Infof(format string, args ...any)  { l.log.Debugf(format, args...) }
func (l gnetLog) Warnf(format string, args ...any)  { l.log.Debugf(format, args...) }
func (l gnetLog) Errorf(format string, args ...any) { l.log.Warnf(format, args...) }
func (l gnetLog) Fatalf(format string, args ...any) { l.log.Errorf(format, args...) }
