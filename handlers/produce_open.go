package handlers

import (
	"encoding/binary"
	"errors"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// A large Produce request for one topic, as most are, is decided about by its beginning: behind the header it says how many topics
// there are and which is the first. If that one may be written to, the request goes to the broker as it comes, so nothing
// is held of it; what follows are partitions, and whatever a client writes there, a broker reads no second topic. All other
// requests are seen whole: one topic that is refused may come last, when the rest had gone already.

// openProduce decides about large requests by their beginning, also where no topic is read-only yet.
func (h *Handlers) openProduce(c proxy.Client, e *entry, hd proxy.Header) proxy.Opening {
	return func(start []byte) *proxy.Pass {
		topics := h.engine.Topics()
		at, ok := onlyTopic(start, hd.Version)
		if !ok {
			return nil
		}
		topic := producedTopic{byID: hd.Version >= 13}
		if value := start[at.Start:at.End]; topic.byID {
			topic.id = mirror.TopicID(value)
		} else {
			topic.name = string(value)
		}
		if topic.readOnly(topics) != nil {
			return nil
		}
		if t := topics.BySourceID(topic.id); topic.byID && t != nil {
			copy(start[at.Start:at.End], t.DestinationID[:])
		}
		rewrite := h.rewrite(c, e, topics, hd)
		return &proxy.Pass{Rewrite: rewrite, Stream: h.stream(e, topics, hd, rewrite), Still: func() error {
			if now := h.engine.Topics(); now != topics && topic.readOnly(now) != nil {
				return h.fail(c, e, hd, errBecameReadOnly)
			}
			return nil
		}}
	}
}

var errBecameReadOnly = errors.New("the topic became a read-only mirror while the request came in; nothing of it was written")

// producedTopic is how a request names a topic.
type producedTopic struct {
	byID bool
	id   mirror.TopicID
	name string
}

func (p *producedTopic) readOnly(topics *mirror.Topics) *mirror.Topic {
	if p.byID {
		return readOnlyID(topics, p.id)
	}
	return readOnly(topics, p.name)
}

// onlyTopic finds the name or ID of the topic of a Produce request, of whose frame start is the beginning. ok is false if the
// request has another number of topics, if start ends too early, or if it is malformed.
func onlyTopic(start []byte, version int16) (spot layout.Spot, ok bool) {
	flexible := layout.Request(keyProduce).Flexible.Has(version)
	at, err := requestBodyAt(start, flexible)
	if err != nil {
		return spot, false
	}
	r := opener{b: start, at: at, compact: flexible}
	if version >= 3 {
		r.skip(max(r.length(2), 0)) // the transactional ID
	}
	r.skip(2 + 4) // acks and timeout
	if r.length(4) != 1 {
		return spot, false
	}
	size := 16
	if version < 13 {
		size = r.length(2)
	}
	spot = layout.Spot{Start: r.at, End: r.at + size}
	r.skip(size)
	return spot, !r.failed
}

// opener reads forward in the beginning of a request. After the first failure it stays failed.
type opener struct {
	b       []byte
	at      int
	compact bool
	failed  bool
}

func (o *opener) skip(n int) {
	if o.failed = o.failed || n < 0 || n > len(o.b)-o.at; !o.failed {
		o.at += n
	}
}

// length reads a length or count, -1 for null or nothing.
func (o *opener) length(width int) int {
	if o.compact && !o.failed {
		v, end, err := uvarint(o.b, o.at)
		if err != nil {
			o.failed = true
			return -1
		}
		o.at = end
		return int(v) - 1
	}
	from := o.at
	switch o.skip(width); {
	case o.failed:
		return -1
	case width == 2:
		return int(int16(binary.BigEndian.Uint16(o.b[from:])))
	}
	return int(int32(binary.BigEndian.Uint32(o.b[from:])))
}
