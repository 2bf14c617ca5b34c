package appendlog

// Partition identifies the log and its one writer identity.
type Partition struct {
	Topic     string
	Partition int32
	// TopicID is the ID of the topic, zero if it is not known. With it, nothing is written to another topic of the same name
	// that was made later, where the broker takes IDs in Produce (Kafka 4.1); before, not after the next reading of the end.
	TopicID    [16]byte
	ProducerID int64
	// Epoch is 0 for all data; the fence uses Epoch+1.
	Epoch int16
	// From: what lies below was there before this writer identity, whoever wrote it, and needs no proof. 0 for a log that
	// began empty.
	From int64
	// MergeBytes allows to merge small batches where the round trip is the limit, up to this size in bytes, which the
	// topic must take; see merge.go. 0: batches stay as they are.
	MergeBytes int
}

// another reports whether an ID, zero if it is not known, is that of another topic.
func (p Partition) another(id [16]byte) bool {
	return p.TopicID != [16]byte{} && id != [16]byte{} && id != p.TopicID
}

// Batch is one record batch v2 whose records are verbatim; the header is rewritten in place. The Log owns Bytes until
// Acked has passed the batch, or Doubt, Ready, Fenced, Failed or Close drops it; where batches are merged, they may be
// read for a moment longer.
type Batch struct {
	Bytes []byte
	Base  int64 // offset of the first record
	Next  int64 // offset after the last record
	// Bulk: much work for the broker, and nobody waits for it. Such batches go over another connection than the rest, so
	// that the batches of other Logs do not wait behind them. A change between the two, in either direction, costs the Log
	// a wait until nothing is in flight and a reading of its end, so it pays for a series of batches only.
	Bulk bool

	// sources is the number of batches that this one was merged from, and sourceBytes their size; 0 if it was not merged.
	sources, sourceBytes int
}

// size is that of what was appended.
func (b Batch) size() int {
	if b.sources > 0 {
		return b.sourceBytes
	}
	return len(b.Bytes)
}

// Handler gets the events of one Log. Calls are serialised per Log, come from the package's goroutines, and must not
// block nor call Close. They may call Append.
type Handler interface {
	// Ready: all that was unacknowledged is dropped; the log ends at end (proved to be ours: the last batch there has
	// our producer ID and sequence, or the log is empty or starts at end) and the next Append must have Base == end.
	// Called after Open and after every doubt.
	Ready(end int64)
	// Acked: batches up to next (exclusive) are in the log, bytes long together, as they were appended.
	Acked(next int64, batches, bytes int)
	// Doubt: a transient error. All that was unacknowledged is dropped and nothing of it is in flight any more; Append
	// gives ErrNotReady. The log will read the end offset and call Ready by itself, with backoff; until then, every
	// failed try is another Doubt.
	Doubt(err error)
	// Fenced: the producer epoch was raised, by this or by another gateway: the log is closed for ever to this
	// producer ID. last is the offset of the fence, -1 if it is not known.
	Fenced(last int64)
	// Failed: permanent; the log stops. err is one of the types of errors.go and says the offset. Only Fenced can follow,
	// or Doubt while a fence that was asked for cannot be set yet.
	Failed(err error)
}
