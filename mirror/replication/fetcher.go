package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// fetcher reads partitions from one source broker over one connection, one request at a time, as ReplicaFetcherThread
// does. What it fetches is told partition by partition with subscribe and unsubscribe, from any goroutine; what it gets
// it hands to the partitions. It goes on until its context ends: a broker that is away is dialled again and again, with
// growing pauses, and concerns nobody else.
//
// Flow control: a partition without room is not subscribed, and while the budget has no room nothing is fetched at all.
// The next request asks for about as much as the last ones brought (ask), so that idle fetchers hold little budget.
type fetcher struct {
	cfg    *fetcherConfig
	broker int32
	log    *zap.Logger

	mu   sync.Mutex
	addr string
	subs map[cluster.TopicPartition]*subscription
	// changed are those of subs that the next round has to look at, hurried is how many hurry.
	changed map[cluster.TopicPartition]struct{}
	hurried int
	// serial counts attempts to connect, and fetch sessions that went wrong; live: the last attempt lasts. See ticket.
	serial uint64
	live   bool
	wake   chan struct{} // capacity 1

	// The rest belongs to the goroutine of run.
	conn     *broker.Conn
	connAddr string
	session  fetchSession
	copier   copier
	failures int
	ask      int64
	trip     roundTrip
	busy     int // partitions with data in the last answer that had any
	// plain keeps to Fetch v10, in which no broker sends us to another replica (KIP-392, v11), which could go away
	// without metadata telling (M17).
	plain bool
	want  *fetchWants
	to    map[cluster.TopicPartition]fetchTarget // of want
	// admitted is the serial for which all of want have a ticket, but for what changed since the last request.
	admitted uint64
	// collected is when want and to were brought up to date.
	collected instant

	// heard is the last answer, for whoever asks how old what is known is.
	heard atomic.Pointer[round]
}

// fetchTarget is a partition, as the fetcher sees it. handle takes *evFetched, evWatermarks, evStale, evSourceError and
// evUnreachable; it does not block.
type fetchTarget interface{ handle(event) }

// fetcherConfig is what all fetchers of a mirror share.
type fetcherConfig struct {
	source     broker.Config
	options    FetchOptions
	budget     *Budget
	metrics    *mirrorMetrics
	throttle   *throttle
	refresh    func() // look at the source's metadata soon
	backoff    func(attempt int) time.Duration
	staleAfter time.Duration
}

type subscription struct {
	target   fetchTarget
	position fetchPosition
	// hurry: it is not to be fetched, but only until the partition has room, or has taken in what it was given.
	hurry bool
}

const (
	// hurryWait is how long a broker may hold a fetch while some partition waits to come back.
	hurryWait = 5 * time.Millisecond
	// minAsk is the least that a request asks for, unless the configuration allows less.
	minAsk = 64 << 10
	// maxEmptyPause see emptyPause.
	maxEmptyPause = 50 * time.Millisecond
	// plainVersion, see fetcher.plain.
	plainVersion = 10
)

func newFetcher(cfg *fetcherConfig, id int32, addr string, log *zap.Logger) *fetcher {
	return &fetcher{
		cfg: cfg, broker: id, addr: addr, log: log.With(zap.Int32("broker", id)),
		subs: make(map[cluster.TopicPartition]*subscription), changed: make(map[cluster.TopicPartition]struct{}),
		wake: make(chan struct{}, 1), ask: cfg.leastAsk(), want: newFetchWants(), to: make(map[cluster.TopicPartition]fetchTarget),
	}
}

// subscribe sets what is fetched of a partition. It stays until it was answered or unsubscribe.
func (f *fetcher) subscribe(key cluster.TopicPartition, target fetchTarget, position fetchPosition) {
	f.mu.Lock()
	f.set(key, &subscription{target: target, position: position})
	f.mu.Unlock()
	f.poke()
}

// set changes a subscription; nil ends it. REQUIRES: mu.
func (f *fetcher) set(key cluster.TopicPartition, s *subscription) {
	if old := f.subs[key]; old != nil && old.hurry {
		f.hurried--
	}
	f.changed[key] = struct{}{}
	if s == nil {
		delete(f.subs, key)
		return
	}
	f.subs[key] = s
	if s.hurry {
		f.hurried++
	}
}

// unsubscribe ends the subscription of a target; an answer that is under way is still handed over. hurry: it will be
// back within milliseconds.
func (f *fetcher) unsubscribe(key cluster.TopicPartition, target fetchTarget, hurry bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.subs[key]; s != nil && s.target == target {
		f.pauseOrEnd(key, s, hurry)
	}
}

// pauseOrEnd takes a partition out of the next requests. REQUIRES: mu.
func (f *fetcher) pauseOrEnd(key cluster.TopicPartition, s *subscription, hurry bool) {
	if hurry {
		f.set(key, &subscription{target: s.target, position: s.position, hurry: true})
	} else {
		f.set(key, nil)
	}
}

// moveTo sets the address of the broker.
func (f *fetcher) moveTo(addr string) {
	f.mu.Lock()
	changed := f.addr != addr
	f.addr = addr
	f.mu.Unlock()
	if changed {
		f.poke()
	}
}

// idle reports that there is nothing to fetch, now or soon.
func (f *fetcher) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.subs) == 0
}

func (f *fetcher) poke() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run fetches until ctx ends.
func (f *fetcher) run(ctx context.Context) {
	defer f.disconnect()
	for ctx.Err() == nil {
		f.cfg.metrics.throttled(f.cfg.throttle.wait(ctx))
		addr, wait := f.collect()
		if len(f.want.at) == 0 {
			select {
			case <-f.wake:
			case <-ctx.Done():
			}
			continue
		}
		if err := f.fetch(ctx, addr, wait); err != nil && ctx.Err() == nil {
			f.failed(ctx, err)
		}
	}
}

// collect brings want and to up to date with the subscriptions.
func (f *fetcher) collect() (addr string, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.changed {
		if s := f.subs[key]; s != nil && !s.hurry {
			f.want.set(key, s.position)
			f.to[key] = s.target
		} else {
			f.leave(key)
		}
	}
	clear(f.changed)
	f.collected = now()
	wait = f.cfg.options.WaitMax
	if f.hurried > 0 {
		wait = min(wait, hurryWait)
	}
	return f.addr, wait
}

// leave takes a partition out of the round.
func (f *fetcher) leave(key cluster.TopicPartition) {
	f.want.remove(key)
	delete(f.to, key)
}

// fetch does one round: one request, and its answer handed out.
func (f *fetcher) fetch(ctx context.Context, addr string, wait time.Duration) error {
	if err := f.connect(ctx, addr); err != nil {
		return err
	}
	if f.turnAway(); len(f.want.at) == 0 {
		return nil
	}
	version, ok := f.conn.Version(fetchKey, f.maxVersion())
	if !ok || version < 4 {
		return fmt.Errorf("broker %d at %s is too old: it has no Fetch version 4 (Kafka 0.11)", f.broker, addr)
	}
	ask := f.cfg.throttle.limit(f.ask)
	granted, err := f.cfg.budget.Acquire(ctx, min(ask, f.cfg.leastAsk()), ask)
	if err != nil {
		return err
	}
	window := f.cfg.window(f.trip.estimate(), f.busy)
	req := f.session.request(version, f.want, window)
	req.MaxWaitMillis = int32(wait.Milliseconds())
	req.MinBytes = f.cfg.options.MinBytes
	req.MaxBytes = int32(granted)
	asked := now()
	resp, size, err := f.roundTrip(ctx, req)
	if err != nil {
		f.cfg.budget.Release(granted)
		return err
	}
	f.cfg.throttle.took(int64(size), asked.t)
	f.account(granted, int64(size))
	f.tune(granted, int64(size))
	buffer := newFetchBuffer(f.cfg.budget, int64(size))
	defer buffer.release()
	f.cfg.metrics.fetched(size)
	if err := f.session.response(resp); err != nil {
		f.cfg.metrics.fetchError(err)
		f.setLive(true)
		f.log.Info("source fetch session starts over", zap.Error(err))
		return nil
	}
	f.failures = 0
	if resp.ThrottleMillis == 0 { // else the broker may have left out everything
		f.heard.Store(&round{asked: f.collected, answered: now()})
	}
	took := asked.since()
	if n := withData(resp); n > 0 {
		f.busy = n
		f.trip.add(took, time.Now())
	}
	empty := f.deliver(resp, window, buffer, asked)
	f.pause(ctx, max(throttleTime(resp), emptyPause(empty, wait-took)))
	return nil
}

// emptyPause: a broker that answers "nothing" before its time would be asked again at once, and again. Some do, where
// the position is in an old segment without records (M4).
func emptyPause(empty bool, early time.Duration) time.Duration {
	if !empty {
		return 0
	}
	return min(early, maxEmptyPause)
}

// throttleTime is the pause that the broker's quota wants; until then it would not read our next request anyway
// (KIP-219).
func throttleTime(resp *kmsg.FetchResponse) time.Duration {
	if resp.Version < 8 {
		return 0
	}
	return time.Duration(resp.ThrottleMillis) * time.Millisecond
}

const fetchKey = 1

func (f *fetcher) maxVersion() int16 {
	if f.plain {
		return plainVersion
	}
	return (&kmsg.FetchRequest{}).MaxVersion()
}

// account turns the reservation into what the answer really takes.
func (f *fetcher) account(granted, size int64) {
	if size > granted { // a batch larger than asked for comes whole
		f.cfg.budget.Force(size - granted)
	} else {
		f.cfg.budget.Release(granted - size)
	}
}

func (c *fetcherConfig) leastAsk() int64 { return min(minAsk, int64(c.options.ResponseMax)) }

// tune sets what the next request asks for. It grows fast, as over a long way each step is a round trip.
func (f *fetcher) tune(granted, size int64) {
	switch {
	case size > granted/2:
		f.ask = min(4*f.ask, int64(f.cfg.options.ResponseMax))
	case size < granted/8:
		f.ask = max(f.ask/2, f.cfg.leastAsk())
	}
}

// connect makes sure that there is a connection to addr.
func (f *fetcher) connect(ctx context.Context, addr string) error {
	if f.conn != nil && f.connAddr == addr && f.conn.Err() == nil {
		return nil
	}
	f.disconnect()
	f.setLive(true)
	conn, err := broker.Dial(ctx, addr, f.cfg.source)
	if err != nil {
		return err
	}
	f.conn, f.connAddr = conn, addr
	return nil
}

func (f *fetcher) disconnect() {
	if f.conn != nil {
		f.conn.Close()
		f.conn = nil
	}
	f.setLive(false)
	f.session.startOver()
}

// roundTrip sends a request and returns its answer with the answer's size.
func (f *fetcher) roundTrip(ctx context.Context, req *kmsg.FetchRequest) (*kmsg.FetchResponse, int, error) {
	type answer struct {
		body []byte
		err  error
	}
	answers := make(chan answer, 1)
	if err := f.conn.Send(req, func(body []byte, err error) { answers <- answer{body, err} }); err != nil {
		return nil, 0, err
	}
	select {
	case a := <-answers:
		if a.err != nil {
			return nil, 0, a.err
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		if err := resp.ReadFrom(a.body); err != nil {
			return nil, 0, fmt.Errorf("decoding the Fetch response of broker %d: %w", f.broker, err)
		}
		return resp, len(a.body), nil
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

// failed tells the partitions that the broker cannot be reached, and pauses.
func (f *fetcher) failed(ctx context.Context, err error) {
	f.disconnect()
	f.failures++
	f.cfg.metrics.fetchError(err)
	pause := f.cfg.backoff(f.failures)
	f.log.Warn("source broker does not answer", zap.Error(err), zap.Int("attempt", f.failures), zap.Duration("pause", pause))
	reason := fmt.Errorf("broker %d: %w", f.broker, err)
	var refused *broker.AuthenticationError
	for key, target := range f.to {
		if errors.As(err, &refused) {
			f.drop(key, false)
			target.handle(evSourceError{gen: f.want.at[key].gen, problem: problem{kind: problemPassing, reason: reason.Error()}})
		} else {
			target.handle(evUnreachable{err: reason})
		}
	}
	f.cfg.refresh()
	f.pause(ctx, pause)
}

func (f *fetcher) pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
