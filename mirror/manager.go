package mirror

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/store"
)

// # How the manager works
//
// The state log says what is wanted and how far it got; the manager makes it so. An RPC checks, writes records, and
// waits for their effect. A reconcile loop watches the records and keeps one goroutine (topicRun) for every topic that is
// not STOPPED; that goroutine alone does the steps of the topic's life, each of which can be repeated. So a crash
// between any two steps, a restart, and a second gateway that wrote the record all look the same: a record, and a
// topicRun that takes it from there.
//
//	CreateMirror ──► mirror record ──► mirrorRun (source client, replicator, syncers)
//	AddTopics ──► topic record INITIALIZING ──► topicRun: create destination topic ─► MIRRORING ─► Replicator.Start
//	RemoveTopics ──► topic record STOPPING ──► topicRun: Replicator.Stop (fence) ─► settings back ─► STOPPED
//
// Locks: Manager.mu, then mirrorRun.mu, then topicRun.mu; none is held during I/O. Records need no locks: the state log
// evaluates an update over everything before it, so every step says from which state it goes on.

// Replication copies the partitions of one mirror. *Replicator implements it; its methods document the contract.
type Replication interface {
	Start(replication.PartitionSpec)
	Stop(ctx context.Context, spec replication.PartitionSpec) (lastMirrored int64, err error)
	Drop(topic string, partition int32)
	StartNoted(topic string, partition int32, start int64)
	Status(topic string, partition int32) (replication.Status, bool)
	Throttle(bytesPerSecond int64)
	Close()
}

// ManagerConfig is what a Manager needs. Destination, State, Self and Replicate are required.
type ManagerConfig struct {
	// Destination is the admin client of the destination, which must not create topics. The caller closes it, after
	// the Manager.
	Destination *kgo.Client
	// State is the state of all mirrors. The caller closes it, after the Manager.
	State StateLog
	// Self returns this gateway as clients reach it. It is called only for requests of clients.
	Self func() Member
	// Principal is the gateway's own at the destination, as in ACLs; "" if it is not known.
	Principal string
	// ConnectSource makes a client of a source cluster, with further options, without contacting it. nil: from Config.Source.
	ConnectSource func(config Config, opts ...kgo.Opt) (*kgo.Client, error)
	// Replicate makes the Replication of one mirror.
	Replicate func(mirror string, config Config, source *kgo.Client, events replication.Events) (Replication, error)

	// MissingFor is how long a destination topic must not be found before it counts as deleted; 0 = 15 s.
	MissingFor time.Duration

	// stopPatience replaces sourcePatience and finalGroupsLimit in tests, if it is not 0.
	stopPatience time.Duration

	Log      *zap.Logger        // nil logs nothing
	Metrics  *ManagerMetrics    // nil measures nothing
	Listener func(ManagerEvent) // told of every step, from any goroutine; must not block
}

// ManagerEvent is a step in the life of a mirror, for logs and tests.
type ManagerEvent struct {
	Mirror, Topic string
	Partition     int32 // -1 if the event is about the whole topic
	State         State
	Reason        string
}

// Manager owns all mirrors of a gateway and implements Engine.
type Manager struct {
	cfg     ManagerConfig
	log     *zap.Logger
	metrics *ManagerMetrics
	records *records
	topics  atomic.Pointer[Topics]

	// steps bounds the topics whose steps talk to the clusters at one time, so that a start with thousands of topics
	// is not a flood.
	steps chan struct{}
	// alterations are the changes of settings of destination topics.
	alterations *alterations
	// adding is held while AddTopics and ReserveTopicID look at the records of other topics and write theirs.
	adding chan struct{}
	// unknownConfigs are topic settings that the destination does not know (string → true).
	unknownConfigs sync.Map
	// destinationID is the cluster ID of the destination, once it is known.
	destinationID atomic.Pointer[string]

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	rebuild sync.Mutex // held while a snapshot is made
	mu      sync.Mutex
	mirrors map[string]*mirrorRun // guarded by mu
	closing map[string]bool       // runs that are ending; guarded by mu
	broken  map[string]string     // why a mirror could not be started; guarded by mu
	closed  bool                  // guarded by mu
}

const (
	contactTimeout = 10 * time.Second // of a source, before an answer
	// topicTimeout is how much longer a request may take for each of its topics: a slow cluster must not refuse to mirror thousands.
	topicTimeout  = 100 * time.Millisecond
	retryLeast    = time.Second
	retryMost     = 5 * time.Minute
	parallelSteps = 16
)

// NewManager makes a manager and starts the reconcile loop. Topics of the state are in the snapshot when it returns.
// Close must end it.
func NewManager(cfg ManagerConfig) *Manager {
	ctx, cancel := context.WithCancel(context.Background())
	m := &Manager{
		cfg: cfg, log: cfg.Log, metrics: cfg.Metrics, records: newRecords(cfg.State),
		steps: make(chan struct{}, parallelSteps), alterations: newAlterations(cfg.Destination), adding: make(chan struct{}, 1),
		ctx: ctx, cancel: cancel, mirrors: make(map[string]*mirrorRun), closing: make(map[string]bool), broken: make(map[string]string),
	}
	if m.log == nil {
		m.log = zap.NewNop()
	}
	if m.metrics == nil {
		m.metrics = NewManagerMetrics(nil)
	}
	if m.cfg.MissingFor == 0 {
		m.cfg.MissingFor = 15 * time.Second
	}
	unwatch := cfg.State.Watch(m.records.watch)
	m.snapshot()
	m.reconcile()
	m.wg.Go(func() {
		defer unwatch()
		m.run()
	})
	return m
}

// Close ends all mirrors without a fence and waits for them; a later start, here or elsewhere, goes on.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.wg.Wait()
	m.mu.Lock()
	runs := m.mirrors
	m.mirrors = make(map[string]*mirrorRun)
	m.mu.Unlock()
	for _, run := range runs {
		run.close()
	}
}

// run reconciles after each change of the state, and once in a while without one, so that whatever failed is tried
// again.
func (m *Manager) run() {
	ticker := time.NewTicker(30 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-m.records.kick:
		case <-ticker.C:
		}
		m.changed()
		for name := range m.records.takeDirty() {
			m.wake(name)
		}
	}
}

// wake has the run of a topic, if there is one, do its next step now.
func (m *Manager) wake(name topicName) {
	if run := m.mirror(name.mirror); run != nil {
		if t := run.topic(name.topic); t != nil {
			t.wakeUp()
		}
	}
}

// changed brings everything in line with the records, after they changed here or elsewhere.
func (m *Manager) changed() {
	m.snapshot()
	m.records.broadcast()
	m.reconcile()
}

// Topics returns the current snapshot.
func (m *Manager) Topics() *Topics { return m.topics.Load() }

// snapshot makes a new Topics of the records. A topic becomes read-only with its first record, before anything is
// mirrored, and writable with a durable STOPPED.
func (m *Manager) snapshot() {
	m.rebuild.Lock()
	defer m.rebuild.Unlock()
	var topics []Topic
	var producers []int64
	counts := make(map[string]map[State]int)
	index := make(map[string]int) // of topics, by name
	cuts, now := m.cutovers(), time.Now()
	for _, rec := range m.records.Topics("") {
		if rec.ProducerID >= 0 {
			producers = append(producers, rec.ProducerID)
		}
		producers = append(producers, rec.PastProducerIDs...)
		topic := Topic{
			Name: rec.Name, Mirror: rec.Mirror, SourceID: rec.SourceID, DestinationID: rec.DestinationID,
			EpochBase: EpochBaseOf(rec.EpochLevel),
			State:     State(rec.State), ReadOnly: State(rec.State) != Stopped, WritersWait: writersWait(rec, cuts, now),
		}
		if !rec.Removed {
			if counts[rec.Mirror] == nil {
				counts[rec.Mirror] = make(map[State]int)
			}
			counts[rec.Mirror][topic.State]++
		}
		// A topic can be in several mirrors, one after the other: the one that is not STOPPED counts.
		if i, ok := index[rec.Name]; !ok {
			index[rec.Name] = len(topics)
			topics = append(topics, topic)
		} else if topic.ReadOnly || !topics[i].ReadOnly && rec.DestinationID != (TopicID{}) {
			topics[i] = topic
		}
	}
	for _, rec := range m.records.TopicIDs() {
		if _, ok := index[rec.Name]; !ok && rec.DestinationID != (TopicID{}) {
			topics = append(topics, Topic{
				Name: rec.Name, SourceID: rec.SourceID, DestinationID: rec.DestinationID, State: Stopped,
			})
		}
	}
	if old := m.topics.Swap(NewTopics(topics, producers)); old != nil {
		close(old.replaced)
	}
	m.metrics.topicStates(counts)
}

// reconcile starts and wakes what the records want, and ends what they want no more.
func (m *Manager) reconcile() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	wanted := make(map[string]bool)
	for _, rec := range m.records.Mirrors() {
		wanted[rec.Name] = true
		switch run := m.mirrors[rec.Name]; {
		case run != nil && maps.Equal(run.record.Config, rec.Config) && run.record.CreatedMs == rec.CreatedMs && !run.mended():
		case run != nil && run.reconfigure(rec):
		case run != nil:
			m.endMirror(run) // once it is closed, the new one starts
		case !m.closing[rec.Name]:
			m.startMirror(rec)
		}
	}
	for name, run := range m.mirrors {
		if !wanted[name] {
			m.endMirror(run)
			m.metrics.forget(name)
		}
	}
	for _, rec := range m.records.Topics("") {
		if run := m.mirrors[rec.Mirror]; run != nil {
			run.reconcileTopic(rec)
		}
	}
}

// endMirror closes the run of a mirror, without a fence. There is never a second run beside it. REQUIRES: m.mu.
func (m *Manager) endMirror(run *mirrorRun) {
	delete(m.mirrors, run.name)
	m.closing[run.name] = true
	m.wg.Go(func() {
		run.close()
		m.mu.Lock()
		delete(m.closing, run.name)
		m.mu.Unlock()
		m.records.poke()
	})
}

// startMirror makes the run of a mirror. A configuration that this gateway cannot use (a missing file, say) is tried again
// with the next reconcile; until then the mirror has no source. REQUIRES: m.mu.
func (m *Manager) startMirror(rec store.Mirror) {
	run, err := newMirrorRun(m, rec)
	if err == nil {
		m.mirrors[rec.Name] = run
		err = run.config().unusable
	}
	if err != nil {
		if m.broken[rec.Name] != err.Error() {
			m.log.Error("mirror cannot be started", zap.String("mirror", rec.Name), zap.Error(err))
		}
		m.broken[rec.Name] = err.Error()
		return
	}
	delete(m.broken, rec.Name)
	m.log.Info("mirror started", zap.String("mirror", rec.Name), zap.Strings("source", run.config().Bootstrap))
}

// mirror returns the run of a mirror, or nil.
func (m *Manager) mirror(name string) *mirrorRun {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mirrors[name]
}

// event tells logs and the listener. Transitions of single partitions are logged by whoever made them.
func (m *Manager) event(e ManagerEvent) {
	if e.Partition < 0 {
		fields := []zap.Field{zap.String("mirror", e.Mirror), zap.String("topic", e.Topic), zap.Stringer("state", e.State)}
		switch {
		case e.State == Failed:
			m.log.Error("mirroring failed", append(fields, zap.String("reason", e.Reason))...)
		case e.Reason != "":
			m.log.Warn("mirroring waits", append(fields, zap.String("reason", e.Reason))...)
		default:
			m.log.Info("mirror topic", fields...)
		}
	}
	if m.cfg.Listener != nil {
		m.cfg.Listener(e)
	}
}

// await returns when the state of a topic satisfies ok, or with ctx's error. The second argument of ok is false if
// there is no such topic.
func (m *Manager) await(ctx context.Context, mirror, topic string, ok func(store.Topic, bool) bool) error {
	for {
		changed := m.records.changes()
		if ok(m.records.Topic(mirror, topic)) {
			m.snapshot() // the record may be here before whoever wrote it made one
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for topic %s of mirror %s: %w", topic, mirror, ctx.Err())
		case <-m.ctx.Done():
			return fmt.Errorf("wait for topic %s of mirror %s: the gateway is stopping", topic, mirror)
		}
	}
}
