package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// # Topics that come and go by themselves
//
// A topic of the source that matches mirror.topics.include, and not mirror.topics.exclude, joins the mirror as by
// AddTopics. One that joined so and matches mirror.topics.exclude leaves as by RemoveTopics, which makes it writable.
// One that merely stops to match include stays, as a change of that list must not end a mirror by accident; and a topic
// that was added by name is never touched.
//
// A topic that was removed does not come back by itself: it is what clients write to after a switch.

// joinAtOnce is how many topics join in one request.
const joinAtOnce = 100

// syncTopics is one cycle.
func (r *mirrorRun) syncTopics(ctx context.Context) outcome {
	config := r.config()
	o := outcome{skipped: make(map[string]string)}
	if err := r.leave(ctx, config, &o); err != nil {
		return outcome{changes: o.changes, err: err}
	}
	if len(config.TopicsInclude) == 0 {
		o.off = true
		return o
	}
	listed, err := cluster.AllTopics(ctx, r.source)
	if err != nil {
		return outcome{changes: o.changes, err: fmt.Errorf("list the topics of the source: %w", err)}
	}
	if err := r.sameCluster(ctx); err != nil {
		return outcome{changes: o.changes, err: err}
	}
	var refs []TopicRef
	for _, name := range sortedKeys(listed) {
		if topic := listed[name]; config.joins(name) && topic.Err == nil && !topic.Internal && !r.knows(name) {
			refs = append(refs, TopicRef{Mirror: r.name, Name: name, ID: topic.ID})
		}
	}
	for chunk := range slices.Chunk(refs, joinAtOnce) {
		joined, err := r.join(ctx, chunk, o.skipped)
		o.changes += joined
		if err != nil {
			o.err = fmt.Errorf("add topics that match mirror.topics.include: %w", err)
			break
		}
	}
	return o
}

// joins reports whether a topic joins by itself.
func (c Config) joins(topic string) bool {
	return c.TopicsInclude.Match(topic) && !c.TopicsExclude.Match(topic) && !strings.HasPrefix(topic, "__")
}

// knows reports whether a topic is, or was, in the mirror.
func (r *mirrorRun) knows(topic string) bool {
	rec, ok := r.m.records.Topic(r.name, topic)
	return ok && !rec.Removed
}

// join adds topics; those that cannot be added are skipped, with the reasons.
func (r *mirrorRun) join(ctx context.Context, refs []TopicRef, skipped map[string]string) (joined int, err error) {
	for len(refs) > 0 {
		results, err := r.m.add(ctx, refs, true)
		if err != nil {
			return 0, err
		}
		if !anyRefused(results) {
			return len(refs), nil
		}
		refs = slices.DeleteFunc(slices.Clone(refs), func(ref TopicRef) bool {
			i := slices.IndexFunc(results, func(result TopicResult) bool { return result.Name == ref.Name })
			if results[i].Err != nil {
				skipped[ref.Name] = results[i].Err.Message
			}
			return results[i].Err != nil
		})
	}
	return 0, nil
}

// leave begins the stop of topics that joined by themselves and are excluded now.
func (r *mirrorRun) leave(ctx context.Context, config *Config, o *outcome) error {
	var names []string
	for _, rec := range r.m.records.topicsOf(r.name) {
		if s := State(rec.State); rec.Joined && s != Stopped && s != Stopping && config.TopicsExclude.Match(rec.Name) {
			names = append(names, rec.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if err := r.m.beginStop(ctx, r.name, names); err != nil {
		return fmt.Errorf("remove topics that match mirror.topics.exclude: %w", err)
	}
	o.changes += len(names)
	r.log.Info("topics match mirror.topics.exclude and are being removed", zap.Strings("topics", names))
	return nil
}
