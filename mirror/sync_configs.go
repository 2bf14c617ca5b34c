package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/store"
)

// # Topic configs
//
// A topic's own configs at the source are those of the mirror topic, less the excluded. Only differences are sent, and only
// as IncrementalAlterConfigs: what somebody set at the destination alone stays. To tell a config that the source has no
// more, which is reset, from one that only the destination has, the topic's record names those that came from the source.
//
// Held settings (manager_destination.go) keep their values as long as the topic is mirrored. What they are at the
// source goes into the topic's record, from where a stop takes it, as a stop needs no source.

// configsAtOnce is how many topics are asked about in one request.
const configsAtOnce = 200

// syncConfigs is one cycle for all topics at work.
func (r *mirrorRun) syncConfigs(ctx context.Context) outcome {
	topics := r.mirrored()
	if len(topics) == 0 {
		return outcome{off: true}
	}
	o := outcome{skipped: make(map[string]string)}
	for chunk := range slices.Chunk(topics, configsAtOnce) {
		there, err := cluster.TopicConfigs(ctx, r.source, chunk)
		if err != nil {
			return outcome{changes: o.changes, err: fmt.Errorf("source: %w", err)}
		}
		if err := r.sameCluster(ctx); err != nil {
			return outcome{changes: o.changes, err: err}
		}
		here, err := cluster.TopicConfigs(ctx, r.m.cfg.Destination, chunk)
		if err != nil {
			return outcome{changes: o.changes, err: fmt.Errorf("destination: %w", err)}
		}
		for _, name := range chunk {
			changed, skipped := r.syncTopicConfigs(ctx, name, there[name], here[name])
			if changed {
				o.changes++
			}
			if skipped != "" {
				o.skipped[name] = skipped
			}
			if ctx.Err() != nil {
				return outcome{changes: o.changes, err: ctx.Err()}
			}
		}
	}
	return o
}

// syncTopicConfigs brings one topic in line. skipped says what was left out.
func (r *mirrorRun) syncTopicConfigs(ctx context.Context, name string, there, here kadm.ResourceConfig) (changed bool, skipped string) {
	switch {
	case there.Err != nil:
		return false, "its configs cannot be read at the source: " + why(lacksRight(there.Err, "DESCRIBE_CONFIGS on topic %s at the source", name), there.ErrMessage)
	case here.Err != nil:
		return false, "its configs cannot be read at the destination: " + why(lacksRight(here.Err, alterConfigsRight, name), here.ErrMessage)
	}
	t := r.topic(name)
	if t == nil {
		return false, ""
	}
	// A stop gives the held settings back under the same lock, and is recorded as STOPPING before.
	select {
	case t.settings <- struct{}{}:
		defer func() { <-t.settings }()
	case <-ctx.Done():
		return false, ""
	}
	if !t.policy.TryLock() { // cleanup.policy is another one for a moment
		return false, ""
	}
	defer t.policy.Unlock()
	rec, ok := r.m.records.Topic(r.name, name)
	if !ok || State(rec.State) != Mirroring {
		return false, ""
	}
	config := r.config()
	change := config.changeConfigs(rec, there.Configs, here.Configs)
	unknown := r.m.dropUnknown(change.set)
	if len(unknown) > 0 {
		skipped = "the destination does not know " + strings.Join(unknown, ", ")
	}
	if err := r.noteConfigs(ctx, rec, change); err != nil {
		return false, "its record cannot be written: " + err.Error()
	}
	if len(change.set)+len(change.reset) == 0 {
		return false, skipped
	}
	changed, refused := r.m.alterOneByOne(ctx, name, change)
	for _, key := range r.m.dropUnknown(change.set) { // found out just now
		refused = append(refused, "the destination does not know "+key)
	}
	if skipped != "" {
		refused = append(refused, skipped)
	}
	return changed, strings.Join(refused, "; ")
}

// alterOneByOne changes configs together or, where the destination refuses that, one at a time, so that one that it does
// not take keeps none of the others back.
func (m *Manager) alterOneByOne(ctx context.Context, topic string, change configChange) (changed bool, refused []string) {
	err := m.alterTopic(ctx, topic, change.set, change.reset)
	if err == nil {
		return true, nil
	}
	if len(change.set)+len(change.reset) == 1 || ctx.Err() != nil {
		return false, []string{err.Error()}
	}
	for _, key := range sortedKeys(change.set) {
		if err := m.alterTopic(ctx, topic, map[string]string{key: change.set[key]}, nil); err != nil {
			refused = append(refused, key+": "+err.Error())
		}
	}
	for _, key := range change.reset {
		if err := m.alterTopic(ctx, topic, nil, []string{key}); err != nil {
			refused = append(refused, key+": "+err.Error())
		}
	}
	return len(refused) < len(change.set)+len(change.reset), refused
}

// why is the message of a cluster's refusal, or the code where it has none.
func why(err error, message string) string {
	if message == "" || broker.Unauthorized(err) {
		return err.Error()
	}
	return message
}

// configChange is what has to be done about the configs of a topic.
type configChange struct {
	set   map[string]string
	reset []string
	// restore and synced are for the topic's record.
	restore map[string]string
	synced  []string
}

// changeConfigs compares both sides. It is pure.
func (c Config) changeConfigs(rec store.Topic, there, here []kadm.Config) configChange {
	wanted, restore := c.destinationConfigs(there)
	present := make(map[string]string)
	for _, entry := range here {
		if entry.Value != nil && entry.Source == kmsg.ConfigSourceDynamicTopicConfig {
			present[entry.Key] = *entry.Value
		}
	}
	// Batches of the larger size may be on their way yet, so it is not lowered before the stop.
	if size, ok := present[maxMessageBytes]; ok {
		if source, ok := wanted[maxMessageBytes]; ok || slices.Contains(rec.Synced, maxMessageBytes) {
			wanted[maxMessageBytes] = largest(size, source)
		}
	}
	change := configChange{set: make(map[string]string), restore: restore}
	for key, value := range wanted {
		_, other := rec.Restore[key] // cleanup.policy is another one for a moment
		if now, ok := present[key]; (!ok || now != value) && !(key == cleanupPolicy && other) {
			change.set[key] = value
		}
		if !HeldSetting(key) {
			change.synced = append(change.synced, key)
		}
	}
	for _, key := range rec.Synced {
		_, still := wanted[key]
		_, set := present[key]
		_, other := rec.Restore[key]
		if !still && set && !(key == cleanupPolicy && other) && !c.TopicPropertiesExclude.Match(key) { // one that is excluded now is the destination's own
			change.reset = append(change.reset, key)
		}
	}
	slices.Sort(change.synced)
	slices.Sort(change.reset)
	return change
}

// largest returns the larger of two numbers in decimal; what is not one counts less.
func largest(a, b string) string {
	x, err := strconv.ParseInt(a, 10, 64)
	y, err2 := strconv.ParseInt(b, 10, 64)
	if err2 != nil || err == nil && x >= y {
		return a
	}
	return b
}

// noteConfigs notes in the topic's record what came from the source, before it is done: a config that was set and not noted
// would never be reset.
func (r *mirrorRun) noteConfigs(ctx context.Context, rec store.Topic, change configChange) error {
	noted := slices.Concat(change.synced, change.reset) // what is to be reset stays noted until that has worked
	slices.Sort(noted)
	same := func(now *store.Topic) bool {
		if policy, ok := now.Restore[cleanupPolicy]; ok { // it is another one for a moment
			change.restore[cleanupPolicy] = policy
		} else {
			delete(change.restore, cleanupPolicy)
		}
		return slices.Equal(now.Synced, noted) && maps.Equal(now.Restore, change.restore)
	}
	if same(&rec) {
		return nil
	}
	return r.m.update(ctx, changeTopic(r.name, rec.Name, func(now *store.Topic) bool {
		if State(now.State) != Mirroring || same(now) {
			return false
		}
		now.Synced, now.Restore = noted, maps.Clone(change.restore)
		return true
	}))
}

// dropUnknown takes out of configs what the destination is known not to know, and returns what is worth telling.
func (m *Manager) dropUnknown(configs map[string]string) (unknown []string) {
	for _, key := range sortedKeys(configs) {
		if _, ok := m.unknownConfigs.Load(key); !ok {
			continue
		}
		delete(configs, key)
		if !HeldSetting(key) {
			unknown = append(unknown, key)
		}
	}
	return unknown
}
