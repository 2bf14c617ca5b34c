package proxy

import (
	"fmt"
	"math/bits"
	"sync"
	"unsafe"
)

// hold appends to a frame that is collected and will have size bytes, within the server's budget for that; if there is no
// room it ends the session. The buffer doubles, as frames that are announced need not come.
func (s *session) hold(buf *[]byte, data []byte, size int) {
	before := cap(*buf)
	if need := len(*buf) + len(data); need > before {
		grown := append(buffers.get(max(need, min(2*before, size))), *buf...)
		buffers.put(*buf)
		*buf = grown
	}
	*buf = append(*buf, data...)
	more := int64(cap(*buf) - before)
	s.srv.metrics.held.Add(float64(more))
	if n := s.srv.held.Add(more); n > s.srv.cfg.MaxHeldBytes {
		s.fail(reasonHeld, fmt.Errorf("%d bytes of incomplete requests and responses are held over all connections (MaxHeldBytes)", n))
	}
}

// letGo gives back what hold took. Nobody may use the frame any more.
func (s *session) letGo(buf *[]byte) {
	if n := int64(cap(*buf)); n > 0 {
		s.srv.held.Add(-n)
		s.srv.metrics.held.Add(float64(-n))
		buffers.put(*buf)
		*buf = nil
	}
}

// buffers are those that frames were held in, to be used again: most of what holding costs is making memory, that is clearing
// it and collecting it as garbage.
var buffers bufferPool

// bufferPool has buffers of sizes that are powers of two. Larger ones than pooledMax are made for just their frame.
type bufferPool struct {
	classes [pooledMaxBits - pooledMinBits + 1]sync.Pool // of *byte, the first one of a buffer
}

const (
	pooledMinBits = 9
	pooledMaxBits = 22
	pooledMax     = 1 << pooledMaxBits
)

// get returns an empty buffer with room for n bytes. What is in it may be anything.
func (p *bufferPool) get(n int) []byte {
	if n > pooledMax {
		return make([]byte, 0, n)
	}
	class := max(bits.Len(uint(max(n, 1)-1))-pooledMinBits, 0)
	size := 1 << (class + pooledMinBits)
	if first, _ := p.classes[class].Get().(*byte); first != nil {
		return unsafe.Slice(first, size)[:0]
	}
	return make([]byte, 0, size)
}

// put takes a buffer that get has returned, and that nobody uses any more.
func (p *bufferPool) put(b []byte) {
	if n := cap(b); n > 0 && n <= pooledMax {
		p.classes[bits.TrailingZeros(uint(n))-pooledMinBits].Put(unsafe.SliceData(b))
	}
}
