package mirror

import "github.com/mirrorgate/mirrorgate/store"

// The starts of the source's logs in the partition records (logstart_floor.go): written before they are followed, together
// with whatever else waits to be written.

func (r *mirrorRun) sourceStart(topic string, partition int32, start int64) {
	if t := r.topic(topic); t != nil {
		t.mu.Lock()
		t.starts[partition] = max(start, t.starts[partition])
		t.mu.Unlock()
		t.wakeUp()
	}
}

// takeStarts returns what is not recorded yet.
func (t *topicRun) takeStarts() map[int32]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	starts := t.starts
	t.starts = make(map[int32]int64)
	return starts
}

func (t *topicRun) putBackStarts(starts map[int32]int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for partition, start := range starts {
		t.starts[partition] = max(start, t.starts[partition])
	}
}

// sourceStart is the update that records a start.
func (t *topicRun) sourceStart(partition int32, start int64) store.Update {
	return changePartition(t.run.name, t.name, partition, func(part *store.Partition) bool {
		if State(part.State) == Stopped || part.SourceStart >= start {
			return false
		}
		part.SourceStart = start
		return true
	})
}
