package replication

import (
	"context"
	"sync"
	"time"
)

// heartbeat notices that the process was suspended: then another gateway may own a partition, and may have fenced it so
// long ago that the broker has forgotten the fence. What was fetched is judged by its age (staleAfter). A filler is not
// fetched, and may wait for its turn for longer than that while many logs are filled; for it, only a suspension counts.
type heartbeat struct {
	mu    sync.Mutex
	last  instant
	slept time.Time // the end of the last suspension
}

const heartbeatPause = 5 * time.Second

func newHeartbeat() *heartbeat { return &heartbeat{last: now()} }

func (h *heartbeat) run(ctx context.Context) {
	tick := time.NewTicker(heartbeatPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			h.beat()
		case <-ctx.Done():
			return
		}
	}
}

func (h *heartbeat) beat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last.since() > staleAfter {
		h.slept = time.Now()
	}
	h.last = now()
}

// sleptSince reports whether the process was suspended for longer than staleAfter at any time since.
func (h *heartbeat) sleptSince(since instant) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last.since() > staleAfter || h.slept.After(since.t)
}
