package handlers

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// CreateMirror v0 (KIP-1279): needs ALTER on the destination cluster.
//
//	INVALID_REQUEST  the name is null, bad or taken
//	INVALID_CONFIG   an unknown, missing or bad setting, or one that is given twice; a secret without a key to seal it
//	others           as the source answers: unreachable, authentication refused, a loop

func init() { register(KeyCreateMirror, entry{name: "CreateMirror", local: (*Handlers).createMirror}) }

func (h *Handlers) createMirror(ctx context.Context, up proxy.Upstream, version int16, body []byte) (kmsg.Response, error) {
	req := mirrormsg.NewPtrCreateMirrorRequest()
	if err := decode(req, version, body); err != nil {
		return nil, err
	}
	resp := mirrormsg.NewPtrCreateMirrorResponse()
	refused, err := authorizeCluster(ctx, up, kmsg.ACLOperationAlter)
	if err != nil {
		return nil, err
	}
	if refused == nil {
		refused = refuseName(req.MirrorName)
	}
	var config map[string]*string
	if refused == nil {
		config, refused = h.mirrorConfig(req.Config)
	}
	if refused == nil {
		err := h.engine.CreateMirror(ctx, *req.MirrorName, config, req.ValidateOnly)
		refused = h.refusal("CreateMirror", *req.MirrorName, err)
	}
	resp.ErrorCode, resp.ErrorMessage = codeOf(refused), messageOf(refused)
	return resp, nil
}

func (h *Handlers) mirrorConfig(settings []mirrormsg.CreateMirrorRequestConfig) (map[string]*string, *mirror.Error) {
	config := make(map[string]*string, len(settings))
	for _, setting := range settings {
		if _, ok := config[setting.Name]; ok {
			return nil, mirror.Refuse(kerr.InvalidConfig, "%s is given twice", setting.Name)
		}
		if refused := h.refuseSecret(setting.Name, setting.Value); refused != nil {
			return nil, refused
		}
		config[setting.Name] = setting.Value
	}
	return config, nil
}
