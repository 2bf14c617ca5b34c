package replication

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWindow(t *testing.T) {
	c := &fetcherConfig{options: FetchOptions{}.withDefaults()}
	const mib = 1 << 20
	for _, tt := range []struct {
		trip time.Duration
		busy int
		want int32
	}{
		{0, 0, mib},
		{time.Millisecond, 1, mib},
		{7 * time.Millisecond, 1, mib},
		{20 * time.Millisecond, 1, 128 * mib / 50},
		{20 * time.Millisecond, 6, mib},
		{100 * time.Millisecond, 1, 10 * mib},
		{100 * time.Millisecond, 4, 128 * mib / 40},
		{10 * time.Second, 1, 10 * mib},
		{time.Hour, 1, 10 * mib},
	} {
		require.Equal(t, tt.want, c.window(tt.trip, tt.busy), "%v, %d partitions", tt.trip, tt.busy)
	}
	c.options.MaxBytes = 64 * mib
	require.EqualValues(t, 64*mib, c.window(time.Second, 1), "what is configured is the least")
}

func TestRoundTrip(t *testing.T) {
	var r roundTrip
	at := time.Now()
	require.Zero(t, r.estimate())
	for _, ms := range []int{120, 100, 180} {
		r.add(time.Duration(ms)*time.Millisecond, at)
	}
	require.Equal(t, 100*time.Millisecond, r.estimate())
	// A way that becomes shorter is noticed at once, a longer one after two intervals.
	r.add(time.Millisecond, at.Add(time.Second))
	require.Equal(t, time.Millisecond, r.estimate())
	for i := range 3 {
		at = at.Add(roundTripInterval + 1)
		r.add(50*time.Millisecond, at)
		want := 50 * time.Millisecond
		if i == 0 {
			want = time.Millisecond
		}
		require.Equal(t, want, r.estimate())
	}
}
