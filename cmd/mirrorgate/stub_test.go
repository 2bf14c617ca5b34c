package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// stubGateway answers mirror RPCs as a test tells it, over TCP, and keeps what it was asked.
type stubGateway struct {
	addr string
	// answer answers a request; a nil response ends the connection. Calls do not overlap.
	answer func(kmsg.Request) kmsg.Response
	// moved are the keys that this gateway has elsewhere: its own to the default one.
	moved map[int16]int16
	// plain makes it a broker without mirror RPCs.
	plain bool

	mu    sync.Mutex
	asked []kmsg.Request
	conns map[net.Conn]struct{}
}

func startStub(t *testing.T, answer func(kmsg.Request) kmsg.Response) *stubGateway {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &stubGateway{addr: listener.Addr().String(), answer: answer, conns: map[net.Conn]struct{}{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[conn] = struct{}{}
			s.mu.Unlock()
			running.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		s.mu.Lock()
		for conn := range s.conns {
			_ = conn.Close()
		}
		s.mu.Unlock()
		running.Wait()
	})
	return s
}

func (s *stubGateway) serve(conn net.Conn) {
	defer conn.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, frame); err != nil {
			return
		}
		body := s.respond(int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:])), frame[8:])
		if body == nil {
			return
		}
		out := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
		if _, err := conn.Write(append(append(out, frame[4:8]...), body...)); err != nil {
			return
		}
	}
}

// respond returns the response without its correlation ID; rest is the request behind its own.
func (s *stubGateway) respond(key, version int16, rest []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key == int16(kmsg.ApiVersions) {
		return s.apiVersions(version).AppendTo(nil)
	}
	standard := key
	if moved, ok := s.moved[key]; ok {
		standard = moved
	}
	req := mirrormsg.RequestForKey(standard)
	if key == int16(kmsg.DescribeConfigs) || key == int16(kmsg.IncrementalAlterConfigs) {
		req = kmsg.RequestForKey(key)
		req.SetVersion(version)
	}
	if req == nil {
		return nil
	}
	clientID := int(binary.BigEndian.Uint16(rest))
	if err := req.ReadFrom(rest[2+clientID+1:]); err != nil {
		return nil
	}
	s.asked = append(s.asked, req)
	resp := s.answer(req)
	if resp == nil {
		return nil
	}
	resp.SetVersion(version)
	return resp.AppendTo([]byte{0})
}

func (s *stubGateway) apiVersions(version int16) *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = version
	add := func(key, max int16) {
		listed := kmsg.NewApiVersionsResponseApiKey()
		listed.ApiKey, listed.MaxVersion = key, max
		resp.ApiKeys = append(resp.ApiKeys, listed)
	}
	add(0, 11)
	add(3, 12)
	add(18, 4)
	add(int16(kmsg.DescribeConfigs), 4)
	add(int16(kmsg.IncrementalAlterConfigs), 1)
	if s.plain {
		return resp
	}
	elsewhere := map[int16]bool{}
	for key, standard := range s.moved {
		add(key, 0)
		elsewhere[standard] = true
	}
	for _, key := range mirrormsg.Keys() {
		if !elsewhere[key] {
			add(key, 0)
		}
	}
	return resp
}

// set changes how the gateway answers; a request of an earlier command, which gave it up, may still be on its way.
func (s *stubGateway) set(answer func(kmsg.Request) kmsg.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// requests returns what was asked so far.
func (s *stubGateway) requests() []kmsg.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]kmsg.Request(nil), s.asked...)
}

// result is what a command line did.
type result struct {
	code           int
	stdout, stderr string
}

// mirrors runs "mirrorgate mirrors" with args against the stub.
func (s *stubGateway) mirrors(t *testing.T, args ...string) result {
	t.Helper()
	return command(t, append([]string{"mirrors", args[0], "--bootstrap-server", s.addr}, args[1:]...)...)
}

func command(t *testing.T, args ...string) result {
	t.Helper()
	var stdout, stderr strings.Builder
	code := run(context.Background(), args, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// requireJSON compares JSON documents.
func requireJSON(t *testing.T, want, got string) {
	t.Helper()
	require.True(t, json.Valid([]byte(got)), got)
	require.JSONEq(t, want, got)
}
