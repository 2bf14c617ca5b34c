package mirrormsg

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// The API keys of the mirror RPCs. 96 to 101 are in the KIP's text, 95 is its authors' number, 102 to 104 come from later
// drafts. The authors' number for CreateMirror, 94, is UnregisterController since Kafka 4.4; hence 107.
const (
	AddTopicsToMirrorKey      int16 = 95
	RemoveTopicsFromMirrorKey int16 = 96
	LastMirroredOffsetsKey    int16 = 97
	ListMirrorsKey            int16 = 98
	DescribeMirrorsKey        int16 = 99
	ReadMirrorStatesKey       int16 = 100
	WriteMirrorStatesKey      int16 = 101
	PauseMirrorTopicsKey      int16 = 102
	ResumeMirrorTopicsKey     int16 = 103
	DeleteMirrorKey           int16 = 104
	CreateMirrorKey           int16 = 107
)

const createTopicsKey = int16(kmsg.CreateTopics)

var names = map[int16]string{
	AddTopicsToMirrorKey:      "AddTopicsToMirror",
	RemoveTopicsFromMirrorKey: "RemoveTopicsFromMirror",
	LastMirroredOffsetsKey:    "LastMirroredOffsets",
	ListMirrorsKey:            "ListMirrors",
	DescribeMirrorsKey:        "DescribeMirrors",
	ReadMirrorStatesKey:       "ReadMirrorStates",
	WriteMirrorStatesKey:      "WriteMirrorStates",
	PauseMirrorTopicsKey:      "PauseMirrorTopics",
	ResumeMirrorTopicsKey:     "ResumeMirrorTopics",
	DeleteMirrorKey:           "DeleteMirror",
	CreateMirrorKey:           "CreateMirror",
}

// Keys returns the default API keys of all mirror RPCs, in ascending order.
func Keys() []int16 { return slices.Sorted(maps.Keys(names)) }

// Name returns the name of the mirror RPC that has key by default, "" for other keys.
func Name(key int16) string { return names[key] }

// Versions returns kversion.Stable with the mirror RPCs, CreateTopics up to version 8, and the keys in moved (for
// WithKey) at version 0, for kgo.MaxVersions.
func Versions(moved ...int16) *kversion.Versions {
	versions := kversion.Stable()
	for _, key := range append(Keys(), moved...) {
		versions.SetMaxKeyVersion(key, 0)
	}
	versions.SetMaxKeyVersion(createTopicsKey, CreateTopicsVersion)
	return versions
}

// WithKey returns req under another API key, for gateways whose configuration moves keys. The response is of the same
// type as req's own.
func WithKey(req kmsg.Request, key int16) kmsg.Request { return &keyed{req, key} }

type keyed struct {
	kmsg.Request
	key int16
}

// Key returns the key that was given to WithKey.
func (k *keyed) Key() int16 { return k.key }

// Timeout makes keyed a kmsg.TimeoutRequest, so that long requests keep their time.
func (k *keyed) Timeout() int32 {
	if t, ok := k.Request.(kmsg.TimeoutRequest); ok {
		return t.Timeout()
	}
	return 0
}

// flexible has what all messages share: they have version 0 alone, which is flexible.
type flexible struct {
	// Version is the version of the message; 0 is the only one.
	Version int16
}

// MaxVersion returns 0, the only version.
func (f *flexible) MaxVersion() int16 { return 0 }

// SetVersion sets the version; kgo calls it before it sends.
func (f *flexible) SetVersion(version int16) { f.Version = version }

// GetVersion returns the version set.
func (f *flexible) GetVersion() int16 { return f.Version }

// IsFlexible returns true: compact types, tagged fields, request header v2, response header v1.
func (f *flexible) IsFlexible() bool { return true }

// DefaultTimeoutMillis is the TimeoutMillis of new requests that have one.
const DefaultTimeoutMillis int32 = 60_000

// patience is how long the answer to a request may take. It makes the request a kmsg.TimeoutRequest: kgo then waits that
// much longer than its RequestTimeoutOverhead, and uses a connection on which no other requests wait behind this one.
type patience struct {
	// TimeoutMillis is how long the client waits for the answer, in milliseconds, beyond its usual request timeout.
	// It is not sent: the KIP's messages have no such field.
	TimeoutMillis int32
}

// Timeout returns TimeoutMillis.
func (p *patience) Timeout() int32 { return p.TimeoutMillis }

// SetTimeout sets TimeoutMillis.
func (p *patience) SetTimeout(timeoutMillis int32) { p.TimeoutMillis = timeoutMillis }
