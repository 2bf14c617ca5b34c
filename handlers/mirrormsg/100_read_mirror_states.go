package mirrormsg

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ReadMirrorStatesRequest asks the coordinator of a mirror for the states of its partitions.
type ReadMirrorStatesRequest struct {
	flexible
	// MirrorName is the mirror to ask about.
	MirrorName string
	// Topics are the topics to ask about; empty = all.
	Topics []TopicPartitions
	// NeedPartitionStates: false asks for the topics alone, without partitions. Default true.
	NeedPartitionStates bool
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// ReadMirrorStatesResponse answers a ReadMirrorStatesRequest.
type ReadMirrorStatesResponse struct {
	flexible
	// ThrottleMillis is how long the request was throttled, in milliseconds.
	ThrottleMillis int32
	// ErrorCode is the error of the whole request, or 0; NOT_COORDINATOR where another gateway has the mirror.
	ErrorCode int16
	// Topics are the topics asked for.
	Topics []ReadMirrorStatesResponseTopic
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// ReadMirrorStatesResponseTopic is a topic in a ReadMirrorStatesResponse.
type ReadMirrorStatesResponseTopic struct {
	// Name is the topic's name.
	Name string
	// Partitions are the partitions asked for.
	Partitions []ReadMirrorStatesResponseTopicPartition
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// ReadMirrorStatesResponseTopicPartition is a partition in a ReadMirrorStatesResponse.
type ReadMirrorStatesResponseTopicPartition struct {
	// Partition is the partition's index.
	Partition int32
	// LastMirroredOffset is the offset after the last mirrored record; 0 = nothing was mirrored, -1 = not known.
	LastMirroredOffset int64
	// State is the state's number: 0 INITIALIZING, 1 PREPARING, 2 MIRRORING, 4 STOPPING, 8 STOPPED, 16 FAILED,
	// 32 UNKNOWN; beyond the KIP, 64 PAUSED.
	State int8
	// ErrorCode is the error of the partition, or 0.
	ErrorCode int16
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

func (v *ReadMirrorStatesRequest) code(c *coder) {
	c.string("MirrorName", &v.MirrorName)
	array(c, &v.Topics, 3)
	c.bool(&v.NeedPartitionStates)
	c.tags(&v.UnknownTags)
}

func (v *ReadMirrorStatesResponse) code(c *coder) {
	c.int32(&v.ThrottleMillis)
	c.int16(&v.ErrorCode)
	array(c, &v.Topics, 3)
	c.tags(&v.UnknownTags)
}

func (v *ReadMirrorStatesResponseTopic) code(c *coder) {
	c.string("Name", &v.Name)
	array(c, &v.Partitions, 16)
	c.tags(&v.UnknownTags)
}

func (v *ReadMirrorStatesResponseTopicPartition) code(c *coder) {
	c.int32(&v.Partition)
	c.int64(&v.LastMirroredOffset)
	c.int8(&v.State)
	c.int16(&v.ErrorCode)
	c.tags(&v.UnknownTags)
}

// Key returns ReadMirrorStatesKey.
func (*ReadMirrorStatesRequest) Key() int16 { return ReadMirrorStatesKey }

// ResponseKind returns an empty ReadMirrorStatesResponse.
func (v *ReadMirrorStatesRequest) ResponseKind() kmsg.Response {
	r := NewPtrReadMirrorStatesResponse()
	r.Version = v.Version
	return r
}

// RequestWith sends the request through r, a kgo.Client say, and returns the response.
func (v *ReadMirrorStatesRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*ReadMirrorStatesResponse, error) {
	return requestWith[*ReadMirrorStatesResponse](ctx, r, v)
}

// AppendTo appends the message in wire form to dst.
func (v *ReadMirrorStatesRequest) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *ReadMirrorStatesRequest) ReadFrom(src []byte) error {
	*v = ReadMirrorStatesRequest{flexible: v.flexible}
	v.Default()
	return readMessage(src, v)
}

// Default sets the fields whose default is not Go's zero value.
func (v *ReadMirrorStatesRequest) Default() {
	v.NeedPartitionStates = true
}

// NewPtrReadMirrorStatesRequest returns a request with its default values.
func NewPtrReadMirrorStatesRequest() *ReadMirrorStatesRequest {
	v := new(ReadMirrorStatesRequest)
	v.Default()
	return v
}

// NewReadMirrorStatesRequest returns a request with its default values.
func NewReadMirrorStatesRequest() ReadMirrorStatesRequest { return *NewPtrReadMirrorStatesRequest() }

// Key returns ReadMirrorStatesKey.
func (*ReadMirrorStatesResponse) Key() int16 { return ReadMirrorStatesKey }

// RequestKind returns an empty ReadMirrorStatesRequest.
func (v *ReadMirrorStatesResponse) RequestKind() kmsg.Request {
	r := NewPtrReadMirrorStatesRequest()
	r.Version = v.Version
	return r
}

// Throttle returns ThrottleMillis, and that the client has to wait it out.
func (v *ReadMirrorStatesResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *ReadMirrorStatesResponse) SetThrottle(throttleMillis int32) {
	v.ThrottleMillis = throttleMillis
}

// AppendTo appends the message in wire form to dst.
func (v *ReadMirrorStatesResponse) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *ReadMirrorStatesResponse) ReadFrom(src []byte) error {
	*v = ReadMirrorStatesResponse{flexible: v.flexible}
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *ReadMirrorStatesResponse) Default() {}

// NewPtrReadMirrorStatesResponse returns a response with its default values.
func NewPtrReadMirrorStatesResponse() *ReadMirrorStatesResponse { return new(ReadMirrorStatesResponse) }

// NewReadMirrorStatesResponse returns a response with its default values.
func NewReadMirrorStatesResponse() ReadMirrorStatesResponse { return ReadMirrorStatesResponse{} }

// Default does nothing: every field's default is Go's zero value.
func (v *ReadMirrorStatesResponseTopic) Default() {}

// Default does nothing: every field's default is Go's zero value.
func (v *ReadMirrorStatesResponseTopicPartition) Default() {}
