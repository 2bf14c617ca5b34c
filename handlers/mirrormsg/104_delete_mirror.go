package mirrormsg

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteMirrorRequest deletes a mirror. (From later drafts of the KIP.)
type DeleteMirrorRequest struct {
	flexible
	patience
	// MirrorName is the mirror to delete.
	MirrorName string
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// DeleteMirrorResponse answers a DeleteMirrorRequest.
type DeleteMirrorResponse struct {
	flexible
	// ThrottleMillis is how long the request was throttled, in milliseconds.
	ThrottleMillis int32
	// ErrorCode is the error, or 0.
	ErrorCode int16
	// ErrorMessage is null if there was no error.
	ErrorMessage *string
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

func (v *DeleteMirrorRequest) code(c *coder) {
	c.string("MirrorName", &v.MirrorName)
	c.tags(&v.UnknownTags)
}

func (v *DeleteMirrorResponse) code(c *coder) {
	c.int32(&v.ThrottleMillis)
	c.int16(&v.ErrorCode)
	c.nullableString(&v.ErrorMessage)
	c.tags(&v.UnknownTags)
}

// Key returns DeleteMirrorKey.
func (*DeleteMirrorRequest) Key() int16 { return DeleteMirrorKey }

// ResponseKind returns an empty DeleteMirrorResponse.
func (v *DeleteMirrorRequest) ResponseKind() kmsg.Response {
	r := NewPtrDeleteMirrorResponse()
	r.Version = v.Version
	return r
}

// RequestWith sends the request through r, a kgo.Client say, and returns the response.
func (v *DeleteMirrorRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*DeleteMirrorResponse, error) {
	return requestWith[*DeleteMirrorResponse](ctx, r, v)
}

// AppendTo appends the message in wire form to dst.
func (v *DeleteMirrorRequest) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *DeleteMirrorRequest) ReadFrom(src []byte) error {
	*v = DeleteMirrorRequest{flexible: v.flexible}
	v.Default()
	return readMessage(src, v)
}

// Default sets the fields whose default is not Go's zero value.
func (v *DeleteMirrorRequest) Default() {
	v.TimeoutMillis = DefaultTimeoutMillis
}

// NewPtrDeleteMirrorRequest returns a request with its default values.
func NewPtrDeleteMirrorRequest() *DeleteMirrorRequest {
	v := new(DeleteMirrorRequest)
	v.Default()
	return v
}

// NewDeleteMirrorRequest returns a request with its default values.
func NewDeleteMirrorRequest() DeleteMirrorRequest { return *NewPtrDeleteMirrorRequest() }

// Key returns DeleteMirrorKey.
func (*DeleteMirrorResponse) Key() int16 { return DeleteMirrorKey }

// RequestKind returns an empty DeleteMirrorRequest.
func (v *DeleteMirrorResponse) RequestKind() kmsg.Request {
	r := NewPtrDeleteMirrorRequest()
	r.Version = v.Version
	return r
}

// Throttle returns ThrottleMillis, and that the client has to wait it out.
func (v *DeleteMirrorResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *DeleteMirrorResponse) SetThrottle(throttleMillis int32) { v.ThrottleMillis = throttleMillis }

// AppendTo appends the message in wire form to dst.
func (v *DeleteMirrorResponse) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *DeleteMirrorResponse) ReadFrom(src []byte) error {
	*v = DeleteMirrorResponse{flexible: v.flexible}
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *DeleteMirrorResponse) Default() {}

// NewPtrDeleteMirrorResponse returns a response with its default values.
func NewPtrDeleteMirrorResponse() *DeleteMirrorResponse { return new(DeleteMirrorResponse) }

// NewDeleteMirrorResponse returns a response with its default values.
func NewDeleteMirrorResponse() DeleteMirrorResponse { return DeleteMirrorResponse{} }
