package handlers

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// WriteMirrorStates v0 (KIP-1279): needs CLUSTER_ACTION on the destination cluster, and is served by the coordinator of
// the mirror as ReadMirrorStates is. A state that is none, or that the partition cannot go to, is INVALID_REQUEST on the
// partition; the others of the request are applied. The message has no room for reasons: they are logged.

func init() {
	register(KeyWriteMirrorStates, entry{name: "WriteMirrorStates", local: (*Handlers).writeMirrorStates})
}

func (h *Handlers) writeMirrorStates(ctx context.Context, up proxy.Upstream, version int16, body []byte) (kmsg.Response, error) {
	req := mirrormsg.NewPtrWriteMirrorStatesRequest()
	if err := decode(req, version, body); err != nil {
		return nil, err
	}
	refused, err := authorizeCluster(ctx, up, kmsg.ACLOperationClusterAction)
	if err != nil {
		return nil, err
	}
	if refused == nil {
		refused = h.refuseUnlessCoordinator(ctx, "WriteMirrorStates", req.MirrorName)
	}
	resp := mirrormsg.NewPtrWriteMirrorStatesResponse()
	if resp.ErrorCode = codeOf(refused); refused != nil {
		return resp, nil
	}
	update, err := h.writeStates(ctx, req)
	if refused = h.refusal("WriteMirrorStates", req.MirrorName, err); refused != nil {
		resp.ErrorCode = codeOf(refused)
		return resp, nil
	}
	for _, topic := range req.TopicsUpdated {
		out := mirrormsg.WriteMirrorStatesResponseTopic{Name: topic.Name}
		for _, p := range topic.Partitions {
			out.Partitions = append(out.Partitions, mirrormsg.WriteMirrorStatesResponseTopicPartition{
				Partition: p.Partition, ErrorCode: codeOf(update[0]),
			})
			update = update[1:]
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, nil
}

// writeStates gives the engine the updates whose state is one, and returns the error of each partition of the request, in
// its order.
func (h *Handlers) writeStates(ctx context.Context, req *mirrormsg.WriteMirrorStatesRequest) ([]*mirror.Error, error) {
	var updates []mirror.StateUpdate
	var all, sent []*mirror.Error
	var at []int // where in all the error of an update goes
	for _, topic := range req.TopicsUpdated {
		for _, p := range topic.Partitions {
			if refused := refuseState(p); refused != nil {
				all = append(all, refused)
				continue
			}
			at = append(at, len(all))
			all = append(all, nil)
			updates = append(updates, mirror.StateUpdate{
				Topic: topic.Name, Partition: p.Partition, LastMirrored: p.LastMirroredOffset, State: mirror.State(p.State),
			})
		}
	}
	if len(updates) > 0 || len(req.RemovedTopics) > 0 {
		var err error
		if sent, err = h.engine.WriteStates(ctx, req.MirrorName, updates, req.RemovedTopics); err != nil {
			return nil, err
		}
		if len(sent) != len(updates) {
			return nil, fmt.Errorf("the engine gave %d results for %d updates", len(sent), len(updates))
		}
	}
	for i, refused := range sent {
		if all[at[i]] = refused; refused != nil {
			h.log.Info("mirror state refused", zap.String("mirror", req.MirrorName), zap.String("topic", updates[i].Topic),
				zap.Int32("partition", updates[i].Partition), zap.Stringer("state", updates[i].State), zap.Error(refused))
		}
	}
	return all, nil
}

// refuseState returns a refusal for a number that is no state, or no offset.
func refuseState(p mirrormsg.WriteMirrorStatesRequestTopicPartition) *mirror.Error {
	switch state := mirror.State(p.State); state {
	case mirror.Initializing, mirror.Preparing, mirror.Mirroring, mirror.Stopping, mirror.Stopped, mirror.Failed, mirror.Paused:
	default:
		return mirror.Refuse(kerr.InvalidRequest, "%s is not a state that can be written", state)
	}
	if p.LastMirroredOffset < -1 {
		return mirror.Refuse(kerr.InvalidRequest, "%d is not an offset", p.LastMirroredOffset)
	}
	return nil
}
