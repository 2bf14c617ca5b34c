package mirrormsg

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// WriteMirrorStatesRequest changes the states of partitions at the coordinator of a mirror. It is for gateways and
// operators, not for ordinary clients.
type WriteMirrorStatesRequest struct {
	flexible
	// MirrorName is the mirror to change.
	MirrorName string
	// TopicsUpdated are the new states.
	TopicsUpdated []WriteMirrorStatesRequestTopic
	// RemovedTopics are the topics to drop from the mirror's state.
	RemovedTopics []string
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// WriteMirrorStatesRequestTopic is a topic in a WriteMirrorStatesRequest.
type WriteMirrorStatesRequestTopic struct {
	// Name is the topic's name.
	Name string
	// Partitions are the partitions to change.
	Partitions []WriteMirrorStatesRequestTopicPartition
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// WriteMirrorStatesRequestTopicPartition is a partition in a WriteMirrorStatesRequest.
type WriteMirrorStatesRequestTopicPartition struct {
	// Partition is the partition's index.
	Partition int32
	// LastMirroredOffset is the offset after the last mirrored record.
	LastMirroredOffset int64
	// State is the state's number, as in ReadMirrorStatesResponseTopicPartition.
	State int8
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// WriteMirrorStatesResponse answers a WriteMirrorStatesRequest.
type WriteMirrorStatesResponse struct {
	flexible
	// ThrottleMillis is how long the request was throttled, in milliseconds.
	ThrottleMillis int32
	// ErrorCode is the error of the whole request, or 0; NOT_COORDINATOR where another gateway has the mirror.
	ErrorCode int16
	// Topics are the topics of TopicsUpdated, in its order.
	Topics []WriteMirrorStatesResponseTopic
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// WriteMirrorStatesResponseTopic is a topic in a WriteMirrorStatesResponse.
type WriteMirrorStatesResponseTopic struct {
	// Name is the topic's name.
	Name string
	// Partitions are the partitions to change.
	Partitions []WriteMirrorStatesResponseTopicPartition
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// WriteMirrorStatesResponseTopicPartition is a partition in a WriteMirrorStatesResponse.
type WriteMirrorStatesResponseTopicPartition struct {
	// Partition is the partition's index.
	Partition int32
	// ErrorCode is the error of the partition, or 0.
	ErrorCode int16
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

func (v *WriteMirrorStatesRequest) code(c *coder) {
	c.string("MirrorName", &v.MirrorName)
	array(c, &v.TopicsUpdated, 3)
	c.strings("RemovedTopics", &v.RemovedTopics)
	c.tags(&v.UnknownTags)
}

func (v *WriteMirrorStatesRequestTopic) code(c *coder) {
	c.string("Name", &v.Name)
	array(c, &v.Partitions, 14)
	c.tags(&v.UnknownTags)
}

func (v *WriteMirrorStatesRequestTopicPartition) code(c *coder) {
	c.int32(&v.Partition)
	c.int64(&v.LastMirroredOffset)
	c.int8(&v.State)
	c.tags(&v.UnknownTags)
}

func (v *WriteMirrorStatesResponse) code(c *coder) {
	c.int32(&v.ThrottleMillis)
	c.int16(&v.ErrorCode)
	array(c, &v.Topics, 3)
	c.tags(&v.UnknownTags)
}

func (v *WriteMirrorStatesResponseTopic) code(c *coder) {
	c.string("Name", &v.Name)
	array(c, &v.Partitions, 7)
	c.tags(&v.UnknownTags)
}

func (v *WriteMirrorStatesResponseTopicPartition) code(c *coder) {
	c.int32(&v.Partition)
	c.int16(&v.ErrorCode)
	c.tags(&v.UnknownTags)
}

// Key returns WriteMirrorStatesKey.
func (*WriteMirrorStatesRequest) Key() int16 { return WriteMirrorStatesKey }

// ResponseKind returns an empty WriteMirrorStatesResponse.
func (v *WriteMirrorStatesRequest) ResponseKind() kmsg.Response {
	r := NewPtrWriteMirrorStatesResponse()
	r.Version = v.Version
	return r
}

// RequestWith sends the request through r, a kgo.Client say, and returns the response.
func (v *WriteMirrorStatesRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*WriteMirrorStatesResponse, error) {
	return requestWith[*WriteMirrorStatesResponse](ctx, r, v)
}

// AppendTo appends the message in wire form to dst.
func (v *WriteMirrorStatesRequest) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *WriteMirrorStatesRequest) ReadFrom(src []byte) error {
	*v = WriteMirrorStatesRequest{flexible: v.flexible}
	v.Default()
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *WriteMirrorStatesRequest) Default() {}

// NewPtrWriteMirrorStatesRequest returns a request with its default values.
func NewPtrWriteMirrorStatesRequest() *WriteMirrorStatesRequest {
	v := new(WriteMirrorStatesRequest)
	v.Default()
	return v
}

// NewWriteMirrorStatesRequest returns a request with its default values.
func NewWriteMirrorStatesRequest() WriteMirrorStatesRequest { return *NewPtrWriteMirrorStatesRequest() }

// Key returns WriteMirrorStatesKey.
func (*WriteMirrorStatesResponse) Key() int16 { return WriteMirrorStatesKey }

// RequestKind returns an empty WriteMirrorStatesRequest.
func (v *WriteMirrorStatesResponse) RequestKind() kmsg.Request {
	r := NewPtrWriteMirrorStatesRequest()
	r.Version = v.Version
	return r
}

// Throttle returns ThrottleMillis, and that the client has to wait it out.
func (v *WriteMirrorStatesResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *WriteMirrorStatesResponse) SetThrottle(throttleMillis int32) {
	v.ThrottleMillis = throttleMillis
}

// AppendTo appends the message in wire form to dst.
func (v *WriteMirrorStatesResponse) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *WriteMirrorStatesResponse) ReadFrom(src []byte) error {
	*v = WriteMirrorStatesResponse{flexible: v.flexible}
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *WriteMirrorStatesResponse) Default() {}

// NewPtrWriteMirrorStatesResponse returns a response with its default values.
func NewPtrWriteMirrorStatesResponse() *WriteMirrorStatesResponse {
	return new(WriteMirrorStatesResponse)
}

// NewWriteMirrorStatesResponse returns a response with its default values.
func NewWriteMirrorStatesResponse() WriteMirrorStatesResponse { return WriteMirrorStatesResponse{} }

// Default does nothing: every field's default is Go's zero value.
func (v *WriteMirrorStatesRequestTopic) Default() {}

// Default does nothing: every field's default is Go's zero value.
func (v *WriteMirrorStatesRequestTopicPartition) Default() {}

// Default does nothing: every field's default is Go's zero value.
func (v *WriteMirrorStatesResponseTopic) Default() {}

// Default does nothing: every field's default is Go's zero value.
func (v *WriteMirrorStatesResponseTopicPartition) Default() {}
