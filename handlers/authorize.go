package handlers

import (
	"context"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// The mirror RPCs have no users and rights of their own. What a client may do is asked of the destination, over the
// client's own connection, which carries its principal: DescribeCluster and Metadata say which operations it may do on
// the cluster and on topics. A destination without authorizer answers with the full set.
//
// Kafka shows the operations on a resource only to those who may DESCRIBE it. READ, WRITE, DELETE and ALTER imply that;
// CLUSTER_ACTION does not, so that WriteMirrorStates needs DESCRIBE beside it.

// noOperations is what a client may do that may not even describe.
const noOperations int32 = 0

func mayDo(operations int32, operation kmsg.ACLOperation) bool { return operations&(1<<operation) != 0 }

// clusterOperations returns what the client may do on the destination cluster, as a bit field by ACL operation.
func clusterOperations(ctx context.Context, up proxy.Upstream) (int32, error) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeClusterAuthorizedOperations = true
	resp, err := roundTrip[*kmsg.DescribeClusterResponse](ctx, up, req)
	if err != nil {
		return noOperations, fmt.Errorf("asking for the client's rights on the cluster: %w", err)
	}
	switch err := kerr.ErrorForCode(resp.ErrorCode); err {
	case nil:
		return resp.ClusterAuthorizedOperations, nil
	case kerr.ClusterAuthorizationFailed:
		return noOperations, nil
	default:
		return noOperations, fmt.Errorf("asking for the client's rights on the cluster: %w", err)
	}
}

// authorizeCluster returns a refusal unless the client may do operation on the destination cluster. An error means that
// nothing is known; the request must not go on then either.
func authorizeCluster(ctx context.Context, up proxy.Upstream, operation kmsg.ACLOperation) (*mirror.Error, error) {
	operations, err := clusterOperations(ctx, up)
	if err != nil {
		return nil, err
	}
	if !mayDo(operations, operation) {
		return mirror.Refuse(kerr.ClusterAuthorizationFailed,
			"this needs %s on the destination cluster; an ACL there can give it to the user", operation), nil
	}
	return nil, nil
}

// authorizeTopics returns a refusal for each of the destination topics names that exists and that the client may not
// ALTER. For a topic that the client may not even describe the destination does not say whether it exists: refused too.
func authorizeTopics(ctx context.Context, up proxy.Upstream, names []string) (map[string]*mirror.Error, error) {
	refused := make(map[string]*mirror.Error)
	if len(names) == 0 {
		return refused, nil // an empty list is no question; null would mean all topics
	}
	req := metadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &name
		req.Topics = append(req.Topics, topic)
	}
	resp, err := roundTrip[*kmsg.MetadataResponse](ctx, up, req)
	if err != nil {
		return nil, fmt.Errorf("asking for the client's rights on topics: %w", err)
	}
	answered := make(map[string]bool, len(names))
	for _, topic := range resp.Topics {
		if topic.Topic == nil {
			continue
		}
		answered[*topic.Topic] = true
		if refusal := alterTopicRefusal(&topic); refusal != nil {
			refused[*topic.Topic] = refusal
		}
	}
	for _, name := range names {
		if !answered[name] {
			return nil, fmt.Errorf("asking for the client's rights on topics: the destination did not answer for %q", name)
		}
	}
	return refused, nil
}

func alterTopicRefusal(topic *kmsg.MetadataResponseTopic) *mirror.Error {
	switch err := kerr.TypedErrorForCode(topic.ErrorCode); err {
	case nil:
		if !mayDo(topic.AuthorizedOperations, kmsg.ACLOperationAlter) {
			return mirror.Refuse(kerr.TopicAuthorizationFailed, "this needs ALTER on the destination topic")
		}
		return nil
	case kerr.UnknownTopicOrPartition:
		return nil
	case kerr.TopicAuthorizationFailed:
		return mirror.Refuse(err, "this needs ALTER on the destination topic")
	default:
		return mirror.Refuse(err, "the destination refuses the topic: %s", err.Description)
	}
}

// changeNeeds is the operation that the destination wants to be allowed on a topic by requests that change it, by API
// key. A change of a read-only mirror is refused in the words of the destination if it would have refused it, too.
var changeNeeds = map[int16]kmsg.ACLOperation{
	keyProduce:          kmsg.ACLOperationWrite,
	keyDeleteTopics:     kmsg.ACLOperationDelete,
	keyDeleteRecords:    kmsg.ACLOperationDelete,
	keyAddPartitions:    kmsg.ACLOperationWrite,
	keyAlterConfigs:     kmsg.ACLOperationAlterConfigs,
	keyCreatePartitions: kmsg.ACLOperationAlter,
	keyIncrementalAlter: kmsg.ACLOperationAlterConfigs,
}

// rightsRequest asks the destination what the client may do on topics, which are its mirrors.
func rightsRequest(topics []*mirror.Topic) *kmsg.MetadataRequest {
	req := metadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	asked := make(map[string]bool, len(topics))
	for _, t := range topics {
		if !asked[t.Name] {
			asked[t.Name] = true
			topic := kmsg.NewMetadataRequestTopic()
			topic.Topic = &t.Name
			req.Topics = append(req.Topics, topic)
		}
	}
	return req
}

// forbidden returns the topics on which the client may not do what a request with API key key does, by the answer to a
// rightsRequest.
func forbidden(key int16, resp *kmsg.MetadataResponse) map[string]bool {
	topics := make(map[string]bool)
	for _, t := range resp.Topics {
		unknown := t.AuthorizedOperations == math.MinInt32
		if t.Topic != nil && (t.ErrorCode == kerr.TopicAuthorizationFailed.Code ||
			t.ErrorCode == 0 && !unknown && !mayDo(t.AuthorizedOperations, changeNeeds[key])) {
			topics[*t.Topic] = true
		}
	}
	return topics
}

// metadataRequest asks for no topic yet, and never creates one.
func metadataRequest() *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12 // the first that finds topics by ID
	req.Topics = []kmsg.MetadataRequestTopic{}
	req.AllowAutoTopicCreation = false
	return req
}

// roundTrip sends req over the client's own connection. Its errors mean that this connection is lost.
func roundTrip[R kmsg.Response](ctx context.Context, up proxy.Upstream, req kmsg.Request) (R, error) {
	var none R
	resp, err := up.RoundTrip(ctx, req)
	if err != nil {
		return none, err
	}
	typed, ok := resp.(R)
	if !ok {
		return none, fmt.Errorf("the response to %s is a %T", kmsg.NameForKey(req.Key()), resp)
	}
	return typed, nil
}
