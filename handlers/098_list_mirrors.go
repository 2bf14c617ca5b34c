package handlers

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// ListMirrors v0 (KIP-1279): needs DESCRIBE on the destination cluster. Topics that were removed do not count.

func init() { register(KeyListMirrors, entry{name: "ListMirrors", local: (*Handlers).listMirrors}) }

func (h *Handlers) listMirrors(ctx context.Context, up proxy.Upstream, version int16, body []byte) (kmsg.Response, error) {
	req := mirrormsg.NewPtrListMirrorsRequest()
	if err := decode(req, version, body); err != nil {
		return nil, err
	}
	refused, err := authorizeCluster(ctx, up, kmsg.ACLOperationDescribe)
	if err != nil {
		return nil, err
	}
	var mirrors []mirror.Summary
	if refused == nil {
		mirrors, err = h.engine.Mirrors(ctx)
		refused = h.refusal("ListMirrors", "", err)
	}
	resp := mirrormsg.NewPtrListMirrorsResponse()
	if resp.ErrorCode = codeOf(refused); refused != nil {
		return resp, nil
	}
	for _, m := range mirrors {
		resp.Mirrors = append(resp.Mirrors, mirrormsg.ListMirrorsResponseMirror{
			MirrorName: m.Name, SourceBootstrap: m.SourceBootstrap, TopicCount: m.Topics,
		})
	}
	return resp, nil
}
