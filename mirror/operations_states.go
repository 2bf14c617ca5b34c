package mirror

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/store"
)

// transitions are the states that WriteStates may give a partition, by the state that it has. Staying is always allowed.
// STOPPED is only the end of STOPPING, and a topic is writable only once all its partitions are fenced, whatever was
// written here.
var transitions = map[State][]State{
	Initializing: {Preparing, Stopping, Failed},
	Preparing:    {Mirroring, Paused, Stopping, Failed},
	Mirroring:    {Preparing, Paused, Stopping, Failed},
	Paused:       {Preparing, Mirroring, Stopping, Failed},
	Failed:       {Preparing, Stopping},
	Stopping:     {Stopped, Failed},
	Stopped:      {},
}

// WriteStates applies partition states. FAILED → PREPARING tries again, STOPPING fences the partition. removed are
// STOPPED topics that the mirror should forget; one that is not STOPPED is an error for the whole request.
func (m *Manager) WriteStates(ctx context.Context, mirror string, updates []StateUpdate, removed []string) ([]*Error, error) {
	if _, ok := m.records.Mirror(mirror); !ok {
		return nil, unknownMirror(mirror)
	}
	for _, topic := range removed {
		rec, ok := m.records.Topic(mirror, topic)
		if !ok || rec.Removed {
			return nil, Refuse(kerr.InvalidRequest, "topic %s is not in mirror %q", topic, mirror)
		}
		if State(rec.State) != Stopped {
			return nil, Refuse(kerr.InvalidRequest, "topic %s is %s; only a STOPPED topic can be dropped from mirror %q", topic, State(rec.State), mirror)
		}
	}
	errs := make([]*Error, len(updates))
	var changes []store.Update
	for i, u := range updates {
		rec, ok := m.records.Topic(mirror, u.Topic)
		if !ok || rec.Removed || u.Partition < 0 || u.Partition >= rec.Partitions {
			errs[i] = Refuse(kerr.UnknownTopicOrPartition, "%s-%d is not in mirror %q", u.Topic, u.Partition, mirror)
			continue
		}
		changes = append(changes, changePartition(mirror, u.Topic, u.Partition, func(part *store.Partition) bool {
			errs[i] = applyState(part, u)
			return errs[i] == nil
		}))
	}
	for _, topic := range removed {
		changes = append(changes, changeTopic(mirror, topic, func(now *store.Topic) bool {
			now.Removed = State(now.State) == Stopped
			return now.Removed
		}))
	}
	return errs, visible(m.update(ctx, changes...))
}

func applyState(part *store.Partition, u StateUpdate) *Error {
	from := State(part.State)
	if u.State != from && !slices.Contains(transitions[from], u.State) {
		return Refuse(kerr.InvalidRequest, "%s-%d is %s and cannot become %s", u.Topic, u.Partition, from, u.State)
	}
	part.State, part.Reason = int8(u.State), ""
	if u.State == Failed {
		part.Reason = "set by WriteMirrorStates"
	}
	if u.State == Stopped {
		part.LastMirrored = u.LastMirrored
	}
	return nil
}

// ReserveTopicID makes id the one that clients see for the topic that is about to be created.
func (m *Manager) ReserveTopicID(ctx context.Context, name string, id TopicID) error {
	select {
	case m.adding <- struct{}{}:
		defer func() { <-m.adding }()
	case <-ctx.Done():
		return visible(ctx.Err())
	}
	if err := m.checkTopicID(ctx, name, id); err != nil {
		return visible(err)
	}
	return visible(m.update(ctx, store.Update{Key: store.TopicIDKey(name), Fn: store.Typed(func(*store.TopicID) (*store.TopicID, error) {
		return &store.TopicID{Name: name, SourceID: id}, nil
	})}))
}

// checkTopicID refuses an ID that any topic has, and a topic that exists.
func (m *Manager) checkTopicID(ctx context.Context, name string, id TopicID) error {
	taken := func(by string) error {
		return Refuse(kerr.TopicAlreadyExists, "topic ID %s belongs to topic %s", formatID(id), by)
	}
	found, err := m.destinationTopic(ctx, name)
	if err != nil {
		return clusterTrouble(err)
	}
	if !found.Missing() {
		return Refuse(kerr.TopicAlreadyExists, "topic %s exists", name)
	}
	for _, rec := range m.records.Topics("") {
		if rec.SourceID == id && (rec.Name != name || State(rec.State) != Stopped) {
			return taken(rec.Name)
		}
	}
	for _, rec := range m.records.TopicIDs() {
		if rec.SourceID != id || rec.Name == name { // one of that name is left from a topic that is gone
			continue
		}
		owner, err := m.destinationTopic(ctx, rec.Name)
		if err != nil {
			return clusterTrouble(err)
		}
		if !owner.Missing() {
			return taken(rec.Name)
		}
		if err := m.ReleaseTopicID(ctx, rec.Name); err != nil { // its topic was deleted
			return err
		}
	}
	name, err = m.destinationTopicByID(ctx, id)
	if err == nil && name != "" {
		return taken(name)
	}
	return err
}

// destinationTopicByID returns the name of the destination's topic with that ID, "" if there is none.
func (m *Manager) destinationTopicByID(ctx context.Context, id TopicID) (string, error) {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.TopicID = id
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, m.cfg.Destination)
	if err != nil {
		return "", clusterTrouble(err)
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); t.TopicID == id && t.Topic != nil && !errors.Is(err, kerr.UnknownTopicID) {
			return *t.Topic, nil
		}
	}
	return "", nil
}

// ConfirmTopicID completes the record of a topic that was created.
func (m *Manager) ConfirmTopicID(ctx context.Context, name string, destinationID TopicID) error {
	return visible(m.update(ctx, store.Update{Key: store.TopicIDKey(name), Fn: store.Typed(func(now *store.TopicID) (*store.TopicID, error) {
		if now == nil {
			return nil, store.ErrNoChange
		}
		now.DestinationID = destinationID
		return now, nil
	})}))
}

// ReleaseTopicID drops the record of a topic that was not created.
func (m *Manager) ReleaseTopicID(ctx context.Context, name string) error {
	return visible(m.update(ctx, store.Update{Key: store.TopicIDKey(name), Fn: store.Typed(func(*store.TopicID) (*store.TopicID, error) {
		return nil, nil
	})}))
}
