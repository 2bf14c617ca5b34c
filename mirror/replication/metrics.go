package replication

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Metrics measures the data path of all mirrors of a gateway. Series are by mirror, lag and states by topic too; they
// go away with the mirror's Replicator.
type Metrics struct {
	requests  *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	errors    *prometheus.CounterVec
	batches   *prometheus.CounterVec
	copied    *prometheus.CounterVec
	records   *prometheus.CounterVec
	doubts    *prometheus.CounterVec
	sleeps    *prometheus.CounterVec
	fillers   *prometheus.CounterVec
	skipped   *prometheus.CounterVec
	trims     *prometheus.CounterVec
	rebuilt   *prometheus.CounterVec
	throttled *prometheus.CounterVec
	rates     *prometheus.GaugeVec
	partition *partitionCollector
}

// NewMetrics registers the metrics with reg; nil keeps them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mirrorgate_mirror_" + name, Help: help}, append([]string{"mirror"}, labels...))
	}
	m := &Metrics{
		requests:  vec("fetch_requests_total", "Fetch requests answered by the source."),
		bytes:     vec("fetch_bytes_total", "Bytes of Fetch responses of the source."),
		errors:    vec("fetch_errors_total", "Failed fetches, of a whole request (error connection or session) or of one partition (the Kafka error).", "error"),
		batches:   vec("copied_batches_total", "Record batches handed to the destination, repetitions after doubts included."),
		copied:    vec("copied_bytes_total", "Bytes of these batches."),
		records:   vec("mirrored_records_total", "Offsets acknowledged by the destination."),
		doubts:    vec("doubts_total", "Times that a destination partition's end had to be read again."),
		sleeps:    vec("stale_fetches_total", "Fetches dropped because the process had been suspended."),
		fillers:   vec("filled_offsets_total", "Offsets of fillers acknowledged by the destination: offsets that hold no record at the source."),
		skipped:   vec("overtaken_offsets_total", "Offsets that were deleted at the source before they were copied."),
		trims:     vec("log_start_moves_total", "Times that the log start of a destination partition followed the source's."),
		rebuilt:   vec("rebuilt_batches_total", "Record batches encoded anew, as the destination would refuse or change the source's."),
		throttled: vec("throttled_seconds_total", "Time that fetchers waited because of mirror.replication.throttled.rate."),
		rates: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mirrorgate_mirror_throttled_rate_bytes", Help: "mirror.replication.throttled.rate, in bytes per second; 0 = no limit.",
		}, []string{"mirror"}),
		partition: newPartitionCollector(),
	}
	if reg != nil {
		reg.MustRegister(m.requests, m.bytes, m.errors, m.batches, m.copied, m.records, m.doubts, m.sleeps, m.fillers, m.skipped, m.trims, m.rebuilt, m.throttled, m.rates, m.partition)
	}
	return m
}

// mirrorMetrics are the metrics of one mirror. nil measures nothing.
type mirrorMetrics struct {
	all    *Metrics
	mirror string

	requests, bytes, batches, copiedBytes, records, doubts, sleeps prometheus.Counter
	fillers, skipped, trims, rebuilt, throttling                   prometheus.Counter
	rate                                                           prometheus.Gauge
}

func (m *Metrics) of(mirror string, source partitionSource) *mirrorMetrics {
	if m == nil {
		return nil
	}
	m.partition.add(mirror, source)
	return &mirrorMetrics{
		all: m, mirror: mirror,
		requests: m.requests.WithLabelValues(mirror), bytes: m.bytes.WithLabelValues(mirror),
		batches: m.batches.WithLabelValues(mirror), copiedBytes: m.copied.WithLabelValues(mirror),
		records: m.records.WithLabelValues(mirror), doubts: m.doubts.WithLabelValues(mirror), sleeps: m.sleeps.WithLabelValues(mirror),
		fillers: m.fillers.WithLabelValues(mirror), skipped: m.skipped.WithLabelValues(mirror),
		trims: m.trims.WithLabelValues(mirror), rebuilt: m.rebuilt.WithLabelValues(mirror),
		throttling: m.throttled.WithLabelValues(mirror), rate: m.rates.WithLabelValues(mirror),
	}
}

// close removes the mirror's series.
func (m *mirrorMetrics) close() {
	if m == nil {
		return
	}
	m.all.partition.remove(m.mirror)
	for _, v := range []*prometheus.CounterVec{m.all.requests, m.all.bytes, m.all.errors, m.all.batches, m.all.copied, m.all.records, m.all.doubts, m.all.sleeps, m.all.fillers, m.all.skipped, m.all.trims, m.all.rebuilt, m.all.throttled} {
		v.DeletePartialMatch(prometheus.Labels{"mirror": m.mirror})
	}
	m.all.rates.DeleteLabelValues(m.mirror)
}

func (m *mirrorMetrics) fetched(bytes int) {
	if m != nil {
		m.requests.Inc()
		m.bytes.Add(float64(bytes))
	}
}

func (m *mirrorMetrics) throttled(d time.Duration) {
	if m != nil {
		m.throttling.Add(d.Seconds())
	}
}

func (m *mirrorMetrics) throttledRate(bytesPerSecond int64) {
	if m != nil {
		m.rate.Set(float64(bytesPerSecond))
	}
}

func (m *mirrorMetrics) fetchError(err error) {
	if m == nil {
		return
	}
	label := "connection"
	if ke := (*kerr.Error)(nil); errors.As(err, &ke) {
		label = ke.Message
	}
	m.all.errors.WithLabelValues(m.mirror, label).Inc()
}

func (m *mirrorMetrics) partitionError(code int16) {
	if m == nil {
		return
	}
	label := "DIVERGED"
	if ke := kerr.TypedErrorForCode(code); ke != nil {
		label = ke.Message
	}
	m.all.errors.WithLabelValues(m.mirror, label).Inc()
}

func (m *mirrorMetrics) copied(batches, bytes int) {
	if m != nil {
		m.batches.Add(float64(batches))
		m.copiedBytes.Add(float64(bytes))
	}
}

func (m *mirrorMetrics) acked(records int64) {
	if m != nil {
		m.records.Add(float64(records))
	}
}

func (m *mirrorMetrics) doubt() {
	if m != nil {
		m.doubts.Inc()
	}
}

func (m *mirrorMetrics) slept() {
	if m != nil {
		m.sleeps.Inc()
	}
}

func (m *mirrorMetrics) filled(offsets int64) {
	if m != nil {
		m.fillers.Add(float64(offsets))
	}
}

func (m *mirrorMetrics) overtaken(offsets int64) {
	if m != nil {
		m.skipped.Add(float64(offsets))
	}
}

func (m *mirrorMetrics) trimmed() {
	if m != nil {
		m.trims.Inc()
	}
}

func (m *mirrorMetrics) reencoded(batches int) {
	if m != nil {
		m.rebuilt.Add(float64(batches))
	}
}
