package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/store"
)

// ConfigOp is what a ConfigChange does, by the numbers of IncrementalAlterConfigs.
type ConfigOp int8

// The operations. Append and Subtract are for lists.
const (
	SetConfig      ConfigOp = 0
	DeleteConfig   ConfigOp = 1
	AppendConfig   ConfigOp = 2
	SubtractConfig ConfigOp = 3
)

// ConfigChange changes one key of a mirror's configuration. A nil Value is allowed for DeleteConfig alone.
type ConfigChange struct {
	Name  string
	Op    ConfigOp
	Value *string
}

// ConfigEntry is one key of a mirror's configuration as clients may see it.
type ConfigEntry struct {
	Setting
	// Value is nil for a secret, and for a key that has neither a value nor a default.
	Value *string
	// Given: the value is in the configuration; else it is the default.
	Given bool
}

// MirrorConfig returns the configuration of a mirror, every key that there is. Secrets have no value.
func (m *Manager) MirrorConfig(_ context.Context, name string) ([]ConfigEntry, error) {
	rec, ok := m.records.Mirror(name)
	if !ok {
		return nil, unknownMirror(name)
	}
	entries := make([]ConfigEntry, 0, len(settings))
	for _, s := range settings {
		entry := ConfigEntry{Setting: s}
		value, given := rec.Config[s.Name]
		entry.Given = given
		switch {
		case s.Secret:
		case given:
			entry.Value = &value
		case s.Default != "":
			entry.Value = &s.Default
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// AlterMirror changes the configuration of a mirror, or only checks the change when validateOnly. If it concerns the
// connection, the source is contacted before, and must be the cluster that it was. The change takes effect at once: where
// it concerns the connection or fetching, the mirror starts anew, from the ends of the destination's logs as always.
func (m *Manager) AlterMirror(ctx context.Context, name string, changes []ConfigChange, validateOnly bool) error {
	rec, ok := m.records.Mirror(name)
	if !ok {
		return unknownMirror(name)
	}
	changes, refusal := absoluteDeadlines(changes, time.Now())
	if refusal != nil {
		return refusal
	}
	altered, refusal := alter(rec.Config, changes)
	if refusal != nil {
		return refusal
	}
	if refusal := m.checkAltered(ctx, rec, altered); refusal != nil {
		return refusal
	}
	if validateOnly {
		return nil
	}
	var written map[string]string
	err := m.update(ctx, store.Update{Key: store.MirrorKey(name), Fn: store.Typed(func(now *store.Mirror) (*store.Mirror, error) {
		if now == nil {
			return nil, unknownMirror(name)
		}
		if connectionChanged(rec.Config, now.Config) && connectionChanged(rec.Config, altered) {
			return nil, Refuse(kerr.InvalidRequest, "somebody else changed the connection of mirror %q at the same time; try again", name)
		}
		altered, refusal := alter(now.Config, changes) // other keys may have been changed meanwhile
		if refusal != nil {
			return nil, refusal
		}
		now.Config, written = altered, altered
		return now, nil
	})})
	if err != nil {
		return visible(err)
	}
	keys := make([]string, 0, len(changes))
	for _, c := range changes {
		keys = append(keys, c.Name)
	}
	m.log.Info("mirror altered", zap.String("mirror", name), zap.Strings("settings", keys))
	m.awaitConfig(ctx, name, written)
	return nil
}

// alter applies changes to a configuration and checks the outcome.
func alter(config map[string]string, changes []ConfigChange) (map[string]string, *Error) {
	values := make(map[string]*string, len(config))
	for key, value := range config {
		values[key] = &value
	}
	seen := make(map[string]bool, len(changes))
	for _, change := range changes {
		s, ok := settingByName(change.Name)
		switch {
		case !ok:
			return nil, Refuse(kerr.InvalidConfig, "unknown mirror configuration %q", change.Name)
		case seen[change.Name]:
			return nil, Refuse(kerr.InvalidRequest, "mirror configuration %s is changed twice", change.Name)
		case change.Value == nil && change.Op != DeleteConfig:
			return nil, Refuse(kerr.InvalidConfig, "mirror configuration %s has no value", change.Name)
		}
		seen[change.Name] = true
		switch change.Op {
		case SetConfig:
			values[change.Name] = change.Value
		case DeleteConfig:
			delete(values, change.Name)
		case AppendConfig, SubtractConfig:
			if !s.List {
				return nil, Refuse(kerr.InvalidConfig, "mirror configuration %s is no list that could be appended to or subtracted from", change.Name)
			}
			now := s.Default
			if value := values[change.Name]; value != nil {
				now = *value
			}
			list := alterList(now, *change.Value, change.Op)
			values[change.Name] = &list
		default:
			return nil, Refuse(kerr.InvalidRequest, "unknown operation %d on mirror configuration %s", change.Op, change.Name)
		}
	}
	return CheckConfig(values)
}

// alterList appends items to a list, or takes them out of it.
func alterList(list, items string, op ConfigOp) string {
	split := func(s string) (out []string) {
		for _, item := range strings.Split(s, ",") {
			if item = strings.TrimSpace(item); item != "" {
				out = append(out, item)
			}
		}
		return out
	}
	now := split(list)
	for _, item := range split(items) {
		now = slices.DeleteFunc(now, func(have string) bool { return have == item })
		if op == AppendConfig {
			now = append(now, item)
		}
	}
	return strings.Join(now, ",")
}

// checkAltered contacts the source if the connection is another one.
func (m *Manager) checkAltered(ctx context.Context, rec store.Mirror, altered map[string]string) *Error {
	if !connectionChanged(rec.Config, altered) {
		return nil
	}
	config, err := ParseConfig(altered)
	if err != nil {
		return Refuse(kerr.InvalidConfig, "%s", err)
	}
	clusterID, refusal := m.contactSource(ctx, config)
	if refusal != nil {
		return refusal
	}
	if clusterID != rec.SourceClusterID {
		return Refuse(kerr.InvalidRequest, "what answers there is the cluster %q, and mirror %q is one of the cluster %q: a mirror stays with its source; "+
			"make another mirror", clusterID, rec.Name, rec.SourceClusterID)
	}
	return nil
}

// connectionChanged reports whether two configurations reach the source in different ways.
func connectionChanged(from, to map[string]string) bool {
	for _, s := range settings {
		if (s.connection() || s.Name == "bootstrap.servers") && from[s.Name] != to[s.Name] {
			return true
		}
	}
	return false
}

// awaitConfig waits a little until the mirror runs with a configuration.
func (m *Manager) awaitConfig(ctx context.Context, name string, config map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	for {
		changed := m.records.changes()
		if m.runsWith(name, config) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		case <-m.ctx.Done():
			return
		}
	}
}

func (m *Manager) runsWith(name string, config map[string]string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	run := m.mirrors[name]
	return m.broken[name] != "" || run != nil && maps.Equal(run.record.Config, config)
}

// String names the change without its value, which may be a secret.
func (c ConfigChange) String() string { return fmt.Sprintf("%s (operation %d)", c.Name, c.Op) }
