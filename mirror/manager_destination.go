package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/store"
)

// held are the topic settings that the destination topic must have while it is mirrored, or the broker would refuse or
// change batches (timestamps, compression). When the mirroring stops they get the source's own values.
var held = map[string]string{
	"compression.type":                    "producer",
	"message.timestamp.type":              "CreateTime",
	"message.timestamp.before.max.ms":     strconv.FormatInt(math.MaxInt64, 10),
	"message.timestamp.after.max.ms":      strconv.FormatInt(math.MaxInt64, 10),
	"message.timestamp.difference.max.ms": strconv.FormatInt(math.MaxInt64, 10), // before Kafka 4.0
}

// unlimited are the settings by which the destination's own retention deletes nothing while the topic is mirrored: its log
// start follows the source's instead. With the same settings it would delete at other moments, as segments do not begin
// at the same offsets. A mirror that excludes them keeps what the destination topic has.
var unlimited = map[string]string{"retention.ms": "-1", "retention.bytes": "-1"}

// HeldSetting reports whether a topic setting is held while the topic is mirrored, so that nobody else may change it.
func HeldSetting(name string) bool { _, ok := held[name]; return ok }

// neverCopied are settings that depend on the cluster: tiered storage need not exist at the destination.
const neverCopied = "remote."

// maxMessageBytes is the setting that, while a topic is mirrored, is at least the source's and never lowered.
const maxMessageBytes = "max.message.bytes"

// defaultMaxMessageBytes is its value where nobody set it.
const defaultMaxMessageBytes = 1048588

// topicPlan is what the destination topic of a source topic will be.
type topicPlan struct {
	sourceID   TopicID
	partitions int32
	epochLevel int8 // see EpochBaseOf
	replicas   int16
	configs    map[string]string
	// restore are the source's own values of held settings, and of max.message.bytes.
	restore map[string]string
	err     error // why the source topic cannot be mirrored
}

// missing reports whether the source has no such topic.
func (p topicPlan) missing() bool { return errors.Is(p.err, kerr.UnknownTopicOrPartition) }

// synced are the settings that come from the source and are not held.
func (p topicPlan) synced() []string {
	return slices.DeleteFunc(sortedKeys(p.configs), HeldSetting)
}

// plan reads topics at the source.
func (r *mirrorRun) plan(ctx context.Context, names ...string) (map[string]topicPlan, error) {
	topics, _, err := cluster.DescribeTopics(ctx, r.source, names...)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	plans := make(map[string]topicPlan, len(names))
	var present []string
	for _, name := range names {
		t := topics[name]
		plans[name] = topicPlan{sourceID: t.ID, partitions: t.Partitions, epochLevel: EpochLevel(t.Epoch), replicas: r.config().ReplicationFactor,
			err: lacksRight(t.Err, "DESCRIBE on topic %s at the source", name)}
		if t.Err == nil {
			present = append(present, name)
		}
	}
	configs, err := cluster.TopicConfigs(ctx, r.source, present)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	for _, c := range configs {
		plan := plans[c.Name]
		if plan.err = lacksRight(c.Err, "DESCRIBE_CONFIGS on topic %s at the source", c.Name); plan.err == nil {
			plan.configs, plan.restore = r.config().destinationConfigs(c.Configs)
		}
		plans[c.Name] = plan
	}
	return plans, r.sameCluster(ctx)
}

// destinationConfigs makes the topic configs of the destination of those of the source.
func (c Config) destinationConfigs(source []kadm.Config) (configs, restore map[string]string) {
	configs, restore = maps.Clone(held), make(map[string]string)
	for key, value := range unlimited {
		if !c.TopicPropertiesExclude.Match(key) {
			configs[key] = value
		}
	}
	for _, entry := range source {
		if entry.Value == nil {
			continue
		}
		own := entry.Source == kmsg.ConfigSourceDynamicTopicConfig
		switch {
		case HeldSetting(entry.Key), configs[entry.Key] != "" && unlimited[entry.Key] != "":
			if own {
				restore[entry.Key] = *entry.Value
			}
		case entry.Key == maxMessageBytes:
			// The destination must take what the source took, even if that is a default of the source's brokers.
			if n, err := strconv.ParseInt(*entry.Value, 10, 64); own || err == nil && n > defaultMaxMessageBytes {
				configs[entry.Key], restore[entry.Key] = *entry.Value, *entry.Value
			}
		case own && !strings.HasPrefix(entry.Key, neverCopied) && !c.TopicPropertiesExclude.Match(entry.Key):
			configs[entry.Key] = *entry.Value
		}
	}
	return configs, restore
}

// destinationTopic looks up one topic of the destination.
func (m *Manager) destinationTopic(ctx context.Context, name string) (cluster.Topic, error) {
	topics, _, err := cluster.DescribeTopics(ctx, m.cfg.Destination, name)
	if err != nil {
		return cluster.Topic{}, fmt.Errorf("destination: %w", err)
	}
	topic := topics[name]
	topic.Err = lacksRight(topic.Err, "DESCRIBE on topic %s at the destination", name)
	return topic, nil
}

// makeDestination creates the destination topic or adopts an empty one, and returns its ID.
func (m *Manager) makeDestination(ctx context.Context, name string, plan topicPlan) (TopicID, error) {
	found, err := m.destinationTopic(ctx, name)
	if err != nil {
		return TopicID{}, err
	}
	if found.Missing() {
		id, err := m.createTopic(ctx, name, plan, false)
		if err != nil {
			return TopicID{}, fmt.Errorf("create the destination topic: %w", err)
		}
		return id, nil
	}
	if found.Err != nil {
		return TopicID{}, fmt.Errorf("destination topic: %w", found.Err)
	}
	if err := m.adoptable(ctx, name, plan, found); err != nil {
		return TopicID{}, err
	}
	if found.Partitions < plan.partitions {
		if err := m.growDestination(ctx, name, plan.partitions); err != nil {
			return TopicID{}, err
		}
	}
	if err := m.alterTopic(ctx, name, plan.configs, nil); err != nil {
		return TopicID{}, err
	}
	return found.ID, nil
}

// adoptable refuses a destination topic that cannot become the mirror of an empty log.
func (m *Manager) adoptable(ctx context.Context, name string, plan topicPlan, found cluster.Topic) error {
	if found.Partitions > plan.partitions {
		return Refuse(kerr.TopicAlreadyExists, "topic %s exists at the destination with %d partitions, more than the %d of the source; delete it first",
			name, found.Partitions, plan.partitions)
	}
	ends, err := cluster.AllOffsets(ctx, m.cfg.Destination, map[string]int32{name: found.Partitions}, cluster.Latest)
	if err != nil {
		return fmt.Errorf("destination: ask for the ends of topic %s: %w", name, err)
	}
	for p := range found.Partitions {
		end, ok := ends[cluster.TopicPartition{Topic: name, Partition: p}]
		if !ok {
			return fmt.Errorf("destination: the end of %s-%d is not known: %w", name, p, kerr.LeaderNotAvailable)
		}
		if end != 0 {
			return Refuse(kerr.TopicAlreadyExists, "topic %s exists at the destination and is not empty (partition %d ends at offset %d); delete it first",
				name, p, end)
		}
	}
	return nil
}

// createTopic makes a topic with everything that it needs in one request, or only checks whether it could be made.
// Settings that the destination does not know are left out.
func (m *Manager) createTopic(ctx context.Context, name string, plan topicPlan, validateOnly bool) (TopicID, error) {
	var resp kmsg.CreateTopicsResponseTopic
	err := m.withKnownConfigs(name, plan.configs, func(configs map[string]string) error {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.ValidateOnly = validateOnly
		req.TimeoutMillis = 30000
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, plan.partitions, plan.replicas
		for _, key := range sortedKeys(configs) {
			config := kmsg.NewCreateTopicsRequestTopicConfig()
			config.Name, config.Value = key, kmsg.StringPtr(configs[key])
			topic.Configs = append(topic.Configs, config)
		}
		req.Topics = append(req.Topics, topic)
		answer, err := req.RequestWith(ctx, m.cfg.Destination)
		if err != nil {
			return err
		}
		if len(answer.Topics) != 1 {
			return fmt.Errorf("the answer is about %d topics", len(answer.Topics))
		}
		resp = answer.Topics[0]
		return lacksRight(kafkaError(resp.ErrorCode, resp.ErrorMessage), "CREATE on topic %s at the destination", name)
	})
	return resp.TopicID, err
}

// alterTopic sets and resets settings of a destination topic.
func (m *Manager) alterTopic(ctx context.Context, name string, set map[string]string, reset []string) error {
	all := maps.Clone(set)
	if all == nil {
		all = make(map[string]string)
	}
	for _, key := range reset {
		all[key] = ""
	}
	err := m.withKnownConfigs(name, all, func(configs map[string]string) error {
		var changes []kmsg.IncrementalAlterConfigsRequestResourceConfig
		for _, key := range sortedKeys(configs) {
			change := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			change.Name, change.Op = key, kmsg.IncrementalAlterConfigOpDelete
			if value, ok := set[key]; ok {
				change.Op, change.Value = kmsg.IncrementalAlterConfigOpSet, &value
			}
			changes = append(changes, change)
		}
		return m.alterations.alter(ctx, m.ctx, name, changes)
	})
	if err != nil {
		return fmt.Errorf("settings of the destination topic %s: %w", name, lacksRight(err, alterConfigsRight, name))
	}
	return nil
}

// withKnownConfigs does something with settings, less those that the destination does not know. It learns them from
// refusals, which name one at a time.
func (m *Manager) withKnownConfigs(topic string, configs map[string]string, do func(map[string]string) error) error {
	known := maps.Clone(configs)
	maps.DeleteFunc(known, func(key, _ string) bool { _, unknown := m.unknownConfigs.Load(key); return unknown })
	for {
		err := do(known)
		key := unknownConfig(err, known)
		if key == "" {
			return err
		}
		if !HeldSetting(key) {
			m.log.Warn("the destination does not know a topic setting of the source; it is left out",
				zap.String("topic", topic), zap.String("setting", key))
		}
		m.unknownConfigs.Store(key, true)
		delete(known, key)
	}
}

// unknownConfig finds which of the settings a refusal calls unknown, "" if none.
func unknownConfig(err error, configs map[string]string) string {
	var refused *Error
	if !errors.As(err, &refused) || refused.Kafka != kerr.InvalidConfig && refused.Kafka != kerr.InvalidRequest ||
		!strings.Contains(strings.ToLower(refused.Message), "unknown") {
		return ""
	}
	found := ""
	for key := range configs {
		if strings.Contains(refused.Message, key) && len(key) > len(found) {
			found = key // the longest: one name can be part of another
		}
	}
	return found
}

// restore gives the held settings the source's own values.
func (m *Manager) restore(ctx context.Context, config Config, rec store.Topic) error {
	var reset []string
	for key := range held {
		if _, ok := rec.Restore[key]; !ok {
			reset = append(reset, key)
		}
	}
	if _, ok := rec.Restore[maxMessageBytes]; !ok && slices.Contains(rec.Synced, maxMessageBytes) {
		reset = append(reset, maxMessageBytes)
	}
	for key := range unlimited {
		if _, ok := rec.Restore[key]; !ok && !config.TopicPropertiesExclude.Match(key) {
			reset = append(reset, key)
		}
	}
	return m.alterTopic(ctx, rec.Name, rec.Restore, reset)
}

func (m *Manager) growDestination(ctx context.Context, name string, partitions int32) error {
	results, err := kadm.NewClient(m.cfg.Destination).UpdatePartitions(ctx, int(partitions), name)
	if err != nil {
		return fmt.Errorf("add partitions to the destination topic %s: %w", name, lacksRight(err, "ALTER on topic %s at the destination", name))
	}
	// INVALID_PARTITIONS: it has that many already, from a try before a crash.
	if result := results[name]; result.Err != nil && !errors.Is(result.Err, kerr.InvalidPartitions) {
		return fmt.Errorf("add partitions to the destination topic %s: %w", name,
			lacksRight(refusal(result.Err, result.ErrMessage), "ALTER on topic %s at the destination", name))
	}
	return nil
}

// newProducerID takes a producer ID that nobody else has or will have.
func newProducerID(ctx context.Context, client *kgo.Client) (int64, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis = 60000
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return -1, fmt.Errorf("take a producer ID at the destination: %w",
			lacksRight(err, "IDEMPOTENT_WRITE on the cluster, or WRITE on any topic, at the destination"))
	}
	return resp.ProducerID, nil
}

func kafkaError(code int16, message *string) error {
	text := ""
	if message != nil {
		text = *message
	}
	return refusal(kerr.ErrorForCode(code), text)
}

// refusal keeps code and message of a cluster's answer together; nil for none.
func refusal(err error, message string) error {
	var code *kerr.Error
	if err == nil || !errors.As(err, &code) {
		return err
	}
	if message == "" {
		message = code.Description
	}
	return Refuse(code, "%s", WithoutRequest(message))
}
