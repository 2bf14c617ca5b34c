package handlers

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// ResumeMirrorTopics v0 (later drafts of KIP-1279): PAUSED partitions go on, FAILED ones are tried again. All topics, or
// none if one cannot be resumed. Rights and errors as for PauseMirrorTopics.

func init() {
	register(KeyResumeMirrorTopics, entry{name: "ResumeMirrorTopics", local: (*Handlers).resumeMirrorTopics})
}

func (h *Handlers) resumeMirrorTopics(ctx context.Context, up proxy.Upstream, version int16, body []byte) (kmsg.Response, error) {
	req := mirrormsg.NewPtrResumeMirrorTopicsRequest()
	if err := decode(req, version, body); err != nil {
		return nil, err
	}
	out, err := h.changeTopics(ctx, up, "ResumeMirrorTopics", req.MirrorName, req.Topics, h.engine.ResumeTopics)
	if err != nil {
		return nil, err
	}
	resp := mirrormsg.NewPtrResumeMirrorTopicsResponse()
	resp.ErrorCode, resp.ErrorMessage, resp.Topics = out.code, out.message, out.topicsWithoutIDs()
	return resp, nil
}
