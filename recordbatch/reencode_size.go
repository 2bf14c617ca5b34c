package recordbatch

import "fmt"

// learn sets how many bytes of records to compress at once, from how the run came out. A first guess of no compression
// is safe: it makes more batches, not too large ones.
func (r *Rebuilder) learn(size int) {
	if r.codec == None || len(r.run.buf) < r.raw/4 {
		return // says little
	}
	goal := int64(r.maxBytes()) * 7 / 8 * int64(len(r.run.buf)) / int64(size)
	r.raw = int(min(max(goal, int64(r.maxBytes())/2), max(rawLimit, int64(r.maxBytes()))))
}

// split hands out the run, whose batch has that size, as several batches.
func (r *Rebuilder) split(size int) error {
	chunk := int(int64(len(r.run.buf)) * int64(r.maxBytes()) / int64(size) * 7 / 8)
	rest := sliceSource{b: r.run.buf[HeaderSize:]}
	next := r.run.base
	for len(rest.b) > 0 {
		from := rest.b
		r.fill(&rest, next, chunk)
		batch, err := r.part.finish(r.codec)
		if err != nil {
			return fmt.Errorf("encoding offsets %d to %d: %w", r.part.base, r.part.next-1, err)
		}
		if len(batch) > r.maxBytes() && r.part.count() > 1 {
			chunk, rest.b = len(r.part.buf)/2, from
			continue
		}
		r.stats.SizeSplits++
		next = r.part.next
		if err := r.emitBatch(&r.part, batch); err != nil {
			return err
		}
	}
	return nil
}

// fill makes part of the records that come next in rest, one at least, and no more than fit into size.
func (r *Rebuilder) fill(rest *sliceSource, offset int64, size int) {
	for first := true; len(rest.b) > 0; first = false {
		before := rest.b
		raw, _ := rest.next() // the run's own, so it is well-formed
		record, _ := splitBody(raw)
		timestamp := r.run.baseTimestamp + record.timestampDelta
		switch {
		case first:
			r.part.begin(offset, timestamp)
		case len(r.part.buf)+maxHead+len(record.tail) > size:
			rest.b = before
			return
		}
		r.part.add(timestamp, record.attributes, record.tail)
	}
}
