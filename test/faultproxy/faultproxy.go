// Package faultproxy is a TCP proxy that understands just enough of the Kafka protocol to break connections at chosen
// moments: after so many bytes, or after the broker has carried out a request and before its answer arrives. It can also
// stall, and lets tests look at every byte that passes.
package faultproxy

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
)

// Proxy forwards connections to a target. Its faults may be set at any time; they act on connections that exist too,
// except CutAfter, which is asked once for each new connection.
type Proxy struct {
	listener net.Listener
	target   atomic.Pointer[string]
	gate     gate
	cuts     atomic.Int64
	accepted atomic.Int64

	mu         sync.Mutex
	closed     bool
	round      int // of Cut: connections of an earlier one that are not links yet are cut, too
	links      map[*link]struct{}
	onResponse func(key, version int16) bool
	cutAfter   func(connection int64) int64
	observe    func(connection int64, toClient bool, data []byte)

	wg sync.WaitGroup
}

// Listen starts a proxy on address ("127.0.0.1:0" for any port) in front of target. The caller must Close it.
func Listen(address, target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	p := &Proxy{listener: listener, links: map[*link]struct{}{}}
	p.target.Store(&target)
	p.gate.init()
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is the host:port that the proxy listens on.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetTarget sends new connections to another address.
func (p *Proxy) SetTarget(target string) { p.target.Store(&target) }

// CutResponses calls f for every response that the target sends, with the key and version of its request; where f
// returns true both connections are reset instead of delivering it. nil ends that.
func (p *Proxy) CutResponses(f func(key, version int16) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onResponse = f
}

// CutAfter calls f for each new connection (they are counted from 0); it is reset after that many bytes, both directions
// together. 0 or less means never; a nil f ends that.
func (p *Proxy) CutAfter(f func(connection int64) int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAfter = f
}

// Observe calls f with all bytes before they are forwarded, and with the number of their connection; f must not keep
// them. Calls for one direction of a connection are in order, otherwise they are concurrent.
func (p *Proxy) Observe(f func(connection int64, toClient bool, data []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observe = f
}

// Pause makes the proxy a black hole: connections are accepted and stay open, and nothing passes until Resume.
func (p *Proxy) Pause() { p.gate.shut() }

// Resume ends a Pause; nothing was lost.
func (p *Proxy) Resume() { p.gate.open() }

// Cut resets all connections and returns how many there were. One that is just being made is reset, too: after SetTarget and Cut
// nothing leads to the target before.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.round++
	for l := range p.links {
		l.reset()
	}
	p.cuts.Add(int64(len(p.links)))
	return len(p.links)
}

// Cuts counts the connections that were reset on purpose so far.
func (p *Proxy) Cuts() int64 { return p.cuts.Load() }

// Accepted counts the connections accepted so far.
func (p *Proxy) Accepted() int64 { return p.accepted.Load() }

// Close ends the listener and all connections, and waits for the goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	for l := range p.links {
		l.reset()
	}
	p.mu.Unlock()
	p.listener.Close()
	p.gate.end()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		round := p.rounds()
		number := p.accepted.Add(1) - 1
		p.wg.Go(func() { p.serve(client, number, round) })
	}
}

func (p *Proxy) rounds() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.round
}

func (p *Proxy) serve(client net.Conn, number int64, round int) {
	defer client.Close()
	if !p.gate.pass() {
		return
	}
	server, err := net.Dial("tcp", *p.target.Load())
	if err != nil {
		reset(client) // as if the target itself had refused
		return
	}
	defer server.Close()
	l := &link{proxy: p, number: number, client: client, server: server, requests: map[int32]request{}}
	if !p.add(l, number, round) {
		l.reset()
		return
	}
	defer p.remove(l)
	var both sync.WaitGroup
	both.Go(l.toServer)
	both.Go(l.toClient)
	both.Wait()
}

func (p *Proxy) add(l *link, number int64, round int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.round != round {
		return false
	}
	if p.cutAfter != nil {
		l.limit.Store(p.cutAfter(number))
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Proxy) hooks() (onResponse func(key, version int16) bool, observe func(int64, bool, []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.onResponse, p.observe
}

// gate lets goroutines pass while it is open.
type gate struct {
	mu    sync.Mutex
	cond  *sync.Cond
	state int // 0 open, 1 shut, 2 ended
}

func (g *gate) init() { g.cond = sync.NewCond(&g.mu) }

func (g *gate) set(state int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state != 2 {
		g.state = state
	}
	g.cond.Broadcast()
}

func (g *gate) open() { g.set(0) }
func (g *gate) shut() { g.set(1) }
func (g *gate) end()  { g.set(2) }

// pass waits while the gate is shut; false means that the proxy has ended.
func (g *gate) pass() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.state == 1 {
		g.cond.Wait()
	}
	return g.state == 0
}
