package faultproxy

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers every frame with its correlation ID and counts the frames.
func echo(t *testing.T) (address string, frames *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	frames = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(c, frames)
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return listener.Addr().String(), frames
}

func answer(c net.Conn, frames *atomic.Int64) {
	defer c.Close()
	for {
		var length [4]byte
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err := io.ReadFull(c, frame); err != nil {
			return
		}
		frames.Add(1)
		if _, err := c.Write(append([]byte{0, 0, 0, 6}, append(frame[4:8:8], 'o', 'k')...)); err != nil {
			return
		}
	}
}

func start(t *testing.T, target string) *Proxy {
	t.Helper()
	p, err := Listen("127.0.0.1:0", target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a request and returns the correlation ID of the answer.
func ask(c net.Conn, key int16, correlation int32) (int32, error) {
	frame := binary.BigEndian.AppendUint32(nil, 20)
	frame = binary.BigEndian.AppendUint16(frame, uint16(key))
	frame = binary.BigEndian.AppendUint16(frame, 3)
	frame = binary.BigEndian.AppendUint32(frame, uint32(correlation))
	if _, err := c.Write(append(frame, make([]byte, 12)...)); err != nil {
		return 0, err
	}
	var response [10]byte
	if _, err := io.ReadFull(c, response[:]); err != nil {
		return 0, err
	}
	return int32(binary.BigEndian.Uint32(response[4:])), nil
}

func TestForwards(t *testing.T) {
	target, _ := echo(t)
	p := start(t, target)
	c := dial(t, p)
	for i := range int32(3) {
		if got, err := ask(c, 0, i); err != nil || got != i {
			t.Fatalf("answer %d, %v; want %d", got, err, i)
		}
	}
	if p.Cuts() != 0 || p.Accepted() != 1 {
		t.Errorf("%d cuts, %d accepted", p.Cuts(), p.Accepted())
	}
}

// The target has carried the request out, the client sees only a reset.
func TestCutResponses(t *testing.T) {
	target, frames := echo(t)
	p := start(t, target)
	p.CutResponses(func(key, version int16) bool { return key == 0 && version == 3 })
	c := dial(t, p)
	if _, err := ask(c, 1, 7); err != nil {
		t.Fatalf("another key: %v", err)
	}
	if _, err := ask(c, 0, 8); err == nil {
		t.Fatal("the answer came through")
	}
	if frames.Load() != 2 || p.Cuts() != 1 {
		t.Fatalf("target saw %d frames, want 2; %d cuts, want 1", frames.Load(), p.Cuts())
	}
}

func TestCutAfter(t *testing.T) {
	target, frames := echo(t)
	p := start(t, target)
	p.CutAfter(func(connection int64) int64 { return []int64{24 + 5, 24 + 10 + 12, 0}[connection] })
	if _, err := ask(dial(t, p), 0, 1); err == nil {
		t.Error("an answer of 10 bytes came through a connection cut after 5 of them")
	}
	c := dial(t, p)
	if _, err := ask(c, 0, 1); err != nil {
		t.Errorf("within the limit: %v", err)
	}
	if _, err := ask(c, 0, 2); err == nil {
		t.Error("beyond the limit")
	}
	if _, err := ask(dial(t, p), 0, 1); err != nil {
		t.Errorf("without a limit: %v", err)
	}
	if frames.Load() != 3 {
		t.Errorf("target saw %d frames, want 3: half a frame must not be one", frames.Load())
	}
}

func TestPause(t *testing.T) {
	target, _ := echo(t)
	p := start(t, target)
	old := dial(t, p)
	if _, err := ask(old, 0, 1); err != nil {
		t.Fatal(err)
	}
	p.Pause()
	conns := map[string]net.Conn{"old": old, "new": dial(t, p)}
	for name, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := ask(c, 0, 2); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s connection while paused: %v", name, err)
		}
	}
	p.Resume()
	for name, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		var response [10]byte
		if _, err := io.ReadFull(c, response[:]); err != nil || response[7] != 2 {
			t.Errorf("%s connection after the pause: %v %v", name, response, err)
		}
	}
	if n := p.Cut(); n != 2 {
		t.Errorf("cut %d connections, want 2", n)
	}
}

// A connection that is accepted and does not lead anywhere yet when the others are cut does not lead to the target of before.
func TestCutWhileConnecting(t *testing.T) {
	before, asked := echo(t)
	after, _ := echo(t)
	p := start(t, before)
	p.Pause()
	c := dial(t, p)
	for p.Accepted() == 0 {
		time.Sleep(time.Millisecond)
	}
	p.SetTarget(after)
	p.Cut()
	p.Resume()
	if _, err := ask(c, 0, 1); err == nil {
		t.Error("the connection was not cut")
	}
	if _, err := ask(dial(t, p), 0, 2); err != nil {
		t.Errorf("a new connection: %v", err)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the target of before was asked %d times", n)
	}
}
