package mirror

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/store"
)

// # What the source had
//
// After a failover people want to know what the dead source may have had that is not here. So it is kept where each of the
// source's logs ended when that was last heard, and when that was: while the source answers, in the replication; once it has
// been silent for a while, and when a partition stops, in the partition's record, where a restart finds it.
//
// A stop needs no source. But if one answers, it is asked once more behind the fence, so that what somebody wrote to it too
// late is known as well.

// lastHeard is where a log of the source ended, and when that was heard, in milliseconds since 1970; 0 = never.
type lastHeard struct{ end, ms int64 }

// note puts it into a record, and reports whether that did not know it. Of two ends that were heard within a millisecond, the
// one that is noted last counts: a stop asks behind the fence for what may be later than the replication heard just before.
func (h lastHeard) note(part *store.Partition) bool {
	if h.ms < part.SourceEndMs || h.ms == part.SourceEndMs && h.end == part.SourceEnd {
		return false
	}
	part.SourceEnd, part.SourceEndMs = h.end, h.ms
	return true
}

// heard returns what the replication knows of a partition.
func (t *topicRun) heard(partition int32) lastHeard {
	status, ok := t.run.replication.Status(t.name, partition)
	if !ok || status.SourceHighWatermark < 0 || status.SourceAge < 0 {
		return lastHeard{}
	}
	return lastHeard{end: status.SourceHighWatermark, ms: time.Now().Add(-status.SourceAge).UnixMilli()}
}

// noteHeard is the update that puts what was heard into a partition's record.
func (t *topicRun) noteHeard(partition int32, h lastHeard) store.Update {
	return changePartition(t.run.name, t.name, partition, func(part *store.Partition) bool { return h.note(part) })
}

// silentAfter is how long a source is silent before what was heard is written down.
const silentAfter = 10 * time.Second

// keepHeard writes down what was heard of partitions that have heard nothing for a while, once.
func (r *mirrorRun) keepHeard(ctx context.Context) {
	silent := time.Now().Add(-silentAfter - r.config().FetchMaxWait).UnixMilli()
	var updates []store.Update
	for _, name := range r.mirrored() {
		t := r.topic(name)
		if t == nil {
			continue
		}
		for _, part := range r.m.records.Partitions(r.name, name) {
			if h := t.heard(part.Partition); h.ms > part.SourceEndMs && h.ms < silent {
				updates = append(updates, t.noteHeard(part.Partition, h))
			}
		}
	}
	if err := r.m.update(ctx, updates...); err != nil {
		r.log.Warn("where the source ended could not be written down", zap.Error(err))
	}
}

// sourcePatience bounds what a stop asks of a source.
const sourcePatience = 2 * time.Second

// patience is a bound on what a stop asks of a source.
func (m *Manager) patience(bound time.Duration) time.Duration {
	if m.cfg.stopPatience > 0 {
		return m.cfg.stopPatience
	}
	return bound
}

// deadFor is how long a source that did not answer is not asked again: the stops of hundreds of topics would all wait for it.
const deadFor = 15 * time.Second

// sourceAnswers reports whether the source is there. Topics that stop together ask once.
func (r *mirrorRun) sourceAnswers(ctx context.Context) bool {
	r.pinging.Lock()
	defer r.pinging.Unlock()
	if age := time.Since(r.pinged); age < sourcePatience || !r.answered && age < deadFor {
		return r.answered
	}
	ctx, cancel := context.WithTimeout(ctx, r.m.patience(sourcePatience))
	defer cancel()
	err := r.source.Ping(ctx)
	if err != nil {
		r.log.Info("the source does not answer; the stop goes on without it", zap.Error(err))
	}
	r.pinged, r.answered = time.Now(), err == nil
	return r.answered
}

// noteSourceEnds asks where the source's logs end now that everything is fenced, and writes it down.
func (t *topicRun) noteSourceEnds(ctx context.Context, rec store.Topic) error {
	asked, cancel := context.WithTimeout(ctx, t.m.patience(sourcePatience))
	defer cancel()
	found, _, err := cluster.DescribeTopics(asked, t.run.source, t.name)
	if err == nil && found[t.name].Err == nil && found[t.name].ID != rec.SourceID {
		err = fmt.Errorf("the source topic is another one now")
	}
	var ends map[cluster.TopicPartition]int64
	if err == nil {
		if n := found[t.name].Partitions; n > rec.Partitions {
			t.log.Warn("the source topic has new partitions that were not mirrored", zap.Int32("mirrored", rec.Partitions), zap.Int32("source", n))
		}
		ends, err = cluster.AllOffsets(asked, t.run.source, map[string]int32{t.name: rec.Partitions}, cluster.Latest)
	}
	if err != nil {
		t.log.Info("where the source's logs end could not be asked", zap.Error(err))
		return nil
	}
	var updates []store.Update
	now := time.Now().UnixMilli()
	for tp, end := range ends {
		updates = append(updates, t.noteHeard(tp.Partition, lastHeard{end: end, ms: now}))
	}
	return t.m.update(ctx, updates...)
}

// PartitionStop is what is known of the end of a partition's mirroring, beside where it ended (LastMirrored).
type PartitionStop struct {
	// SourceEnd is where the source's log ended as last heard, -1 if that was never heard.
	SourceEnd int64
	// SourceAge is how old that was at the stop: 0 if the source was asked behind the fence, -1 if it was never heard.
	SourceAge time.Duration
	// Ago is the time since the stop.
	Ago time.Duration
}

func stopOf(part store.Partition, now time.Time) *PartitionStop {
	if part.StoppedMs == 0 {
		return nil
	}
	stop := &PartitionStop{SourceEnd: -1, SourceAge: -1, Ago: now.Sub(time.UnixMilli(part.StoppedMs))}
	if part.SourceEndMs > 0 {
		stop.SourceEnd = part.SourceEnd
		stop.SourceAge = time.Duration(max(0, part.StoppedMs-part.SourceEndMs)) * time.Millisecond
	}
	return stop
}
