package proxy

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Reasons why a connection ended other than by its peer: the label of mirrorgate_proxy_errors_total.
const (
	reasonLength      = "frame_length"
	reasonHeader      = "request_header"
	reasonHTTP        = "http"
	reasonTLS         = "tls"
	reasonFirstByte   = "first_byte_timeout"
	reasonFrame       = "frame_timeout"
	reasonIdle        = "idle"
	reasonLinger      = "linger_timeout"
	reasonSlow        = "slow_peer"
	reasonPending     = "pending_bytes"
	reasonHeld        = "held_bytes"
	reasonConnections = "max_connections"
	reasonDial        = "dial"
	reasonBroker      = "broker_closed"
	reasonOrder       = "response_order"
	reasonResponse    = "response_frame"
	reasonRewrite     = "rewrite"
	reasonHandler     = "handler"
	reasonPanic       = "panic"
	reasonWork        = "work"
	reasonStop        = "stop"
	reasonAccept      = "accept"
	reasonHandshake   = "handshake"
)

// Metrics is what the proxy measures.
type Metrics struct {
	open     *prometheus.GaugeVec
	total    *prometheus.CounterVec
	sessions *prometheus.GaugeVec
	requests *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	errors   *prometheus.CounterVec
	inFlight prometheus.Gauge
	paused   prometheus.Gauge
	working  prometheus.Gauge
	waiting  prometheus.Gauge
	held     prometheus.Gauge

	clients, upstreams struct {
		open  prometheus.Gauge
		total prometheus.Counter
	}
	fromClient, toClient, fromBroker, toBroker prometheus.Counter

	names map[int16]string // of API keys that Kafka does not have; set before the first request
	byKey [256]atomic.Pointer[prometheus.Counter]
	other prometheus.Counter
}

// NewMetrics makes the proxy's metrics and registers them; with a nil registerer they are only counted.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "mirrorgate_proxy_connections",
			Help: "Open connections, with clients and with brokers."}, []string{"side"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mirrorgate_proxy_connections_total",
			Help: "Connections opened, with clients and with brokers."}, []string{"side"}),
		sessions: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "mirrorgate_proxy_sessions",
			Help: "Sessions of clients, by the ID of the broker, or bootstrap."}, []string{"broker"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mirrorgate_proxy_requests_total",
			Help: "Requests of clients, by API."}, []string{"api"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mirrorgate_proxy_bytes_total",
			Help: "Bytes moved, by direction."}, []string{"direction"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mirrorgate_proxy_errors_total",
			Help: "Connections that the gateway ended or refused, by reason."}, []string{"reason"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "mirrorgate_proxy_requests_in_flight",
			Help: "Requests of clients that wait for their response."}),
		paused: prometheus.NewGauge(prometheus.GaugeOpts{Name: "mirrorgate_proxy_paused_connections",
			Help: "Connections that are not read at the moment because the other side is slower."}),
		working: prometheus.NewGauge(prometheus.GaugeOpts{Name: "mirrorgate_proxy_work_in_progress",
			Help: "Requests that the gateway is answering itself, queued ones included."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "mirrorgate_proxy_waiting_requests",
			Help: "Requests of producers that wait for the end of a cut-over."}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{Name: "mirrorgate_proxy_held_bytes",
			Help: "Memory of incomplete requests and responses that must be seen whole."}),
	}
	m.clients.open, m.clients.total = m.open.WithLabelValues("client"), m.total.WithLabelValues("client")
	m.upstreams.open, m.upstreams.total = m.open.WithLabelValues("broker"), m.total.WithLabelValues("broker")
	m.fromClient, m.toClient = m.bytes.WithLabelValues("from_client"), m.bytes.WithLabelValues("to_client")
	m.fromBroker, m.toBroker = m.bytes.WithLabelValues("from_broker"), m.bytes.WithLabelValues("to_broker")
	m.other = m.requests.WithLabelValues("other")
	if reg != nil {
		reg.MustRegister(m.open, m.total, m.sessions, m.requests, m.bytes, m.errors, m.inFlight, m.paused, m.working, m.waiting, m.held)
	}
	return m
}

// request counts a request. Counters are looked up once a key, as that costs more than counting.
func (m *Metrics) request(key int16) {
	if key < 0 || int(key) >= len(m.byKey) {
		if name := m.names[key]; name != "" {
			m.requests.WithLabelValues(name).Inc()
		} else {
			m.other.Inc()
		}
		return
	}
	counter := m.byKey[key].Load()
	if counter == nil {
		name := m.names[key]
		if name == "" {
			name = apiName(key)
		}
		c := m.requests.WithLabelValues(name)
		counter = &c
		m.byKey[key].Store(counter)
	}
	(*counter).Inc()
}

// session is the gauge of the sessions of a broker, -1 for the bootstrap listener.
func (m *Metrics) session(node int32) prometheus.Gauge {
	if node < 0 {
		return m.sessions.WithLabelValues("bootstrap")
	}
	return m.sessions.WithLabelValues(strconv.Itoa(int(node)))
}

func (m *Metrics) failed(reason string) { m.errors.WithLabelValues(reason).Inc() }

func apiName(key int16) string {
	if name := kmsg.NameForKey(key); name != "Unknown" {
		return name
	}
	return "key_" + strconv.Itoa(int(key))
}
