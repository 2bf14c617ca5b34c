package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Limits bound what a peer can make a tunnel wait for.
type Limits struct {
	// WriteTimeout is how long a peer may take nothing of what is sent to it. 0: 15 minutes.
	WriteTimeout time.Duration
	// LingerTimeout is how long a peer may go on after it was told that the connection ends. 0: 30 seconds.
	LingerTimeout time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.WriteTimeout <= 0 {
		l.WriteTimeout = 15 * time.Minute
	}
	if l.LingerTimeout <= 0 {
		l.LingerTimeout = 30 * time.Second
	}
	return l
}

var errClosed = errors.New("the gateway is stopping")

// group owns the tunnels of one side.
type group struct {
	limits  Limits
	metrics sideMetrics

	mu     sync.Mutex
	closed bool                 // guarded by mu
	open   map[*tunnel]struct{} // guarded by mu
	wg     sync.WaitGroup
}

func newGroup(limits Limits, metrics sideMetrics) *group {
	return &group{limits: limits.withDefaults(), metrics: metrics, open: make(map[*tunnel]struct{})}
}

// tunnel copies between a TLS connection and the far end of a socket pair.
type tunnel struct {
	group  *group
	remote *tls.Conn
	far    *net.UnixConn
	halves sync.WaitGroup
}

// start takes over remote, whose handshake is done, and returns the end for the event loop.
func (g *group) start(remote *tls.Conn) (net.Conn, error) {
	near, far, err := socketPair()
	if err != nil {
		_ = remote.NetConn().Close()
		return nil, fmt.Errorf("socket pair of a TLS connection: %w", err)
	}
	t := &tunnel{group: g, remote: remote, far: far}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_, _, _ = remote.NetConn().Close(), far.Close(), near.Close()
		return nil, errClosed
	}
	g.open[t] = struct{}{}
	g.metrics.open.Inc()
	t.halves.Go(t.send)
	t.halves.Go(t.receive)
	g.wg.Go(t.finish)
	return near, nil
}

// send copies what the loop writes, and tells the peer when there will be no more.
func (t *tunnel) send() {
	// Reading can only fail because the loop has closed its end, whatever the error says.
	if _, err := carry(deadlineWriter{t.remote, t.group.limits.WriteTimeout}, t.far); err != nil {
		_ = t.remote.NetConn().Close() // ends receive
		return
	}
	_ = t.remote.SetReadDeadline(time.Now().Add(t.group.limits.LingerTimeout))
	_ = t.remote.SetWriteDeadline(time.Now().Add(t.group.limits.LingerTimeout))
	_ = t.remote.CloseWrite()
	if tcp, ok := t.remote.NetConn().(interface{ CloseWrite() error }); ok {
		_ = tcp.CloseWrite()
	}
}

// receive copies what the peer sends.
func (t *tunnel) receive() {
	_, err := carry(t.far, t.remote)
	_ = t.far.CloseWrite()
	if err != nil {
		// The loop has closed its end. send sets the deadline by which the peer must have ended.
		_, _ = carry(io.Discard, t.remote)
	}
}

// finish waits for both halves and lets go of everything.
func (t *tunnel) finish() {
	t.halves.Wait()
	_, _ = t.remote.NetConn().Close(), t.far.Close()
	t.group.mu.Lock()
	delete(t.group.open, t)
	t.group.mu.Unlock()
	t.group.metrics.open.Dec()
}

// close lets tunnels whose near ends are closed send what is left, until ctx ends; then it ends all, and waits.
func (g *group) close(ctx context.Context) {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	done := make(chan struct{})
	go func() {
		g.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	g.mu.Lock()
	for t := range g.open {
		_, _ = t.remote.NetConn().Close(), t.far.Close()
	}
	g.mu.Unlock()
	<-done
}

// deadlineWriter gives up when the peer takes nothing for a time.
type deadlineWriter struct {
	conn    net.Conn
	timeout time.Duration
}

func (w deadlineWriter) Write(b []byte) (int, error) {
	if err := w.conn.SetWriteDeadline(time.Now().Add(w.timeout)); err != nil {
		return 0, err
	}
	return w.conn.Write(b)
}

// Idle connections have a small buffer; those on which more arrives borrow a large one.
const (
	smallBuffer = 2 << 10
	largeBuffer = 64 << 10
)

var largeBuffers = sync.Pool{New: func() any { return new([largeBuffer]byte) }}

// carry copies from src to dst until one of them ends: src is io.EOF at an orderly end of src.
func carry(dst io.Writer, src io.Reader) (srcErr, dstErr error) {
	small := make([]byte, smallBuffer)
	var large *[largeBuffer]byte
	giveBack := func() {
		if large != nil {
			largeBuffers.Put(large)
			large = nil
		}
	}
	defer giveBack()
	for {
		buf := small
		if large != nil {
			buf = large[:]
		}
		n, err := src.Read(buf)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return nil, err
			}
		}
		switch {
		case err != nil:
			return err, nil
		case large == nil && n == smallBuffer:
			large = largeBuffers.Get().(*[largeBuffer]byte)
		case n < smallBuffer:
			giveBack()
		}
	}
}
