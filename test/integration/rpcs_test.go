package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// Every mirror RPC on real clusters: what it answers, and what it refuses with which code.
func TestMirrorRPCs(t *testing.T) {
	topics := []harness.Topic{{Name: "rpc-a", Partitions: 2}, {Name: "rpc-b", Partitions: 1}}
	random := harness.Random(t)
	from, to := source(t), destination(t)
	harness.CreateTopics(t, from, topics...)
	harness.MustFill(t, from, random, 200, topics...)
	harness.CreateTopics(t, to.Bootstrap(), harness.Topic{Name: "rpc-taken", Partitions: 1})
	harness.CreateTopics(t, from, harness.Topic{Name: "rpc-taken", Partitions: 1})
	harness.MustFill(t, to.Bootstrap(), random, 10, harness.Topic{Name: "rpc-taken", Partitions: 1})
	gw := gateway(t, to)
	client := gw.Client(t)

	refused := func(what string, want *kerr.Error, code int16, message *string, contains string) {
		t.Helper()
		if code != want.Code || contains != "" && (message == nil || !strings.Contains(*message, contains)) {
			t.Errorf("%s: %v %s, want %v with %q", what, kerr.ErrorForCode(code), harness.Message(message), want, contains)
		}
	}
	create := func(name *string, config ...string) *mirrormsg.CreateMirrorResponse {
		t.Helper()
		request := mirrormsg.NewPtrCreateMirrorRequest()
		request.MirrorName = name
		for i := 0; i < len(config); i += 2 {
			request.Config = append(request.Config, mirrormsg.CreateMirrorRequestConfig{Name: config[i], Value: &config[i+1]})
		}
		response, err := request.RequestWith(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	name, other, bad := "rpc", "rpc-2", "not a name"
	r := create(nil, "bootstrap.servers", from)
	refused("CreateMirror without a name", kerr.InvalidRequest, r.ErrorCode, r.ErrorMessage, "")
	r = create(&bad, "bootstrap.servers", from)
	refused("CreateMirror with a bad name", kerr.InvalidRequest, r.ErrorCode, r.ErrorMessage, "")
	r = create(&name, "bootstrap.servers", from, "no.such.setting", "1")
	refused("CreateMirror with an unknown setting", kerr.InvalidConfig, r.ErrorCode, r.ErrorMessage, "no.such.setting")
	if r = create(&name, "bootstrap.servers", "127.0.0.1:1"); r.ErrorCode == 0 {
		t.Error("CreateMirror of a source that is not there succeeded")
	}
	if r = create(&name, "bootstrap.servers", to.Bootstrap()); r.ErrorCode == 0 {
		t.Error("CreateMirror of the destination itself succeeded")
	}
	if r = create(&name, "bootstrap.servers", gw.Bootstrap()); r.ErrorCode == 0 {
		t.Error("CreateMirror of the gateway itself succeeded")
	}
	harness.CreateMirror(t, client, name, from)
	r = create(&name, "bootstrap.servers", from)
	refused("CreateMirror of one that exists", kerr.InvalidRequest, r.ErrorCode, r.ErrorMessage, "already exists")
	harness.CreateMirror(t, client, other, from)

	add := func(mirror string, id [16]byte, topics ...string) *mirrormsg.AddTopicsToMirrorResponse {
		t.Helper()
		request := mirrormsg.NewPtrAddTopicsToMirrorRequest()
		for _, topic := range topics {
			request.Topics = append(request.Topics, mirrormsg.AddTopicsToMirrorRequestTopic{TopicID: id, TopicName: topic, MirrorName: &mirror})
		}
		response, err := request.RequestWith(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		return response
	}
	a := add(name, [16]byte{}, "rpc-a", "rpc-missing")
	refused("AddTopics with one that is missing", kerr.UnknownTopicOrPartition, a.ErrorCode, a.ErrorMessage, "rpc-missing")
	a = add(name, [16]byte{1}, "rpc-a")
	refused("AddTopics with another ID", kerr.InconsistentTopicID, a.ErrorCode, a.ErrorMessage, "rpc-a")
	a = add(name, [16]byte{}, "rpc-taken")
	refused("AddTopics onto a topic with records", kerr.TopicAlreadyExists, a.ErrorCode, a.ErrorMessage, "rpc-taken")
	a = add("rpc-unknown", [16]byte{}, "rpc-a")
	refused("AddTopics to an unknown mirror", kerr.InvalidRequest, a.ErrorCode, a.ErrorMessage, "rpc-unknown")
	described, err := harness.Describe(t.Context(), client, name)
	if err != nil || len(described) != 0 {
		t.Errorf("all or nothing: the mirror has topics %v, %v", described, err)
	}
	harness.AddTopics(t, client, name, "rpc-a", "rpc-b")
	harness.AddTopics(t, client, name, "rpc-a") // a no-op
	if a = add(other, [16]byte{}, "rpc-a"); a.ErrorCode == 0 {
		t.Error("AddTopics of a topic of another mirror succeeded")
	}
	harness.WaitMirrored(t, client, name, from, to.Bootstrap(), time.Minute, "rpc-a", "rpc-b")

	t.Run("List", func(t *testing.T) { listMirrors(t, client, from) })
	t.Run("TopicIDs", func(t *testing.T) { topicIDs(t, gw, from) })
	t.Run("ReadStates", func(t *testing.T) { readStates(t, client, 2) })
	t.Run("Coordinator", func(t *testing.T) { mirrorCoordinator(t, gw, name) })

	harness.RemoveTopics(t, client, name, "rpc-a")
	harness.RemoveTopics(t, client, name, "rpc-a") // again: the same result
	readStates(t, client, 8)
	if got := lastMirrored(t, client, name, "rpc-a"); got[0] != 100 || got[1] != 100 {
		t.Errorf("last mirrored offsets %v, want 100 each", got)
	}
	list, err := mirrormsg.NewPtrListMirrorsRequest().RequestWith(t.Context(), client)
	if err != nil || list.Mirrors[0].TopicCount != 1 {
		t.Errorf("ListMirrors counts %d topics of rpc after one was removed, want 1 (%v)", list.Mirrors[0].TopicCount, err)
	}
}

func listMirrors(t *testing.T, client *kgo.Client, from string) {
	response, err := mirrormsg.NewPtrListMirrorsRequest().RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if m := response.Mirrors; len(m) != 2 || m[0].MirrorName != "rpc" || m[0].TopicCount != 2 || m[0].SourceBootstrap != from || m[1].TopicCount != 0 {
		t.Errorf("ListMirrors: %+v", m)
	}
}

// topicIDs: clients of the gateway see the source's topic IDs.
func topicIDs(t *testing.T, gw *harness.Gateway, from string) {
	want, err := harness.Admin(t, from).ListTopics(t.Context(), "rpc-a", "rpc-b")
	if err != nil {
		t.Fatal(err)
	}
	got, err := harness.Admin(t, gw.Bootstrap()).ListTopics(t.Context(), "rpc-a", "rpc-b")
	if err != nil {
		t.Fatal(err)
	}
	for topic := range want {
		if got[topic].ID != want[topic].ID {
			t.Errorf("%s has ID %v at the gateway and %v at the source", topic, got[topic].ID, want[topic].ID)
		}
	}
}

func readStates(t *testing.T, client *kgo.Client, state int8) {
	t.Helper()
	request := mirrormsg.NewPtrReadMirrorStatesRequest()
	request.MirrorName = "rpc"
	response, err := request.RequestWith(t.Context(), client)
	if err != nil || response.ErrorCode != 0 {
		t.Fatalf("ReadMirrorStates: %v %v", err, kerr.ErrorForCode(response.ErrorCode))
	}
	found := 0
	for _, topic := range response.Topics {
		for _, p := range topic.Partitions {
			if topic.Name != "rpc-a" {
				continue
			}
			if found++; p.State != state || p.ErrorCode != 0 {
				t.Errorf("rpc-a/%d has state %d and error %v, want state %d", p.Partition, p.State, kerr.ErrorForCode(p.ErrorCode), state)
			}
		}
	}
	if found != 2 {
		t.Errorf("ReadMirrorStates has %d partitions of rpc-a, want 2", found)
	}
}

// mirrorCoordinator asks in the old and the new form of FindCoordinator.
func mirrorCoordinator(t *testing.T, gw *harness.Gateway, mirror string) {
	client := gw.Client(t)
	for _, version := range []int16{1, 3, 4} {
		request := kmsg.NewPtrFindCoordinatorRequest()
		request.CoordinatorType, request.CoordinatorKey, request.CoordinatorKeys = 3, mirror, []string{mirror}
		raw, err := client.SeedBrokers()[0].Request(t.Context(), capped{request, version})
		if err != nil {
			t.Errorf("FindCoordinator v%d: %v", version, err)
			continue
		}
		response := raw.(*kmsg.FindCoordinatorResponse)
		code, node, host, port := response.ErrorCode, response.NodeID, response.Host, response.Port
		if version >= 4 {
			c := response.Coordinators[0]
			code, node, host, port = c.ErrorCode, c.NodeID, c.Host, c.Port
		}
		if code != 0 || node != 1_000_000_000 || host != "127.0.0.1" || int(port) != gw.Port {
			t.Errorf("FindCoordinator v%d: error %v, node %d at %s:%d", version, kerr.ErrorForCode(code), node, host, port)
		}
	}
}

// capped is a request at no higher a version.
type capped struct {
	*kmsg.FindCoordinatorRequest
	version int16
}

func (c capped) MaxVersion() int16 { return c.version }
