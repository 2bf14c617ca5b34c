package mirrormsg

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopicsVersion is the version of CreateTopics that has MirrorInfo. Its response has the layout of version 7.
const CreateTopicsVersion int16 = 8

// CreateTopicsRequest is CreateTopics (key 19) with version 8, which can give a new topic its ID. The KIP shows the new
// field without its place; here it is the last field of a topic, since an ID belongs to one topic.
//
// MirrorInfo is "ignorable": at a version below 8 it is left out and the topic gets an ID of the broker's. So a client
// that needs it must make sure of the version, with kgo.MinVersions or from ApiVersions.
type CreateTopicsRequest struct {
	// Version is the version of the message; kgo sets it.
	Version int16
	// Topics are the topics to create.
	Topics []CreateTopicsRequestTopic
	// TimeoutMillis is how long the broker may take, in milliseconds. Default 60,000.
	TimeoutMillis int32
	// ValidateOnly: check everything, create nothing.
	ValidateOnly bool
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// CreateTopicsRequestTopic is a topic to create.
type CreateTopicsRequestTopic struct {
	kmsg.CreateTopicsRequestTopic
	// MirrorInfo is null for an ordinary topic. Version 8.
	MirrorInfo *MirrorInfo
}

// MirrorInfo is what a topic that mirrors another takes over from it.
type MirrorInfo struct {
	// TopicID is the topic's ID at the source; zero = an ordinary topic.
	TopicID [16]byte
	// UnknownTags are tags that this package does not know.
	UnknownTags kmsg.Tags
}

// Key returns 19.
func (*CreateTopicsRequest) Key() int16 { return createTopicsKey }

// MaxVersion returns 8.
func (*CreateTopicsRequest) MaxVersion() int16 { return CreateTopicsVersion }

// SetVersion sets the version; kgo calls it before it sends.
func (v *CreateTopicsRequest) SetVersion(version int16) { v.Version = version }

// GetVersion returns the version set.
func (v *CreateTopicsRequest) GetVersion() int16 { return v.Version }

// IsFlexible returns whether the version is a flexible one, which it is from 5 on.
func (v *CreateTopicsRequest) IsFlexible() bool { return v.Version >= 5 }

// Timeout returns TimeoutMillis.
func (v *CreateTopicsRequest) Timeout() int32 { return v.TimeoutMillis }

// SetTimeout sets TimeoutMillis.
func (v *CreateTopicsRequest) SetTimeout(timeoutMillis int32) { v.TimeoutMillis = timeoutMillis }

// IsAdminRequest marks a request that goes to the controller.
func (*CreateTopicsRequest) IsAdminRequest() {}

// ResponseKind returns an empty kmsg.CreateTopicsResponse, which fits version 8 too.
func (v *CreateTopicsRequest) ResponseKind() kmsg.Response {
	r := kmsg.NewPtrCreateTopicsResponse()
	r.Version = v.Version
	return r
}

// RequestWith sends the request through r, a kgo.Client say, and returns the response.
func (v *CreateTopicsRequest) RequestWith(ctx context.Context, r kmsg.Requestor) (*kmsg.CreateTopicsResponse, error) {
	return requestWith[*kmsg.CreateTopicsResponse](ctx, r, v)
}

// Ordinary returns the request without MirrorInfo, at the version set but at most 7. It shares memory with v.
func (v *CreateTopicsRequest) Ordinary() *kmsg.CreateTopicsRequest {
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Version = min(v.Version, CreateTopicsVersion-1)
	r.TimeoutMillis, r.ValidateOnly, r.UnknownTags = v.TimeoutMillis, v.ValidateOnly, v.UnknownTags
	for i := range v.Topics {
		r.Topics = append(r.Topics, v.Topics[i].CreateTopicsRequestTopic)
	}
	return r
}

// AppendTo appends the message in wire form to dst.
func (v *CreateTopicsRequest) AppendTo(dst []byte) []byte {
	if v.Version < CreateTopicsVersion {
		return v.Ordinary().AppendTo(dst)
	}
	return appendMessage(dst, v)
}

// ReadFrom reads the message from all of src.
func (v *CreateTopicsRequest) ReadFrom(src []byte) error {
	version := v.Version
	*v = CreateTopicsRequest{Version: version}
	v.Default()
	if version > CreateTopicsVersion {
		return errors.New("CreateTopics has no version above 8")
	}
	if version == CreateTopicsVersion {
		return readMessage(src, v)
	}
	ordinary := kmsg.CreateTopicsRequest{Version: version}
	if err := ordinary.ReadFrom(src); err != nil {
		return err
	}
	v.TimeoutMillis, v.ValidateOnly, v.UnknownTags = ordinary.TimeoutMillis, ordinary.ValidateOnly, ordinary.UnknownTags
	for i := range ordinary.Topics {
		v.Topics = append(v.Topics, CreateTopicsRequestTopic{CreateTopicsRequestTopic: ordinary.Topics[i]})
	}
	return nil
}

// Default sets TimeoutMillis to 60,000.
func (v *CreateTopicsRequest) Default() { v.TimeoutMillis = DefaultTimeoutMillis }

// NewPtrCreateTopicsRequest returns a request with its default values.
func NewPtrCreateTopicsRequest() *CreateTopicsRequest {
	v := new(CreateTopicsRequest)
	v.Default()
	return v
}

func (v *CreateTopicsRequest) code(c *coder) {
	array(c, &v.Topics, 11)
	c.int32(&v.TimeoutMillis)
	c.bool(&v.ValidateOnly)
	c.tags(&v.UnknownTags)
}

// Default does nothing: every default is Go's zero value.
func (v *CreateTopicsRequestTopic) Default() {}

func (v *CreateTopicsRequestTopic) code(c *coder) {
	c.string("Name", &v.Topic)
	c.int32(&v.NumPartitions)
	c.int16(&v.ReplicationFactor)
	elements(c, &v.ReplicaAssignment, 6, func(v *kmsg.CreateTopicsRequestTopicReplicaAssignment) {
		c.int32(&v.Partition)
		elements(c, &v.Replicas, 4, c.int32)
		c.tags(&v.UnknownTags)
	})
	elements(c, &v.Configs, 3, func(v *kmsg.CreateTopicsRequestTopicConfig) {
		c.string("Configs.Name", &v.Name)
		c.nullableString(&v.Value)
		c.tags(&v.UnknownTags)
	})
	nullableStruct(c, &v.MirrorInfo)
	c.tags(&v.UnknownTags)
}

func (v *MirrorInfo) code(c *coder) {
	c.uuid(&v.TopicID)
	c.tags(&v.UnknownTags)
}

// nullableStruct codes a structure that may be null: one byte, negative for null, then the structure.
func nullableStruct[T any, P interface {
	*T
	coded
}](c *coder, v **T) {
	present := int8(1)
	if *v == nil {
		present = -1
	}
	c.int8(&present)
	if present < 0 || !c.ok() {
		return
	}
	if c.reading {
		*v = new(T)
	}
	P(*v).code(c)
}
