package mirror

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/mirror/replication"
)

// The engine's own words for what its parts know, so that its callers need not know the parts.
type (
	// TopicID is a Kafka topic ID; the zero value means "none".
	TopicID = cluster.TopicID
	// State is the state of a partition, and of a topic as the summary of its partitions.
	State = replication.State
)

// The wire values of the states.
const (
	Initializing = replication.Initializing
	Preparing    = replication.Preparing
	Mirroring    = replication.Mirroring
	Stopping     = replication.Stopping
	Stopped      = replication.Stopped
	Failed       = replication.Failed
	Unknown      = replication.Unknown
	Paused       = replication.Paused
)

// Error is a refusal that a client gets: a Kafka error code and a message that names the thing and the fix.
type Error struct {
	Kafka   *kerr.Error
	Message string
}

// Error returns the message with the name of the code.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Kafka.Message, e.Message) }

// Refuse makes an Error.
func Refuse(code *kerr.Error, format string, args ...any) *Error {
	return &Error{Kafka: code, Message: fmt.Sprintf(format, args...)}
}

// TopicRef names a topic in a request; a zero ID means that the client gave none.
type TopicRef struct {
	Mirror string // only for AddTopics
	Name   string
	ID     TopicID
}

// TopicResult is the outcome for one topic of a request; Err is nil where it succeeded. ID is the topic's source ID if
// known.
type TopicResult struct {
	Name string
	ID   TopicID
	Err  *Error
}

// Summary is one entry of ListMirrors.
type Summary struct {
	Name            string
	SourceBootstrap string
	// Topics is the number of topics that are not STOPPED.
	Topics int32
}

// Description is one entry of DescribeMirrors.
type Description struct {
	Name string
	// SourceClusterID is the cluster ID of the source, empty if it has none.
	SourceClusterID string
	Topics          []TopicDescription
	// Skipped is what the syncers beside the data left out in their last cycles, and why.
	Skipped []Skip
	// Syncs are what the syncers have done so far.
	Syncs []SyncStatus
}

// TopicDescription describes one topic of a mirror, partitions in order.
type TopicDescription struct {
	Name       string
	Partitions []PartitionStatus
	// Chain is where the topic's records come from, the nearest cluster first; empty for a STOPPED topic.
	Chain []Link
	// ID is the topic's ID for clients, DestinationID the one at the destination, OriginID the one in the source's cluster.
	ID, DestinationID, OriginID TopicID
}

// PartitionStatus is what is known of one mirror partition.
type PartitionStatus struct {
	replication.Status
	// Stop is there once the partition is STOPPED.
	Stop *PartitionStop
}

// StateUpdate is one partition of WriteMirrorStates.
type StateUpdate struct {
	Topic        string
	Partition    int32
	LastMirrored int64
	State        State
}

// Member is a gateway of this destination cluster.
type Member struct {
	Number int32 // node ID for clients is 1,000,000,000 + Number
	Host   string
	Port   int32
}

// Engine is what the handlers of the mirror RPCs need. Manager implements it. Errors that a client may see are *Error;
// any other error is the gateway's own trouble and is answered as UNKNOWN_SERVER_ERROR.
type Engine interface {
	// Topics returns the current snapshot; never nil, never blocks.
	Topics() *Topics

	// CreateMirror checks the configuration (nil values are an error), contacts the source, and makes the mirror
	// durable, or only checks when validateOnly.
	CreateMirror(ctx context.Context, name string, config map[string]*string, validateOnly bool) error
	// AddTopics is all or nothing. The results are in the order of topics.
	AddTopics(ctx context.Context, topics []TopicRef) ([]TopicResult, error)
	// RemoveTopics returns when the stop is durable and every partition is fenced.
	RemoveTopics(ctx context.Context, mirror string, topics []TopicRef) ([]TopicResult, error)
	// PauseTopics returns when nothing more is written; the topics stay read-only. All or nothing.
	PauseTopics(ctx context.Context, mirror string, topics []TopicRef) ([]TopicResult, error)
	// ResumeTopics goes on with PAUSED partitions and tries FAILED ones again. All or nothing.
	ResumeTopics(ctx context.Context, mirror string, topics []TopicRef) ([]TopicResult, error)
	// DeleteMirror forgets a mirror all of whose topics are STOPPED.
	DeleteMirror(ctx context.Context, mirror string) error
	// MirrorConfig returns every key of a mirror's configuration; secrets have no value.
	MirrorConfig(ctx context.Context, mirror string) ([]ConfigEntry, error)
	// AlterMirror changes a mirror's configuration, which takes effect at once, or only checks when validateOnly.
	AlterMirror(ctx context.Context, mirror string, changes []ConfigChange, validateOnly bool) error
	// Mirrors lists the mirrors by name.
	Mirrors(ctx context.Context) ([]Summary, error)
	// Describe describes one mirror with the live state of its partitions.
	Describe(ctx context.Context, mirror string) (Description, error)
	// LastMirrored describes the topics of a mirror up to where each is the same as its source: LastMirrored is -1 for
	// a STOPPED topic that the destination does not have any more, even if it has another one of that name.
	LastMirrored(ctx context.Context, mirror string) ([]TopicDescription, error)
	// WriteStates applies partition states given by an operator or another gateway, and drops removed topics. The
	// errors are per update, nil where it was applied.
	WriteStates(ctx context.Context, mirror string, updates []StateUpdate, removed []string) ([]*Error, error)
	// ReserveTopicID makes id the one that clients see for the ordinary topic name (CreateTopics v8 with MirrorInfo).
	// TOPIC_ALREADY_EXISTS if another topic, mirrored or not, has that ID.
	ReserveTopicID(ctx context.Context, name string, id TopicID) error
	// ConfirmTopicID is called with the ID that the destination gave to a reserved topic; ReleaseTopicID if the
	// creation failed.
	ConfirmTopicID(ctx context.Context, name string, destinationID TopicID) error
	ReleaseTopicID(ctx context.Context, name string) error
	// Coordinator returns the gateway that coordinates a key of FindCoordinator type 3: a mirror name or
	// mirror:topicId:partition. Self is this gateway.
	Coordinator(ctx context.Context, key string) (Member, error)
	Self() Member
}
