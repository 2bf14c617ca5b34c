package store

import "github.com/prometheus/client_golang/prometheus"

// Metrics measures the store.
type Metrics struct {
	applied, ignored, writes, conflicts, rebuilds, producers prometheus.Counter
	writeSeconds                                             prometheus.Histogram
}

// NewMetrics registers the store's metrics at reg; a nil reg registers nothing.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "mirrorgate_store_" + name, Help: help})
		if reg != nil {
			reg.MustRegister(c)
		}
		return c
	}
	m := &Metrics{
		applied:   counter("records_applied_total", "Records of the state log that were taken into the view."),
		ignored:   counter("records_ignored_total", "Records of the state topic that do not count: not written by a gateway for their offset."),
		writes:    counter("writes_total", "Batches that were written to the state log and read back."),
		conflicts: counter("write_conflicts_total", "Batches that another gateway overtook; their updates were evaluated again."),
		rebuilds:  counter("partition_rebuilds_total", "State partitions that were read anew from their start."),
		producers: counter("producers_taken_total", "Producer IDs that were taken to write a state partition."),
		writeSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "mirrorgate_store_write_seconds", Help: "Time from an update to its being read back.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30},
		}),
	}
	if reg != nil {
		reg.MustRegister(m.writeSeconds)
	}
	return m
}
