package recordbatch

import "fmt"

// A Merger joins adjacent v2 batches that could be copied verbatim (see Verbatim) and have one codec into one, because
// brokers and requests cost by the batch. Records stay the same bytes but for their deltas of offset and timestamp;
// uncompressed ones are not decoded, compressed ones are compressed anew. Transactional bit and delete horizon are
// dropped, as Stamp does.
//
// Fillers of mirrors are never joined with anything: a batch is hidden as a whole, by what its first record is.
//
// Use: Add until it returns false, Batch, Reset, and Add again what was not taken. The zero value is ready; a Merger is
// used by one goroutine.
type Merger struct {
	// MaxBytes is the size in bytes of a joined batch, 0 for DefaultMaxBytes. The sum of the sources' sizes does not
	// exceed it, nor does the result if it is uncompressed. A compressed result is hardly ever larger than the sum,
	// but can be, as sources may have been compressed harder than it is done here.
	MaxBytes int
	// MaxRecords is the highest number of records of a joined batch, 0 for no limit.
	MaxRecords int

	// Base and Next are the offsets of what was added; both 0 after Reset.
	Base, Next int64
	// Batches is the number of batches added.
	Batches int

	first       []byte // the first batch; joined lazily, as it may stay alone
	firstHeader Header
	size        int // sum of the sources'
	alone       bool
	joined      builder
}

// Reset forgets what was added, and the last result.
func (m *Merger) Reset() {
	m.Base, m.Next, m.Batches, m.first, m.size, m.alone = 0, 0, 0, nil, 0, false
	m.joined.reset()
}

// Add takes a whole v2 batch whose CRC the caller has checked. It returns false, and takes nothing, if the batch cannot
// be joined with those before: it is not adjacent or verbatim, or it has another codec, or the result might be too large.
// The first batch after Reset is always taken if it is verbatim. An error (ErrCorrupt) means that the batch's records are
// malformed; it is not taken.
//
// The first batch must stay as it is until Batch or Reset; the others are not kept.
func (m *Merger) Add(batch []byte) (bool, error) {
	h, err := whole(batch)
	if err != nil {
		return false, err
	}
	if m.Batches == 0 {
		return m.addFirst(h, batch), nil
	}
	if !m.fits(h) {
		return false, nil
	}
	if m.Batches == 1 {
		m.joined.begin(m.firstHeader.BaseOffset, m.firstHeader.BaseTimestamp)
		if taken, err := m.join(m.firstHeader, m.first); err != nil || !taken {
			m.joined.reset()
			m.alone = true // for the broker to judge, or a filler
			return false, nil
		}
	}
	taken, err := m.join(h, batch)
	if !taken || err != nil {
		return false, err
	}
	m.Batches++
	m.Next = h.NextOffset()
	m.size += h.Size() - HeaderSize
	return true, nil
}

func (m *Merger) addFirst(h Header, batch []byte) bool {
	if Verbatim(h, h.BaseOffset) != nil {
		return false
	}
	m.first, m.firstHeader = batch, h
	m.Base, m.Next, m.Batches, m.size = h.BaseOffset, h.NextOffset(), 1, h.Size()
	m.alone = h.Filler()
	return true
}

// fits tells what can be told from the header.
func (m *Merger) fits(h Header) bool {
	records := m.Next - m.Base + int64(h.NumRecords)
	switch {
	case m.alone, h.Filler(), h.Codec() != m.firstHeader.Codec(), Verbatim(h, m.Next) != nil:
		return false
	case m.MaxRecords > 0 && records > int64(m.MaxRecords), records > 1<<31-1:
		return false
	}
	return m.size+h.Size()-HeaderSize <= m.maxBytes()
}

func (m *Merger) maxBytes() int {
	if m.MaxBytes > 0 {
		return m.MaxBytes
	}
	return DefaultMaxBytes
}

// join appends the records of a batch whose base offset is the builder's next one. If it returns false or an error, the
// builder is as before.
func (m *Merger) join(h Header, batch []byte) (bool, error) {
	size, next, maxTimestamp := len(m.joined.buf), m.joined.next, m.joined.maxTimestamp
	taken, err := m.appendRecords(h, batch)
	if !taken || err != nil {
		m.joined.buf, m.joined.next, m.joined.maxTimestamp = m.joined.buf[:size], next, maxTimestamp
	}
	return taken, err
}

func (m *Merger) appendRecords(h Header, batch []byte) (bool, error) {
	b, err := openBodies(h, batch[HeaderSize:])
	if err != nil {
		return false, fmt.Errorf("%w: %v at offset %d", ErrCorrupt, err, h.BaseOffset)
	}
	defer b.close()
	limit := m.maxBytes() // deltas get longer, so the sum of the sources' sizes is not all
	if h.Codec() != None {
		limit = max(limit, rawLimit)
	}
	for i := range h.NumRecords {
		bytes, err := b.next()
		if err != nil {
			return false, h.corrupt(int64(i)+1, err)
		}
		record, ok := splitBody(bytes)
		if !ok || record.offsetDelta != int64(i) {
			return false, h.corrupt(int64(i)+1, fmt.Errorf("%d bytes with offset delta %d", len(bytes), record.offsetDelta))
		}
		if i == 0 && cleanedFiller(record.tail) {
			return false, nil
		}
		m.joined.add(h.BaseTimestamp+record.timestampDelta, record.attributes, record.tail)
		if len(m.joined.buf) > limit {
			return false, nil
		}
	}
	if err := b.end(); err != nil {
		return false, h.corrupt(int64(h.NumRecords)+1, err)
	}
	return true, nil
}

// Batch returns the joined batch, or the source's own bytes if only one was added; Stamp it in both cases. A joined batch
// is valid until the Merger is used again. It is nil if nothing was added.
func (m *Merger) Batch() ([]byte, error) {
	if m.Batches <= 1 {
		return m.first, nil
	}
	batch, err := m.joined.finish(m.firstHeader.Codec())
	if err != nil {
		return nil, fmt.Errorf("joining offsets %d to %d: %w", m.Base, m.Next-1, err)
	}
	return batch, nil
}
