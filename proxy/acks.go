package proxy

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
)

// peekMax bounds how far into a request the proxy looks for acks or a mechanism: the two strings before them have at
// most 32 KiB each, and nobody sends tagged fields of that size.
const peekMax = 128 << 10

// tagsMax bounds the work of reading a header again for each byte that a hostile client sends.
const tagsMax = 1000

// errMore: the bytes that say it have not arrived yet.
var errMore = errors.New("more bytes are needed")

// cursor reads forward in the start of a frame. After the first failure it stays failed.
type cursor struct {
	b   []byte // what has arrived of the frame, length excluded
	off int
	end int // the frame's length, which b may not have reached
	err error
}

func (c *cursor) skip(n int) {
	switch {
	case c.err != nil:
	case n < 0 || n > c.end-c.off:
		c.err = &frameError{reasonHeader, "frame ends inside its header"}
	case n > len(c.b)-c.off:
		c.err = errMore
	default:
		c.off += n
	}
}

func (c *cursor) int16() int16 {
	at := c.off
	if c.skip(2); c.err != nil {
		return 0
	}
	return int16(binary.BigEndian.Uint16(c.b[at:]))
}

func (c *cursor) uvarint() int {
	var v uint64
	for shift := 0; shift < 35; shift += 7 {
		at := c.off
		if c.skip(1); c.err != nil {
			return 0
		}
		v |= uint64(c.b[at]&0x7f) << shift
		if c.b[at] < 0x80 {
			return int(min(v, math.MaxInt32))
		}
	}
	if c.err == nil {
		c.err = &frameError{reasonHeader, "length in a header is not a number"}
	}
	return 0
}

// string reads a string with a length of two bytes; null is empty.
func (c *cursor) string() string {
	n := int(c.int16())
	if n <= 0 {
		return ""
	}
	at := c.off
	if c.skip(n); c.err != nil {
		return ""
	}
	return string(c.b[at : at+n])
}

func (c *cursor) skipString() {
	if n := int(c.int16()); n > 0 {
		c.skip(n)
	}
}

// skipHeader moves behind the request header. The client ID is an ordinary nullable string even where the header is
// flexible, as brokers must be able to read it before they know the client's version.
func (c *cursor) skipHeader(flexible bool) {
	c.skip(8)
	c.skipString()
	if flexible {
		c.skipTags()
	}
}

// skipTags moves behind tagged fields.
func (c *cursor) skipTags() {
	tags := c.uvarint()
	if tags > tagsMax && c.err == nil {
		c.err = &frameError{reasonHeader, "header with more than 1000 tagged fields"}
	}
	for ; tags > 0 && c.err == nil; tags-- {
		c.uvarint()
		c.skip(c.uvarint())
	}
}

// produceAcks reads the acks of a Produce request from the start of its frame (length excluded). The body begins with a
// transactional ID (v3+, compact from v9) and acks. errMore means that b is too short yet.
func produceAcks(h Header, b []byte) (int16, error) {
	c := cursor{b: b, end: int(h.Size)}
	flexible := flexibleRequest(keyProduce, h.Version)
	c.skipHeader(flexible)
	switch {
	case flexible:
		if n := c.uvarint(); n > 1 {
			c.skip(n - 1)
		}
	case h.Version >= 3:
		c.skipString()
	}
	acks := c.int16()
	if c.err == errMore && len(b) > peekMax {
		return 0, &frameError{reasonHeader, "Produce request without acks in its first 128 KiB"}
	}
	return acks, c.err
}

// saslTokens reads the mechanism of a SaslHandshake v0. After that version the client's authentication follows as bare
// length-prefixed tokens instead of SaslAuthenticate requests. It returns how many of them the client will send, and
// whether the last gets no answer (GSSAPI).
func saslTokens(h Header, b []byte) (n int, lastSilent bool, err error) {
	c := cursor{b: b, end: int(h.Size)}
	c.skipHeader(false)
	mechanism := c.string()
	if c.err == errMore && len(b) > peekMax {
		return 0, false, &frameError{reasonHeader, "SaslHandshake without mechanism in its first 128 KiB"}
	}
	switch {
	case mechanism == "GSSAPI":
		return 3, true, c.err
	case strings.HasPrefix(mechanism, "SCRAM-"):
		return 2, false, c.err
	default:
		return 1, false, c.err
	}
}
