package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sync/errgroup"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/store"
)

// # Up to where both logs are the same
//
// Two can know it:
//
//   - The source's gateway, if its topic was mirrored from here: its log is ours up to what LastMirroredOffsets says. The mirror
//     is found by its source's cluster ID, whatever its name is, and must have stopped.
//   - We, if the destination topic was mirrored from this source before: our log is the source's up to what was mirrored.
//
// Both are statements about two topics, either of which may have been deleted and made again since, even under the ID that
// clients see. So they count only if they name the IDs that both topics have in their own clusters now. If both know something,
// the higher counts: each is true, and the logs only grow. Then the logs themselves are asked: the source must reach as far, and
// the last record before that must be the same on both sides.

// comparison is how a destination topic that was there before stands to the source's.
type comparison struct {
	parts []standing // by partition of the destination
	// partitions are those of the source. A topic cannot lose partitions, so a destination with more does not fit.
	partitions int32
	// told: the source said up to where it is the same; else why it did not.
	told bool
	why  string
}

// standing is that of a partition: its log is [start, end), and that of the source up to agreed, as far as anybody knows.
type standing struct {
	start, end, agreed int64
	// conflict is what speaks against the offset that was said.
	conflict string
}

// fits: there is nothing in it that the source does not have.
func (s standing) fits() bool { return s.end <= s.agreed }

func (c comparison) fits() bool {
	for _, s := range c.parts {
		if !s.fits() {
			return false
		}
	}
	return len(c.parts) <= int(c.partitions)
}

// tailsAtOnce is how many partitions are compared at one time.
const tailsAtOnce = 4

// compare compares the logs of a topic.
func (r *mirrorRun) compare(ctx context.Context, topic string, fb *store.Failback, l failbackLook) (comparison, error) {
	c := comparison{parts: make([]standing, l.found.Partitions), partitions: l.plan.partitions}
	starts, ends, err := cluster.LogRanges(ctx, r.m.cfg.Destination, topic, l.found.Partitions)
	if err != nil {
		return c, fmt.Errorf("destination: %w", err)
	}
	_, sourceEnds, err := cluster.LogRanges(ctx, r.source, topic, l.plan.partitions)
	if err != nil {
		return c, fmt.Errorf("source: %w", err)
	}
	told, why, err := r.toldBySource(ctx, topic, l)
	if err != nil {
		return c, err
	}
	c.told, c.why = len(told) > 0, why
	own := r.ownOffsets(topic, fb, l)
	var group errgroup.Group
	group.SetLimit(tailsAtOnce)
	for p := range c.parts {
		s := &c.parts[p]
		*s = standing{start: starts[p], end: ends[p]}
		if p < len(sourceEnds) {
			s.agreed = max(told[int32(p)], own[int32(p)])
			group.Go(func() error {
				return r.confirm(ctx, cluster.TopicPartition{Topic: topic, Partition: int32(p)}, s, sourceEnds[p])
			})
		}
	}
	return c, group.Wait()
}

// confirm asks the logs about the offset that was said.
func (r *mirrorRun) confirm(ctx context.Context, key cluster.TopicPartition, s *standing, sourceEnd int64) error {
	if s.agreed > sourceEnd {
		s.conflict = fmt.Sprintf("the source's log ends at %d, though it had everything up to %d", sourceEnd, s.agreed)
		s.agreed = sourceEnd
	}
	differs, err := r.differs(ctx, key, min(s.agreed, s.end))
	if err == nil && differs != "" {
		s.agreed, s.conflict = 0, differs
	}
	return err
}

// differs compares the last record before an offset, which both sides should have. "" if it is the same, or if one side does
// not have it any more.
func (r *mirrorRun) differs(ctx context.Context, key cluster.TopicPartition, before int64) (string, error) {
	if before == 0 {
		return "", nil
	}
	ours, err := cluster.ReadTailNow(ctx, r.m.cfg.Destination, key, r.m.producersOf(key.Topic), before)
	if err != nil {
		return "", fmt.Errorf("destination: reading the last records of %s-%d before offset %d: %w", key.Topic, key.Partition, before, err)
	}
	ours.Cut(before)
	at, some := ours.Last()
	if !some {
		return "", nil
	}
	leader, err := cluster.LeaderNow(ctx, r.source, key)
	if err != nil {
		return "", fmt.Errorf("source: leader of %s-%d: %w", key.Topic, key.Partition, err)
	}
	theirs, err := cluster.FetchOnce(ctx, r.source.Broker(int(leader.Broker)), key, leader.Epoch, at)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("source: reading offset %d of %s-%d: %w", at, key.Topic, key.Partition, err)
	}
	verdict, err := ours.Compare(theirs.RecordBatches)
	if err != nil || verdict.Differs == "" {
		return "", err
	}
	return fmt.Sprintf("offset %d holds another record at the source (%s)", verdict.Offset, verdict.Differs), nil
}

// producersOf are all producer IDs that ever mirrored into a topic.
func (m *Manager) producersOf(topic string) (ids []int64) {
	for _, rec := range m.records.Topics("") {
		if rec.Name != topic {
			continue
		}
		for _, id := range append(slices.Clone(rec.PastProducerIDs), rec.ProducerID) {
			if id >= 0 && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// toldBySource asks the source's gateway up to where its topic was mirrored from here, by partition; else why it is not known.
func (r *mirrorRun) toldBySource(ctx context.Context, topic string, l failbackLook) (told map[int32]int64, why string, err error) {
	if !l.peer.gateway {
		return nil, "the source is no gateway that could tell up to where its topic is the same", nil
	}
	here, err := r.m.destinationClusterID(ctx)
	if err != nil {
		return nil, "", err
	}
	why = "the source's gateway has no mirror of it from this cluster (one that was deleted is forgotten)"
	told = make(map[int32]int64)
	for _, m := range l.peer.mirrors {
		t, ok := m.topics[topic]
		switch {
		case !ok || m.sourceCluster != "" && m.sourceCluster != here:
			continue
		case !t.mirroredFrom(l):
			why = fmt.Sprintf("what the source's mirror %q has is a copy of another topic of this name", m.name)
			continue
		case !t.stopped:
			why = fmt.Sprintf("the source's mirror %q has not stopped", m.name)
			continue
		}
		offsets, err := r.askLastMirrored(ctx, m.name, topic)
		if err != nil {
			return nil, "", err
		}
		why = fmt.Sprintf("the source's gateway does not know any more up to where its mirror %q had got", m.name)
		for p, offset := range offsets {
			told[p] = max(told[p], offset)
		}
	}
	return told, why, nil
}

// mirroredFrom reports whether a topic of the source was mirrored from the destination topic that there is now. A broker that
// implements KIP-1279 itself does not tell IDs, and gives its topic the same as that of its source.
func (t peerTopic) mirroredFrom(l failbackLook) bool {
	origin := t.originID
	if none := (TopicID{}); origin == none && t.destinationID == none {
		origin = l.plan.sourceID
	}
	return origin == l.found.ID
}

// askLastMirrored asks up to where a topic of the source was mirrored, by partition. What is not known is left out.
func (r *mirrorRun) askLastMirrored(ctx context.Context, mirror, topic string) (map[int32]int64, error) {
	req := mirrormsg.NewPtrLastMirroredOffsetsRequest()
	req.MirrorName, req.Topics = mirror, []mirrormsg.TopicPartitions{{Name: topic}}
	resp, err := req.RequestWith(ctx, r.source)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("source: ask for the last mirrored offsets of its mirror %s: %w", mirror, lacksRight(err, "DESCRIBE on the cluster at the source"))
	}
	offsets := make(map[int32]int64)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if t.Name == topic && p.ErrorCode == 0 && p.LastMirroredOffset >= 0 {
				offsets[p.Partition] = p.LastMirroredOffset
			}
		}
	}
	return offsets, nil
}

// ownOffsets is what our records say of the destination topic, if it was mirrored from this source before.
func (r *mirrorRun) ownOffsets(topic string, fb *store.Failback, l failbackLook) map[int32]int64 {
	own := make(map[int32]int64)
	for _, rec := range r.m.records.Topics("") {
		mirror, ok := r.m.records.Mirror(rec.Mirror)
		if !ok || rec.Name != topic || mirror.SourceClusterID != r.sourceClusterID {
			continue
		}
		known := State(rec.State) == Stopped && mirroredInto(rec, l)
		if rec.Mirror == r.name && State(rec.State) != Stopped {
			known = fb.OwnOffsets // the incarnation before
		}
		if !known {
			continue
		}
		for _, part := range r.m.records.Partitions(rec.Mirror, topic) {
			own[part.Partition] = max(own[part.Partition], part.LastMirrored)
		}
	}
	return own
}

// mostCounted bounds the counting of records for a reason.
const mostCounted = 1_000_000

// divergedReason says what only the destination has of a partition.
func (t *topicRun) divergedReason(ctx context.Context, c comparison, partition int32) (string, error) {
	s := c.parts[partition]
	if s.fits() {
		return fmt.Sprintf("diverged: the source has %d partitions, and the destination topic %d, which cannot be taken away", c.partitions, len(c.parts)), nil
	}
	count := 0
	from := max(s.agreed, s.start)
	for _, err := range t.recordsOf(ctx, partition, from, s.end) {
		if err != nil {
			return "", err
		}
		if count++; count > mostCounted {
			break
		}
	}
	var text strings.Builder
	text.WriteString("diverged: ")
	switch {
	case count > mostCounted:
		fmt.Fprintf(&text, "more than %d records at offsets %d to %d are", mostCounted, from, s.end-1)
	case count == 1:
		fmt.Fprintf(&text, "1 record at offsets %d to %d is", from, s.end-1)
	default:
		fmt.Fprintf(&text, "%d records at offsets %d to %d are", count, from, s.end-1)
	}
	text.WriteString(" in this topic alone and not at the source: ")
	switch {
	case s.conflict != "":
		text.WriteString(s.conflict)
	case s.agreed > 0:
		fmt.Fprintf(&text, "both logs are the same up to offset %d, and this one goes on to %d", s.agreed, s.end)
	case c.why != "" && !c.told:
		text.WriteString(c.why)
	default:
		text.WriteString("the source's gateway mirrored nothing of the partition")
	}
	if count == 0 {
		text.WriteString(" (these offsets hold no record, as after the stop of a mirror, but are taken)")
	}
	return text.String(), nil
}
