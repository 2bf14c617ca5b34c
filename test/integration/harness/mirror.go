package harness

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

const rpcPatience = 4 * time.Minute

// untilAnswered sends a request again as long as the answer is that it should be: somebody was not ready, or too slow, and nothing was
// refused.
func untilAnswered(t testing.TB, what string, ask func(ctx context.Context) (code int16, message *string, err error)) {
	t.Helper()
	Eventually(t, leastPatience, what, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, rpcPatience)
		defer cancel()
		code, message, err := ask(ctx)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		switch answered := kerr.ErrorForCode(code); answered {
		case nil:
			return nil
		case kerr.RequestTimedOut, kerr.CoordinatorNotAvailable, kerr.BrokerNotAvailable:
			return fmt.Errorf("%w %s", answered, Message(message))
		default:
			t.Fatalf("%s: %v %s", what, answered, Message(message))
			return nil
		}
	})
}

// CreateMirror makes a mirror of the source, with further configuration as key, value, key, value…
func CreateMirror(t testing.TB, client *kgo.Client, name, source string, config ...string) {
	t.Helper()
	request := mirrormsg.NewPtrCreateMirrorRequest()
	request.MirrorName = &name
	config = append([]string{"bootstrap.servers", source, "mirror.metadata.refresh.interval.ms", "1000"}, config...)
	for i := 0; i < len(config); i += 2 {
		request.Config = append(request.Config, mirrormsg.CreateMirrorRequestConfig{Name: config[i], Value: &config[i+1]})
	}
	untilAnswered(t, "CreateMirror", func(ctx context.Context) (int16, *string, error) {
		response, err := request.RequestWith(ctx, client)
		if err != nil {
			return 0, nil, err
		}
		return response.ErrorCode, response.ErrorMessage, nil
	})
}

// AddTopics adds topics to a mirror.
func AddTopics(t testing.TB, client *kgo.Client, mirror string, topics ...string) {
	t.Helper()
	request := mirrormsg.NewPtrAddTopicsToMirrorRequest()
	for _, topic := range topics {
		request.Topics = append(request.Topics, mirrormsg.AddTopicsToMirrorRequestTopic{TopicName: topic, MirrorName: &mirror})
	}
	untilAnswered(t, "AddTopicsToMirror", func(ctx context.Context) (int16, *string, error) {
		response, err := request.RequestWith(ctx, client)
		if err != nil {
			return 0, nil, err
		}
		return response.ErrorCode, response.ErrorMessage, nil
	})
}

// RemoveTopics takes topics out of a mirror, which makes them writable.
func RemoveTopics(t testing.TB, client *kgo.Client, mirror string, topics ...string) {
	t.Helper()
	request := mirrormsg.NewPtrRemoveTopicsFromMirrorRequest()
	request.MirrorName = mirror
	for _, topic := range topics {
		request.Topics = append(request.Topics, mirrormsg.RemoveTopicsFromMirrorRequestTopic{TopicName: topic})
	}
	untilAnswered(t, "RemoveTopicsFromMirror", func(ctx context.Context) (int16, *string, error) {
		response, err := request.RequestWith(ctx, client)
		if err != nil {
			return 0, nil, err
		}
		return response.ErrorCode, response.ErrorMessage, nil
	})
}

// Partition is what DescribeMirrors says of a partition.
type Partition = mirrormsg.DescribeMirrorsResponseMirrorTopicPartition

// Describe asks for the partitions of a mirror, by topic and index.
func Describe(ctx context.Context, client *kgo.Client, mirror string) (map[string]map[int32]Partition, error) {
	request := mirrormsg.NewPtrDescribeMirrorsRequest()
	request.MirrorNames = []string{mirror}
	ctx, cancel := context.WithTimeout(ctx, rpcPatience)
	defer cancel()
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("DescribeMirrors: %w", err)
	}
	if len(response.Mirrors) != 1 || response.Mirrors[0].MirrorName != mirror {
		return nil, fmt.Errorf("DescribeMirrors: %d mirrors in the answer for %s", len(response.Mirrors), mirror)
	}
	if code := response.Mirrors[0].ErrorCode; code != 0 {
		return nil, fmt.Errorf("DescribeMirrors: %w", kerr.ErrorForCode(code))
	}
	topics := map[string]map[int32]Partition{}
	for _, topic := range response.Mirrors[0].Topics {
		topics[topic.TopicName] = map[int32]Partition{}
		for _, p := range topic.Partitions {
			topics[topic.TopicName][p.Partition] = p
		}
	}
	return topics, nil
}

// LastMirrored are the offsets after the last mirrored records of a topic, by partition.
func LastMirrored(ctx context.Context, client *kgo.Client, mirror, topic string) (map[int32]int64, error) {
	request := mirrormsg.NewPtrLastMirroredOffsetsRequest()
	request.MirrorName = mirror
	response, err := request.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(response.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("LastMirroredOffsets: %w", err)
	}
	offsets := map[int32]int64{}
	for _, answered := range response.Topics {
		for _, p := range answered.Partitions {
			if answered.Name == topic && p.ErrorCode == 0 {
				offsets[p.Partition] = p.LastMirroredOffset
			}
		}
	}
	return offsets, nil
}

// WaitMirrored waits until every partition of the topics is MIRRORING, and the destination's logs (asked directly) end
// where the source's do. The test fails at once if a partition is FAILED.
func WaitMirrored(t testing.TB, client *kgo.Client, mirror, source, destination string, patience time.Duration, topics ...string) {
	t.Helper()
	from, to := Admin(t, source), Admin(t, destination)
	Eventually(t, patience, "mirrored", func(ctx context.Context) error {
		described, err := Describe(ctx, client, mirror)
		if err != nil {
			return err
		}
		for _, topic := range topics {
			if len(described[topic]) == 0 {
				return fmt.Errorf("topic %s is not in the mirror", topic)
			}
			for _, p := range described[topic] {
				if p.State == "FAILED" {
					t.Fatalf("%s/%d FAILED: %s", topic, p.Partition, p.Reason)
				}
				if p.State != "MIRRORING" {
					return fmt.Errorf("%s/%d is %s %s", topic, p.Partition, p.State, p.Reason)
				}
			}
		}
		return sameEnds(ctx, from, to, topics)
	})
}

// WaitSameEnds waits until the logs of both clusters end at the same offsets.
func WaitSameEnds(t testing.TB, source, destination string, patience time.Duration, topics ...string) {
	t.Helper()
	from, to := Admin(t, source), Admin(t, destination)
	Eventually(t, patience, "both logs end at the same offsets", func(ctx context.Context) error {
		return sameEnds(ctx, from, to, topics)
	})
}

func sameEnds(ctx context.Context, from, to *kadm.Client, topics []string) error {
	want, err := Ends(ctx, from, topics...)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	got, err := Ends(ctx, to, topics...)
	if err != nil {
		return fmt.Errorf("destination: %w", err)
	}
	var behind []string
	for tp, end := range want {
		if got[tp] != end {
			behind = append(behind, fmt.Sprintf("%s/%d ends at %d, source at %d", tp.Topic, tp.Partition, got[tp], end))
		}
	}
	if len(behind) > 0 {
		return fmt.Errorf("%d of %d partitions differ: %s", len(behind), len(want), strings.Join(behind[:min(3, len(behind))], "; "))
	}
	return nil
}

// TopicPartition names a partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Ends are the log end offsets of topics.
func Ends(ctx context.Context, admin *kadm.Client, topics ...string) (map[TopicPartition]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	listed, err := admin.ListEndOffsets(ctx, topics...)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, err
	}
	ends := map[TopicPartition]int64{}
	listed.Each(func(o kadm.ListedOffset) { ends[TopicPartition{o.Topic, o.Partition}] = o.Offset })
	return ends, nil
}

// Total is the sum of offsets.
func Total(offsets map[TopicPartition]int64) int64 {
	total := int64(0)
	for _, offset := range offsets {
		total += offset
	}
	return total
}
