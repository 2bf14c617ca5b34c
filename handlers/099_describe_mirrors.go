package handlers

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// DescribeMirrors v0 (KIP-1279): needs DESCRIBE on the destination cluster. No names, null or empty, means all mirrors.
// Errors are per mirror: INVALID_REQUEST for a name that is not one of a mirror. The message has no error at the top, so
// that of a request for all mirrors comes as a mirror without name.

func init() {
	register(KeyDescribeMirrors, entry{name: "DescribeMirrors", local: (*Handlers).describeMirrors})
}

func (h *Handlers) describeMirrors(ctx context.Context, up proxy.Upstream, version int16, body []byte) (kmsg.Response, error) {
	req := mirrormsg.NewPtrDescribeMirrorsRequest()
	if err := decode(req, version, body); err != nil {
		return nil, err
	}
	operations, err := clusterOperations(ctx, up)
	if err != nil {
		return nil, err
	}
	var refused *mirror.Error
	names := req.MirrorNames
	if !mayDo(operations, kmsg.ACLOperationDescribe) {
		refused = mirror.Refuse(kerr.ClusterAuthorizationFailed, "")
	} else if len(names) == 0 {
		var mirrors []mirror.Summary
		mirrors, err = h.engine.Mirrors(ctx)
		refused = h.refusal("DescribeMirrors", "", err)
		for _, m := range mirrors {
			names = append(names, m.Name)
		}
	}
	if refused != nil && len(names) == 0 {
		names = []string{""}
	}
	resp := mirrormsg.NewPtrDescribeMirrorsResponse()
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		described := h.describeMirror(ctx, name, refused)
		if req.IncludeAuthorizedOperations && described.ErrorCode == 0 {
			described.AuthorizedOperations = operations
		}
		resp.Mirrors = append(resp.Mirrors, described)
	}
	return resp, nil
}

func (h *Handlers) describeMirror(ctx context.Context, name string, refused *mirror.Error) mirrormsg.DescribeMirrorsResponseMirror {
	out := mirrormsg.NewDescribeMirrorsResponseMirror()
	out.MirrorName = name
	var description mirror.Description
	if refused == nil {
		var err error
		description, err = h.engine.Describe(ctx, name)
		refused = h.refusal("DescribeMirrors", name, err)
	}
	if out.ErrorCode = codeOf(refused); refused != nil {
		return out
	}
	out.SourceClusterID = description.SourceClusterID
	for _, topic := range description.Topics {
		t := mirrormsg.DescribeMirrorsResponseMirrorTopic{
			TopicName: topic.Name, TopicID: topic.ID, DestinationTopicID: topic.DestinationID, OriginTopicID: topic.OriginID,
		}
		for _, p := range topic.Partitions {
			t.Partitions = append(t.Partitions, describePartition(p))
		}
		for _, link := range topic.Chain {
			t.Chain = append(t.Chain, mirrormsg.DescribeMirrorsResponseMirrorTopicLink{ClusterID: link.ClusterID, MirrorName: link.Mirror})
		}
		out.Topics = append(out.Topics, t)
	}
	for _, skip := range description.Skipped {
		out.Skipped = append(out.Skipped, mirrormsg.DescribeMirrorsResponseMirrorSkipped{
			Sync: string(skip.Kind), Reason: skip.Reason, Count: int32(skip.Count), Names: skip.Names,
		})
	}
	for _, s := range description.Syncs {
		out.Syncs = append(out.Syncs, mirrormsg.DescribeMirrorsResponseMirrorSync{
			Sync: string(s.Kind), Cycles: s.Cycles, AgeMillis: s.Age.Milliseconds(), Covered: int32(s.Covered),
		})
	}
	return out
}

func describePartition(p mirror.PartitionStatus) mirrormsg.DescribeMirrorsResponseMirrorTopicPartition {
	out := mirrormsg.DescribeMirrorsResponseMirrorTopicPartition{
		Partition: p.Partition, SourceOffset: p.SourceHighWatermark, DestinationOffset: p.DestinationEnd, Lag: p.Lag(),
		State: p.State.String(), Reason: p.Reason, SourceLastStableOffset: p.SourceLastStableOffset,
		RecordsPerSecond: p.RecordsPerSecond,
	}
	if p.SourceHighWatermark >= 0 && p.SourceAge >= 0 {
		out.SourceAgeMillis = max(1, p.SourceAge.Milliseconds())
	}
	if p.Stop != nil {
		out.Stop = &mirrormsg.DescribeMirrorsResponseMirrorTopicPartitionStop{
			LastMirroredOffset: p.LastMirrored, SourceOffset: p.Stop.SourceEnd, SourceAgeMillis: -1, AgeMillis: p.Stop.Ago.Milliseconds(),
		}
		if p.Stop.SourceAge >= 0 {
			out.Stop.SourceAgeMillis = p.Stop.SourceAge.Milliseconds()
		}
	}
	return out
}
