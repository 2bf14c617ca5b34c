package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What happens to a request of the ordering test is in its correlation ID modulo kinds.
const (
	kindPass = iota
	kindRewrite
	kindForward
	kindForwardRewrite
	kindAnswer
	kindWork
	kindAsk
	kindSilent
	kindSilentWhole
	kinds
)

// mixed is a handler that does everything a handler can, at random times.
type mixed struct{ delay func() }

func (mixed) Route(_ Client, h Header) Route {
	switch h.CorrelationID % kinds {
	case kindPass, kindSilent:
		return Route{}
	case kindRewrite:
		return Route{Rewrite: rewriteTo('R')}
	default:
		return Route{Whole: true}
	}
}

// rewriteTo makes the response longer, and marks it.
func rewriteTo(mark byte) Rewrite {
	return func(frame []byte) ([]byte, error) {
		return append(append(bytes.Clone(frame[:4]), mark), frame[4:]...), nil
	}
}

func (m mixed) Request(_ Client, h Header, frame []byte) Decision {
	switch h.CorrelationID % kinds {
	case kindForward:
		return Decision{Forward: frame}
	case kindForwardRewrite:
		return Decision{Forward: append(bytes.Clone(frame), "+more"...), Rewrite: rewriteTo('F')}
	case kindAnswer:
		return Decision{Answer: append(frame[4:8:8], 'A')}
	case kindSilentWhole:
		return Decision{Forward: frame, NoResponse: true}
	case kindAsk:
		return askThenForward(frame)
	}
	corr := h.CorrelationID
	return Decision{Work: func(ctx context.Context, up Upstream) ([]byte, error) {
		m.delay()
		out := response(corr, "W")
		for i := range int(corr/kinds) % 3 {
			req := kmsg.NewPtrApiVersionsRequest()
			resp, err := up.RoundTrip(ctx, req)
			if err != nil {
				return nil, fmt.Errorf("round trip %d: %w", i, err)
			}
			out = append(out, byte('0'+resp.(*kmsg.ApiVersionsResponse).ErrorCode))
			m.delay()
		}
		return out, nil
	}}
}

// askThenForward has the answer to a question of the gateway's own in the response.
func askThenForward(frame []byte) Decision {
	learned := byte('?')
	return Decision{
		Ask:     kmsg.NewPtrApiVersionsRequest(),
		Asked:   func(frame []byte) { learned = '0' + frame[5] },
		Forward: frame,
		Rewrite: func(frame []byte) ([]byte, error) { return rewriteTo(learned)(frame) },
	}
}

// want is the response that the client must see, nil if none.
func want(corr int32, payload []byte) []byte {
	echoed := append([]byte("\x00\x01t"), payload...)
	switch corr % kinds {
	case kindPass, kindForward:
		return response(corr, string(echoed))
	case kindRewrite:
		return response(corr, "R"+string(echoed))
	case kindForwardRewrite:
		return response(corr, "F"+string(echoed)+"+more")
	case kindAnswer:
		return response(corr, "A")
	case kindWork:
		return response(corr, "W"+"77777"[:corr/kinds%3])
	case kindAsk:
		return response(corr, "7"+string(echoed))
	}
	return nil
}

// segments writes b in pieces of random size.
func segments(rng *rand.Rand, c net.Conn, b []byte) error {
	for len(b) > 0 {
		n := len(b)
		switch rng.IntN(4) {
		case 0:
			n = min(n, 1+rng.IntN(16))
		case 1:
			n = min(n, 1+rng.IntN(70_000))
		case 2:
			n = min(n, 1+rng.IntN(1500))
		}
		if _, err := c.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func payload(rng *rand.Rand) []byte {
	n := rng.IntN(200)
	if rng.IntN(50) == 0 {
		n = rng.IntN(600_000)
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// TestOrder sends random mixes of everything that can happen to a request, in random segments, through many sessions at
// once, and compares every byte that comes back.
func TestOrder(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	var rngMu sync.Mutex
	shared := rand.New(rand.NewPCG(seed, 1))
	delay := func() {
		rngMu.Lock()
		n := shared.IntN(8)
		rngMu.Unlock()
		if n < 3 {
			time.Sleep(time.Duration(n) * 300 * time.Microsecond)
		}
	}
	var mu sync.Mutex
	silent := map[int32][]byte{} // what reached the broker without wanting an answer
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte {
		delay()
		key := int16(binary.BigEndian.Uint16(frame))
		corr := int32(binary.BigEndian.Uint32(frame[4:]))
		if key == keyAPIVersions {
			return apiVersionsAnswer(frame, 7)
		}
		if kind := corr % kinds; kind == kindSilent || kind == kindSilentWhole {
			mu.Lock()
			silent[corr] = frame
			mu.Unlock()
			return nil
		}
		return echo(c, frame)
	})
	s := startServer(t, b, mixed{delay}, func(c *Config) { c.Workers, c.MaxInFlight, c.OutboundHigh, c.OutboundLow = 3, 40, 200_000, 50_000 })

	const sessions, requests = 12, 250
	wantSilent := map[int32][]byte{}
	var group sync.WaitGroup
	for n := range sessions {
		rng := rand.New(rand.NewPCG(seed, uint64(n)+2))
		var stream bytes.Buffer
		var answers [][]byte
		for i := range requests {
			corr := int32(n*requests+i)*kinds + int32(rng.IntN(kinds))
			p := payload(rng)
			frame := request(3, 1, corr, p)
			if corr%kinds == kindSilent {
				frame = produce(corr, 0, p)
			}
			if corr%kinds >= kindSilent {
				wantSilent[corr] = frame[4:]
			}
			stream.Write(frame)
			if a := want(corr, p); a != nil {
				answers = append(answers, a)
			}
		}
		c := s.dial()
		group.Go(func() {
			if err := segments(rng, c, stream.Bytes()); err != nil {
				t.Error("writing:", err)
			}
		})
		group.Go(func() {
			for i, a := range answers {
				got, err := readFrame(c)
				if err != nil || !bytes.Equal(got, a) {
					t.Errorf("session %d, answer %d: error %v, got %d bytes %.40q, want %d bytes %.40q", n, i, err, len(got), got, len(a), a)
					c.Close()
					return
				}
			}
		})
	}
	group.Wait()
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(silent) == len(wantSilent)
	}, wait, time.Millisecond, "requests without a response are missing at the broker")
	require.Equal(t, wantSilent, silent)
}

// TestForwardOrder: what the broker sees is the client's requests in order, whatever the gateway does with some of them.
func TestForwardOrder(t *testing.T) {
	var mu sync.Mutex
	var seen []int32
	b := newFakeBroker(t, func(c *brokerConn, frame []byte) []byte {
		if int16(binary.BigEndian.Uint16(frame)) == keyAPIVersions {
			return apiVersionsAnswer(frame, 7)
		}
		mu.Lock()
		seen = append(seen, int32(binary.BigEndian.Uint32(frame[4:])))
		mu.Unlock()
		return echo(c, frame)
	})
	s := startServer(t, b, mixed{func() {}}, nil)
	c := s.dial()
	var sent []int32
	var stream []byte
	for i := range int32(60 * kinds) {
		if kind := i % kinds; kind == kindSilent || kind == kindSilentWhole {
			continue // answered by this broker
		}
		stream = append(stream, request(3, 1, i, nil)...)
		if kind := i % kinds; kind != kindAnswer && kind != kindWork {
			sent = append(sent, i)
		}
	}
	_, err := c.Write(stream)
	require.NoError(t, err)
	for i := range int32(60 * kinds) {
		if a := want(i, nil); a != nil {
			got, err := readFrame(c)
			require.NoError(t, err)
			require.Equal(t, string(a), string(got))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	require.True(t, slices.Equal(sent, seen), "the broker saw %v", seen)
}
