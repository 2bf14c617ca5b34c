package recordbatch

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits of decoding, against hostile or broken batches. Real brokers never come near them by default.
const (
	// MaxRecordSize is the size in bytes of the largest record that Records decodes.
	MaxRecordSize = 256 << 20
	// MaxDecodedSize is how many bytes Records decompresses of one batch at most. They are streamed: memory is only
	// used for one record (with snappy: one block) at a time.
	MaxDecodedSize = 2 << 30
)

// Record is a decoded record. Key, Value and those of Headers are nil where Kafka's are null, and empty but not nil where
// they are empty. The bytes are only valid during the call that got the record.
type Record struct {
	Offset    int64
	Timestamp int64 // ms
	Key       []byte
	Value     []byte
	Headers   []RecordHeader
}

// RecordHeader is a header of a record. Its key is never null.
type RecordHeader struct {
	Key   []byte
	Value []byte
}

// errStop ends Records without an error.
var errStop = errors.New("stop")

// Records decodes a whole v2 batch and calls fn for each record in order; an error of fn ends it and is returned. The
// timestamp of a record is that of readers: the append time where the broker gives it. The CRC is not checked.
// ErrOldFormat for formats v0 and v1; ErrCorrupt for what is malformed or beyond the limits.
func Records(batch []byte, fn func(Record) error) error {
	h, err := whole(batch)
	if err != nil {
		return err
	}
	src, release, err := openRecords(h, batch[HeaderSize:])
	if err != nil {
		return fmt.Errorf("%w: %v at offset %d", ErrCorrupt, err, h.BaseOffset)
	}
	defer release()
	var headers []RecordHeader
	last := int64(-1)
	for i := range h.NumRecords {
		body, err := src.next()
		if err != nil {
			return fmt.Errorf("%w: record %d of %d at offset %d (%v): %v", ErrCorrupt, i+1, h.NumRecords, h.BaseOffset, h.Codec(), err)
		}
		r, delta, err := decodeRecord(body, h, headers[:0])
		if err == nil && (delta <= last || delta > int64(h.LastOffsetDelta)) {
			err = fmt.Errorf("offset delta %d after %d", delta, last)
		}
		if err != nil {
			return fmt.Errorf("%w: record %d of %d at offset %d (%v): %v", ErrCorrupt, i+1, h.NumRecords, h.BaseOffset, h.Codec(), err)
		}
		last, headers = delta, r.Headers
		if err := fn(r); err != nil {
			if err == errStop {
				return nil
			}
			return err
		}
	}
	if err := src.end(); err != nil {
		return fmt.Errorf("%w: after the last of %d records at offset %d (%v): %v", ErrCorrupt, h.NumRecords, h.BaseOffset, h.Codec(), err)
	}
	return nil
}

// recordSource yields the bytes of one record after the other, without their length.
type recordSource interface {
	next() ([]byte, error)
	end() error // nil if nothing is left
}

func openRecords(h Header, payload []byte) (recordSource, func(), error) {
	if h.Codec() == None || h.NumRecords == 0 {
		return &sliceSource{b: payload}, func() {}, nil
	}
	r, release, err := decompress(h.Codec(), payload)
	if err != nil {
		return nil, nil, err
	}
	limited := &io.LimitedReader{R: r, N: MaxDecodedSize}
	return &streamSource{r: bufio.NewReader(limited), limited: limited}, release, nil
}

type sliceSource struct{ b []byte }

func (s *sliceSource) next() ([]byte, error) {
	size, n := binary.Varint(s.b)
	if n <= 0 || size < 0 || size > int64(len(s.b)-n) {
		return nil, fmt.Errorf("length %d in %d bytes", size, len(s.b))
	}
	body := s.b[n : n+int(size)]
	s.b = s.b[n+int(size):]
	return body, nil
}

func (s *sliceSource) end() error {
	if len(s.b) > 0 {
		return fmt.Errorf("%d bytes left", len(s.b))
	}
	return nil
}

type streamSource struct {
	r       *bufio.Reader
	limited *io.LimitedReader
	record  bytes.Buffer
}

func (s *streamSource) next() ([]byte, error) {
	size, err := binary.ReadVarint(s.r)
	if err != nil {
		return nil, s.explain(err)
	}
	if size < 0 || size > MaxRecordSize {
		return nil, fmt.Errorf("length %d", size)
	}
	// The buffer grows with what really comes, not with what the length claims.
	s.record.Reset()
	if _, err := io.CopyN(&s.record, s.r, size); err != nil {
		return nil, s.explain(err)
	}
	return s.record.Bytes(), nil
}

func (s *streamSource) explain(err error) error {
	if s.limited.N == 0 {
		return fmt.Errorf("batch decompresses to more than %d bytes", int64(MaxDecodedSize))
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (s *streamSource) end() error {
	switch _, err := s.r.ReadByte(); err {
	case io.EOF:
		return nil
	case nil:
		return errors.New("bytes left")
	default:
		return err
	}
}

// decodeRecord decodes the body of a record. headers is memory to use for the record's headers.
func decodeRecord(b []byte, h Header, headers []RecordHeader) (Record, int64, error) {
	d := decoder{b: b}
	d.take(1) // attributes, unused
	timestampDelta := d.varint()
	offsetDelta := d.varint()
	r := Record{Offset: h.BaseOffset + offsetDelta, Timestamp: h.BaseTimestamp + timestampDelta}
	if h.LogAppendTime() {
		r.Timestamp = h.MaxTimestamp
	}
	r.Key = d.bytes()
	r.Value = d.bytes()
	count := d.varint()
	if count < 0 || count > int64(len(d.b)) {
		d.bad = true
		count = 0
	}
	for range count {
		key, value := d.bytes(), d.bytes()
		d.bad = d.bad || key == nil
		headers = append(headers, RecordHeader{Key: key, Value: value})
	}
	r.Headers = headers
	if d.bad || len(d.b) > 0 {
		return r, 0, fmt.Errorf("malformed record of %d bytes", len(b))
	}
	return r, offsetDelta, nil
}

// decoder takes fields off b. Once one is malformed, bad is set and all that follow are zero.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int64) []byte {
	if d.bad || n < 0 || n > int64(len(d.b)) {
		d.bad = true
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.b)
	if d.bad || n <= 0 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// bytes takes a nullable byte string: length -1 is null.
func (d *decoder) bytes() []byte {
	n := d.varint()
	if n == -1 {
		return nil
	}
	return d.take(n)
}
