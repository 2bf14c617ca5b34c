package handlers

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

const (
	keyProduce              = 0
	keyApiVersions          = 18
	keyDeleteRecords        = 21
	keyOffsetForLeaderEpoch = 23
	keyAddPartitions        = 24
	keyAlterConfigs         = 33
	keyCreatePartitions     = 37
	keyIncrementalAlter     = 44
)

var errTruncated = errors.New("truncated")

// request is a whole request taken apart. Its slices are parts of the frame, which belongs to the proxy.
type request struct {
	proxy.Header
	client proxy.Client
	topics *mirror.Topics // the one snapshot that this request and its response see
	frame  []byte
	bodyAt int // where the body begins in frame
}

func (r *request) body() []byte { return r.frame[r.bodyAt:] }

// requestBodyAt returns where the body of a request frame begins: behind key, version, correlation ID and client ID
// (header v1), and tagged fields where the version is flexible (header v2).
func requestBodyAt(frame []byte, flexible bool) (int, error) {
	const fixed = 2 + 2 + 4
	if len(frame) < fixed+2 {
		return 0, fmt.Errorf("request header: %w", errTruncated)
	}
	at := fixed + 2
	if n := int(int16(binary.BigEndian.Uint16(frame[fixed:]))); n > 0 {
		at += n
	}
	if at > len(frame) {
		return 0, fmt.Errorf("request header: client id: %w", errTruncated)
	}
	if !flexible {
		return at, nil
	}
	end, err := skipTags(frame, at)
	if err != nil {
		return 0, fmt.Errorf("request header: %w", err)
	}
	return end, nil
}

// responseBodyAt returns where the body of a response frame begins: behind the correlation ID (header v0), and tagged
// fields where the version is flexible (header v1). ApiVersions responses have header v0 at every version, so that a
// client can read them before it knows the broker (KIP-511).
func responseBodyAt(frame []byte, key int16, flexible bool) (int, error) {
	if len(frame) < 4 {
		return 0, fmt.Errorf("response header: %w", errTruncated)
	}
	if !flexible || key == keyApiVersions {
		return 4, nil
	}
	end, err := skipTags(frame, 4)
	if err != nil {
		return 0, fmt.Errorf("response header: %w", err)
	}
	return end, nil
}

// skipTags returns where the tagged fields that begin at b[at] end.
func skipTags(b []byte, at int) (int, error) {
	count, at, err := uvarint(b, at)
	if err != nil {
		return 0, err
	}
	for ; count > 0; count-- {
		if _, at, err = uvarint(b, at); err != nil {
			return 0, err
		}
		var size uint32
		if size, at, err = uvarint(b, at); err != nil {
			return 0, err
		}
		if int64(size) > int64(len(b)-at) {
			return 0, fmt.Errorf("tagged field: %w", errTruncated)
		}
		at += int(size)
	}
	return at, nil
}

// uvarint reads Kafka's unsigned varint of at most 32 bits at b[at] and returns where it ends.
func uvarint(b []byte, at int) (uint32, int, error) {
	v, n := binary.Uvarint(b[at:min(at+5, len(b))])
	if n <= 0 || v > 1<<32-1 {
		return 0, 0, fmt.Errorf("varint: %w", errTruncated)
	}
	return uint32(v), at + n, nil
}

// appendRequest appends the header bytes of frame up to bodyAt, and req as the body.
func appendRequest(frame []byte, bodyAt int, req kmsg.Request) []byte {
	return req.AppendTo(append(make([]byte, 0, len(frame)), frame[:bodyAt]...))
}

// ownRequest makes a whole request frame of req with the correlation ID and client ID of r, so that it is the client's for
// the destination's quotas and audit.
func ownRequest(r *request, req kmsg.Request) []byte {
	out := binary.BigEndian.AppendUint16(make([]byte, 0, 256), uint16(req.Key()))
	out = binary.BigEndian.AppendUint16(out, uint16(req.GetVersion()))
	const correlationAt, clientAt = 4, 8
	end := clientAt + 2 + max(0, int(int16(binary.BigEndian.Uint16(r.frame[clientAt:]))))
	out = append(out, r.frame[correlationAt:end]...)
	if req.IsFlexible() {
		out = append(out, 0)
	}
	return req.AppendTo(out)
}

// encodeResponse makes a whole response frame of resp at its version: header v1 with no tagged fields where it is
// flexible, v0 else and for ApiVersions.
func encodeResponse(correlationID int32, resp kmsg.Response) []byte {
	out := binary.BigEndian.AppendUint32(make([]byte, 0, 256), uint32(correlationID))
	if resp.IsFlexible() && resp.Key() != keyApiVersions {
		out = append(out, 0)
	}
	return resp.AppendTo(out)
}

// reencodeResponse makes the response frame anew with resp as its body; the header up to bodyAt stays.
func reencodeResponse(frame []byte, bodyAt int, resp kmsg.Response) []byte {
	return resp.AppendTo(append(make([]byte, 0, len(frame)+64), frame[:bodyAt]...))
}

// decode reads body into req at version. An error closes the connection, as a broker does.
func decode(req kmsg.Request, version int16, body []byte) error {
	req.SetVersion(version)
	if err := req.ReadFrom(body); err != nil {
		return fmt.Errorf("undecodable body: %w", err)
	}
	return nil
}
