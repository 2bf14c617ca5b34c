package mirrormsg

import (
	"context"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeMirrorsRequest asks for the partitions of mirrors.
type DescribeMirrorsRequest struct {
	flexible
	// MirrorNames are the mirrors to describe; empty = all. (A null array is read as an empty one; the KIP's text has
	// both mean all, while its definition does not make the array nullable, so that null is never written.)
	MirrorNames []string
	// IncludeAuthorizedOperations asks for AuthorizedOperations.
	IncludeAuthorizedOperations bool
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// DescribeMirrorsResponse answers a DescribeMirrorsRequest.
type DescribeMirrorsResponse struct {
	flexible
	// ThrottleMillis is how long the request was throttled, in milliseconds.
	ThrottleMillis int32
	// Mirrors are the mirrors asked for.
	Mirrors []DescribeMirrorsResponseMirror
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// DescribeMirrorsResponseMirror is a mirror in a DescribeMirrorsResponse.
type DescribeMirrorsResponseMirror struct {
	// ErrorCode is the error of the mirror, or 0.
	ErrorCode int16
	// MirrorName is the mirror's name.
	MirrorName string
	// Topics are the mirror's topics.
	Topics []DescribeMirrorsResponseMirrorTopic
	// AuthorizedOperations are the operations that the caller may do, as bits by the number of the ACL operation;
	// AuthorizedOperationsOmitted if they were not asked for. Default AuthorizedOperationsOmitted.
	AuthorizedOperations int32
	// Skipped is what was left out beside the data, and why (tagged field 0, beyond the KIP).
	Skipped []DescribeMirrorsResponseMirrorSkipped
	// SourceClusterID is the cluster ID of the source, empty if it has none (tagged field 1, beyond the KIP).
	SourceClusterID string
	// Syncs are what the syncs beside the data have done since the gateway started the mirror (tagged field 2, beyond the KIP).
	Syncs []DescribeMirrorsResponseMirrorSync
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// DescribeMirrorsResponseMirrorSkipped is what one of the syncs beside the data left out for one reason.
type DescribeMirrorsResponseMirrorSkipped struct {
	// Sync is what is synced: topics, topic configs, groups, acls.
	Sync string
	// Reason is why it was left out.
	Reason string
	// Count is how many were left out, 0 if the whole sync does not work.
	Count int32
	// Names are some of them.
	Names []string
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// DescribeMirrorsResponseMirrorSync is what one of the syncs beside the data has done.
type DescribeMirrorsResponseMirrorSync struct {
	// Sync is what is synced, as in DescribeMirrorsResponseMirrorSkipped.
	Sync string
	// Cycles is how often it has done all that it should, since the gateway started the mirror.
	Cycles int64
	// AgeMillis is the time since the end of the last of these cycles, in milliseconds.
	AgeMillis int64
	// Covered is how many were in place then; what was skipped is not.
	Covered int32
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// AuthorizedOperationsOmitted is the value of AuthorizedOperations where they were not asked for.
const AuthorizedOperationsOmitted int32 = math.MinInt32

// DescribeMirrorsResponseMirrorTopic is a topic in a DescribeMirrorsResponse.
type DescribeMirrorsResponseMirrorTopic struct {
	// TopicName is the topic's name.
	TopicName string
	// Partitions are the topic's partitions.
	Partitions []DescribeMirrorsResponseMirrorTopicPartition
	// Chain is where the topic's records come from, the nearest cluster first, as far as it is known; empty for a topic that
	// was removed from the mirror (tagged field 0, beyond the KIP).
	Chain []DescribeMirrorsResponseMirrorTopicLink
	// TopicID is the topic's ID for clients of the gateway (tagged field 1, beyond the KIP).
	TopicID [16]byte
	// DestinationTopicID is the ID that the destination's cluster gave to the topic (tagged field 2, beyond the KIP).
	DestinationTopicID [16]byte
	// OriginTopicID is the ID that the source's cluster gave to the topic (tagged field 3, beyond the KIP).
	OriginTopicID [16]byte
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// DescribeMirrorsResponseMirrorTopicPartition is a partition in a DescribeMirrorsResponse.
type DescribeMirrorsResponseMirrorTopicPartition struct {
	// Partition is the partition's index.
	Partition int32
	// SourceOffset is the high watermark at the source, -1 if not known.
	SourceOffset int64
	// DestinationOffset is the log end offset at the destination, -1 if not known.
	DestinationOffset int64
	// Lag is SourceOffset less DestinationOffset, -1 if either is not known.
	Lag int64
	// State is the state's name: INITIALIZING, PREPARING, MIRRORING, STOPPING, STOPPED, FAILED, UNKNOWN; beyond the
	// KIP, PAUSED.
	State string
	// Reason is why the partition is FAILED, what it waits for, or its progress (tagged field 0, beyond the KIP).
	Reason string
	// SourceLastStableOffset is the last stable offset at the source, -1 if not known (tagged field 1, beyond the KIP).
	// Default -1.
	SourceLastStableOffset int64
	// RecordsPerSecond is the present rate of mirroring (tagged field 2, beyond the KIP).
	RecordsPerSecond float64
	// SourceAgeMillis is how old SourceOffset is, in milliseconds and at least 1; 0 if not known (tagged field 3, beyond the
	// KIP).
	SourceAgeMillis int64
	// Stop is there once the partition is STOPPED (tagged field 4, beyond the KIP).
	Stop *DescribeMirrorsResponseMirrorTopicPartitionStop
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// DescribeMirrorsResponseMirrorTopicPartitionStop is how the mirroring of a partition ended.
type DescribeMirrorsResponseMirrorTopicPartitionStop struct {
	// LastMirroredOffset is the offset after the last mirrored record, -1 if not known.
	LastMirroredOffset int64
	// SourceOffset is where the source's log ended as last heard, -1 if that was never heard.
	SourceOffset int64
	// SourceAgeMillis is how old that was at the stop, in milliseconds: 0 if the source was asked behind the fence, -1 if it
	// was never heard.
	SourceAgeMillis int64
	// AgeMillis is the time since the stop, in milliseconds.
	AgeMillis int64
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// DescribeMirrorsResponseMirrorTopicLink is one of the mirrors that a topic's records come through.
type DescribeMirrorsResponseMirrorTopicLink struct {
	// ClusterID is the cluster ID of the mirror's source, empty if it has none.
	ClusterID string
	// MirrorName is the mirror's name, at the gateway of the cluster that is next on the way.
	MirrorName string
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

func (v *DescribeMirrorsRequest) code(c *coder) {
	c.strings("MirrorNames", &v.MirrorNames)
	c.bool(&v.IncludeAuthorizedOperations)
	c.tags(&v.UnknownTags)
}

func (v *DescribeMirrorsResponse) code(c *coder) {
	c.int32(&v.ThrottleMillis)
	array(c, &v.Mirrors, 9)
	c.tags(&v.UnknownTags)
}

func (v *DescribeMirrorsResponseMirror) code(c *coder) {
	c.int16(&v.ErrorCode)
	c.string("MirrorName", &v.MirrorName)
	array(c, &v.Topics, 3)
	c.int32(&v.AuthorizedOperations)
	c.tags(&v.UnknownTags,
		tag{len(v.Skipped) > 0, func(c *coder) { array(c, &v.Skipped, 8) }},
		tag{v.SourceClusterID != "", func(c *coder) { c.string("SourceClusterID", &v.SourceClusterID) }},
		tag{len(v.Syncs) > 0, func(c *coder) { array(c, &v.Syncs, 22) }},
	)
}

func (v *DescribeMirrorsResponseMirrorSkipped) code(c *coder) {
	c.string("Sync", &v.Sync)
	c.string("Reason", &v.Reason)
	c.int32(&v.Count)
	c.strings("Names", &v.Names)
	c.tags(&v.UnknownTags)
}

// Default does nothing: every field's default is Go's zero value.
func (v *DescribeMirrorsResponseMirrorSkipped) Default() {}

func (v *DescribeMirrorsResponseMirrorTopic) code(c *coder) {
	c.string("TopicName", &v.TopicName)
	array(c, &v.Partitions, 30)
	c.tags(&v.UnknownTags,
		tag{len(v.Chain) > 0, func(c *coder) { array(c, &v.Chain, 3) }},
		tag{v.TopicID != [16]byte{}, func(c *coder) { c.uuid(&v.TopicID) }},
		tag{v.DestinationTopicID != [16]byte{}, func(c *coder) { c.uuid(&v.DestinationTopicID) }},
		tag{v.OriginTopicID != [16]byte{}, func(c *coder) { c.uuid(&v.OriginTopicID) }},
	)
}

func (v *DescribeMirrorsResponseMirrorTopicLink) code(c *coder) {
	c.string("ClusterID", &v.ClusterID)
	c.string("MirrorName", &v.MirrorName)
	c.tags(&v.UnknownTags)
}

// Default does nothing: every field's default is Go's zero value.
func (v *DescribeMirrorsResponseMirrorTopicLink) Default() {}

func (v *DescribeMirrorsResponseMirrorTopicPartition) code(c *coder) {
	c.int32(&v.Partition)
	c.int64(&v.SourceOffset)
	c.int64(&v.DestinationOffset)
	c.int64(&v.Lag)
	c.string("State", &v.State)
	c.tags(&v.UnknownTags,
		tag{v.Reason != "", func(c *coder) { c.string("Reason", &v.Reason) }},
		tag{v.SourceLastStableOffset != -1, func(c *coder) { c.int64(&v.SourceLastStableOffset) }},
		tag{v.RecordsPerSecond != 0, func(c *coder) { c.float64(&v.RecordsPerSecond) }},
		tag{v.SourceAgeMillis != 0, func(c *coder) { c.int64(&v.SourceAgeMillis) }},
		tag{v.Stop != nil, func(c *coder) {
			if c.reading {
				v.Stop = new(DescribeMirrorsResponseMirrorTopicPartitionStop)
			}
			v.Stop.code(c)
		}},
	)
}

func (v *DescribeMirrorsResponseMirrorTopicPartitionStop) code(c *coder) {
	c.int64(&v.LastMirroredOffset)
	c.int64(&v.SourceOffset)
	c.int64(&v.SourceAgeMillis)
	c.int64(&v.AgeMillis)
	c.tags(&v.UnknownTags)
}

func (v *DescribeMirrorsResponseMirrorSync) code(c *coder) {
	c.string("Sync", &v.Sync)
	c.int64(&v.Cycles)
	c.int64(&v.AgeMillis)
	c.int32(&v.Covered)
	c.tags(&v.UnknownTags)
}

// Default does nothing: every field's default is Go's zero value.
func (v *DescribeMirrorsResponseMirrorSync) Default() {}

// Default sets AuthorizedOperations to AuthorizedOperationsOmitted.
func (v *DescribeMirrorsResponseMirror) Default() {
	v.AuthorizedOperations = AuthorizedOperationsOmitted
}

// NewDescribeMirrorsResponseMirror returns a mirror with its default values.
func NewDescribeMirrorsResponseMirror() DescribeMirrorsResponseMirror {
	var v DescribeMirrorsResponseMirror
	v.Default()
	return v
}

// Default sets SourceLastStableOffset to -1.
func (v *DescribeMirrorsResponseMirrorTopicPartition) Default() { v.SourceLastStableOffset = -1 }

// NewDescribeMirrorsResponseMirrorTopicPartition returns a partition with its default values.
func NewDescribeMirrorsResponseMirrorTopicPartition() DescribeMirrorsResponseMirrorTopicPartition {
	var v DescribeMirrorsResponseMirrorTopicPartition
	v.Default()
	return v
}

// Key returns DescribeMirrorsKey.
func (*DescribeMirrorsRequest) Key() int16 { return DescribeMirrorsKey }

// ResponseKind returns an empty DescribeMirrorsResponse.
func (v *DescribeMirrorsRequest) ResponseKind() kmsg.Response {
	r := NewPtrDescribeMirrorsResponse()
	r.Version = v.Version
	return r
}

// RequestWith sends the request through r, a kgo.Client say, and returns the response.
func (v *DescribeMirrorsRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*DescribeMirrorsResponse, error) {
	return requestWith[*DescribeMirrorsResponse](ctx, r, v)
}

// AppendTo appends the message in wire form to dst.
func (v *DescribeMirrorsRequest) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *DescribeMirrorsRequest) ReadFrom(src []byte) error {
	*v = DescribeMirrorsRequest{flexible: v.flexible}
	v.Default()
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *DescribeMirrorsRequest) Default() {}

// NewPtrDescribeMirrorsRequest returns a request with its default values.
func NewPtrDescribeMirrorsRequest() *DescribeMirrorsRequest {
	v := new(DescribeMirrorsRequest)
	v.Default()
	return v
}

// NewDescribeMirrorsRequest returns a request with its default values.
func NewDescribeMirrorsRequest() DescribeMirrorsRequest { return *NewPtrDescribeMirrorsRequest() }

// Key returns DescribeMirrorsKey.
func (*DescribeMirrorsResponse) Key() int16 { return DescribeMirrorsKey }

// RequestKind returns an empty DescribeMirrorsRequest.
func (v *DescribeMirrorsResponse) RequestKind() kmsg.Request {
	r := NewPtrDescribeMirrorsRequest()
	r.Version = v.Version
	return r
}

// Throttle returns ThrottleMillis, and that the client has to wait it out.
func (v *DescribeMirrorsResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *DescribeMirrorsResponse) SetThrottle(throttleMillis int32) {
	v.ThrottleMillis = throttleMillis
}

// AppendTo appends the message in wire form to dst.
func (v *DescribeMirrorsResponse) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *DescribeMirrorsResponse) ReadFrom(src []byte) error {
	*v = DescribeMirrorsResponse{flexible: v.flexible}
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *DescribeMirrorsResponse) Default() {}

// NewPtrDescribeMirrorsResponse returns a response with its default values.
func NewPtrDescribeMirrorsResponse() *DescribeMirrorsResponse { return new(DescribeMirrorsResponse) }

// NewDescribeMirrorsResponse returns a response with its default values.
func NewDescribeMirrorsResponse() DescribeMirrorsResponse { return DescribeMirrorsResponse{} }

// Default does nothing: every field's default is Go's zero value.
func (v *DescribeMirrorsResponseMirrorTopic) Default() {}
