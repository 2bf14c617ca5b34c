package mirrormsg

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// PauseMirrorTopicsRequest pauses the mirroring of topics, which stay read-only. (From later drafts of the KIP.)
type PauseMirrorTopicsRequest struct {
	flexible
	patience
	// MirrorName is the mirror that has the topics.
	MirrorName string
	// Topics are the topics.
	Topics []MirrorTopic
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// PauseMirrorTopicsResponse answers a PauseMirrorTopicsRequest.
type PauseMirrorTopicsResponse struct {
	flexible
	// ThrottleMillis is how long the request was throttled, in milliseconds.
	ThrottleMillis int32
	// ErrorCode is the error, or 0.
	ErrorCode int16
	// ErrorMessage is null if there was no error.
	ErrorMessage *string
	// Topics are the results one by one.
	Topics []MirrorTopicResult
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// MirrorTopic names a topic in the requests PauseMirrorTopics and ResumeMirrorTopics.
type MirrorTopic struct {
	// TopicName is the topic's name.
	TopicName string
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// MirrorTopicResult is the outcome for one topic of a PauseMirrorTopics or ResumeMirrorTopics.
type MirrorTopicResult struct {
	// Name is the topic's name.
	Name string
	// ErrorCode is the error, or 0.
	ErrorCode int16
	// ErrorMessage is null if there was no error.
	ErrorMessage *string
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

func (v *PauseMirrorTopicsRequest) code(c *coder) {
	c.string("MirrorName", &v.MirrorName)
	array(c, &v.Topics, 2)
	c.tags(&v.UnknownTags)
}

func (v *PauseMirrorTopicsResponse) code(c *coder) {
	c.int32(&v.ThrottleMillis)
	c.int16(&v.ErrorCode)
	c.nullableString(&v.ErrorMessage)
	array(c, &v.Topics, 5)
	c.tags(&v.UnknownTags)
}

func (v *MirrorTopic) code(c *coder) {
	c.string("TopicName", &v.TopicName)
	c.tags(&v.UnknownTags)
}

func (v *MirrorTopicResult) code(c *coder) {
	c.string("Name", &v.Name)
	c.int16(&v.ErrorCode)
	c.nullableString(&v.ErrorMessage)
	c.tags(&v.UnknownTags)
}

// Key returns PauseMirrorTopicsKey.
func (*PauseMirrorTopicsRequest) Key() int16 { return PauseMirrorTopicsKey }

// ResponseKind returns an empty PauseMirrorTopicsResponse.
func (v *PauseMirrorTopicsRequest) ResponseKind() kmsg.Response {
	r := NewPtrPauseMirrorTopicsResponse()
	r.Version = v.Version
	return r
}

// RequestWith sends the request through r, a kgo.Client say, and returns the response.
func (v *PauseMirrorTopicsRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*PauseMirrorTopicsResponse, error) {
	return requestWith[*PauseMirrorTopicsResponse](ctx, r, v)
}

// AppendTo appends the message in wire form to dst.
func (v *PauseMirrorTopicsRequest) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *PauseMirrorTopicsRequest) ReadFrom(src []byte) error {
	*v = PauseMirrorTopicsRequest{flexible: v.flexible}
	v.Default()
	return readMessage(src, v)
}

// Default sets the fields whose default is not Go's zero value.
func (v *PauseMirrorTopicsRequest) Default() {
	v.TimeoutMillis = DefaultTimeoutMillis
}

// NewPtrPauseMirrorTopicsRequest returns a request with its default values.
func NewPtrPauseMirrorTopicsRequest() *PauseMirrorTopicsRequest {
	v := new(PauseMirrorTopicsRequest)
	v.Default()
	return v
}

// NewPauseMirrorTopicsRequest returns a request with its default values.
func NewPauseMirrorTopicsRequest() PauseMirrorTopicsRequest { return *NewPtrPauseMirrorTopicsRequest() }

// Key returns PauseMirrorTopicsKey.
func (*PauseMirrorTopicsResponse) Key() int16 { return PauseMirrorTopicsKey }

// RequestKind returns an empty PauseMirrorTopicsRequest.
func (v *PauseMirrorTopicsResponse) RequestKind() kmsg.Request {
	r := NewPtrPauseMirrorTopicsRequest()
	r.Version = v.Version
	return r
}

// Throttle returns ThrottleMillis, and that the client has to wait it out.
func (v *PauseMirrorTopicsResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *PauseMirrorTopicsResponse) SetThrottle(throttleMillis int32) {
	v.ThrottleMillis = throttleMillis
}

// AppendTo appends the message in wire form to dst.
func (v *PauseMirrorTopicsResponse) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *PauseMirrorTopicsResponse) ReadFrom(src []byte) error {
	*v = PauseMirrorTopicsResponse{flexible: v.flexible}
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *PauseMirrorTopicsResponse) Default() {}

// NewPtrPauseMirrorTopicsResponse returns a response with its default values.
func NewPtrPauseMirrorTopicsResponse() *PauseMirrorTopicsResponse {
	return new(PauseMirrorTopicsResponse)
}

// NewPauseMirrorTopicsResponse returns a response with its default values.
func NewPauseMirrorTopicsResponse() PauseMirrorTopicsResponse { return PauseMirrorTopicsResponse{} }

// Default does nothing: every field's default is Go's zero value.
func (v *MirrorTopic) Default() {}

// Default does nothing: every field's default is Go's zero value.
func (v *MirrorTopicResult) Default() {}
