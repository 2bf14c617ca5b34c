package handlers

import (
	"encoding/binary"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// A Fetch response may be as large as the client likes, so it is not held to be rewritten: it passes, and nothing in it
// may change its length, which the client is told first. Topic IDs and leader epochs change in place. Fillers are left out, and what they
// took is made up for at the end of that partition's records by the beginning of a batch, as it stands there when a
// broker cuts the last one off; clients leave it alone. Endpoints of brokers, which are only there if a partition has
// moved, are replaced if the gateway's take as many bytes, else they go on as a tagged field that no client knows: it
// looks for the new leader by Metadata then, as before KIP-951.
//
// Small responses are rewritten as a whole (rewrite.go), which needs no such means.

// fetchStream rewrites one response.
type fetchStream struct {
	h      *Handlers
	topics *mirror.Topics // for topic IDs and epochs: those that the request saw
	latest *mirror.Topics // for fillers
	topic  *mirror.Topic  // the mirror topic that the walk is in, if it is one
	walk   *layout.Stream
	out    layout.Pieces
	sieve  sieve
}

// streamFetch returns how responses of that version are rewritten on the way.
func (h *Handlers) streamFetch(t *mirror.Topics, version int16) proxy.Stream {
	return func(size int) proxy.Passage {
		s := &fetchStream{h: h, topics: t, latest: h.engine.Topics()}
		s.walk = layout.NewStream(layout.Response(keyFetch), version, size, s)
		if s.walk == nil {
			return nil
		}
		return s
	}
}

// Feed implements proxy.Passage.
func (s *fetchStream) Feed(data []byte) ([][]byte, error) {
	out, err := s.walk.Feed(data, s.out[:0])
	s.out = out
	return out, err
}

// End implements proxy.Passage.
func (s *fetchStream) End() error { return s.walk.End() }

// Field implements layout.Sink.
func (s *fetchStream) Field(mark layout.Mark, value []byte) {
	switch mark {
	case layout.TopicName:
		s.topic = s.topics.ByName(string(value))
	case layout.TopicID:
		id := mirror.TopicID(value)
		if t := s.topics.ByDestinationID(id); t != nil {
			copy(value, t.SourceID[:])
		}
		if id != (mirror.TopicID{}) {
			s.topic = s.topics.ByID(mirror.TopicID(value))
		}
	case layout.LeaderEpoch:
		showEpoch(value, s.base())
	}
}

// base is what is added to the leader epochs of the topic.
func (s *fetchStream) base() int32 {
	if s.topic == nil {
		return 0
	}
	return s.topic.EpochBase
}

// unknownTag is the number of a tagged field that Kafka does not have; it takes one byte, as those do that it has.
const unknownTag = 127

// Tagged implements layout.Sink: leader epochs of a partition, and endpoints of brokers.
func (s *fetchStream) Tagged(field, body []byte, walk func(visit func(layout.Spot) error) error) error {
	cursor := topicCursor{topics: s.topics, known: true, topic: s.topic}
	e := editor{h: s.h, topics: cursor, latest: s.latest, frame: body, node: -1}
	if err := walk(e.visit); err != nil {
		return err
	}
	if e.grown == 0 {
		copy(body, e.apply())
		return nil
	}
	field[0] = unknownTag
	clear(body)
	return nil
}

// Begin implements layout.Sink.
func (s *fetchStream) Begin(size int) {
	base := s.base()
	s.sieve.begin(size, base, base > 0 || s.latest.AnyProducers())
}

// Records implements layout.Sink.
func (s *fetchStream) Records(data []byte, last bool, out layout.Pieces) (layout.Pieces, error) {
	out = s.sieve.feed(data, out, s.latest.IsProducer)
	if last {
		if s.sieve.hidden > 0 {
			s.h.metrics.fillers.Add(float64(s.sieve.hidden))
		}
		out = s.sieve.end(out)
	}
	return out, nil
}

// sieve takes the fillers out of the records of one partition and keeps their size. It shows the leader epochs of what stays.
type sieve struct {
	base    int32
	left    int // bytes of the records to come
	passing int // bytes of a batch that is no filler
	holding int // size of a batch that may be one; 0: the next is the header of a batch
	all     bool
	hold    layout.Gather

	kept    int // bytes of batches that stay
	removed int // bytes that are made up for at the end
	hidden  int // fillers
	last    recordbatch.Header
}

func (v *sieve) begin(size int, base int32, search bool) {
	*v = sieve{base: base, left: size, all: !search, hold: v.hold}
}

// feed takes the next bytes. Those of whole batches go on as they come.
func (v *sieve) feed(data []byte, out layout.Pieces, isProducer func(int64) bool) layout.Pieces {
	for off := 0; off < len(data); {
		n, piece := v.take(data[off:], isProducer)
		off += n
		v.left -= n
		out = out.Append(piece)
	}
	return out
}

// take takes some of data and returns how much, and what of it, or of what was held, goes on.
func (v *sieve) take(data []byte, isProducer func(int64) bool) (n int, piece []byte) {
	switch {
	case v.all:
		return len(data), v.tail(data)
	case v.passing > 0:
		n = min(v.passing, len(data))
		v.passing -= n
		v.kept += n
		return n, data[:n]
	case v.holding > 0:
		n, piece = v.hold.Take(data, v.holding)
		if piece == nil {
			return n, nil
		}
		v.holding = 0
		return n, v.judge(piece, isProducer)
	}
	return v.header(data, isProducer)
}

// tail is what must be left to the client to judge, a batch that is cut off mostly. Behind fillers it must not be there:
// what makes up for them could complete it.
func (v *sieve) tail(data []byte) []byte {
	if v.removed == 0 {
		return data
	}
	v.removed += len(data)
	return nil
}

// header looks at the beginning of the next batch.
func (v *sieve) header(data []byte, isProducer func(int64) bool) (n int, piece []byte) {
	whole := v.left + len(v.hold.Held()) // what is left of the records, this header included
	n, start := v.hold.Take(data, min(recordbatch.HeaderSize, whole))
	if start == nil {
		return n, nil
	}
	h, err := recordbatch.ParseHeader(start)
	if err != nil || h.Size() > whole || h.Size() < recordbatch.HeaderSize {
		v.all = true
		return n, v.tail(start)
	}
	if !h.MayBeFiller(isProducer) {
		v.passing = h.Size() - len(start)
		return n, v.keep(start)
	}
	if n == len(start) && h.Size() <= len(data) { // it is there in full
		return h.Size(), v.judge(data[:h.Size()], isProducer)
	}
	if h.Size() == len(start) { // emptied by the cleaner
		return n, v.judge(start, isProducer)
	}
	v.holding = h.Size()
	v.hold.Back(start)
	return n, nil
}

// judge decides about a whole batch.
func (v *sieve) judge(batch []byte, isProducer func(int64) bool) []byte {
	h, err := recordbatch.ParseHeader(batch)
	if err != nil || !recordbatch.IsFiller(batch, isProducer) {
		return v.keep(batch)
	}
	if h.LeaderEpoch >= 0 {
		h.LeaderEpoch += v.base
	}
	v.last = h
	v.hidden++
	v.removed += len(batch)
	return nil
}

// keep lets a batch pass, or its beginning.
func (v *sieve) keep(batch []byte) []byte {
	if v.base > 0 {
		showEpoch(batch[recordbatch.LeaderEpochAt:], v.base)
	}
	v.kept += len(batch)
	return batch
}

// end makes up for what was removed.
func (v *sieve) end(out layout.Pieces) layout.Pieces {
	if v.removed == 0 {
		return out
	}
	if v.kept == 0 {
		marker := recordbatch.AppendCommitMarker(nil, v.last.LastOffset(), v.last.LeaderEpoch, v.last.ProducerID, v.last.ProducerEpoch, v.last.MaxTimestamp)
		if len(marker) <= v.removed {
			out = out.Append(marker)
			v.removed -= len(marker)
		}
	}
	return appendCutOff(out, v.removed, v.last.NextOffset())
}

// appendCutOff appends size bytes that look like the beginning of a larger batch.
func appendCutOff(out layout.Pieces, size int, offset int64) layout.Pieces {
	var start [recordbatch.HeaderSize]byte
	binary.BigEndian.PutUint64(start[:], uint64(offset))
	binary.BigEndian.PutUint32(start[8:], uint32(max(size, recordbatch.HeaderSize)))
	binary.BigEndian.PutUint32(start[12:], 0xffffffff)
	start[16] = 2
	n := min(size, len(start))
	out = out.Append(start[:n:n])
	for size -= n; size > 0; size -= n {
		n = min(size, len(zeros))
		out = append(out, zeros[:n:n])
	}
	return out
}

// zeros are never written to.
var zeros = make([]byte, 64<<10)
