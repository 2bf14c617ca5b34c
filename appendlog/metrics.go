package appendlog

import "github.com/prometheus/client_golang/prometheus"

// Metrics measures a Client. One Metrics may serve several Clients.
type Metrics struct {
	requests   prometheus.Counter
	batches    prometheus.Counter
	bytes      prometheus.Counter
	merged     prometheus.Counter
	inFlight   prometheus.Gauge
	doubts     *prometheus.CounterVec
	checks     *prometheus.CounterVec
	tailChecks *prometheus.CounterVec
	logs       prometheus.Gauge

	checksOK, checksMismatch prometheus.Counter // of checks
	connections              prometheus.Counter
}

// NewMetrics registers the metrics with reg; nil keeps them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "mirrorgate_appendlog_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "mirrorgate_appendlog_" + name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mirrorgate_appendlog_" + name, Help: help}, []string{label})
	}
	m := &Metrics{
		requests:    counter("produce_requests_total", "Produce requests sent to the destination."),
		batches:     counter("batches_total", "Record batches sent to the destination, repetitions included."),
		bytes:       counter("bytes_total", "Bytes of record batches sent to the destination, repetitions included."),
		merged:      counter("merged_batches_total", "Record batches that were merged into larger ones, as the round trip was the limit."),
		inFlight:    gauge("in_flight_batches", "Record batches sent and not answered yet."),
		doubts:      vec("doubts_total", "Errors after which the end of a destination log was read again.", "error"),
		checks:      vec("offset_checks_total", "Comparisons of the base offset in a produce response with the one expected.", "result"),
		tailChecks:  vec("tail_checks_total", "Checks whose batch a destination log ends with.", "result"),
		logs:        gauge("logs", "Destination partitions that are open for writing."),
		connections: counter("connections_total", "Connections made to destination brokers."),
	}
	m.checksOK, m.checksMismatch = m.checks.WithLabelValues("ok"), m.checks.WithLabelValues("mismatch")
	if reg != nil {
		reg.MustRegister(m.requests, m.batches, m.bytes, m.merged, m.inFlight, m.doubts, m.checks, m.tailChecks, m.logs, m.connections)
	}
	return m
}
