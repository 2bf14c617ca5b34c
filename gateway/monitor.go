package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// startMonitor serves /metrics, /healthz (the process works) and /readyz (clients are served). It is up before the
// destination answers, so that the waiting can be seen.
func (g *Gateway) startMonitor(context.Context) (stop, error) {
	if g.cfg.Metrics == "" {
		return nil, nil
	}
	listener, err := net.Listen("tcp", g.cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	addr := listener.Addr().String()
	g.monitorAddr.Store(&addr)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g.registry, promhttp.HandlerOpts{Registry: g.registry}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", g.readyz)
	if g.cfg.Pprof {
		servePprof(mux)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			g.log.Error("metrics server ended", zap.Error(err))
		}
	}()
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		err := server.Shutdown(ctx)
		if err != nil { // a scrape that hangs
			err = server.Close()
		}
		<-done
		return err
	}, nil
}

// servePprof adds what `go tool pprof` asks for. The command line is left out: it is nobody's business.
func servePprof(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.Handle("GET /debug/pprof/cmdline", http.NotFoundHandler())
}

func (g *Gateway) readyz(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-g.ready:
	default:
		http.Error(w, "starting", http.StatusServiceUnavailable)
		return
	}
	if g.stopping.Load() {
		http.Error(w, "stopping", http.StatusServiceUnavailable)
		return
	}
	if err := g.state.Err(); err != nil {
		http.Error(w, "the state has stopped", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}
