package handlers

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// AddTopicsToMirror v0 (KIP-1279): needs ALTER on the destination cluster and on each destination topic that exists. All
// or nothing: if one topic fails, none is added, and the topics without error in the answer had nothing wrong with them.
//
//	INVALID_REQUEST             the mirror name is null, or there is no such mirror; a topic named twice
//	UNKNOWN_TOPIC_OR_PARTITION  the source has no such topic
//	INCONSISTENT_TOPIC_ID       the source's topic has another ID
//	TOPIC_ALREADY_EXISTS        the destination's topic is not empty, and does not continue this mirror
//	TOPIC_AUTHORIZATION_FAILED  no ALTER on the destination topic

func init() {
	register(KeyAddTopicsToMirror, entry{name: "AddTopicsToMirror", local: (*Handlers).addTopicsToMirror})
}

func (h *Handlers) addTopicsToMirror(ctx context.Context, up proxy.Upstream, version int16, body []byte) (kmsg.Response, error) {
	req := mirrormsg.NewPtrAddTopicsToMirrorRequest()
	if err := decode(req, version, body); err != nil {
		return nil, err
	}
	refs := make([]mirror.TopicRef, len(req.Topics))
	for i, topic := range req.Topics {
		refs[i] = mirror.TopicRef{Name: topic.TopicName, ID: topic.TopicID}
		if topic.MirrorName != nil {
			refs[i].Mirror = *topic.MirrorName
		}
	}
	whole, err := authorizeCluster(ctx, up, kmsg.ACLOperationAlter)
	if err != nil {
		return nil, err
	}
	var results []mirror.TopicResult
	if whole == nil {
		forbidden, err := authorizeTopics(ctx, up, topicNames(refs))
		if err != nil {
			return nil, err
		}
		refuse := func(i int) *mirror.Error {
			if refused := refuseName(req.Topics[i].MirrorName); refused != nil {
				return refused
			}
			return forbidden[refs[i].Name]
		}
		var any bool
		if results, any = refuseTopics(refs, refuse); !any {
			results, err = h.engine.AddTopics(ctx, refs)
			whole = h.refusal("AddTopicsToMirror", mirrorsOf(refs), err)
		}
	}
	out := outcomeOf(results, whole)
	resp := mirrormsg.NewPtrAddTopicsToMirrorResponse()
	resp.TopicID, resp.ErrorCode, resp.ErrorMessage, resp.Topics = out.topicID, out.code, out.message, out.topics
	return resp, nil
}

// mirrorsOf names the mirror of a request for the log: that of its first topic, nearly always that of all.
func mirrorsOf(refs []mirror.TopicRef) string {
	if len(refs) == 0 {
		return ""
	}
	return refs[0].Mirror
}
