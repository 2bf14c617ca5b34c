package handlers

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// DeleteMirror v0 (later drafts of KIP-1279): needs ALTER on the destination cluster. A mirror with a topic that is not
// STOPPED is INVALID_REQUEST, with the topics named. Nothing at the destination is deleted.

func init() { register(KeyDeleteMirror, entry{name: "DeleteMirror", local: (*Handlers).deleteMirror}) }

func (h *Handlers) deleteMirror(ctx context.Context, up proxy.Upstream, version int16, body []byte) (kmsg.Response, error) {
	req := mirrormsg.NewPtrDeleteMirrorRequest()
	if err := decode(req, version, body); err != nil {
		return nil, err
	}
	refused, err := authorizeCluster(ctx, up, kmsg.ACLOperationAlter)
	if err != nil {
		return nil, err
	}
	if refused == nil {
		refused = refuseName(&req.MirrorName)
	}
	if refused == nil {
		refused = h.refusal("DeleteMirror", req.MirrorName, h.engine.DeleteMirror(ctx, req.MirrorName))
	}
	resp := mirrormsg.NewPtrDeleteMirrorResponse()
	resp.ErrorCode, resp.ErrorMessage = codeOf(refused), messageOf(refused)
	return resp, nil
}
