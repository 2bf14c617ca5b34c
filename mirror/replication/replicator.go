package replication

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// Replicator copies the partitions of one mirror. It does not decide which: its owner starts and stops them. All its
// methods may be called at any time and from any goroutine, but nothing can be started after Close.
type Replicator struct {
	cfg     Config
	fetch   fetcherConfig
	view    *sourceView
	metrics *mirrorMetrics
	trims   *trimmer
	beats   *heartbeat
	log     *zap.Logger
	seed    maphash.Seed

	ctx    context.Context // ends fetchers and the view
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	partitions map[cluster.TopicPartition]*replica
	brokers    map[int32]string
	fetchers   map[fetcherKey]*runningFetcher
}

type fetcherKey struct {
	broker int32
	index  int
}

type runningFetcher struct {
	*fetcher
	cancel context.CancelFunc
}

// staleAfter: whatever was asked for longer ago is not appended without a new proof of ownership. It is much shorter
// than the day for which brokers remember a fence.
const staleAfter = 30 * time.Second

// fillerStaleAfter is the same for fillers, which wait for their turn while many logs are filled; see heartbeat.
const fillerStaleAfter = 10 * time.Minute

// New makes an idle Replicator, which Close must end.
func New(cfg Config) *Replicator {
	cfg.Fetch = cfg.Fetch.withDefaults()
	r := &Replicator{
		cfg: cfg, log: cfg.Log, seed: maphash.MakeSeed(),
		partitions: make(map[cluster.TopicPartition]*replica), fetchers: make(map[fetcherKey]*runningFetcher),
	}
	if r.log == nil {
		r.log = zap.NewNop()
	}
	r.log = r.log.With(zap.String("mirror", cfg.Mirror))
	if r.cfg.openLog == nil {
		r.cfg.openLog = openDestination(cfg.Destination)
	}
	r.metrics = cfg.Metrics.of(cfg.Mirror, r.eachStatus)
	r.trims = newTrimmer(r.cfg, r.metrics, r.log)
	r.beats = newHeartbeat()
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.view = newSourceView(cfg.SourceAdmin, cfg.Fetch.MetadataRefresh, quickBackoff, r.listener(), r.log)
	r.view.tails = cfg.tails()
	r.fetch = fetcherConfig{
		source: cfg.Source, options: cfg.Fetch, budget: cfg.Budget, metrics: r.metrics,
		throttle: newThrottle(cfg.Fetch.ThrottledRate), refresh: r.view.look, backoff: quickBackoff, staleAfter: staleAfter,
	}
	r.metrics.throttledRate(cfg.Fetch.ThrottledRate)
	r.wg.Go(func() { r.view.run(r.ctx) })
	r.wg.Go(func() { r.view.runChecks(r.ctx) })
	r.wg.Go(func() { r.trims.run(r.ctx) })
	r.wg.Go(func() { r.beats.run(r.ctx) })
	if cfg.DestinationAdmin != nil {
		r.wg.Go(func() { r.watchDestination(r.ctx) })
	}
	return r
}

// Start begins, or goes on with, the mirroring of a partition and returns at once, except where it replaces one with
// another spec, whose end it awaits. The destination topic must exist. It does nothing for a partition that runs already
// with the same spec; one that is FAILED is tried again.
func (r *Replicator) Start(spec PartitionSpec) {
	if p := r.replica(spec); p != nil {
		p.handle(evStart{})
	}
}

// Stop ends the mirroring of a partition for good: fetching stops, what is in flight settles, and the destination
// partition is fenced. It returns the offset after the last mirrored record, the fence not counted. It does not talk to
// the source, works for partitions that never ran in this process, and may be repeated with the same result. Transient
// trouble at the destination is retried without end; when ctx ends first, that goes on, the partition is STOPPING, and
// Stop may be called again to wait for it. Errors: that of ctx, with the present trouble, or ErrDropped.
func (r *Replicator) Stop(ctx context.Context, spec PartitionSpec) (lastMirrored int64, err error) {
	p := r.replica(spec)
	if p == nil {
		return -1, ErrDropped
	}
	p.handle(evStop{})
	return p.awaitStopped(ctx)
}

// Drop lets go of a partition without a fence: another gateway owns it now, or has stopped it. It waits until nothing
// of it runs any more. No event is sent after Drop returns.
func (r *Replicator) Drop(topic string, partition int32) {
	key := cluster.TopicPartition{Topic: topic, Partition: partition}
	r.mu.Lock()
	p := r.partitions[key]
	delete(r.partitions, key)
	r.mu.Unlock()
	if p != nil {
		p.drop()
	}
}

// StartNoted answers Events.SourceStart: it is durable now.
func (r *Replicator) StartNoted(topic string, partition int32, start int64) {
	if p := r.lookup(cluster.TopicPartition{Topic: topic, Partition: partition}); p != nil {
		p.handle(evStartNoted{start: start})
	}
}

// Throttle changes the most bytes per second that are fetched, at once; 0 = no limit.
func (r *Replicator) Throttle(bytesPerSecond int64) {
	r.fetch.throttle.set(bytesPerSecond)
	r.metrics.throttledRate(bytesPerSecond)
}

// Status returns the live status of a partition; false if the Replicator does not know it.
func (r *Replicator) Status(topic string, partition int32) (Status, bool) {
	if p := r.lookup(cluster.TopicPartition{Topic: topic, Partition: partition}); p != nil {
		return p.partitionStatus(), true
	}
	return Status{}, false
}

// Close ends all work without fences and waits for it. The destination logs stay as they are: a later Start, here or
// elsewhere, goes on from their ends.
func (r *Replicator) Close() {
	r.mu.Lock()
	r.closed = true
	partitions := r.partitions
	r.partitions = make(map[cluster.TopicPartition]*replica)
	r.mu.Unlock()
	r.cancel()
	var drops sync.WaitGroup
	for _, p := range partitions {
		drops.Go(p.drop)
	}
	drops.Wait()
	r.wg.Wait()
	r.metrics.close()
}

// replica returns the partition of spec, which it makes if need be; nil after Close.
func (r *Replicator) replica(spec PartitionSpec) *replica {
	key := cluster.TopicPartition{Topic: spec.Topic, Partition: spec.Partition}
	for {
		r.mu.Lock()
		p := r.partitions[key]
		switch {
		case r.closed:
			r.mu.Unlock()
			return nil
		case p == nil:
			p = newReplica(r, spec)
			r.partitions[key] = p
			r.view.watch(spec.Topic, spec.SourceTopicID, spec.SourceClusterID)
			r.mu.Unlock()
			return p
		case p.spec.same(spec):
			r.mu.Unlock()
			return p
		}
		delete(r.partitions, key)
		r.mu.Unlock()
		p.drop()
	}
}

func (r *Replicator) lookup(key cluster.TopicPartition) *replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.partitions[key]
}

// snapshot returns the partitions, of one topic if topic is not empty.
func (r *Replicator) snapshot(topic string) []*replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	ps := make([]*replica, 0, len(r.partitions))
	for key, p := range r.partitions {
		if topic == "" || key.Topic == topic {
			ps = append(ps, p)
		}
	}
	return ps
}

func (r *Replicator) eachStatus(fn func(topic string, status Status)) {
	for _, p := range r.snapshot("") {
		fn(p.key.Topic, p.partitionStatus())
	}
}

// fetcherFor returns the fetcher of a partition at a broker, nil after Close.
func (r *Replicator) fetcherFor(key cluster.TopicPartition, id int32) *fetcher {
	index := int(maphash.Comparable(r.seed, key) % uint64(r.cfg.Fetch.Fetchers))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	f := r.fetchers[fetcherKey{id, index}]
	if f == nil {
		ctx, cancel := context.WithCancel(r.ctx)
		f = &runningFetcher{newFetcher(&r.fetch, id, r.brokers[id], r.log), cancel}
		r.fetchers[fetcherKey{id, index}] = f
		r.wg.Go(func() { f.run(ctx) })
	}
	return f.fetcher
}

// listener says what becomes of what the view sees.
func (r *Replicator) listener() sourceListener {
	return sourceListener{
		brokers: r.setBrokers,
		leader: func(key cluster.TopicPartition, leader evLeader) {
			if p := r.lookup(key); p != nil {
				p.handle(leader)
			}
		},
		lost: func(topic, reason string) {
			for _, p := range r.snapshot(topic) {
				p.handle(evTopicLost{reason: reason})
			}
		},
		denied: func(topic string, why problem) {
			for _, p := range r.snapshot(topic) {
				p.handle(evTopicDenied{why})
			}
		},
		partitions: func(topic string, n int32) {
			if fn := r.cfg.Events.SourcePartitions; fn != nil {
				fn(topic, n)
			}
		},
		away: func(err error) {
			for _, p := range r.snapshot("") {
				p.handle(evUnreachable{err: err})
			}
		},
	}
}

// setBrokers takes the addresses of the source's brokers, and ends the fetchers of brokers that are gone.
func (r *Replicator) setBrokers(brokers map[int32]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.brokers = brokers
	for key, f := range r.fetchers {
		if addr, ok := brokers[key.broker]; ok {
			f.moveTo(addr)
		} else if f.idle() {
			f.cancel()
			delete(r.fetchers, key)
		}
	}
}

// quickBackoff is the pause before attempt n + 1 at what settles within seconds: 100 ms … 5 s, jittered.
func quickBackoff(n int) time.Duration { return backoff(n, 100*time.Millisecond, 5*time.Second) }

// slowBackoff is that of FAILED partitions: 1 s … 5 min.
func slowBackoff(n int) time.Duration { return backoff(n, time.Second, 5*time.Minute) }

func backoff(n int, least, most time.Duration) time.Duration {
	d := least << min(max(n-1, 0), 16)
	return time.Duration(float64(min(d, most)) * (0.8 + 0.4*rand.Float64()))
}
