package mirror

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/store"
)

// # Cut-overs
//
// A planned move without loss: the producers of a topic go from the source to the gateway while the mirror catches up, and
// the topic becomes writable when it has everything. In between, producers at the gateway must wait instead of being
// refused for good. Two settings of the mirror say for which topics, and until when:
//
//	mirror.cutover.topics, mirror.cutover.deadline.ms
//
// So they are durable and known to every gateway, and a cut-over that was given up ends by itself: at the deadline
// producers are refused again. Nothing depends on them for safety: the topic is read-only before, meanwhile, and until
// every partition is fenced. From STOPPING on there is no way back, so producers wait for as long as that takes.
//
// Meanwhile the syncers run every second, and look for new partitions. Everything else of a cut-over is decided by
// whoever conducts it (`mirrorgate mirrors cutover`), by what DescribeMirrors tells.

// Names of the settings of a cut-over.
const (
	cutoverTopicsSetting   = "mirror.cutover.topics"
	cutoverDeadlineSetting = "mirror.cutover.deadline.ms"
)

// longestCutover bounds how long producers can be told to wait.
const longestCutover = time.Hour

// cutoverInterval is that of the syncers meanwhile.
const cutoverInterval = time.Second

// cutover is what the settings of a mirror say.
type cutover struct {
	topics map[string]bool
	// until is when producers stop waiting.
	until time.Time
}

// cutoverOf reads the settings; the zero value is no cut-over.
func cutoverOf(config map[string]string) cutover {
	ms, err := strconv.ParseInt(strings.TrimSpace(config[cutoverDeadlineSetting]), 10, 64)
	if err != nil || strings.TrimSpace(config[cutoverTopicsSetting]) == "" {
		return cutover{}
	}
	c := cutover{topics: make(map[string]bool), until: time.UnixMilli(ms)}
	for _, name := range strings.Split(config[cutoverTopicsSetting], ",") {
		c.topics[strings.TrimSpace(name)] = true
	}
	return c
}

// waitUntil is until when producers wait for a topic in a state, the zero time if they do not.
func (c cutover) waitUntil(topic string, state State, now time.Time) time.Time {
	switch {
	case !c.topics[topic] || state == Stopped:
		return time.Time{}
	case state == Stopping:
		return now.Add(longestCutover)
	case c.until.Sub(now) > longestCutover:
		return time.Time{}
	}
	return c.until
}

// cutovers are those of all mirrors.
func (m *Manager) cutovers() map[string]cutover {
	cuts := make(map[string]cutover)
	for _, rec := range m.records.Mirrors() {
		if c := cutoverOf(rec.Config); len(c.topics) > 0 {
			cuts[rec.Name] = c
		}
	}
	return cuts
}

// absoluteDeadlines replaces a deadline of "+n" by the time n milliseconds after now, by the clock that will judge it.
func absoluteDeadlines(changes []ConfigChange, now time.Time) ([]ConfigChange, *Error) {
	out := make([]ConfigChange, len(changes))
	for i, change := range changes {
		out[i] = change
		if change.Name != cutoverDeadlineSetting || change.Op != SetConfig || change.Value == nil {
			continue
		}
		after, relative := strings.CutPrefix(strings.TrimSpace(*change.Value), "+")
		if !relative {
			continue
		}
		ms, err := strconv.ParseUint(after, 10, 63)
		if err != nil {
			return nil, Refuse(kerr.InvalidConfig, "mirror configuration %s: %q is no number of milliseconds from now", change.Name, *change.Value)
		}
		if ms > uint64(longestCutover.Milliseconds()) {
			return nil, Refuse(kerr.InvalidConfig, "mirror configuration %s: producers can be told to wait for %s at most", change.Name, longestCutover)
		}
		deadline := strconv.FormatInt(now.UnixMilli()+int64(ms), 10)
		out[i].Value = &deadline
	}
	return out, nil
}

func parseCutoverTopics(_ *Config, value string) error {
	for _, name := range strings.Split(value, ",") {
		if !literalName(strings.TrimSpace(name)) {
			return fmt.Errorf("%q is no name of a topic", strings.TrimSpace(name))
		}
	}
	return nil
}

func parseCutoverDeadline(c *Config, value string) error {
	ms, err := parseInt(value, 0, 1<<53)
	if err == nil && strings.HasPrefix(value, "+") {
		err = fmt.Errorf("%q counts from now, which only a change of a mirror can", value)
	}
	c.CutoverUntil = time.UnixMilli(ms)
	return err
}

// cuttingOver reports whether producers are to wait for a topic.
func (c *Config) cuttingOver(now time.Time) bool {
	return now.Before(c.CutoverUntil) && c.CutoverUntil.Sub(now) <= longestCutover
}

// lookForPartitions has topics of a cut-over grow at once, as what is written to a partition that the mirror does not have
// yet shows in no lag.
func (r *mirrorRun) lookForPartitions(ctx context.Context) error {
	cut := cutoverOf(r.config().raw)
	var names []string
	for _, name := range r.mirrored() {
		if cut.topics[name] {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	found, _, err := cluster.DescribeTopics(ctx, r.source, names...)
	if err != nil {
		return fmt.Errorf("look for new partitions at the source: %w", err)
	}
	for _, name := range names {
		if found[name].Err != nil {
			return fmt.Errorf("look for new partitions at the source: topic %s: %w", name, found[name].Err)
		}
		r.sourcePartitions(name, found[name].Partitions)
	}
	return nil
}

// writersWait is until when producers wait for the topic of a record.
func writersWait(rec store.Topic, cuts map[string]cutover, now time.Time) time.Time {
	return cuts[rec.Mirror].waitUntil(rec.Name, State(rec.State), now)
}
