package mirrormsg

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// LastMirroredOffsetsRequest asks up to where the partitions of a mirror hold the source's records.
type LastMirroredOffsetsRequest struct {
	flexible
	// MirrorName is the mirror to ask about.
	MirrorName string
	// Topics are the topics to ask about; empty = all.
	Topics []TopicPartitions
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// TopicPartitions names partitions of a topic, in the requests LastMirroredOffsets and ReadMirrorStates.
type TopicPartitions struct {
	// Name is the topic's name.
	Name string
	// Partitions are the partitions to ask about; empty = all.
	Partitions []Partition
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// Partition names a partition.
type Partition struct {
	// Partition is the partition's index.
	Partition int32
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// LastMirroredOffsetsResponse answers a LastMirroredOffsetsRequest.
type LastMirroredOffsetsResponse struct {
	flexible
	// ThrottleMillis is how long the request was throttled, in milliseconds.
	ThrottleMillis int32
	// ErrorCode is the error of the whole request, or 0.
	ErrorCode int16
	// Topics are the topics asked for.
	Topics []LastMirroredOffsetsResponseTopic
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// LastMirroredOffsetsResponseTopic is a topic in a LastMirroredOffsetsResponse.
type LastMirroredOffsetsResponseTopic struct {
	// Name is the topic's name.
	Name string
	// Partitions are the partitions asked for.
	Partitions []LastMirroredOffsetsResponseTopicPartition
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// LastMirroredOffsetsResponseTopicPartition is a partition in a LastMirroredOffsetsResponse.
type LastMirroredOffsetsResponseTopicPartition struct {
	// Partition is the partition's index.
	Partition int32
	// LastMirroredOffset is the offset after the last mirrored record, where a log would be truncated; 0 = nothing was
	// mirrored, -1 = not known.
	LastMirroredOffset int64
	// ErrorCode is the error of the partition, or 0.
	ErrorCode int16
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

func (v *LastMirroredOffsetsRequest) code(c *coder) {
	c.string("MirrorName", &v.MirrorName)
	array(c, &v.Topics, 3)
	c.tags(&v.UnknownTags)
}

func (v *TopicPartitions) code(c *coder) {
	c.string("Name", &v.Name)
	array(c, &v.Partitions, 5)
	c.tags(&v.UnknownTags)
}

func (v *Partition) code(c *coder) {
	c.int32(&v.Partition)
	c.tags(&v.UnknownTags)
}

func (v *LastMirroredOffsetsResponse) code(c *coder) {
	c.int32(&v.ThrottleMillis)
	c.int16(&v.ErrorCode)
	array(c, &v.Topics, 3)
	c.tags(&v.UnknownTags)
}

func (v *LastMirroredOffsetsResponseTopic) code(c *coder) {
	c.string("Name", &v.Name)
	array(c, &v.Partitions, 15)
	c.tags(&v.UnknownTags)
}

func (v *LastMirroredOffsetsResponseTopicPartition) code(c *coder) {
	c.int32(&v.Partition)
	c.int64(&v.LastMirroredOffset)
	c.int16(&v.ErrorCode)
	c.tags(&v.UnknownTags)
}

// Key returns LastMirroredOffsetsKey.
func (*LastMirroredOffsetsRequest) Key() int16 { return LastMirroredOffsetsKey }

// ResponseKind returns an empty LastMirroredOffsetsResponse.
func (v *LastMirroredOffsetsRequest) ResponseKind() kmsg.Response {
	r := NewPtrLastMirroredOffsetsResponse()
	r.Version = v.Version
	return r
}

// RequestWith sends the request through r, a kgo.Client say, and returns the response.
func (v *LastMirroredOffsetsRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*LastMirroredOffsetsResponse, error) {
	return requestWith[*LastMirroredOffsetsResponse](ctx, r, v)
}

// AppendTo appends the message in wire form to dst.
func (v *LastMirroredOffsetsRequest) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *LastMirroredOffsetsRequest) ReadFrom(src []byte) error {
	*v = LastMirroredOffsetsRequest{flexible: v.flexible}
	v.Default()
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *LastMirroredOffsetsRequest) Default() {}

// NewPtrLastMirroredOffsetsRequest returns a request with its default values.
func NewPtrLastMirroredOffsetsRequest() *LastMirroredOffsetsRequest {
	v := new(LastMirroredOffsetsRequest)
	v.Default()
	return v
}

// NewLastMirroredOffsetsRequest returns a request with its default values.
func NewLastMirroredOffsetsRequest() LastMirroredOffsetsRequest {
	return *NewPtrLastMirroredOffsetsRequest()
}

// Key returns LastMirroredOffsetsKey.
func (*LastMirroredOffsetsResponse) Key() int16 { return LastMirroredOffsetsKey }

// RequestKind returns an empty LastMirroredOffsetsRequest.
func (v *LastMirroredOffsetsResponse) RequestKind() kmsg.Request {
	r := NewPtrLastMirroredOffsetsRequest()
	r.Version = v.Version
	return r
}

// Throttle returns ThrottleMillis, and that the client has to wait it out.
func (v *LastMirroredOffsetsResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *LastMirroredOffsetsResponse) SetThrottle(throttleMillis int32) {
	v.ThrottleMillis = throttleMillis
}

// AppendTo appends the message in wire form to dst.
func (v *LastMirroredOffsetsResponse) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *LastMirroredOffsetsResponse) ReadFrom(src []byte) error {
	*v = LastMirroredOffsetsResponse{flexible: v.flexible}
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *LastMirroredOffsetsResponse) Default() {}

// NewPtrLastMirroredOffsetsResponse returns a response with its default values.
func NewPtrLastMirroredOffsetsResponse() *LastMirroredOffsetsResponse {
	return new(LastMirroredOffsetsResponse)
}

// NewLastMirroredOffsetsResponse returns a response with its default values.
func NewLastMirroredOffsetsResponse() LastMirroredOffsetsResponse {
	return LastMirroredOffsetsResponse{}
}

// Default does nothing: every field's default is Go's zero value.
func (v *TopicPartitions) Default() {}

// Default does nothing: every field's default is Go's zero value.
func (v *Partition) Default() {}

// Default does nothing: every field's default is Go's zero value.
func (v *LastMirroredOffsetsResponseTopic) Default() {}

// Default does nothing: every field's default is Go's zero value.
func (v *LastMirroredOffsetsResponseTopicPartition) Default() {}
