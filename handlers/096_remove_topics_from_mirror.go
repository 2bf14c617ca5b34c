package handlers

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// RemoveTopicsFromMirror v0 (KIP-1279): the failover of topics. It is answered when the stop is durable and every
// partition is fenced. Rights and errors as for AddTopicsToMirror; a topic that is not in the mirror is INVALID_REQUEST.

func init() {
	register(KeyRemoveTopicsFromMirror, entry{name: "RemoveTopicsFromMirror", local: (*Handlers).removeTopicsFromMirror})
}

func (h *Handlers) removeTopicsFromMirror(ctx context.Context, up proxy.Upstream, version int16, body []byte) (kmsg.Response, error) {
	req := mirrormsg.NewPtrRemoveTopicsFromMirrorRequest()
	if err := decode(req, version, body); err != nil {
		return nil, err
	}
	refs := make([]mirror.TopicRef, len(req.Topics))
	for i, topic := range req.Topics {
		refs[i] = mirror.TopicRef{Name: topic.TopicName, ID: topic.TopicID}
	}
	whole, err := authorizeCluster(ctx, up, kmsg.ACLOperationAlter)
	if err != nil {
		return nil, err
	}
	if whole == nil {
		whole = refuseName(&req.MirrorName)
	}
	var results []mirror.TopicResult
	if whole == nil {
		forbidden, err := authorizeTopics(ctx, up, topicNames(refs))
		if err != nil {
			return nil, err
		}
		var any bool
		if results, any = refuseTopics(refs, func(i int) *mirror.Error { return forbidden[refs[i].Name] }); !any {
			results, err = h.engine.RemoveTopics(ctx, req.MirrorName, refs)
			whole = h.refusal("RemoveTopicsFromMirror", req.MirrorName, err)
		}
	}
	out := outcomeOf(results, whole)
	resp := mirrormsg.NewPtrRemoveTopicsFromMirrorResponse()
	resp.TopicID, resp.ErrorCode, resp.ErrorMessage, resp.Topics = out.topicID, out.code, out.message, out.topics
	return resp, nil
}
