package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// maxZstdWindow bounds the memory of the zstd decoder. Kafka's levels go up to windows of 128 MiB.
const maxZstdWindow = 128 << 20

var (
	gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}
	lz4Readers  = sync.Pool{New: func() any { return lz4.NewReader(nil) }}
	zstdReaders = sync.Pool{New: func() any {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			panic("recordbatch: zstd decoder: " + err.Error()) // options are constant
		}
		return d
	}}
)

// decompress returns a reader of the decompressed payload, and a function that gives the decoder back.
func decompress(codec Codec, payload []byte) (io.Reader, func(), error) {
	src := bytes.NewReader(payload)
	switch codec {
	case Gzip:
		r := gzipReaders.Get().(*gzip.Reader)
		if err := r.Reset(src); err != nil {
			gzipReaders.Put(r)
			return nil, nil, fmt.Errorf("gzip: %w", err)
		}
		return r, func() { gzipReaders.Put(r) }, nil
	case Snappy:
		return &snappyReader{src: payload}, func() {}, nil
	case LZ4:
		r := lz4Readers.Get().(*lz4.Reader)
		r.Reset(src)
		return r, func() { lz4Readers.Put(r) }, nil
	case Zstd:
		r := zstdReaders.Get().(*zstd.Decoder)
		if err := r.Reset(src); err != nil {
			zstdReaders.Put(r)
			return nil, nil, fmt.Errorf("zstd: %w", err)
		}
		return r, func() {
			_ = r.Reset(nil) // drops the reference to the batch; cannot fail
			zstdReaders.Put(r)
		}, nil
	}
	return nil, nil, fmt.Errorf("unknown %v", codec)
}

// xerialMagic begins what Kafka's Java client writes as snappy: blocks in the framing of the snappy-java library, after
// a header of 16 bytes (magic, version, lowest compatible version). Other clients write one bare block.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeaderSize = 16

type snappyReader struct {
	src     []byte
	block   []byte // decoded and not read yet
	scratch []byte
	begun   bool
	xerial  bool
}

func (s *snappyReader) Read(p []byte) (int, error) {
	for len(s.block) == 0 {
		if err := s.nextBlock(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.block)
	s.block = s.block[n:]
	return n, nil
}

func (s *snappyReader) nextBlock() error {
	if !s.begun {
		s.begun = true
		if bytes.HasPrefix(s.src, xerialMagic) && len(s.src) >= xerialHeaderSize {
			s.xerial = true
			s.src = s.src[xerialHeaderSize:]
		}
	}
	if len(s.src) == 0 {
		return io.EOF
	}
	compressed := s.src
	s.src = nil
	if s.xerial {
		if len(compressed) < 4 {
			return errors.New("snappy: block is cut off")
		}
		size := binary.BigEndian.Uint32(compressed)
		if uint64(size) > uint64(len(compressed)-4) {
			return fmt.Errorf("snappy: block of %d bytes in %d", size, len(compressed)-4)
		}
		s.src = compressed[4+size:]
		compressed = compressed[4 : 4+size]
	}
	return s.decode(compressed)
}

// decode bounds the claimed size first: a snappy element of three bytes yields 64 at most.
func (s *snappyReader) decode(compressed []byte) error {
	size, err := snappy.DecodedLen(compressed)
	if err != nil {
		return fmt.Errorf("snappy: %w", err)
	}
	if int64(size) > 64*int64(len(compressed)) || size > MaxRecordSize {
		return fmt.Errorf("snappy: block of %d bytes claims %d", len(compressed), size)
	}
	if cap(s.scratch) < size {
		s.scratch = make([]byte, size)
	}
	if s.block, err = snappy.Decode(s.scratch[:size], compressed); err != nil {
		return fmt.Errorf("snappy: %w", err)
	}
	return nil
}
