package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	lengthBytes = 4
	// requestPeek is how much of a frame says what it is: length, API key, version, correlation ID.
	requestPeek = lengthBytes + 8
	// responsePeek is length and correlation ID.
	responsePeek = lengthBytes + 4
)

// frameError is why bytes cannot be a Kafka frame. reason is the metric label.
type frameError struct {
	reason string
	text   string
}

func (e *frameError) Error() string { return e.text }

// frameReason is the metric label for an error from reading a frame.
func frameReason(err error, otherwise string) string {
	var fe *frameError
	if errors.As(err, &fe) {
		return fe.reason
	}
	return otherwise
}

// peekRequest reads the start of a frame. ok is false while b is too short to tell; an impossible length is reported as
// soon as it is there.
func peekRequest(b []byte, maxBytes int32) (h Header, ok bool, err error) {
	if len(b) < lengthBytes {
		return Header{}, false, nil
	}
	h.Size = int32(binary.BigEndian.Uint32(b))
	if h.Size < 8 || h.Size > maxBytes {
		return h, false, lengthError(b, h.Size, maxBytes)
	}
	if len(b) < requestPeek {
		return h, false, nil
	}
	h.Key = int16(binary.BigEndian.Uint16(b[4:]))
	h.Version = int16(binary.BigEndian.Uint16(b[6:]))
	h.CorrelationID = int32(binary.BigEndian.Uint32(b[8:]))
	if least := minRequest(h.Key, h.Version); h.Size < least {
		return h, false, &frameError{reasonHeader, fmt.Sprintf(
			"request of %d bytes: the header of API key %d version %d alone has %d", h.Size, h.Key, h.Version, least)}
	}
	return h, true, nil
}

// peekResponse reads the start of a response frame.
func peekResponse(b []byte) (size, correlationID int32, err error) {
	size = int32(binary.BigEndian.Uint32(b))
	if size < 4 || looksLikeTLS(b) {
		return size, 0, lengthError(b, size, math.MaxInt32)
	}
	return size, int32(binary.BigEndian.Uint32(b[4:])), nil
}

// lengthError says what a length that cannot be one may have been.
func lengthError(b []byte, size, maxBytes int32) error {
	switch string(b[:4]) {
	case "GET ", "POST", "PUT ", "HEAD", "DELE", "OPTI", "PATC", "CONN", "PRI ", "HTTP":
		return &frameError{reasonHTTP, "looks like HTTP on a Kafka port"}
	}
	if looksLikeTLS(b) {
		return &frameError{reasonTLS, "looks like TLS on a plaintext port"}
	}
	if size < 0 || size > maxBytes {
		return &frameError{reasonLength, fmt.Sprintf("frame length %d is not between 8 and %d", size, maxBytes)}
	}
	return &frameError{reasonLength, fmt.Sprintf("frame length %d is too small to hold a header", size)}
}

// looksLikeTLS recognises the start of a TLS record: handshake (22) or alert (21), version 3.x. As a length it would be
// 352 or 369 MB.
func looksLikeTLS(b []byte) bool {
	return (b[0] == 0x16 || b[0] == 0x15) && b[1] == 0x03 && b[2] <= 4
}

// minRequest is the length of the shortest possible header: 8 bytes, a client ID, and tagged fields where flexible.
// ControlledShutdown v0 is the one request whose header has no client ID. Unknown keys are held to the common part.
func minRequest(key, version int16) int32 {
	switch {
	case key == keyControlledShutdown && version == 0:
		return 8
	case flexibleRequest(key, version):
		return 11
	default:
		return 10
	}
}

const (
	keyProduce            = 0
	keyControlledShutdown = 7
	keySaslHandshake      = 17
	keyAPIVersions        = 18
	keySaslAuthenticate   = 36
)

// flexibleSince has, for each API key, the first version with a flexible header (KIP-482), as kmsg knows it.
var flexibleSince = sync.OnceValue(func() *[kmsg.MaxKey + 1]int16 {
	var table [kmsg.MaxKey + 1]int16
	for key := range int16(kmsg.MaxKey + 1) {
		table[key] = math.MaxInt16
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		for v := range req.MaxVersion() + 1 {
			if req.SetVersion(v); req.IsFlexible() {
				table[key] = v
				break
			}
		}
	}
	return &table
})

// flexibleRequest tells whether a request has a header with tagged fields; false for keys that this build does not know.
func flexibleRequest(key, version int16) bool {
	table := flexibleSince()
	return key >= 0 && int(key) < len(table) && version >= table[key]
}
