package appendlog

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/broker"
)

// Config configures a Client. Only Broker is required.
type Config struct {
	// Broker says how to reach the destination cluster.
	Broker broker.Config
	// Admin asks for metadata. nil: the Client makes one of its own from Broker and closes it. It must not create topics.
	Admin *kgo.Client
	// MaxInFlight is the number of unacknowledged batches of one partition, 1 to 5. 0: 5. Brokers remember the last 5
	// of a producer, so a retry of an older one is not recognised as a duplicate.
	MaxInFlight int
	// MaxRequestBytes bounds the batches of one Produce request together, except that one batch always fits. 0: 4 MiB.
	// Larger requests cost fewer round trips and more delay for the partitions behind.
	MaxRequestBytes int
	// MaxBatchBytes bounds one batch; Append refuses larger ones. 0: 100,000,000, a little less than what brokers take
	// as a request (socket.request.max.bytes): a larger one would cut the connection for every other partition.
	MaxBatchBytes int
	// MaxRequests is the number of Produce requests in flight on one connection. 0: 5.
	MaxRequests int
	// Connections is the number of connections to one broker for what is not Bulk. A broker works off the requests of a
	// connection one by one, so it is how many of its processors the copy can use. 0: 2.
	Connections int
	// QueueBatches and QueueBytes bound what a Log holds unacknowledged. One batch always fits. 0: 65,536 and 16 MiB.
	QueueBatches int
	QueueBytes   int
	// Idle is how long a Log trusts what it knows of the log's end without an acknowledgement. Longer than that, and the
	// next batch waits for a reading, some milliseconds. It bounds how old a decision can be that a process carries out
	// after it was suspended, and must be well below the broker's producer.id.expiration.ms. 0: 30 s.
	Idle time.Duration
	// ProduceTimeout is how long a broker may wait for its replicas. 0: 15 s. It must be below the broker.Config's
	// RequestTimeout.
	ProduceTimeout time.Duration
	// BackoffMin and BackoffMax bound the pause after a doubt, which doubles each time. 0: 100 ms and 10 s.
	BackoffMin, BackoffMax time.Duration
	// Metrics measures, if not nil.
	Metrics *Metrics
	// Log gets what an operator may want to know. nil: nothing.
	Log *zap.Logger
	// Now is the clock. nil: time.Now.
	Now func() time.Time
}

// maxPipelined is how many batches of a producer a broker remembers.
const maxPipelined = 5

func (c *Config) setDefaults() error {
	set := func(v *int, def int) {
		if *v <= 0 {
			*v = def
		}
	}
	set(&c.MaxInFlight, maxPipelined)
	set(&c.MaxRequestBytes, 4<<20)
	set(&c.MaxBatchBytes, 100_000_000)
	set(&c.MaxRequests, 5)
	set(&c.Connections, 2)
	set(&c.QueueBatches, 1<<16)
	set(&c.QueueBytes, 16<<20)
	setDuration := func(v *time.Duration, def time.Duration) {
		if *v <= 0 {
			*v = def
		}
	}
	setDuration(&c.Idle, 30*time.Second)
	setDuration(&c.ProduceTimeout, 15*time.Second)
	setDuration(&c.BackoffMin, 100*time.Millisecond)
	setDuration(&c.BackoffMax, 10*time.Second)
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	switch {
	case c.MaxInFlight > maxPipelined:
		return fmt.Errorf("appendlog: MaxInFlight is %d, but brokers remember %d batches", c.MaxInFlight, maxPipelined)
	case c.Broker.RequestTimeout > 0 && c.ProduceTimeout >= c.Broker.RequestTimeout:
		c.ProduceTimeout = c.Broker.RequestTimeout / 2
	}
	return nil
}

// Client writes to partitions of one cluster. It has Config.Connections connections, each with a writer goroutine, to every
// broker that leads one of them, one more of both once it gets batches that are Bulk, and a goroutine for each reading of a
// log's end.
type Client struct {
	cfg      Config
	metadata metadata
	ownAdmin *kgo.Client // closed by Close; nil if the Config had one

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // writers and dials
	merged atomic.Int64   // bytes of merged batches

	mu      sync.Mutex
	closed  bool
	logs    map[topicPartition]*Log
	writers map[writerID]*writer
}

// writerID is a lane of a broker. A Log has the same share at every broker, so it is in one of two lanes at each.
type writerID struct {
	node  int32
	bulk  bool
	share int // of the Logs, from 0; 0 if bulk
}

// lane returns where the batches of a partition go.
func (c *Client) lane(node int32, p Partition, bulk bool) writerID {
	if bulk {
		return writerID{node: node, bulk: true}
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(p.Topic))
	return writerID{node: node, share: int((hash.Sum32() + uint32(p.Partition)) % uint32(c.cfg.Connections))}
}

// NewClient makes a Client. Nothing is contacted yet.
func NewClient(cfg Config) (*Client, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	c := &Client{
		cfg:  cfg,
		logs: map[topicPartition]*Log{}, writers: map[writerID]*writer{},
	}
	if cfg.Admin == nil {
		admin, err := kgo.NewClient(cfg.Broker.KgoOptions()...)
		if err != nil {
			return nil, fmt.Errorf("appendlog: %w", err)
		}
		c.ownAdmin, c.cfg.Admin = admin, admin
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.metadata = metadata{ctx: c.ctx, admin: c.cfg.Admin, leaders: map[topicPartition]leader{}}
	return c, nil
}

// TakeProducerID takes a new producer ID of the cluster, never used before (InitProducerId without a transactional ID).
func (c *Client) TakeProducerID(ctx context.Context) (int64, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis = 60_000 // not used without a transactional ID
	kresp, err := c.cfg.Admin.Request(ctx, req)
	if err != nil {
		return -1, fmt.Errorf("taking a producer ID: %w", err)
	}
	resp, ok := kresp.(*kmsg.InitProducerIDResponse)
	if !ok {
		return -1, fmt.Errorf("taking a producer ID: got %T", kresp)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return -1, fmt.Errorf("taking a producer ID: %w", err)
	}
	if resp.ProducerID < 0 || resp.ProducerEpoch != 0 {
		return -1, fmt.Errorf("taking a producer ID: got %d with epoch %d", resp.ProducerID, resp.ProducerEpoch)
	}
	return resp.ProducerID, nil
}

// Open starts writing to a partition: its end is read, then h.Ready is called. past are producer IDs of earlier
// incarnations of the same mirror: what they wrote at its offsets is ours. There can be only one Log of a partition at
// a time in a Client: with a second one, and after Close, Open returns a Log whose Append and Fence fail with ErrClosed.
func (c *Client) Open(p Partition, past []int64, h Handler) *Log {
	l := newLog(c, p, past, h)
	tp := topicPartition{p.Topic, p.Partition}
	c.mu.Lock()
	_, exists := c.logs[tp]
	if c.closed || exists {
		c.mu.Unlock()
		if exists {
			c.cfg.Log.Error("a log was opened twice", zap.String("topic", p.Topic), zap.Int32("partition", p.Partition))
		}
		l.closed = true
		l.cancel()
		return l
	}
	c.logs[tp] = l
	c.mu.Unlock()
	c.cfg.Metrics.logs.Inc()
	l.start()
	return l
}

func (c *Client) forget(l *Log) {
	tp := topicPartition{l.p.Topic, l.p.Partition}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logs[tp] == l {
		delete(c.logs, tp)
		c.cfg.Metrics.logs.Dec()
	}
}

// writer returns the writer of a lane, at the broker's present address.
func (c *Client) writer(id writerID, addr string) (*writer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	w, ok := c.writers[id]
	if !ok {
		w = newWriter(c, id)
		c.writers[id] = w
		c.wg.Go(w.run)
	}
	w.setAddr(addr)
	return w, nil
}

// connectionLost makes every Log that relied on a connection read its end again, even if it has nothing to send: the
// broker may have gone, and another one lead a log that lacks the tail.
func (c *Client) connectionLost(conn *broker.Conn) {
	if c.ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	logs := make([]*Log, 0, len(c.logs))
	for _, l := range c.logs {
		logs = append(logs, l)
	}
	c.mu.Unlock()
	for _, l := range logs {
		l.step(func(core *core) {
			if l.conn == conn {
				core.markStale()
			}
		})
	}
}

// Close closes all Logs and connections. After it, no Handler is called. It must not be called from a Handler.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	logs := make([]*Log, 0, len(c.logs))
	for _, l := range c.logs {
		logs = append(logs, l)
	}
	writers := make([]*writer, 0, len(c.writers))
	for _, w := range c.writers {
		writers = append(writers, w)
	}
	c.mu.Unlock()
	c.cancel()
	for _, w := range writers {
		w.abort(ErrClosed)
	}
	c.wg.Wait()
	for _, w := range writers {
		w.close()
	}
	for _, l := range logs {
		l.Close()
	}
	c.metadata.wg.Wait()
	if c.ownAdmin != nil {
		c.ownAdmin.Close()
	}
}

// leader returns the writer of a lane for the leader of a partition.
func (c *Client) leader(ctx context.Context, p Partition, fresh, bulk bool) (*writer, error) {
	l, err := c.metadata.leader(ctx, topicPartition{p.Topic, p.Partition}, fresh)
	if err == nil && !fresh && p.another(l.topic) {
		l, err = c.metadata.leader(ctx, topicPartition{p.Topic, p.Partition}, true)
	}
	if err != nil {
		return nil, err
	}
	if p.another(l.topic) {
		return nil, fmt.Errorf("%s was deleted and created anew: its topic ID is %x, not %x", p.Topic, l.topic, p.TopicID)
	}
	return c.writer(c.lane(l.node, p, bulk), l.addr)
}

// errorName is the value of the label of the metric of doubts.
func errorName(err error) string {
	var ke *kerr.Error
	switch {
	case errors.As(err, &ke):
		return ke.Message
	case errors.Is(err, errMoved):
		return "MOVED"
	case errors.Is(err, errTrails):
		return "TRAILS"
	case errors.Is(err, errBusy):
		return "BUSY"
	}
	return "CONNECTION"
}
