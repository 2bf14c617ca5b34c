package proxy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBuffers: a buffer has room for what was asked for and at most twice that, and two that are in use share nothing.
func TestBuffers(t *testing.T) {
	var p bufferPool
	var used [][]byte
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		n := 1 + rng.IntN(1<<(1+rng.IntN(pooledMaxBits+1)))
		b := p.get(n)
		require.Empty(t, b)
		require.GreaterOrEqual(t, cap(b), n)
		if n > pooledMax {
			require.Equal(t, n, cap(b))
		} else {
			require.LessOrEqual(t, cap(b), max(2*n, 1<<pooledMinBits))
		}
		used = append(used, binary.BigEndian.AppendUint64(b, uint64(i)))
		if i%3 == 0 {
			at := rng.IntN(len(used))
			p.put(used[at])
			used = append(used[:at], used[at+1:]...)
		}
	}
	last := -1
	for _, b := range used {
		require.Greater(t, int(binary.BigEndian.Uint64(b)), last, "somebody else has written there")
		last = int(binary.BigEndian.Uint64(b))
	}
}

// TestHeldFrames: frames that are collected at the same time, requests and responses, keep what is theirs, and buffers that go
// back are no longer counted.
func TestHeldFrames(t *testing.T) {
	b := newFakeBroker(t, echo)
	s := startServer(t, b, handlerFunc{
		route:   whole,
		request: func(_ Client, _ Header, frame []byte) Decision { return Decision{Forward: frame, Rewrite: same} },
	}, nil)
	var group sync.WaitGroup
	for i := range 6 {
		c := s.dial()
		rng := rand.New(rand.NewPCG(3, uint64(i)))
		group.Go(func() {
			if err := echoed(c, i, rng); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	require.Eventually(t, func() bool { return s.held.Load() == 0 && value(t, s.metrics.held) == 0 }, wait, time.Millisecond)
}

func same(frame []byte) ([]byte, error) { return frame, nil }

// echoed sends frames with contents of their own and checks what comes back.
func echoed(c io.ReadWriter, client int, rng *rand.Rand) error {
	for corr := range int32(20) {
		body := bytes.Repeat(fmt.Appendf(nil, "client %d request %d;", client, corr), 1+rng.IntN(1<<rng.IntN(17)))
		if _, err := c.Write(request(3, 1, corr, body)); err != nil {
			return err
		}
		frame, err := readFrame(c)
		if err != nil {
			return err
		}
		if !bytes.Equal(frame[4:], append([]byte("\x00\x01t"), body...)) {
			return fmt.Errorf("client %d, request %d: another's bytes came back", client, corr)
		}
	}
	return nil
}
