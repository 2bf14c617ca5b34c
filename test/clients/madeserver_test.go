//go:build clients

package clients

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// madeServer stands in front of a cluster of one broker and passes everything on, with itself in place of the broker, but answers Fetch
// and ListOffsets for its own topics from logs made up here. It notes the offsets that clients fetch from, which show their real
// position, whatever their API says. It handles one request of a connection at a time.
type madeServer struct {
	upstream string
	host     string
	port     int32
	listener net.Listener
	logs     map[string]*madeLog
	names    map[[16]byte]string

	mu    sync.Mutex
	seen  map[string]*fetchNotes // "client topic" →
	conns map[net.Conn]bool      // nil once closed
	wg    sync.WaitGroup
}

// fetchNotes are about one client's fetches from one log.
type fetchNotes struct {
	last    int64 // where from
	repeats int64 // how often it asked for one offset again that had been answered with data
}

// serveMadeLogs makes the topics at the broker and serves the logs at a port of its own, until close.
func serveMadeLogs(ctx context.Context, broker string, logs []*madeLog) (*madeServer, error) {
	fixture := gapFixture{bootstrap: broker}
	s := &madeServer{upstream: broker, logs: map[string]*madeLog{}, names: map[[16]byte]string{}, seen: map[string]*fetchNotes{}, conns: map[net.Conn]bool{}}
	for _, l := range logs {
		if err := fixture.create(ctx, l.Topic, nil); err != nil {
			return nil, err
		}
		s.logs[l.Topic] = l
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		s.names[t.ID] = t.Topic
	}
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(s.addr())
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return nil, err
	}
	s.host, s.port = host, int32(number)
	s.wg.Go(s.accept)
	return s, nil
}

func (s *madeServer) addr() string { return s.listener.Addr().String() }

func (s *madeServer) close() {
	s.listener.Close()
	s.mu.Lock()
	for conn := range s.conns {
		conn.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *madeServer) keep(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		conn.Close()
		return false
	}
	s.conns[conn] = true
	return true
}

func (s *madeServer) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && s.keep(conn) {
			s.wg.Go(func() { s.serve(conn) })
		}
	}
}

func (s *madeServer) serve(conn net.Conn) {
	defer conn.Close()
	up, err := net.Dial("tcp", s.upstream)
	if err != nil || !s.keep(up) {
		return
	}
	defer up.Close()
	for {
		in, err := readFrame(conn)
		if err != nil {
			return
		}
		answer, err := s.handle(in, up)
		if err != nil || answer != nil && writeFrame(conn, answer) != nil {
			return
		}
	}
}

func readFrame(conn net.Conn) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(conn, n[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(n[:]))
	_, err := io.ReadFull(conn, b)
	return b, err
}

func writeFrame(conn net.Conn, b []byte) error {
	_, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// understood are the keys of the requests that are decoded: Produce, Fetch, ListOffsets, Metadata, FindCoordinator, DescribeCluster.
var understood = []int16{0, 1, 2, 3, 10, 60}

func (s *madeServer) handle(in []byte, up net.Conn) ([]byte, error) {
	key := int16(binary.BigEndian.Uint16(in))
	if !slices.Contains(understood, key) {
		if err := writeFrame(up, in); err != nil {
			return nil, err
		}
		return readFrame(up)
	}
	req := kmsg.RequestForKey(key)
	req.SetVersion(int16(binary.BigEndian.Uint16(in[2:])))
	clientID, body := "", in[10:]
	if n := int16(binary.BigEndian.Uint16(in[8:])); n > 0 {
		clientID, body = string(body[:n]), body[n:]
	}
	if req.IsFlexible() {
		body = body[1:] // no client sends tags here
	}
	if err := req.ReadFrom(body); err != nil {
		return nil, err
	}
	if f, ok := req.(*kmsg.FetchRequest); ok {
		if resp := s.fetch(f, clientID); resp != nil {
			return frameOf(in[4:8], resp), nil
		}
	}
	if err := writeFrame(up, in); err != nil {
		return nil, err
	}
	if p, ok := req.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
		return nil, nil
	}
	answer, err := readFrame(up)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	body = answer[4:]
	if resp.IsFlexible() {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, err
	}
	s.rewrite(req, resp)
	return frameOf(in[4:8], resp), nil
}

func frameOf(correlation []byte, resp kmsg.Response) []byte {
	b := slices.Clone(correlation)
	if resp.IsFlexible() {
		b = append(b, 0)
	}
	return resp.AppendTo(b)
}

func (s *madeServer) rewrite(req kmsg.Request, resp kmsg.Response) {
	switch r := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range r.Brokers {
			r.Brokers[i].Host, r.Brokers[i].Port = s.host, s.port
		}
	case *kmsg.DescribeClusterResponse:
		for i := range r.Brokers {
			r.Brokers[i].Host, r.Brokers[i].Port = s.host, s.port
		}
	case *kmsg.FindCoordinatorResponse:
		r.Host, r.Port = s.host, s.port
		for i := range r.Coordinators {
			r.Coordinators[i].Host, r.Coordinators[i].Port = s.host, s.port
		}
	case *kmsg.ListOffsetsResponse:
		asked := req.(*kmsg.ListOffsetsRequest)
		for ti := range r.Topics {
			l := s.logs[r.Topics[ti].Topic]
			if l == nil {
				continue
			}
			for pi := range r.Topics[ti].Partitions {
				p := &r.Topics[ti].Partitions[pi]
				p.Offset = l.End + l.beyond
				if asked.Topics[ti].Partitions[pi].Timestamp == -2 {
					p.Offset = 0
				}
			}
		}
	}
}

// fetch answers a fetch of made-up logs, or returns nil.
func (s *madeServer) fetch(req *kmsg.FetchRequest, clientID string) *kmsg.FetchResponse {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	data := false
	for _, asked := range req.Topics {
		name := asked.Topic
		if req.Version >= 13 {
			name = s.names[asked.TopicID]
		}
		l := s.logs[name]
		if l == nil {
			return nil
		}
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID = asked.Topic, asked.TopicID
		for _, p := range asked.Partitions {
			got := l.read(p.FetchOffset)
			s.note(clientID+" "+name, p.FetchOffset, len(got.RecordBatches) > 0)
			data = data || len(got.RecordBatches) > 0 || got.ErrorCode != 0
			t.Partitions = append(t.Partitions, got)
		}
		resp.Topics = append(resp.Topics, t)
	}
	if len(resp.Topics) == 0 {
		return nil
	}
	if !data { // as a broker does, which waits for data
		time.Sleep(time.Duration(min(req.MaxWaitMillis, 300)) * time.Millisecond)
	}
	return resp
}

func (l *madeLog) read(offset int64) kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset = l.End+l.beyond, l.End+l.beyond, 0
	p.RecordBatches = []byte{}
	if offset > p.HighWatermark || offset < 0 {
		p.ErrorCode = 1 // OFFSET_OUT_OF_RANGE
		return p
	}
	for _, b := range l.batches {
		if b.last < offset {
			continue
		}
		p.RecordBatches = append(p.RecordBatches, b.raw...)
		if l.onePer {
			break
		}
	}
	return p
}

func (s *madeServer) note(key string, offset int64, data bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.seen[key]
	if p == nil {
		p = &fetchNotes{last: -1}
		s.seen[key] = p
	}
	if p.last == offset && data {
		p.repeats++
	}
	p.last = offset
}

// judge takes a pass back from a client that is not at the end of a log: one that asks for the same batch for ever has read all records
// too, and some APIs tell no position.
func (s *madeServer) judge(clientName string, c gapCase, got result) result {
	s.mu.Lock()
	defer s.mu.Unlock()
	var last, repeats int64 = -1, 0
	for key, notes := range s.seen {
		if strings.HasSuffix(key, " "+c.Topic) && strings.HasPrefix(key, clientName) {
			last, repeats = max(last, notes.last), max(repeats, notes.repeats)
		}
	}
	if last < 0 {
		return got
	}
	got.Text += fmt.Sprintf("; last fetch at %d, %d repeated", last, repeats)
	if got.Outcome == "pass" && (strings.Contains(got.Text, "position -1/") && last < c.End || repeats > 50) {
		got.Outcome = "fail"
	}
	return got
}
