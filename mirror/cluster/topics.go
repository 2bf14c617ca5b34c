package cluster

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopicID is a Kafka topic ID; the zero value means "none".
type TopicID = [16]byte

// IDString writes a topic ID as Kafka's tools do.
func IDString(id TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// Topic is a topic as a cluster's metadata has it.
type Topic struct {
	ID         TopicID
	Partitions int32
	Epoch      int32 // the highest leader epoch of its partitions, -1 where there is none
	Replicas   int16 // of the first partition
	Internal   bool
	Err        error // UNKNOWN_TOPIC_OR_PARTITION: there is none
}

// Missing reports whether the cluster has no such topic.
func (t Topic) Missing() bool { return errors.Is(t.Err, kerr.UnknownTopicOrPartition) }

// DescribeTopics asks any broker of a cluster for topics, and for the cluster's ID. It creates none.
func DescribeTopics(ctx context.Context, client *kgo.Client, names ...string) (map[string]Topic, string, error) {
	topics, clusterID, err := askTopics(ctx, client, metadataOf(names))
	for _, name := range names {
		if _, ok := topics[name]; err == nil && !ok {
			topics[name] = Topic{Err: kerr.UnknownTopicOrPartition}
		}
	}
	return topics, clusterID, err
}

// AllTopics asks any broker for all topics that the client may see. (kadm would go by what it remembers.)
func AllTopics(ctx context.Context, client *kgo.Client) (map[string]Topic, error) {
	req := kmsg.NewPtrMetadataRequest() // null topics are all
	req.AllowAutoTopicCreation = false
	topics, _, err := askTopics(ctx, client, req)
	return topics, err
}

// metadataOf asks for the metadata of these topics, none if there are no names, and creates none.
func metadataOf(names []string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(names)) // null would be all
	for _, name := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, topic)
	}
	return req
}

func askTopics(ctx context.Context, client *kgo.Client, req *kmsg.MetadataRequest) (map[string]Topic, string, error) {
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, "", fmt.Errorf("ask for metadata: %w", err)
	}
	topics := make(map[string]Topic, len(resp.Topics))
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		topic := Topic{ID: t.TopicID, Partitions: int32(len(t.Partitions)), Internal: t.IsInternal}
		topic.Epoch = -1
		for _, p := range t.Partitions {
			topic.Epoch = max(topic.Epoch, p.LeaderEpoch)
		}
		if len(t.Partitions) > 0 {
			topic.Replicas = int16(len(t.Partitions[0].Replicas))
		}
		// A topic without a leader for a moment is there all the same.
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil && !errors.Is(err, kerr.LeaderNotAvailable) {
			topic.Err = err
		}
		topics[*t.Topic] = topic
	}
	clusterID := ""
	if resp.ClusterID != nil {
		clusterID = *resp.ClusterID
	}
	return topics, clusterID, nil
}
