package mirror

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ManagerMetrics measures what the manager does beside the data.
type ManagerMetrics struct {
	topics       *prometheus.GaugeVec
	syncSeconds  *prometheus.HistogramVec
	syncChanges  *prometheus.CounterVec
	syncFailures *prometheus.CounterVec
	syncSkipped  *prometheus.GaugeVec
}

// NewManagerMetrics registers the metrics at reg; a nil reg registers nothing.
func NewManagerMetrics(reg prometheus.Registerer) *ManagerMetrics {
	m := &ManagerMetrics{
		topics: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mirrorgate_mirror_topics", Help: "Topics of a mirror by recorded state.",
		}, []string{"mirror", "state"}),
		syncSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mirrorgate_mirror_sync_seconds", Help: "Time of a cycle of a sync beside the data.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 15, 60},
		}, []string{"mirror", "sync"}),
		syncChanges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mirrorgate_mirror_sync_changes_total",
			Help: "What syncs changed at the destination: groups, topics, topics with changed configs, ACLs.",
		}, []string{"mirror", "sync"}),
		syncFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mirrorgate_mirror_sync_failures_total", Help: "Cycles of syncs that failed, in whole or in part.",
		}, []string{"mirror", "sync"}),
		syncSkipped: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mirrorgate_mirror_sync_skipped", Help: "What the last cycle of a sync left out; mirrors describe says why.",
		}, []string{"mirror", "sync"}),
	}
	if reg != nil {
		reg.MustRegister(m.topics, m.syncSeconds, m.syncChanges, m.syncFailures, m.syncSkipped)
	}
	return m
}

// topicStates sets the counts of topics; what is not counted any more goes.
func (m *ManagerMetrics) topicStates(counts map[string]map[State]int) {
	m.topics.Reset()
	for mirror, states := range counts {
		for state, n := range states {
			m.topics.WithLabelValues(mirror, state.String()).Set(float64(n))
		}
	}
}

func (m *ManagerMetrics) syncCycle(mirror string, kind SyncKind, o outcome, took time.Duration) {
	sync := strings.ReplaceAll(string(kind), " ", "_")
	m.syncSeconds.WithLabelValues(mirror, sync).Observe(took.Seconds())
	m.syncChanges.WithLabelValues(mirror, sync).Add(float64(o.changes))
	if o.err != nil {
		m.syncFailures.WithLabelValues(mirror, sync).Inc()
	}
	if o.skipped != nil || o.off {
		m.syncSkipped.WithLabelValues(mirror, sync).Set(float64(len(o.skipped)))
	}
}

// forget drops the series of a mirror that is no more.
func (m *ManagerMetrics) forget(mirror string) {
	labels := prometheus.Labels{"mirror": mirror}
	for _, vec := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.syncSeconds, m.syncChanges, m.syncFailures, m.syncSkipped} {
		vec.DeletePartialMatch(labels)
	}
}
