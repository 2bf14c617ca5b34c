package layout

// Pieces are bytes that go on, in order.
type Pieces [][]byte

// Append adds b, joined to the piece before where it lies behind it in memory, as most do.
func (p Pieces) Append(b []byte) Pieces {
	if len(b) == 0 {
		return p
	}
	if len(p) > 0 {
		last := p[len(p)-1]
		if n := len(last); cap(last) > n && &last[:n+1][n] == &b[0] {
			p[len(p)-1] = last[:n+len(b)]
			return p
		}
	}
	return append(p, b)
}

// Size is the number of bytes.
func (p Pieces) Size() int {
	n := 0
	for _, b := range p {
		n += len(b)
	}
	return n
}

// Gather collects bytes that are needed together from pieces that may end between them. What it returns is a part of
// data, or of one of two buffers that take turns: it is valid while data is, and until the second piece that was collected after it.
type Gather struct {
	buf, spare []byte
}

// Take takes up to n bytes of data and returns how many, and all n as soon as they are there. It must be called with the
// same n until then; n is above 0.
func (g *Gather) Take(data []byte, n int) (taken int, whole []byte) {
	if len(g.buf) == 0 && len(data) >= n {
		return n, data[:n]
	}
	taken = min(n-len(g.buf), len(data))
	g.buf = append(g.buf, data[:taken]...)
	if len(g.buf) < n {
		return taken, nil
	}
	return taken, g.done()
}

// Back takes back what was returned last: it is the beginning of something larger.
func (g *Gather) Back(b []byte) { g.buf = append(g.buf, b...) }

// Held is what has been collected and not returned.
func (g *Gather) Held() []byte { return g.buf }

func (g *Gather) done() []byte {
	whole := g.buf
	g.buf, g.spare = g.spare[:0], whole
	if cap(g.buf) > keepGathered {
		g.buf = nil
	}
	return whole
}

// keepGathered is the largest buffer that is used again.
const keepGathered = 64 << 10

// TakeUvarint is Take for a number whose bytes say where it ends: after five at the most, whatever they are.
func (g *Gather) TakeUvarint(data []byte) (taken int, whole []byte) {
	const longest = 5
	for taken < len(data) {
		taken++
		if end := data[taken-1] < 0x80 || len(g.buf)+taken == longest; end {
			if len(g.buf) == 0 {
				return taken, data[:taken]
			}
			g.buf = append(g.buf, data[:taken]...)
			return taken, g.done()
		}
	}
	g.buf = append(g.buf, data[:taken]...)
	return taken, nil
}
