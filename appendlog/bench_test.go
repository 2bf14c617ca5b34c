package appendlog

import (
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/broker"
)

// nullBroker answers everything that a Client asks, at once, and keeps nothing: what is left is the cost of this package.
type nullBroker struct {
	l          net.Listener
	partitions int32
	producing  func(*kmsg.ProduceRequest) // called before a request is answered, if not nil; may block
	wg         sync.WaitGroup
	mu         sync.Mutex
	conns      []net.Conn
}

func startNullBroker(t testing.TB, partitions int32) *nullBroker {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &nullBroker{l: l, partitions: partitions}
	b.wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.conns = append(b.conns, nc)
			b.mu.Unlock()
			b.wg.Go(func() { b.serve(nc) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		b.mu.Lock()
		for _, nc := range b.conns {
			nc.Close()
		}
		b.mu.Unlock()
		b.wg.Wait()
	})
	return b
}

func (b *nullBroker) serve(nc net.Conn) {
	defer nc.Close()
	var frame []byte
	for {
		var size [4]byte
		if _, err := io.ReadFull(nc, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint32(size[:]))
		if cap(frame) < n {
			frame = make([]byte, n)
		}
		frame = frame[:n]
		if _, err := io.ReadFull(nc, frame); err != nil {
			return
		}
		resp, flexible := b.answer(frame)
		out := append([]byte{0, 0, 0, 0}, frame[4:8]...)
		if flexible {
			out = append(out, 0)
		}
		out = resp.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := nc.Write(out); err != nil {
			return
		}
	}
}

func (b *nullBroker) answer(frame []byte) (kmsg.Response, bool) {
	key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	body := frame[8:]
	body = body[2+max(0, int(int16(binary.BigEndian.Uint16(body)))):]
	if req.IsFlexible() {
		body = body[1:]
	}
	resp := req.ResponseKind()
	switch resp := resp.(type) {
	case *kmsg.ApiVersionsResponse:
		for k, v := range map[int16]int16{0: 11, 1: 12, 2: 7, 3: 12, 18: 3} {
			resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: k, MaxVersion: v})
		}
		return resp, false
	case *kmsg.MetadataResponse:
		b.metadata(resp)
	case *kmsg.ListOffsetsResponse:
		_ = req.ReadFrom(body)
		for _, t := range req.(*kmsg.ListOffsetsRequest).Topics {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Offset = t.Partitions[0].Partition, 0
			resp.Topics = append(resp.Topics, kmsg.ListOffsetsResponseTopic{Topic: t.Topic, Partitions: []kmsg.ListOffsetsResponseTopicPartition{rp}})
		}
	case *kmsg.ProduceResponse:
		produced(req.(*kmsg.ProduceRequest), body, resp, b.producing)
	}
	return resp, req.IsFlexible()
}

func (b *nullBroker) metadata(resp *kmsg.MetadataResponse) {
	host, port, _ := net.SplitHostPort(b.l.Addr().String())
	n, _ := strconv.Atoi(port)
	resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: 1, Host: host, Port: int32(n)})
	t := kmsg.NewMetadataResponseTopic()
	t.Topic = kmsg.StringPtr("t")
	for p := range b.partitions {
		rp := kmsg.NewMetadataResponseTopicPartition()
		rp.Partition, rp.Leader = p, 1
		t.Partitions = append(t.Partitions, rp)
	}
	resp.Topics = append(resp.Topics, t)
}

// produced answers every batch with the offset that its sequence says.
func produced(req *kmsg.ProduceRequest, body []byte, resp *kmsg.ProduceResponse, before func(*kmsg.ProduceRequest)) {
	_ = req.ReadFrom(body)
	if before != nil {
		before(req)
	}
	for _, t := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.BaseOffset = p.Partition, int64(binary.BigEndian.Uint32(p.Records[53:]))
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
}

// feeder appends one batch over and over from the Handler's calls, as fast as the Log takes it.
type feeder struct {
	log    *Log
	left   int
	base   int64
	spare  []Batch // acknowledged buffers
	inUse  []Batch
	opened chan struct{}
	done   chan struct{}
}

func (f *feeder) feed() {
	for f.left > 0 && len(f.spare) > 0 {
		b := f.spare[len(f.spare)-1]
		n := b.Next - b.Base
		b.Base, b.Next = f.base, f.base+n
		if f.log.Append(b) != nil {
			return
		}
		f.spare = f.spare[:len(f.spare)-1]
		f.inUse = append(f.inUse, b)
		f.base = b.Next
		f.left--
	}
}

func (f *feeder) Ready(end int64) { f.base = end; <-f.opened; f.feed() }
func (f *feeder) Acked(next int64, batches, bytes int) {
	f.spare = append(f.spare, f.inUse[0])
	f.inUse = append(f.inUse[:0], f.inUse[1:]...)
	if f.feed(); f.left == 0 && len(f.inUse) == 0 {
		close(f.done)
	}
}
func (f *feeder) Doubt(err error)   { panic(err) }
func (f *feeder) Fenced(last int64) { panic("fenced") }
func (f *feeder) Failed(err error)  { panic(err) }

// BenchmarkAppend: 12 partitions, batches of 16 KiB and of 256 bytes, to a broker that does nothing.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{256, 16 << 10} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			const partitions = 12
			null := startNullBroker(b, partitions)
			c, err := NewClient(Config{Broker: broker.Config{Bootstrap: []string{null.l.Addr().String()}}})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			one := makeBatch(0, 1)
			pad := size - len(one.Bytes)
			one.Bytes = append(one.Bytes, make([]byte, pad)...) // not decoded by anybody here
			binary.BigEndian.PutUint32(one.Bytes[8:], uint32(len(one.Bytes)-12))
			feeders := make([]*feeder, partitions)
			for i := range feeders {
				f := &feeder{left: b.N/partitions + 1, opened: make(chan struct{}), done: make(chan struct{})}
				for range 20 {
					f.spare = append(f.spare, Batch{Bytes: append([]byte(nil), one.Bytes...), Next: 1})
				}
				f.log = c.Open(Partition{Topic: "t", Partition: int32(i), ProducerID: 1}, nil, f)
				feeders[i] = f
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for _, f := range feeders {
				close(f.opened)
			}
			for _, f := range feeders {
				<-f.done
			}
		})
	}
}
