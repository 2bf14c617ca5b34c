package mirror

import (
	"context"
	"strings"
	"time"

	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/store"
)

// Mirrors lists the mirrors by name.
func (m *Manager) Mirrors(context.Context) ([]Summary, error) {
	var mirrors []Summary
	for _, rec := range m.records.Mirrors() {
		summary := Summary{Name: rec.Name, SourceBootstrap: rec.Config["bootstrap.servers"]}
		if config, err := ParseConfig(rec.Config); err == nil {
			summary.SourceBootstrap = strings.Join(config.Bootstrap, ",")
		}
		for _, topic := range m.records.topicsOf(rec.Name) {
			if State(topic.State) != Stopped {
				summary.Topics++
			}
		}
		mirrors = append(mirrors, summary)
	}
	return mirrors, nil
}

// Describe describes a mirror: partitions at work live, others as they were recorded.
func (m *Manager) Describe(_ context.Context, mirror string) (Description, error) {
	record, ok := m.records.Mirror(mirror)
	if !ok {
		return Description{}, unknownMirror(mirror)
	}
	description := Description{Name: mirror, SourceClusterID: record.SourceClusterID}
	run := m.mirror(mirror)
	for _, rec := range m.records.topicsOf(mirror) {
		description.Topics = append(description.Topics, m.describeTopic(rec, run))
	}
	if run != nil {
		description.Skipped, description.Syncs = run.report.skips(), run.report.status(time.Now())
	}
	return description, nil
}

func (m *Manager) describeTopic(rec store.Topic, run *mirrorRun) TopicDescription {
	description := TopicDescription{
		Name: rec.Name, Chain: m.chain(rec, run), ID: rec.SourceID, DestinationID: rec.DestinationID, OriginID: rec.OriginID,
	}
	waitsFor := m.waitsFor(rec, run)
	records := make(map[int32]store.Partition)
	if State(rec.State) != Initializing || diverged(rec) { // else they are of an earlier incarnation
		for _, part := range m.records.Partitions(rec.Mirror, rec.Name) {
			records[part.Partition] = part
		}
	}
	for p := range rec.Partitions {
		status := PartitionStatus{Status: replication.Status{
			Partition: p, State: State(rec.State), SourceHighWatermark: -1, SourceLastStableOffset: -1,
			DestinationEnd: -1, LastMirrored: -1, SourceAge: -1,
		}}
		part, ok := records[p]
		if ok {
			status.State, status.Reason, status.LastMirrored = State(part.State), part.Reason, part.LastMirrored
			status = withRecorded(status, part, time.Now())
		}
		if State(rec.State) == Stopping && status.State != Stopped {
			status.State = Stopping
		}
		// What was decided for good counts more than what the replication still knows.
		if run != nil && status.State != Stopped && status.State != Paused {
			if live, ok := run.replication.Status(rec.Name, p); ok {
				status.Status = mergeStatus(status.Status, live)
			}
		}
		if status.Reason == "" && (status.State != Stopped || State(rec.State) == Stopping) { // fenced, but not writable yet
			status.Reason = waitsFor
		}
		description.Partitions = append(description.Partitions, status)
	}
	return description
}

// withRecorded adds what the record says of the source.
func withRecorded(status PartitionStatus, part store.Partition, now time.Time) PartitionStatus {
	switch {
	case State(part.State) == Stopped:
		status.Stop = stopOf(part, now)
	case part.SourceEndMs > 0:
		status.SourceHighWatermark, status.SourceAge = part.SourceEnd, now.Sub(time.UnixMilli(part.SourceEndMs))
	}
	return status
}

// mergeStatus adds the live figures to what is recorded. FAILED and STOPPING are recorded before the replication shows
// them; it is the other way round where a try goes on.
func mergeStatus(recorded, live replication.Status) replication.Status {
	live.Partition = recorded.Partition
	if live.SourceHighWatermark < 0 || live.SourceAge < 0 {
		live.SourceHighWatermark, live.SourceAge = recorded.SourceHighWatermark, recorded.SourceAge
	}
	if recorded.State == Failed || recorded.State == Stopping {
		live.State = recorded.State
		if recorded.Reason != "" {
			live.Reason = recorded.Reason
		}
	}
	return live
}

// waitsFor says why a topic does not get on, "" if it does.
func (m *Manager) waitsFor(rec store.Topic, run *mirrorRun) string {
	if run == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.broken[rec.Mirror]
	}
	if t := run.topic(rec.Name); t != nil {
		return t.waitsFor()
	}
	return ""
}

// Coordinator returns the gateway that coordinates a mirror. There is one gateway so far.
func (m *Manager) Coordinator(context.Context, string) (Member, error) { return m.cfg.Self(), nil }

// Self is this gateway.
func (m *Manager) Self() Member { return m.cfg.Self() }
