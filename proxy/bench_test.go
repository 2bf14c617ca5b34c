package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
)

// BenchmarkPass measures requests that go through untouched: one at a time, and pipelined. allocs/op must stay at nothing,
// for neither the benchmark's client nor its broker allocates.
func BenchmarkPass(b *testing.B) {
	for _, size := range []int{100, 100_000} {
		for name, depth := range map[string]int{"single": 1, "pipelined": 50} {
			b.Run(name+"/"+map[int]string{100: "100B", 100_000: "100kB"}[size], func(b *testing.B) {
				benchmarkPass(b, request(3, 1, 0, make([]byte, size)), depth, handlerFunc{})
			})
		}
	}
}

// BenchmarkProduce measures large requests that pass by their beginning, and such that are held until they are there in full.
func BenchmarkProduce(b *testing.B) {
	for name, pass := range map[string]*Pass{"passes": {}, "held": nil} {
		h := handlerFunc{
			route:   func(Client, Header) Route { return Route{Whole: true, Opening: func([]byte) *Pass { return pass }} },
			request: func(_ Client, _ Header, frame []byte) Decision { return Decision{Forward: frame} },
		}
		b.Run(name+"/1MB", func(b *testing.B) { benchmarkPass(b, produce(0, 1, make([]byte, 1<<20)), 5, h) })
	}
}

func benchmarkPass(b *testing.B, one []byte, depth int, h Handler) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	answer := make([]byte, 4+4+100)
	binary.BigEndian.PutUint32(answer, uint32(len(answer)-4))
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		frame := make([]byte, len(one))
		for {
			if _, err := io.ReadFull(conn, frame[:12]); err != nil {
				return
			}
			if _, err := io.ReadFull(conn, frame[12:4+binary.BigEndian.Uint32(frame)]); err != nil {
				return
			}
			copy(answer[4:8], frame[8:12])
			if _, err := conn.Write(answer); err != nil {
				return
			}
		}
	}()
	cfg := DefaultConfig()
	cfg.Listen, cfg.Bootstrap = "127.0.0.1:0", []string{ln.Addr().String()}
	srv, err := New(cfg, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	if err := srv.Start(context.Background(), h); err != nil {
		b.Fatal(err)
	}
	defer srv.Stop(context.Background())
	c, err := net.Dial("tcp", srv.Addr())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	stream := bytes.Repeat(one, depth)
	in := make([]byte, len(answer)*depth)
	b.SetBytes(int64(len(one)))
	b.ReportAllocs()
	for n := 0; n < b.N; n += depth {
		if _, err := c.Write(stream); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, in); err != nil {
			b.Fatal(err)
		}
	}
}
