package replication

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/appendlog"
	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// Config is what a Replicator needs. Mirror, Source, SourceAdmin, Destination and Budget are required.
type Config struct {
	// Mirror is the mirror's name, for logs and metrics.
	Mirror string
	// Source is how fetchers reach source brokers.
	Source broker.Config
	// SourceAdmin asks the source for metadata and offsets. It must not create topics. The caller closes it, after
	// the Replicator.
	SourceAdmin *kgo.Client
	// Destination writes. It is shared by all mirrors of a gateway; the caller closes it, after the Replicators.
	Destination *appendlog.Client
	// DestinationAdmin asks for the ends of idle destination partitions, to find foreign writes to them before the next
	// append does. nil: no such look. It must not create topics.
	DestinationAdmin *kgo.Client
	// Fetch tunes the fetchers; see the type for its defaults.
	Fetch FetchOptions
	// KeepBatches: batches are never merged; see appendlog.Partition.MergeBytes.
	KeepBatches bool
	// Budget bounds the bytes that were fetched or asked for and are not acknowledged yet. It is shared by all
	// mirrors of a gateway.
	Budget *Budget
	// Events are told to the owner.
	Events Events
	Log    *zap.Logger // nil logs nothing
	// Metrics are shared by all mirrors of a gateway; nil measures nothing.
	Metrics *Metrics

	// readTails replaces reading at DestinationAdmin in tests.
	readTails tails
	// openLog replaces Destination in tests.
	openLog func(p appendlog.Partition, past []int64, h appendlog.Handler) destinationLog
	// trimLogs replaces DeleteRecords at DestinationAdmin in tests.
	trimLogs trimLogs
}

// FetchOptions are the mirror.fetch.* settings of a mirror. A zero value means the default.
type FetchOptions struct {
	WaitMax         time.Duration // mirror.fetch.wait.max.ms, 500 ms: how long an idle broker holds a fetch
	MinBytes        int32         // mirror.fetch.min.bytes, 1
	MaxBytes        int32         // mirror.fetch.max.bytes, 1 MiB: of one partition in one fetch
	ResponseMax     int32         // mirror.fetch.response.max.bytes, 10 MiB: of one fetch
	Fetchers        int           // mirror.num.replica.fetchers, 1: connections to each source broker
	MetadataRefresh time.Duration // mirror.metadata.refresh.interval.ms, 30 s
	ThrottledRate   int64         // mirror.replication.throttled.rate, bytes per second of all fetchers together; 0 = no limit
}

// PartitionSpec says what is to be mirrored, and as whom it is written.
type PartitionSpec struct {
	Topic string
	// SourceTopicID is the ID that the source topic must have, zero where the source has none.
	SourceTopicID cluster.TopicID
	// DestinationTopicID is the ID of the destination topic, zero if it is not known: nothing is written to another one of
	// that name.
	DestinationTopicID cluster.TopicID
	Partition          int32
	// ProducerID writes this incarnation of the mirror topic.
	ProducerID int64
	// PastProducerIDs wrote earlier incarnations; a log that ends in one of their batches is ours.
	PastProducerIDs []int64
	// From: what the destination has below was there before, is the same at the source, and was not written by the mirror.
	From int64
	// SourceClusterID is the ID that the source cluster must have, "" where it has none.
	SourceClusterID string
	// SourceEpochs are what Events.SourceEpochs told last, perhaps in another process. It counts for a partition that
	// the Replicator does not know.
	SourceEpochs SourceEpochs
	// SourceStart is what Events.SourceStart told last, perhaps in another process. It counts for a partition that the
	// Replicator does not know.
	SourceStart int64
	// Compacted: the destination topic is compacted, so that fillers need a key.
	Compacted bool
	// MaxBatchBytes is the largest batch that the destination topic takes; 0 = Kafka's default.
	MaxBatchBytes int
	// Fresh: the partition was never mirrored yet, so that records that are gone at the source are not missed. It
	// counts for a partition that the Replicator does not know.
	Fresh bool
}

// StateChange is one transition of a partition.
type StateChange struct {
	Topic     string
	Partition int32
	From, To  State
	// Reason is why it FAILED; empty otherwise.
	Reason string
	// Permanent: FAILED, and only an operator can end it (Start again, or Stop).
	Permanent bool
	// LastMirrored is the offset after the last mirrored record if To is STOPPED, else -1. STOPPED without a call of
	// Stop means that another gateway fenced the partition; -1 then says that the offset is not known.
	LastMirrored int64
}

// Events are the calls of a Replicator to its owner. Each may be nil. Those of one partition come in order. They must
// not block, and may not call the Replicator.
type Events struct {
	StateChanged func(StateChange)
	// SourcePartitions is called when the source topic has another number of partitions than at the last look, and at
	// the first look.
	SourcePartitions func(topic string, partitions int32)
	// SourceEpochs is called when records of another leader epoch of the source are mirrored. What it tells is to be
	// remembered for PartitionSpec; if it is not, a divergence is noticed less surely.
	SourceEpochs func(topic string, partition int32, epochs SourceEpochs)
	// SourceStart is called when the source's log starts at start, higher than before. It is to be remembered for
	// PartitionSpec and then answered with StartNoted: until that comes, the destination's log start does not follow.
	SourceStart func(topic string, partition int32, start int64)
	// AllowDeleteRecords makes a destination topic whose policy forbids DeleteRecords (compact alone) allow it, until
	// done is called. Unlike the others it blocks. nil: it cannot be made so.
	AllowDeleteRecords func(ctx context.Context, topic string) (done func(), err error)
	// RaiseBatchLimit is called when the destination refused a batch of that size for max.message.bytes. It blocks,
	// unlike the others, and reports whether the topic takes more now than before.
	RaiseBatchLimit func(ctx context.Context, topic string, bytes int) (raised bool, err error)
}

// withDefaults replaces zero values.
func (o FetchOptions) withDefaults() FetchOptions {
	if o.WaitMax == 0 {
		o.WaitMax = 500 * time.Millisecond
	}
	if o.MinBytes == 0 {
		o.MinBytes = 1
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 20
	}
	if o.ResponseMax == 0 {
		o.ResponseMax = 10 << 20
	}
	if o.Fetchers == 0 {
		o.Fetchers = 1
	}
	if o.MetadataRefresh == 0 {
		o.MetadataRefresh = 30 * time.Second
	}
	return o
}
