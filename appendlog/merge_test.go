package appendlog

import (
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// TestMergeSize: merging is for what the round trip holds up, and has to pay.
func TestMergeSize(t *testing.T) {
	plain, zstd := makeBatch(0, 1).Bytes, makeBatch(0, 1).Bytes
	zstd[22] = byte(recordbatch.Zstd)
	large := make([]byte, 16<<10)
	copy(large, zstd)
	for _, tt := range []struct {
		name  string
		first []byte
		pace  time.Duration
		limit int
		want  int
	}{
		{"not known yet", plain, 0, 1 << 20, 0},
		{"near", plain, 100 * time.Microsecond, 1 << 20, 26843},
		{"far", plain, 20 * time.Millisecond, 1 << 20, 1 << 20},
		{"the topic's limit", plain, 20 * time.Millisecond, 10_000, 10_000},
		{"compressed, near", zstd, time.Millisecond, 1 << 20, 16777},
		{"compressed, many share the round trip", zstd, 20 * time.Microsecond, 1 << 20, 0},
		{"compressed and large, near", large, time.Millisecond, 1 << 20, 0},
		{"compressed and large, far", large, 20 * time.Millisecond, 1 << 20, 335544},
		{"damaged", plain[:20], time.Second, 1 << 20, 0},
	} {
		require.Equal(t, tt.want, mergeSize(tt.first, tt.pace, tt.limit), tt.name)
	}
}

func TestRingMerges(t *testing.T) {
	var r ring
	one := func(base int64) Batch { return Batch{Base: base, Next: base + 1, Bytes: make([]byte, 10)} }
	for base := range int64(2000) {
		r.push(one(base))
	}
	r.pop()
	r.merge(2, 100, Batch{Base: 3, Next: 103, Bytes: make([]byte, 700), sources: 100, sourceBytes: 1000})
	require.Equal(t, 1900, r.len())
	require.Equal(t, 19_990, r.bytes)
	require.Equal(t, 700, r.merged)
	for i, next := 0, int64(1); i < r.len(); i++ {
		require.Equal(t, next, r.at(i).Base)
		next = r.at(i).Next
	}
	r.pop()
	r.pop()
	require.EqualValues(t, 103, r.pop().Next)
	require.Zero(t, r.merged)
	r.merge(0, r.len(), Batch{Base: 103, Next: 2000, Bytes: make([]byte, 700), sources: r.len(), sourceBytes: r.bytes})
	require.Equal(t, 1, r.len())
	r.clear()
	require.Zero(t, r.bytes+r.merged+r.len())
	require.Zero(t, cap(r.items), "what it needed once it does not keep")
}

func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	require.NoError(t, c.Write(&m))
	return m.Counter.GetValue()
}

// TestMergesWhatWaits: batches of one record, to a broker that takes its time: until all of them wait.
func TestMergesWhatWaits(t *testing.T) {
	const end = 20_000
	var mu sync.Mutex
	var got []string
	batches := 0
	allWait := make(chan struct{})
	null := startNullBroker(t, 1)
	null.producing = func(req *kmsg.ProduceRequest) {
		<-allWait
		mu.Lock()
		defer mu.Unlock()
		batches++
		err := recordbatch.Records(req.Topics[0].Partitions[0].Records, func(r recordbatch.Record) error {
			got = append(got, string(r.Value))
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	metrics := NewMetrics(nil)
	c := testClient(t, null.l.Addr().String(), func(cfg *Config) { cfg.Metrics = metrics })
	cp := newCopier(t, end, nil)
	appended := sync.OnceFunc(func() { close(allWait) })
	t.Cleanup(appended)      // the broker ends only then
	cp.size = func() int64 { // called with cp.mu
		if cp.next == end {
			appended()
		}
		return 1
	}
	cp.open(c, Partition{Topic: "t", ProducerID: 1, MergeBytes: 1 << 20})
	cp.waitCopied()
	require.Len(t, got, end)
	for i, value := range got {
		require.Equal(t, string(valueAt(int64(i))), value)
	}
	require.Less(t, batches, end/10)
	require.Greater(t, counted(t, metrics.merged), end*0.8)
	cp.stop()
	require.Zero(t, c.merged.Load(), "memory of merged batches")
}

// TestMergesOnlyWhereAllowed: the same without MergeBytes, and while the memory for it is in use.
func TestMergesOnlyWhereAllowed(t *testing.T) {
	null := startNullBroker(t, 2)
	null.producing = func(*kmsg.ProduceRequest) { time.Sleep(time.Millisecond) }
	metrics := NewMetrics(nil)
	c := testClient(t, null.l.Addr().String(), func(cfg *Config) { cfg.Metrics = metrics })
	c.merged.Store(mergeMemory)
	newCopier(t, 500, fixed(1)).open(c, Partition{Topic: "t", ProducerID: 1}).waitCopied()
	newCopier(t, 500, fixed(1)).open(c, Partition{Topic: "t", Partition: 1, ProducerID: 1, MergeBytes: 1 << 20}).waitCopied()
	require.EqualValues(t, 1000, counted(t, metrics.batches))
	require.Zero(t, counted(t, metrics.merged))
}

// TestKafkaMerges: 200,000 batches of one record, of two codecs in turns on one of the partitions.
func TestKafkaMerges(t *testing.T) {
	bootstrap := singleBroker(t)
	topic := topicName(t)
	createTopic(t, bootstrap, topic, 2, 1, nil)
	metrics := NewMetrics(nil)
	c := testClient(t, bootstrap, func(cfg *Config) { cfg.Metrics = metrics })
	id := producerID(t, c)
	const end = 100_000
	copiers := make([]*copier, 2)
	for i := range copiers {
		copiers[i] = newCopier(t, end, fixed(1))
		if i == 1 {
			copiers[i].codec = func(from int64) recordbatch.Codec { return recordbatch.Zstd * recordbatch.Codec(from/1000%2) }
		}
	}
	began := time.Now()
	for i, cp := range copiers {
		cp.open(c, Partition{Topic: topic, Partition: int32(i), ProducerID: id, MergeBytes: 1 << 20})
	}
	for _, cp := range copiers {
		cp.waitCopied()
	}
	t.Logf("%.0f records a second, %.0f batches", 2*end/time.Since(began).Seconds(), counted(t, metrics.batches))
	for i := range copiers {
		requireCopy(t, bootstrap, topic, int32(i), end, 0)
	}
	require.Less(t, counted(t, metrics.batches), end/2., "batches sent")
}
