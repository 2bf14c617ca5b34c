// Package store is the gateway's state: mirrors, their topics and partitions, and topic IDs. The truth is the compacted
// topic __mirror_state on the destination, which all gateways of a cluster share and write by compare-and-append; a badger
// directory holds this gateway's view of it, so that losing the disk costs a replay and nothing else. docs/state-log.md
// describes the format; writer.go says why a write can be trusted.
//
// Reads are answered from the view, which trails the log by a fetch. Updates are linearised: an update function that
// succeeded was evaluated over everything before it in the log.
package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/appendlog"
)

// DefaultTopic is the name of the state topic.
const DefaultTopic = "__mirror_state"

var (
	// ErrNoChange is returned by an update function to leave the record as it is; the update then succeeds.
	ErrNoChange = errors.New("no change")
	// ErrClosed says that the store is closed. An update that was waiting may or may not have been written.
	ErrClosed = errors.New("the state store is closed")
)

// Config says how to open a store.
type Config struct {
	// Client gives the options (addresses, security) of the connection to the destination; the store makes a client of
	// its own from them, which Close closes. It must not be a group consumer.
	Client *kgo.Client
	// Appender appends to the state topic; nil means the store's own.
	Appender Appender
	// Dir is the data directory; the view is in its subdirectory "state". Empty: the view is in memory only and every
	// start replays the log.
	Dir string
	// ClusterID is the destination's; empty means that the store asks for it.
	ClusterID string
	// Topic is the state topic, DefaultTopic if empty.
	Topic string
	// ReplicationFactor of the topic if it must be created; 0 means the destination's default, or the number of brokers
	// if that is lower.
	ReplicationFactor int16
	// SecretKey (32 bytes) seals secret values of mirror configurations in the log. Without one they are in clear, and
	// the store warns of it once there are any.
	SecretKey []byte
	Log       *zap.Logger // nil logs nothing
	Metrics   *Metrics    // nil measures for nobody
}

// Store is an open state. Its methods are safe for concurrent use.
type Store struct {
	topic   string
	id      string // of this writer, for nonces
	counter atomic.Uint64
	logs    stateLog
	local   *local
	sealer  *sealer
	log     *zap.Logger
	metrics *Metrics
	release func() // closes what Open made

	ctx    context.Context // ends with Close or a fatal error
	cancel context.CancelFunc
	wg     sync.WaitGroup // writers, repair
	follow sync.WaitGroup // follower, applier
	repair chan struct{}

	mu         sync.Mutex
	partitions []*statePartition
	mirrors    map[string]*Mirror
	topics     map[string]map[string]*Topic
	parts      map[topicName]map[int32]*Partition
	topicIDs   map[string]*TopicID
	acls       map[string]*ACLs
	claims     map[string]*Claim
	hidden     map[Key]int64 // keys of foreign records newer than ours, by offset
	watchers   []*watcher    // replaced, never changed
	fatal      error
	closed     bool
	warned     bool // about secrets in clear
}

// Open opens the state, creating the topic if there is none, and returns when the view holds everything that was in the
// log at the start.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := newStore(cfg)
	if err != nil {
		return nil, err
	}
	logs, err := openKafka(ctx, cfg, s.topic, s.log)
	if err != nil {
		s.cancel()
		return nil, err
	}
	s.logs, s.release = logs, logs.close
	if cfg.Appender != nil {
		s.logs = appending{logs, cfg.Appender}
	}
	dir := cfg.Dir
	if dir != "" {
		dir = filepath.Join(dir, "state")
	}
	if s.local, err = openLocal(dir, identity{formatVersion, logs.clusterID, hexID(logs.topicID)}, s.log); err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// appending is a stateLog that appends in a given way.
type appending struct {
	stateLog
	appender Appender
}

func (a appending) Append(ctx context.Context, p appendlog.Partition, b appendlog.Batch) error {
	return a.appender.Append(ctx, p, b)
}

func newStore(cfg Config) (*Store, error) {
	sealer, err := newSealer(cfg.SecretKey)
	if err != nil {
		return nil, err
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	s := &Store{
		topic: cmp.Or(cfg.Topic, DefaultTopic), id: hex.EncodeToString(id[:]), sealer: sealer,
		log: cfg.Log, metrics: cfg.Metrics, release: func() {}, repair: make(chan struct{}, 1),
		partitions: make([]*statePartition, StatePartitions),
		mirrors:    map[string]*Mirror{}, topics: map[string]map[string]*Topic{},
		parts: map[topicName]map[int32]*Partition{}, topicIDs: map[string]*TopicID{}, acls: map[string]*ACLs{}, claims: map[string]*Claim{}, hidden: map[Key]int64{},
	}
	if s.log == nil {
		s.log = zap.NewNop()
	}
	if s.metrics == nil {
		s.metrics = NewMetrics(nil)
	}
	for i := range s.partitions {
		s.partitions[i] = &statePartition{
			number: int32(i), entries: map[Key]*entry{}, producer: -1, avoid: -1, moved: make(chan struct{}),
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// start loads the local view, follows the log, and waits until everything up to now was applied.
func (s *Store) start(ctx context.Context) error {
	started := time.Now()
	if err := s.loadLocal(); err != nil {
		return err
	}
	ends, err := s.logs.ends(ctx)
	if err != nil {
		return fmt.Errorf("reading the ends of the state topic %s: %w", s.topic, err)
	}
	from := make([]position, len(s.partitions))
	for i, p := range s.partitions {
		from[i] = position{p.next, p.seenMs}
	}
	segments := make(chan segment, 16)
	s.follow.Add(2)
	go func() {
		defer s.follow.Done()
		defer close(segments)
		if err := s.logs.follow(s.ctx, from, func(seg segment) error {
			select {
			case segments <- seg:
				return nil
			case <-s.ctx.Done():
				return s.ctx.Err()
			}
		}); err != nil && s.ctx.Err() == nil {
			s.fail(err)
		}
	}()
	go func() {
		defer s.follow.Done()
		s.applyAll(segments)
	}()
	for i, p := range s.partitions {
		if err := s.await(ctx, p, func() bool { return p.ready() && p.next >= ends[i] }); err != nil {
			return fmt.Errorf("reading the state topic %s: %w", s.topic, err)
		}
	}
	s.wg.Add(1)
	go s.repairHidden()
	s.log.Info("state read", zap.String("topic", s.topic), zap.Duration("took", time.Since(started)), zap.Int("mirrors", len(s.Mirrors())))
	return nil
}

// applyAll applies segments until there are no more, and notes now and then how far the log is known, so that a restart
// knows how old the local view is.
func (s *Store) applyAll(segments <-chan segment) {
	note := time.NewTicker(time.Minute)
	defer note.Stop()
	for {
		select {
		case seg, ok := <-segments:
			if !ok {
				return
			}
			s.apply(seg)
		case <-note.C:
			s.notePositions()
		}
	}
}

// fail ends the store for good: what it shows can no longer be trusted to be the state.
func (s *Store) fail(err error) {
	s.log.Error("the state store stops", zap.Error(err))
	s.mu.Lock()
	s.fatal = err
	s.mu.Unlock()
	s.cancel()
}

// Err returns why the store stopped by itself, nil as long as it works. Watchers are not told.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fatal
}

// Close ends the store and waits for all it started. Updates that wait get ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.cancel()
	s.wg.Wait()
	s.follow.Wait()
	s.release()
	if s.local == nil {
		return nil
	}
	s.notePositions()
	if err := s.local.close(); err != nil {
		return fmt.Errorf("closing the local view of the state: %w", err)
	}
	return nil
}

// await waits until cond, which is called with the lock held, is true of the partition.
func (s *Store) await(ctx context.Context, p *statePartition, cond func() bool) error {
	for {
		s.mu.Lock()
		ok, moved, fatal := cond(), p.moved, s.fatal
		s.mu.Unlock()
		if ok {
			return nil
		}
		if fatal != nil {
			return fatal
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			if fatal := s.Err(); fatal != nil {
				return fatal
			}
			return ErrClosed
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Mirror returns a mirror's record. The caller owns what the reading methods return.
func (s *Store) Mirror(name string) (Mirror, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.mirrors[name]; m != nil {
		return m.clone(), true
	}
	return Mirror{}, false
}

// Mirrors returns all mirrors by name.
func (s *Store) Mirrors() []Mirror {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Mirror, 0, len(s.mirrors))
	for _, m := range s.mirrors {
		out = append(out, m.clone())
	}
	slices.SortFunc(out, func(a, b Mirror) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Topic returns the record of a topic in a mirror.
func (s *Store) Topic(mirror, name string) (Topic, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[mirror][name]; t != nil {
		return t.clone(), true
	}
	return Topic{}, false
}

// Topics returns the topics of a mirror, or of all mirrors if mirror is "", by mirror and name.
func (s *Store) Topics(mirror string) []Topic {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Topic
	for name, topics := range s.topics {
		if mirror != "" && mirror != name {
			continue
		}
		for _, t := range topics {
			out = append(out, t.clone())
		}
	}
	slices.SortFunc(out, func(a, b Topic) int {
		return cmp.Or(cmp.Compare(a.Mirror, b.Mirror), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Partition returns the record of a mirror partition.
func (s *Store) Partition(mirror, topic string, partition int32) (Partition, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.parts[topicName{mirror, topic}][partition]; p != nil {
		return *p, true
	}
	return Partition{}, false
}

// Partitions returns the records of a mirror topic's partitions in order. There may be fewer than the topic has.
func (s *Store) Partitions(mirror, topic string) []Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := s.parts[topicName{mirror, topic}]
	out := make([]Partition, 0, len(parts))
	for _, p := range parts {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b Partition) int { return cmp.Compare(a.Partition, b.Partition) })
	return out
}

// TopicID returns the record of an ordinary topic with a given ID.
func (s *Store) TopicID(name string) (TopicID, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topicIDs[name]; t != nil {
		return *t, true
	}
	return TopicID{}, false
}

// TopicIDs returns the ordinary topics with a given ID by name.
func (s *Store) TopicIDs() []TopicID {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]TopicID, 0, len(s.topicIDs))
	for _, t := range s.topicIDs {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b TopicID) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
