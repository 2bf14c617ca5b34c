package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// contactSource connects to the first source broker that answers and returns the cluster's ID, "" for a cluster too old
// to have one. The refusal says what is wrong and which setting mends it:
//
//	SASL_AUTHENTICATION_FAILED   the source refuses the credentials or the mechanism
//	BROKER_NOT_AVAILABLE         nobody answers at bootstrap.servers
//	INVALID_REQUEST              the source is the destination (a loop)
func (m *Manager) contactSource(ctx context.Context, config Config) (clusterID string, refusal *Error) {
	source, err := config.Source()
	if err != nil {
		return "", Refuse(kerr.InvalidConfig, "%s", err)
	}
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	var errs []error
	for i, addr := range source.Bootstrap {
		clusterID, err := contactBroker(ctx, addr, source, contactTimeout/time.Duration(min(2, len(source.Bootstrap)-i)))
		if err == nil {
			return clusterID, m.checkLoop(ctx, clusterID)
		}
		errs = append(errs, err)
		var auth *broker.AuthenticationError
		if errors.As(err, &auth) {
			return "", Refuse(kerr.SaslAuthenticationFailed, "the source refuses the gateway: %s; check sasl.mechanism and sasl.jaas.config", err)
		}
	}
	return "", Refuse(kerr.BrokerNotAvailable, "the source cannot be reached from the gateway: %s; check bootstrap.servers and security.protocol",
		strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; "))
}

// checkLoop refuses a source that is the destination, directly or through a gateway.
func (m *Manager) checkLoop(ctx context.Context, sourceID string) *Error {
	destinationID, err := m.destinationClusterID(ctx)
	if err != nil {
		return Refuse(kerr.BrokerNotAvailable, "the destination does not answer the gateway: %s", err)
	}
	if sourceID != "" && sourceID == destinationID {
		return Refuse(kerr.InvalidRequest, "the source is the destination cluster itself (cluster ID %s): this would be a loop; "+
			"bootstrap.servers must name another cluster", sourceID)
	}
	return nil
}

func contactBroker(ctx context.Context, addr string, config broker.Config, timeout time.Duration) (clusterID string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := broker.Dial(ctx, addr, config)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none
	if err := conn.SetVersion(req, 12); err != nil {
		return "", err
	}
	kresp, err := conn.Request(ctx, req)
	if err != nil {
		return "", fmt.Errorf("metadata of %s: %w", addr, err)
	}
	if id := kresp.(*kmsg.MetadataResponse).ClusterID; id != nil {
		clusterID = *id
	}
	return clusterID, nil
}

// destinationClusterID asks once; a cluster does not change its ID.
func (m *Manager) destinationClusterID(ctx context.Context) (string, error) {
	if id := m.destinationID.Load(); id != nil {
		return *id, nil
	}
	_, id, err := describeTopics(ctx, m.cfg.Destination)
	if err != nil {
		return "", err
	}
	m.destinationID.Store(&id)
	return id, nil
}

// clusterTopic is a topic as a cluster's metadata has it.
type clusterTopic struct {
	ID         TopicID
	Partitions int32
	Epoch      int32 // the highest leader epoch of its partitions, -1 where there is none
	Replicas   int16 // of the first partition
	Internal   bool
	Err        error // UNKNOWN_TOPIC_OR_PARTITION: there is none
}

func (t clusterTopic) missing() bool { return errors.Is(t.Err, kerr.UnknownTopicOrPartition) }

// describeTopics asks any broker of a cluster for topics, and for the cluster's ID. It creates none.
func describeTopics(ctx context.Context, client *kgo.Client, names ...string) (map[string]clusterTopic, string, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	req.Topics = make([]kmsg.MetadataRequestTopic, 0, len(names))
	for _, name := range names {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, topic)
	}
	topics, clusterID, err := askTopics(ctx, client, req)
	for _, name := range names {
		if _, ok := topics[name]; err == nil && !ok {
			topics[name] = clusterTopic{Err: kerr.UnknownTopicOrPartition}
		}
	}
	return topics, clusterID, err
}

// allTopics asks any broker for all topics that the client may see. (kadm would go by what it remembers.)
func allTopics(ctx context.Context, client *kgo.Client) (map[string]clusterTopic, error) {
	req := kmsg.NewPtrMetadataRequest() // null topics are all
	req.AllowAutoTopicCreation = false
	topics, _, err := askTopics(ctx, client, req)
	return topics, err
}

func askTopics(ctx context.Context, client *kgo.Client, req *kmsg.MetadataRequest) (map[string]clusterTopic, string, error) {
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, "", fmt.Errorf("ask for metadata: %w", err)
	}
	topics := make(map[string]clusterTopic, len(resp.Topics))
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		topic := clusterTopic{ID: t.TopicID, Partitions: int32(len(t.Partitions)), Internal: t.IsInternal}
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

type topicPartition struct {
	topic     string
	partition int32
}

// The timestamps that stand for the ends of a log in ListOffsets.
const (
	startOffset = -2
	endOffset   = -1
)

// allOffsets asks for the start or the end of all partitions of topics, given with their numbers of partitions. What is
// not known at the moment is missing in the answer. (kadm would go by what it remembers of the topics.)
func allOffsets(ctx context.Context, client *kgo.Client, topics map[string]int32, timestamp int64) (map[topicPartition]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	for name, partitions := range topics {
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = name
		for p := range partitions {
			partition := kmsg.NewListOffsetsRequestTopicPartition()
			partition.Partition, partition.Timestamp = p, timestamp
			topic.Partitions = append(topic.Partitions, partition)
		}
		req.Topics = append(req.Topics, topic)
	}
	offsets := make(map[topicPartition]int64)
	var errs []error
	for _, shard := range client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			errs = append(errs, shard.Err)
			continue
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					errs = append(errs, err)
					continue
				}
				offsets[topicPartition{t.Topic, p.Partition}] = p.Offset
			}
		}
	}
	if len(offsets) == 0 {
		return nil, errors.Join(errs...)
	}
	return offsets, nil
}

// connectSource makes the admin client of a source without contacting it.
func (m *Manager) connectSource(config Config) (*kgo.Client, error) {
	if m.cfg.ConnectSource != nil {
		return m.cfg.ConnectSource(config, sourceOptions()...)
	}
	source, err := config.Source()
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(source.KgoOptions(), sourceOptions()...)...)
}

// sourceOptions are for the admin client of a source: a source that is away must not hold up an answer for long.
func sourceOptions() []kgo.Opt {
	return []kgo.Opt{
		kgo.RetryTimeout(contactTimeout),
		kgo.RequestRetries(5),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.ConnIdleTimeout(2 * time.Minute),
		kgo.MaxVersions(mirrormsg.Versions()), // the source can be a gateway
	}
}
