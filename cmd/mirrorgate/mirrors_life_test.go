package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// describedAs answers DescribeMirrors, and leaves the rest to answer.
func describedAs(topics map[string][]string, answer func(kmsg.Request) kmsg.Response) func(kmsg.Request) kmsg.Response {
	return func(req kmsg.Request) kmsg.Response {
		if _, ok := req.(*mirrormsg.DescribeMirrorsRequest); ok {
			return &mirrormsg.DescribeMirrorsResponse{Mirrors: []mirrormsg.DescribeMirrorsResponseMirror{mirrorOf(topics)}}
		}
		return answer(req)
	}
}

func TestPauseAndResume(t *testing.T) {
	topics := map[string][]string{"orders": {"MIRRORING 3", "FAILED -1"}, "payments": {"FAILED -1"}, "audit": {"STOPPED 0"}}
	s := startStub(t, describedAs(topics, func(req kmsg.Request) kmsg.Response {
		switch req := req.(type) {
		case *mirrormsg.PauseMirrorTopicsRequest:
			resp := &mirrormsg.PauseMirrorTopicsResponse{}
			for _, topic := range req.Topics {
				resp.Topics = append(resp.Topics, mirrormsg.MirrorTopicResult{Name: topic.TopicName})
			}
			return resp
		case *mirrormsg.ResumeMirrorTopicsRequest:
			return &mirrormsg.ResumeMirrorTopicsResponse{ErrorCode: 42, ErrorMessage: text("audit: it is STOPPED"), Topics: []mirrormsg.MirrorTopicResult{
				{Name: "orders"}, {Name: "audit", ErrorCode: 42, ErrorMessage: text("it is STOPPED")}}}
		}
		return nil
	}))
	require.Equal(t, result{stdout: "Paused in mirror east: orders.\n"}, s.mirrors(t, "pause", "--mirror", "east", "--all-topics"))
	require.Equal(t, []mirrormsg.MirrorTopic{{TopicName: "orders"}}, s.requests()[1].(*mirrormsg.PauseMirrorTopicsRequest).Topics)
	got := s.mirrors(t, "resume", "--mirror", "east", "--topics", "orders,audit")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "resuming topics of mirror east:\n  audit: INVALID_REQUEST: it is STOPPED")
	requireJSON(t, `{"mirror": "east", "topics": [{"name": "payments"}]}`, s.mirrors(t, "pause", "--mirror", "east", "--topics", "payments", "--json").stdout)
	s.mirrors(t, "resume", "--mirror", "east", "--all-topics")
	asked := s.requests()
	require.Equal(t, []mirrormsg.MirrorTopic{{TopicName: "orders"}, {TopicName: "payments"}}, asked[len(asked)-1].(*mirrormsg.ResumeMirrorTopicsRequest).Topics)
}

func TestDelete(t *testing.T) {
	s := startStub(t, func(kmsg.Request) kmsg.Response { return &mirrormsg.DeleteMirrorResponse{} })
	require.Equal(t, result{stdout: "Deleted mirror east.\n"}, s.mirrors(t, "delete", "--mirror", "east"))
	s.set(func(kmsg.Request) kmsg.Response {
		return &mirrormsg.DeleteMirrorResponse{ErrorCode: 42, ErrorMessage: text("2 topics that are not STOPPED")}
	})
	got := s.mirrors(t, "delete", "--mirror", "east", "--json")
	require.Equal(t, exitFailure, got.code)
	requireJSON(t, `{"mirror": "east", "error": {"code": 42, "name": "INVALID_REQUEST", "message": "2 topics that are not STOPPED"}}`, got.stdout)
}

func TestAlter(t *testing.T) {
	code := int16(0)
	s := startStub(t, func(req kmsg.Request) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
		resp.Resources = []kmsg.IncrementalAlterConfigsResponseResource{{ResourceType: 64, ResourceName: "east", ErrorCode: code, ErrorMessage: text("no such key")}}
		return resp
	})
	file := writeFile(t, "sasl.jaas.config=from-file\nclient.id=from-file\n")
	got := s.mirrors(t, "alter", "--mirror", "east", "--mirror-config-file", file, "--mirror-config", "client.id=a=b",
		"--append", "mirror.topics.include=x", "--append", "mirror.topics.include=y", "--subtract", "mirror.groups.exclude=g", "--delete-config", "replication.factor", "--validate-only")
	require.Equal(t, result{stdout: "Mirror east could be altered.\n"}, got)
	req := s.requests()[0].(*kmsg.IncrementalAlterConfigsRequest)
	require.True(t, req.ValidateOnly)
	require.Equal(t, kmsg.ConfigResourceType(64), req.Resources[0].ResourceType)
	var changes []string
	for _, c := range req.Resources[0].Configs {
		value := "-"
		if c.Value != nil {
			value = *c.Value
		}
		changes = append(changes, c.Op.String()+" "+c.Name+" "+value)
	}
	require.Equal(t, []string{
		"SET client.id a=b", "SUBTRACT mirror.groups.exclude g", "APPEND mirror.topics.include x,y", "DELETE replication.factor -",
		"SET sasl.jaas.config from-file",
	}, changes)

	code = 40
	got = s.mirrors(t, "alter", "--mirror", "east", "--mirror-config", "x=secret")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "altering mirror east: INVALID_CONFIG: no such key")
	require.NotContains(t, got.stderr, "secret")
}

func TestDescribeConfigAndSkips(t *testing.T) {
	described := mirrorOf(map[string][]string{"audit": {"MIRRORING 0"}})
	described.Skipped = []mirrormsg.DescribeMirrorsResponseMirrorSkipped{
		{Sync: "groups", Reason: "has members at the destination", Count: 12, Names: []string{"a", "b", "c", "d"}},
		{Sync: "acls", Reason: "no right"},
	}
	s := startStub(t, func(req kmsg.Request) kmsg.Response {
		if _, ok := req.(*mirrormsg.DescribeMirrorsRequest); ok {
			return &mirrormsg.DescribeMirrorsResponse{Mirrors: []mirrormsg.DescribeMirrorsResponseMirror{described}}
		}
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		resp.Resources = []kmsg.DescribeConfigsResponseResource{{ResourceType: 64, ResourceName: "east", Configs: []kmsg.DescribeConfigsResponseResourceConfig{
			{Name: "bootstrap.servers", Value: text("a:1"), Source: kmsg.ConfigSourceDynamicBrokerConfig},
			{Name: "sasl.jaas.config", IsSensitive: true, Source: kmsg.ConfigSourceDynamicBrokerConfig},
			{Name: "client.id", Value: text("mirrorgate"), Source: kmsg.ConfigSourceDefaultConfig},
		}}}
		return resp
	})
	got := s.mirrors(t, "describe", "--mirror", "east")
	require.Contains(t, got.stdout, "\n\nMIRROR  SYNC    SKIPPED  SUCH-AS  REASON\n"+
		"east    groups  12       a, b, c  has members at the destination\n"+
		"east    acls    all               no right\n")
	require.Equal(t, result{stdout: "" +
		"MIRROR  SETTING            VALUE       FROM\n" +
		"east    bootstrap.servers  a:1         mirror\n" +
		"east    sasl.jaas.config   [hidden]    mirror\n" +
		"east    client.id          mirrorgate  default\n"}, s.mirrors(t, "describe", "--mirror", "east", "--config"))
	require.Contains(t, s.mirrors(t, "describe", "--config", "--json").stdout, `"value": null`)
}
