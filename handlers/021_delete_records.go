package handlers

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// DeleteRecords: v0–v2
//
// Read-only topics are refused, others go through. No version has a message.
func init() {
	register(keyDeleteRecords, entry{whole: anyReadOnly, request: (*Handlers).deleteRecords})
}

func (h *Handlers) deleteRecords(r *request) proxy.Decision {
	req := kmsg.NewPtrDeleteRecordsRequest()
	if err := decode(req, r.Version, r.body()); err != nil {
		return undecodable(err)
	}
	var kept []kmsg.DeleteRecordsRequestTopic
	var parts []kmsg.DeleteRecordsResponseTopic
	var refused []*mirror.Topic
	for _, topic := range req.Topics {
		t := readOnly(r.topics, topic.Topic)
		if t == nil {
			kept = append(kept, topic)
			continue
		}
		part := kmsg.NewDeleteRecordsResponseTopic()
		part.Topic = topic.Topic
		for _, p := range topic.Partitions {
			partition := kmsg.NewDeleteRecordsResponseTopicPartition()
			partition.Partition, partition.LowWatermark = p.Partition, -1
			part.Partitions = append(part.Partitions, partition)
		}
		parts, refused = append(parts, part), append(refused, t)
	}
	req.Topics = kept
	return h.split(r, req, len(kept), len(parts), refused, func(resp kmsg.Response, why verdict) {
		for i, t := range refused {
			for j := range parts[i].Partitions {
				parts[i].Partitions[j].ErrorCode, _ = why(t)
			}
		}
		resp.(*kmsg.DeleteRecordsResponse).Topics = append(resp.(*kmsg.DeleteRecordsResponse).Topics, parts...)
	})
}
