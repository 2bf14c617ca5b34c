// Package handlers decides what happens to each Kafka request that crosses the gateway: one file per API key that is
// answered or rewritten, named NNN_snake_name.go, which registers itself. Whatever has no file and carries neither a
// topic ID nor a broker address streams through untouched.
//
// A handler runs on an event loop and must not block; what needs I/O is a local entry, which runs on a worker.
package handlers

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// entry says what the gateway does to one API key. Either local is set, or any of the others.
type entry struct {
	name string
	// Of a local entry: the versions that it answers. Of another: min is the lowest version that may be offered, and
	// max, if Kafka does not have it, the highest that request answers on top of the destination's.
	min, max int16

	// local answers requests of versions min to max from the gateway. It runs on a worker and may block until ctx
	// ends; body is its own copy. The response's version is set by the caller. An error closes the connection and is
	// logged: return it for bodies that decode refuses, and answer everything else with an error code.
	local func(h *Handlers, ctx context.Context, up proxy.Upstream, version int16, body []byte) (kmsg.Response, error)

	// flexible is the first flexible version of a mirror RPC.
	flexible int16

	// anyVersion: request and response handle versions that no table knows.
	anyVersion bool

	// whole reports whether request must see the whole request; nil: if topic IDs are to be translated.
	whole func(h *Handlers, t *mirror.Topics, version int16) bool
	// opening, if not nil, decides about large requests by their beginning.
	opening func(h *Handlers, c proxy.Client, e *entry, hd proxy.Header) proxy.Opening
	// request decides about a request seen whole. Only called if whole said so.
	request func(h *Handlers, r *request) proxy.Decision
	// response returns how the response is rewritten, nil to stream it; decisions may have their own. nil: topic IDs
	// and addresses.
	response func(h *Handlers, t *mirror.Topics, version int16) proxy.Rewrite
	// stream returns how a response that is too large to be held is rewritten; nil: it is held all the same.
	stream func(h *Handlers, t *mirror.Topics, version int16) proxy.Stream
}

// registry has every entry by its API key, the mirror RPCs by their default ones.
var registry = map[int16]entry{}

// register is called by the init function of each file.
func register(key int16, e entry) {
	if _, ok := registry[key]; ok {
		panic(fmt.Sprintf("handlers: API key %d registered twice", key))
	}
	if e.name == "" {
		e.name = nameOf(key)
	}
	registry[key] = e
}

// nameOf names an API key, also those of the mirror RPCs.
func nameOf(key int16) string {
	for name, k := range mirrorKeys {
		if k == key {
			return name
		}
	}
	return kmsg.NameForKey(key)
}

// Config is what New needs. Engine and Addresses are required.
type Config struct {
	Engine    mirror.Engine
	Addresses proxy.Addresses
	// Keys moves mirror RPCs to other API keys; nil moves none.
	Keys KeyTable
	// BrokerVersions returns the versions that the destination offers of an API key, as last seen; ok is false where
	// it offers none. nil where that is not known.
	BrokerVersions func(key int16) (minVersion, maxVersion int16, ok bool)
	// RefuseSecrets: no mirror may be given a password or a key, as there is nothing to seal it with in the state topic.
	RefuseSecrets bool
	Log           *zap.Logger // nil: no log
	Metrics       *Metrics    // nil: counted for nobody
}

// Handlers implements proxy.Handler. It is safe for concurrent use and keeps nothing of a request.
type Handlers struct {
	engine    mirror.Engine
	addresses proxy.Addresses
	keys      KeyTable
	versions  func(key int16) (minVersion, maxVersion int16, ok bool)
	noSecrets bool // see Config.RefuseSecrets
	log       *zap.Logger
	metrics   *Metrics
	entries   map[int16]*entry
	claims    claimLog
	// creating is held while a topic with a given ID is created, so that its reservation is not replaced meanwhile.
	creating chan struct{}
}

var _ proxy.Handler = (*Handlers)(nil)

// New returns the handlers of a gateway, or an error for a KeyTable that cannot be.
func New(cfg Config) (*Handlers, error) {
	if cfg.Engine == nil || cfg.Addresses == nil {
		return nil, errors.New("handlers: no engine or no addresses")
	}
	if err := cfg.Keys.validate(); err != nil {
		return nil, err
	}
	h := &Handlers{
		engine: cfg.Engine, addresses: cfg.Addresses, keys: cfg.Keys, versions: cfg.BrokerVersions,
		noSecrets: cfg.RefuseSecrets, log: cfg.Log, metrics: cfg.Metrics, entries: make(map[int16]*entry, len(registry)),
		creating: make(chan struct{}, 1),
	}
	if h.log == nil {
		h.log = zap.NewNop()
	}
	if h.metrics == nil {
		h.metrics = NewMetrics(nil)
	}
	for key, e := range registry {
		if _, ok := mirrorKeys[e.name]; ok {
			key = h.keys.key(e.name)
		}
		h.entries[key] = e.complete(key)
	}
	h.addGenericEntries()
	return h, nil
}

// complete adds what an entry did not say: topic IDs and addresses are rewritten by the layout tables.
func (e entry) complete(key int16) *entry {
	generic := rewritten(key)
	if e.whole == nil {
		e.whole, e.request = generic.whole, generic.request
	}
	if e.response == nil {
		e.response = generic.response
	}
	return &e
}

// Route implements proxy.Handler.
func (h *Handlers) Route(c proxy.Client, hd proxy.Header) proxy.Route {
	e := h.entries[hd.Key]
	switch {
	case e == nil:
		return proxy.Route{}
	case e.isLocal(hd.Version):
		return proxy.Route{Whole: true}
	case e.isMirrorRPC() || !e.rewritable(hd.Key, hd.Version):
		return proxy.Route{Close: h.fail(c, e, hd, errVersion(hd))}
	}
	topics := h.engine.Topics()
	var route proxy.Route
	if e.opening != nil {
		route.Opening = e.opening(h, c, e, hd)
	}
	if route.Whole = e.whole != nil && e.whole(h, topics, hd.Version); !route.Whole {
		route.Rewrite = h.rewrite(c, e, topics, hd)
		route.Stream = h.stream(e, topics, hd, route.Rewrite)
	}
	return route
}

// Request implements proxy.Handler.
func (h *Handlers) Request(c proxy.Client, hd proxy.Header, frame []byte) proxy.Decision {
	e := h.entries[hd.Key]
	if e == nil {
		return proxy.Decision{Forward: frame}
	}
	bodyAt, err := requestBodyAt(frame, e.isFlexible(hd))
	if err != nil {
		return proxy.Decision{Close: h.fail(c, e, hd, err)}
	}
	r := &request{Header: hd, client: c, topics: h.engine.Topics(), frame: frame, bodyAt: bodyAt}
	if e.isLocal(hd.Version) {
		return h.answerLocally(e, r)
	}
	d := e.request(h, r)
	if d.Close != nil {
		d.Close = h.fail(c, e, hd, d.Close)
	}
	if d.Forward != nil && d.Rewrite == nil && !d.NoResponse {
		d.Rewrite = h.rewrite(c, e, r.topics, hd)
		d.Stream = h.stream(e, r.topics, hd, d.Rewrite)
	} else if d.Rewrite != nil {
		d.Rewrite = h.logged(c, e, hd, d.Rewrite)
	}
	return d
}

// answerLocally runs a local entry as work. The worker outlives the frame, so it gets a copy of the body.
func (h *Handlers) answerLocally(e *entry, r *request) proxy.Decision {
	hd, client, body := r.Header, r.client, append([]byte(nil), r.body()...)
	h.metrics.local.WithLabelValues(e.name).Inc()
	return proxy.Decision{Work: func(ctx context.Context, up proxy.Upstream) ([]byte, error) {
		resp, err := e.local(h, ctx, up, hd.Version, body)
		if err != nil {
			return nil, h.fail(client, e, hd, err)
		}
		resp.SetVersion(hd.Version)
		return encodeResponse(hd.CorrelationID, resp), nil
	}}
}

func (h *Handlers) rewrite(c proxy.Client, e *entry, t *mirror.Topics, hd proxy.Header) proxy.Rewrite {
	return h.logged(c, e, hd, e.response(h, t, hd.Version))
}

// stream is how a large response is rewritten, if it is to be rewritten at all and there is a way.
func (h *Handlers) stream(e *entry, t *mirror.Topics, hd proxy.Header, rewrite proxy.Rewrite) proxy.Stream {
	if e.stream == nil || rewrite == nil {
		return nil
	}
	return e.stream(h, t, hd.Version)
}

// logged makes rewrite log and count its error.
func (h *Handlers) logged(c proxy.Client, e *entry, hd proxy.Header, rewrite proxy.Rewrite) proxy.Rewrite {
	if rewrite == nil {
		return nil
	}
	return func(frame []byte) ([]byte, error) {
		out, err := rewrite(frame)
		if err != nil {
			return nil, h.fail(c, e, hd, fmt.Errorf("response: %w", err))
		}
		return out, nil
	}
}

// fail logs err, which ends the connection, and returns it with the request named.
func (h *Handlers) fail(c proxy.Client, e *entry, hd proxy.Header, err error) error {
	h.metrics.errors.WithLabelValues(e.name).Inc()
	h.log.Warn("connection closed", zap.String("api", e.name), zap.Int16("version", hd.Version),
		zap.String("client", c.RemoteAddr()), zap.Int32("broker", c.Node()), zap.Error(err))
	return fmt.Errorf("%s v%d: %w", e.name, hd.Version, err)
}

func errVersion(hd proxy.Header) error {
	return fmt.Errorf("version %d of API key %d is not supported by this gateway", hd.Version, hd.Key)
}

// isLocal reports whether version is answered by e.local.
func (e *entry) isLocal(version int16) bool {
	return e.local != nil && version >= e.min && version <= e.max
}

// ownFrom returns the first version of key that the gateway answers and the destination must not have.
func (e *entry) ownFrom(key int16) (version int16, ok bool) {
	m := layout.Response(key)
	switch {
	case e.isMirrorRPC():
		return e.min, true
	case m != nil && e.max > m.MaxVersion():
		return m.MaxVersion() + 1, true
	}
	return 0, false
}

// isMirrorRPC reports whether e is one of the RPCs that Kafka does not have.
func (e *entry) isMirrorRPC() bool { return mirrorKeys[e.name] != 0 }

// isFlexible reports whether the request has a flexible version.
func (e *entry) isFlexible(hd proxy.Header) bool {
	if e.isMirrorRPC() {
		return hd.Version >= e.flexible
	}
	m := layout.Request(hd.Key)
	return m != nil && m.Flexible.Has(hd.Version)
}
