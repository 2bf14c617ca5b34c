package mirror

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/store"
)

// mirrorRun is a mirror at work in this process.
type mirrorRun struct {
	m           *Manager
	name        string
	record      store.Mirror // guarded by Manager.mu
	current     atomic.Pointer[Config]
	source      *kgo.Client // admin work at the source; connects when it is used
	replication Replication
	groups      *groupSync
	report      *syncReport
	log         *zap.Logger
	refreshNow  chan struct{} // has room for one: the syncers are to run before their time

	sourceClusterID string               // does not change
	peer            atomic.Pointer[peer] // what the source said last of its own mirrors; nil if nothing was said yet
	bypassTold      bool                 // of peer.bypassed; used by refresh alone
	hiddenTold      bool                 // of peer.hidden; used by refresh alone

	// refusedACLs are those that the destination refused in the last cycle. Used by refresh alone.
	refusedACLs map[aclHash]bool

	pinging  sync.Mutex // held while the source is asked whether it is there
	pinged   time.Time  // guarded by pinging
	answered bool       // guarded by pinging

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	topics map[string]*topicRun // guarded by mu
}

func newMirrorRun(m *Manager, rec store.Mirror) (*mirrorRun, error) {
	config, err := usableConfig(rec.Config)
	if err != nil {
		return nil, err
	}
	source, err := m.connectSource(config)
	if err != nil {
		return nil, fmt.Errorf("source of mirror %s: %w", rec.Name, err)
	}
	ctx, cancel := context.WithCancel(m.ctx)
	run := &mirrorRun{
		m: m, name: rec.Name, record: rec, source: source,
		log: m.log.With(zap.String("mirror", rec.Name)), ctx: ctx, cancel: cancel,
		refreshNow: make(chan struct{}, 1), topics: make(map[string]*topicRun), sourceClusterID: rec.SourceClusterID,
	}
	run.current.Store(&config)
	run.report = newSyncReport(rec.Name, run.log, m.metrics)
	run.groups = newGroupSync(run)
	run.replication, err = m.cfg.Replicate(rec.Name, config, source, replication.Events{
		StateChanged:     run.stateChanged,
		SourcePartitions: run.sourcePartitions,
		SourceEpochs:     run.sourceEpochs,
		SourceStart:      run.sourceStart,

		AllowDeleteRecords: run.allowDeleteRecords,
		RaiseBatchLimit:    run.raiseBatchLimit,
	})
	if err != nil {
		cancel()
		source.Close()
		return nil, fmt.Errorf("replication of mirror %s: %w", rec.Name, err)
	}
	run.wg.Go(run.refresh)
	return run, nil
}

// config returns the configuration. Settings that belong to the connection, or to fetching except its rate, do not change in
// a run.
func (r *mirrorRun) config() *Config { return r.current.Load() }

// reconfigure takes a new configuration into use, and reports false if that needs a new run. REQUIRES: Manager.mu.
func (r *mirrorRun) reconfigure(rec store.Mirror) bool {
	if rec.CreatedMs != r.record.CreatedMs || !liveChange(r.record.Config, rec.Config) || r.config().unusable != nil {
		return false
	}
	config, err := ParseConfig(rec.Config)
	if err != nil {
		return false // whoever starts the new run says so
	}
	r.record = rec
	r.current.Store(&config)
	r.replication.Throttle(config.ThrottledRate)
	r.log.Info("configuration of the mirror changed")
	r.soon()
	return true
}

// mended reports whether the configuration could not be used at the start of the run, and can be now. REQUIRES: Manager.mu.
func (r *mirrorRun) mended() bool {
	if r.config().unusable == nil {
		return false
	}
	config, err := usableConfig(r.record.Config)
	return err == nil && config.unusable == nil
}

// close ends everything of the mirror without a fence.
func (r *mirrorRun) close() {
	r.mu.Lock() // no topicRun is started after this
	r.cancel()
	r.mu.Unlock()
	r.wg.Wait()
	r.replication.Close()
	r.source.Close()
}

// reconcileTopic starts or wakes the run of a topic.
func (r *mirrorRun) reconcileTopic(rec store.Topic) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return
	}
	t := r.topics[rec.Name]
	if t == nil {
		if State(rec.State) == Stopped {
			return
		}
		t = newTopicRun(r, rec)
		r.topics[rec.Name] = t
		r.wg.Go(func() {
			t.loop(r.ctx)
			r.mu.Lock()
			delete(r.topics, rec.Name)
			r.mu.Unlock()
			r.again(rec.Name)
		})
	}
	if t.recordChanged(rec) {
		t.wakeUp()
	}
}

// again covers a topic that was added anew in the moment in which its run ended.
func (r *mirrorRun) again(topic string) {
	if rec, ok := r.m.records.Topic(r.name, topic); ok && State(rec.State) != Stopped {
		r.reconcileTopic(rec)
	}
}

// topic returns the run of a topic, or nil.
func (r *mirrorRun) topic(name string) *topicRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.topics[name]
}

func (r *mirrorRun) stateChanged(change replication.StateChange) {
	if t := r.topic(change.Topic); t != nil {
		t.stateChanged(change)
	}
	r.m.event(ManagerEvent{
		Mirror: r.name, Topic: change.Topic, Partition: change.Partition, State: change.To, Reason: change.Reason,
	})
}

func (r *mirrorRun) sourcePartitions(topic string, partitions int32) {
	if t := r.topic(topic); t != nil {
		t.sourceGrew(partitions)
	}
}

// checkDestination looks whether the destination topics are still the ones that were made. Two looks in a row must agree
// on a loss: brokers can be behind for a moment.
func (r *mirrorRun) checkDestination(ctx context.Context) {
	r.mu.Lock()
	runs := make(map[string]*topicRun, len(r.topics))
	for name, t := range r.topics {
		runs[name] = t
	}
	r.mu.Unlock()
	for names := range slices.Chunk(sortedKeys(runs), 1000) {
		found, _, err := cluster.DescribeTopics(ctx, r.m.cfg.Destination, names...)
		if err != nil {
			r.log.Warn("destination topics cannot be checked", zap.Error(err))
			return
		}
		for _, name := range names {
			rec, ok := r.m.records.Topic(r.name, name)
			if ok && State(rec.State) == Mirroring {
				runs[name].destinationSeen(rec, found[name])
			}
		}
	}
}

// foreign says why a topic found at the destination is not the one that this mirror made; "" if it is.
func foreign(rec store.Topic, found cluster.Topic) string {
	switch {
	case found.Missing():
		return "the destination topic was deleted; way out: " + wayOutAtDestination
	case found.Err != nil:
		return "" // not known
	case found.ID != rec.DestinationID:
		return fmt.Sprintf("the destination topic was deleted and created anew by somebody else (its ID is %s, the mirror's was %s); way out: %s",
			cluster.IDString(found.ID), cluster.IDString(rec.DestinationID), wayOutAtDestination)
	}
	return ""
}
