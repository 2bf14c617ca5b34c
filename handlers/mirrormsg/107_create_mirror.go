package mirrormsg

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateMirrorRequest creates a mirror, without topics.
type CreateMirrorRequest struct {
	flexible
	patience
	// MirrorName is the name of the new mirror: 1 to 249 of [a-zA-Z0-9._-]. Null is refused.
	MirrorName *string
	// Config is the mirror's configuration: how to reach the source, and what to mirror.
	Config []CreateMirrorRequestConfig
	// ValidateOnly: check everything, create nothing (tagged field 0, beyond the KIP).
	ValidateOnly bool
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// CreateMirrorRequestConfig is a setting of a mirror.
type CreateMirrorRequestConfig struct {
	// Name is the key of the setting.
	Name string
	// Value is its value. Null is refused.
	Value *string
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// CreateMirrorResponse answers a CreateMirrorRequest.
type CreateMirrorResponse struct {
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

func (v *CreateMirrorRequest) code(c *coder) {
	c.nullableString(&v.MirrorName)
	array(c, &v.Config, 3)
	c.tags(&v.UnknownTags, tag{v.ValidateOnly, func(c *coder) { c.bool(&v.ValidateOnly) }})
}

func (v *CreateMirrorRequestConfig) code(c *coder) {
	c.string("Name", &v.Name)
	c.nullableString(&v.Value)
	c.tags(&v.UnknownTags)
}

func (v *CreateMirrorResponse) code(c *coder) {
	c.int32(&v.ThrottleMillis)
	c.int16(&v.ErrorCode)
	c.nullableString(&v.ErrorMessage)
	c.tags(&v.UnknownTags)
}

// Key returns CreateMirrorKey.
func (*CreateMirrorRequest) Key() int16 { return CreateMirrorKey }

// ResponseKind returns an empty CreateMirrorResponse.
func (v *CreateMirrorRequest) ResponseKind() kmsg.Response {
	r := NewPtrCreateMirrorResponse()
	r.Version = v.Version
	return r
}

// RequestWith sends the request through r, a kgo.Client say, and returns the response.
func (v *CreateMirrorRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*CreateMirrorResponse, error) {
	return requestWith[*CreateMirrorResponse](ctx, r, v)
}

// AppendTo appends the message in wire form to dst.
func (v *CreateMirrorRequest) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *CreateMirrorRequest) ReadFrom(src []byte) error {
	*v = CreateMirrorRequest{flexible: v.flexible}
	v.Default()
	return readMessage(src, v)
}

// Default sets the fields whose default is not Go's zero value.
func (v *CreateMirrorRequest) Default() {
	v.TimeoutMillis = DefaultTimeoutMillis
}

// NewPtrCreateMirrorRequest returns a request with its default values.
func NewPtrCreateMirrorRequest() *CreateMirrorRequest {
	v := new(CreateMirrorRequest)
	v.Default()
	return v
}

// NewCreateMirrorRequest returns a request with its default values.
func NewCreateMirrorRequest() CreateMirrorRequest { return *NewPtrCreateMirrorRequest() }

// Key returns CreateMirrorKey.
func (*CreateMirrorResponse) Key() int16 { return CreateMirrorKey }

// RequestKind returns an empty CreateMirrorRequest.
func (v *CreateMirrorResponse) RequestKind() kmsg.Request {
	r := NewPtrCreateMirrorRequest()
	r.Version = v.Version
	return r
}

// Throttle returns ThrottleMillis, and that the client has to wait it out.
func (v *CreateMirrorResponse) Throttle() (int32, bool) { return v.ThrottleMillis, true }

// SetThrottle sets ThrottleMillis.
func (v *CreateMirrorResponse) SetThrottle(throttleMillis int32) { v.ThrottleMillis = throttleMillis }

// AppendTo appends the message in wire form to dst.
func (v *CreateMirrorResponse) AppendTo(dst []byte) []byte { return appendMessage(dst, v) }

// ReadFrom reads the message from all of src.
func (v *CreateMirrorResponse) ReadFrom(src []byte) error {
	*v = CreateMirrorResponse{flexible: v.flexible}
	return readMessage(src, v)
}

// Default does nothing: every field's default is Go's zero value.
func (v *CreateMirrorResponse) Default() {}

// NewPtrCreateMirrorResponse returns a response with its default values.
func NewPtrCreateMirrorResponse() *CreateMirrorResponse { return new(CreateMirrorResponse) }

// NewCreateMirrorResponse returns a response with its default values.
func NewCreateMirrorResponse() CreateMirrorResponse { return CreateMirrorResponse{} }

// Default does nothing: every field's default is Go's zero value.
func (v *CreateMirrorRequestConfig) Default() {}
