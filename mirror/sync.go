package mirror

import (
	"context"
	"time"
)

// Everything that a switch needs besides the data is kept in place by syncers, one after the other, every refresh
// interval. None of them stops another: what one cannot do is reported (sync_report.go) and tried again in the next cycle.

// refresh runs the syncers until the mirror ends.
func (r *mirrorRun) refresh() {
	ticker := time.NewTicker(r.config().MetadataRefresh)
	defer ticker.Stop()
	r.checkLoops(r.ctx)
	var cutover <-chan time.Time
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-ticker.C:
		case <-cutover:
		case <-r.refreshNow:
		}
		r.cycle()
		cutover = nil
		if r.config().cuttingOver(time.Now()) {
			cutover = time.After(cutoverInterval)
		}
	}
}

// cycle is one of all syncers.
func (r *mirrorRun) cycle() {
	r.keepHeard(r.ctx)
	r.checkDestination(r.ctx)
	r.checkLoops(r.ctx)
	r.timed(SyncTopics, r.syncTopics)
	r.timed(SyncConfigs, r.syncConfigs)
	if r.config().cuttingOver(time.Now()) {
		if err := r.lookForPartitions(r.ctx); err != nil {
			r.timed(SyncGroups, func(context.Context) outcome { return outcome{err: err} }) // this is no whole cycle
			return
		}
	}
	r.groups.cycle(r.ctx)
	r.timed(SyncACLs, r.syncACLs)
}

// soon makes the syncers run before their time.
func (r *mirrorRun) soon() {
	select {
	case r.refreshNow <- struct{}{}:
	default:
	}
}

// timed runs one cycle of a syncer and notes what became of it.
func (r *mirrorRun) timed(kind SyncKind, cycle func(context.Context) outcome) {
	started := time.Now()
	o := cycle(r.ctx)
	if r.ctx.Err() != nil {
		return // whatever failed did so because the mirror ends
	}
	r.report.note(kind, o, time.Since(started))
}

// mirrored returns the topics that are at work: neither about to be made nor being stopped.
func (r *mirrorRun) mirrored() (names []string) {
	for _, rec := range r.m.records.topicsOf(r.name) {
		if State(rec.State) == Mirroring {
			names = append(names, rec.Name)
		}
	}
	return names
}
