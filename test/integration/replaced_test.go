package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// Another cluster takes the place of the source: at the same address, with topics of the same names, one with fewer records
// and one with more. All partitions are FAILED with both cluster IDs and the way out, nothing of the other cluster is copied
// (records, group offsets, topic configs, topics), another mirror goes on, and the way out is one.
func TestSourceReplaced(t *testing.T) {
	const mirror, group, setting = "replaced", "replaced-group", "delete.retention.ms"
	fewer := harness.Topic{Name: "replaced-fewer", Partitions: 2}
	more := harness.Topic{Name: "replaced-more", Partitions: 2, Configs: map[string]string{setting: "1000"}}
	late := harness.Topic{Name: "replaced-late", Partitions: 1}
	stays := harness.Topic{Name: "stays", Partitions: 2}
	random := harness.Random(t)
	from, other, to := kafkatest.Start(t, kafkatest.Options{}), source(t), destination(t)
	harness.CreateTopics(t, from.Bootstrap(), fewer, more)
	harness.CreateTopics(t, other, stays)
	harness.MustFill(t, from.Bootstrap(), random, 2000, fewer, more)
	harness.MustFill(t, other, random, 1000, stays)
	commitOffset(t, from.Bootstrap(), group, more.Name, 500)

	gw := gateway(t, to)
	client, direct := gw.Client(t), harness.Client(t, to.Bootstrap())
	harness.CreateMirror(t, client, mirror, from.Bootstrap(), "mirror.topics.include", "replaced-.*")
	harness.CreateMirror(t, client, "stays", other)
	harness.AddTopics(t, client, mirror, fewer.Name, more.Name)
	harness.AddTopics(t, client, "stays", stays.Name)
	harness.WaitMirrored(t, client, mirror, from.Bootstrap(), to.Bootstrap(), time.Minute, fewer.Name, more.Name)
	committedAt := func(want int64) func(context.Context) error {
		return func(ctx context.Context) error {
			offsets, err := kadm.NewClient(direct).FetchOffsets(ctx, group)
			if o, _ := offsets.Lookup(more.Name, 0); err == nil && o.At != want {
				err = fmt.Errorf("it is at %d, want %d", o.At, want)
			}
			return err
		}
	}
	harness.Eventually(t, time.Minute, "the group's offset is copied", committedAt(500))
	before := batchesOf(t, direct, fewer, more)

	if err := from.Replace(t.Context()); err != nil {
		t.Fatal(err)
	}
	more.Configs = map[string]string{setting: "2000"}
	harness.CreateTopics(t, from.Bootstrap(), fewer, more, late)
	harness.MustFill(t, from.Bootstrap(), random, 300, fewer, late)
	harness.MustFill(t, from.Bootstrap(), random, 5000, more)
	commitOffset(t, from.Bootstrap(), group, more.Name, 900)

	harness.Eventually(t, 2*time.Minute, "every partition is FAILED", func(ctx context.Context) error {
		described, err := harness.Describe(ctx, client, mirror)
		if err != nil {
			return err
		}
		for _, topic := range []string{fewer.Name, more.Name} {
			for _, p := range described[topic] {
				if p.State != "FAILED" || !strings.Contains(p.Reason, "has cluster ID") || !strings.Contains(p.Reason, "way out: ") {
					return fmt.Errorf("%s/%d is %s %q", topic, p.Partition, p.State, p.Reason)
				}
			}
			if len(described[topic]) != 2 {
				return fmt.Errorf("%s has %d partitions", topic, len(described[topic]))
			}
		}
		return nil
	})
	// Each syncer has tried, and refused.
	syncs := []string{`sync="topics"`, `sync="topic_configs"`, `sync="groups"`}
	failures := map[string]float64{}
	for _, sync := range syncs {
		failures[sync] = gw.Metric(t, "mirrorgate_mirror_sync_failures_total", `mirror="replaced"`, sync)
	}
	harness.Eventually(t, time.Minute, "the syncers refuse the other cluster", func(context.Context) error {
		for _, sync := range syncs {
			if n := gw.Metric(t, "mirrorgate_mirror_sync_failures_total", `mirror="replaced"`, sync); n < failures[sync]+2 {
				return fmt.Errorf("%s failed %v times, before %v", sync, n, failures[sync])
			}
		}
		return nil
	})
	if message := addTopic(t, client, mirror, late.Name); !strings.Contains(message, "has cluster ID") {
		t.Errorf("adding a topic of the other cluster says %s", message)
	}
	if err := committedAt(500)(t.Context()); err != nil {
		t.Errorf("the group's offset: %v", err)
	}
	if value := topicConfig(t, direct, more.Name, setting); value != "1000" {
		t.Errorf("%s=%s was copied from the other cluster", setting, value)
	}
	topics, err := kadm.NewClient(direct).ListTopics(t.Context())
	if err != nil || topics.Has(late.Name) {
		t.Errorf("topics %v, %v: one joined from the other cluster", topics.Names(), err)
	}
	if after := batchesOf(t, direct, fewer, more); !slices.Equal(after, before) {
		t.Errorf("the destination has %d batches, before %d: they differ", len(after), len(before))
	}
	harness.MustFill(t, other, random, 300, stays)
	harness.WaitMirrored(t, client, "stays", other, to.Bootstrap(), time.Minute, stays.Name)

	// The way out.
	harness.RemoveTopics(t, client, mirror, fewer.Name, more.Name)
	record := &kgo.Record{Topic: fewer.Name, Value: []byte("a client's")}
	if err := harness.Client(t, gw.Bootstrap()).ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Errorf("writing to the released topic: %v", err)
	}
	if output, err := harness.Run(t, "mirrors", "delete", "--bootstrap-server", gw.Bootstrap(), "--mirror", mirror); err != nil {
		t.Fatalf("deleting the mirror: %v\n%s", err, output)
	}
	deleted, err := kadm.NewClient(direct).DeleteTopics(t.Context(), fewer.Name, more.Name)
	if err = errors.Join(err, deleted.Error()); err != nil {
		t.Fatal(err)
	}
	harness.CreateMirror(t, client, mirror, from.Bootstrap())
	harness.Eventually(t, time.Minute, "the topics are added anew", func(context.Context) error {
		for _, topic := range []string{fewer.Name, more.Name} {
			if message := addTopic(t, client, mirror, topic); message != "" {
				return errors.New(message)
			}
		}
		return nil
	})
	harness.WaitMirrored(t, client, mirror, from.Bootstrap(), to.Bootstrap(), time.Minute, fewer.Name, more.Name)
	if n := harness.SameRecords(t, from.Bootstrap(), gw.Bootstrap(), fewer.Name, more.Name); n != 5300 {
		t.Errorf("%d records are the same, want 5300", n)
	}
}

func commitOffset(t *testing.T, bootstrap, group, topic string, at int64) {
	t.Helper()
	offsets := make(kadm.Offsets)
	offsets.AddOffset(topic, 0, at, -1)
	harness.Eventually(t, time.Minute, "the offset is committed", func(ctx context.Context) error {
		return harness.Admin(t, bootstrap).CommitAllOffsets(ctx, group, offsets)
	})
}

// batchesOf are the batches of topics at the destination.
func batchesOf(t *testing.T, client *kgo.Client, topics ...harness.Topic) (all []harness.Batch) {
	t.Helper()
	for _, topic := range topics {
		for p := range topic.Partitions {
			batches, err := harness.Batches(t.Context(), client, topic.Name, p)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, batches...)
		}
	}
	return all
}

func topicConfig(t *testing.T, client *kgo.Client, topic, name string) string {
	t.Helper()
	described, err := kadm.NewClient(client).DescribeTopicConfigs(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range described[0].Configs {
		if c.Key == name {
			return c.MaybeValue()
		}
	}
	return ""
}

// addTopic returns why the topic cannot be added, "" if it was.
func addTopic(t *testing.T, client *kgo.Client, mirror, topic string) string {
	t.Helper()
	request := mirrormsg.NewPtrAddTopicsToMirrorRequest()
	request.Topics = []mirrormsg.AddTopicsToMirrorRequestTopic{{TopicName: topic, MirrorName: &mirror}}
	response, err := request.RequestWith(t.Context(), client)
	if err != nil {
		return err.Error()
	}
	if response.ErrorCode == 0 {
		return ""
	}
	return fmt.Sprintf("%v %s", kerr.ErrorForCode(response.ErrorCode), harness.Message(response.ErrorMessage))
}
