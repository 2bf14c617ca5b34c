package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sync/errgroup"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// groupSync copies the committed offsets of consumer groups. Offsets are equal on both sides, so they are copied as they
// are, clamped to the destination's log:
//
//	max(destination log start, min(source committed, destination end))
//
// The leader epoch is -1: the source's epochs mean nothing at the destination.
//
// A group is left alone while it has members at the destination; and since that can change between a look and a commit,
// the commit is one without a member, which a broker refuses for a group that has some. An offset is never moved back
// over what somebody else committed: only one that is older than the source's, or that was written here, is changed.
//
// After a restart nothing is known to be written here, so nothing moves back: a group that was reset at the source stays
// where it is, visibly, until the source passes it or somebody resets it here. What was written could be kept in the
// state log, but not for less than the offsets themselves, every cycle; and the commit itself has no room for a mark:
// its metadata belongs to the application.
type groupSync struct {
	run *mirrorRun
	// busy has room for the one sync that may run.
	busy chan struct{}

	mu      sync.Mutex
	next    *groupRound                                 // the sync that waits to be run for final; guarded by mu
	rounds  bool                                        // runRounds is running; guarded by mu
	written map[string]map[cluster.TopicPartition]int64 // what was committed here, by group; guarded by mu
}

// groupRound is one sync that several stopping topics wait for.
type groupRound struct{ done chan struct{} }

const (
	groupsAtOnce     = 500 // in one OffsetFetch; it is split by coordinator
	commitsAtOnce    = 32
	finalGroupsLimit = 5 * time.Second
)

func newGroupSync(run *mirrorRun) *groupSync {
	return &groupSync{run: run, busy: make(chan struct{}, 1), written: make(map[string]map[cluster.TopicPartition]int64)}
}

// logRange is where a destination partition starts and where its mirrored part ends.
type logRange struct{ start, end int64 }

// clampOffset is the rule for what the destination gets.
func clampOffset(ReadCommitted int64, r logRange) int64 {
	return max(r.start, min(ReadCommitted, r.end))
}

// cycle syncs all groups for all topics of the mirror that are not STOPPED. Trouble is reported; the next cycle tries again.
func (g *groupSync) cycle(ctx context.Context) {
	select {
	case g.busy <- struct{}{}:
		defer func() { <-g.busy }()
	case <-ctx.Done():
		return
	}
	var topics []string
	for _, rec := range g.run.m.records.topicsOf(g.run.name) {
		if s := State(rec.State); s != Stopped && s != Initializing {
			topics = append(topics, rec.Name)
		}
	}
	started := time.Now()
	o := outcome{off: true}
	if len(topics) > 0 {
		o = g.sync(ctx, topics)
	}
	if g.run.ctx.Err() == nil {
		g.run.report.note(SyncGroups, o, time.Since(started))
	}
}

// final syncs once more before a topic becomes writable, if the source answers soon. However many topics stop at a time,
// they wait for the same sync: the next one that begins.
func (g *groupSync) final(ctx context.Context) {
	g.mu.Lock()
	if g.next == nil {
		g.next = &groupRound{done: make(chan struct{})}
	}
	round := g.next
	if !g.rounds {
		g.rounds = true
		g.run.wg.Go(g.runRounds)
	}
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*g.run.m.patience(finalGroupsLimit))
	defer cancel()
	select {
	case <-round.done:
	case <-ctx.Done():
	}
}

func (g *groupSync) runRounds() {
	for {
		g.mu.Lock()
		round := g.next
		g.next, g.rounds = nil, round != nil
		g.mu.Unlock()
		if round == nil {
			return
		}
		ctx, cancel := context.WithTimeout(g.run.ctx, g.run.m.patience(finalGroupsLimit))
		g.cycle(ctx)
		cancel()
		close(round.done)
	}
}

// sync copies the offsets that groups of the source have in topics.
func (g *groupSync) sync(ctx context.Context, topics []string) outcome {
	source, destination := kadm.NewClient(g.run.source), kadm.NewClient(g.run.m.cfg.Destination)
	listed, err := source.ListGroups(ctx)
	if err != nil && len(listed) == 0 {
		return outcome{err: fmt.Errorf("list the groups of the source: %w", err)}
	}
	if err := g.run.sameCluster(ctx); err != nil {
		return outcome{err: err}
	}
	if err == nil {
		g.forgetAllBut(listed)
	}
	consumers, shares := g.included(listed)
	o := outcome{skipped: make(map[string]string)}
	if len(consumers)+len(shares) == 0 {
		o.err = err
		return o
	}
	there, err2 := destination.ListGroups(ctx)
	if err2 != nil { // a group whose state is not known must not be touched
		return outcome{err: fmt.Errorf("list the groups of the destination: %w", err2)}
	}
	ranges, err2 := g.ranges(ctx, topics)
	if err2 != nil {
		return outcome{err: err2}
	}
	errs := []error{err}
	for chunk := range slices.Chunk(idle(consumers, there, false, o.skipped), groupsAtOnce) {
		n, err := g.syncGroups(ctx, source, destination, chunk, ranges, o.skipped)
		o.changes += n
		errs = append(errs, err)
	}
	for chunk := range slices.Chunk(idle(shares, there, true, o.skipped), groupsAtOnce) {
		n, err := g.syncShareGroups(ctx, source, destination, chunk, ranges, o.skipped)
		o.changes += n
		errs = append(errs, err)
	}
	o.covered, o.err = len(consumers)+len(shares)-len(o.skipped), errors.Join(errs...)
	return o
}

// forgetAllBut drops what is remembered of groups that the source does not have any more.
func (g *groupSync) forgetAllBut(listed kadm.ListedGroups) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for name := range g.written {
		if _, ok := listed[name]; !ok {
			delete(g.written, name)
		}
	}
}

// included returns the groups that the mirror's configuration includes: those with committed offsets (classic groups of
// consumers, KIP-848 and Streams groups), and share groups, whose offsets are of another kind.
func (g *groupSync) included(listed kadm.ListedGroups) (consumers, shares []string) {
	config := g.run.config()
	for _, group := range listed {
		if !config.GroupsInclude.Match(group.Group) || config.GroupsExclude.Match(group.Group) {
			continue
		}
		switch {
		case group.GroupType == "share":
			shares = append(shares, group.Group)
		case group.ProtocolType == "" || group.ProtocolType == "consumer" || group.GroupType == "streams":
			consumers = append(consumers, group.Group)
		}
	}
	slices.Sort(consumers)
	slices.Sort(shares)
	return consumers, shares
}

// idle returns the groups that may be touched at the destination, and adds the reasons of the others to skipped.
func idle(names []string, there kadm.ListedGroups, share bool, skipped map[string]string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		reason := activeReason(there, name, share)
		if reason != "" {
			skipped[name] = reason
		}
		return reason != ""
	})
}

// activeReason says why a group must not be touched at the destination, "" if it may.
func activeReason(there kadm.ListedGroups, name string, share bool) string {
	group, ok := there[name]
	switch {
	case !ok || group.State == "Dead":
		return ""
	case share && group.GroupType != "share":
		return "is no share group at the destination"
	case !share && group.GroupType == "share":
		return "is a share group at the destination"
	case group.State == "Empty":
		return ""
	}
	return membersReason
}

const (
	membersReason = "has members at the destination"
	furtherReason = "is further at the destination in some partitions"
)

// ranges asks for the starts and ends of the destination logs. A partition that is not known at the moment is left for
// the next cycle.
func (g *groupSync) ranges(ctx context.Context, topics []string) (map[cluster.TopicPartition]logRange, error) {
	client := g.run.m.cfg.Destination
	found, _, err := cluster.DescribeTopics(ctx, client, topics...)
	if err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	partitions := make(map[string]int32, len(topics))
	for name, topic := range found {
		partitions[name] = topic.Partitions
	}
	starts, err := cluster.AllOffsets(ctx, client, partitions, cluster.Earliest)
	if err != nil {
		return nil, fmt.Errorf("ask for the log starts of the destination: %w", err)
	}
	ends, err := cluster.AllOffsets(ctx, client, partitions, cluster.Latest)
	if err != nil {
		return nil, fmt.Errorf("ask for the log ends of the destination: %w", err)
	}
	ranges := make(map[cluster.TopicPartition]logRange, len(ends))
	for tp, end := range ends {
		start, ok := starts[tp]
		if !ok {
			continue
		}
		// Once a partition is fenced, its log ends with the fence, which is not a record of the source.
		if part, ok := g.run.m.records.Partition(g.run.name, tp.Topic, tp.Partition); ok && State(part.State) == Stopped && part.LastMirrored >= 0 {
			end = min(end, part.LastMirrored)
		}
		ranges[tp] = logRange{start, end}
	}
	return ranges, nil
}

// syncGroups does one batch of groups. Reasons to skip a group are added to skipped.
func (g *groupSync) syncGroups(ctx context.Context, source, destination *kadm.Client, names []string,
	ranges map[cluster.TopicPartition]logRange, skipped map[string]string,
) (ReadCommitted int, err error) {
	have := source.FetchManyOffsets(ctx, names...)
	if err := g.run.sameCluster(ctx); err != nil {
		return 0, err
	}
	commits := make(map[string]kadm.Offsets)
	for _, name := range names {
		group := have[name]
		if group.Err != nil {
			skipped[name] = "its offsets cannot be read at the source: " + lacksRight(group.Err, "DESCRIBE on group %s at the source", name).Error()
			continue
		}
		if wanted := wantedOffsets(group, ranges); len(wanted) > 0 {
			commits[name] = wanted
		}
	}
	present := destination.FetchManyOffsets(ctx, sortedKeys(commits)...)
	for name, wanted := range commits {
		if err := present[name].Err; err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			skipped[name] = "its offsets cannot be read at the destination: " + lacksRight(err, "READ on group %s at the destination", name).Error()
			delete(commits, name)
			continue
		}
		if g.keepNews(name, wanted, present[name].Fetched) > 0 {
			skipped[name] = furtherReason
		}
		if len(wanted) == 0 {
			delete(commits, name)
		}
	}
	return g.commit(ctx, destination, commits, skipped)
}

// wantedOffsets are the source's offsets of a group in the mirrored topics, clamped.
func wantedOffsets(group kadm.FetchOffsetsResponse, ranges map[cluster.TopicPartition]logRange) kadm.Offsets {
	wanted := make(kadm.Offsets)
	group.Fetched.Each(func(o kadm.OffsetResponse) {
		r, ok := ranges[cluster.TopicPartition{Topic: o.Topic, Partition: o.Partition}]
		if !ok || o.Err != nil || o.At < 0 { // -1: nothing is committed
			return
		}
		wanted.Add(kadm.Offset{
			Topic: o.Topic, Partition: o.Partition, At: clampOffset(o.At, r), LeaderEpoch: -1, Metadata: o.Metadata,
		})
	})
	return wanted
}

// keepNews takes out of wanted what need not, or must not, be committed, and returns how many partitions stay because
// somebody else committed a later offset.
func (g *groupSync) keepNews(name string, wanted kadm.Offsets, present kadm.OffsetResponses) (further int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for topic, partitions := range wanted {
		for partition, want := range partitions {
			now, ok := present.Lookup(topic, partition)
			if !ok || now.At < 0 && now.Err == nil {
				continue // none yet
			}
			ours, known := g.written[name][cluster.TopicPartition{Topic: topic, Partition: partition}]
			switch {
			case now.Err == nil && now.At < want.At:
				continue
			case now.Err == nil && now.At > want.At && known && ours == now.At:
				continue // the group went back at the source
			case now.Err == nil && now.At > want.At:
				further++
			}
			delete(partitions, partition)
		}
		if len(partitions) == 0 {
			delete(wanted, topic)
		}
	}
	return further
}

// commit commits for many groups at a time; the protocol has one request a group.
func (g *groupSync) commit(ctx context.Context, destination *kadm.Client, commits map[string]kadm.Offsets, skipped map[string]string) (ReadCommitted int, err error) {
	var mu sync.Mutex // guards committed and skipped
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(commitsAtOnce)
	for name, offsets := range commits {
		group.Go(func() error {
			results, err := destination.CommitOffsets(ctx, name, offsets)
			if err == nil {
				err = g.noteWritten(name, results)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				ReadCommitted++
			case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.StaleMemberEpoch), errors.Is(err, kerr.IllegalGeneration):
				skipped[name] = membersReason
			case ctx.Err() == nil:
				skipped[name] = "its offsets cannot be committed at the destination: " +
					lacksRight(err, "READ on group %s, and on the topics of its offsets, at the destination", name).Error()
			}
			return ctx.Err()
		})
	}
	return ReadCommitted, group.Wait()
}

// noteWritten remembers what was committed, and returns the first error.
func (g *groupSync) noteWritten(name string, results kadm.OffsetResponses) (err error) {
	results.Each(func(r kadm.OffsetResponse) {
		if r.Err == nil {
			g.remember(name, cluster.TopicPartition{Topic: r.Topic, Partition: r.Partition}, r.At)
		} else if err == nil {
			err = r.Err
		}
	})
	return err
}

// remember keeps that an offset of a group was written here.
func (g *groupSync) remember(group string, tp cluster.TopicPartition, at int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.written[group] == nil {
		g.written[group] = make(map[cluster.TopicPartition]int64)
	}
	g.written[group][tp] = at
}
