package handlers

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/proxy"
)

type versions struct{ min, max int16 }

// versionsOf rewrites the ApiVersions response of a destination with keys.
func versionsOf(t *testing.T, h *Handlers, v int16, resp *kmsg.ApiVersionsResponse, keys map[int16]versions) map[int16]versions {
	resp.Version = v
	resp.ApiKeys = nil
	for key, has := range keys {
		resp.ApiKeys = append(resp.ApiKeys, kmsg.ApiVersionsResponseApiKey{ApiKey: key, MinVersion: has.min, MaxVersion: has.max, UnknownTags: someTags()})
	}
	rewrite := h.entries[keyApiVersions].response(h, h.engine.Topics(), v)
	out, err := rewrite(responseFrame(keyApiVersions, v, resp.AppendTo(nil)))
	require.NoError(t, err)
	got := decodeResponse(t, out, resp)
	seen := make(map[int16]versions)
	for _, k := range got.ApiKeys {
		seen[k.ApiKey] = versions{k.MinVersion, k.MaxVersion}
		if _, ours := keys[k.ApiKey]; ours && v >= 3 && k.ApiKey != KeyCreateMirror {
			require.Equal(t, someTags(), k.UnknownTags)
		}
	}
	got.ApiKeys, resp.ApiKeys = nil, nil
	require.Equal(t, resp, got, "all but the keys stays")
	return seen
}

func TestApiVersionsAreHonest(t *testing.T) {
	h, logs := newStubHandlers(t, someTopics())
	for v := range int16(6) {
		resp := kmsg.NewPtrApiVersionsResponse()
		if resp.ThrottleMillis = 0; v > 0 {
			resp.ThrottleMillis = 9
		}
		if v >= 3 {
			resp.SupportedFeatures = []kmsg.ApiVersionsResponseSupportedFeature{{Name: "metadata.version", MinVersion: 1, MaxVersion: 27}}
			resp.FinalizedFeaturesEpoch = 12
			resp.UnknownTags = someTags()
		}
		seen := versionsOf(t, h, v, resp, map[int16]versions{
			0: {0, 99}, 1: {0, 99}, 3: {0, 9}, 12: {0, 99}, 18: {0, 99}, 60: {0, 1}, 69: {0, 99}, 9999: {3, 7}, 75: {5, 6}, 19: {2, 7}, 32: {1, 99},
		})
		require.Equal(t, versions{0, 13}, seen[0], "no version whose addresses this build cannot rewrite")
		require.Equal(t, versions{4, 18}, seen[1])
		require.Equal(t, versions{0, 9}, seen[3], "no version that the destination does not have")
		require.Equal(t, versions{0, 99}, seen[12], "carries nothing")
		require.Equal(t, versions{0, 5}, seen[18])
		require.Equal(t, versions{0, 1}, seen[60])
		require.Equal(t, versions{0, 1}, seen[69])
		require.Equal(t, versions{3, 7}, seen[9999], "not known")
		require.NotContains(t, seen, int16(75), "no version in common")
		require.NotContains(t, seen, int16(10), "the destination does not have it")
		require.Equal(t, versions{1, 4}, seen[32])
		for key, e := range registry {
			if e.isMirrorRPC() {
				require.Equal(t, versions{0, 0}, seen[key], e.name)
			}
		}
		if max := registry[19].max; max > 7 {
			require.Equal(t, versions{2, 8}, seen[19])
		}
	}
	require.Zero(t, logs.Len())
}

// TestApiVersionsOfOldDestinations: CreateTopics v8 stands on v7.
func TestApiVersionsOfOldDestinations(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	seen := versionsOf(t, h, 3, kmsg.NewPtrApiVersionsResponse(), map[int16]versions{19: {0, 6}})
	require.Equal(t, versions{0, 6}, seen[19])
}

func TestApiVersionsThatTheDestinationClaims(t *testing.T) {
	registerForTest(t, KeyCreateMirror, entry{local: noLocal})
	h, logs := newStubHandlers(t, someTopics())
	for range 3 {
		seen := versionsOf(t, h, 3, kmsg.NewPtrApiVersionsResponse(), map[int16]versions{KeyCreateMirror: {0, 5}, 3: {0, 9}})
		require.Equal(t, versions{0, 0}, seen[KeyCreateMirror], "clients get the gateway's own")
	}
	require.Equal(t, 1, logs.FilterMessage("destination claims an API of the gateway").Len())

	err := h.CheckVersions([]kmsg.ApiVersionsResponseApiKey{{ApiKey: 3, MaxVersion: 99}, {ApiKey: KeyCreateMirror}})
	require.ErrorContains(t, err, "api-keys.CreateMirror")
	require.NoError(t, h.CheckVersions([]kmsg.ApiVersionsResponseApiKey{{ApiKey: 3, MaxVersion: 99}, {ApiKey: 19, MaxVersion: 7}}))

	moved, err := New(Config{Engine: h.engine, Addresses: h.addresses, Keys: KeyTable{"CreateMirror": 207}})
	require.NoError(t, err)
	require.NoError(t, moved.CheckVersions([]kmsg.ApiVersionsResponseApiKey{{ApiKey: KeyCreateMirror}}))
	seen := versionsOf(t, moved, 3, kmsg.NewPtrApiVersionsResponse(), map[int16]versions{KeyCreateMirror: {0, 5}})
	require.Equal(t, versions{0, 5}, seen[KeyCreateMirror])
	require.Equal(t, versions{0, 0}, seen[207])
}

func TestKeyTablesThatCannotBe(t *testing.T) {
	for _, keys := range []KeyTable{{"NoSuch": 200}, {"CreateMirror": 3}, {"CreateMirror": 98}, {"CreateMirror": -1}} {
		_, err := New(Config{Engine: &stubEngine{}, Addresses: stubAddresses{t}, Keys: keys})
		require.Error(t, err, "%v", keys)
	}
	_, err := New(Config{Engine: &stubEngine{}, Addresses: stubAddresses{t}, Keys: KeyTable{"CreateMirror": 98, "ListMirrors": 107}})
	require.NoError(t, err, "a swap is fine")
}

// TestApiVersionsRefusedByTheDestination: error 35 comes in the shape of v0 whatever was asked; nothing is added to it.
func TestApiVersionsRefusedByTheDestination(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = 35
	resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MaxVersion: 3}}
	frame := responseFrame(keyApiVersions, 0, resp.AppendTo(nil))
	rewrite := h.Route(stubClient{1}, header(keyApiVersions, 4)).Rewrite
	out, err := rewrite(bytes.Clone(frame))
	require.NoError(t, err)
	require.Equal(t, frame, out)
}

// TestApiVersionsFromTheFuture: the newest client with this build.
func TestApiVersionsFromTheFuture(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	d := ask(h, keyApiVersions, 42, requestFrame(keyApiVersions, 42, []byte{9, 9, 9}))
	resp := kmsg.NewPtrApiVersionsResponse()
	got := decodeResponse(t, d.Answer, resp)
	require.Equal(t, int16(35), got.ErrorCode)
	require.Equal(t, []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MaxVersion: 5}}, got.ApiKeys)

	h.versions = func(int16) (int16, int16, bool) { return 0, 3, true }
	d = ask(h, keyApiVersions, 42, requestFrame(keyApiVersions, 42, []byte{9, 9, 9}))
	require.Equal(t, int16(3), decodeResponse(t, d.Answer, resp).ApiKeys[0].MaxVersion)
}

func TestApiVersionsToANodeOfTheGateway(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.NodeID, req.ClusterID, req.UnknownTags = 5, 3, kmsg.StringPtr("c"), someTags()
	require.Equal(t, req, forwarded(t, askFor(h, req), req))
	req.NodeID = gatewayNodeBase + 4
	seen := forwarded(t, askFor(h, req), req)
	require.Equal(t, int32(-1), seen.NodeID)
	require.Nil(t, seen.ClusterID)
	require.Equal(t, someTags(), seen.UnknownTags)
}

func TestDamagedApiVersions(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	for v := range int16(6) {
		frame := responseFrame(keyApiVersions, v, destinationSide(newRand(v)).Append(nil, layout.Response(keyApiVersions), v))
		binary.BigEndian.PutUint16(frame[4:], 0)
		rewrite := h.entries[keyApiVersions].response(h, h.engine.Topics(), v)
		for n := range frame {
			_, _ = rewrite(bytes.Clone(frame[:n]))
		}
		_, err := rewrite(frame[:5])
		require.ErrorIs(t, err, errTruncated)
	}
}

// registerForTest registers an entry where none is.
func registerForTest(t *testing.T, key int16, e entry) {
	if _, ok := registry[key]; ok {
		return
	}
	register(key, e)
	t.Cleanup(func() { delete(registry, key) })
}

var _ proxy.Handler = (*Handlers)(nil)
