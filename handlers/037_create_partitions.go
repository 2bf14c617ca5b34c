package handlers

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// CreatePartitions: v0–v3
//
// Read-only topics are refused, others go through: their partitions follow the source.
func init() {
	register(keyCreatePartitions, entry{whole: anyReadOnly, request: (*Handlers).createPartitions})
}

func (h *Handlers) createPartitions(r *request) proxy.Decision {
	req := kmsg.NewPtrCreatePartitionsRequest()
	if err := decode(req, r.Version, r.body()); err != nil {
		return undecodable(err)
	}
	var kept []kmsg.CreatePartitionsRequestTopic
	var parts []kmsg.CreatePartitionsResponseTopic
	var refused []*mirror.Topic
	for _, topic := range req.Topics {
		t := readOnly(r.topics, topic.Topic)
		if t == nil {
			kept = append(kept, topic)
			continue
		}
		part := kmsg.NewCreatePartitionsResponseTopic()
		part.Topic = topic.Topic
		parts, refused = append(parts, part), append(refused, t)
	}
	req.Topics = kept
	return h.split(r, req, len(kept), len(parts), refused, func(resp kmsg.Response, why verdict) {
		for i, t := range refused {
			parts[i].ErrorCode, parts[i].ErrorMessage = why(t)
		}
		resp.(*kmsg.CreatePartitionsResponse).Topics = append(resp.(*kmsg.CreatePartitionsResponse).Topics, parts...)
	})
}
