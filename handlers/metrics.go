package handlers

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what the handlers do to requests.
type Metrics struct {
	local   *prometheus.CounterVec
	refused *prometheus.CounterVec
	errors  *prometheus.CounterVec
	fillers prometheus.Counter
}

// NewMetrics registers the metrics of the handlers with reg; a nil reg makes metrics that nobody sees.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		local: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mirrorgate_handlers_local_total", Help: "Requests that the gateway answered itself, by API.",
		}, []string{"api"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mirrorgate_handlers_refused_total", Help: "Topics refused because they are read-only mirrors, by API.",
		}, []string{"api"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mirrorgate_handlers_errors_total", Help: "Requests and responses that ended a connection, by API.",
		}, []string{"api"}),
		fillers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "mirrorgate_handlers_hidden_batches_total", Help: "Filler batches taken out of fetch responses.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.local, m.refused, m.errors, m.fillers)
	}
	return m
}
