package replication

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// partitionSource gives the status of all partitions of a mirror.
type partitionSource func(func(topic string, status Status))

// partitionCollector makes gauges out of the live status at the moment they are asked for, so that an idle partition's
// lag is as right as a busy one's (M39).
type partitionCollector struct {
	mu      sync.Mutex
	mirrors map[string]partitionSource

	partitions, lag, uncommitted *prometheus.Desc
}

func newPartitionCollector() *partitionCollector {
	return &partitionCollector{
		mirrors:     make(map[string]partitionSource),
		partitions:  prometheus.NewDesc("mirrorgate_mirror_partitions", "Mirror partitions that run here, by state.", []string{"mirror", "state"}, nil),
		lag:         prometheus.NewDesc("mirrorgate_mirror_lag_records", "Source high watermark less destination end, summed over the topic's partitions where both are known.", []string{"mirror", "topic"}, nil),
		uncommitted: prometheus.NewDesc("mirrorgate_mirror_source_open_records", "Source high watermark less last stable offset, summed likewise: what open transactions hold back.", []string{"mirror", "topic"}, nil),
	}
}

func (c *partitionCollector) add(mirror string, source partitionSource) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mirrors[mirror] = source
}

func (c *partitionCollector) remove(mirror string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mirrors, mirror)
}

// Describe implements prometheus.Collector.
func (c *partitionCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.partitions
	ch <- c.lag
	ch <- c.uncommitted
}

// Collect implements prometheus.Collector.
func (c *partitionCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for mirror, source := range c.mirrors {
		states := map[State]int{Preparing: 0, Mirroring: 0, Stopping: 0, Failed: 0}
		lag, open := make(map[string]int64), make(map[string]int64)
		source(func(topic string, s Status) {
			states[s.State]++
			lag[topic] += max(0, s.Lag())
			if s.SourceLastStableOffset >= 0 {
				open[topic] += max(0, s.SourceHighWatermark-s.SourceLastStableOffset)
			}
		})
		for state, n := range states {
			ch <- prometheus.MustNewConstMetric(c.partitions, prometheus.GaugeValue, float64(n), mirror, state.String())
		}
		for topic, n := range lag {
			ch <- prometheus.MustNewConstMetric(c.lag, prometheus.GaugeValue, float64(n), mirror, topic)
			ch <- prometheus.MustNewConstMetric(c.uncommitted, prometheus.GaugeValue, float64(open[topic]), mirror, topic)
		}
	}
}
