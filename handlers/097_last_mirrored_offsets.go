package handlers

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// LastMirroredOffsets v0 (KIP-1279): needs DESCRIBE on the destination cluster. An unknown mirror is INVALID_REQUEST at
// the top; an unknown topic or partition is UNKNOWN_TOPIC_OR_PARTITION with offset -1 on the partition. An offset of -1
// without error is not known: the topic was deleted since, or nothing was mirrored yet.

func init() {
	register(KeyLastMirroredOffsets, entry{name: "LastMirroredOffsets", local: (*Handlers).lastMirroredOffsets})
}

func (h *Handlers) lastMirroredOffsets(ctx context.Context, up proxy.Upstream, version int16, body []byte) (kmsg.Response, error) {
	req := mirrormsg.NewPtrLastMirroredOffsetsRequest()
	if err := decode(req, version, body); err != nil {
		return nil, err
	}
	resp := mirrormsg.NewPtrLastMirroredOffsetsResponse()
	refused, err := authorizeCluster(ctx, up, kmsg.ACLOperationDescribe)
	if err != nil {
		return nil, err
	}
	if refused == nil {
		var topics []mirror.TopicDescription
		topics, err = h.engine.LastMirrored(ctx, req.MirrorName)
		refused = h.refusal("LastMirroredOffsets", req.MirrorName, err)
		for _, topic := range selected(topics, req.Topics) {
			resp.Topics = append(resp.Topics, lastMirrored(topic))
		}
	}
	if resp.ErrorCode = codeOf(refused); refused != nil {
		resp.Topics = nil
	}
	return resp, nil
}

func lastMirrored(topic selectedTopic) mirrormsg.LastMirroredOffsetsResponseTopic {
	out := mirrormsg.LastMirroredOffsetsResponseTopic{Name: topic.name}
	for _, p := range topic.partitions {
		partition := mirrormsg.LastMirroredOffsetsResponseTopicPartition{Partition: p.Partition, LastMirroredOffset: -1}
		if p.known {
			partition.LastMirroredOffset = p.LastMirrored
		} else {
			partition.ErrorCode = kerr.UnknownTopicOrPartition.Code
		}
		out.Partitions = append(out.Partitions, partition)
	}
	return out
}

// selectedTopic is a topic that was asked for, with the partitions asked for, in the order of the request.
type selectedTopic struct {
	name       string
	known      bool
	partitions []selectedPartition
}

type selectedPartition struct {
	mirror.PartitionStatus
	known bool
}

// selected picks what a request names: no topics means all, a topic without partitions means all of its partitions. For
// an unknown topic without partitions there is one partition -1, as there is no other place for its error.
func selected(have []mirror.TopicDescription, want []mirrormsg.TopicPartitions) []selectedTopic {
	if len(want) == 0 {
		for _, topic := range have {
			want = append(want, mirrormsg.TopicPartitions{Name: topic.Name})
		}
	}
	byName := make(map[string]mirror.TopicDescription, len(have))
	for _, topic := range have {
		byName[topic.Name] = topic
	}
	out := make([]selectedTopic, 0, len(want))
	for _, w := range want {
		topic, known := byName[w.Name]
		s := selectedTopic{name: w.Name, known: known}
		switch {
		case len(w.Partitions) > 0:
			s.partitions = selectPartitions(topic.Partitions, w.Partitions)
		case known:
			for _, p := range topic.Partitions {
				s.partitions = append(s.partitions, selectedPartition{p, true})
			}
		default:
			s.partitions = []selectedPartition{unknownPartition(-1)}
		}
		out = append(out, s)
	}
	return out
}

func selectPartitions(have []mirror.PartitionStatus, want []mirrormsg.Partition) []selectedPartition {
	byIndex := make(map[int32]mirror.PartitionStatus, len(have))
	for _, p := range have {
		byIndex[p.Partition] = p
	}
	out := make([]selectedPartition, 0, len(want))
	for _, w := range want {
		if p, ok := byIndex[w.Partition]; ok {
			out = append(out, selectedPartition{p, true})
		} else {
			out = append(out, unknownPartition(w.Partition))
		}
	}
	return out
}

func unknownPartition(index int32) selectedPartition {
	return selectedPartition{PartitionStatus: mirror.PartitionStatus{Status: replication.Status{
		Partition: index, State: mirror.Unknown, LastMirrored: -1,
	}}}
}
