package recordbatch

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// castagnoliReversed is the polynomial of CRC-32C, the lowest power first, as hash/crc32 has it.
const castagnoliReversed = 0x82f63b78

// headSum is the checksum of what is in the header behind the batch's checksum.
func headSum(batch []byte) uint32 { return crc32.Checksum(batch[offAttributes:HeaderSize], castagnoli) }

// rehead makes the checksum of a whole v2 batch that of its present header, given the headSum of that for which it was right.
// What the records add is the same in both, so it is taken over from the old checksum: a record that is damaged in
// memory between the source and the destination leaves a checksum that the destination refuses.
func rehead(batch []byte, before uint32) {
	sum := binary.BigEndian.Uint32(batch[offCRC:])
	binary.BigEndian.PutUint32(batch[offCRC:], sum^behind(before^headSum(batch), len(batch)-HeaderSize))
}

// behind returns what a difference between two checksums becomes when n equal bytes follow: that times x^8n, modulo the
// polynomial.
func behind(difference uint32, n int) uint32 {
	for rest := uint(n); rest != 0; rest &= rest - 1 {
		difference = multiply(powers[bits.TrailingZeros(rest)], difference)
	}
	return difference
}

// powers has x^(8·2^k).
var powers = func() (p [64]uint32) {
	p[0] = 1 << (31 - 8)
	for k := 1; k < len(p); k++ {
		p[k] = multiply(p[k-1], p[k-1])
	}
	return p
}()

// multiply multiplies two polynomials over GF(2), modulo that of CRC-32C. The highest bit is x^0.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a>>31 == 1 {
			product ^= b
		}
		carry := b & 1
		b >>= 1
		b ^= castagnoliReversed & -carry
	}
	return product
}
