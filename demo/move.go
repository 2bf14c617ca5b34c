package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// moveGroup lets the group read at the source for a while, stops it there, and starts it at the gateway once its
// offsets have arrived. Where end comes first, it moves at once.
func (d *demo) moveGroup(end, finish context.Context, r *reader) (*groupMember, error) {
	atSource, err := joinGroup(d.source.ListenAddrs(), r, false)
	if err != nil {
		return nil, err
	}
	d.story.group("source", r)
	d.story.step("group %q reads at the source", groupName)
	wait := 5 * time.Second
	if d.Duration > 0 {
		wait = d.Duration / 3
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-end.Done():
	}
	// Every partition must have been read from, or it has no committed offset to go on from.
	ctx, cancel := context.WithTimeout(finish, 2*time.Minute) // which only a hang takes
	defer cancel()
	if err := r.waitFor(ctx, firstRecords()); err != nil {
		atSource.stop()
		return nil, fmt.Errorf("waiting for the group to read at the source: %w", err)
	}
	atSource.stop()
	d.story.step("group %q left the source; waiting for its offsets at the destination", groupName)
	if err := d.awaitCommits(ctx, r.positions()); err != nil {
		return nil, err
	}
	moved, err := joinGroup([]string{d.gateway.BootstrapAddr()}, r, true)
	if err != nil {
		return nil, err
	}
	d.story.group("gateway", r)
	d.story.step("group %q goes on through the gateway, at exactly the next record", groupName)
	return moved, nil
}

func firstRecords() map[partition]int64 {
	ends := map[partition]int64{}
	for _, topic := range topics {
		for n := range int32(partitions) {
			ends[partition{topic, n}] = 1
		}
	}
	return ends
}

// awaitCommits waits until the destination has the group's offsets as they were at the source.
func (d *demo) awaitCommits(ctx context.Context, want map[partition]int64) error {
	admin := kadm.NewClient(d.admin)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		have, err := admin.FetchOffsets(ctx, groupName)
		if err == nil && sameOffsets(have, want) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the offsets of group %s at the destination (want %v, last answer %v, %v): %w", groupName, want, have, err, ctx.Err())
		}
	}
}

func sameOffsets(have kadm.OffsetResponses, want map[partition]int64) bool {
	for p, offset := range want {
		if got, ok := have.Lookup(p.topic, p.n); !ok || got.At != offset {
			return false
		}
	}
	return true
}
