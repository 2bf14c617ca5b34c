package handlers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// Produce: v0–v13
//
// Read-only topics are refused, others go through. A request for a topic that is cut over waits as a whole (cutover.go).
//   - v0+: acks=0 has no answer. A broker that cannot append closes the connection, and so does the gateway. (A broker
//     would append to the other topics of that request first; the gateway drops them with it. acks=0 promises nothing.)
//   - v8+: an error message says why.
//   - v10+: NodeEndpoints in the response (KIP-951).
//   - v13+: topics by ID instead of name.
func init() {
	register(keyProduce, entry{whole: anyReadOnlyOrIDs(keyProduce), opening: (*Handlers).openProduce, request: (*Handlers).produce})
}

// produce looks at the topics without decoding; only requests with a refused topic are taken apart.
func (h *Handlers) produce(r *request) proxy.Decision {
	acks, refused, cut := int16(1), 0, waits{}
	_, err := layout.Request(keyProduce).Walk(r.frame, r.bodyAt, r.Version, func(s layout.Spot) error {
		value := r.frame[s.Start:s.End]
		switch s.Mark {
		case layout.Acks:
			acks = int16(binary.BigEndian.Uint16(value))
		case layout.TopicName:
			if t := readOnly(r.topics, string(value)); t != nil {
				cut.add(t)
				refused++
			}
		case layout.TopicID:
			if t := readOnlyID(r.topics, mirror.TopicID(value)); t != nil {
				cut.add(t)
				refused++
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return undecodable(fmt.Errorf("undecodable body: %w", err))
	case refused == 0:
		d := forward(r)
		d.NoResponse = acks == 0 && d.Close == nil
		return d
	case cut.now():
		return waitToProduce(r, cut.until, acks)
	case acks == 0:
		return proxy.Decision{Close: fmt.Errorf("acks=0 to %d read-only mirror topics", refused)}
	}
	return h.refuseProduce(r)
}

// waitToProduce lets a request wait, and refuses all of it when the patience is over.
func waitToProduce(r *request, until time.Time, acks int16) proxy.Decision {
	req := kmsg.NewPtrProduceRequest()
	if err := decode(req, r.Version, r.body()); err != nil {
		return undecodable(err)
	}
	most := patience(req.TimeoutMillis)
	if acks == 0 {
		most = waitMost // nobody waits for an answer
	}
	if d, ok := waitFor(r, until, most); ok {
		return d
	}
	d := proxy.Decision{Close: errors.New("a request has waited for a cut-over for as long as its client is patient")}
	if acks == 0 {
		return d
	}
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range req.Topics {
		out := refusedProduce(topic)
		for i := range out.Partitions {
			out.Partitions[i].ErrorCode, out.Partitions[i].ErrorMessage = waitCode, kmsg.StringPtr(waitMessage)
		}
		resp.Topics = append(resp.Topics, out)
	}
	d.Answer = encodeResponse(r.CorrelationID, resp)
	return d
}

func (h *Handlers) refuseProduce(r *request) proxy.Decision {
	req := kmsg.NewPtrProduceRequest()
	if err := decode(req, r.Version, r.body()); err != nil {
		return undecodable(err)
	}
	var kept []kmsg.ProduceRequestTopic
	var parts []kmsg.ProduceResponseTopic
	var refused []*mirror.Topic
	for _, topic := range req.Topics {
		t := readOnly(r.topics, topic.Topic)
		if r.Version >= 13 {
			t = readOnlyID(r.topics, topic.TopicID)
		}
		if t == nil {
			kept = append(kept, topic)
			continue
		}
		parts, refused = append(parts, refusedProduce(topic)), append(refused, t)
	}
	req.Topics = kept
	return h.split(r, req, len(kept), len(parts), refused, func(resp kmsg.Response, why verdict) {
		for i, t := range refused {
			code, message := why(t)
			for j := range parts[i].Partitions {
				parts[i].Partitions[j].ErrorCode, parts[i].Partitions[j].ErrorMessage = code, message
			}
		}
		resp.(*kmsg.ProduceResponse).Topics = append(resp.(*kmsg.ProduceResponse).Topics, parts...)
	})
}

// refusedProduce is the answer for a topic, its error not yet set.
func refusedProduce(topic kmsg.ProduceRequestTopic) kmsg.ProduceResponseTopic {
	out := kmsg.NewProduceResponseTopic()
	out.Topic, out.TopicID = topic.Topic, topic.TopicID
	for _, p := range topic.Partitions {
		partition := kmsg.NewProduceResponseTopicPartition()
		partition.Partition = p.Partition
		partition.BaseOffset, partition.LogAppendTime, partition.LogStartOffset = -1, -1, -1
		out.Partitions = append(out.Partitions, partition)
	}
	return out
}
