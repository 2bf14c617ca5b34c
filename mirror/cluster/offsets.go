package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// AllOffsets asks for the start or the end of all partitions of topics, given with their numbers of partitions. What is
// not known at the moment is missing in the answer. (kadm would go by what it remembers of the topics.)
func AllOffsets(ctx context.Context, client *kgo.Client, topics map[string]int32, timestamp int64) (map[TopicPartition]int64, error) {
	var keys []TopicPartition
	for name, partitions := range topics {
		for p := range partitions {
			keys = append(keys, TopicPartition{Topic: name, Partition: p})
		}
	}
	listed, err := ListOffsets(ctx, client, keys, timestamp, ReadUncommitted)
	if err != nil {
		return nil, err
	}
	offsets := make(map[TopicPartition]int64, len(listed))
	var errs []error
	for key, l := range listed {
		if err := kerr.ErrorForCode(l.Code); err != nil {
			errs = append(errs, err)
			continue
		}
		offsets[key] = l.Offset
	}
	if len(offsets) == 0 {
		return nil, errors.Join(errs...)
	}
	return offsets, nil
}

// LogRanges returns the starts and ends of a topic's logs; all of them or an error.
func LogRanges(ctx context.Context, client *kgo.Client, topic string, partitions int32) (starts, ends []int64, err error) {
	listed := func(timestamp int64) ([]int64, error) {
		offsets, err := AllOffsets(ctx, client, map[string]int32{topic: partitions}, timestamp)
		if err != nil {
			return nil, fmt.Errorf("ask for the offsets of topic %s: %w", topic, err)
		}
		all := make([]int64, partitions)
		for p := range partitions {
			offset, ok := offsets[TopicPartition{Topic: topic, Partition: p}]
			if !ok {
				return nil, fmt.Errorf("the offsets of %s-%d are not known: %w", topic, p, kerr.LeaderNotAvailable)
			}
			all[p] = offset
		}
		return all, nil
	}
	if starts, err = listed(Earliest); err == nil {
		ends, err = listed(Latest)
	}
	return starts, ends, err
}
