package mirrormsg

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ResumeMirrorTopicsRequest resumes the mirroring of paused topics. (From later drafts of the KIP.)
type ResumeMirrorTopicsRequest struct {
	flexible
	patience
	// MirrorName is the mirror that has the topics.
	MirrorName string
	// Topics are the topics.
	Topics []MirrorTopic
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// ResumeMirrorTopicsResponse answers a ResumeMirrorTopicsRequest.
type ResumeMirrorTopicsResponse struct {
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

func (v *ResumeMirrorTopicsRequest) code(c *coder) {
	c.string("MirrorName", &v.MirrorName)
	array(c, &v.Topics, 2)
	c.tags(&v.UnknownTags)
}

func (v *ResumeMirrorTopicsResponse) code(c *coder) {
	c.int32(&v.ThrottleMillis)
	c.int16(&v.ErrorCode)
	c.nullableString(&v.ErrorMessage)
	array(c, &v.Topics, 5)
	c.tags(&v.UnknownTags)
}

// Key returns ResumeMirrorTopicsKey.
func (*ResumeMirrorTopicsRequest) Key() int16 { return ResumeMirrorTopicsKey }

// ResponseKind returns an empty ResumeMirrorTopicsResponse.
func (v *ResumeMirrorTopicsRequest) ResponseKind() kmsg.Response {
	r := NewPtrResumeMirrorTopicsResponse()
	r.Version = v.Version
	return r
}

// RequestWith sends the request through r, a kgo.Client say, and returns the response.
func (v *ResumeMirrorTopicsRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*ResumeMirrorTopicsResponse, error) {
	return requestWith[*ResumeMirrorTopicsResponse](ctx, r, v)
}

// AppendTo appends the message in wire form to dst.
func (v *ResumeMirrorTopicsRequest) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *ResumeMirrorTopicsRequest) ReadFrom(src []byte) error {
	*v = ResumeMirrorTopicsRequest{flexible: v.flexible}
	v.Default()
	return readMessage(src, v)
}

// Default sets the fields whose default is not Go's zero value.
func (v *ResumeMirrorTopicsRequest) Default() {
	v.TimeoutMillis = DefaultTimeoutMillis
}

// NewPtrResumeMirrorTopicsRequest returns a request with its default values.
func NewPtrResumeMirrorTopicsRequest() *ResumeMirrorTopicsRequest {
	v := new(ResumeMirrorTopicsRequest)
	v.Default()
	return v
}

// NewResumeMirrorTopicsRequest returns a request with its default values.
func NewResumeMirrorTopicsRequest() ResumeMirrorTopicsRequest {
	return *NewPtrResumeMirrorTopicsRequest()
}

// Key returns ResumeMirrorTopicsKey.
func (*ResumeMirrorTopicsResponse) Key() int16 { return ResumeMirrorTopicsKey }

// RequestKind returns an empty ResumeMirrorTopicsRequest.
func (v *ResumeMirrorTopicsResponse) RequestKind() kmsg.Request {
	r := NewPtrResumeMirrorTopicsRequest()
	r.Version = v.Version
	return r
}

// Throttle returns ThrottleMillis, and that the client has to wait it out.
func (v *ResumeMirrorTopicsResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *ResumeMirrorTopicsResponse) SetThrottle(throttleMillis int32) {
	v.ThrottleMillis = throttleMillis
}

// AppendTo appends the message in wire form to dst.
func (v *ResumeMirrorTopicsResponse) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *ResumeMirrorTopicsResponse) ReadFrom(src []byte) error {
	*v = ResumeMirrorTopicsResponse{flexible: v.flexible}
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *ResumeMirrorTopicsResponse) Default() {}

// NewPtrResumeMirrorTopicsResponse returns a response with its default values.
func NewPtrResumeMirrorTopicsResponse() *ResumeMirrorTopicsResponse {
	return new(ResumeMirrorTopicsResponse)
}

// NewResumeMirrorTopicsResponse returns a response with its default values.
func NewResumeMirrorTopicsResponse() ResumeMirrorTopicsResponse { return ResumeMirrorTopicsResponse{} }
