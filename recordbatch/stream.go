package recordbatch

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

const (
	// streamBuffer is the buffer of a stream; what fits in it is read without a copy.
	streamBuffer = 32 << 10
	// keptBuffer is the size in bytes up to which buffers for large records are kept for reuse.
	keptBuffer = 4 << 20
)

// stream reads a decompressed payload piece by piece, MaxDecodedSize bytes at most. Its memory is that of the largest
// piece, and grows with what really comes, not with what a length claims.
type stream struct {
	r       *bufio.Reader
	limited io.LimitedReader
	release func()
	large   []byte
}

var streams = sync.Pool{New: func() any { return &stream{r: bufio.NewReaderSize(nil, streamBuffer)} }}

// openStream returns a stream of the decompressed payload. Its user must close it.
func openStream(codec Codec, payload []byte) (*stream, error) {
	r, release, err := decompress(codec, payload)
	if err != nil {
		return nil, err
	}
	s := streams.Get().(*stream)
	s.limited = io.LimitedReader{R: r, N: MaxDecodedSize}
	s.release = release
	s.r.Reset(&s.limited)
	return s, nil
}

func (s *stream) close() {
	s.release()
	s.release, s.limited.R = nil, nil
	s.r.Reset(nil)
	if cap(s.large) > keptBuffer {
		s.large = nil
	}
	streams.Put(s)
}

// peek returns the next n bytes, or with io.EOF the fewer that are left. n is 32 at most.
func (s *stream) peek(n int) ([]byte, error) {
	b, err := s.r.Peek(n)
	return b, s.explain(err)
}

// take returns the next n bytes, valid until the next call; io.EOF if fewer are left.
func (s *stream) take(n int64) ([]byte, error) {
	if n <= int64(s.r.Size()) {
		b, err := s.r.Peek(int(n))
		if err == nil {
			_, err = s.r.Discard(int(n))
		}
		return b, s.explain(err)
	}
	s.large = s.large[:0]
	for have := 0; int64(have) < n; have = len(s.large) {
		step := int(min(n-int64(have), int64(max(have, streamBuffer))))
		s.large = slices.Grow(s.large, step)
		m, err := s.r.Read(s.large[have : have+step])
		s.large = s.large[:have+m]
		if err != nil {
			return nil, s.explain(err)
		}
	}
	return s.large, nil
}

// skip drops the next n bytes.
func (s *stream) skip(n int64) error {
	_, err := s.r.Discard(int(n))
	return s.explain(err)
}

// end returns nil if nothing is left.
func (s *stream) end() error {
	switch _, err := s.peek(1); err {
	case io.EOF:
		return nil
	case nil:
		return errors.New("bytes left")
	default:
		return err
	}
}

func (s *stream) explain(err error) error {
	if err != nil && s.limited.N == 0 {
		return fmt.Errorf("decompresses to more than %d bytes", int64(MaxDecodedSize))
	}
	return err
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// bodies yields the bodies (what follows the length) of the records of one batch after the other, like the
// recordSources of Records, but without garbage.
type bodies struct {
	plain  sliceSource
	stream *stream // nil if the batch is not compressed
}

func openBodies(h Header, payload []byte) (b bodies, err error) {
	if h.Codec() == None || h.NumRecords == 0 {
		b.plain.b = payload
		return b, nil
	}
	b.stream, err = openStream(h.Codec(), payload)
	return b, err
}

func (b *bodies) close() {
	if b.stream != nil {
		b.stream.close()
	}
}

// next returns a body that is valid until the next call.
func (b *bodies) next() ([]byte, error) {
	if b.stream == nil {
		return b.plain.next()
	}
	size, err := binary.ReadVarint(b.stream.r)
	if err != nil {
		return nil, unexpected(b.stream.explain(err))
	}
	if size < 0 || size > MaxRecordSize {
		return nil, fmt.Errorf("length %d", size)
	}
	body, err := b.stream.take(size)
	return body, unexpected(err)
}

func (b *bodies) end() error {
	if b.stream == nil {
		return b.plain.end()
	}
	return b.stream.end()
}

// corrupt is the error of the n-th record, from 1 on; NumRecords + 1 is what comes after the last.
func (h Header) corrupt(n int64, err error) error {
	return fmt.Errorf("%w: record %d of %d at offset %d (%v): %v", ErrCorrupt, n, h.NumRecords, h.BaseOffset, h.Codec(), err)
}

// body is a record's body, taken apart as far as its place in a batch reaches into it. tail is the rest: key, value and
// headers.
type body struct {
	attributes     byte
	timestampDelta int64
	offsetDelta    int64
	tail           []byte
}

func splitBody(b []byte) (body, bool) {
	d := decoder{b: b}
	var r body
	if a := d.take(1); len(a) == 1 {
		r.attributes = a[0]
	}
	r.timestampDelta, r.offsetDelta = d.varint(), d.varint()
	r.tail = d.b
	return r, !d.bad
}

// checkTail walks over key, value and headers.
func checkTail(tail []byte) bool {
	d := decoder{b: tail}
	d.bytes()
	d.bytes()
	count := d.varint()
	if count < 0 || count > int64(len(d.b)) {
		return false
	}
	for range count {
		headerKey := d.bytes()
		d.bytes()
		if d.bad || headerKey == nil {
			return false
		}
	}
	return !d.bad && len(d.b) == 0
}

// cleanedFiller tells a record that, as the first one, makes a batch a filler even without the mark.
func cleanedFiller(tail []byte) bool {
	d := decoder{b: tail}
	key := d.bytes()
	return string(key) == string(fillerKey) && d.varint() == -1
}
