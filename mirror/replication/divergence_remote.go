package replication

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// # Empty, or just not here
//
// A source that answers a fetch below its last stable offset with nothing, again and again, has no records there: the log
// cleaner emptied the end of the log. Or it keeps them in remote storage, which is slow or away: Kafka answers with
// nothing then, too (KIP-405, remote.fetch.max.wait.ms). The first is a gap, the second would be lost records. What the
// broker has on its own disk settles it.

const (
	// earliestLocal asks for the start of what is on the broker's own disk (KIP-405, ListOffsets v8).
	earliestLocal        = -4
	earliestLocalVersion = 8
)

// remoteStorage are the topic settings by which records of a topic may be elsewhere than on the broker, for brokers that
// do not answer earliestLocal: those of Kafka, Confluent and Redpanda.
var remoteStorage = []string{"remote.storage.enable", "confluent.tier.enable", "redpanda.remote.read"}

// remote says why the records from the end of the destination on may be in remote storage, "" if they cannot.
func (v *sourceView) remote(ctx context.Context, c *offsetCheck) (why string, err error) {
	req := cluster.OffsetsRequest([]cluster.TopicPartition{c.key}, earliestLocal, cluster.ReadUncommitted)
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = c.leader.epoch
	resp, err := v.client.Broker(int(c.leader.broker)).Request(ctx, req)
	if err != nil {
		return "", fmt.Errorf("asking for the start of the local log: %w", err)
	}
	offsets := make(map[cluster.TopicPartition]cluster.ListedOffset)
	cluster.TakeOffsets(offsets, resp.(*kmsg.ListOffsetsResponse))
	local := offsets[c.key]
	if resp.GetVersion() >= earliestLocalVersion && local.Found && local.Code == 0 && local.Offset >= 0 {
		if local.Offset <= c.end {
			return "", nil
		}
		return fmt.Sprintf("they are in its remote storage (its own disk begins at offset %d), which does not answer", local.Offset), nil
	}
	return v.remoteBySettings(ctx, c.key.Topic)
}

func (v *sourceView) remoteBySettings(ctx context.Context, topic string) (why string, err error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	resource.ConfigNames = remoteStorage
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(ctx, v.client)
	if err != nil {
		return "", fmt.Errorf("asking for the settings of the topic: %w", err)
	}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return fmt.Sprintf("they may be in remote storage, and its settings cannot be read: %v (DESCRIBE_CONFIGS on the topic is needed)", err), nil
		}
		for _, config := range r.Configs {
			if config.Value != nil && *config.Value == "true" {
				return fmt.Sprintf("they may be in remote storage (%s), which does not answer", config.Name), nil
			}
		}
	}
	return "", nil
}
