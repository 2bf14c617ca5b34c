package store

// Kind tells the records of the state log apart.
type Kind uint8

// The kinds of records.
const (
	KindMirror    Kind = iota + 1 // a mirror and its configuration
	KindTopic                     // a topic of a mirror, present or stopped
	KindPartition                 // a partition of such a topic
	KindTopicID                   // an ordinary topic created with a given ID (CreateTopics v8)
	KindProducer                  // a producer ID that writes a state partition
	KindACLs                      // the ACLs that a mirror added at the destination
	KindClaim                     // which mirror may write a topic of the destination
)

// Key names a record. Topic and Partition are set only for the kinds that have them; for KindTopicID and KindClaim,
// Mirror is empty.
// For KindProducer, Partition is the state partition, and only ID is set besides.
type Key struct {
	Kind      Kind
	Mirror    string
	Topic     string
	Partition int32
	ID        int64
}

// Mirror is the record of a mirror.
type Mirror struct {
	Name            string            `json:"name"`
	Config          map[string]string `json:"config"`
	SourceClusterID string            `json:"sourceClusterId"`
	CreatedMs       int64             `json:"createdMs"`
}

// Topic is the record of a topic in a mirror.
type Topic struct {
	Mirror        string   `json:"mirror"`
	Name          string   `json:"name"`
	SourceID      [16]byte `json:"sourceId"`      // written as hex
	DestinationID [16]byte `json:"destinationId"` // zero until created
	// OriginID is the ID that the source's cluster gave to its topic. It is SourceID, except where the source is a gateway whose
	// topic is a mirror; and zero if it is not known.
	OriginID   [16]byte `json:"originId"` // written as hex
	Partitions int32    `json:"partitions"`
	// ProducerID writes this incarnation of the mirror topic; -1 until one was taken. A later start takes a new one.
	ProducerID int64 `json:"producerId"`
	// PastProducerIDs are those of earlier incarnations, by which their fillers are recognised.
	PastProducerIDs []int64 `json:"pastProducerIds,omitempty"`
	// EpochLevel says how far the leader epochs that clients see are above the destination's (mirror.EpochBaseOf); 0 is 1.
	EpochLevel int8 `json:"epochLevel,omitempty"`
	// State is the wanted state: INITIALIZING until the destination topic is there, then MIRRORING, STOPPING,
	// STOPPED (wire values of mirror.State).
	State int8 `json:"state"`
	// Restore holds the source's own values of the settings that are held while mirroring (timestamps, compression,
	// message size), so that a stop needs no source. A held setting that is not here had no value of its own at the
	// source.
	Restore map[string]string `json:"restore,omitempty"`
	// Removed: the STOPPED topic no longer belongs to the mirror (WriteMirrorStates' RemovedTopics). The record stays
	// for its IDs, which clients go on using, and its producer IDs.
	Removed bool `json:"removed,omitempty"`
	// Joined: the topic came by mirror.topics.include, and leaves by mirror.topics.exclude.
	Joined bool `json:"joined,omitempty"`
	// Synced are the topic configs that were taken over from the source, sorted. One that the source has no more is reset.
	Synced []string `json:"synced,omitempty"`
	// Failback: the destination topic was there before; nil once it is mirrored, or if it was not.
	Failback *Failback `json:"failback,omitempty"`
}

// Partition is the record of a mirror partition: what must survive a restart. The position is not here: the
// destination's log end is.
type Partition struct {
	Mirror    string `json:"mirror"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	State     int8   `json:"state"`
	Reason    string `json:"reason,omitempty"`
	// LastMirrored is the offset after the last mirrored record, set when the partition stops; -1 before.
	LastMirrored int64 `json:"lastMirrored"`
	// Continued is where the mirror went on in a destination topic that was there before: what is below was not written by
	// it, but is the same at the source. 0: it began with an empty log.
	Continued int64 `json:"continued,omitempty"`
	// SourceEpochs are the newest leader epochs of the source under which mirrored records were written, oldest first.
	// They hold for offsets below SourceEpochsEnd; what was mirrored since may be of later epochs.
	SourceEpochs    []SourceEpoch `json:"sourceEpochs,omitempty"`
	SourceEpochsEnd int64         `json:"sourceEpochsEnd,omitempty"`
	// SourceStart is the highest start of the source's log that the mirror may have followed. It counts even if the source
	// forgets the deletion.
	SourceStart int64 `json:"sourceStart,omitempty"`
	// SourceEnd is where the source's log ended as last heard, SourceEndMs when that was, by the clock of the gateway in
	// milliseconds since 1970; 0 = never. They are written when the partition stops, and when the source is silent.
	SourceEnd   int64 `json:"sourceEnd,omitempty"`
	SourceEndMs int64 `json:"sourceEndMs,omitempty"`
	// StoppedMs is when the partition was fenced, by the same clock; 0 before.
	StoppedMs int64 `json:"stoppedMs,omitempty"`
}

// SourceEpoch is a leader epoch of a source partition. Start is where it begins in the mirror, or below that, but not
// below the end of the epoch before it.
type SourceEpoch struct {
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
}

// TopicID is the record of an ordinary topic that clients know by a given ID.
type TopicID struct {
	Name          string   `json:"name"`
	SourceID      [16]byte `json:"sourceId"`
	DestinationID [16]byte `json:"destinationId"` // zero until confirmed
}

// ACLs is the record of the ACLs that a mirror added at the destination, and may therefore remove.
type ACLs struct {
	Mirror string `json:"mirror"`
	// Added has one hash of 8 bytes for each, sorted, one behind the other.
	Added []byte `json:"added"`
}

// Claim is the record of the one mirror that may write a topic of the destination. Mirrors have their records in
// different partitions of the log, so that only a record of the topic's own can decide between two of them.
type Claim struct {
	Topic  string `json:"topic"`
	Mirror string `json:"mirror"`
	// ProducerID is that of the incarnation of the mirror topic that has the claim.
	ProducerID int64 `json:"producerId"`
	// Confirmed: the mirror topic is at work, and only its end releases the claim.
	Confirmed bool `json:"confirmed,omitempty"`
	// ClaimedMs is when it was claimed, by the clock of the gateway.
	ClaimedMs int64 `json:"claimedMs"`
}

// Producer is the record of a producer ID that writes a state partition; the newest valid one of a partition is in
// force. It is the store's own: Update refuses it.
type Producer struct {
	ID int64 `json:"id"`
}
