package store

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mirrorgate/mirrorgate/appendlog"
)

// hooked is a state log whose appends go through a hook.
type hooked struct {
	*memoryLog
	append func(ctx context.Context, id appendlog.Partition, b appendlog.Batch) error
}

func (h *hooked) Append(ctx context.Context, id appendlog.Partition, b appendlog.Batch) error {
	return h.append(ctx, id, b)
}

func openHooked(t *testing.T, h *hooked) *Store {
	s, err := openMemory(Config{}, h)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func lastMirrored(t *testing.T, s *Store) int64 {
	p, ok := s.Partition("m", "t", 0)
	require.True(t, ok)
	return p.LastMirrored
}

// The answer is lost: the batch is sent again, the broker recognises it, and it counts once.
func TestLostAnswer(t *testing.T) {
	logs, calls := newMemoryLog(), 0
	s := openHooked(t, &hooked{logs, func(ctx context.Context, id appendlog.Partition, b appendlog.Batch) error {
		if err := logs.Append(ctx, id, b); err != nil {
			return err
		}
		if calls++; calls%2 == 1 {
			return fmt.Errorf("%w: connection cut", ErrUncertain)
		}
		return nil
	}})
	for range 3 {
		require.NoError(t, s.UpdatePartition(within(t), "m", "t", 0, increment))
	}
	require.EqualValues(t, 3, lastMirrored(t, s))
}

// The gateway dies between append and answer: what it wrote counts, and the next one goes on behind it.
func TestCrashBetweenAppendAndAnswer(t *testing.T) {
	logs := newMemoryLog()
	appended := make(chan struct{})
	s := openHooked(t, &hooked{logs, func(ctx context.Context, id appendlog.Partition, b appendlog.Batch) error {
		if err := logs.Append(ctx, id, b); err != nil {
			return err
		}
		close(appended)
		<-ctx.Done()
		return ctx.Err()
	}})
	result := make(chan error, 1)
	go func() { result <- s.UpdatePartition(context.Background(), "m", "t", 0, increment) }()
	<-appended
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-result, ErrClosed)
	require.ErrorIs(t, s.UpdatePartition(within(t), "m", "t", 0, increment), ErrClosed)

	next, err := openMemory(Config{}, logs)
	require.NoError(t, err)
	defer next.Close()
	require.EqualValues(t, 1, lastMirrored(t, next))
	require.NoError(t, next.UpdatePartition(within(t), "m", "t", 0, increment))
	require.EqualValues(t, 2, lastMirrored(t, next))
}

// Two gateways send batches of one length at one offset: the broker tells the second that its batch is there already.
// Only reading shows that it is the other's (invariant 8).
func TestDuplicateOfAnotherGateway(t *testing.T) {
	logs := newMemoryLog()
	other, err := openMemory(Config{}, logs)
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, other.UpdatePartition(within(t), "m", "t", 0, increment)) // so that the producer ID is settled

	var answers []error
	s := openHooked(t, &hooked{logs, func(ctx context.Context, id appendlog.Partition, b appendlog.Batch) error {
		if len(answers) == 0 {
			if err := other.UpdatePartition(ctx, "m", "t", 0, increment); err != nil {
				return err
			}
		}
		answers = append(answers, logs.Append(ctx, id, b))
		return answers[len(answers)-1]
	}})
	require.NoError(t, s.UpdatePartition(within(t), "m", "t", 0, increment))
	require.Equal(t, []error{nil, nil}, answers, "the broker must have taken the first for a duplicate")
	require.EqualValues(t, 3, lastMirrored(t, s))
}

// Two gateways write the very first batch of a partition at once, each with a producer ID of its own: both are appended,
// the first counts, the loser is evaluated again, and both go on. Their keys differ, else both gateways would also write
// again what the loser's record hides, at the same time, and might need more producer IDs for it.
func TestFirstWritesCollide(t *testing.T) {
	logs := newMemoryLog()
	here := PartitionKey("m", "t", 0).StatePartition()
	n := int32(1)
	for PartitionKey("m", "t", n).StatePartition() != here {
		n++
	}
	incrementOther := func(c *Partition) (*Partition, error) {
		next, err := increment(c)
		next.Partition = n
		return next, err
	}
	other, err := openMemory(Config{}, logs)
	require.NoError(t, err)
	defer other.Close()
	first := true
	s := openHooked(t, &hooked{logs, func(ctx context.Context, id appendlog.Partition, b appendlog.Batch) error {
		if first {
			first = false
			if err := other.UpdatePartition(ctx, "m", "t", n, incrementOther); err != nil {
				return err
			}
		}
		return logs.Append(ctx, id, b)
	}})
	for range 3 {
		require.NoError(t, s.UpdatePartition(within(t), "m", "t", 0, increment))
		require.NoError(t, other.UpdatePartition(within(t), "m", "t", n, incrementOther))
	}
	replayed, err := openMemory(Config{}, logs)
	require.NoError(t, err)
	defer replayed.Close()
	require.EqualValues(t, 3, lastMirrored(t, replayed))
	p, _ := replayed.Partition("m", "t", n)
	require.EqualValues(t, 4, p.LastMirrored)
	ids := map[string]bool{}
	for _, r := range logs.partitions[here].records {
		if strings.HasPrefix(string(r.key), "v1/producer/") {
			require.False(t, ids[string(r.key)], "a producer ID was used again")
			ids[string(r.key)] = true
		}
	}
	require.Len(t, ids, 3, "the two that collided, and the one that followed")
}

// A permanent refusal reaches the caller, and the store works on.
func TestPermanentError(t *testing.T) {
	logs, fail := newMemoryLog(), true
	s := openHooked(t, &hooked{logs, func(ctx context.Context, id appendlog.Partition, b appendlog.Batch) error {
		if fail {
			fail = false
			return fmt.Errorf("no right to write")
		}
		return logs.Append(ctx, id, b)
	}})
	require.ErrorContains(t, s.UpdatePartition(within(t), "m", "t", 0, increment), "no right to write")
	require.NoError(t, s.UpdatePartition(within(t), "m", "t", 0, increment))
	require.EqualValues(t, 1, lastMirrored(t, s))
}

// A record of a newer version is kept, not shown, and not overwritten.
func TestNewerVersion(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		ctx, s := within(t), w.open(t, Config{})
		key := MirrorKey("m")
		// What a newer gateway would write: a valid record with more in it.
		p := s.partitions[key.StatePartition()]
		require.NoError(t, s.UpdateMirror(ctx, "m", func(*Mirror) (*Mirror, error) { return &Mirror{Name: "m"}, nil }))
		s.mu.Lock()
		base, producer := p.next, p.producer
		s.mu.Unlock()
		r := logRecord{key: []byte(key.String()), value: []byte(`{"v":2,"name":"m","config":[]}`), nonce: makeNonce("newer", 1, base)}
		alien := logRecord{key: []byte("v2/thing/x"), value: []byte(`{}`), nonce: makeNonce("newer", 2, base+1)}
		batch := appendlog.Batch{Bytes: buildBatch(producer, base, 0, []logRecord{r, alien}), Base: base, Next: base + 2}
		require.NoError(t, s.logs.Append(ctx, appendlog.Partition{Topic: s.topic, Partition: p.number, ProducerID: producer}, batch))

		again := w.open(t, Config{})
		require.Empty(t, again.Mirrors())
		err := again.UpdateMirror(ctx, "m", func(*Mirror) (*Mirror, error) { return &Mirror{Name: "m"}, nil })
		require.ErrorIs(t, err, ErrNewer)
		require.NoError(t, again.UpdateTopic(ctx, "m", "t", func(*Topic) (*Topic, error) { return &Topic{Mirror: "m", Name: "t"}, nil }))
	})
}

// While the destination cannot be reached, updates whose callers have given up do not pile up.
func TestAbandonedUpdatesDoNotPileUp(t *testing.T) {
	logs := newMemoryLog()
	var down atomic.Bool
	down.Store(true)
	s := openHooked(t, &hooked{logs, func(ctx context.Context, id appendlog.Partition, b appendlog.Batch) error {
		if down.Load() {
			return fmt.Errorf("%w: no route", ErrUncertain)
		}
		return logs.Append(ctx, id, b)
	}})
	impatient, cancel := context.WithCancel(context.Background())
	result := make(chan error)
	go func() { result <- s.UpdatePartition(impatient, "m", "t", 0, increment) }()
	p := s.partitions[PartitionKey("m", "t", 0).StatePartition()]
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return p.taken == 1 }, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-result, context.Canceled)
	for range 100 {
		require.ErrorIs(t, s.UpdatePartition(impatient, "m", "t", 0, increment), context.Canceled)
	}
	s.mu.Lock()
	require.Len(t, p.queue, 1, "only the one on its way is left")
	s.mu.Unlock()
	down.Store(false)
	require.NoError(t, s.UpdatePartition(within(t), "m", "t", 0, increment))
	require.EqualValues(t, 2, lastMirrored(t, s), "the one on its way took effect, those that were given up did not")
}
