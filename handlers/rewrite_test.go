package handlers

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/handlers/layout/layouttest"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// side makes messages as one side sees them: the destination, or the clients of the gateway. Two generators with the
// same seed make messages that differ only there. Topics 0 and 1 are those of writableTopics; bases are what is added to
// their leader epochs.
func side(rng *rand.Rand, id func(i int) mirror.TopicID, bases [2]int64, host func(node int32) string, port func(node int32) int64) sided {
	node, topic := int32(-1), -1
	base := func() int64 {
		if topic < 0 {
			return 0
		}
		return bases[topic]
	}
	return sided{base, &layouttest.Generator{
		Null: func(f *layout.Field) {
			if f.Mark == layout.TopicName {
				topic = -1
			}
		},
		Rand:    rng,
		NoNull:  false,
		Records: func() []byte { return nil },
		UUID: func(f *layout.Field) ([16]byte, bool) {
			if f.Mark != layout.TopicID {
				return [16]byte{}, false
			}
			i := rng.IntN(6)
			if i == 3 {
				return [16]byte{}, true
			}
			topic = -1
			switch i {
			case 0, 1:
				topic = i
				return id(i), true
			case 2:
				return destinationID(2), true // the same on both sides
			}
			return [16]byte{1, 2, 3}, true
		},
		Int: func(f *layout.Field) (int64, bool) {
			switch f.Mark {
			case layout.NodeID:
				node = int32(rng.IntN(40)) - 1
				if node >= 0 {
					node *= 5
				}
				return int64(node), true
			case layout.LeaderEpoch, layout.EndOfEpoch:
				epoch := int64(rng.IntN(5)) - 1
				if epoch >= 0 {
					epoch += base()
				}
				return epoch, true
			case layout.BrokerPort:
				if node < 0 {
					return -1, true
				}
				return port(node), true
			}
			if f.Name == "ResourceType" {
				return int64(rng.IntN(33)), true // not a mirror
			}
			return 0, false
		},
		String: func(f *layout.Field) (string, bool) {
			switch f.Mark {
			case layout.BrokerHost:
				if node < 0 {
					return "", true
				}
				return host(node), true
			case layout.ControllerHost:
				return "upstream-controller", true
			case layout.TopicName:
				topic = rng.IntN(3) - 1
				return []string{"other", "a", "b"}[topic+1], true
			}
			if f.Name == "Host" {
				return "upstream-listener", true
			}
			return "", false
		},
	}}
}

// sided is a generator of one side's messages.
type sided struct {
	base func() int64 // of the leader epochs of the present topic
	*layouttest.Generator
}

func destinationSide(rng *rand.Rand) sided {
	return side(rng, destinationID, [2]int64{}, func(n int32) string { return fmt.Sprintf("upstream-%d", n) }, func(n int32) int64 { return 30_000 + int64(n) })
}

func clientSide(rng *rand.Rand) sided {
	return side(rng, sourceID, [2]int64{1 << 24, 5 << 24}, gatewayHost, func(n int32) int64 { return 9093 + int64(n) })
}

// eachKafkaVersion runs test for every API that Kafka has, at every version.
func eachKafkaVersion(t *testing.T, test func(t *testing.T, key, version int16)) {
	for key := range layout.Keys {
		for v := layout.Response(key).Versions.From; v < layout.Response(key).Versions.Until; v++ {
			t.Run(fmt.Sprintf("%s/v%d", nameOf(key), v), func(t *testing.T) { test(t, key, v) })
		}
	}
}

// users are the APIs in which hosts are data of users or of clients, which stay.
var users = map[int16]bool{29: true, 31: true, 88: true, 89: true}

// writableTopics are two mirror topics that were stopped.
func writableTopics() *mirror.Topics {
	return mirror.NewTopics([]mirror.Topic{
		{Name: "a", SourceID: sourceID(0), DestinationID: destinationID(0), EpochBase: mirror.EpochBaseOf(1)},
		{Name: "b", SourceID: sourceID(1), DestinationID: destinationID(1), EpochBase: mirror.EpochBaseOf(5)},
	}, []int64{mirrorProducer})
}

// TestResponsesAsClientsSeeThem: every response of every version, random and with fields of versions to come, is byte
// for byte what it was, but for topic IDs, leader epochs and addresses; and no address of the destination is left in it.
func TestResponsesAsClientsSeeThem(t *testing.T) {
	h, logs := newStubHandlers(t, writableTopics())
	eachKafkaVersion(t, func(t *testing.T, key, v int16) {
		m := layout.Response(key)
		for seed := range int16(25) {
			frame := responseFrame(key, v, destinationSide(newRand(key, v, seed)).Append(nil, m, v))
			want := responseFrame(key, v, clientSide(newRand(key, v, seed)).Append(nil, m, v))
			d := ask(h, key, v, requestFrame(key, v, layouttestBody(layout.Request(key), v, seed)))
			require.NoError(t, d.Close)
			if d.Rewrite == nil {
				require.Equal(t, want, frame, "streamed, but not as clients must see it")
				continue
			}
			got, err := d.Rewrite(bytes.Clone(frame))
			require.NoError(t, err)
			if !users[key] {
				require.NotContains(t, string(got), "upstream")
			}
			if key == keyApiVersions || m.Has(v, layout.Listeners, layout.ControllerHost) {
				continue // these have their own tests
			}
			require.Equal(t, want, got)
		}
	})
	require.Zero(t, logs.Len(), "%v", logs.All())
}

// layouttestBody makes a request body without nulls, as clients send them, that is no business of the gateway.
func layouttestBody(m *layout.Message, v, seed int16) []byte {
	g := destinationSide(newRand(m.Key, v, seed, 1))
	g.NoNull = true
	return g.Append(nil, m, v)
}

// TestRequestsAsTheDestinationSeesThem is the same for requests, the other way.
func TestRequestsAsTheDestinationSeesThem(t *testing.T) {
	h, _ := newStubHandlers(t, writableTopics())
	eachKafkaVersion(t, func(t *testing.T, key, v int16) {
		m := layout.Request(key)
		for seed := range int16(25) {
			if key == keyFindCoordinator && v > 0 {
				continue // random keys are of type mirror now and then
			}
			sent, want := clientSide(newRand(key, v, seed)), destinationSide(newRand(key, v, seed))
			frame := requestFrame(key, v, sent.Append(nil, m, v))
			expected := requestFrame(key, v, want.Append(nil, m, v))
			if key == keyApiVersions {
				continue
			}
			d := ask(h, key, v, frame)
			require.NoError(t, d.Close)
			require.Equal(t, expected, d.Forward)
		}
	})
}

// TestNothingIsHeldWithoutMirrors: without mirrors only responses with addresses, or with messages that can quote one, and what the gateway answers are seen.
func TestNothingIsHeldWithoutMirrors(t *testing.T) {
	h, _ := newStubHandlers(t, mirror.NewTopics(nil, nil))
	eachKafkaVersion(t, func(t *testing.T, key, v int16) {
		route := h.Route(stubClient{1}, header(key, v))
		require.NoError(t, route.Close)
		switch key {
		case keyFindCoordinator, keyApiVersions, 32, 33, 44: // type 3, node IDs, resources of type 64
			return
		}
		require.False(t, route.Whole)
		require.Equal(t, layout.Response(key).Has(v, layout.BrokerHost, layout.Listeners, layout.ControllerHost, layout.ErrorText), route.Rewrite != nil)
	})
	require.Nil(t, h.Route(stubClient{1}, header(9999, 3)).Rewrite)
	require.NoError(t, h.Route(stubClient{1}, header(9999, 3)).Close)
}

// TestVersionsThatCannotBeRewritten: a client that does not keep to ApiVersions must not get an address.
func TestVersionsThatCannotBeRewritten(t *testing.T) {
	h, logs := newStubHandlers(t, someTopics())
	for _, key := range []int16{0, 1, 3, 8, 9, 10, 20, 28, 55, 60, 68, 69, 75, 78, 79} {
		require.Error(t, h.Route(stubClient{1}, header(key, layout.Response(key).MaxVersion()+1)).Close, nameOf(key))
		require.Error(t, h.Route(stubClient{1}, header(key, -1)).Close, nameOf(key))
	}
	require.Error(t, h.Route(stubClient{1}, header(keyFetch, 3)).Close)
	require.NotZero(t, logs.FilterMessage("connection closed").Len())
	require.NoError(t, h.Route(stubClient{1}, header(12, 99)).Close, "Heartbeat carries nothing")
}

// TestDamagedFramesEndInErrors: whatever arrives, nothing panics and nothing is invented.
func TestDamagedFramesEndInErrors(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	h.addresses = anyAddress{}
	eachKafkaVersion(t, func(t *testing.T, key, v int16) {
		rng := newRand(key, v, 99)
		request := requestFrame(key, v, layouttestBody(layout.Request(key), v, 3))
		g := destinationSide(rng)
		g.Records = func() []byte { return recordbatch.AppendFiller(nil, 1+rng.IntN(3), true, 5) }
		response := responseFrame(key, v, g.Append(nil, layout.Response(key), v))
		rewrite := ask(h, key, v, bytes.Clone(request)).Rewrite
		for n := range min(len(request), 600) {
			ask(h, key, v, bytes.Clone(request[:n]))
		}
		for range 30 {
			damaged := bytes.Clone(request)
			damaged[8+rng.IntN(len(damaged)-8)] = byte(rng.Uint32())
			ask(h, key, v, damaged)
		}
		if rewrite == nil {
			return
		}
		for n := range min(len(response), 600) {
			out, err := rewrite(bytes.Clone(response[:n]))
			if err == nil && key != 32 && key != keyApiVersions {
				t.Fatalf("%d of %d bytes were rewritten to %d", n, len(response), len(out))
			}
		}
		for range 30 {
			damaged := bytes.Clone(response)
			damaged[rng.IntN(len(damaged))] = byte(rng.Uint32())
			_, _ = rewrite(damaged) // it may have become another good one
		}
		_, err := rewrite(append(bytes.Clone(response), 0))
		if key != 32 && key != keyApiVersions {
			require.ErrorIs(t, err, errTrailing)
		}
	})
}

type anyAddress struct{}

func (anyAddress) Advertise(node int32, _ string, _ int32) (string, int32, error) {
	return gatewayHost(node & 31), 9093, nil
}

// TestUnservableAddress: an address that cannot be rewritten is not let through.
func TestUnservableAddress(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = 9
	broker := kmsg.NewMetadataResponseBroker()
	broker.NodeID, broker.Host, broker.Port = 2000, "upstream", 32_000
	resp.Brokers = append(resp.Brokers, broker)
	rewrite := h.Route(stubClient{1}, header(3, 9)).Rewrite
	_, err := rewrite(responseFrame(3, 9, resp.AppendTo(nil)))
	require.ErrorContains(t, err, "broker-port-count")

	resp.Brokers[0].NodeID = -1 // nobody does this, but it would leak
	out, err := rewrite(responseFrame(3, 9, resp.AppendTo(nil)))
	require.NoError(t, err)
	require.NotContains(t, string(out), "upstream")
}

func TestControllersAreWithheld(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	resp := kmsg.NewPtrDescribeQuorumResponse()
	resp.Version = 2
	node := kmsg.NewDescribeQuorumResponseNode()
	node.NodeID = 3000
	listener := kmsg.NewDescribeQuorumResponseNodeListener()
	listener.Name, listener.Host, listener.Port = "CONTROLLER", "upstream-controller", 9093
	node.Listeners = append(node.Listeners, listener)
	resp.Nodes = append(resp.Nodes, node, node)
	out, err := h.Route(stubClient{1}, header(55, 2)).Rewrite(responseFrame(55, 2, resp.AppendTo(nil)))
	require.NoError(t, err)
	got := decodeResponse(t, out, resp)
	require.Len(t, got.Nodes, 2)
	for _, n := range got.Nodes {
		require.Equal(t, int32(3000), n.NodeID)
		require.Empty(t, n.Listeners)
	}
}

// TestErrorsThatQuoteARequest: where a right on the cluster is missing, brokers quote the request with their own address.
func TestErrorsThatQuoteARequest(t *testing.T) {
	h, _ := newStubHandlers(t, mirror.NewTopics(nil, nil))
	for v := int16(1); v <= 3; v++ {
		resp := kmsg.NewPtrCreateACLsResponse()
		resp.Version = v
		result := kmsg.NewCreateACLsResponseResult()
		result.ErrorCode, result.ErrorMessage = 31, kmsg.StringPtr("Request Request(processor=0, connectionId=upstream:9092-client:1-0-1, "+
			"session=Session@1, listenerName=ListenerName(SASL), buffer=null, envelope=None) needs ALTER permission.")
		other := kmsg.NewCreateACLsResponseResult()
		other.ErrorMessage = kmsg.StringPtr("Request(s) of another kind (see connection)")
		resp.Results = []kmsg.CreateACLsResponseResult{result, other, kmsg.NewCreateACLsResponseResult()}
		if v == 2 {
			resp.Results[0].UnknownTags = someTags()
		}
		out, err := h.Route(stubClient{1}, header(30, v)).Rewrite(responseFrame(30, v, resp.AppendTo(nil)))
		require.NoError(t, err)
		require.NotContains(t, string(out), "upstream")
		resp.Results[0].ErrorMessage = kmsg.StringPtr("Request Request(…) needs ALTER permission.")
		require.Equal(t, resp, decodeResponse(t, out, resp), "all else stays")
	}
}

func TestLeaderOfControllersIsWithheld(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	resp := kmsg.NewPtrUpdateRaftVoterResponse()
	resp.UnknownTags = someTags()
	resp.CurrentLeader.LeaderID, resp.CurrentLeader.LeaderEpoch = 3000, 7
	resp.CurrentLeader.Host, resp.CurrentLeader.Port = "upstream-controller", 9093
	out, err := h.Route(stubClient{1}, header(82, 0)).Rewrite(responseFrame(82, 0, resp.AppendTo(nil)))
	require.NoError(t, err)
	want := *resp
	want.CurrentLeader.Host, want.CurrentLeader.Port = "", 0
	require.Equal(t, &want, decodeResponse(t, out, resp))
}

// fuzzTopics are mirror topics with all that can be translated.
func fuzzTopics() *mirror.Topics {
	return mirror.NewTopics([]mirror.Topic{
		{Name: "held", SourceID: sourceID(0), DestinationID: destinationID(0), ReadOnly: true, EpochBase: mirror.EpochBaseOf(1)},
		{Name: "done", SourceID: sourceID(1), DestinationID: destinationID(1), EpochBase: mirror.EpochBaseOf(2)},
	}, []int64{mirrorProducer})
}

func FuzzResponses(f *testing.F) {
	for _, key := range []int16{0, 1, 3, 10, 18, 32, 55, 60, 68, 78} {
		v := layout.Response(key).MaxVersion()
		f.Add(key, v, destinationSide(newRand(key, v)).Append(nil, layout.Response(key), v))
	}
	h, err := New(Config{Engine: &stubEngine{topics: fuzzTopics()}, Addresses: anyAddress{}})
	require.NoError(f, err)
	f.Fuzz(func(_ *testing.T, key, v int16, body []byte) {
		if rewrite := h.Route(stubClient{1}, header(key, v)).Rewrite; rewrite != nil {
			_, _ = rewrite(append([]byte{0, 0, 0, 77, 0}, body...))
		}
	})
}

func FuzzRequests(f *testing.F) {
	for key := range layout.Keys {
		v := layout.Request(key).MaxVersion()
		f.Add(key, v, layouttestBody(layout.Request(key), v, 1))
	}
	h, err := New(Config{Engine: &stubEngine{topics: fuzzTopics()}, Addresses: anyAddress{}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, key, v int16, body []byte) {
		d := ask(h, key, v, append([]byte{0, 0, 0, 0, 0, 0, 0, 77, 0, 0, 0}, body...))
		if set := btoi(d.Forward != nil) + btoi(d.Answer != nil) + btoi(d.Work != nil) + btoi(d.Close != nil); set != 1 {
			t.Fatalf("decision with %d outcomes: %+v", set, d)
		}
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func BenchmarkMetadata(b *testing.B) {
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = 13
	broker := kmsg.NewMetadataResponseBroker()
	broker.NodeID, broker.Host, broker.Port = 1, "upstream", 30_001
	resp.Brokers = append(resp.Brokers, broker)
	for i := range 50_000 {
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.TopicID = kmsg.StringPtr(fmt.Sprintf("topic-%d", i)), destinationID(i)
		partition := kmsg.NewMetadataResponseTopicPartition()
		partition.Replicas, partition.ISR = []int32{1, 2, 3}, []int32{1, 2, 3}
		topic.Partitions = append(topic.Partitions, partition)
		resp.Topics = append(resp.Topics, topic)
	}
	frame := responseFrame(3, 13, resp.AppendTo(nil))
	h, err := New(Config{Engine: &stubEngine{topics: someTopics()}, Addresses: anyAddress{}})
	require.NoError(b, err)
	rewrite := h.rewriteResponse(3, h.engine.Topics(), 13)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rewrite(frame); err != nil {
			b.Fatal(err)
		}
	}
}
