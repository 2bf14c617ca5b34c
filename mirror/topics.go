package mirror

import "time"

// Topic is what the client path knows of one mirror topic.
type Topic struct {
	Name   string
	Mirror string
	// SourceID is the ID that clients of the gateway see. Zero where the source has no topic IDs.
	SourceID TopicID
	// DestinationID is the ID that the destination cluster gave to its topic.
	DestinationID TopicID
	State         State
	// EpochBase is added to the destination's leader epochs where clients see them, 0 for a topic that is no mirror: see
	// EpochBaseOf.
	EpochBase int32
	// ReadOnly: requests that change the topic are refused (every state but STOPPED).
	ReadOnly bool
	// WritersWait is until when producers to a read-only topic wait instead of being refused; zero: they do not.
	WritersWait time.Time
}

// Topics is an immutable snapshot of all mirror topics (and of ordinary topics created with a given ID by CreateTopics
// v8), made anew on each change and read by event loops without locks.
type Topics struct {
	byName        map[string]*Topic
	bySource      map[TopicID]*Topic
	byDestination map[TopicID]*Topic
	byID          map[TopicID]*Topic
	producers     map[int64]struct{}
	readOnly      bool
	shifted       bool
	replaced      chan struct{}
}

// epochLevelBits are the bits of a leader epoch below the level of a mirror. No partition changes its leader so often.
const epochLevelBits = 24

// maxEpochLevel is the highest level: behind that many mirrors in a row, the epochs of two are the same.
const maxEpochLevel = 1<<(31-epochLevelBits) - 1

// EpochBaseOf returns what is added to the destination's leader epochs of a mirror topic of some level: 1 for a topic of a
// plain cluster, one more than the source's for the mirror of a mirror. So a client that goes from a source to its mirror
// never meets an epoch below those that it knows.
func EpochBaseOf(level int8) int32 { return int32(max(level, 1)) << epochLevelBits }

// EpochLevel returns the level of a mirror whose source shows leader epochs of up to epoch, -1 for none.
func EpochLevel(epoch int32) int8 { return int8(min(max(epoch, 0)>>epochLevelBits+1, maxEpochLevel)) }

// NewTopics makes a snapshot. producers are all producer IDs that the gateway ever used for mirrors, by which filler
// batches are recognised.
func NewTopics(topics []Topic, producers []int64) *Topics {
	t := &Topics{
		byName:        make(map[string]*Topic, len(topics)),
		bySource:      make(map[TopicID]*Topic, len(topics)),
		byDestination: make(map[TopicID]*Topic, len(topics)),
		byID:          make(map[TopicID]*Topic, 2*len(topics)),
		producers:     make(map[int64]struct{}, len(producers)),
		replaced:      make(chan struct{}),
	}
	for i := range topics {
		topic := &topics[i]
		t.byName[topic.Name] = topic
		if topic.SourceID != (TopicID{}) && topic.DestinationID != (TopicID{}) && topic.SourceID != topic.DestinationID {
			t.bySource[topic.SourceID] = topic
			t.byDestination[topic.DestinationID] = topic
		}
		if topic.DestinationID != (TopicID{}) {
			t.byID[topic.DestinationID] = topic
		}
		t.readOnly = t.readOnly || topic.ReadOnly
		t.shifted = t.shifted || topic.EpochBase > 0
	}
	for i := range topics { // last, as source IDs are those that clients use
		if id := topics[i].SourceID; id != (TopicID{}) {
			t.byID[id] = &topics[i]
		}
	}
	for _, id := range producers {
		t.producers[id] = struct{}{}
	}
	return t
}

// epochLevel returns the level of a new incarnation of a mirror topic whose source asks for level: not below that which
// clients have seen.
func (m *Manager) epochLevel(topic string, level int8) int8 {
	for _, rec := range m.records.Topics("") {
		if rec.Name == topic {
			level = max(level, rec.EpochLevel)
		}
	}
	return level
}

// ByName returns the topic of that name, or nil.
func (t *Topics) ByName(name string) *Topic { return t.byName[name] }

// BySourceID returns the topic that clients know by id, or nil if id needs no translation.
func (t *Topics) BySourceID(id TopicID) *Topic { return t.bySource[id] }

// ByDestinationID returns the topic that the destination knows by id, or nil if id needs no translation.
func (t *Topics) ByDestinationID(id TopicID) *Topic { return t.byDestination[id] }

// ByID returns the topic that has id, at the source or at the destination, also where the two do not differ; or nil.
func (t *Topics) ByID(id TopicID) *Topic { return t.byID[id] }

// TranslatesIDs reports whether any topic's ID differs between clients and destination.
func (t *Topics) TranslatesIDs() bool { return len(t.bySource) > 0 }

// ShiftsEpochs reports whether leader epochs of any topic differ between clients and destination.
func (t *Topics) ShiftsEpochs() bool { return t.shifted }

// Replaced is closed when there is a newer snapshot.
func (t *Topics) Replaced() <-chan struct{} { return t.replaced }

// AnyReadOnly reports whether any topic refuses changes.
func (t *Topics) AnyReadOnly() bool { return t.readOnly }

// IsProducer reports whether id is a producer ID of a mirror, present or past.
func (t *Topics) IsProducer(id int64) bool { _, ok := t.producers[id]; return ok }

// AnyProducers reports whether the destination can hold batches of a mirror at all.
func (t *Topics) AnyProducers() bool { return len(t.producers) > 0 }
