package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// access is how the benchmarks talk to a cluster.
type access struct {
	*kadm.Client
	kgo *kgo.Client
}

func dialAccess(broker string) (*access, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.MetadataMinAge(20*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return &access{kadm.NewClient(client), client}, nil
}

// kerrOf is the error of a code, nil for none.
func kerrOf(code int16, message *string) error {
	err := kerr.ErrorForCode(code)
	if err != nil && message != nil {
		err = fmt.Errorf("%w: %s", err, *message)
	}
	return err
}

func topicNames(ctx context.Context, admin *access) ([]string, error) {
	response, err := metadata(ctx, admin, nil)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range response.Topics {
		names = append(names, *t.Topic)
	}
	return names, nil
}

// metadata asks a seed broker for topics, nil for all.
func metadata(ctx context.Context, admin *access, topics []string) (*kmsg.MetadataResponse, error) {
	request := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		request.Topics = append(request.Topics, kmsg.MetadataRequestTopic{Topic: &topic})
	}
	response, err := admin.kgo.SeedBrokers()[0].RetriableRequest(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return response.(*kmsg.MetadataResponse), nil
}

// awaitLeaders waits until all partitions of a new topic answer.
func awaitLeaders(ctx context.Context, admin *access, topic string, partitions int) error {
	return eventually(ctx, 20*time.Millisecond, topic+" has leaders", func() (bool, error) {
		ends, err := admin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		return err == nil && len(ends[topic]) == partitions, err
	})
}

// stored is the size of a topic's logs at broker 1.
func stored(ctx context.Context, admin *access, topic string) (int64, error) {
	dirs, err := admin.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("size of %s: %w", topic, err)
	}
	size := int64(0)
	dirs.Each(func(d kadm.DescribedLogDir) {
		d.Topics.Each(func(p kadm.DescribedLogDirPartition) {
			if p.Topic == topic && d.Broker == 1 {
				size += p.Size
			}
		})
	})
	return size, nil
}

// offsets is the number of offsets in a topic, 0 where it does not exist.
func offsets(ctx context.Context, admin *access, topic string) int64 {
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0
	}
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += max(0, o.Offset) })
	return total
}

// endOf asks broker 1 for the end offset of one partition.
func endOf(ctx context.Context, client *kgo.Client, topic string, partition int32) (int64, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic, t.Partitions = topic, []kmsg.ListOffsetsRequestTopicPartition{p}
	request.Topics = []kmsg.ListOffsetsRequestTopic{t}
	response, err := client.Broker(1).RetriableRequest(ctx, request)
	if err != nil {
		return 0, err
	}
	answer := response.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	return answer.Offset, kerr.ErrorForCode(answer.ErrorCode)
}

// topicID is the ID of a topic as this client sees it.
func topicID(ctx context.Context, client *kgo.Client, topic string) (id [16]byte, err error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	response, err := client.SeedBrokers()[0].RetriableRequest(ctx, request)
	if err != nil {
		return id, err
	}
	t := response.(*kmsg.MetadataResponse).Topics[0]
	return t.TopicID, kerr.ErrorForCode(t.ErrorCode)
}
