package handlers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

func newTopic(name string, id byte, replicas ...int32) mirrormsg.CreateTopicsRequestTopic {
	topic := mirrormsg.CreateTopicsRequestTopic{}
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 3, 1
	if id > 0 {
		topic.MirrorInfo = &mirrormsg.MirrorInfo{TopicID: mirror.TopicID{id}}
	}
	if len(replicas) > 0 {
		topic.NumPartitions, topic.ReplicationFactor = -1, -1
		topic.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: replicas}}
	}
	return topic
}

// created is a destination that creates topics, with the ID 9, unless errs has an error for them.
func created(errs map[string]int16, names *[]string) func(*kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
	return func(req *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
		resp := kmsg.NewPtrCreateTopicsResponse()
		for i := len(req.Topics) - 1; i >= 0; i-- { // a broker's order is its own
			topic := kmsg.NewCreateTopicsResponseTopic()
			topic.Topic, topic.NumPartitions = req.Topics[i].Topic, req.Topics[i].NumPartitions
			if topic.ErrorCode = errs[topic.Topic]; topic.ErrorCode != 0 {
				topic.ErrorMessage = ptr("so says the broker")
			} else if !req.ValidateOnly {
				topic.TopicID = mirror.TopicID{9}
			}
			resp.Topics = append(resp.Topics, topic)
			*names = append([]string{topic.Topic}, *names...)
		}
		resp.ThrottleMillis = 5
		return resp
	}
}

func TestCreateTopicsWithAnID(t *testing.T) {
	taken := func(ids ...mirror.TopicID) func(*rpcUpstream, *rpcEngine) {
		return func(u *rpcUpstream, _ *rpcEngine) {
			for _, id := range ids {
				u.ids[id] = 0
			}
		}
	}
	for _, tt := range []struct {
		name         string
		topics       []mirrormsg.CreateTopicsRequestTopic
		validateOnly bool
		with         func(*rpcUpstream, *rpcEngine)
		errs         map[string]int16 // of the destination
		codes        []int16
		shown        []byte   // first byte of the IDs in the response
		forwarded    []string // names
		ids          []string // calls of the engine
		message      string   // of the first refused topic
	}{
		{name: "created", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1)}, codes: []int16{0}, shown: []byte{1},
			forwarded: []string{"a"}, ids: []string{"reserve a 1", "confirm a 9"}},
		{name: "null and zero are ordinary", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 0),
			{CreateTopicsRequestTopic: newTopic("b", 0).CreateTopicsRequestTopic, MirrorInfo: &mirrormsg.MirrorInfo{}}},
			codes: []int16{0, 0}, shown: []byte{9, 9}, forwarded: []string{"a", "b"}},
		{name: "ID of a real topic", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1)}, with: taken(mirror.TopicID{1}),
			codes: []int16{36}, shown: []byte{0}, message: "another topic has the topic ID 01"},
		{name: "ID of a topic that the client may not see", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1)},
			with:  func(u *rpcUpstream, _ *rpcEngine) { u.ids[mirror.TopicID{1}] = kerr.TopicAuthorizationFailed.Code },
			codes: []int16{36}, shown: []byte{0}},
		{name: "ID of a mirror topic", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1)}, codes: []int16{36}, shown: []byte{0},
			with: func(_ *rpcUpstream, e *rpcEngine) {
				e.topics = mirror.NewTopics([]mirror.Topic{{Name: "m", Mirror: "east", SourceID: mirror.TopicID{1}, DestinationID: mirror.TopicID{5}}}, nil)
			}},
		{name: "the engine knows better", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1)}, codes: []int16{36}, shown: []byte{0},
			with: func(_ *rpcUpstream, e *rpcEngine) {
				e.reserveErr = func(string, mirror.TopicID) error { return mirror.Refuse(kerr.TopicAlreadyExists, "taken by m") }
			}, ids: []string{"reserve a 1"}, message: "taken by m"},
		{name: "the engine fails", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1)}, codes: []int16{-1}, shown: []byte{0},
			with: func(_ *rpcUpstream, e *rpcEngine) {
				e.reserveErr = func(string, mirror.TopicID) error { return errEngine }
			},
			ids: []string{"reserve a 1"}, message: "log says why"},
		{name: "name exists", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1)}, codes: []int16{36}, shown: []byte{0},
			with: func(u *rpcUpstream, _ *rpcEngine) { u.topicErrors["a"] = 0 }, message: "topic a already exists"},
		{name: "name of a mirror topic", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("m", 1)}, codes: []int16{36}, shown: []byte{0},
			with: func(_ *rpcUpstream, e *rpcEngine) {
				e.topics = mirror.NewTopics([]mirror.Topic{{Name: "m", Mirror: "east", ReadOnly: true}}, nil)
			}, message: "topic m belongs to mirror east"},
		{name: "ID twice in a request", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1), newTopic("b", 1)},
			codes: []int16{0, 36}, shown: []byte{1, 0}, forwarded: []string{"a"}, ids: []string{"reserve a 1", "confirm a 9"}},
		{name: "name twice in a request", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1), newTopic("b", 0), newTopic("a", 0)},
			codes: []int16{42, 0}, shown: []byte{0, 9}, forwarded: []string{"b"}, message: "named twice"},
		{name: "refused and others", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 0), newTopic("b", 1), newTopic("c", 2), newTopic("d", 0)},
			with: taken(mirror.TopicID{1}), codes: []int16{0, 36, 0, 0}, shown: []byte{9, 0, 2, 9},
			forwarded: []string{"a", "c", "d"}, ids: []string{"reserve c 2", "confirm c 9"}},
		{name: "destination refuses", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1)}, errs: map[string]int16{"a": 44},
			codes: []int16{44}, shown: []byte{0}, forwarded: []string{"a"}, ids: []string{"reserve a 1", "release a"}, message: "so says the broker"},
		{name: "destination answers for others only", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1)}, codes: []int16{-1}, shown: []byte{0},
			with: func(u *rpcUpstream, _ *rpcEngine) {
				u.create = func(*kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse { return kmsg.NewPtrCreateTopicsResponse() }
			}, ids: []string{"reserve a 1", "release a"}, message: "did not answer"},
		{name: "ID cannot be kept", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1)}, codes: []int16{-1}, shown: []byte{0},
			with: func(_ *rpcUpstream, e *rpcEngine) { e.confirmErr = errEngine }, forwarded: []string{"a"},
			ids: []string{"reserve a 1", "confirm a 9"}, message: "was created"},
		{name: "only validated", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1), newTopic("b", 2)}, validateOnly: true,
			with: taken(mirror.TopicID{2}), codes: []int16{0, 36}, shown: []byte{0, 0}, forwarded: []string{"a"}},
		{name: "active replicas", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1, 1, 2)},
			with:  func(u *rpcUpstream, _ *rpcEngine) { u.fenced = map[int32]bool{1: false, 2: false} },
			codes: []int16{0}, shown: []byte{1}, forwarded: []string{"a"}, ids: []string{"reserve a 1", "confirm a 9"}},
		{name: "fenced replica", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1, 1, 2), newTopic("b", 0, 2)},
			with:  func(u *rpcUpstream, _ *rpcEngine) { u.fenced = map[int32]bool{1: false, 2: true} },
			codes: []int16{39, 0}, shown: []byte{0, 9}, forwarded: []string{"b"}, message: "partition 0 is assigned to broker 2, which is fenced"},
		{name: "replica that is not there", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1, 3)},
			with:  func(u *rpcUpstream, _ *rpcEngine) { u.fenced = map[int32]bool{1: false} },
			codes: []int16{39}, shown: []byte{0}, message: "broker 3, which is not registered"},
		{name: "re-created topic with a new ID", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 2)}, codes: []int16{0}, shown: []byte{2},
			with: func(_ *rpcUpstream, e *rpcEngine) {
				e.topics = mirror.NewTopics([]mirror.Topic{{Name: "a", SourceID: mirror.TopicID{1}, DestinationID: mirror.TopicID{5}}}, nil)
			}, forwarded: []string{"a"}, ids: []string{"reserve a 2", "confirm a 9"}},
		{name: "another client was faster", topics: []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 2)}, codes: []int16{36}, shown: []byte{0},
			errs: map[string]int16{"a": 36}, forwarded: []string{"a"}, ids: []string{"reserve a 2", "release a"}},
		{name: "no topics", codes: []int16{}, shown: []byte{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var forwarded []string
			up, engine := newUpstream(t), &rpcEngine{}
			up.topicErrors, up.ids, up.create = map[string]int16{}, map[mirror.TopicID]int16{}, created(tt.errs, &forwarded)
			if tt.with != nil {
				tt.with(up, engine)
			}
			h, _ := rpcHandlers(t, engine)
			req := mirrormsg.NewPtrCreateTopicsRequest()
			req.Version, req.Topics, req.ValidateOnly = mirrormsg.CreateTopicsVersion, tt.topics, tt.validateOnly
			resp := send[*kmsg.CreateTopicsResponse](t, h, up, req)

			codes, shown, message := []int16{}, []byte{}, ""
			for _, topic := range resp.Topics {
				codes, shown = append(codes, topic.ErrorCode), append(shown, topic.TopicID[0])
				if message == "" && topic.ErrorMessage != nil {
					message = *topic.ErrorMessage
				}
			}
			require.Equal(t, tt.codes, codes)
			require.Equal(t, tt.shown, shown)
			require.Equal(t, tt.forwarded, forwarded)
			require.Equal(t, tt.ids, engine.ids)
			require.Contains(t, message, tt.message)
			if len(forwarded) > 0 {
				require.Equal(t, int32(5), resp.ThrottleMillis)
			}
		})
	}
}

// The reservation goes when the client's connection does: the destination did not say that the topic is there.
func TestCreateTopicsConnectionLost(t *testing.T) {
	engine, up := &rpcEngine{}, newUpstream(t)
	h, _ := rpcHandlers(t, engine)
	req := mirrormsg.NewPtrCreateTopicsRequest()
	req.Version, req.Topics = mirrormsg.CreateTopicsVersion, []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 1)}
	_, err := sendFrame(t, h, lostAtCreate{up}, req)
	require.ErrorIs(t, err, errEngine)
	require.Equal(t, []string{"reserve a 1", "release a"}, engine.ids)

	engine.ids = nil
	up.lost = errEngine
	_, err = sendFrame(t, h, up, req)
	require.ErrorIs(t, err, errEngine)
	require.Empty(t, engine.ids)
}

// A reservation is settled before the next one for the same name can be made.
func TestCreateTopicsOneAfterTheOther(t *testing.T) {
	engine := &rpcEngine{}
	h, _ := rpcHandlers(t, engine)
	begun, goOn := make(chan struct{}), make(chan struct{})
	create := func(id byte, created func(*kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse) {
		up := newUpstream(t)
		up.create = created
		req := mirrormsg.NewPtrCreateTopicsRequest()
		req.Version, req.Topics = mirrormsg.CreateTopicsVersion, []mirrormsg.CreateTopicsRequestTopic{newTopic("a", id)}
		send[*kmsg.CreateTopicsResponse](t, h, up, req)
	}
	var names []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		create(1, func(req *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
			close(begun)
			<-goOn
			return created(nil, &names)(req)
		})
	}()
	<-begun
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	req := mirrormsg.NewPtrCreateTopicsRequest()
	req.Topics = []mirrormsg.CreateTopicsRequestTopic{newTopic("a", 2)}
	_, err := h.createTopicsWork(ctx, newUpstream(t), req)
	require.ErrorIs(t, err, context.Canceled, "it waits for the first one")
	close(goOn)
	<-done
	create(2, created(map[string]int16{"a": 36}, &names))
	require.Equal(t, []string{"reserve a 1", "confirm a 9", "reserve a 2", "release a"}, engine.ids)
}

func TestCreateTopicsBelow8PassesThrough(t *testing.T) {
	h, _ := rpcHandlers(t, &rpcEngine{})
	for version := int16(2); version < mirrormsg.CreateTopicsVersion; version++ {
		route := h.Route(rpcClient{}, proxy.Header{Key: 19, Version: version})
		require.NoError(t, route.Close)
		require.False(t, route.Whole)
	}
}
