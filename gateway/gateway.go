package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/appendlog"
	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/handlers"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/proxy"
	"github.com/mirrorgate/mirrorgate/store"
)

// Gateway is all parts together. It lives once:
//
//	New ──► Run: monitor ► destination ► state ► append log ► mirrors ► proxy ► Ready … ctx ends: the same backwards
type Gateway struct {
	cfg         Config
	log         *zap.Logger
	registry    *prometheus.Registry
	destination broker.Config
	secretKey   []byte
	proxy       proxy.Config
	tunnels     tunnels
	ready       chan struct{}
	stopping    atomic.Bool

	// Set by the parts as they start, in this order; read by those after them, and by others once Ready is closed.
	client   *kgo.Client
	state    *store.Store
	appender *appendlog.Client
	manager  *mirror.Manager
	server   *proxy.Server
	handlers *handlers.Handlers
	brokers  *brokers
	// monitorAddr is where the HTTP server listens.
	monitorAddr atomic.Pointer[string]
}

// New checks the configuration and reads the files that it names. It contacts nothing.
func New(cfg Config, log *zap.Logger) (*Gateway, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if log == nil {
		log = zap.NewNop()
	}
	destination, err := cfg.destination()
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	secretKey, err := cfg.secretKey()
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	g := &Gateway{
		cfg: cfg, log: log, registry: registry, destination: destination, secretKey: secretKey, ready: make(chan struct{}),
		proxy: cfg.proxy(),
	}
	g.proxy.RequireLogin = destination.SASL != nil
	if g.tunnels, err = g.newTunnels(&g.proxy); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return g, nil
}

// Run starts everything, serves until ctx ends, and stops everything; it is called once. It waits for a destination that
// does not answer yet. The error is nil after a stop that was asked for.
func (g *Gateway) Run(ctx context.Context) error {
	parts := []part{
		{"monitor", g.startMonitor},
		{"destination", g.startDestination},
		{"state", g.startState},
		{"append log", g.startAppender},
		{"mirrors", g.startManager},
		{"proxy", g.startProxy},
	}
	started, err := startAll(ctx, parts, g.log)
	if err == nil {
		close(g.ready)
		g.log.Info("ready", zap.String("bootstrap", g.BootstrapAddr()))
		err = g.watch(ctx)
	}
	g.stopping.Store(true)
	stopErr := stopAll(started, g.cfg.ShutdownTimeout, g.log)
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		err = nil // a start that was called off is no failure
	}
	return errors.Join(err, stopErr)
}

// watch keeps up with the destination's brokers until ctx ends or the gateway can go on no more.
func (g *Gateway) watch(ctx context.Context) error {
	ticker := time.NewTicker(g.cfg.BrokerRefresh)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			g.log.Info("stopping")
			return nil
		case <-ticker.C:
		}
		if err := g.state.Err(); err != nil {
			return fmt.Errorf("the state can no longer be trusted: %w", err)
		}
		g.brokers.refresh(ctx)
	}
}

// Ready is closed when clients are served.
func (g *Gateway) Ready() <-chan struct{} { return g.ready }

// BootstrapAddr is the host:port that the bootstrap listener is bound to. REQUIRES: Ready.
func (g *Gateway) BootstrapAddr() string { return g.server.Addr() }

// Manager is the mirror engine. REQUIRES: Ready.
func (g *Gateway) Manager() *mirror.Manager { return g.manager }

// MonitorAddr is the host:port of /metrics, "" if there is none.
func (g *Gateway) MonitorAddr() string {
	if addr := g.monitorAddr.Load(); addr != nil {
		return *addr
	}
	return ""
}

// startDestination connects to the destination, which it waits for, and learns its brokers.
func (g *Gateway) startDestination(ctx context.Context) (stop, error) {
	client, err := kgo.NewClient(append(g.destination.KgoOptions(),
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.RetryTimeout(20*time.Second),
		kgo.ConnIdleTimeout(5*time.Minute),
	)...)
	if err != nil {
		return nil, fmt.Errorf("client of the destination: %w", err)
	}
	g.client = client
	g.brokers = &brokers{client: client, log: g.log}
	stop := func(context.Context) error { client.Close(); return nil }
	return stop, g.retry(ctx, "the destination does not answer; waiting for it", func(ctx context.Context) error {
		return g.brokers.look(ctx)
	})
}

func (g *Gateway) startState(ctx context.Context) (stop, error) {
	cfg := store.Config{
		Client: g.client, Dir: g.cfg.DataDir, ReplicationFactor: int16(max(g.cfg.StateReplicationFactor, 0)),
		SecretKey: g.secretKey, Log: g.log.Named("store"), Metrics: store.NewMetrics(g.registry),
	}
	err := g.retry(ctx, "the state cannot be read yet; waiting for the destination", func(ctx context.Context) (err error) {
		g.state, err = store.Open(ctx, cfg)
		return err
	})
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return g.state.Close() }, nil
}

func (g *Gateway) startAppender(context.Context) (_ stop, err error) {
	g.appender, err = appendlog.NewClient(appendlog.Config{
		Broker: g.destination, Admin: g.client, Metrics: appendlog.NewMetrics(g.registry), Log: g.log.Named("appendlog"),
	})
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { g.appender.Close(); return nil }, nil
}

func (g *Gateway) startManager(context.Context) (stop, error) {
	budget := replication.NewBudget(g.cfg.MirrorMemory)
	metrics := replication.NewMetrics(g.registry)
	log := g.log.Named("mirror")
	g.manager = mirror.NewManager(mirror.ManagerConfig{
		Destination: g.client, State: g.state, Self: g.self, Principal: g.principal(), Log: log, Metrics: mirror.NewManagerMetrics(g.registry),
		Replicate: func(name string, config mirror.Config, source *kgo.Client, events replication.Events) (mirror.Replication, error) {
			brokers, err := config.Source()
			if err != nil {
				return nil, err
			}
			return replication.New(replication.Config{
				Mirror: name, Source: brokers, SourceAdmin: source, Destination: g.appender, DestinationAdmin: g.client,
				Fetch: config.FetchOptions(), KeepBatches: !config.MergeBatches, Budget: budget, Events: events, Log: log, Metrics: metrics,
			}), nil
		},
	})
	return func(context.Context) error { g.manager.Close(); return nil }, nil
}

// principal is who the gateway is at the destination, "" where that is not known: with certificates and tokens it is the
// destination that makes it out.
func (g *Gateway) principal() string {
	if g.destination.User == "" {
		return ""
	}
	return "User:" + g.destination.User
}

// self is this gateway as clients reach it; it is asked for only by clients, so the proxy has started.
func (g *Gateway) self() mirror.Member {
	host, port := g.server.AdvertisedBootstrap()
	return mirror.Member{Number: int32(g.cfg.Number), Host: host, Port: port}
}

// startProxy binds the listeners of all known brokers before the first client is let in: a client that comes back after
// a restart goes to the brokers that it knows.
func (g *Gateway) startProxy(ctx context.Context) (stop, error) {
	server, err := proxy.New(g.proxy, proxy.NewMetrics(g.registry), g.log.Named("proxy"))
	if err != nil {
		return nil, err
	}
	g.server = server
	stop := func(ctx context.Context) error {
		// Long polls need not be waited for; their clients ask again elsewhere.
		grace, cancel := context.WithTimeout(ctx, min(10*time.Second, g.cfg.ShutdownTimeout/2))
		defer cancel()
		err := server.Stop(grace)
		g.tunnels.close(ctx)
		return err
	}
	g.handlers, err = handlers.New(handlers.Config{
		Engine: g.manager, Addresses: server, Keys: g.cfg.keys(), BrokerVersions: g.brokers.versions,
		RefuseSecrets: g.secretKey == nil && !g.cfg.AllowClearSecrets,
		Log:           g.log.Named("handlers"), Metrics: handlers.NewMetrics(g.registry),
	})
	if err != nil {
		return stop, fmt.Errorf("configuration: %w", err)
	}
	if err := g.brokers.check(g.handlers.CheckVersions); err != nil {
		return stop, err
	}
	g.brokers.expect = g.tunnels.expect
	if err := g.brokers.advertise(server); err != nil {
		return stop, err
	}
	if err := server.Start(ctx, g.handlers); err != nil {
		return stop, err
	}
	host, _ := server.AdvertisedBootstrap()
	g.tunnels.expect(host)
	return stop, nil
}

// retry does something until it succeeds, ctx ends, or it fails in a way that time does not mend. A failure is logged
// when it is new, and once a minute.
func (g *Gateway) retry(ctx context.Context, waiting string, do func(context.Context) error) error {
	wait, last, logged := 250*time.Millisecond, "", time.Time{}
	var patience patience
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Minute)
		err := do(attempt)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil: // it is no failure that it failed in that moment, too
			return fmt.Errorf("%w (last: %w)", ctx.Err(), err)
		case !patience.has(err):
			return err
		}
		if text := err.Error(); text != last || time.Since(logged) > time.Minute {
			g.log.Warn(waiting, zap.String("destination", strings.Join(g.destination.Bootstrap, ",")), zap.Error(err))
			last, logged = text, time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, 5*time.Second)
	}
}
