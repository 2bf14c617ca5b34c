package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// appendOld appends a message of format v0 or v1.
func appendOld(dst []byte, offset int64, magic, attributes int8, timestamp int64, key, value []byte) []byte {
	start := len(dst)
	b := binary.BigEndian
	dst = b.AppendUint64(dst, uint64(offset))
	dst = append(dst, make([]byte, 8)...) // size, CRC
	dst = append(dst, byte(magic), byte(attributes))
	if magic == 1 {
		dst = b.AppendUint64(dst, uint64(timestamp))
	}
	for _, field := range [][]byte{key, value} {
		if field == nil {
			dst = b.AppendUint32(dst, 0xffffffff)
			continue
		}
		dst = append(b.AppendUint32(dst, uint32(len(field))), field...)
	}
	return sealOld(dst, start)
}

// sealOld sets size and CRC of the message from start on.
func sealOld(b []byte, start int) []byte {
	message := b[start:]
	binary.BigEndian.PutUint32(message[8:], uint32(len(message)-12))
	binary.BigEndian.PutUint32(message[12:], crc32.ChecksumIEEE(message[16:]))
	return b
}

// seen is a record as readers see it, with bytes of its own.
type seen struct {
	Offset, Timestamp int64
	Key, Value        []byte
	Headers           []RecordHeader
}

func see(r Record) seen {
	s := seen{Offset: r.Offset, Timestamp: r.Timestamp, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}
	for _, h := range r.Headers {
		s.Headers = append(s.Headers, RecordHeader{Key: bytes.Clone(h.Key), Value: bytes.Clone(h.Value)})
	}
	return s
}

// decodeAll returns the records of batches and messages of all formats.
func decodeAll(t testing.TB, log []byte) (all []seen) {
	for len(log) > 0 {
		batch, rest, err := Next(log)
		require.NoError(t, err)
		log = rest
		decode := OldRecords
		if batch[offMagic] == 2 {
			decode = Records
		}
		require.NoError(t, decode(batch, func(r Record) error {
			all = append(all, see(r))
			return nil
		}))
	}
	return all
}

// line is a record as kafka-console-consumer prints it; see TestCapture.
func (s seen) line(kind string) string {
	printed := func(b []byte) string {
		if b == nil {
			return "NULL"
		}
		return string(b)
	}
	timestamp := fmt.Sprintf("%s:%d", kind, s.Timestamp)
	if s.Timestamp < 0 {
		timestamp = "NO_TIMESTAMP"
	}
	return fmt.Sprintf("%s\tOffset:%d\t%s\t%s\n", timestamp, s.Offset, printed(s.Key), printed(s.Value))
}

// TestCapturedLogs decodes what a broker of version 2.8 had in its logs, and compares with what Kafka's own consumer made
// of it: all formats, codecs, timestamp types, and compacted compressed messages.
func TestCapturedLogs(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.Greater(t, len(files), 25)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		t.Run(name, func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			log, err := os.ReadFile("testdata/" + name + ".bin")
			require.NoError(t, err)
			kind := "CreateTime"
			if strings.Contains(name, "-append-") || strings.Contains(name, "-inplace-") {
				kind = "LogAppendTime"
			}
			var got strings.Builder
			for _, s := range decodeAll(t, log) {
				got.WriteString(s.line(kind))
			}
			require.Equal(t, string(want), got.String())
		})
	}
}

// wrapOld makes a compressed message around others.
func wrapOld(t testing.TB, offset int64, magic, attributes int8, timestamp int64, inner []byte) []byte {
	value := compress(t, Codec(attributes&attrCodec), inner)
	return appendOld(nil, offset, magic, attributes, timestamp, nil, value)
}

func oldSeen(t testing.TB, message []byte) (all []seen) {
	require.NoError(t, OldRecords(message, func(r Record) error {
		all = append(all, see(r))
		return nil
	}))
	return all
}

// TestOldGolden has every byte of the formats written out.
func TestOldGolden(t *testing.T) {
	v0 := []byte{
		0, 0, 0, 0, 0, 0, 0, 7, // offset
		0, 0, 0, 16, // size
		0x1f, 0xec, 0xd7, 0x0a, // CRC, of the rest
		0, 0, // magic, attributes
		0, 0, 0, 1, 'k', // key
		0, 0, 0, 1, 'v', // value
	}
	require.Equal(t, []seen{{Offset: 7, Timestamp: -1, Key: []byte("k"), Value: []byte("v")}}, oldSeen(t, v0))
	v1 := []byte{
		0, 0, 0, 0, 0, 0, 0, 8,
		0, 0, 0, 22,
		0x1b, 0x46, 0x7d, 0x9a,
		1, 8, // LogAppendTime
		0, 0, 0, 0, 0, 0, 1, 0, // timestamp
		0xff, 0xff, 0xff, 0xff, // null
		0, 0, 0, 0, // empty
	}
	require.Equal(t, []seen{{Offset: 8, Timestamp: 256, Value: []byte{}}}, oldSeen(t, v1))
}

func TestOldWrappers(t *testing.T) {
	k, v := []byte("k"), []byte("v")
	for codec := Gzip; codec <= LZ4; codec++ {
		t.Run(codec.String(), func(t *testing.T) {
			// v0: absolute, with a hole.
			inner := appendOld(appendOld(nil, 5, 0, 0, 0, k, nil), 9, 0, 0, 0, nil, v)
			require.Equal(t, []seen{{Offset: 5, Timestamp: -1, Key: k}, {Offset: 9, Timestamp: -1, Value: v}},
				oldSeen(t, wrapOld(t, 9, 0, int8(codec), 0, inner)))
			// v1: relative, the last one is at the wrapper's offset; holes at the start and inside.
			inner = appendOld(appendOld(nil, 1, 1, 0, 100, k, v), 4, 1, 0, 50, k, v)
			want := []seen{{Offset: 1<<33 - 3, Timestamp: 100, Key: k, Value: v}, {Offset: 1 << 33, Timestamp: 50, Key: k, Value: v}}
			require.Equal(t, want, oldSeen(t, wrapOld(t, 1<<33, 1, int8(codec), 100, inner)))
			// Append time: that of the wrapper.
			want[0].Timestamp, want[1].Timestamp = 777, 777
			require.Equal(t, want, oldSeen(t, wrapOld(t, 1<<33, 1, int8(codec)|attrLogAppendTime, 777, inner)))
			// A last one that is cut off does not count, and nor does its offset.
			for _, cut := range []int{1, 11, 12, 20, 30} {
				more := appendOld(bytes.Clone(inner), 5, 1, 0, 0, k, v)
				require.Equal(t, want, oldSeen(t, wrapOld(t, 1<<33, 1, int8(codec)|attrLogAppendTime, 777, more[:len(inner)+cut])), cut)
			}
		})
	}
}

// TestOldLZ4Checksum: writers of format v0 took the checksum of the frame's descriptor wrongly, and readers do not look
// at it; in v1 it counts.
func TestOldLZ4Checksum(t *testing.T) {
	for _, withSize := range []bool{false, true} {
		var buf bytes.Buffer
		w := lz4.NewWriter(&buf)
		inner := appendOld(nil, 0, 0, 0, 0, nil, bytes.Repeat([]byte("v"), 1000))
		if withSize {
			require.NoError(t, w.Apply(lz4.SizeOption(uint64(len(inner)))))
		}
		_, err := w.Write(inner)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		frame := buf.Bytes()
		at := 6
		if withSize {
			at = 14
		}
		right := frame[at]
		require.Equal(t, right, byte(shortXXH32(frame[4:at])>>8), "our checksum agrees with the library's")
		frame[at]++
		wrong := bytes.Clone(frame)
		require.Len(t, oldSeen(t, appendOld(nil, 0, 0, int8(LZ4), 0, nil, frame)), 1)
		require.Equal(t, wrong, frame, "the source is left as it is")
		none := func(Record) error { return nil }
		require.ErrorIs(t, OldRecords(appendOld(nil, 0, 1, int8(LZ4), 0, nil, frame), none), ErrCorrupt)
	}
}

func TestOldRefuses(t *testing.T) {
	k, v := []byte("k"), []byte("v")
	plain := appendOld(nil, 3, 1, 0, 9, k, v)
	resealed := func(change func(b []byte) []byte) []byte { return sealOld(change(bytes.Clone(plain)), 0) }
	gzip := func(magic int8, offset int64, inner []byte) []byte {
		return wrapOld(t, offset, magic, int8(Gzip), 0, inner)
	}
	damaged := bytes.Clone(plain)
	damaged[len(damaged)-1] ^= 1
	truncated := compress(t, Gzip, bytes.Repeat(plain, 500))
	for name, c := range map[string]struct {
		message []byte
		want    error
	}{
		"CRC":                     {damaged, ErrCRC},
		"CRC inside":              {gzip(1, 3, damaged), ErrCRC},
		"cut off":                 {plain[:len(plain)-1], ErrCorrupt},
		"empty":                   {nil, ErrCorrupt},
		"bytes left":              {resealed(func(b []byte) []byte { return append(b, 0) }), ErrCorrupt},
		"length -2":               {resealed(func(b []byte) []byte { b[len(b)-2] = 0xfe; return b }), ErrCorrupt},
		"format v2":               {resealed(func(b []byte) []byte { b[offMagic] = 2; return b }), ErrCorrupt},
		"zstd":                    {appendOld(nil, 3, 1, int8(Zstd), 0, nil, v), ErrCorrupt},
		"null wrapper":            {appendOld(nil, 3, 1, int8(Gzip), 0, nil, nil), ErrCorrupt},
		"not gzip":                {appendOld(nil, 3, 1, int8(Gzip), 0, nil, v), ErrCorrupt},
		"nothing inside":          {gzip(1, 3, nil), ErrCorrupt},
		"v0 nothing inside":       {gzip(0, 3, nil), ErrCorrupt},
		"only a cut off message":  {gzip(1, 3, plain[:20]), ErrCorrupt},
		"nested":                  {gzip(1, 3, gzip(1, 3, plain)), ErrCorrupt},
		"truncated gzip":          {appendOld(nil, 3, 0, int8(Gzip), 0, nil, truncated[:len(truncated)-9]), ErrCorrupt},
		"inner magic 2":           {gzip(1, 3, resealed(func(b []byte) []byte { b[offMagic] = 2; return b })), ErrCorrupt},
		"inner size":              {gzip(1, 3, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff}), ErrCorrupt},
		"inner size negative":     {gzip(0, 3, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}), ErrCorrupt},
		"v1 above the wrapper":    {gzip(1, 2, plain), ErrCorrupt},
		"v0 above the wrapper":    {gzip(0, 2, appendOld(nil, 3, 0, 0, 0, k, v)), ErrCorrupt},
		"same offset twice":       {gzip(1, 9, append(bytes.Clone(plain), plain...)), ErrCorrupt},
		"v0 descending":           {gzip(0, 9, appendOld(appendOld(nil, 8, 0, 0, 0, k, v), 7, 0, 0, 0, k, v)), ErrCorrupt},
		"negative wrapper offset": {appendOld(nil, -1, 1, 0, 0, k, v), ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, OldRecords(c.message, func(Record) error { return nil }), c.want)
		})
	}
}

// TestOldBomb: a message that inflates a thousandfold costs the memory of one record.
func TestOldBomb(t *testing.T) {
	var inner []byte
	for i := range 64 {
		inner = appendOld(inner, int64(i), 1, 0, 0, nil, make([]byte, 1<<20))
	}
	bomb := wrapOld(t, 63, 1, int8(Gzip), 0, inner)
	inner = nil
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	records := 0
	require.NoError(t, OldRecords(bomb, func(Record) error { records++; return nil }))
	runtime.ReadMemStats(&after)
	require.Equal(t, 64, records)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

// FuzzOldRecords: no input panics; what is decoded is what franz-go decodes, where it agrees at all.
func FuzzOldRecords(f *testing.F) {
	files, _ := filepath.Glob("testdata/v[01]*.bin")
	for _, file := range files {
		log, err := os.ReadFile(file)
		require.NoError(f, err)
		for len(log) > 0 {
			message, rest, err := Next(log)
			require.NoError(f, err)
			f.Add(message, true)
			log = rest
		}
	}
	f.Fuzz(func(t *testing.T, message []byte, seal bool) {
		if seal && len(message) >= minOldSize {
			message = sealOld(bytes.Clone(message), 0)
		}
		var got []seen
		err := OldRecords(message, func(r Record) error {
			got = append(got, see(r))
			return nil
		})
		if err != nil {
			require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrCRC), "%v", err)
			return
		}
		require.NotEmpty(t, got)
		h, err := ParseHeader(message)
		require.ErrorIs(t, err, ErrOldFormat)
		require.LessOrEqual(t, got[len(got)-1].Offset, h.BaseOffset)
		fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{}, &kmsg.FetchResponseTopicPartition{RecordBatches: message}, kgo.DefaultDecompressor(), nil)
		if fp.Err != nil || len(fp.Records) != len(got) {
			return // franz-go refuses lz4 of format v0, and some more
		}
		for i, r := range fp.Records {
			require.Equal(t, r.Offset, got[i].Offset)
			require.Equal(t, r.Key, got[i].Key)
			require.Equal(t, r.Value, got[i].Value)
		}
	})
}
