package main

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// delayProxy is a long way to a broker: what it takes in it gives out half a round trip later, in both directions. Its
// bandwidth is not limited, and as much may be under way as pathBytes, like a window that has grown to the path.
//
// (Emulation in the kernel would have TCP's own windows in the picture, but needs a kernel module that not every machine
// has.)
type delayProxy struct {
	listener net.Listener
	target   atomic.Pointer[string]
	delay    atomic.Int64 // one way, in nanoseconds
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
}

// pathBytes bounds what is under way in one direction of a connection.
const pathBytes = 64 << 20

func newDelayProxy() (*delayProxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &delayProxy{listener: listener}
	p.wg.Go(p.accept)
	return p, nil
}

func (p *delayProxy) addr() string { return p.listener.Addr().String() }

func (p *delayProxy) close() {
	p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *delayProxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		var d net.Dialer
		far, err := d.DialContext(context.Background(), "tcp", *p.target.Load())
		if err != nil {
			near.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, near, far)
		p.mu.Unlock()
		p.wg.Go(func() { p.pass(near, far) })
		p.wg.Go(func() { p.pass(far, near) })
	}
}

// parcel is what one read brought.
type parcel struct {
	data []byte
	due  time.Time
}

// pass carries one direction of a connection. The connection ends as soon as either side does.
func (p *delayProxy) pass(from, to net.Conn) {
	const size = 64 << 10
	way := make(chan parcel, pathBytes/size)
	free := make(chan []byte, pathBytes/size)
	p.wg.Go(func() {
		defer to.Close()
		defer from.Close()
		for next := range way {
			time.Sleep(time.Until(next.due))
			if _, err := to.Write(next.data); err != nil {
				break
			}
			select {
			case free <- next.data[:size]:
			default:
			}
		}
		for range way { // lets the reader end
		}
	})
	defer close(way)
	for {
		var buffer []byte
		select {
		case buffer = <-free:
		default:
			buffer = make([]byte, size)
		}
		n, err := from.Read(buffer)
		if n > 0 {
			way <- parcel{buffer[:n], time.Now().Add(time.Duration(p.delay.Load()))}
		}
		if err != nil {
			return
		}
	}
}
