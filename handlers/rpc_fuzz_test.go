package handlers

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// willing is an engine that says yes to everything.
func willing() *rpcEngine {
	results := func(refs []mirror.TopicRef) ([]mirror.TopicResult, error) {
		var results []mirror.TopicResult
		for _, ref := range refs {
			results = append(results, mirror.TopicResult{Name: ref.Name, ID: ref.ID})
		}
		return results, nil
	}
	return &rpcEngine{
		createMirror: func(string, map[string]*string, bool) error { return nil },
		addTopics:    results,
		removeTopics: func(_ string, refs []mirror.TopicRef) ([]mirror.TopicResult, error) { return results(refs) },
		pauseTopics:  func(_ string, refs []mirror.TopicRef) ([]mirror.TopicResult, error) { return results(refs) },
		resumeTopics: func(_ string, refs []mirror.TopicRef) ([]mirror.TopicResult, error) { return results(refs) },
		deleteMirror: func(string) error { return nil },
		mirrors:      func() ([]mirror.Summary, error) { return []mirror.Summary{{Name: "east"}}, nil },
		describe:     describeEast,
		writeStates: func(_ string, updates []mirror.StateUpdate, _ []string) ([]*mirror.Error, error) {
			return make([]*mirror.Error, len(updates)), nil
		},
	}
}

func rpcRequests() []kmsg.Request {
	create := mirrormsg.NewPtrCreateMirrorRequest()
	create.MirrorName, create.Config = ptr("east"), []mirrormsg.CreateMirrorRequestConfig{{Name: "bootstrap.servers", Value: ptr("kafka:9092")}}
	topics := mirrormsg.NewPtrCreateTopicsRequest()
	topics.Version, topics.Topics = 8, []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1, 1), newTopic("b", 0)}
	return []kmsg.Request{
		topics,
		&mirrormsg.AddTopicsToMirrorRequest{Topics: []mirrormsg.AddTopicsToMirrorRequestTopic{{TopicName: "a", MirrorName: ptr("east")}}},
		&mirrormsg.RemoveTopicsFromMirrorRequest{MirrorName: "east", Topics: []mirrormsg.RemoveTopicsFromMirrorRequestTopic{{TopicName: "a"}}},
		&mirrormsg.LastMirroredOffsetsRequest{MirrorName: "east", Topics: []mirrormsg.TopicPartitions{asked("a", 0)}},
		&mirrormsg.ListMirrorsRequest{},
		&mirrormsg.DescribeMirrorsRequest{MirrorNames: []string{"east"}},
		&mirrormsg.ReadMirrorStatesRequest{MirrorName: "east", Topics: []mirrormsg.TopicPartitions{asked("a", 0)}},
		&mirrormsg.WriteMirrorStatesRequest{MirrorName: "east", TopicsUpdated: []mirrormsg.WriteMirrorStatesRequestTopic{
			{Name: "a", Partitions: []mirrormsg.WriteMirrorStatesRequestTopicPartition{{Partition: 1, State: 2}}}}},
		create,
	}
}

// A cut-off request ends the connection, with a log line; it never reaches the engine, and never panics.
func TestTruncatedRequests(t *testing.T) {
	for _, req := range rpcRequests() {
		whole := kmsg.NewRequestFormatter().AppendRequest(nil, req, 42)[4:]
		for n := 10; n < len(whole); n++ {
			h, logs := rpcHandlers(t, &rpcEngine{})
			frame := append([]byte(nil), whole[:n]...)
			_, err := sendRaw(t, h, newUpstream(t), req.Key(), req.GetVersion(), frame)
			require.Error(t, err, "key %d, %d of %d bytes", req.Key(), n, len(whole))
			require.Equal(t, 1, logs.FilterMessage("connection closed").Len())
		}
	}
}

func FuzzRPCs(f *testing.F) {
	for _, req := range rpcRequests() {
		f.Add(req.Key(), kmsg.NewRequestFormatter().AppendRequest(nil, req, 42)[4:])
	}
	f.Fuzz(func(t *testing.T, key int16, frame []byte) {
		if len(frame) < 8 || mirrormsg.RequestForKey(key) == nil {
			return
		}
		h, _ := rpcHandlers(t, willing())
		up := newUpstream(t)
		up.create = created(nil, new([]string))
		version := int16(0)
		if key == keyCreateTopics {
			version = mirrormsg.CreateTopicsVersion
		}
		hd := proxy.Header{Key: key, Version: version, CorrelationID: 42, Size: int32(len(frame))}
		if !h.Route(rpcClient{}, hd).Whole {
			return // an RPC that this gateway does not have yet
		}
		decision := h.Request(rpcClient{}, hd, frame)
		if decision.Work == nil {
			require.Error(t, decision.Close)
			return
		}
		out, err := decision.Work(context.Background(), up)
		if err != nil {
			return
		}
		require.Equal(t, uint32(42), binary.BigEndian.Uint32(out))
		resp := mirrormsg.RequestForKey(key).ResponseKind()
		resp.SetVersion(version)
		require.NoError(t, resp.ReadFrom(out[5:]))
	})
}
