package mirror

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// SyncKind names one of the things that are synced beside the data.
type SyncKind string

// What is synced beside the data, every mirror.metadata.refresh.interval.ms.
const (
	SyncTopics  SyncKind = "topics"        // mirror.topics.include and exclude
	SyncConfigs SyncKind = "topic configs" // names are topics
	SyncGroups  SyncKind = "groups"        // consumer and share groups
	SyncACLs    SyncKind = "acls"          // names are resource, principal and operation
)

// Skip is what a syncer left out for one reason.
type Skip struct {
	Kind   SyncKind
	Reason string
	// Count is how many were left out; 0 if the whole sync did not work.
	Count int
	// Names are some of them, sorted: at most 10.
	Names []string
}

const skipNames = 10

// syncReport keeps what the syncers of a mirror left out as of their last cycles, for Describe; metrics have the numbers,
// and the log gets a line when something changes, not every cycle.
type syncReport struct {
	mirror  string
	log     *zap.Logger
	metrics *ManagerMetrics

	mu      sync.Mutex
	skipped map[SyncKind]map[string]string // reason by name; guarded by mu
	failed  map[SyncKind]string            // why the last cycle failed; guarded by mu
	whole   map[SyncKind]wholeCycles       // guarded by mu
}

func newSyncReport(mirror string, log *zap.Logger, metrics *ManagerMetrics) *syncReport {
	return &syncReport{
		mirror: mirror, log: log, metrics: metrics,
		skipped: make(map[SyncKind]map[string]string), failed: make(map[SyncKind]string), whole: make(map[SyncKind]wholeCycles),
	}
}

// outcome is what one cycle of a syncer did.
type outcome struct {
	// changes is how much was changed at the destination.
	changes int
	// skipped has the reason for each name that was left out. nil: the cycle did not get that far.
	skipped map[string]string
	// off: there is nothing to do at all, for instance because no topic is mirrored. What was said before is void.
	off bool
	// covered is how much is in place now, done in this cycle or before.
	covered int
	err     error
}

// note takes the outcome of a cycle.
func (r *syncReport) note(kind SyncKind, o outcome, took time.Duration) {
	r.metrics.syncCycle(r.mirror, kind, o, took)
	r.mu.Lock()
	before, failure := r.skipped[kind], r.failed[kind]
	if o.skipped != nil || o.off {
		r.skipped[kind] = o.skipped
	}
	r.failed[kind] = ""
	if o.err != nil {
		r.failed[kind] = strings.ReplaceAll(o.err.Error(), "\n", "; ")
	}
	if o.err == nil && !o.off {
		r.whole[kind] = wholeCycles{n: r.whole[kind].n + 1, last: time.Now(), covered: o.covered}
	}
	now, failed := r.skipped[kind], r.failed[kind]
	r.mu.Unlock()
	switch {
	case failed != "" && failed != failure:
		r.log.Warn("sync failed, in whole or in part", zap.String("sync", string(kind)), zap.String("reason", failed))
	case failed == "" && failure != "":
		r.log.Info("sync works again", zap.String("sync", string(kind)))
	}
	if maps.Equal(before, now) {
		return
	}
	for _, skip := range skipsOf(kind, now) {
		r.log.Info("skipped by sync", zap.String("sync", string(kind)), zap.String("reason", skip.Reason),
			zap.Int("count", skip.Count), zap.String("such_as", strings.Join(skip.Names, ", ")))
	}
	if len(now) == 0 {
		r.log.Info("nothing is skipped by sync any more", zap.String("sync", string(kind)))
	}
}

// skips returns what is left out, by kind and reason.
func (r *syncReport) skips() []Skip {
	r.mu.Lock()
	defer r.mu.Unlock()
	var skips []Skip
	for _, kind := range []SyncKind{SyncTopics, SyncConfigs, SyncGroups, SyncACLs} {
		if failed := r.failed[kind]; failed != "" {
			skips = append(skips, Skip{Kind: kind, Reason: failed})
		}
		skips = append(skips, skipsOf(kind, r.skipped[kind])...)
	}
	return skips
}

// wholeCycles are the cycles of a syncer that did all that they should.
type wholeCycles struct {
	n       int64
	last    time.Time
	covered int
}

// SyncStatus is what a syncer has done since the mirror was started in this gateway.
type SyncStatus struct {
	Kind SyncKind
	// Cycles is how often it has done all that it should.
	Cycles int64
	// Age is the time since the last of them.
	Age time.Duration
	// Covered is how many were in place after it; those that were skipped are not.
	Covered int
}

// status returns what the syncers have done.
func (r *syncReport) status(now time.Time) []SyncStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []SyncStatus
	for _, kind := range []SyncKind{SyncTopics, SyncConfigs, SyncGroups, SyncACLs} {
		if w := r.whole[kind]; w.n > 0 {
			all = append(all, SyncStatus{Kind: kind, Cycles: w.n, Age: now.Sub(w.last), Covered: w.covered})
		}
	}
	return all
}

// names returns the names that a syncer left out, with the reasons.
func (r *syncReport) names(kind SyncKind) map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.skipped[kind])
}

func skipsOf(kind SyncKind, skipped map[string]string) []Skip {
	byReason := make(map[string]*Skip)
	for _, name := range sortedKeys(skipped) {
		reason := skipped[name]
		if byReason[reason] == nil {
			byReason[reason] = &Skip{Kind: kind, Reason: reason}
		}
		skip := byReason[reason]
		if skip.Count++; skip.Count <= skipNames {
			skip.Names = append(skip.Names, name)
		}
	}
	skips := make([]Skip, 0, len(byReason))
	for _, skip := range byReason {
		skips = append(skips, *skip)
	}
	slices.SortFunc(skips, func(a, b Skip) int { return cmp.Compare(a.Reason, b.Reason) })
	return skips
}

// Skipped returns what a syncer of a mirror left out in its last cycle, by name, with the reasons.
func (m *Manager) Skipped(mirror string, kind SyncKind) map[string]string {
	if run := m.mirror(mirror); run != nil {
		return run.report.names(kind)
	}
	return nil
}
