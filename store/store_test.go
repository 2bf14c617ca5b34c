package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/mirrorgate/mirrorgate/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Main(m)) }

// world opens stores of one state log.
type world struct {
	open func(t *testing.T, cfg Config) *Store
	// strange appends a record that no gateway wrote, and returns its offset.
	strange func(t *testing.T, partition int32, key, value string) int64
}

func memoryWorld(*testing.T) world {
	logs := newMemoryLog()
	return world{
		open: func(t *testing.T, cfg Config) *Store {
			s, err := openMemory(cfg, logs)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		},
		strange: func(_ *testing.T, partition int32, key, value string) int64 {
			logs.mu.Lock()
			defer logs.mu.Unlock()
			p := &logs.partitions[partition]
			logs.push(p, []logRecord{{key: []byte(key), value: []byte(value)}})
			return int64(len(p.records)) - 1
		},
	}
}

func fakeWorld(t *testing.T) world {
	c, err := kfake.NewCluster(kfake.NumBrokers(3))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return kafkaWorld(t, c.ListenAddrs())
}

// kafkaWorld is a state log on a cluster.
func kafkaWorld(t *testing.T, addresses []string) world {
	client, err := kgo.NewClient(kgo.SeedBrokers(addresses...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	topic := "__mirror_state_" + strconv.FormatInt(time.Now().UnixNano(), 36)
	return world{
		open: func(t *testing.T, cfg Config) *Store {
			cfg.Client, cfg.Log, cfg.Topic = client, zaptest.NewLogger(t, zaptest.Level(zap.DebugLevel)), topic
			s, err := Open(within(t), cfg)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		},
		strange: func(t *testing.T, partition int32, key, value string) int64 {
			r, err := client.ProduceSync(within(t), &kgo.Record{Topic: topic, Partition: partition, Key: []byte(key), Value: []byte(value)}).First()
			require.NoError(t, err)
			return r.Offset
		},
	}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// everywhere runs a test in memory and on a fake cluster.
func everywhere(t *testing.T, test func(t *testing.T, w world)) {
	t.Run("memory", func(t *testing.T) { test(t, memoryWorld(t)) })
	t.Run("kfake", func(t *testing.T) { test(t, fakeWorld(t)) })
}

func TestRecordsComeBack(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		ctx := within(t)
		s := w.open(t, Config{})
		mirror := Mirror{Name: "m", Config: map[string]string{"bootstrap.servers": "a:1"}, SourceClusterID: "c", CreatedMs: 5}
		topic := Topic{Mirror: "m", Name: "t", SourceID: [16]byte{1, 2}, Partitions: 3, ProducerID: -1, PastProducerIDs: []int64{7}, State: 2}
		part := Partition{Mirror: "m", Topic: "t", Partition: 2, State: 16, Reason: "why", LastMirrored: -1}
		id := TopicID{Name: "o", SourceID: [16]byte{9}}
		require.NoError(t, s.UpdateMirror(ctx, "m", func(c *Mirror) (*Mirror, error) { require.Nil(t, c); return &mirror, nil }))
		require.NoError(t, s.UpdateTopic(ctx, "m", "t", func(*Topic) (*Topic, error) { return &topic, nil }))
		require.NoError(t, s.UpdatePartition(ctx, "m", "t", 2, func(*Partition) (*Partition, error) { return &part, nil }))
		require.NoError(t, s.UpdateTopicID(ctx, "o", func(*TopicID) (*TopicID, error) { return &id, nil }))

		for _, s := range []*Store{s, w.open(t, Config{})} {
			require.Equal(t, []Mirror{mirror}, s.Mirrors())
			require.Equal(t, []Topic{topic}, s.Topics(""))
			require.Equal(t, []Topic{topic}, s.Topics("m"))
			require.Empty(t, s.Topics("x"))
			require.Equal(t, []Partition{part}, s.Partitions("m", "t"))
			require.Equal(t, []TopicID{id}, s.TopicIDs())
		}
		require.NoError(t, s.UpdateTopic(ctx, "m", "t", func(c *Topic) (*Topic, error) { require.Equal(t, &topic, c); return nil, nil }))
		require.Empty(t, s.Topics(""))
		require.Empty(t, w.open(t, Config{}).Topics(""))
	})
}

func increment(c *Partition) (*Partition, error) {
	if c == nil {
		return &Partition{Mirror: "m", Topic: "t", LastMirrored: 1}, nil
	}
	c.LastMirrored++
	return c, nil
}

// Two gateways race on one key from the very first write on: no increment is lost, none counts twice.
func TestUpdatesAreLinearised(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		testRace(t, w, 200)
	})
}

func testRace(t *testing.T, w world, n int) {
	ctx := within(t)
	stores := []*Store{w.open(t, Config{}), w.open(t, Config{})}
	var wg sync.WaitGroup
	for _, s := range stores {
		wg.Go(func() {
			for range n {
				if err := s.UpdatePartition(ctx, "m", "t", 0, increment); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	third := w.open(t, Config{})
	p, ok := third.Partition("m", "t", 0)
	require.True(t, ok)
	require.EqualValues(t, 2*n, p.LastMirrored)
}

func TestManyUpdatesTravelTogether(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		s := w.open(t, Config{})
		var seen []Change
		s.Watch(func(c Change) { seen = append(seen, c) })
		var updates []Update
		for i := range int32(1000) {
			updates = append(updates, Update{PartitionKey("m", "t", i), Typed(func(*Partition) (*Partition, error) {
				return &Partition{Mirror: "m", Topic: "t", Partition: i}, nil
			})})
		}
		require.NoError(t, s.UpdateMany(within(t), updates))
		require.Len(t, s.Partitions("m", "t"), 1000)
		require.Len(t, seen, 1000)
	})
}

func TestRefusedUpdateWritesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		ctx, s := within(t), w.open(t, Config{})
		no := errors.New("no")
		require.NoError(t, s.UpdateMirror(ctx, "m", func(*Mirror) (*Mirror, error) { return nil, ErrNoChange }))
		require.ErrorIs(t, s.UpdateMirror(ctx, "m", func(*Mirror) (*Mirror, error) { return nil, no }), no)
		require.NoError(t, s.UpdateMirror(ctx, "m", func(*Mirror) (*Mirror, error) { return nil, nil }))
		require.ErrorContains(t, s.UpdateMirror(ctx, "m", func(*Mirror) (*Mirror, error) { return &Mirror{Name: "other"}, nil }), "another key")
		require.ErrorContains(t, s.UpdateMirror(ctx, "a/b", func(*Mirror) (*Mirror, error) { return nil, nil }), "a/b")
		ends, err := s.logs.ends(ctx)
		require.NoError(t, err)
		for _, end := range ends {
			require.Zero(t, end)
		}
	})
}

func TestWatchSeesOldAndNew(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		ctx, s, other := within(t), w.open(t, Config{}), w.open(t, Config{})
		changes := make(chan string, 10)
		cancel := other.Watch(func(c Change) {
			show := func(v any) string {
				if m, ok := v.(*Mirror); ok {
					return m.SourceClusterID
				}
				return "-"
			}
			changes <- show(c.Old) + ">" + show(c.New)
		})
		for _, id := range []string{"a", "b", ""} {
			require.NoError(t, s.UpdateMirror(ctx, "m", func(*Mirror) (*Mirror, error) {
				if id == "" {
					return nil, nil
				}
				return &Mirror{Name: "m", SourceClusterID: id}, nil
			}))
		}
		for _, want := range []string{"->a", "a>b", "b>-"} {
			select {
			case got := <-changes:
				require.Equal(t, want, got)
			case <-ctx.Done():
				t.Fatal("no change seen")
			}
		}
		cancel()
	})
}

func TestForeignRecordsAreIgnoredAndWritingGoesOn(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) { testForeign(t, w) })
}

func testForeign(t *testing.T, w world) {
	ctx, s := within(t), w.open(t, Config{})
	key := PartitionKey("m", "t", 0)
	for i := range 3 {
		require.NoError(t, s.UpdatePartition(ctx, "m", "t", 0, increment))
		w.strange(t, key.StatePartition(), "garbage", "garbage")
		w.strange(t, key.StatePartition(), "", fmt.Sprint(i))
		require.NoError(t, s.UpdatePartition(ctx, "m", "t", 0, increment))
	}
	// A stranger's record of our key would make the cleaner drop ours: it must be written again.
	at := w.strange(t, key.StatePartition(), key.String(), `{"v":1,"mirror":"m","topic":"t","partition":0,"lastMirrored":99}`)
	p := s.partitions[key.StatePartition()]
	require.NoError(t, s.await(ctx, p, func() bool { return p.entries[key].offset > at }))
	for _, s := range []*Store{s, w.open(t, Config{})} {
		got, _ := s.Partition("m", "t", 0)
		require.EqualValues(t, 6, got.LastMirrored)
	}
}
