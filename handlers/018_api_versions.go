package handlers

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// ApiVersions: v0–v5
//
// The destination's answer, less what this build could not rewrite, plus the mirror RPCs and CreateTopics up to v8.
// Nothing else is added, and no version that the destination does not offer. All other bytes stay (features, tags).
//   - any: the response header is v0. A broker that does not know the version answers with error 35 in the shape of v0;
//     for versions that this build does not know the gateway does the same.
//   - v5+: the request names the node that the client believes to reach (KIP-1242). A gateway's own node ID means
//     nothing to a broker and is taken out.
func init() {
	register(keyApiVersions, entry{
		whole:   func(_ *Handlers, _ *mirror.Topics, version int16) bool { return version >= 5 },
		request: (*Handlers).apiVersionsRequest,
		response: func(h *Handlers, _ *mirror.Topics, version int16) proxy.Rewrite {
			return func(frame []byte) ([]byte, error) { return h.rewriteApiVersions(frame, version) }
		},
		anyVersion: true,
	})
}

func (h *Handlers) apiVersionsRequest(r *request) proxy.Decision {
	if r.Version > layout.Request(keyApiVersions).MaxVersion() {
		return proxy.Decision{Answer: h.unsupportedApiVersions(r.CorrelationID)}
	}
	req := kmsg.NewPtrApiVersionsRequest()
	if err := decode(req, r.Version, r.body()); err != nil {
		return undecodable(err)
	}
	if req.NodeID < gatewayNodeBase {
		return forward(r)
	}
	req.NodeID, req.ClusterID = -1, nil // both or none
	return proxy.Decision{Forward: appendRequest(r.frame, r.bodyAt, req)}
}

// unsupportedApiVersions answers a version from the future as brokers do: error 35 in the shape of v0, with the versions
// of ApiVersions alone (KIP-511). The client tries again with one of these.
func (h *Handlers) unsupportedApiVersions(correlationID int32) []byte {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	key := kmsg.NewApiVersionsResponseApiKey()
	key.ApiKey, key.MaxVersion = keyApiVersions, layout.Response(keyApiVersions).MaxVersion()
	if h.versions != nil {
		if _, offered, ok := h.versions(keyApiVersions); ok {
			key.MaxVersion = min(key.MaxVersion, offered)
		}
	}
	resp.ApiKeys = append(resp.ApiKeys, key)
	return encodeResponse(correlationID, resp)
}

// offered is one entry of an ApiVersions response; tags are its tagged fields as they came.
type offered struct {
	key, min, max int16
	tags          []byte
}

func (h *Handlers) rewriteApiVersions(frame []byte, version int16) ([]byte, error) {
	if len(frame) < 6 {
		return nil, errTruncated
	}
	failed := binary.BigEndian.Uint16(frame[4:]) != 0
	if int16(binary.BigEndian.Uint16(frame[4:])) == kerr.UnsupportedVersion.Code {
		version = 0
	}
	compact := layout.Response(keyApiVersions).Flexible.Has(version)
	keys, end, err := readOffered(frame, 6, compact)
	if err != nil {
		return nil, fmt.Errorf("api keys: %w", err)
	}
	keys = h.offer(keys, !failed)
	out := append(make([]byte, 0, len(frame)+128), frame[:6]...)
	out = appendLength(out, len(keys), 4, compact)
	for _, k := range keys {
		for _, n := range [...]int16{k.key, k.min, k.max} {
			out = binary.BigEndian.AppendUint16(out, uint16(n))
		}
		out = append(out, k.tags...)
		if compact && k.tags == nil {
			out = append(out, 0)
		}
	}
	return append(out, frame[end:]...), nil
}

// readOffered reads the API keys that begin at frame[at] and returns where they end.
func readOffered(frame []byte, at int, compact bool) (keys []offered, end int, err error) {
	n := 0
	if compact {
		var v uint32
		if v, at, err = uvarint(frame, at); err != nil {
			return nil, 0, err
		}
		n = int(v) - 1
	} else {
		if len(frame)-at < 4 {
			return nil, 0, errTruncated
		}
		n = int(int32(binary.BigEndian.Uint32(frame[at:])))
		at += 4
	}
	for ; n > 0; n-- {
		if len(frame)-at < 6 {
			return nil, 0, errTruncated
		}
		k := offered{
			key: int16(binary.BigEndian.Uint16(frame[at:])), min: int16(binary.BigEndian.Uint16(frame[at+2:])),
			max: int16(binary.BigEndian.Uint16(frame[at+4:])),
		}
		at += 6
		if compact {
			from := at
			if at, err = skipTags(frame, at); err != nil {
				return nil, 0, err
			}
			k.tags = frame[from:at]
		}
		keys = append(keys, k)
	}
	return keys, at, nil
}

// offer returns the API keys that clients see, in order. complete: the destination's list is not that of an error.
func (h *Handlers) offer(keys []offered, complete bool) []offered {
	out := make([]offered, 0, len(keys)+len(mirrorKeys))
	for _, k := range keys {
		e := h.entries[k.key]
		if e != nil && e.isMirrorRPC() {
			h.claims.log(h.log, e, k)
			continue
		}
		if k = h.limit(e, k); k.min <= k.max {
			out = append(out, k)
		}
	}
	if !complete {
		return out
	}
	for key, e := range h.entries {
		if e.isMirrorRPC() {
			out = append(out, offered{key: key, min: e.min, max: e.max})
		}
	}
	slices.SortFunc(out, func(a, b offered) int { return int(a.key) - int(b.key) })
	return out
}

// limit takes off the versions that this build cannot rewrite, and adds those that it answers itself on top of what the
// destination offers.
func (h *Handlers) limit(e *entry, k offered) offered {
	limit, ok := ceiling(k.key)
	if e == nil || !ok {
		return k
	}
	k.min = max(k.min, e.min)
	own, ok := e.ownFrom(k.key)
	if ok && k.max >= own {
		h.claims.log(h.log, e, k)
	}
	if k.max = min(k.max, limit); ok && k.max == own-1 {
		k.max = e.max
	}
	return k
}

// CheckVersions returns an error if the destination offers an API key or a version that the gateway claims for itself;
// it names the setting that moves a key. keys is the destination's own list.
func (h *Handlers) CheckVersions(keys []kmsg.ApiVersionsResponseApiKey) error {
	for _, k := range keys {
		if e := h.entries[k.ApiKey]; e != nil {
			if own, ok := e.ownFrom(k.ApiKey); ok && k.MaxVersion >= own {
				return claimed(e, k.ApiKey, k.MaxVersion)
			}
		}
	}
	return nil
}

func claimed(e *entry, key, maxVersion int16) error {
	if e.isMirrorRPC() {
		return fmt.Errorf("the destination has API key %d itself, which is the gateway's %s: move it with api-keys.%s", key, e.name, e.name)
	}
	return fmt.Errorf("the destination offers %s up to v%d itself, and the gateway has its own v%d: a newer gateway is needed", e.name, maxVersion, e.max)
}

// claimLog remembers which API keys the destination was seen to claim for itself, so that each is logged once. The
// gateway checks at its start; a destination that is upgraded later is found here, and clients get the gateway's own.
type claimLog struct {
	mu   sync.Mutex
	seen map[int16]bool
}

func (c *claimLog) log(log *zap.Logger, e *entry, k offered) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[k.key] {
		return
	}
	if c.seen == nil {
		c.seen = make(map[int16]bool)
	}
	c.seen[k.key] = true
	log.Error("destination claims an API of the gateway", zap.Error(claimed(e, k.key, k.max)))
}
