package tunnel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics is what is measured of TLS on either side of the proxy.
type Metrics struct {
	handshakes *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	open       *prometheus.GaugeVec
	reloads    *prometheus.CounterVec
	expiry     prometheus.Gauge
}

// NewMetrics makes the metrics and registers them; with a nil registerer they are only counted.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		handshakes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mirrorgate_tls_handshakes_total",
			Help: "TLS handshakes with clients and with brokers, by result."}, []string{"side", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "mirrorgate_tls_handshake_seconds",
			Help:    "Time of TLS handshakes that succeeded.",
			Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10}}, []string{"side"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "mirrorgate_tls_connections",
			Help: "Open TLS connections, with clients and with brokers."}, []string{"side"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mirrorgate_tls_certificate_loads_total",
			Help: "Loads of the certificate files of the client side, by result."}, []string{"result"}),
		expiry: prometheus.NewGauge(prometheus.GaugeOpts{Name: "mirrorgate_tls_certificate_not_after_seconds",
			Help: "When the certificate of the client side ends, in seconds since 1970; 0 without one."}),
	}
	if reg != nil {
		reg.MustRegister(m.handshakes, m.seconds, m.open, m.reloads, m.expiry)
	}
	return m
}

// sideMetrics are those of one side.
type sideMetrics struct {
	handshakes *prometheus.CounterVec
	seconds    prometheus.Observer
	open       prometheus.Gauge
}

func (m *Metrics) side(name string) sideMetrics {
	if m == nil {
		m = NewMetrics(nil)
	}
	return sideMetrics{
		handshakes: m.handshakes.MustCurryWith(prometheus.Labels{"side": name}),
		seconds:    m.seconds.WithLabelValues(name), open: m.open.WithLabelValues(name),
	}
}

// handshake counts a handshake that began at start.
func (m sideMetrics) handshake(start time.Time, err error) {
	m.handshakes.WithLabelValues(result(err)).Inc()
	if err == nil {
		m.seconds.Observe(time.Since(start).Seconds())
	}
}

// result is the label for how a handshake ended.
func result(err error) string {
	var header tls.RecordHeaderError
	var invalid *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var op *net.OpError
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.As(err, &header):
		return "not_tls"
	case errors.As(err, &invalid), errors.As(err, &unknown), strings.Contains(err.Error(), "didn't provide a certificate"):
		return "certificate" // the peer's, or that it has none
	case errors.As(err, &op) && op.Op == "remote error":
		return "refused" // by the peer
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, context.Canceled):
		return "closed"
	}
	return "failed"
}
