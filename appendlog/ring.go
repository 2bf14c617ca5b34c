package appendlog

// ring is a queue of batches that does not allocate once it has grown.
type ring struct {
	items  []Batch
	head   int
	bytes  int // of what was appended
	merged int // of batches that were made by merging
}

// keptItems is how many items an empty ring keeps room for.
const keptItems = 1 << 10

func (r *ring) len() int { return len(r.items) - r.head }

func (r *ring) at(i int) Batch { return r.items[r.head+i] }

func (r *ring) push(b Batch) {
	if len(r.items) == cap(r.items) && r.head > 0 {
		n := copy(r.items, r.items[r.head:])
		clear(r.items[n:])
		r.items, r.head = r.items[:n], 0
	}
	r.items = append(r.items, b)
	r.bytes += b.size()
}

// merge puts b, which holds the records of n items from the i-th on, in their place. REQUIRES: n > 0, and i is small.
func (r *ring) merge(i, n int, b Batch) {
	copy(r.items[r.head+n-1:], r.items[r.head:r.head+i])
	clear(r.items[r.head : r.head+n-1])
	r.head += n - 1
	r.items[r.head+i] = b
	r.merged += len(b.Bytes)
}

// gone takes an item out of the sums.
func (r *ring) gone(b Batch) {
	r.bytes -= b.size()
	if b.sources > 0 {
		r.merged -= len(b.Bytes)
	}
}

func (r *ring) pop() Batch {
	b := r.items[r.head]
	r.items[r.head] = Batch{}
	r.head++
	r.gone(b)
	r.maybeEmpty()
	return b
}

// truncate keeps the first n.
func (r *ring) truncate(n int) {
	for i := r.head + n; i < len(r.items); i++ {
		r.gone(r.items[i])
		r.items[i] = Batch{}
	}
	r.items = r.items[:r.head+n]
	r.maybeEmpty()
}

func (r *ring) maybeEmpty() {
	switch {
	case r.head < len(r.items):
	case cap(r.items) > keptItems:
		r.items, r.head = nil, 0
	default:
		r.items, r.head = r.items[:0], 0
	}
}

func (r *ring) clear() { r.truncate(0) }
