package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// # What a check does
//
// A check answers one question: is what the destination has, up to its end, still what the source has? It asks, in this
// order, and the first "no" fails the partition:
//
//  1. Metadata, anew: is it the same cluster (cluster ID), and the same topic (topic ID)?
//  2. Log ends: has the source as much as we have? (The machine decides about that.)
//  3. OffsetForLeaderEpoch: do the records of the leader epoch that was mirrored last still end where ours do, or behind?
//  4. Our last batch: does the source have the same records at its offsets? This needs neither IDs nor epochs.
//  5. The log starts: did somebody trim the destination? See logstart_floor.go.
//
// "No answer" is not a "no": the source may have deleted, by retention or compaction, what we would compare, and it may
// not let us ask. What cannot be proved is let pass. A broker that does not answer is asked again.
//
// All requests of a check go to the leader that metadata told, and name its leader epoch where the protocol can: another
// history cannot slip in between.

// offsetCheck is a doCheckSource.
type offsetCheck struct {
	key    cluster.TopicPartition
	gen    uint64
	target fetchTarget
	end    int64 // of the destination
	// epoch is the source leader epoch of the record before until, -1 if not known. until is at most end.
	epoch int32
	until int64
	empty bool // see doCheckSource
	floor int64
	// producers wrote the destination, by which its fillers are recognised.
	producers []int64

	leader evLeader
	tails  tails // see sourceView
}

const (
	checkSlots   = 16  // batches of checks at one time: some may wait for a broker that is away
	checksAtOnce = 500 // in a batch
	tailSlots    = 4   // tails compared at one time, for one source broker
)

// runChecks carries out checks until ctx ends.
func (v *sourceView) runChecks(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, checkSlots)
	for {
		select {
		case <-v.checkWake:
		case <-ctx.Done():
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		v.mu.Lock()
		n := min(len(v.checks), checksAtOnce)
		checks := v.checks[:n:n]
		if v.checks = v.checks[n:]; len(v.checks) > 0 {
			poke(v.checkWake)
		}
		v.mu.Unlock()
		wg.Go(func() {
			v.carryOut(ctx, checks)
			<-slots
		})
	}
}

// carryOut does checks, each leader's for itself.
func (v *sourceView) carryOut(ctx context.Context, checks []offsetCheck) {
	if len(checks) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sourceRequestTimeout)
	defer cancel()
	resp, err := v.metadata(ctx, topicsOf(checks))
	if other := new(OtherCluster); errors.As(err, &other) {
		v.tell.lost("", other.Reason())
		return
	}
	if err != nil {
		for i := range checks {
			checks[i].later("source: " + err.Error())
		}
		return
	}
	leaders := v.seen(resp)
	tails := v.tails
	if tails != nil {
		if tails, err = tails.batch(ctx, topicsOf(checks)); err != nil {
			for i := range checks {
				checks[i].later("destination: " + err.Error())
			}
			return
		}
	}
	groups := make(map[int32][]*offsetCheck)
	for i := range checks {
		c := &checks[i]
		c.tails = tails
		var ok bool
		if c.leader, ok = leaders[c.key]; !ok {
			c.later("source: metadata about the topic is in doubt")
		} else if c.leader.broker < 0 {
			c.later("source: the partition has no leader")
		} else {
			groups[c.leader.broker] = append(groups[c.leader.broker], c)
		}
	}
	var wg sync.WaitGroup
	for broker, group := range groups {
		wg.Go(func() { v.checkAt(ctx, broker, group) })
	}
	wg.Wait()
}

func topicsOf(checks []offsetCheck) []string {
	seen := make(map[string]bool)
	var names []string
	for _, c := range checks {
		if !seen[c.key.Topic] {
			seen[c.key.Topic] = true
			names = append(names, c.key.Topic)
		}
	}
	return names
}

// sourceEnds are the ends of a source log.
type sourceEnds struct{ start, lso, hw cluster.ListedOffset }

func (e sourceEnds) problem() *problem {
	for _, o := range []cluster.ListedOffset{e.start, e.lso, e.hw} {
		if p := problemOfOffset(o); p != nil {
			return p
		}
	}
	return nil
}

// checkAt does the checks of partitions that one broker leads.
func (v *sourceView) checkAt(ctx context.Context, id int32, checks []*offsetCheck) {
	b := v.client.Broker(int(id))
	leaders := make(map[cluster.TopicPartition]cluster.Leader, len(checks))
	for _, c := range checks {
		leaders[c.key] = cluster.Leader{Broker: c.leader.broker, Epoch: c.leader.epoch}
	}
	starts, err := cluster.ListOffsetsAt(ctx, b, leaders, cluster.Earliest, cluster.ReadUncommitted)
	var stable, ends map[cluster.TopicPartition]cluster.ListedOffset
	var epochs map[cluster.TopicPartition]epochEnd
	if err == nil {
		// The end is asked for last: it can only be too high for the others, never too low.
		if stable, err = cluster.ListOffsetsAt(ctx, b, leaders, cluster.Latest, cluster.ReadCommitted); err == nil {
			ends, err = cluster.ListOffsetsAt(ctx, b, leaders, cluster.Latest, cluster.ReadUncommitted)
		}
	}
	if err == nil {
		epochs, err = epochEndsAt(ctx, b, checks, leaders)
	}
	if err != nil {
		for _, c := range checks {
			c.later(fmt.Sprintf("source: broker %d: %v", id, err))
		}
		return
	}
	var tails errgroup.Group
	tails.SetLimit(tailSlots)
	for _, c := range checks {
		tails.Go(func() error {
			v.judgeLogs(ctx, c, sourceEnds{starts[c.key], stable[c.key], ends[c.key]}, epochs[c.key])
			return nil
		})
	}
	_ = tails.Wait()
}

// judgeLogs answers one check.
func (v *sourceView) judgeLogs(ctx context.Context, c *offsetCheck, ends sourceEnds, epoch epochEnd) {
	if p := ends.problem(); p != nil {
		c.target.handle(evSourceError{gen: c.gen, problem: *p})
		return
	}
	if c.epoch >= 0 && !v.judgeEpoch(c, epoch) {
		return
	}
	start := ends.start.Offset
	answer := evOffsets{gen: c.gen, start: start, lso: stable(ends.lso.Offset, start), hw: ends.hw.Offset, epoch: -1}
	if c.tails != nil && c.end > 0 && c.end >= answer.start && c.end <= answer.lso {
		epoch, ok := v.judgeTail(ctx, c, answer.start)
		if !ok {
			return
		}
		answer.epoch = epoch
	}
	if c.empty {
		var err error
		if answer.remote, err = v.remote(ctx, c); err != nil {
			c.later("source: " + err.Error())
			return
		}
	}
	c.target.handle(answer)
}

// judgeEpoch compares where the last mirrored leader epoch ends, and reports whether nothing speaks against going on;
// else it has answered.
func (v *sourceView) judgeEpoch(c *offsetCheck, e epochEnd) bool {
	log := v.log.With(zap.String("topic", c.key.Topic), zap.Int32("partition", c.key.Partition), zap.Int32("epoch", c.epoch))
	p := problemOf(e.code)
	switch {
	case !e.found:
		c.later("source: no answer to OffsetForLeaderEpoch")
		return false
	case p != nil && p.kind == problemMoved:
		c.target.handle(evSourceError{gen: c.gen, problem: *p})
		return false
	case p != nil: // no right to ask, say
		log.Info("source does not tell where a leader epoch ends", zap.String("error", p.reason))
		return true
	case e.end >= 0 && e.end < c.until:
		c.diverged(truncatedReason(c.epoch, e.end, c.until))
		return false
	case e.end < 0 && c.leader.epoch >= 0 && c.leader.epoch < c.epoch:
		return v.judgeBehind(c)
	}
	v.mu.Lock()
	delete(v.behind, c.key)
	v.mu.Unlock()
	if e.end < 0 {
		log.Debug("source does not know a leader epoch any more: nothing can be proved by it")
	}
	return true
}

// judgeBehind: the source's leader is in an older epoch than the one of our last record. That has to be so for some
// looks before it is believed, though it is the leader itself that says so.
func (v *sourceView) judgeBehind(c *offsetCheck) bool {
	v.mu.Lock()
	s := v.behind[c.key]
	certain := s.again()
	v.behind[c.key] = s
	v.mu.Unlock()
	reason := fmt.Sprintf("diverged: the source partition is in leader epoch %d, records %d and below of the mirror are of epoch %d: the source topic was made again, or another cluster took its place",
		c.leader.epoch, c.until-1, c.epoch)
	if certain {
		c.diverged(reason + "; way out: " + wayOut)
	} else {
		c.later(reason + "; looking again")
	}
	return false
}

// judgeTail compares the last batch at the destination. It returns the source leader epoch of the last record, -1 if it
// could not be compared, and false if it has answered.
func (v *sourceView) judgeTail(ctx context.Context, c *offsetCheck, sourceStart int64) (epoch int32, ok bool) {
	ours, err := c.tails.read(ctx, c.key, c.producers, c.end)
	if err != nil {
		c.later("destination: reading its last records: " + err.Error())
		return -1, false
	}
	if ours.Start > max(sourceStart, c.floor) {
		if why := c.tails.trimmed(ctx, c.key, ours.Start, sourceStart); why != "" {
			c.diverged(why)
			return -1, false
		}
	}
	at, some := ours.Last()
	if !some || at < sourceStart {
		v.unproved(c, "there is no record to compare")
		return -1, true
	}
	theirs, err := cluster.FetchOnce(ctx, v.client.Broker(int(c.leader.broker)), c.key, c.leader.epoch, at)
	if errors.Is(err, kerr.OffsetOutOfRange) { // deleted since the log start was read
		v.unproved(c, "the source has the last record no more")
		return -1, true
	}
	if err != nil {
		c.later("source: reading the last mirrored records: " + err.Error())
		return -1, false
	}
	verdict, err := ours.Compare(theirs.RecordBatches)
	switch {
	case err != nil:
		v.unproved(c, err.Error())
	case verdict.Differs != "":
		c.diverged(fmt.Sprintf("diverged: offset %d holds another record at the source than in the mirror (%s): the source's log was truncated or its topic made again, and has grown past offset %d since; way out: %s",
			verdict.Offset, verdict.Differs, c.end-1, wayOut))
		return -1, false
	case !verdict.Same:
		v.unproved(c, "the source has the last record no more (compaction?)")
	default:
		if at+1 < c.end {
			verdict.Epoch = -1 // of a record with fillers behind it, which may be of a later epoch
		}
		return verdict.Epoch, true
	}
	return -1, true
}

func (v *sourceView) unproved(c *offsetCheck, why string) {
	v.log.Debug("mirror not compared with the source", zap.String("topic", c.key.Topic), zap.Int32("partition", c.key.Partition),
		zap.Int64("end", c.end), zap.String("reason", why))
}

// later has the check asked for again.
func (c *offsetCheck) later(reason string) { c.target.handle(evCheckLater{gen: c.gen, reason: reason}) }

func (c *offsetCheck) diverged(reason string) {
	c.target.handle(evDiverged{gen: c.gen, reason: reason})
}
