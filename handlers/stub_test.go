package handlers

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// stubEngine has topics and coordinators and nothing else.
type stubEngine struct {
	mirror.Engine
	topics *mirror.Topics
}

func (e *stubEngine) Topics() *mirror.Topics { return e.topics }
func (e *stubEngine) Self() mirror.Member    { return mirror.Member{Number: 4, Host: "gw", Port: 9092} }

func (e *stubEngine) Coordinator(_ context.Context, key string) (mirror.Member, error) {
	if strings.HasPrefix(key, "bad") {
		return mirror.Member{}, mirror.Refuse(kerr.InvalidRequest, "no mirror %s", key)
	}
	if strings.HasPrefix(key, "broken") {
		return mirror.Member{}, fmt.Errorf("secret of %s", key)
	}
	return mirror.Member{Number: 7, Host: "gw-other", Port: 9192}, nil
}

// stubAddresses gives every broker an address of the gateway. Nodes above 1000 have none.
type stubAddresses struct{ t *testing.T }

func (a stubAddresses) Advertise(node int32, host string, port int32) (string, int32, error) {
	if !strings.HasPrefix(host, "upstream") || port != 30_000+node {
		a.t.Errorf("broker %d advertised as %s:%d", node, host, port)
	}
	if node > 1000 {
		return "", 0, fmt.Errorf("node %d is beyond broker-port-count", node)
	}
	return gatewayHost(node), 9093 + node, nil
}

// gatewayHost has another length for each node, so that varints grow and shrink.
func gatewayHost(node int32) string { return "gw" + strings.Repeat("-", int(node)) }

type stubClient struct{ node int32 }

func (stubClient) ID() uint64         { return 1 }
func (stubClient) RemoteAddr() string { return "client:1" }
func (c stubClient) Node() int32      { return c.node }

func sourceID(i int) (id mirror.TopicID) { copy(id[:], fmt.Sprintf("source-%09d", i)); return id }
func destinationID(i int) (id mirror.TopicID) {
	copy(id[:], fmt.Sprintf("destinat-%07d", i))
	return id
}

const mirrorProducer = 4711

// someTopics are three mirror topics: one read-only, one stopped, one read-only from a source without topic IDs.
func someTopics() *mirror.Topics {
	return mirror.NewTopics([]mirror.Topic{
		{Name: "held", Mirror: "east", SourceID: sourceID(0), DestinationID: destinationID(0), State: mirror.Mirroring, ReadOnly: true},
		{Name: "done", Mirror: "east", SourceID: sourceID(1), DestinationID: destinationID(1), State: mirror.Stopped},
		{Name: "old", Mirror: "east", DestinationID: destinationID(2), State: mirror.Failed, ReadOnly: true},
	}, []int64{mirrorProducer})
}

func newStubHandlers(t *testing.T, topics *mirror.Topics) (*Handlers, *observer.ObservedLogs) {
	core, logs := observer.New(zap.DebugLevel)
	h, err := New(Config{Engine: &stubEngine{topics: topics}, Addresses: stubAddresses{t}, Log: zap.New(core)})
	require.NoError(t, err)
	return h, logs
}

// requestFrame puts a request header before a body.
func requestFrame(key, version int16, body []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, 77)
	b = append(b, 0, 3, 'c', 'l', 'i')
	if layout.Request(key).Flexible.Has(version) {
		b = append(b, 1, 9, 2, 'h', 'i') // an unknown tagged field
	}
	return append(b, body...)
}

// responseFrame puts a response header before a body.
func responseFrame(key, version int16, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, 77)
	if layout.Response(key).Flexible.Has(version) && key != keyApiVersions {
		b = append(b, 1, 9, 2, 'h', 'i')
	}
	return append(b, body...)
}

// ask sends a frame through Route and, where that asks for it, Request.
func ask(h *Handlers, key, version int16, frame []byte) proxy.Decision {
	hd := proxy.Header{Key: key, Version: version, CorrelationID: 77, Size: int32(len(frame))}
	route := h.Route(stubClient{1}, hd)
	if route.Whole {
		return h.Request(stubClient{1}, hd, frame)
	}
	if route.Close != nil {
		return proxy.Decision{Close: route.Close}
	}
	return proxy.Decision{Forward: frame, Rewrite: route.Rewrite}
}

// askFor sends a kmsg request at its version.
func askFor(h *Handlers, req kmsg.Request) proxy.Decision {
	return ask(h, req.Key(), req.GetVersion(), requestFrame(req.Key(), req.GetVersion(), req.AppendTo(nil)))
}

// forwarded decodes the request that d sends on.
func forwarded[R kmsg.Request](t *testing.T, d proxy.Decision, like R) R {
	require.NoError(t, d.Close)
	require.NotNil(t, d.Forward)
	at, err := requestBodyAt(d.Forward, like.IsFlexible())
	require.NoError(t, err)
	require.Equal(t, requestFrame(like.Key(), like.GetVersion(), nil), d.Forward[:at], "header")
	out := kmsg.RequestForKey(like.Key())
	out.SetVersion(like.GetVersion())
	require.NoError(t, out.ReadFrom(d.Forward[at:]))
	return out.(R)
}

// decodeResponse decodes a whole response frame.
func decodeResponse[R kmsg.Response](t *testing.T, frame []byte, like R) R {
	require.Equal(t, uint32(77), binary.BigEndian.Uint32(frame))
	at, err := responseBodyAt(frame, like.Key(), like.IsFlexible())
	require.NoError(t, err)
	out := kmsg.ResponseForKey(like.Key())
	out.SetVersion(like.GetVersion())
	require.NoError(t, out.ReadFrom(frame[at:]))
	return out.(R)
}

func header(key, version int16) proxy.Header {
	return proxy.Header{Key: key, Version: version, CorrelationID: 77}
}

func newRand(seeds ...int16) *rand.Rand {
	var a, b uint64
	for _, s := range seeds {
		a, b = a*65537+uint64(uint16(s)), a
	}
	return rand.New(rand.NewPCG(a, b))
}
