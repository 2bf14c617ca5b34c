package mirror

import (
	"slices"

	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/store"
)

// The source's leader epochs in the partition records. They are written when one is mirrored for the first time, which is
// rare, together with whatever else waits to be written; nothing waits for them.

// wayOutAtDestination is what an operator can do about a destination topic that is not the mirror's any more.
const wayOutAtDestination = "remove the topic from the mirror, delete it at the destination if it is there, and add it again"

func (r *mirrorRun) sourceEpochs(topic string, partition int32, epochs replication.SourceEpochs) {
	if t := r.topic(topic); t != nil {
		t.mu.Lock()
		t.epochs[partition] = epochs
		t.mu.Unlock()
		t.wakeUp()
	}
}

// takeEpochs returns what is not recorded yet.
func (t *topicRun) takeEpochs() map[int32]replication.SourceEpochs {
	t.mu.Lock()
	defer t.mu.Unlock()
	epochs := t.epochs
	t.epochs = make(map[int32]replication.SourceEpochs)
	return epochs
}

func (t *topicRun) putBackEpochs(epochs map[int32]replication.SourceEpochs) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for partition, known := range epochs {
		if _, news := t.epochs[partition]; !news {
			t.epochs[partition] = known
		}
	}
}

// sourceEpochs is the update that records epochs.
func (t *topicRun) sourceEpochs(partition int32, known replication.SourceEpochs) store.Update {
	return changePartition(t.run.name, t.name, partition, func(part *store.Partition) bool {
		if State(part.State) == Stopped || part.SourceEpochsEnd == known.End && slices.Equal(part.SourceEpochs, known.Epochs) {
			return false
		}
		part.SourceEpochs, part.SourceEpochsEnd = known.Epochs, known.End
		return true
	})
}

// recordedSource returns what the record says of the source's log.
func (t *topicRun) recordedSource(partition int32) (epochs replication.SourceEpochs, start int64) {
	part, _ := t.m.records.Partition(t.run.name, t.name, partition)
	return replication.SourceEpochs{Epochs: part.SourceEpochs, End: part.SourceEpochsEnd}, part.SourceStart
}
