package handlers

import (
	"fmt"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// marks says what one version of an API carries.
type marks struct {
	requestIDs, responseIDs, requestEpochs, responseEpochs, responseRecords, addresses, texts bool
}

func (m marks) any() bool { return m != marks{} }

// marksByVersion has the marks of every API by version, for Route, which asks at every request.
var marksByVersion = func() map[int16][]marks {
	all := make(map[int16][]marks)
	for key := range layout.Keys {
		req, resp := layout.Request(key), layout.Response(key)
		for v := range resp.MaxVersion() + 1 {
			all[key] = append(all[key], marks{
				requestIDs:      req.Has(v, layout.TopicID),
				responseIDs:     resp.Has(v, layout.TopicID),
				requestEpochs:   req.Has(v, layout.LeaderEpoch, layout.EndOfEpoch),
				responseEpochs:  resp.Has(v, layout.LeaderEpoch),
				responseRecords: resp.Has(v, layout.RecordData),
				addresses:       resp.Has(v, layout.BrokerHost, layout.Listeners, layout.ControllerHost),
				texts:           resp.Has(v, layout.ErrorText),
			})
		}
	}
	return all
}()

// marksOf returns what version of key carries; nothing if the tables do not know it.
func marksOf(key, version int16) marks {
	if all := marksByVersion[key]; version >= 0 && int(version) < len(all) {
		return all[version]
	}
	return marks{}
}

// ceiling returns the highest version of key that may be offered, and whether there is one at all: APIs that carry
// nothing to rewrite may be of any version, and so may those that the tables do not know.
func ceiling(key int16) (maxVersion int16, ok bool) {
	if _, registered := registry[key]; !registered {
		carries := false
		for _, m := range marksByVersion[key] {
			carries = carries || m.any()
		}
		if !carries {
			return 0, false
		}
	}
	m := layout.Response(key)
	if m == nil {
		return 0, false
	}
	return m.MaxVersion(), true
}

// rewritten is the entry of an API of which only topic IDs, leader epochs and addresses matter.
func rewritten(key int16) entry {
	return entry{
		name: nameOf(key),
		whole: func(_ *Handlers, t *mirror.Topics, version int16) bool {
			return translates(t, marksOf(key, version))
		},
		request: func(_ *Handlers, r *request) proxy.Decision { return forward(r) },
		response: func(h *Handlers, t *mirror.Topics, version int16) proxy.Rewrite {
			return h.rewriteResponse(key, t, version)
		},
	}
}

// translates reports whether something in requests that carry has must be translated for the destination.
func translates(t *mirror.Topics, has marks) bool {
	return has.requestIDs && t.TranslatesIDs() || has.requestEpochs && t.ShiftsEpochs()
}

// forward sends a request on with the destination's topic IDs and leader epochs.
func forward(r *request) proxy.Decision {
	if err := translateRequest(r); err != nil {
		return proxy.Decision{Close: fmt.Errorf("undecodable body: %w", err)}
	}
	return proxy.Decision{Forward: r.frame}
}

// addGenericEntries adds an entry for every API without one that carries topic IDs or addresses.
func (h *Handlers) addGenericEntries() {
	for key := range layout.Keys {
		if _, ok := h.entries[key]; ok {
			continue
		}
		if _, ok := ceiling(key); ok {
			e := rewritten(key)
			h.entries[key] = &e
		}
	}
}

// rewritable reports whether this build can rewrite version of key. Clients learn the limits from ApiVersions; one that
// does not keep to them must not see what could not be rewritten.
func (e *entry) rewritable(key, version int16) bool {
	if e.anyVersion {
		return version >= 0
	}
	limit, ok := ceiling(key)
	return version >= e.min && (!ok || version <= max(limit, e.max))
}
