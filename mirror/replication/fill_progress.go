package replication

import (
	"fmt"
	"time"
)

// fillProgress tells how far the filling of a log up to the source's start is, for people.
type fillProgress struct {
	target int64
	began  time.Time
	at     int64 // end of the log when it began
}

// update notes the beginning of a filling.
func (f *fillProgress) update(s replicaStatus, now func() time.Time) {
	if s.filling != f.target {
		*f = fillProgress{target: s.filling, began: now(), at: s.acked}
	}
}

// text is like "43% filled, 12.3 M offsets/s, 3m left".
func (f *fillProgress) text(s replicaStatus, now time.Time) string {
	percent := 100 * float64(s.acked-s.fillFrom) / float64(max(1, s.filling-s.fillFrom))
	text := fmt.Sprintf("%d%% filled", int(percent))
	elapsed := now.Sub(f.began).Seconds()
	if elapsed <= 0 || s.acked <= f.at {
		return text
	}
	rate := float64(s.acked-f.at) / elapsed
	left := time.Duration(float64(s.filling-s.acked) / rate * float64(time.Second))
	return fmt.Sprintf("%s, %s offsets/s, %s left", text, short(rate), roundDuration(left))
}

func short(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%.1f M", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.0f k", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}

// roundDuration keeps the leading unit.
func roundDuration(d time.Duration) string {
	switch {
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()+0.5))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", int(d.Minutes()+0.5))
	}
	return fmt.Sprintf("%ds", int(d.Seconds()+0.99))
}
