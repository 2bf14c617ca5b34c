package recordbatch

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// The corrected checksum is the one that a broker computes, for every size and header.
func TestReheadIsTheChecksum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 2, 7, 8, 63, 64, 255, 4096, 65_535, 1 << 20, 1<<20 + 1, 9_999_999} {
		batch := make([]byte, HeaderSize+size)
		for i := 0; i < len(batch); i += 1 + r.IntN(4) {
			batch[i] = byte(r.Uint32())
		}
		binary.BigEndian.PutUint32(batch[offCRC:], crc32.Checksum(batch[offAttributes:], castagnoli))
		for range 5 {
			before := headSum(batch)
			for range r.IntN(20) {
				batch[offAttributes+r.IntN(HeaderSize-offAttributes)] = byte(r.Uint32())
			}
			rehead(batch, before)
			require.Equal(t, crc32.Checksum(batch[offAttributes:], castagnoli), binary.BigEndian.Uint32(batch[offCRC:]), "%d bytes", size)
		}
		if size > 0 {
			before := headSum(batch)
			batch[HeaderSize+r.IntN(size)] ^= 1
			rehead(batch, before)
			require.NotEqual(t, crc32.Checksum(batch[offAttributes:], castagnoli), binary.BigEndian.Uint32(batch[offCRC:]), "damage shows")
		}
	}
}
