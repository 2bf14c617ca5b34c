package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/store"
)

var _ Engine = (*Manager)(nil)

// CreateMirror checks, contacts the source, and makes the mirror durable. contactSource lists the codes of a source that
// does not do; besides, INVALID_REQUEST for the name or an existing mirror, INVALID_CONFIG for the configuration.
func (m *Manager) CreateMirror(ctx context.Context, name string, config map[string]*string, validateOnly bool) error {
	if refusal := checkName(name); refusal != nil {
		return refusal
	}
	if _, ok := m.records.Mirror(name); ok {
		return mirrorExists(name)
	}
	values, refusal := CheckConfig(config)
	if refusal != nil {
		return refusal
	}
	parsed, err := ParseConfig(values)
	if err != nil {
		return Refuse(kerr.InvalidConfig, "%s", err)
	}
	clusterID, refusal := m.contactSource(ctx, parsed)
	if refusal != nil {
		return refusal
	}
	if validateOnly {
		return nil
	}
	rec := &store.Mirror{Name: name, Config: values, SourceClusterID: clusterID, CreatedMs: time.Now().UnixMilli()}
	err = m.update(ctx, store.Update{Key: store.MirrorKey(name), Fn: store.Typed(func(now *store.Mirror) (*store.Mirror, error) {
		if now != nil {
			return nil, mirrorExists(name) // by another gateway, meanwhile
		}
		return rec, nil
	})})
	if err == nil {
		m.log.Info("mirror created", zap.String("mirror", name), zap.String("source_cluster", clusterID))
		for key := range values {
			if s, _ := settingByName(key); s.Planned {
				m.log.Warn("setting of the mirror is not used by this version yet", zap.String("mirror", name), zap.String("setting", key))
			}
		}
	}
	return visible(err)
}

func mirrorExists(name string) *Error {
	return Refuse(kerr.InvalidRequest, "mirror %q already exists", name)
}

func unknownMirror(name string) *Error {
	return Refuse(kerr.InvalidRequest, "unknown mirror %q", name)
}

// visible makes what a client may see of an error: a refusal as it is, and the end of the patience as
// REQUEST_TIMED_OUT.
func visible(err error) error {
	var refused *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, context.DeadlineExceeded):
		return Refuse(kerr.RequestTimedOut, "%s", err)
	}
	return err
}

// broker makes a refusal of any error that came from a cluster, so that the client learns what is wrong.
func clusterTrouble(err error) *Error {
	var refused *Error
	if errors.As(err, &refused) {
		return refused
	}
	if other := new(replication.OtherCluster); errors.As(err, &other) {
		return Refuse(kerr.InvalidRequest, "%s", other.Reason())
	}
	var code *kerr.Error
	if errors.As(err, &code) {
		return Refuse(code, "%s", err)
	}
	return Refuse(kerr.BrokerNotAvailable, "%s", err)
}

// byMirror groups the topics of a request; the values are indexes into topics.
func byMirror(topics []TopicRef) map[string][]int {
	groups := make(map[string][]int)
	for i, t := range topics {
		groups[t.Mirror] = append(groups[t.Mirror], i)
	}
	return groups
}

// newResults makes the results of a request and refuses what is wrong with it by itself: a missing name, a topic named
// twice.
func newResults(topics []TopicRef) []TopicResult {
	results := make([]TopicResult, len(topics))
	seen := make(map[string]bool, len(topics))
	for i, t := range topics {
		results[i] = TopicResult{Name: t.Name, ID: t.ID}
		switch {
		case t.Name == "":
			results[i].Err = Refuse(kerr.InvalidTopicException, "the topic name is missing")
		case seen[t.Name]:
			results[i].Err = Refuse(kerr.InvalidRequest, "topic %s is named twice", t.Name)
		}
		seen[t.Name] = true
	}
	return results
}

func anyRefused(results []TopicResult) bool {
	for _, r := range results {
		if r.Err != nil {
			return true
		}
	}
	return false
}

// checkID refuses an ID that a client gave for a topic that has another one.
func checkID(name string, given, have TopicID) *Error {
	if given != (TopicID{}) && given != have {
		return Refuse(kerr.InconsistentTopicID, "topic %s has the ID %s at the source, not %s", name, formatID(have), formatID(given))
	}
	return nil
}

func formatID(id TopicID) string { return fmt.Sprintf("%x", id[:]) }
