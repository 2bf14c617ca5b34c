package appendlog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/mirrorgate/mirrorgate/test/leaks"
)

func fake(t testing.TB, partitions int32, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(partitions, "t")}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// TestFakeEverythingGoesWrong: kfake, two brokers, leaders that move, errors of every kind in answers, requests that are
// cut before or after they were carried out.
func TestFakeEverythingGoesWrong(t *testing.T) {
	const partitions, end = 6, 8000
	cluster := fake(t, partitions)
	addrs := cluster.ListenAddrs()
	c := testClient(t, addrs[0], func(cfg *Config) { cfg.BackoffMin, cfg.BackoffMax = time.Millisecond, 20*time.Millisecond })
	id := producerID(t, c)
	var n atomic.Int64
	codes := []*kerr.Error{kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.UnknownTopicOrPartition, kerr.KafkaStorageError, kerr.TopicAuthorizationFailed}
	cluster.ControlKey(0, func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		req := kreq.(*kmsg.ProduceRequest)
		i := n.Add(1)
		switch {
		case i%7 == 3: // not appended, and an error for every partition
			resp := req.ResponseKind().(*kmsg.ProduceResponse)
			for _, rt := range req.Topics {
				st := kmsg.NewProduceResponseTopic()
				st.Topic, st.TopicID = rt.Topic, rt.TopicID
				for _, rp := range rt.Partitions {
					sp := kmsg.NewProduceResponseTopicPartition()
					sp.Partition, sp.BaseOffset, sp.ErrorCode = rp.Partition, -1, codes[i%int64(len(codes))].Code
					st.Partitions = append(st.Partitions, sp)
				}
				resp.Topics = append(resp.Topics, st)
			}
			return resp, nil, true
		case i%11 == 5: // not appended, and no answer
			return nil, errors.New("cut"), true
		case i%13 == 4: // an answer without our partitions
			return req.ResponseKind(), nil, true
		case i%10 == 9:
			_ = cluster.MoveTopicPartition("t", int32(i)%partitions, int32(i)%2)
		}
		return nil, nil, false
	})
	copiers := make([]*copier, partitions)
	for i := range copiers {
		copiers[i] = newCopier(t, end, random(uint64(i), 60)).open(c, Partition{Topic: "t", Partition: int32(i), ProducerID: id})
	}
	for i, cp := range copiers {
		cp.waitCopied()
		requireCopy(t, addrs[0], "t", int32(i), end, 0)
		cp.mu.Lock()
		if len(cp.doubts) == 0 {
			t.Errorf("partition %d had no doubt", i)
		}
		cp.mu.Unlock()
	}
	for _, cp := range copiers[:3] {
		last, err := cp.l.Fence(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(end), last)
	}
}

// recorder notes calls and does nothing.
type recorder struct {
	mu     sync.Mutex
	events []string
	notify chan struct{}
}

func newRecorder() *recorder { return &recorder{notify: make(chan struct{}, 1000)} }

func (r *recorder) add(format string, args ...any) {
	r.mu.Lock()
	r.events = append(r.events, fmt.Sprintf(format, args...))
	r.mu.Unlock()
	r.notify <- struct{}{}
}

func (r *recorder) Ready(end int64)                      { r.add("Ready(%d)", end) }
func (r *recorder) Acked(next int64, batches, bytes int) { r.add("Acked(%d, %d)", next, batches) }
func (r *recorder) Doubt(err error)                      { r.add("Doubt(%v)", err) }
func (r *recorder) Fenced(last int64)                    { r.add("Fenced(%d)", last) }
func (r *recorder) Failed(err error)                     { r.add("Failed(%v)", err) }

func (r *recorder) next(t testing.TB) string {
	t.Helper()
	select {
	case <-r.notify:
	case <-time.After(2 * time.Minute):
		t.Fatal("nothing happens")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.events[0]
	r.events = r.events[1:]
	return e
}

func TestAppendErrors(t *testing.T) {
	cluster := fake(t, 1)
	var hold atomic.Bool
	hold.Store(true)
	release := make(chan struct{})
	cluster.ControlKey(0, func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if hold.Load() {
			cluster.SleepControl(func() { <-release })
		}
		return nil, nil, false
	})
	c := testClient(t, cluster.ListenAddrs()[0], func(cfg *Config) {
		cfg.QueueBatches, cfg.QueueBytes, cfg.MaxBatchBytes = 3, 1<<20, 10_000
	})
	h := newRecorder()
	p := Partition{Topic: "t", ProducerID: producerID(t, c)}
	l := c.Open(p, nil, h)
	twice := c.Open(p, nil, newRecorder())
	require.ErrorIs(t, twice.Append(makeBatch(0, 1)), ErrClosed)
	_, err := twice.Fence(t.Context())
	require.ErrorIs(t, err, ErrClosed)
	twice.Close()
	require.Equal(t, "Ready(0)", h.next(t))

	var bad *BatchError
	require.ErrorAs(t, l.Append(makeBatch(1, 2)), &bad)
	require.ErrorAs(t, l.Append(makeBatch(0, 5000)), &bad, "larger than MaxBatchBytes")
	for name, change := range map[string]func(*Batch){
		"cut off":         func(b *Batch) { b.Bytes = b.Bytes[:len(b.Bytes)-1] },
		"two batches":     func(b *Batch) { b.Bytes = append(b.Bytes, b.Bytes...) },
		"other length":    func(b *Batch) { b.Next++ },
		"hole":            func(b *Batch) { b.Bytes[60]-- },
		"control":         func(b *Batch) { b.Bytes[22] |= 0x20 },
		"log append time": func(b *Batch) { b.Bytes[22] |= 0x08 },
		"no codec":        func(b *Batch) { b.Bytes[22] |= 0x07 },
		"old format":      func(b *Batch) { b.Bytes[16] = 1 },
		"empty":           func(b *Batch) { b.Bytes = nil },
	} {
		b := makeBatch(0, 3)
		change(&b)
		require.ErrorAs(t, l.Append(b), &bad, name)
	}
	require.NoError(t, l.Append(makeBatch(0, 10)))
	require.NoError(t, l.Append(makeBatch(10, 20)))
	require.NoError(t, l.Append(makeBatch(20, 30)))
	require.ErrorIs(t, l.Append(makeBatch(30, 40)), ErrFull)
	hold.Store(false)
	close(release)
	require.Equal(t, "Acked(10, 1)", h.next(t))
	require.Equal(t, "Acked(20, 1)", h.next(t))
	require.Equal(t, "Acked(30, 1)", h.next(t))
	require.NoError(t, l.Append(makeBatch(30, 40)))
	require.Equal(t, "Acked(40, 1)", h.next(t))
	l.Close()
	require.ErrorIs(t, l.Append(makeBatch(40, 41)), ErrClosed)

	// Once closed, the partition can be opened again.
	again := newRecorder()
	l = c.Open(p, nil, again)
	require.Equal(t, "Ready(40)", again.next(t))
	last, err := l.Fence(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(40), last)
	require.Equal(t, "Fenced(40)", again.next(t))
	require.ErrorIs(t, l.Append(makeBatch(41, 42)), ErrFenced)
}

// TestFenceWithoutBroker: Fence gives up with its context, Close ends the rest.
func TestFenceWithoutBroker(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	addr := cluster.ListenAddrs()[0]
	cluster.Close()
	c := testClient(t, addr, nil)
	h := newRecorder()
	l := c.Open(Partition{Topic: "t", ProducerID: 1}, nil, h)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = l.Fence(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	waiting := make(chan error, 1)
	go func() {
		_, err := l.Fence(context.Background())
		waiting <- err
	}()
	c.Close()
	require.ErrorIs(t, <-waiting, ErrClosed)
	l.Close()
}

// TestCloseLeavesNothing: whatever is under way, Close ends it, and no Handler is called afterwards.
func TestCloseLeavesNothing(t *testing.T) {
	cluster := fake(t, 4)
	before := goleak.IgnoreCurrent()
	id := int64(-1)
	for round := range 20 {
		c := testClient(t, cluster.ListenAddrs()[0], nil)
		if id < 0 {
			id = producerID(t, c)
		}
		var copiers []*copier
		for p := range int32(4) {
			copiers = append(copiers, newCopier(t, 1<<40, fixed(10)).open(c, Partition{Topic: "t", Partition: p, ProducerID: id}))
		}
		if round%2 == 0 {
			copiers[0].wait("an acknowledgement", func() bool { return copiers[0].acked > 10 })
		}
		c.Close()
		for _, cp := range copiers {
			cp.mu.Lock()
			events := len(cp.readys) + len(cp.doubts) + int(cp.acked)
			cp.mu.Unlock()
			cp.stop()
			if after := len(cp.readys) + len(cp.doubts) + int(cp.acked); after != events {
				t.Errorf("events after Close: %d, then %d", events, after)
			}
		}
	}
	leaks.None(t, before)
}

func TestConfigLimits(t *testing.T) {
	_, err := NewClient(Config{MaxInFlight: 6})
	require.ErrorContains(t, err, "MaxInFlight")
	for attempt, want := range map[int]time.Duration{1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 7: 6400 * time.Millisecond, 8: 10 * time.Second, 1000: 10 * time.Second} {
		for range 50 {
			got := backoff(100*time.Millisecond, 10*time.Second, attempt)
			require.LessOrEqual(t, got, want)
			require.GreaterOrEqual(t, got, want/2)
		}
	}
}

// TestIdleLogNoticesLostConnection: with nothing to send, the end is read all the same, as the log may have lost its
// tail with its leader.
func TestIdleLogNoticesLostConnection(t *testing.T) {
	cluster := fake(t, 1)
	readings := make(chan struct{}, 100)
	cluster.ControlKey(2, func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		readings <- struct{}{}
		return nil, nil, false
	})
	var mu sync.Mutex
	var conns []net.Conn
	c := testClient(t, cluster.ListenAddrs()[0], func(cfg *Config) {
		cfg.Broker.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, network, addr)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				conns = append(conns, nc)
			}
			return nc, err
		}
	})
	cp := newCopier(t, 100, fixed(10)).open(c, Partition{Topic: "t", ProducerID: producerID(t, c)})
	cp.waitCopied()
	for len(readings) > 0 {
		<-readings
	}
	mu.Lock()
	for _, nc := range conns {
		nc.Close()
	}
	mu.Unlock()
	select {
	case <-readings:
	case <-time.After(2 * time.Minute):
		t.Fatal("the end was not read")
	}
	cp.extend(200)
	cp.waitCopied()
	requireCopy(t, cluster.ListenAddrs()[0], "t", 0, 200, 0)
}
