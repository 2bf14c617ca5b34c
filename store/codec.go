package store

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// formatVersion is the version of the values that this build writes. Values of a newer version are kept and not
// touched; see docs/state-log.md.
const formatVersion = 1

// ErrNewer says that a record was written by a newer version of the gateway, which this one must not overwrite.
var ErrNewer = errors.New("the record was written by a newer version of the gateway")

// hexID is a topic ID as it is in the log: 32 hex digits.
type hexID [16]byte

func (id hexID) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(id[:])), nil }

func (id *hexID) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(id[:], text[:min(len(text), 32)]); err != nil || n != 16 || len(text) != 32 {
		return fmt.Errorf("%q is not a topic ID of 32 hex digits", text)
	}
	return nil
}

type plainTopic Topic

type wireTopic struct {
	plainTopic
	SourceID      hexID  `json:"sourceId"`
	DestinationID hexID  `json:"destinationId"`
	OriginID      *hexID `json:"originId,omitempty"`
}

// MarshalJSON writes the topic IDs as hex.
func (t Topic) MarshalJSON() ([]byte, error) {
	w := wireTopic{plainTopic(t), hexID(t.SourceID), hexID(t.DestinationID), nil}
	if t.OriginID != ([16]byte{}) {
		w.OriginID = (*hexID)(&t.OriginID)
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *Topic) UnmarshalJSON(data []byte) error {
	w := wireTopic{plainTopic: plainTopic{ProducerID: -1}}
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*t = Topic(w.plainTopic)
	t.SourceID, t.DestinationID = w.SourceID, w.DestinationID
	if w.OriginID != nil {
		t.OriginID = *w.OriginID
	}
	return nil
}

type plainTopicID TopicID

type wireTopicID struct {
	plainTopicID
	SourceID      hexID `json:"sourceId"`
	DestinationID hexID `json:"destinationId"`
}

// MarshalJSON writes the topic IDs as hex.
func (t TopicID) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireTopicID{plainTopicID(t), hexID(t.SourceID), hexID(t.DestinationID)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *TopicID) UnmarshalJSON(data []byte) error {
	var w wireTopicID
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*t = TopicID(w.plainTopicID)
	t.SourceID, t.DestinationID = w.SourceID, w.DestinationID
	return nil
}

// encode returns the JSON value of a record: an object with "v" first.
func encode(key Key, value any, seal *sealer) ([]byte, error) {
	if m, ok := value.(*Mirror); ok {
		sealed := *m
		sealed.Config = seal.seal(m.Name, m.Config)
		value = &sealed
	}
	body, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", key, err)
	}
	return append(fmt.Appendf(nil, `{"v":%d,`, formatVersion), body[1:]...), nil
}

// decode reads a value. It returns ErrNewer for a newer version; a value that came with another error and is not nil
// is usable (a secret could not be opened).
func decode(key Key, data []byte, seal *sealer) (any, error) {
	var version struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, err
	}
	if version.V > formatVersion {
		return nil, ErrNewer
	}
	value := newValue(key.Kind)
	if err := json.Unmarshal(data, value); err != nil {
		return nil, err
	}
	if !matches(key, value) {
		return nil, fmt.Errorf("the value is not that of %s", key)
	}
	if m, ok := value.(*Mirror); ok {
		config, err := seal.open(m.Name, m.Config)
		m.Config = config
		return m, err
	}
	return value, nil
}

func newValue(kind Kind) any {
	switch kind {
	case KindMirror:
		return new(Mirror)
	case KindTopic:
		return new(Topic)
	case KindPartition:
		return new(Partition)
	case KindTopicID:
		return new(TopicID)
	case KindACLs:
		return new(ACLs)
	case KindClaim:
		return new(Claim)
	default:
		return new(Producer)
	}
}

// matches reports whether value is what key names: an update must not move a record.
func matches(key Key, value any) bool {
	switch v := value.(type) {
	case *Mirror:
		return key == MirrorKey(v.Name)
	case *Topic:
		return key == TopicKey(v.Mirror, v.Name)
	case *Partition:
		return key == PartitionKey(v.Mirror, v.Topic, v.Partition)
	case *TopicID:
		return key == TopicIDKey(v.Name)
	case *ACLs:
		return key == ACLsKey(v.Mirror)
	case *Claim:
		return key == ClaimKey(v.Topic)
	case *Producer:
		return key.Kind == KindProducer && key.ID == v.ID
	}
	return false
}

// clone copies a value deeply: what the view holds is shared and never changed.
func clone(value any) any {
	switch v := value.(type) {
	case *Mirror:
		c := v.clone()
		return &c
	case *Topic:
		c := v.clone()
		return &c
	case *Partition:
		c := v.clone()
		return &c
	case *TopicID:
		c := *v
		return &c
	case *ACLs:
		return &ACLs{v.Mirror, slices.Clone(v.Added)}
	case *Claim:
		c := *v
		return &c
	}
	return nil
}

func (m *Mirror) clone() Mirror {
	c := *m
	c.Config = maps.Clone(m.Config)
	return c
}

func (p *Partition) clone() Partition {
	c := *p
	c.SourceEpochs = slices.Clone(p.SourceEpochs)
	return c
}

func (t *Topic) clone() Topic {
	c := *t
	c.PastProducerIDs = slices.Clone(t.PastProducerIDs)
	c.Restore = maps.Clone(t.Restore)
	c.Synced = slices.Clone(t.Synced)
	c.Failback = t.Failback.clone()
	return c
}
