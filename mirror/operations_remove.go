package mirror

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/store"
)

// RemoveTopics records STOPPING and waits until every partition is fenced and STOPPED is durable. It needs no source. If
// ctx ends first, the answer is REQUEST_TIMED_OUT, and the stop goes on; asking again is no error. A topic that is STOPPED
// already is a success, so that a client may repeat a request whose answer it lost.
func (m *Manager) RemoveTopics(ctx context.Context, mirror string, topics []TopicRef) ([]TopicResult, error) {
	if mirror == "" {
		return nil, Refuse(kerr.InvalidRequest, "the mirror name is missing")
	}
	if _, ok := m.records.Mirror(mirror); !ok {
		return nil, unknownMirror(mirror)
	}
	results := newResults(topics)
	var names []string
	for i, t := range topics {
		if results[i].Err != nil {
			continue
		}
		rec, ok := m.records.Topic(mirror, t.Name)
		if !ok || rec.Removed {
			results[i].Err = Refuse(kerr.InvalidRequest, "topic %s is not in mirror %q", t.Name, mirror)
			continue
		}
		results[i].ID = rec.SourceID
		results[i].Err = checkID(t.Name, t.ID, rec.SourceID)
		names = append(names, t.Name)
	}
	if anyRefused(results) {
		return results, nil
	}
	if err := m.beginStop(ctx, mirror, names); err != nil {
		return nil, visible(err)
	}
	m.log.Info("topics are being removed", zap.String("mirror", mirror), zap.Int("topics", len(topics)))
	for _, name := range names { // that may wait before they try again
		m.wake(topicName{mirror, name})
	}
	for i, t := range topics {
		err := m.await(ctx, mirror, t.Name, func(rec store.Topic, ok bool) bool {
			return !ok || State(rec.State) == Stopped
		})
		if err != nil {
			results[i].Err = Refuse(kerr.RequestTimedOut, "topic %s is STOPPING, which is recorded and goes on, but it is not STOPPED yet%s",
				t.Name, m.because(mirror, t.Name))
		}
	}
	return results, nil
}

// beginStop makes it durable that topics of a mirror are to be stopped. Their runs do the rest.
func (m *Manager) beginStop(ctx context.Context, mirror string, topics []string) error {
	updates := make([]store.Update, 0, len(topics))
	for _, topic := range topics {
		updates = append(updates, changeTopic(mirror, topic, func(now *store.Topic) bool {
			if s := State(now.State); s == Stopping || s == Stopped {
				return false
			}
			now.State = int8(Stopping)
			return true
		}))
	}
	return m.update(ctx, updates...)
}

// because says what a topic waits for, as the end of a sentence.
func (m *Manager) because(mirror, topic string) string {
	if run := m.mirror(mirror); run != nil {
		if t := run.topic(topic); t != nil {
			if reason := t.waitsFor(); reason != "" {
				return fmt.Sprintf(": %s", reason)
			}
		}
	}
	return ""
}
