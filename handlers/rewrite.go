package handlers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// Responses are rewritten by the layout tables, whatever their API: topic IDs and leader epochs change in place, addresses of
// brokers become those of the gateway, addresses of controllers vanish, filler batches are taken out. What is not touched stays
// byte for byte, fields of versions to come included.

var errTrailing = errors.New("bytes behind the end of the message")

// editor changes one response. Changes that move bytes are collected as edits, in the order in which they lie there,
// and carried out at the end.
type editor struct {
	h      *Handlers
	topics topicCursor    // for topic IDs and epochs: those that the request saw
	latest *mirror.Topics // for fillers: a long poll may bring those of a mirror that is younger than the request
	frame  []byte
	edits  []edit
	grown  int // bytes that the edits add, less those that they remove

	node int32
	host layout.Spot
	tag  int // index of the edit of the length of the tagged field that the walk is in
	base int // grown, at the beginning of that field
}

// edit replaces frame[start:end].
type edit struct {
	start, end int
	with       []byte
}

// rewriteResponse returns what rewrites a response of key by its layout, or nil if nothing in it needs it.
func (h *Handlers) rewriteResponse(key int16, t *mirror.Topics, version int16) proxy.Rewrite {
	has := marksOf(key, version)
	if !has.addresses && !has.texts && !(has.responseIDs && t.TranslatesIDs()) && !(has.responseEpochs && t.ShiftsEpochs()) && !(has.responseRecords && hidesFillers(t)) {
		return nil
	}
	return func(frame []byte) ([]byte, error) { return h.rewriteFrame(key, t, version, frame) }
}

// hidesFillers reports whether the destination can hold fillers, now or by the time when an answer comes.
func hidesFillers(t *mirror.Topics) bool { return t.AnyProducers() || t.AnyReadOnly() }

func (h *Handlers) rewriteFrame(key int16, t *mirror.Topics, version int16, frame []byte) ([]byte, error) {
	m := layout.Response(key)
	at, err := responseBodyAt(frame, key, m.Flexible.Has(version))
	if err != nil {
		return nil, err
	}
	e := editor{h: h, topics: topicCursor{topics: t, frame: frame}, latest: h.engine.Topics(), frame: frame, node: -1}
	end, err := m.Walk(frame, at, version, e.visit)
	if err != nil {
		return nil, err
	}
	if end != len(frame) {
		return nil, fmt.Errorf("%s v%d: %w", m.Name, version, errTrailing)
	}
	return e.apply(), nil
}

func (e *editor) visit(s layout.Spot) error {
	switch s.Mark {
	case layout.TopicName:
		e.topics.name(s)
	case layout.TopicID:
		id := mirror.TopicID(e.frame[s.Start:s.End])
		if t := e.topics.topics.ByDestinationID(id); t != nil {
			copy(e.frame[s.Start:], t.SourceID[:])
		}
		e.topics.id(s)
	case layout.LeaderEpoch:
		showEpoch(e.frame[s.Start:], e.topics.base())
	case layout.NodeID:
		e.node = int32(binary.BigEndian.Uint32(e.frame[s.Start:]))
	case layout.BrokerHost:
		e.host = s
	case layout.BrokerPort:
		return e.address(s)
	case layout.Listeners:
		if s.End > s.Start {
			e.replace(s.Field, s.End, appendLength(nil, 0, 4, s.Compact))
		}
	case layout.ControllerHost:
		if s.End > s.Start {
			e.replace(s.Field, s.End, appendLength(nil, 0, 2, s.Compact))
		}
	case layout.ControllerPort:
		clear(e.frame[s.Start:s.End])
	case layout.RecordData:
		return e.records(s)
	case layout.ErrorText:
		e.text(s)
	case layout.TagSize:
		e.tag, e.base = len(e.edits), e.grown
		e.edits = append(e.edits, edit{s.Start, s.End, nil})
	case layout.TagEnd:
		e.endTag(s)
	}
	return nil
}

// address replaces host and port of e.node. A broker that is not known has node -1 and no host; it stays as it is.
func (e *editor) address(port layout.Spot) error {
	if e.host.End == e.host.Start {
		return nil
	}
	host, number := "", int32(-1)
	if e.node >= 0 {
		var err error
		upstream := string(e.frame[e.host.Start:e.host.End])
		host, number, err = e.h.addresses.Advertise(e.node, upstream, int32(binary.BigEndian.Uint32(e.frame[port.Start:])))
		if err != nil {
			return fmt.Errorf("address of broker %d: %w", e.node, err)
		}
	}
	with := appendLength(make([]byte, 0, len(host)+2), len(host), 2, e.host.Compact)
	e.replace(e.host.Field, e.host.End, append(with, host...))
	binary.BigEndian.PutUint32(e.frame[port.Start:], uint32(number))
	e.node, e.host = -1, layout.Spot{}
	return nil
}

// text takes the request that a broker quotes out of the message of an error: it names the broker's address.
func (e *editor) text(s layout.Spot) {
	if told := e.frame[s.Start:s.End]; bytes.Contains(told, []byte("connectionId=")) {
		text := mirror.WithoutRequest(string(told))
		e.replace(s.Field, s.End, append(appendLength(nil, len(text), 2, s.Compact), text...))
	}
}

// endTag gives a tagged field its new length.
func (e *editor) endTag(s layout.Spot) {
	size := &e.edits[e.tag]
	with := binary.AppendUvarint(nil, uint64(s.End-size.end+e.grown-e.base))
	e.grown += len(with) - (size.end - size.start)
	size.with = with
}

// replace must be called in the order of start.
func (e *editor) replace(start, end int, with []byte) {
	e.edits = append(e.edits, edit{start, end, with})
	e.grown += len(with) - (end - start)
}

// apply returns the frame with all edits made.
func (e *editor) apply() []byte {
	if len(e.edits) == 0 {
		return e.frame
	}
	out, at := make([]byte, 0, len(e.frame)+e.grown), 0
	for _, edit := range e.edits {
		out = append(out, e.frame[at:edit.start]...)
		out = append(out, edit.with...)
		at = edit.end
	}
	return append(out, e.frame[at:]...)
}

// appendLength appends the length of something that is not null: a varint of one more if compact, else of width bytes.
func appendLength(b []byte, n, width int, compact bool) []byte {
	switch {
	case compact:
		return binary.AppendUvarint(b, uint64(n)+1)
	case width == 2:
		return binary.BigEndian.AppendUint16(b, uint16(n))
	}
	return binary.BigEndian.AppendUint32(b, uint32(n))
}
