package replication

// progress is how far a partition is. Invariants: acked ≤ next; bytes and inFlight are those of [acked, next), fillers
// that are not made yet not counted; chunks are in offset order and cover all buffers that batches of [acked, next)
// alias.
//
//	… mirrored | in flight or queued in the log | backlog | not fetched
//	         acked                                      next
type progress struct {
	next     int64 // offset to fetch next
	acked    int64 // offset after the last acknowledged one
	inFlight int   // batches between them
	bytes    int64 // their size
	// backlog is the end of it that is not handed to the log yet.
	backlog backlog
	filled  int64 // offsets of fillers that were acknowledged
	// epoch is the source leader epoch of the batch before next, -1 if not known.
	epoch  int32
	chunks []chunk
}

// chunk is this partition's share of a fetch response.
type chunk struct {
	end    int64
	buffer *fetchBuffer
}

// reset forgets everything in flight; the log ends at end. The buffers must have been released.
func (p *progress) reset(end int64) {
	p.backlog.forget()
	*p = progress{next: end, acked: end, epoch: -1, backlog: p.backlog, filled: p.filled, chunks: p.chunks[:0]}
}

// forget gives up what is in flight; where the log ends is not known until the next reset. The buffers must have been
// released.
func (p *progress) forget() {
	clear(p.chunks)
	p.reset(p.acked)
}

// append takes the pieces of one answer into the backlog. It returns false if none aliases the buffer.
func (p *progress) append(pieces []piece, epoch int32, buffer *fetchBuffer) bool {
	last := int64(-1)
	for _, piece := range pieces {
		p.backlog.add(piece)
		p.next = piece.next
		if !piece.gap() {
			p.inFlight++
			p.bytes += int64(len(piece.batch))
			last = piece.next
		}
	}
	p.epoch = epoch
	if last < 0 {
		return false
	}
	p.chunks = append(p.chunks, chunk{end: last, buffer: buffer})
	return true
}

// fill takes a gap up to next.
func (p *progress) fill(next int64) {
	p.backlog.add(piece{from: p.next, next: next})
	p.next, p.epoch = next, -1 // of what the source had there
}

// take hands out what may be appended to the log now.
func (p *progress) take() []pendingBatch {
	made, bytes := len(p.backlog.inFlight), p.backlog.bytes
	batches := p.backlog.take(nil)
	p.inFlight += len(p.backlog.inFlight) - made
	p.bytes += p.backlog.bytes - bytes
	return batches
}

// ack takes the acknowledgement of everything up to next; false if it makes no sense.
func (p *progress) ack(next int64, batches, bytes int) bool {
	if next < p.acked || next > p.next {
		return false
	}
	p.acked = next
	p.filled += p.backlog.ack(next)
	p.inFlight = max(0, p.inFlight-batches)
	p.bytes = max(0, p.bytes-int64(bytes))
	if p.settled() {
		p.inFlight, p.bytes = 0, 0
	}
	return true
}

// popChunk takes the oldest chunk whose batches are all acknowledged.
func (p *progress) popChunk() (chunk, bool) {
	if len(p.chunks) == 0 || p.chunks[0].end > p.acked {
		return chunk{}, false
	}
	c := p.chunks[0]
	n := copy(p.chunks, p.chunks[1:])
	p.chunks[n] = chunk{} // or the array would keep the buffer alive
	p.chunks = p.chunks[:n]
	return c, true
}

// settled reports that nothing is in flight.
func (p *progress) settled() bool { return p.acked == p.next }
