package mirrormsg

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListMirrorsRequest asks for all mirrors.
type ListMirrorsRequest struct {
	flexible
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// ListMirrorsResponse answers a ListMirrorsRequest.
type ListMirrorsResponse struct {
	flexible
	// ThrottleMillis is how long the request was throttled, in milliseconds.
	ThrottleMillis int32
	// ErrorCode is the error, or 0.
	ErrorCode int16
	// Mirrors are the mirrors.
	Mirrors []ListMirrorsResponseMirror
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// ListMirrorsResponseMirror is a mirror in a ListMirrorsResponse.
type ListMirrorsResponseMirror struct {
	// MirrorName is the mirror's name.
	MirrorName string
	// SourceBootstrap is the bootstrap servers of its source.
	SourceBootstrap string
	// TopicCount is the number of its topics, those removed not counted.
	TopicCount int32
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

func (v *ListMirrorsRequest) code(c *coder) { c.tags(&v.UnknownTags) }

func (v *ListMirrorsResponse) code(c *coder) {
	c.int32(&v.ThrottleMillis)
	c.int16(&v.ErrorCode)
	array(c, &v.Mirrors, 7)
	c.tags(&v.UnknownTags)
}

func (v *ListMirrorsResponseMirror) code(c *coder) {
	c.string("MirrorName", &v.MirrorName)
	c.string("SourceBootstrap", &v.SourceBootstrap)
	c.int32(&v.TopicCount)
	c.tags(&v.UnknownTags)
}

// Key returns ListMirrorsKey.
func (*ListMirrorsRequest) Key() int16 { return ListMirrorsKey }

// ResponseKind returns an empty ListMirrorsResponse.
func (v *ListMirrorsRequest) ResponseKind() kmsg.Response {
	r := NewPtrListMirrorsResponse()
	r.Version = v.Version
	return r
}

// RequestWith sends the request through r, a kgo.Client say, and returns the response.
func (v *ListMirrorsRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*ListMirrorsResponse, error) {
	return requestWith[*ListMirrorsResponse](ctx, r, v)
}

// AppendTo appends the message in wire form to dst.
func (v *ListMirrorsRequest) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *ListMirrorsRequest) ReadFrom(src []byte) error {
	*v = ListMirrorsRequest{flexible: v.flexible}
	v.Default()
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *ListMirrorsRequest) Default() {}

// NewPtrListMirrorsRequest returns a request with its default values.
func NewPtrListMirrorsRequest() *ListMirrorsRequest {
	v := new(ListMirrorsRequest)
	v.Default()
	return v
}

// NewListMirrorsRequest returns a request with its default values.
func NewListMirrorsRequest() ListMirrorsRequest { return *NewPtrListMirrorsRequest() }

// Key returns ListMirrorsKey.
func (*ListMirrorsResponse) Key() int16 { return ListMirrorsKey }

// RequestKind returns an empty ListMirrorsRequest.
func (v *ListMirrorsResponse) RequestKind() kmsg.Request {
	r := NewPtrListMirrorsRequest()
	r.Version = v.Version
	return r
}

// Throttle returns ThrottleMillis, and that the client has to wait it out.
func (v *ListMirrorsResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *ListMirrorsResponse) SetThrottle(throttleMillis int32) { v.ThrottleMillis = throttleMillis }

// AppendTo appends the message in wire form to dst.
func (v *ListMirrorsResponse) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *ListMirrorsResponse) ReadFrom(src []byte) error {
	*v = ListMirrorsResponse{flexible: v.flexible}
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *ListMirrorsResponse) Default() {}

// NewPtrListMirrorsResponse returns a response with its default values.
func NewPtrListMirrorsResponse() *ListMirrorsResponse { return new(ListMirrorsResponse) }

// NewListMirrorsResponse returns a response with its default values.
func NewListMirrorsResponse() ListMirrorsResponse { return ListMirrorsResponse{} }

// Default does nothing: every field's default is Go's zero value.
func (v *ListMirrorsResponseMirror) Default() {}
