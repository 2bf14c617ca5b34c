package handlers

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// PauseMirrorTopics v0 (later drafts of KIP-1279): nothing more is fetched or written; the topics stay read-only. It is
// answered when that is durable and at rest. All topics, or none if one cannot be paused. Rights as for
// AddTopicsToMirror; errors are INVALID_REQUEST.

func init() {
	register(KeyPauseMirrorTopics, entry{name: "PauseMirrorTopics", local: (*Handlers).pauseMirrorTopics})
}

func (h *Handlers) pauseMirrorTopics(ctx context.Context, up proxy.Upstream, version int16, body []byte) (kmsg.Response, error) {
	req := mirrormsg.NewPtrPauseMirrorTopicsRequest()
	if err := decode(req, version, body); err != nil {
		return nil, err
	}
	out, err := h.changeTopics(ctx, up, "PauseMirrorTopics", req.MirrorName, req.Topics, h.engine.PauseTopics)
	if err != nil {
		return nil, err
	}
	resp := mirrormsg.NewPtrPauseMirrorTopicsResponse()
	resp.ErrorCode, resp.ErrorMessage, resp.Topics = out.code, out.message, out.topicsWithoutIDs()
	return resp, nil
}

// changeTopics checks the rights for a change of topics of a mirror, and has the engine do it.
func (h *Handlers) changeTopics(ctx context.Context, up proxy.Upstream, doing, name string, topics []mirrormsg.MirrorTopic,
	change func(context.Context, string, []mirror.TopicRef) ([]mirror.TopicResult, error),
) (topicOutcome, error) {
	refs := make([]mirror.TopicRef, len(topics))
	for i, topic := range topics {
		refs[i] = mirror.TopicRef{Name: topic.TopicName}
	}
	whole, err := authorizeCluster(ctx, up, kmsg.ACLOperationAlter)
	if err != nil {
		return topicOutcome{}, err
	}
	if whole == nil {
		whole = refuseName(&name)
	}
	var results []mirror.TopicResult
	if whole == nil {
		forbidden, err := authorizeTopics(ctx, up, topicNames(refs))
		if err != nil {
			return topicOutcome{}, err
		}
		var any bool
		if results, any = refuseTopics(refs, func(i int) *mirror.Error { return forbidden[refs[i].Name] }); !any {
			results, err = change(ctx, name, refs)
			whole = h.refusal(doing, name, err)
		}
	}
	return outcomeOf(results, whole), nil
}

// topicsWithoutIDs are the results one by one, for messages that have no topic IDs.
func (o topicOutcome) topicsWithoutIDs() []mirrormsg.MirrorTopicResult {
	var results []mirrormsg.MirrorTopicResult
	for _, t := range o.topics {
		results = append(results, mirrormsg.MirrorTopicResult{Name: t.Name, ErrorCode: t.ErrorCode, ErrorMessage: t.ErrorMessage})
	}
	return results
}
