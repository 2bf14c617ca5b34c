package replication

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestReplicatorOnKafkaThrottled: no more than the rate comes, which changes while the mirror runs, and a mirror that waits keeps
// no memory from others. (That it is no less either shows TestReplicatorIsThrottled, in which time is not the machine's.)
func TestReplicatorOnKafkaThrottled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real clusters")
	}
	x := replicateKafka(t, nil)
	const partitions, rate, bytes = 3, 2_000_000, 30_000_000
	specs := x.prepare(t, "throttled", partitions, 1, 1)
	records := make([]*kgo.Record, bytes/1000)
	for i := range records {
		records[i] = &kgo.Record{Topic: "throttled", Partition: int32(i % partitions), Value: randomBytes(1000)}
	}
	require.NoError(t, x.source.client.ProduceSync(t.Context(), records...).FirstErr())
	x.Throttle(rate)
	for _, spec := range specs {
		x.Start(spec)
	}
	for _, r := range []int64{rate, 2 * rate} {
		x.Throttle(r)
		began := time.Now() // before what came so far is asked for, and after what came at last: a pause in between only helps
		before := x.fetched(t)
		waitFor(t, func() bool { return x.fetched(t)-before > 2*float64(r) })
		got := x.fetched(t) - before
		want := time.Since(began).Seconds() * float64(r)
		// What one fetch brings may come at once, at the beginning and at the end.
		require.Less(t, got, 1.05*want+2*float64(r)/throttleStep)
		t.Logf("%.3f of the rate %d", got/want, r)
	}
	x.Throttle(1000) // what is owed now takes minutes
	waitFor(t, func() bool { return strings.Contains(x.reason(specs[0]), "mirror.replication.throttled.rate") })
	waitFor(t, func() bool { return x.budget.Used() == 0 })
	x.Throttle(0)
	x.requireEqual(t, "throttled", partitions)
	require.Empty(t, x.reason(specs[0]))
}

func (x *kafkaPair) reason(spec PartitionSpec) string {
	status, _ := x.Status(spec.Topic, spec.Partition)
	return status.Reason
}

// fetched is the sum of what fetches brought.
func (x *kafkaPair) fetched(t *testing.T) float64 {
	t.Helper()
	families, err := x.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "mirrorgate_mirror_fetch_bytes_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
