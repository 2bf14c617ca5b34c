package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// encode makes a request frame, without its length, as kgo would.
func encode(req kmsg.Request, corr int32, clientID *string) (Header, []byte) {
	var opts []kmsg.RequestFormatterOpt
	if clientID != nil {
		opts = append(opts, kmsg.FormatterClientID(*clientID))
	}
	b := kmsg.NewRequestFormatter(opts...).AppendRequest(nil, req, corr)
	return Header{Key: req.Key(), Version: req.GetVersion(), CorrelationID: corr, Size: int32(len(b) - 4)}, b[4:]
}

// TestHeaders: the shortest request of every key and version that kmsg knows passes, and is read as what it is.
func TestHeaders(t *testing.T) {
	for key := range int16(kmsg.MaxKey + 1) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		for v := range req.MaxVersion() + 1 {
			req.SetVersion(v)
			want, frame := encode(req, 77, nil)
			h, ok, err := peekRequest(withLength(frame), 1<<20)
			require.NoError(t, err, "key %d version %d", key, v)
			require.True(t, ok)
			require.Equal(t, want, h)
			require.Equal(t, req.IsFlexible(), flexibleRequest(key, v))
		}
	}
	require.False(t, flexibleRequest(107, 0), "unknown keys are not interpreted")
	require.False(t, flexibleRequest(-1, 0))
}

// TestProduceAcks reads acks at every version, however little of the request has arrived.
func TestProduceAcks(t *testing.T) {
	empty, name, long := "", "producer-1", string(bytes.Repeat([]byte("n"), 20_000))
	for v := range kmsg.NewPtrProduceRequest().MaxVersion() + 1 {
		for _, clientID := range []*string{nil, &empty, &name, &long} {
			for _, txn := range []*string{nil, &empty, &name, &long} {
				for _, acks := range []int16{0, 1, -1} {
					req := kmsg.NewPtrProduceRequest()
					req.Version, req.Acks, req.TransactionID = v, acks, txn
					req.Topics = []kmsg.ProduceRequestTopic{kmsg.NewProduceRequestTopic()}
					h, frame := encode(req, 1, clientID)
					got, err := produceAcks(h, frame)
					require.NoError(t, err)
					require.Equal(t, acks, got, "version %d", v)
					if clientID == &long || txn == &long {
						continue
					}
					for n := range frame {
						got, err := produceAcks(h, frame[:n])
						if err == nil {
							require.Equal(t, acks, got)
							require.NotZero(t, n)
						} else {
							require.Equal(t, errMore, err)
						}
					}
				}
			}
		}
	}
}

// TestProduceAcksBehindTags: unknown tagged fields of the header are skipped.
func TestProduceAcksBehindTags(t *testing.T) {
	frame := append([]byte{0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff}, 2, 0, 3, 'a', 'b', 'c', 5, 0, 0, 0, 0)
	got, err := produceAcks(Header{Version: 9, Size: int32(len(frame))}, frame)
	require.NoError(t, err)
	require.Zero(t, got)
}

func TestProduceAcksHostile(t *testing.T) {
	for name, frame := range map[string][]byte{
		"ends in the client ID":       {0, 0, 0, 9, 0, 0, 0, 1, 0x7f, 0xff},
		"ends before acks":            {0, 0, 0, 7, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff},
		"a million tags":              {0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0x80, 0x80, 0x80, 0x01},
		"a tag longer than the frame": {0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x0f},
		"a number without end":        {0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	} {
		_, err := produceAcks(Header{Version: int16(frame[3]), Size: int32(len(frame))}, frame)
		var fe *frameError
		require.True(t, errors.As(err, &fe), "%s: %v", name, err)
	}
	h := Header{Version: 9, Size: 1 << 30}
	tags := binary.AppendUvarint([]byte{0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 1, 0}, 1<<20)
	_, err := produceAcks(h, append(tags, make([]byte, peekMax)...))
	require.ErrorContains(t, err, "without acks in its first 128 KiB")
}

func TestSaslTokens(t *testing.T) {
	for mechanism, want := range map[string]int{"PLAIN": 1, "SCRAM-SHA-512": 2, "OAUTHBEARER": 1, "GSSAPI": 3} {
		req := kmsg.NewPtrSASLHandshakeRequest()
		req.Mechanism = mechanism
		h, frame := encode(req, 1, nil)
		n, silent, err := saslTokens(h, frame)
		require.NoError(t, err)
		require.Equal(t, want, n)
		require.Equal(t, mechanism == "GSSAPI", silent)
		_, _, err = saslTokens(h, frame[:len(frame)-1])
		require.Equal(t, errMore, err)
	}
}

// FuzzRequest feeds arbitrary bytes to everything that reads the start of a request, in pieces: no piece may panic, read
// beyond what is there, or decide otherwise than the whole does.
func FuzzRequest(f *testing.F) {
	for _, acks := range []int16{0, 1} {
		for _, v := range []int16{0, 2, 3, 7, 9, 13} {
			req := kmsg.NewPtrProduceRequest()
			req.Version, req.Acks = v, acks
			_, frame := encode(req, 1, kmsg.StringPtr("client"))
			f.Add(withLength(frame), uint16(9))
		}
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(3))
	f.Add([]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), uint16(5))
	f.Add(request(17, 0, 1, []byte("\x00\x05PLAIN")), uint16(14))
	f.Add(request(7, 0, 1, nil), uint16(12))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		h, ok, err := peekRequest(b, math.MaxInt32-4)
		part := b[:min(int(cut), len(b))]
		ph, pok, perr := peekRequest(part, math.MaxInt32-4)
		if pok && (!ok || h != ph) || perr != nil && err == nil {
			t.Fatalf("a part says %+v %v %v, the whole %+v %v %v", ph, pok, perr, h, ok, err)
		}
		if !ok {
			return
		}
		if len(b)-4 > int(h.Size) {
			b = b[:4+h.Size]
			part = part[:min(len(part), len(b))]
		}
		acks, err := produceAcks(h, b[4:])
		if pok {
			packs, perr := produceAcks(h, part[4:])
			if perr == nil && (err != nil || acks != packs) {
				t.Fatalf("a part has acks %d, the whole %d, %v", packs, acks, err)
			}
		}
		if err == errMore && len(b)-4 >= int(h.Size) {
			t.Fatal("asks for more than the frame has")
		}
		_, _, err = saslTokens(h, b[4:])
		if err == errMore && len(b)-4 >= int(h.Size) {
			t.Fatal("asks for more than the frame has")
		}
	})
}
