package faultproxy

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
)

// link is one forwarded connection.
type link struct {
	proxy          *Proxy
	number         int64
	client, server net.Conn
	limit          atomic.Int64 // bytes after which it is cut, ≤ 0 = none
	passed         atomic.Int64

	mu       sync.Mutex
	requests map[int32]request // by correlation ID, those not answered
}

type request struct{ key, version int16 }

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

func (l *link) reset() {
	reset(l.client)
	reset(l.server)
}

func (l *link) cut() {
	l.proxy.cuts.Add(1)
	l.reset()
}

func (l *link) toServer() {
	var frames framer
	l.copy(l.server, l.client, false, func(data []byte) bool {
		frames.feed(data, func(head []byte) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.requests[int32(binary.BigEndian.Uint32(head[4:]))] = request{
				int16(binary.BigEndian.Uint16(head)), int16(binary.BigEndian.Uint16(head[2:]))}
		})
		return true
	})
}

func (l *link) toClient() {
	frames := framer{short: true}
	l.copy(l.client, l.server, true, func(data []byte) bool {
		deliver := true
		frames.feed(data, func(head []byte) { deliver = deliver && !l.isCut(int32(binary.BigEndian.Uint32(head))) })
		return deliver
	})
}

// isCut decides over the response to a request.
func (l *link) isCut(correlation int32) bool {
	l.mu.Lock()
	r, known := l.requests[correlation]
	delete(l.requests, correlation)
	l.mu.Unlock()
	onResponse, _ := l.proxy.hooks()
	return known && onResponse != nil && onResponse(r.key, r.version)
}

// copy forwards bytes until either side ends. look sees them first; if it returns false, the link is cut.
func (l *link) copy(to, from net.Conn, toClient bool, look func([]byte) bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		data := buffer[:n]
		if !l.proxy.gate.pass() {
			break
		}
		if !look(data) {
			l.cut()
			return
		}
		if _, observe := l.proxy.hooks(); observe != nil && n > 0 {
			observe(l.number, toClient, data)
		}
		limit := l.limit.Load()
		passed := l.passed.Add(int64(n))
		if limit > 0 && passed >= limit {
			_, _ = to.Write(data[:max(0, n-int(passed-limit))])
			l.cut()
			return
		}
		if _, writeErr := to.Write(data); writeErr != nil {
			break
		}
		if err != nil {
			break
		}
	}
	// A half-closed connection is passed on as such, so that what is under way still arrives.
	if tcp, ok := to.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	if toClient {
		// Nothing more can be answered.
		l.client.Close()
		l.server.Close()
	}
}

// framer finds the heads of Kafka frames in a stream: 8 bytes of a request, 4 of a response (short).
type framer struct {
	short bool
	head  [12]byte // length and head, as far as seen
	have  int
	body  int64 // bytes of the frame still to come after the head
}

func (f *framer) feed(data []byte, found func(head []byte)) {
	need := 12
	if f.short {
		need = 8
	}
	for len(data) > 0 {
		if f.body > 0 {
			n := min(f.body, int64(len(data)))
			f.body -= n
			data = data[n:]
			continue
		}
		n := copy(f.head[f.have:need], data)
		f.have += n
		data = data[n:]
		if f.have == need {
			f.have = 0
			f.body = max(0, int64(int32(binary.BigEndian.Uint32(f.head[:])))-int64(need-4))
			found(f.head[4:need])
		}
	}
}
