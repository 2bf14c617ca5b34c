package mirrormsg

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// RemoveTopicsFromMirrorRequest stops the mirroring of topics, which makes them writable: a failover of these topics. It
// is answered when the stop is durable.
type RemoveTopicsFromMirrorRequest struct {
	flexible
	patience
	// MirrorName is the mirror that has the topics.
	MirrorName string
	// Topics are the topics to remove.
	Topics []RemoveTopicsFromMirrorRequestTopic
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// RemoveTopicsFromMirrorRequestTopic is a topic to remove.
type RemoveTopicsFromMirrorRequestTopic struct {
	// TopicID is the ID of the topic at the source; zero = whatever it is.
	TopicID [16]byte
	// TopicName is the name of the topic.
	TopicName string
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// RemoveTopicsFromMirrorResponse answers a RemoveTopicsFromMirrorRequest.
type RemoveTopicsFromMirrorResponse struct {
	flexible
	// ThrottleMillis is how long the request was throttled, in milliseconds.
	ThrottleMillis int32
	// TopicID is the ID of the topic that failed, if exactly one did; else zero.
	TopicID [16]byte
	// ErrorCode is the error, or 0.
	ErrorCode int16
	// ErrorMessage names every topic that failed; null if none did.
	ErrorMessage *string
	// Topics are the results one by one (tagged field 0, beyond the KIP).
	Topics []TopicResult
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

func (v *RemoveTopicsFromMirrorRequest) code(c *coder) {
	c.string("MirrorName", &v.MirrorName)
	array(c, &v.Topics, 18)
	c.tags(&v.UnknownTags)
}

func (v *RemoveTopicsFromMirrorRequestTopic) code(c *coder) {
	c.uuid(&v.TopicID)
	c.string("TopicName", &v.TopicName)
	c.tags(&v.UnknownTags)
}

func (v *RemoveTopicsFromMirrorResponse) code(c *coder) {
	c.int32(&v.ThrottleMillis)
	c.uuid(&v.TopicID)
	c.int16(&v.ErrorCode)
	c.nullableString(&v.ErrorMessage)
	c.tags(&v.UnknownTags, topicResults(&v.Topics))
}

// Key returns RemoveTopicsFromMirrorKey.
func (*RemoveTopicsFromMirrorRequest) Key() int16 { return RemoveTopicsFromMirrorKey }

// ResponseKind returns an empty RemoveTopicsFromMirrorResponse.
func (v *RemoveTopicsFromMirrorRequest) ResponseKind() kmsg.Response {
	r := NewPtrRemoveTopicsFromMirrorResponse()
	r.Version = v.Version
	return r
}

// RequestWith sends the request through r, a kgo.Client say, and returns the response.
func (v *RemoveTopicsFromMirrorRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*RemoveTopicsFromMirrorResponse, error) {
	return requestWith[*RemoveTopicsFromMirrorResponse](ctx, r, v)
}

// AppendTo appends the message in wire form to dst.
func (v *RemoveTopicsFromMirrorRequest) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *RemoveTopicsFromMirrorRequest) ReadFrom(src []byte) error {
	*v = RemoveTopicsFromMirrorRequest{flexible: v.flexible}
	v.Default()
	return readMessage(src, v)
}

// Default sets the fields whose default is not Go's zero value.
func (v *RemoveTopicsFromMirrorRequest) Default() {
	v.TimeoutMillis = DefaultTimeoutMillis
}

// NewPtrRemoveTopicsFromMirrorRequest returns a request with its default values.
func NewPtrRemoveTopicsFromMirrorRequest() *RemoveTopicsFromMirrorRequest {
	v := new(RemoveTopicsFromMirrorRequest)
	v.Default()
	return v
}

// NewRemoveTopicsFromMirrorRequest returns a request with its default values.
func NewRemoveTopicsFromMirrorRequest() RemoveTopicsFromMirrorRequest {
	return *NewPtrRemoveTopicsFromMirrorRequest()
}

// Key returns RemoveTopicsFromMirrorKey.
func (*RemoveTopicsFromMirrorResponse) Key() int16 { return RemoveTopicsFromMirrorKey }

// RequestKind returns an empty RemoveTopicsFromMirrorRequest.
func (v *RemoveTopicsFromMirrorResponse) RequestKind() kmsg.Request {
	r := NewPtrRemoveTopicsFromMirrorRequest()
	r.Version = v.Version
	return r
}

// Throttle returns ThrottleMillis, and that the client has to wait it out.
func (v *RemoveTopicsFromMirrorResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *RemoveTopicsFromMirrorResponse) SetThrottle(throttleMillis int32) {
	v.ThrottleMillis = throttleMillis
}

// AppendTo appends the message in wire form to dst.
func (v *RemoveTopicsFromMirrorResponse) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *RemoveTopicsFromMirrorResponse) ReadFrom(src []byte) error {
	*v = RemoveTopicsFromMirrorResponse{flexible: v.flexible}
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *RemoveTopicsFromMirrorResponse) Default() {}

// NewPtrRemoveTopicsFromMirrorResponse returns a response with its default values.
func NewPtrRemoveTopicsFromMirrorResponse() *RemoveTopicsFromMirrorResponse {
	return new(RemoveTopicsFromMirrorResponse)
}

// NewRemoveTopicsFromMirrorResponse returns a response with its default values.
func NewRemoveTopicsFromMirrorResponse() RemoveTopicsFromMirrorResponse {
	return RemoveTopicsFromMirrorResponse{}
}

// Default does nothing: every field's default is Go's zero value.
func (v *RemoveTopicsFromMirrorRequestTopic) Default() {}
