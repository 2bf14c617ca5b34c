package recordbatch

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// xerialBlockSize is how much snappy takes at once, as Kafka's Java client and brokers do.
const xerialBlockSize = 32 << 10

// The encoders follow Kafka's own defaults: gzip level 6, zstd level 3, lz4 frames of independent blocks of 64 KiB
// without checksums (the batch has a CRC), which is also all that Kafka's own lz4 reader takes.
var (
	gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}
	lz4Writers  = sync.Pool{New: func() any {
		w := lz4.NewWriter(nil)
		err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1))
		if err != nil {
			panic("recordbatch: lz4 encoder: " + err.Error()) // options are constant
		}
		return w
	}}
	// dataEncoder serves as many calls at once as there are processors. 2 MiB is the window of zstd's level 3.
	dataEncoder = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithWindowSize(2<<20),
			zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic("recordbatch: zstd encoder: " + err.Error()) // options are constant
		}
		return e
	})
)

// appendWriter is an io.Writer that appends.
type appendWriter struct{ b []byte }

func (w *appendWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// appendCompressed appends payload, compressed, to dst.
func appendCompressed(dst []byte, codec Codec, payload []byte) ([]byte, error) {
	switch codec {
	case None:
		return append(dst, payload...), nil
	case Zstd:
		return dataEncoder().EncodeAll(payload, dst), nil
	case Snappy:
		return appendXerial(dst, payload), nil
	case Gzip:
		w := gzipWriters.Get().(*gzip.Writer)
		defer gzipWriters.Put(w)
		out := appendWriter{b: dst}
		w.Reset(&out)
		defer w.Reset(nil)
		if _, err := w.Write(payload); err != nil {
			return dst, fmt.Errorf("gzip: %w", err)
		}
		err := w.Close()
		return out.b, err
	case LZ4:
		w := lz4Writers.Get().(*lz4.Writer)
		defer lz4Writers.Put(w)
		out := appendWriter{b: dst}
		w.Reset(&out)
		defer w.Reset(nil)
		if _, err := w.Write(payload); err != nil {
			return dst, fmt.Errorf("lz4: %w", err)
		}
		err := w.Close()
		return out.b, err
	}
	return dst, fmt.Errorf("unknown %v", codec)
}

// appendXerial writes the framing of the snappy-java library, which all clients read: small blocks are kinder to a
// reader's memory than one of a whole batch.
func appendXerial(dst, payload []byte) []byte {
	dst = append(dst, xerialMagic...)
	dst = append(dst, 0, 0, 0, 1, 0, 0, 0, 1) // version, lowest compatible version
	for len(payload) > 0 {
		block := payload[:min(len(payload), xerialBlockSize)]
		payload = payload[len(block):]
		at := len(dst)
		dst = slices.Grow(dst, 4+snappy.MaxEncodedLen(len(block)))
		encoded := snappy.Encode(dst[at+4:cap(dst)], block)
		dst = dst[:at+4+len(encoded)]
		binary.BigEndian.PutUint32(dst[at:], uint32(len(encoded)))
	}
	return dst
}
