package replication

import "sync"

// fillerGate bounds the heavy fillers in flight over all partitions of a process. A broker takes some 8 ms for a full one,
// and works off a connection's requests one after the other: with hundreds of logs being filled at once, the batches of
// running mirrors would wait for seconds, or for their share of the broker's processors. A few in flight are as fast.
// Partitions that wait are served in turn. Light ones pass: a running mirror of transactions has a gap every few records,
// and would wait at each behind the logs that are being filled.
type fillerGate struct {
	heavy   int64 // offsets of a filler that needs a place, not changed after the start
	mu      sync.Mutex
	free    int
	waiting []*replica
}

// fillersInFlight keep up to four brokers busy, and delay others on one by some 60 ms.
const fillersInFlight = 8

// heavyFiller is how many offsets make a filler heavy: a broker takes 1 ms for it.
const heavyFiller = 12_500

// enter takes a place, or has the partition told by evFillerPlace when there is one.
func (g *fillerGate) enter(p *replica) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.free > 0 {
		g.free--
		return true
	}
	if !p.atGate {
		p.atGate = true
		g.waiting = append(g.waiting, p)
	}
	return false
}

// leave gives n places back.
func (g *fillerGate) leave(n int) {
	g.mu.Lock()
	g.free += n
	n = min(n, len(g.waiting))
	next := append([]*replica(nil), g.waiting[:n]...)
	g.waiting = g.waiting[:copy(g.waiting, g.waiting[n:])]
	for _, p := range next {
		p.atGate = false
	}
	g.mu.Unlock()
	for _, p := range next {
		p.handle(evFillerPlace{})
	}
}

// evFillerPlace: there may be a place for a filler. It never reaches the machine.
type evFillerPlace struct{}

func (evFillerPlace) isEvent() {}

// needed reports whether the batch needs a place.
func (g *fillerGate) needed(b *pendingBatch) bool { return b.filler && b.Next-b.Base >= g.heavy }

// fillersDone gives back the places of the fillers up to next.
func (p *replica) fillersDone(next int64) {
	n := 0
	for n < len(p.fillers) && p.fillers[n] <= next {
		n++
	}
	if n > 0 {
		p.fillers = p.fillers[:copy(p.fillers, p.fillers[n:])]
		p.r.cfg.Budget.fillers.leave(n)
	}
}
