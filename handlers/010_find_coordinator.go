package handlers

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

const (
	keyFindCoordinator = 10
	// coordinatorMirror is the key type of mirrors: the key is a mirror's name or mirror:topicId:partition.
	coordinatorMirror = 3
	// gatewayNodeBase is added to a gateway's number to make its node ID, so that it never meets a broker's.
	gatewayNodeBase = 1_000_000_000
)

// FindCoordinator: v0–v6
//
// Coordinators that are brokers get the gateway's addresses; one that is not known (node -1, no host) stays so.
//   - v0: groups only.
//   - v1+: key type. Type 3, mirrors, is answered here at every such version: it is not the broker's. It needs DESCRIBE on
//     the destination cluster, as all that tells which mirrors there are.
//   - v4+: several keys at once, all of one type.
func init() {
	register(keyFindCoordinator, entry{
		whole:   func(_ *Handlers, _ *mirror.Topics, version int16) bool { return version >= 1 },
		request: (*Handlers).findCoordinator,
	})
}

func (h *Handlers) findCoordinator(r *request) proxy.Decision {
	req := kmsg.NewPtrFindCoordinatorRequest()
	if err := decode(req, r.Version, r.body()); err != nil {
		return undecodable(err)
	}
	if req.CoordinatorType != coordinatorMirror {
		return forward(r)
	}
	h.metrics.local.WithLabelValues(nameOf(keyFindCoordinator)).Inc()
	hd, client := r.Header, r.client
	return proxy.Decision{Work: func(ctx context.Context, up proxy.Upstream) ([]byte, error) {
		refused, err := authorizeCluster(ctx, up, kmsg.ACLOperationDescribe)
		if err != nil {
			return nil, h.fail(client, h.entries[hd.Key], hd, err)
		}
		return encodeResponse(hd.CorrelationID, h.mirrorCoordinators(ctx, req, refused)), nil
	}}
}

// mirrorCoordinators answers for all keys of req, with refused for each if it is not nil.
func (h *Handlers) mirrorCoordinators(ctx context.Context, req *kmsg.FindCoordinatorRequest, refused *mirror.Error) *kmsg.FindCoordinatorResponse {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if req.Version < 4 {
		c := h.mirrorCoordinator(ctx, req.CoordinatorKey, refused)
		resp.ErrorCode, resp.ErrorMessage = c.ErrorCode, c.ErrorMessage
		resp.NodeID, resp.Host, resp.Port = c.NodeID, c.Host, c.Port
		return resp
	}
	for _, key := range req.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, h.mirrorCoordinator(ctx, key, refused))
	}
	return resp
}

func (h *Handlers) mirrorCoordinator(ctx context.Context, key string, refused *mirror.Error) kmsg.FindCoordinatorResponseCoordinator {
	c := kmsg.NewFindCoordinatorResponseCoordinator()
	c.Key, c.NodeID, c.Port = key, -1, -1
	if refused != nil {
		c.ErrorCode, c.ErrorMessage = refused.Kafka.Code, &refused.Message
		return c
	}
	member, err := h.engine.Coordinator(ctx, key)
	switch {
	case err == nil:
		c.NodeID, c.Host, c.Port = gatewayNodeBase+member.Number, member.Host, member.Port
	case errors.As(err, &refused):
		c.ErrorCode, c.ErrorMessage = refused.Kafka.Code, &refused.Message
	default:
		h.log.Error("coordinator of a mirror", zap.String("key", key), zap.Error(err))
		c.ErrorCode, c.ErrorMessage = kerr.UnknownServerError.Code, kmsg.StringPtr("the gateway could not find the coordinator")
	}
	return c
}
