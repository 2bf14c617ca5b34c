package mirrormsg

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Every message is what kgo takes it for.
var (
	_ kmsg.TimeoutRequest      = (*CreateMirrorRequest)(nil)
	_ kmsg.SetTimeoutRequest   = (*RemoveTopicsFromMirrorRequest)(nil)
	_ kmsg.ThrottleResponse    = (*DescribeMirrorsResponse)(nil)
	_ kmsg.SetThrottleResponse = (*DescribeMirrorsResponse)(nil)
	_ kmsg.AdminRequest        = (*CreateTopicsRequest)(nil)
	_ kmsg.Request             = (*keyed)(nil)
)

func TestEveryKeyHasItsTypes(t *testing.T) {
	for _, key := range Keys() {
		req := RequestForKey(key)
		require.Equal(t, key, req.Key())
		require.Equal(t, int16(0), req.MaxVersion())
		require.True(t, req.IsFlexible())
		resp := req.ResponseKind()
		require.Equal(t, key, resp.Key())
		require.True(t, resp.IsFlexible())
		require.IsType(t, req, resp.RequestKind())
		require.Equal(t, "*mirrormsg."+Name(key)+"Request", fmt.Sprintf("%T", req))
	}
	require.Nil(t, RequestForKey(94))
}

func TestDefaults(t *testing.T) {
	require.True(t, NewReadMirrorStatesRequest().NeedPartitionStates)
	require.True(t, NewPtrReadMirrorStatesRequest().NeedPartitionStates)
	require.Equal(t, int32(-2147483648), NewDescribeMirrorsResponseMirror().AuthorizedOperations)
	require.Equal(t, int64(-1), NewDescribeMirrorsResponseMirrorTopicPartition().SourceLastStableOffset)
	require.Equal(t, int32(60_000), NewCreateMirrorRequest().TimeoutMillis)
}

func TestNullArrayMeansEmpty(t *testing.T) {
	var req DescribeMirrorsRequest
	require.NoError(t, req.ReadFrom([]byte{0, 0, 0}))
	require.Empty(t, req.MirrorNames)
	require.Equal(t, []byte{1, 0, 0}, req.AppendTo(nil), "null is not written: the KIP's array is not nullable")
}

func TestNullNameIsRefusedWhereTheKIPHasNone(t *testing.T) {
	var req RemoveTopicsFromMirrorRequest
	require.EqualError(t, req.ReadFrom([]byte{0, 1, 0}), "MirrorName is null, which it must not be")
	var names DescribeMirrorsRequest
	require.EqualError(t, names.ReadFrom([]byte{2, 0, 0, 0}), "MirrorNames is null, which it must not be")
}

func TestUnknownTagsBesideKnownOnes(t *testing.T) {
	in := []byte{
		0, 1, // null name, no config
		2,       // two tagged fields
		0, 1, 1, // validateOnly
		7, 2, 0xab, 0xcd,
	}
	var req CreateMirrorRequest
	require.NoError(t, req.ReadFrom(in))
	require.True(t, req.ValidateOnly)
	require.Equal(t, 1, req.UnknownTags.Len())
	clear(in[3:]) // nothing of the input is kept
	require.Equal(t, []byte{0, 1, 2, 0, 1, 1, 7, 2, 0xab, 0xcd}, req.AppendTo(nil))
}

func TestTagOfTheWrongSize(t *testing.T) {
	var req CreateMirrorRequest
	require.EqualError(t, req.ReadFrom([]byte{0, 1, 1, 0, 2, 1, 1}), "tagged field 0: 1 bytes are left over behind the message")
	require.EqualError(t, req.ReadFrom([]byte{0, 1, 1, 0, 0}), "tagged field 0: the message ends too early")
}

// A length that the message cannot hold must not make ReadFrom allocate.
func TestHostileLengths(t *testing.T) {
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x0f}
	for _, key := range append(Keys(), createTopicsKey) {
		for _, at := range []int{0, 1, 2, 4, 6, 22, 24} {
			body := append(bytes.Repeat([]byte{0}, at), huge...)
			body = append(body, make([]byte, 64)...)
			req := RequestForKey(key)
			req.SetVersion(req.MaxVersion())
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_ = req.ReadFrom(body)
			_ = req.ResponseKind().ReadFrom(body)
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), "key %d, length at %d", key, at)
		}
	}
}

func TestCreateTopicsBelowVersion8(t *testing.T) {
	req := createTopicsGolden([16]byte{1})
	for version := range CreateTopicsVersion {
		req.SetVersion(version)
		var plain kmsg.CreateTopicsRequest
		plain.SetVersion(version)
		body := req.AppendTo(nil)
		require.NoError(t, plain.ReadFrom(body))
		require.Equal(t, "orders", plain.Topics[0].Topic)

		read := NewPtrCreateTopicsRequest()
		read.SetVersion(version)
		require.NoError(t, read.ReadFrom(body))
		require.Equal(t, req.TimeoutMillis, read.TimeoutMillis)
		require.Len(t, read.Topics, 2)
		require.Nil(t, read.Topics[0].MirrorInfo)
	}
	req.SetVersion(9)
	require.Error(t, req.ReadFrom(nil))
}

func TestNullableStruct(t *testing.T) {
	var topic CreateTopicsRequestTopic
	body := appendMessage(nil, &topic)
	require.Equal(t, byte(0xff), body[len(body)-2])
	for _, absent := range []byte{0xff, 0x80} { // Kafka takes any negative byte for null
		body[len(body)-2] = absent
		require.NoError(t, readMessage(body, &topic))
		require.Nil(t, topic.MirrorInfo)
	}
}

func TestKgoSendsTheKeys(t *testing.T) {
	for _, tt := range []struct {
		name string
		key  int16
		opts []kgo.Opt
		want string
	}{
		{"as documented", ListMirrorsKey, []kgo.Opt{kgo.MaxVersions(Versions())}, ""},
		{"moved", 5098, []kgo.Opt{kgo.MaxVersions(Versions(5098))}, ""},
		{"without limit", ListMirrorsKey, []kgo.Opt{kgo.MaxVersions(nil)}, ""},
		{"with kgo's own limit", ListMirrorsKey, nil, "request key is unknown"},
		{"not in ApiVersions", ListMirrorsKey + 1000, []kgo.Opt{kgo.MaxVersions(Versions(ListMirrorsKey + 1000))}, "broker is too old"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			listed := tt.key
			if tt.want != "" {
				listed = ListMirrorsKey
			}
			addr := serve(t, listed)
			client, err := kgo.NewClient(append(tt.opts, kgo.SeedBrokers(addr), kgo.RequestRetries(0))...)
			require.NoError(t, err)
			defer client.Close()
			resp, err := client.Request(context.Background(), WithKey(NewPtrListMirrorsRequest(), tt.key))
			if tt.want != "" {
				require.ErrorContains(t, err, tt.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "east", resp.(*ListMirrorsResponse).Mirrors[0].MirrorName)
		})
	}
}

func TestRequestWith(t *testing.T) {
	client, err := kgo.NewClient(kgo.SeedBrokers(serve(t, ListMirrorsKey)), kgo.MaxVersions(Versions()))
	require.NoError(t, err)
	defer client.Close()
	resp, err := NewPtrListMirrorsRequest().RequestWith(context.Background(), client)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(resp.ErrorCode))
	require.Equal(t, int32(6), resp.Mirrors[0].TopicCount)
}

func TestTimeoutOfAKeyedRequest(t *testing.T) {
	require.Equal(t, DefaultTimeoutMillis, WithKey(NewPtrCreateMirrorRequest(), 900).(kmsg.TimeoutRequest).Timeout())
	require.Equal(t, int32(0), WithKey(NewPtrListMirrorsRequest(), 900).(kmsg.TimeoutRequest).Timeout())
}
