package handlers

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

func noLocal(*Handlers, context.Context, proxy.Upstream, int16, []byte) (kmsg.Response, error) {
	return nil, fmt.Errorf("not called")
}

func TestFindCoordinatorOfMirrors(t *testing.T) {
	h, logs := newStubHandlers(t, someTopics())
	for v := int16(1); v <= 6; v++ {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorType = v, 3
		keys := []string{"east", "bad", "broken"}
		if v < 4 {
			keys = keys[:1]
			req.CoordinatorKey = "east"
		} else {
			req.CoordinatorKeys = keys
		}
		d := askFor(h, req)
		require.NotNil(t, d.Work)
		up := newUpstream(t)
		frame, err := d.Work(t.Context(), up)
		require.NoError(t, err)
		up.cluster = allOperations &^ (1 << kmsg.ACLOperationDescribe)
		refused, err := d.Work(t.Context(), up)
		require.NoError(t, err)
		require.NotContains(t, string(refused), "gw-other")
		if got := decodeResponse(t, refused, req.ResponseKind().(*kmsg.FindCoordinatorResponse)); v < 4 {
			require.Equal(t, kerr.ClusterAuthorizationFailed.Code, got.ErrorCode)
		} else {
			for _, c := range got.Coordinators {
				require.Equal(t, kerr.ClusterAuthorizationFailed.Code, c.ErrorCode)
			}
		}
		got := decodeResponse(t, frame, req.ResponseKind().(*kmsg.FindCoordinatorResponse))
		if v < 4 {
			require.Equal(t, []any{int16(0), int32(1_000_000_007), "gw-other", int32(9192)}, []any{got.ErrorCode, got.NodeID, got.Host, got.Port})
			continue
		}
		require.Len(t, got.Coordinators, len(keys))
		for i, c := range got.Coordinators {
			require.Equal(t, keys[i], c.Key)
		}
		require.Equal(t, int32(1_000_000_007), got.Coordinators[0].NodeID)
		require.Equal(t, int16(42), got.Coordinators[1].ErrorCode)
		require.Equal(t, "no mirror bad", *got.Coordinators[1].ErrorMessage)
		require.Equal(t, int32(-1), got.Coordinators[1].NodeID)
		require.Equal(t, int16(-1), got.Coordinators[2].ErrorCode)
		require.NotContains(t, *got.Coordinators[2].ErrorMessage, "secret")
	}
	require.Equal(t, 3, logs.FilterMessage("coordinator of a mirror").Len())
}

func TestFindCoordinatorOfGroups(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	for v := range int16(7) {
		for _, typ := range []int8{0, 1, 2, 4, -1} {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.Version, req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = v, typ, "g", []string{"g", "h", "i"}
			d := askFor(h, req)
			require.Equal(t, requestFrame(10, v, req.AppendTo(nil)), d.Forward)
			resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
			resp.NodeID, resp.Host, resp.Port = 7, "upstream-7", 30_007
			resp.Coordinators = []kmsg.FindCoordinatorResponseCoordinator{
				{Key: "g", NodeID: 7, Host: "upstream-7", Port: 30_007}, {Key: "h", NodeID: -1, Port: -1, ErrorCode: 15}, {Key: "i", NodeID: 0, Host: "upstream", Port: 30_000},
			}
			out, err := d.Rewrite(responseFrame(10, v, resp.AppendTo(nil)))
			require.NoError(t, err)
			got := decodeResponse(t, out, resp)
			if v < 4 {
				require.Equal(t, []any{int32(7), gatewayHost(7), int32(9100)}, []any{got.NodeID, got.Host, got.Port})
				continue
			}
			require.Equal(t, []kmsg.FindCoordinatorResponseCoordinator{
				{Key: "g", NodeID: 7, Host: gatewayHost(7), Port: 9100}, {Key: "h", NodeID: -1, Port: -1, ErrorCode: 15}, {Key: "i", NodeID: 0, Host: gatewayHost(0), Port: 9093},
			}, got.Coordinators)
		}
	}
}

// TestFindCoordinatorWithoutACoordinator: what is not known stays not known, at every version.
func TestFindCoordinatorWithoutACoordinator(t *testing.T) {
	h, _ := newStubHandlers(t, mirror.NewTopics(nil, nil))
	for v := range int16(4) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version = v
		resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
		resp.NodeID, resp.Port, resp.ErrorCode = -1, -1, 15
		frame := responseFrame(10, v, resp.AppendTo(nil))
		out, err := askFor(h, req).Rewrite(frame)
		require.NoError(t, err)
		require.Equal(t, frame, out)
	}
}
