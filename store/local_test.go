package store

import (
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// cluster is a fake destination whose stores' logs can be looked at.
type cluster struct {
	fake   *kfake.Cluster
	client *kgo.Client
	logs   *observer.ObservedLogs
	core   zapcore.Core
}

func newCluster(t *testing.T) *cluster {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	c := &cluster{fake: fake, client: client}
	c.core, c.logs = observer.New(zap.DebugLevel)
	return c
}

func (c *cluster) open(t *testing.T, dir string) *Store {
	s, err := Open(within(t), Config{Client: c.client, Dir: dir, Log: zap.New(c.core)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// replayed returns how many records were read from the topic, by watching what a new store applies.
func applied(s *Store) int64 {
	var n int64
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.partitions {
		n += p.next
	}
	return n
}

func fill(t *testing.T, s *Store, n int) {
	updates := make([]Update, n)
	for i := range updates {
		updates[i] = Update{PartitionKey("m", "t", int32(i)), Typed(func(*Partition) (*Partition, error) {
			return &Partition{Mirror: "m", Topic: "t", Partition: int32(i)}, nil
		})}
	}
	require.NoError(t, s.UpdateMany(within(t), updates))
}

// firstOffsets adds up the offsets from which a store that is opened now fetches the partitions first. Its first fetches do not
// wait; one that waits may be of a store that was closed, and turn up now.
func (c *cluster) firstOffsets() func() (total int64) {
	first := map[int32]int64{}
	c.fake.ControlKey(1, func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.fake.KeepControl()
		req := kreq.(*kmsg.FetchRequest)
		if req.MaxWaitMillis > 0 {
			return nil, nil, false
		}
		for _, t := range req.Topics {
			for _, p := range t.Partitions {
				if _, ok := first[p.Partition]; !ok {
					first[p.Partition] = p.FetchOffset
				}
			}
		}
		return nil, nil, false
	})
	return func() (total int64) {
		c.fake.Control(func(kmsg.Request) (kmsg.Response, error, bool) { return nil, nil, false })
		for _, o := range first {
			total += o
		}
		return total
	}
}

func TestRestartReadsOnFromTheLocalView(t *testing.T) {
	c, dir := newCluster(t), t.TempDir()
	s := c.open(t, dir)
	fill(t, s, 300)
	require.NoError(t, s.UpdatePartition(within(t), "m", "t", 299, func(*Partition) (*Partition, error) { return nil, nil }))
	want, end := s.Partitions("m", "t"), applied(s)
	require.NoError(t, s.Close())

	// Meanwhile another gateway, which has no disk, writes.
	other := c.open(t, "")
	require.NoError(t, other.UpdatePartition(within(t), "m", "t", 0, func(p *Partition) (*Partition, error) { p.Reason = "new"; return p, nil }))
	require.NoError(t, other.Close())
	want[0].Reason = "new"

	skipped := c.firstOffsets()
	s = c.open(t, dir)
	require.Equal(t, want, s.Partitions("m", "t"))
	require.Equal(t, end, skipped(), "a restart must go on where it left off")
	require.NoError(t, s.UpdatePartition(within(t), "m", "t", 1, func(p *Partition) (*Partition, error) { p.Reason = "x"; return p, nil }))
}

func TestLostDataDirectory(t *testing.T) {
	c, dir := newCluster(t), t.TempDir()
	s := c.open(t, dir)
	fill(t, s, 100)
	want := s.Partitions("m", "t")
	require.NoError(t, s.Close())
	require.NoError(t, os.RemoveAll(dir))
	s = c.open(t, dir)
	require.Equal(t, want, s.Partitions("m", "t"))
}

func TestDamagedDataDirectory(t *testing.T) {
	c, dir := newCluster(t), t.TempDir()
	s := c.open(t, dir)
	fill(t, s, 100)
	want := s.Partitions("m", "t")
	require.NoError(t, s.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "state", "MANIFEST"), []byte("this is no manifest"), 0o600))
	s = c.open(t, dir)
	require.Equal(t, want, s.Partitions("m", "t"))
	require.Equal(t, 1, c.logs.FilterMessageSnippet("damaged").Len())
}

func TestDataDirectoryInUse(t *testing.T) {
	c, dir := newCluster(t), t.TempDir()
	s := c.open(t, dir)
	fill(t, s, 1)
	_, err := Open(within(t), Config{Client: c.client, Dir: dir})
	require.ErrorContains(t, err, "Another process")
	require.NoError(t, s.Close())
	require.Len(t, c.open(t, dir).Partitions("m", "t"), 1, "the directory in use was not touched")
}

// Case M38: the destination was wiped or exchanged, its address and our data directory are still there.
func TestOtherDestinationThrowsTheLocalViewAway(t *testing.T) {
	c, dir := newCluster(t), t.TempDir()
	s := c.open(t, dir)
	fill(t, s, 100)
	require.NoError(t, s.Close())

	wiped := newCluster(t)
	s = wiped.open(t, dir)
	require.Empty(t, s.Partitions("m", "t"))
	require.Equal(t, 1, wiped.logs.FilterMessageSnippet("thrown away").Len())
	fill(t, s, 10)
	require.NoError(t, s.Close())
	require.Len(t, wiped.open(t, dir).Partitions("m", "t"), 10)
}

func setPosition(t *testing.T, c *cluster, dir string, n int32, pos position) {
	k, err := openKafka(within(t), Config{Client: c.client}, DefaultTopic, zap.NewNop())
	require.NoError(t, err)
	defer k.close()
	l, err := openLocal(filepath.Join(dir, "state"), identity{formatVersion, k.clusterID, hexID(k.topicID)}, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, l.commit(n, pos, []localRecord{{text: []byte(PartitionKey("m", "t", 0).String()), value: []byte(`{"v":1,"mirror":"m","topic":"t","reason":"long gone"}`)}}))
	require.NoError(t, l.close())
}

// Tombstones are cleaned away after delete.retention.ms: a view that is older could show what was deleted long ago.
// And a view that is ahead of the log shows what the log lost. Both are read anew.
func TestUntrustworthyLocalViewIsReadAnew(t *testing.T) {
	n := PartitionKey("m", "t", 0).StatePartition()
	for name, pos := range map[string]position{
		"old":   {next: 1, seenMs: time.Now().Add(-13 * time.Hour).UnixMilli()},
		"ahead": {next: 1000, seenMs: time.Now().UnixMilli()},
	} {
		t.Run(name, func(t *testing.T) {
			c, dir := newCluster(t), t.TempDir()
			s := c.open(t, dir)
			fill(t, s, 100)
			want := s.Partitions("m", "t")
			require.NoError(t, s.Close())
			setPosition(t, c, dir, n, pos)
			s = c.open(t, dir)
			require.Equal(t, want, s.Partitions("m", "t"))
			require.Equal(t, 1, c.logs.FilterMessageSnippet("reading a state partition anew").Len())
			require.NoError(t, s.Close())
			require.Equal(t, want, c.open(t, dir).Partitions("m", "t"))
			require.Equal(t, 1, c.logs.FilterMessageSnippet("reading a state partition anew").Len(), "it is whole again")
		})
	}
}

func TestCompactedLog(t *testing.T) {
	c := newCluster(t)
	s := c.open(t, "")
	for range 20 {
		fill(t, s, 20)
	}
	require.NoError(t, s.UpdatePartition(within(t), "m", "t", 3, func(*Partition) (*Partition, error) { return nil, nil }))
	c.fake.Compact()
	want := s.Partitions("m", "t")
	fresh := c.open(t, "")
	require.Equal(t, want, fresh.Partitions("m", "t"))
	fill(t, fresh, 20)
	fill(t, s, 30)
	require.Len(t, c.open(t, "").Partitions("m", "t"), 30)
}

func TestUnfitTopicIsRefused(t *testing.T) {
	c := newCluster(t)
	create := func(topic string, partitions int32, policy string) {
		req := kmsg.NewPtrCreateTopicsRequest()
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, partitions, 1
		rt.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "cleanup.policy", Value: &policy}}
		req.Topics = append(req.Topics, rt)
		_, err := req.RequestWith(within(t), c.client)
		require.NoError(t, err)
	}
	create("few", 3, "compact")
	create("deleting", StatePartitions, "compact,delete")
	create("fit", StatePartitions, "compact")
	_, err := Open(within(t), Config{Client: c.client, Topic: "few"})
	require.ErrorContains(t, err, "3 partitions")
	_, err = Open(within(t), Config{Client: c.client, Topic: "deleting"})
	require.ErrorContains(t, err, "cleanup.policy=compact,delete")
	s, err := Open(within(t), Config{Client: c.client, Topic: "fit"})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// A partition that has no leader for a while is read again once it has one, though nothing else happens.
func TestPartitionWithoutLeaderIsReadOnceItHasOne(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(2))
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	core, logs := observer.New(zap.DebugLevel)
	c := &cluster{fake: fake, client: client, logs: logs, core: core}
	s := c.open(t, "")
	fill(t, s, 100)

	n := PartitionKey("m", "t", 0).StatePartition()
	leader := fake.LeaderFor(DefaultTopic, n)
	var down atomic.Bool
	down.Store(true)
	without := make(chan struct{}, 1000)
	whole, err := kmsg.NewPtrMetadataRequest().RequestWith(within(t), client)
	require.NoError(t, err)
	fake.ControlKey(3, func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		asked := req.(*kmsg.MetadataRequest)
		if !down.Load() || len(asked.Topics) != 1 {
			return nil, nil, false
		}
		resp := asked.ResponseKind().(*kmsg.MetadataResponse)
		resp.Brokers, resp.ClusterID, resp.ControllerID = whole.Brokers, whole.ClusterID, whole.ControllerID
		for _, topic := range whole.Topics {
			if *topic.Topic != DefaultTopic {
				continue
			}
			topic.Partitions = slices.Clone(topic.Partitions)
			for i := range topic.Partitions {
				if p := &topic.Partitions[i]; p.Partition == n {
					p.Leader, p.ErrorCode = -1, kerr.LeaderNotAvailable.Code
				}
			}
			resp.Topics = append(resp.Topics, topic)
		}
		without <- struct{}{}
		return resp, nil, true
	})
	require.NoError(t, fake.MoveTopicPartition(DefaultTopic, n, 1-leader)) // so that it is looked for
	<-without                                                              // all others are read from now on
	select {
	case <-without:
	case <-within(t).Done():
		t.Fatal("the leader is not looked for any more")
	}
	down.Store(false)
	require.NoError(t, s.UpdatePartition(within(t), "m", "t", 0, increment))
}

// The topic is deleted and made again under a running gateway: it must neither forget silently nor go on.
func TestReplacedTopicStopsTheStore(t *testing.T) {
	c := newCluster(t)
	s := c.open(t, "")
	fill(t, s, 10)
	req := kmsg.NewPtrDeleteTopicsRequest()
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = kmsg.StringPtr(DefaultTopic)
	req.Topics, req.TopicNames = append(req.Topics, topic), []string{DefaultTopic}
	_, err := req.RequestWith(within(t), c.client)
	require.NoError(t, err)
	other := c.open(t, "") // creates it again
	require.Empty(t, other.Partitions("m", "t"))
	<-s.ctx.Done()
	require.ErrorIs(t, s.Err(), errTopicReplaced)
	require.ErrorIs(t, s.UpdatePartition(within(t), "m", "t", 0, increment), errTopicReplaced)
	require.Len(t, s.Partitions("m", "t"), 10)
}
