package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"go.uber.org/zap"
)

// listener accepts the clients of one broker, or of the bootstrap address. They are ordinary listeners, since a gnet
// engine cannot add one while it runs; the accepted connections are handed to an event loop.
type listener struct {
	node int32        // -1: bootstrap
	ln   net.Listener // nil: the broker is served at the bootstrap listener (Config.BrokerHost)
	host string       // advertised
	port int32

	// Where the broker is; guarded by Server.mu.
	brokerHost string
	brokerPort int32
}

func (l *listener) broker() string {
	return net.JoinHostPort(l.brokerHost, strconv.Itoa(int(l.brokerPort)))
}

// arrival travels with an accepted connection until gnet has opened it on a loop.
type arrival struct {
	node      int32
	remote    string
	principal string
	opened    bool
}

// Advertise implements Addresses. It may be called before Start: the listener is bound then already, and its clients wait
// for Start. It does not block: binding is one system call, and happens once a broker.
func (srv *Server) Advertise(node int32, host string, port int32) (string, int32, error) {
	srv.mu.RLock()
	b := srv.brokers[node]
	known := b != nil && b.brokerHost == host && b.brokerPort == port
	srv.mu.RUnlock()
	if known {
		return b.host, b.port, nil
	}
	return srv.advertise(node, host, port)
}

func (srv *Server) advertise(node int32, host string, port int32) (string, int32, error) {
	if host == "" || port <= 0 || port > 65535 {
		return "", 0, fmt.Errorf("broker %d has no usable address: host %q, port %d", node, host, port)
	}
	bind, err := srv.brokerPort(node)
	if err != nil {
		return "", 0, err
	}
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.stopped {
		return "", 0, errStopped
	}
	if srv.isOurs(host, port) {
		return "", 0, fmt.Errorf("broker %d says it is at %s, which is the gateway: advertised.listeners of the brokers must name the brokers", node, net.JoinHostPort(host, strconv.Itoa(int(port))))
	}
	if b := srv.brokers[node]; b != nil {
		from := b.broker()
		b.brokerHost, b.brokerPort = host, port
		if to := b.broker(); to != from {
			srv.log.Info("broker has moved", zap.Int32("node", node), zap.String("from", from), zap.String("to", to))
		}
		return b.host, b.port, nil
	}
	b, err := srv.listenFor(node, bind)
	if err != nil {
		return "", 0, fmt.Errorf("listener for broker %d: %w", node, err)
	}
	b.brokerHost, b.brokerPort = host, port
	srv.brokers[node] = b
	srv.log.Info("listening for a broker", zap.Int32("node", node), zap.String("broker", b.broker()),
		zap.String("advertised", net.JoinHostPort(b.host, strconv.Itoa(int(b.port)))))
	if srv.started && b.ln != nil {
		srv.serve(b)
	}
	return b.host, b.port, nil
}

// listenFor makes the listener of a broker: one with a port of its own, or a name at the bootstrap listener. REQUIRES: mu.
func (srv *Server) listenFor(node int32, port int) (*listener, error) {
	if srv.cfg.BrokerHost == "" {
		return srv.bind(node, port)
	}
	if err := srv.bindBootstrap(); err != nil { // its port may be any free one, and is what clients are told
		return nil, err
	}
	return &listener{node: node, host: brokerName(srv.cfg.BrokerHost, node), port: srv.bootstrap.port}, nil
}

// bindBootstrap. REQUIRES: mu.
func (srv *Server) bindBootstrap() error {
	if srv.bootstrap != nil {
		return nil
	}
	bootstrap, err := srv.bind(-1, srv.listenAddr.Port)
	if err != nil {
		return fmt.Errorf("bootstrap listener: %w", err)
	}
	srv.bootstrap = bootstrap
	return nil
}

// isOurs tells whether an address is one that the gateway tells its clients.
func (srv *Server) isOurs(host string, port int32) bool {
	if b := srv.bootstrap; b != nil && port == b.port && strings.EqualFold(host, b.host) {
		return true
	}
	for _, b := range srv.brokers {
		if port == b.port && strings.EqualFold(host, b.host) {
			return true
		}
	}
	return false
}

// brokerPort is the port to bind for a broker; 0 is any, or none.
func (srv *Server) brokerPort(node int32) (int, error) {
	if srv.cfg.BrokerHost != "" && node >= 0 {
		return 0, nil
	}
	if node < 0 || node > srv.cfg.MaxNodeID {
		return 0, fmt.Errorf("broker ID %d is not between 0 and %d (max-broker-id)", node, srv.cfg.MaxNodeID)
	}
	base := srv.cfg.BrokerPortBase
	if base == 0 {
		if srv.listenAddr.Port == 0 {
			return 0, nil
		}
		base = srv.listenAddr.Port + 1
	}
	port := base + int(node)
	if port > 65535 || port == srv.listenAddr.Port {
		return 0, fmt.Errorf("broker ID %d would get port %d; move broker-port-base (%d)", node, port, base)
	}
	if adv := srv.cfg.AdvertiseBrokerPortBase; adv != 0 && adv+int(node) > 65535 {
		return 0, fmt.Errorf("broker ID %d would be advertised at port %d; move advertise-broker-port-base (%d)", node, adv+int(node), adv)
	}
	return port, nil
}

// bind opens the listener of a broker, or of the bootstrap address.
func (srv *Server) bind(node int32, port int) (*listener, error) {
	addr := *srv.listenAddr
	addr.Port = port
	var network net.ListenConfig
	ln, err := network.Listen(srv.ctx, "tcp", addr.String())
	if err != nil {
		return nil, err
	}
	advertised := ln.Addr().(*net.TCPAddr).Port
	switch {
	case node < 0 && srv.cfg.AdvertisePort != 0:
		advertised = srv.cfg.AdvertisePort
	case node >= 0 && srv.cfg.AdvertiseBrokerPortBase != 0:
		advertised = srv.cfg.AdvertiseBrokerPortBase + int(node)
	}
	return &listener{node: node, ln: ln, host: srv.advertised, port: int32(advertised)}, nil
}

// serve accepts connections until the listener is closed. REQUIRES: srv.mu held, started.
func (srv *Server) serve(l *listener) {
	srv.acceptors.Go(func() {
		backoff := time.Duration(0)
		for {
			conn, err := l.ln.Accept()
			switch {
			case err == nil:
				backoff = 0
				srv.admit(l, conn)
				continue
			case errors.Is(err, net.ErrClosed):
				return
			}
			// Out of descriptors, mostly. Existing connections go on, and free some.
			srv.metrics.failed(reasonAccept)
			srv.log.Error("accepting connections", zap.Stringer("listen", l.ln.Addr()), zap.Error(err))
			backoff = min(max(2*backoff, 5*time.Millisecond), time.Second)
			if !sleep(srv.accepting, backoff) {
				return
			}
		}
	})
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// admit lets an accepted connection in, or closes it if there are too many.
func (srv *Server) admit(l *listener, conn net.Conn) {
	a := &arrival{node: l.node, remote: conn.RemoteAddr().String()}
	if int(srv.sessions.Add(1)) > srv.cfg.MaxConnections {
		srv.sessions.Add(-1)
		srv.metrics.failed(reasonConnections)
		_ = conn.Close()
		srv.log.Warn("connection refused: too many", zap.String("reason", reasonConnections), zap.String("client", a.remote),
			zap.Int("max-connections", srv.cfg.MaxConnections))
		return
	}
	srv.live.Add(1)
	if srv.cfg.Accept == nil {
		srv.enroll(a, conn)
		return
	}
	select {
	case srv.accepts <- struct{}{}:
	case <-srv.accepting.Done():
		_ = conn.Close()
		srv.release()
		return
	}
	srv.acceptors.Go(func() {
		prepared := srv.prepare(a, conn)
		<-srv.accepts
		if prepared == nil {
			srv.release()
			return
		}
		srv.enroll(a, prepared)
	})
}

// enroll puts a connection on an event loop.
func (srv *Server) enroll(a *arrival, conn net.Conn) {
	withoutZone(conn)
	_, err := srv.engine.EnrollContext(conn, a)
	if err != nil || !a.opened {
		srv.release()
		srv.metrics.failed(reasonAccept)
		srv.log.Warn("connection could not be put on an event loop", zap.String("client", a.remote), zap.Error(err))
	}
}

// release is called once for every admitted connection, when its session is gone.
func (srv *Server) release() {
	srv.sessions.Add(-1)
	srv.live.Done()
}

var lastID atomic.Uint64

// clientOpened is called on the loop with a new client connection.
func (srv *Server) clientOpened(a *arrival, c gnet.Conn) {
	a.opened = true
	l := srv.loopOf(c)
	l.now = time.Now().UnixNano()
	s := &session{
		id:        lastID.Add(1),
		node:      a.node,
		remote:    a.remote,
		principal: a.principal,
		srv:       srv,
		loop:      l,
		handler:   srv.handler,
		client:    c,
		opened:    l.now,
		moved:     l.now,
	}
	c.SetContext(s)
	l.sessions[s] = struct{}{}
	srv.metrics.clients.open.Inc()
	srv.metrics.clients.total.Inc()
	srv.metrics.session(s.node).Inc()
	if l.stopping {
		s.pump()
	}
}
