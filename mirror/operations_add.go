package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/store"
)

// initializeWait is how long AddTopics waits for the destination topics once they are sure to come.
const initializeWait = 10 * time.Second

// AddTopics checks every topic first; if all are well, all are recorded. It waits a little for the destination topics to
// be made, but once the records are durable the answer is success: the rest is finished here, or by the next start.
func (m *Manager) AddTopics(ctx context.Context, topics []TopicRef) ([]TopicResult, error) {
	results, err := m.add(ctx, topics, false)
	if err != nil || anyRefused(results) {
		return results, err
	}
	wait, cancel := context.WithTimeout(ctx, initializeWait)
	defer cancel()
	for i, t := range topics {
		_ = m.await(wait, t.Mirror, t.Name, func(rec store.Topic, ok bool) bool {
			if ok && rec.Removed { // the claim was lost
				results[i].Err = Refuse(kerr.InvalidRequest, "topic %s was added to another mirror at the same time", t.Name)
			}
			return !ok || State(rec.State) != Initializing || rec.Failback != nil && rec.Failback.Phase != store.FailbackCheck
		})
	}
	return results, nil
}

// add checks and records topics. joined: they come by themselves.
func (m *Manager) add(ctx context.Context, topics []TopicRef, joined bool) ([]TopicResult, error) {
	results := newResults(topics)
	for _, i := range byMirrorName(topics) {
		if results[i].Err == nil {
			results[i].Err = m.checkMirror(topics[i].Mirror)
		}
	}
	if anyRefused(results) {
		return results, nil
	}
	add := &addition{
		m: m, topics: topics, results: results, joined: joined,
		producers: make([]int64, len(topics)), looks: make([]failbackLook, len(topics)), failbacks: make([]*store.Failback, len(topics)),
	}
	for mirror, indexes := range byMirror(topics) {
		add.check(ctx, mirror, indexes)
	}
	if anyRefused(results) || len(add.fresh) == 0 {
		return results, nil
	}
	if err := add.takeProducers(ctx); err != nil {
		return nil, visible(clusterTrouble(err))
	}
	if err := add.record(ctx); err != nil {
		return nil, visible(err)
	}
	return results, nil
}

func byMirrorName(topics []TopicRef) []int {
	indexes := make([]int, len(topics))
	for i := range indexes {
		indexes[i] = i
	}
	slices.SortStableFunc(indexes, func(a, b int) int { return strings.Compare(topics[a].Mirror, topics[b].Mirror) })
	return indexes
}

func (m *Manager) checkMirror(name string) *Error {
	if name == "" {
		return Refuse(kerr.InvalidRequest, "the mirror name is missing")
	}
	if _, ok := m.records.Mirror(name); !ok {
		return unknownMirror(name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken[name] != "" {
		return Refuse(kerr.InvalidConfig, "mirror %q: %s", name, m.broken[name])
	}
	return nil
}

// addition is one AddTopics under way.
type addition struct {
	m         *Manager
	topics    []TopicRef
	results   []TopicResult
	fresh     []int          // indexes of the topics that are not mirrored yet
	producers []int64        // by index
	joined    bool           // they come by themselves
	looks     []failbackLook // both sides, by index
	// failbacks are, by index, of topics whose destination topic is not empty; else nil.
	failbacks []*store.Failback
}

// check looks at the topics of one mirror, here, at the source and at the destination.
func (a *addition) check(ctx context.Context, mirror string, indexes []int) {
	ctx, cancel := context.WithTimeout(ctx, 2*contactTimeout+time.Duration(len(indexes))*topicTimeout)
	defer cancel()
	var names []string
	var fresh []int
	for _, i := range indexes {
		if done := a.checkOwner(i); !done {
			names, fresh = append(names, a.topics[i].Name), append(fresh, i)
		}
	}
	if len(fresh) == 0 {
		return
	}
	refuse := func(refusal *Error) {
		for _, i := range fresh {
			a.results[i].Err = refusal
		}
	}
	run := a.m.mirror(mirror)
	if run == nil {
		refuse(Refuse(kerr.CoordinatorNotAvailable, "mirror %q is being started or stopped; try again", mirror))
		return
	}
	looks, here, err := run.looks(ctx, names)
	if err == nil {
		err = run.awaitNew(ctx, names, looks)
	}
	if err != nil {
		refuse(clusterTrouble(err))
		return
	}
	var group errgroup.Group
	group.SetLimit(parallelSteps)
	for n, i := range fresh {
		a.looks[i] = looks[n]
		group.Go(func() error {
			a.results[i].Err = a.checkTopic(ctx, i, run, here)
			return nil
		})
	}
	_ = group.Wait()
	a.fresh = append(a.fresh, fresh...)
}

// looks looks at topics on both sides. here is the destination's cluster ID.
func (r *mirrorRun) looks(ctx context.Context, names []string) (looks []failbackLook, here string, err error) {
	plans, err := r.plan(ctx, names...)
	if err != nil {
		return nil, "", err
	}
	p, err := r.askPeer(ctx)
	if err != nil {
		return nil, "", err
	}
	if p.bypassed {
		return nil, "", bypassing(r.name)
	}
	found, here, err := cluster.DescribeTopics(ctx, r.m.cfg.Destination, names...)
	if err != nil {
		return nil, "", fmt.Errorf("destination: %w", err)
	}
	for _, name := range names {
		plan := plans[name]
		if plan.err == nil {
			plan.err = p.settled(name, plan.sourceID)
		}
		looks = append(looks, failbackLook{plan: plan, peer: p, origin: p.originID(name, plan.sourceID), found: found[name]})
	}
	return looks, here, nil
}

const (
	newTopicLooks = 10
	newTopicPause = 200 * time.Millisecond
)

// awaitNew looks again for a moment at topics that are missing at the source: people add a topic that they have just made, and the
// broker that is asked may not have heard of it yet, or its gateway has not finished it.
func (r *mirrorRun) awaitNew(ctx context.Context, names []string, looks []failbackLook) error {
	pause := time.NewTicker(newTopicPause)
	defer pause.Stop()
	for range newTopicLooks {
		var missing []string
		var indexes []int
		for i, l := range looks {
			if l.plan.missing() || errors.Is(l.plan.err, errBeingMade) {
				missing, indexes = append(missing, names[i]), append(indexes, i)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		again, _, err := r.looks(ctx, missing)
		if err != nil {
			return err
		}
		for n, i := range indexes {
			looks[i] = again[n]
		}
	}
	return nil
}

// checkOwner settles what the records decide. It reports whether the topic needs no more checks.
func (a *addition) checkOwner(i int) (done bool) {
	t := a.topics[i]
	if strings.HasPrefix(t.Name, "__") {
		a.results[i].Err = Refuse(kerr.InvalidTopicException, "topic %s is internal to its cluster and cannot be mirrored", t.Name)
		return true
	}
	rec, ok := a.m.records.owner(t.Name)
	switch {
	case !ok:
		return false
	case rec.Mirror != t.Mirror:
		a.results[i].Err = Refuse(kerr.InvalidRequest, "topic %s is in mirror %q already", t.Name, rec.Mirror)
	case State(rec.State) == Stopping:
		a.results[i].Err = Refuse(kerr.InvalidRequest, "topic %s is being removed from mirror %q; try again when it is STOPPED", t.Name, t.Mirror)
	default:
		a.results[i].Err = checkID(t.Name, t.ID, rec.SourceID)
		a.results[i].ID = rec.SourceID
	}
	return true
}

// checkTopic says why a topic that is not mirrored cannot be.
func (a *addition) checkTopic(ctx context.Context, i int, run *mirrorRun, here string) *Error {
	t, plan, found := a.topics[i], a.looks[i].plan, a.looks[i].found
	if why := run.loop(t.Name, a.looks[i].peer, here); why != "" {
		a.results[i].ID = plan.sourceID
		return Refuse(kerr.InvalidRequest, "%s", why)
	}
	if plan.err != nil {
		if errors.Is(plan.err, errBeingMade) {
			return Refuse(kerr.UnknownTopicOrPartition, "topic %s: %s; try again", t.Name, errBeingMade)
		}
		if plan.missing() {
			return Refuse(kerr.UnknownTopicOrPartition, "topic %s does not exist at the source", t.Name)
		}
		refused := clusterTrouble(plan.err)
		return Refuse(refused.Kafka, "topic %s at the source: %s", t.Name, refused.Message)
	}
	if refusal := checkID(t.Name, t.ID, plan.sourceID); refusal != nil {
		return refusal
	}
	a.results[i].ID = plan.sourceID
	switch {
	case found.Missing():
		if _, err := a.m.createTopic(ctx, t.Name, plan, true); err != nil {
			refused := clusterTrouble(err)
			return Refuse(refused.Kafka, "topic %s cannot be created at the destination: %s", t.Name, refused.Message)
		}
	case found.Err != nil:
		refused := clusterTrouble(lacksRight(found.Err, "DESCRIBE on topic %s at the destination", t.Name))
		return Refuse(refused.Kafka, "topic %s at the destination: %s", t.Name, refused.Message)
	default:
		err := a.m.adoptable(ctx, t.Name, plan, found)
		if err == nil {
			return nil
		}
		refused := clusterTrouble(err)
		if refused.Kafka != kerr.TopicAlreadyExists {
			return refused
		}
		return a.checkFailback(ctx, i, run, refused)
	}
	return nil
}

// checkFailback lets a topic pass whose destination topic is there and not empty, if something can be done about it: the mirror
// can go on in it, or it may be made anew, or the source knows how both are related, so that what is in the way can be shown.
func (a *addition) checkFailback(ctx context.Context, i int, run *mirrorRun, refused *Error) *Error {
	t, look := a.topics[i], a.looks[i]
	fb := a.m.newFailback(t.Mirror, t.Name, look)
	c, err := run.compare(ctx, t.Name, fb, look)
	if err != nil {
		return clusterTrouble(err)
	}
	if c.fits() || c.told || run.config().FailbackRecreate && a.m.notRecreatable(t.Name, look) == "" {
		a.failbacks[i] = fb
		return nil
	}
	text := refused.Message
	if fb.OwnOffsets {
		text += ", or have it made anew (mirror.failback.divergence=recreate): it was mirrored from there before and then stopped, which took at least one offset more of its log"
	} else {
		text += "; nor can it be continued: " + c.why
	}
	return Refuse(refused.Kafka, "%s", text)
}

// takeProducers takes a producer ID for every topic: an incarnation of a mirror topic never writes with an ID that
// anybody used before it.
func (a *addition) takeProducers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout+time.Duration(len(a.fresh))*topicTimeout)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelSteps)
	for _, i := range a.fresh {
		group.Go(func() (err error) {
			a.producers[i], err = newProducerID(ctx, a.m.cfg.Destination)
			return err
		})
	}
	return group.Wait()
}

// record makes the topics durable as INITIALIZING, all or none.
func (a *addition) record(ctx context.Context) error {
	select {
	case a.m.adding <- struct{}{}:
		defer func() { <-a.m.adding }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var updates []store.Update
	for _, i := range a.fresh {
		if a.checkOwner(i) { // again: another request may have been quicker
			continue
		}
		updates = append(updates, a.topicUpdate(i))
	}
	if anyRefused(a.results) {
		return nil
	}
	if err := a.claim(ctx); err != nil || anyRefused(a.results) {
		return err
	}
	if err := a.m.update(ctx, updates...); err != nil {
		return err
	}
	for _, i := range a.fresh {
		a.m.log.Info("topic added", zap.String("mirror", a.topics[i].Mirror), zap.String("topic", a.topics[i].Name),
			zap.Int64("producer", a.producers[i]))
	}
	return nil
}

// topicUpdate makes the record of a new incarnation. One that is not STOPPED was made by another gateway meanwhile, and is
// the same.
func (a *addition) topicUpdate(i int) store.Update {
	t := a.topics[i]
	return store.Update{Key: store.TopicKey(t.Mirror, t.Name), Fn: store.Typed(func(now *store.Topic) (*store.Topic, error) {
		next := &store.Topic{
			Mirror: t.Mirror, Name: t.Name, SourceID: a.results[i].ID, OriginID: a.looks[i].origin, ProducerID: a.producers[i],
			Partitions: a.looks[i].plan.partitions, State: int8(Initializing), Joined: a.joined, Failback: a.failbacks[i],
		}
		if next.Failback != nil { // it is there, and clients go on using it by the ID that they know
			next.DestinationID = next.Failback.TopicID
		}
		if _, ok := a.m.records.Mirror(t.Mirror); !ok {
			return nil, unknownMirror(t.Mirror) // deleted meanwhile
		}
		if now != nil {
			if State(now.State) != Stopped {
				return nil, store.ErrNoChange
			}
		}
		next.PastProducerIDs = a.m.producersOf(t.Name) // in other mirrors, too
		next.EpochLevel = a.m.epochLevel(t.Name, a.looks[i].plan.epochLevel)
		return next, nil
	})}
}
