package handlers

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

const keyDeleteTopics = 20

// DeleteTopics: v0–v6
//
// Read-only topics are refused, others go through.
//   - v5+: an error message says why.
//   - v6+: topics by name or by ID.
func init() {
	register(keyDeleteTopics, entry{whole: anyReadOnlyOrIDs(keyDeleteTopics), request: (*Handlers).deleteTopics})
}

func (h *Handlers) deleteTopics(r *request) proxy.Decision {
	req := kmsg.NewPtrDeleteTopicsRequest()
	if err := decode(req, r.Version, r.body()); err != nil {
		return undecodable(err)
	}
	var parts []kmsg.DeleteTopicsResponseTopic
	var refused []*mirror.Topic
	refuse := func(name *string, id mirror.TopicID, t *mirror.Topic) {
		part := kmsg.NewDeleteTopicsResponseTopic()
		part.Topic, part.TopicID = name, id
		parts, refused = append(parts, part), append(refused, t)
	}
	var names []string
	for _, name := range req.TopicNames {
		if t := readOnly(r.topics, name); t != nil {
			refuse(&name, mirror.TopicID{}, t)
			continue
		}
		names = append(names, name)
	}
	var topics []kmsg.DeleteTopicsRequestTopic
	for _, topic := range req.Topics {
		t := readOnlyID(r.topics, topic.TopicID)
		if topic.Topic != nil {
			t = readOnly(r.topics, *topic.Topic)
		}
		if t != nil {
			refuse(topic.Topic, topic.TopicID, t)
			continue
		}
		topics = append(topics, topic)
	}
	req.TopicNames, req.Topics = names, topics
	return h.split(r, req, len(names)+len(topics), len(parts), refused, func(resp kmsg.Response, why verdict) {
		for i, t := range refused {
			parts[i].ErrorCode, parts[i].ErrorMessage = why(t)
		}
		resp.(*kmsg.DeleteTopicsResponse).Topics = append(resp.(*kmsg.DeleteTopicsResponse).Topics, parts...)
	})
}
