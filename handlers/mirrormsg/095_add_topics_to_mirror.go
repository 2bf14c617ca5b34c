package mirrormsg

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// AddTopicsToMirrorRequest adds topics to a mirror: all of them or none.
type AddTopicsToMirrorRequest struct {
	flexible
	patience
	// Topics are the topics to add.
	Topics []AddTopicsToMirrorRequestTopic
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// AddTopicsToMirrorRequestTopic is a topic to add.
type AddTopicsToMirrorRequestTopic struct {
	// TopicID is the ID of the topic at the source; zero = whatever it is.
	TopicID [16]byte
	// TopicName is the name of the topic, at the source as at the destination.
	TopicName string
	// MirrorName is the mirror that shall have the topic. Null is refused.
	MirrorName *string
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// AddTopicsToMirrorResponse answers an AddTopicsToMirrorRequest.
type AddTopicsToMirrorResponse struct {
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

// TopicResult is the outcome for one topic of an AddTopicsToMirror or RemoveTopicsFromMirror.
type TopicResult struct {
	// Name is the topic's name.
	Name string
	// TopicID is the topic's ID at the source, zero if it is not known.
	TopicID [16]byte
	// ErrorCode is the error, or 0.
	ErrorCode int16
	// ErrorMessage is null if there was no error.
	ErrorMessage *string
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

func (v *AddTopicsToMirrorRequest) code(c *coder) {
	array(c, &v.Topics, 19)
	c.tags(&v.UnknownTags)
}

func (v *AddTopicsToMirrorRequestTopic) code(c *coder) {
	c.uuid(&v.TopicID)
	c.string("TopicName", &v.TopicName)
	c.nullableString(&v.MirrorName)
	c.tags(&v.UnknownTags)
}

func (v *AddTopicsToMirrorResponse) code(c *coder) {
	c.int32(&v.ThrottleMillis)
	c.uuid(&v.TopicID)
	c.int16(&v.ErrorCode)
	c.nullableString(&v.ErrorMessage)
	c.tags(&v.UnknownTags, topicResults(&v.Topics))
}

func topicResults(v *[]TopicResult) tag {
	return tag{len(*v) > 0, func(c *coder) { array(c, v, 21) }}
}

func (v *TopicResult) code(c *coder) {
	c.string("Name", &v.Name)
	c.uuid(&v.TopicID)
	c.int16(&v.ErrorCode)
	c.nullableString(&v.ErrorMessage)
	c.tags(&v.UnknownTags)
}

// Key returns AddTopicsToMirrorKey.
func (*AddTopicsToMirrorRequest) Key() int16 { return AddTopicsToMirrorKey }

// ResponseKind returns an empty AddTopicsToMirrorResponse.
func (v *AddTopicsToMirrorRequest) ResponseKind() kmsg.Response {
	r := NewPtrAddTopicsToMirrorResponse()
	r.Version = v.Version
	return r
}

// RequestWith sends the request through r, a kgo.Client say, and returns the response.
func (v *AddTopicsToMirrorRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*AddTopicsToMirrorResponse, error) {
	return requestWith[*AddTopicsToMirrorResponse](ctx, r, v)
}

// AppendTo appends the message in wire form to dst.
func (v *AddTopicsToMirrorRequest) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *AddTopicsToMirrorRequest) ReadFrom(src []byte) error {
	*v = AddTopicsToMirrorRequest{flexible: v.flexible}
	v.Default()
	return readMessage(src, v)
}

// Default sets the fields whose default is not Go's zero value.
func (v *AddTopicsToMirrorRequest) Default() {
	v.TimeoutMillis = DefaultTimeoutMillis
}

// NewPtrAddTopicsToMirrorRequest returns a request with its default values.
func NewPtrAddTopicsToMirrorRequest() *AddTopicsToMirrorRequest {
	v := new(AddTopicsToMirrorRequest)
	v.Default()
	return v
}

// NewAddTopicsToMirrorRequest returns a request with its default values.
func NewAddTopicsToMirrorRequest() AddTopicsToMirrorRequest { return *NewPtrAddTopicsToMirrorRequest() }

// Key returns AddTopicsToMirrorKey.
func (*AddTopicsToMirrorResponse) Key() int16 { return AddTopicsToMirrorKey }

// RequestKind returns an empty AddTopicsToMirrorRequest.
func (v *AddTopicsToMirrorResponse) RequestKind() kmsg.Request {
	r := NewPtrAddTopicsToMirrorRequest()
	r.Version = v.Version
	return r
}

// Throttle returns ThrottleMillis, and that the client has to wait it out.
func (v *AddTopicsToMirrorResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *AddTopicsToMirrorResponse) SetThrottle(throttleMillis int32) {
	v.ThrottleMillis = throttleMillis
}

// AppendTo appends the message in wire form to dst.
func (v *AddTopicsToMirrorResponse) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *AddTopicsToMirrorResponse) ReadFrom(src []byte) error {
	*v = AddTopicsToMirrorResponse{flexible: v.flexible}
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *AddTopicsToMirrorResponse) Default() {}

// NewPtrAddTopicsToMirrorResponse returns a response with its default values.
func NewPtrAddTopicsToMirrorResponse() *AddTopicsToMirrorResponse {
	return new(AddTopicsToMirrorResponse)
}

// NewAddTopicsToMirrorResponse returns a response with its default values.
func NewAddTopicsToMirrorResponse() AddTopicsToMirrorResponse { return AddTopicsToMirrorResponse{} }

// Default does nothing: every field's default is Go's zero value.
func (v *AddTopicsToMirrorRequestTopic) Default() {}

// Default does nothing: every field's default is Go's zero value.
func (v *TopicResult) Default() {}
