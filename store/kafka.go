package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/appendlog"
	"github.com/mirrorgate/mirrorgate/broker"
)

// defaultDeleteRetention is Kafka's default of delete.retention.ms: how long a tombstone is sure to be found.
const defaultDeleteRetention = 24 * time.Hour

// kafkaLog is the state topic on the destination.
type kafkaLog struct {
	client     *kgo.Client
	adm        *kadm.Client
	topic      string
	topicID    [16]byte
	clusterID  string
	staleAfter time.Duration // a view that was not fed for so long may have missed a tombstone
	log        *zap.Logger

	mu      sync.Mutex
	leaders []int32 // by partition; -1 if not known
}

// openKafka makes the topic if there is none, and checks it if there is.
func openKafka(ctx context.Context, cfg Config, topic string, log *zap.Logger) (*kafkaLog, error) {
	if cfg.Client == nil {
		return nil, errors.New("the state store needs a client of the destination")
	}
	client, err := kgo.NewClient(cfg.Client.Opts()...)
	if err != nil {
		return nil, fmt.Errorf("making the state store's client: %w", err)
	}
	k := &kafkaLog{
		client: client, adm: kadm.NewClient(client), topic: topic, clusterID: cfg.ClusterID,
		staleAfter: defaultDeleteRetention / 2, log: log, leaders: make([]int32, StatePartitions),
	}
	if err := k.prepare(ctx, cfg.ReplicationFactor); err != nil {
		client.Close()
		return nil, fmt.Errorf("preparing the state topic %s: %w", topic, err)
	}
	return k, nil
}

func (k *kafkaLog) close() { k.client.Close() }

// prepare waits until the topic is there with a leader for every partition, and checks how it is configured.
func (k *kafkaLog) prepare(ctx context.Context, replication int16) error {
	created := false
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		err := k.refresh(ctx)
		if err == nil {
			break
		}
		var partitions *partitionCountError
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%w (last: %w)", ctx.Err(), err)
		case errors.As(err, &partitions):
			return err
		case broker.Unauthorized(err):
			return broker.LacksRight(err, "DESCRIBE on topic %s at the destination", k.topic)
		case errors.Is(err, kerr.UnknownTopicOrPartition) && !created:
			if created, err = k.create(ctx, replication); err != nil {
				return err
			}
			continue
		}
		k.log.Debug("state topic not ready", zap.Error(err))
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
	return k.checkConfig(ctx)
}

type partitionCountError struct {
	topic string
	have  int
}

func (e *partitionCountError) Error() string {
	return fmt.Sprintf("topic %s has %d partitions, it must have %d; delete it (if it holds nothing of a gateway) or configure another name", e.topic, e.have, StatePartitions)
}

// refresh reads who leads what. An error that is errTopicReplaced means that the topic was made anew.
func (k *kafkaLog) refresh(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(k.topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, k.client)
	if err != nil {
		return err
	}
	if k.clusterID == "" && resp.ClusterID != nil {
		k.clusterID = *resp.ClusterID
	}
	if len(resp.Topics) != 1 {
		return fmt.Errorf("metadata of %d topics instead of one", len(resp.Topics))
	}
	topic := &resp.Topics[0]
	if err := kerr.ErrorForCode(topic.ErrorCode); err != nil {
		return err
	}
	if len(topic.Partitions) != StatePartitions {
		return &partitionCountError{k.topic, len(topic.Partitions)}
	}
	if k.topicID != ([16]byte{}) && topic.TopicID != k.topicID {
		return errTopicReplaced
	}
	if k.topicID == ([16]byte{}) { // at Open, before anybody else reads it
		k.topicID = topic.TopicID
	}
	return k.takeLeaders(topic.Partitions)
}

func (k *kafkaLog) takeLeaders(partitions []kmsg.MetadataResponseTopicPartition) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var missing error
	for _, p := range partitions {
		if p.Partition < 0 || p.Partition >= StatePartitions {
			return fmt.Errorf("metadata with partition %d", p.Partition)
		}
		k.leaders[p.Partition] = p.Leader
		if p.Leader < 0 {
			missing = fmt.Errorf("partition %d has no leader", p.Partition)
		}
	}
	return missing
}

// create makes the topic; created is also true if another gateway was faster.
func (k *kafkaLog) create(ctx context.Context, replication int16) (created bool, err error) {
	if replication == 0 {
		replication = -1 // the broker's default.replication.factor
	}
	for {
		err := k.createWith(ctx, replication)
		switch {
		case err == nil:
			k.log.Info("state topic created", zap.String("topic", k.topic))
			return true, nil
		case errors.Is(err, kerr.TopicAlreadyExists):
			return true, nil
		case replication != -1 || (!errors.Is(err, kerr.InvalidReplicationFactor) && !isUnsupported(err)):
			return false, fmt.Errorf("creating it: %w", broker.LacksRight(err, "CREATE on topic %s at the destination", k.topic))
		}
		// The default needs more brokers than there are, or the broker is too old to have one.
		brokers, err := k.adm.ListBrokers(ctx)
		if err != nil {
			return false, fmt.Errorf("counting brokers: %w", err)
		}
		replication = int16(min(len(brokers), 3))
	}
}

func isUnsupported(err error) bool {
	return errors.Is(err, kerr.UnsupportedVersion) || errors.Is(err, kerr.InvalidRequest)
}

func (k *kafkaLog) createWith(ctx context.Context, replication int16) error {
	_, err := k.adm.CreateTopic(ctx, StatePartitions, replication, map[string]*string{
		"cleanup.policy":         kmsg.StringPtr("compact"),
		"compression.type":       kmsg.StringPtr("producer"),
		"message.timestamp.type": kmsg.StringPtr("CreateTime"),
		"segment.bytes":          kmsg.StringPtr(strconv.Itoa(16 << 20)),
	}, k.topic)
	return err
}

// checkConfig refuses a topic that would lose state, and learns how long tombstones stay.
func (k *kafkaLog) checkConfig(ctx context.Context) error {
	configs, err := k.adm.DescribeTopicConfigs(ctx, k.topic)
	if err == nil && len(configs) == 1 {
		err = configs[0].Err
	}
	if err != nil || len(configs) != 1 {
		k.log.Warn("cannot read the state topic's configuration; cleanup.policy must be compact", zap.String("topic", k.topic),
			zap.Error(broker.LacksRight(err, "DESCRIBE_CONFIGS on topic %s at the destination", k.topic)))
		return nil
	}
	for _, c := range configs[0].Configs {
		switch value := c.MaybeValue(); c.Key {
		case "cleanup.policy":
			if policies := strings.Split(value, ","); slices.Contains(policies, "delete") || !slices.Contains(policies, "compact") {
				return fmt.Errorf("topic %s has cleanup.policy=%s, which would delete the gateway's state; set it to compact", k.topic, value)
			}
		case "delete.retention.ms":
			if ms, err := strconv.ParseInt(value, 10, 64); err == nil {
				k.staleAfter = max(time.Duration(min(ms, int64(10*defaultDeleteRetention/time.Millisecond)))*time.Millisecond/2, time.Minute)
			}
		}
	}
	return nil
}

func (k *kafkaLog) leader(partition int32) int32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leaders[partition]
}

func (k *kafkaLog) newProducer(ctx context.Context) (int64, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	resp, err := req.RequestWith(ctx, k.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return -1, broker.LacksRight(err, "IDEMPOTENT_WRITE on the cluster, or WRITE on any topic, at the destination")
	}
	return resp.ProducerID, nil
}

func (k *kafkaLog) ends(ctx context.Context) ([]int64, error) {
	ends := make([]int64, StatePartitions)
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		listed, err := k.adm.ListEndOffsets(ctx, k.topic)
		if err == nil {
			err = listed.Error()
		}
		if err == nil {
			for i := range ends {
				o, ok := listed.Lookup(k.topic, int32(i))
				if !ok {
					err = fmt.Errorf("no end offset of partition %d", i)
				}
				ends[i] = o.Offset
			}
		}
		if err == nil {
			return ends, nil
		}
		if sleep(ctx, wait) != nil {
			return nil, err
		}
	}
}

func (k *kafkaLog) end(ctx context.Context, partition int32) (int64, error) {
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic, t.Partitions = k.topic, append(t.Partitions, p)
	req := kmsg.NewPtrListOffsetsRequest()
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, k.client)
	if err != nil {
		return -1, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return -1, errors.New("ListOffsets answered for another partition")
	}
	got := &resp.Topics[0].Partitions[0]
	return got.Offset, kerr.ErrorForCode(got.ErrorCode)
}

func (k *kafkaLog) nextSequence(ctx context.Context, partition int32, producer int64) (int32, bool, error) {
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = k.topic, append(t.Partitions, partition)
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = append(req.Topics, t)
	kresp, err := k.client.Broker(int(k.leader(partition))).Request(ctx, req)
	if err != nil {
		return 0, false, err
	}
	resp, ok := kresp.(*kmsg.DescribeProducersResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, false, errors.New("DescribeProducers answered for another partition")
	}
	got := &resp.Topics[0].Partitions[0]
	for _, p := range got.ActiveProducers {
		if p.ProducerID == producer {
			return int32((int64(p.LastSequence) + 1) & 0x7fffffff), true, nil
		}
	}
	return 0, false, broker.LacksRight(kerr.ErrorForCode(got.ErrorCode), "READ on topic %s at the destination", k.topic)
}

// produceTimeout bounds how long a broker waits for its replicas, and how long we wait for the broker.
const produceTimeout = 10 * time.Second

func (k *kafkaLog) Append(ctx context.Context, id appendlog.Partition, b appendlog.Batch) error {
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = id.Partition, b.Bytes
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID, t.Partitions = k.topic, k.topicID, append(t.Partitions, p)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.Topics = -1, int32(produceTimeout/time.Millisecond), append(req.Topics, t)

	ctx, cancel := context.WithTimeout(ctx, 2*produceTimeout)
	defer cancel()
	kresp, err := k.client.Broker(int(k.leader(id.Partition))).Request(ctx, req)
	if err != nil {
		k.maybeRefresh(ctx)
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	resp, ok := kresp.(*kmsg.ProduceResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return fmt.Errorf("%w: Produce answered for another partition", ErrUncertain)
	}
	got := &resp.Topics[0].Partitions[0]
	err = broker.LacksRight(kerr.ErrorForCode(got.ErrorCode), "WRITE on topic %s at the destination", k.topic)
	switch {
	case err == nil && got.BaseOffset == b.Base:
		return nil
	case err == nil:
		return fmt.Errorf("%w: appended at %d instead of %d", ErrRefused, got.BaseOffset, b.Base)
	case errors.Is(err, kerr.OutOfOrderSequenceNumber), errors.Is(err, kerr.DuplicateSequenceNumber),
		errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.UnknownProducerID):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	case kerr.IsRetriable(err):
		k.maybeRefresh(ctx)
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return err
}

// maybeRefresh looks for new leaders; that it could not find any shows at the next try.
func (k *kafkaLog) maybeRefresh(ctx context.Context) {
	if err := k.refresh(ctx); err != nil {
		k.log.Debug("reading the state topic's leaders failed", zap.Error(err))
	}
}
