package handlers

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// ReadMirrorStates v0 (KIP-1279): needs ALTER on the destination cluster. Served by the coordinator of the mirror, other
// gateways answer NOT_COORDINATOR. An unknown mirror is INVALID_REQUEST, an unknown topic or partition
// UNKNOWN_TOPIC_OR_PARTITION with offset -1 and state UNKNOWN on the partition. NeedPartitionStates=false: the topics
// alone; unknown ones are left out then, as a topic has no error of its own.

func init() {
	register(KeyReadMirrorStates, entry{name: "ReadMirrorStates", local: (*Handlers).readMirrorStates})
}

func (h *Handlers) readMirrorStates(ctx context.Context, up proxy.Upstream, version int16, body []byte) (kmsg.Response, error) {
	req := mirrormsg.NewPtrReadMirrorStatesRequest()
	if err := decode(req, version, body); err != nil {
		return nil, err
	}
	resp := mirrormsg.NewPtrReadMirrorStatesResponse()
	refused, err := authorizeCluster(ctx, up, kmsg.ACLOperationAlter)
	if err != nil {
		return nil, err
	}
	if refused == nil {
		refused = h.refuseUnlessCoordinator(ctx, "ReadMirrorStates", req.MirrorName)
	}
	var description mirror.Description
	if refused == nil {
		description, err = h.engine.Describe(ctx, req.MirrorName)
		refused = h.refusal("ReadMirrorStates", req.MirrorName, err)
	}
	if resp.ErrorCode = codeOf(refused); refused != nil {
		return resp, nil
	}
	for _, topic := range selected(description.Topics, req.Topics) {
		switch {
		case req.NeedPartitionStates:
			resp.Topics = append(resp.Topics, topicState(topic))
		case topic.known:
			resp.Topics = append(resp.Topics, mirrormsg.ReadMirrorStatesResponseTopic{Name: topic.name})
		}
	}
	return resp, nil
}

// refuseUnlessCoordinator returns NOT_COORDINATOR where another gateway coordinates the mirror.
func (h *Handlers) refuseUnlessCoordinator(ctx context.Context, doing, name string) *mirror.Error {
	coordinator, err := h.engine.Coordinator(ctx, name)
	if err != nil {
		return h.refusal(doing, name, err)
	}
	if coordinator.Number != h.engine.Self().Number {
		return mirror.Refuse(kerr.NotCoordinator, "mirror %s is coordinated by %s:%d; FindCoordinator type 3 says so",
			name, coordinator.Host, coordinator.Port)
	}
	return nil
}

func topicState(topic selectedTopic) mirrormsg.ReadMirrorStatesResponseTopic {
	out := mirrormsg.ReadMirrorStatesResponseTopic{Name: topic.name}
	for _, p := range topic.partitions {
		partition := mirrormsg.ReadMirrorStatesResponseTopicPartition{
			Partition: p.Partition, LastMirroredOffset: p.LastMirrored, State: int8(p.State),
		}
		if !p.known {
			partition.ErrorCode = kerr.UnknownTopicOrPartition.Code
		}
		out.Partitions = append(out.Partitions, partition)
	}
	return out
}
