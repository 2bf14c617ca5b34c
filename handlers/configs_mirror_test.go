package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
)

func TestPauseAndResume(t *testing.T) {
	up := newUpstream(t)
	up.topicErrors = map[string]int16{"mine": 0}
	var asked []string
	answer := func(verb string) func(string, []mirror.TopicRef) ([]mirror.TopicResult, error) {
		return func(name string, refs []mirror.TopicRef) ([]mirror.TopicResult, error) {
			asked = append(asked, verb+" "+name)
			results := []mirror.TopicResult{{Name: refs[0].Name}}
			if refs[0].Name == "stopped" {
				results[0].Err = mirror.Refuse(kerr.InvalidRequest, "it is STOPPED")
			}
			return results, nil
		}
	}
	h, _ := rpcHandlers(t, &rpcEngine{pauseTopics: answer("pause"), resumeTopics: answer("resume")})
	pause := send[*mirrormsg.PauseMirrorTopicsResponse](t, h, up, &mirrormsg.PauseMirrorTopicsRequest{MirrorName: "east", Topics: []mirrormsg.MirrorTopic{{TopicName: "mine"}}})
	require.Equal(t, []mirrormsg.MirrorTopicResult{{Name: "mine"}}, pause.Topics)
	require.Zero(t, pause.ErrorCode)
	resume := send[*mirrormsg.ResumeMirrorTopicsResponse](t, h, up, &mirrormsg.ResumeMirrorTopicsRequest{MirrorName: "east", Topics: []mirrormsg.MirrorTopic{{TopicName: "stopped"}}})
	require.Equal(t, kerr.InvalidRequest.Code, resume.ErrorCode)
	require.Equal(t, "stopped: it is STOPPED", *resume.ErrorMessage)
	require.Equal(t, "it is STOPPED", *resume.Topics[0].ErrorMessage)
	require.Equal(t, []string{"pause east", "resume east"}, asked)

	up.topic = without(kmsg.ACLOperationAlter)
	pause = send[*mirrormsg.PauseMirrorTopicsResponse](t, h, up, &mirrormsg.PauseMirrorTopicsRequest{MirrorName: "east", Topics: []mirrormsg.MirrorTopic{{TopicName: "mine"}}})
	require.Equal(t, kerr.TopicAuthorizationFailed.Code, pause.ErrorCode)
	require.Len(t, asked, 2)
	pause = send[*mirrormsg.PauseMirrorTopicsResponse](t, h, up, &mirrormsg.PauseMirrorTopicsRequest{})
	require.Equal(t, kerr.InvalidRequest.Code, pause.ErrorCode)
}

func TestDeleteMirror(t *testing.T) {
	h, _ := rpcHandlers(t, &rpcEngine{deleteMirror: noSuchMirrorError})
	resp := send[*mirrormsg.DeleteMirrorResponse](t, h, newUpstream(t), &mirrormsg.DeleteMirrorRequest{MirrorName: "east"})
	require.Equal(t, kerr.InvalidRequest.Code, resp.ErrorCode)
	require.Equal(t, "unknown mirror east", *resp.ErrorMessage)
}

func noSuchMirrorError(name string) error { return noSuchMirror(name) }

// A mirror's resource is answered by the gateway, the others of the request by the destination.
func TestDescribeMirrorConfig(t *testing.T) {
	value := "a:1"
	h, _ := rpcHandlers(t, &rpcEngine{mirrorConfig: func(name string) ([]mirror.ConfigEntry, error) {
		if name != "east" {
			return nil, noSuchMirror(name)
		}
		return []mirror.ConfigEntry{
			{Setting: mirror.Setting{Name: "bootstrap.servers", Doc: "where", List: true}, Value: &value, Given: true},
			{Setting: mirror.Setting{Name: "sasl.jaas.config", Secret: true}, Given: true},
			{Setting: mirror.Setting{Name: "client.id"}, Value: &value},
		}, nil
	}})
	up := newUpstream(t)
	up.other = func(req kmsg.Request) kmsg.Response {
		asked := req.(*kmsg.DescribeConfigsRequest)
		require.Len(t, asked.Resources, 1)
		require.Equal(t, "1", asked.Resources[0].ResourceName)
		resp := asked.ResponseKind().(*kmsg.DescribeConfigsResponse)
		resp.Resources = []kmsg.DescribeConfigsResponseResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1",
			Configs: []kmsg.DescribeConfigsResponseResourceConfig{{Name: "listeners", Value: ptr("PLAINTEXT://upstream-1:30001")}}}}
		return resp
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeDocumentation = 4, true
	req.Resources = []kmsg.DescribeConfigsRequestResource{
		{ResourceType: resourceMirror, ResourceName: "east"},
		{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1"},
		{ResourceType: resourceMirror, ResourceName: "west"},
		{ResourceType: resourceMirror, ResourceName: "east", ConfigNames: []string{"client.id"}},
	}
	resp := send[*kmsg.DescribeConfigsResponse](t, h, up, req)
	require.Len(t, resp.Resources, 4)
	require.Nil(t, resp.Resources[0].Configs[0].Value, "no address of the destination")
	east := resp.Resources[1]
	require.Equal(t, "a:1", *east.Configs[0].Value)
	require.Equal(t, "where", *east.Configs[0].Documentation)
	require.Equal(t, kmsg.ConfigTypeList, east.Configs[0].ConfigType)
	require.True(t, east.Configs[1].IsSensitive)
	require.Nil(t, east.Configs[1].Value)
	require.Equal(t, kmsg.ConfigSourceDefaultConfig, east.Configs[2].Source)
	require.Equal(t, kerr.InvalidRequest.Code, resp.Resources[2].ErrorCode)
	require.Len(t, resp.Resources[3].Configs, 1)

	for v := range int16(4) { // whatever a client asks with
		req.Version, req.Resources = v, req.Resources[:1]
		decision := askFor(h, req)
		require.NotNil(t, decision.Work, "v%d", v)
	}
}

func TestAlterMirrorConfig(t *testing.T) {
	var changes []mirror.ConfigChange
	var checked bool
	h, _ := rpcHandlers(t, &rpcEngine{
		topics: someTopics(),
		alterMirror: func(name string, c []mirror.ConfigChange, validateOnly bool) error {
			if changes, checked = c, validateOnly; name != "east" {
				return noSuchMirror(name)
			}
			return nil
		},
	})
	up := newUpstream(t)
	up.other = func(req kmsg.Request) kmsg.Response {
		asked := req.(*kmsg.IncrementalAlterConfigsRequest)
		require.True(t, asked.ValidateOnly)
		require.Len(t, asked.Resources, 1)
		resp := asked.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
		resp.Resources = []kmsg.IncrementalAlterConfigsResponseResource{{ResourceType: 2, ResourceName: asked.Resources[0].ResourceName}}
		return resp
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version, req.ValidateOnly = 1, true
	topic := func(name string) kmsg.IncrementalAlterConfigsRequestResource {
		return kmsg.IncrementalAlterConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: name,
			Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "compression.type", Value: ptr("gzip")}}}
	}
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{
		topic("held"), topic("ordinary"),
		{ResourceType: resourceMirror, ResourceName: "east", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{
			{Name: "mirror.groups.exclude", Op: 2, Value: ptr("a")}, {Name: "client.id", Op: 1}}},
		{ResourceType: resourceMirror, ResourceName: "west"},
	}
	resp := send[*kmsg.IncrementalAlterConfigsResponse](t, h, up, req)
	codes := map[string]int16{}
	for _, r := range resp.Resources {
		codes[r.ResourceName] = r.ErrorCode
	}
	require.Equal(t, map[string]int16{"held": refusedCode, "ordinary": 0, "east": 0, "west": kerr.InvalidRequest.Code}, codes)
	require.Empty(t, changes, "west was asked last")
	require.True(t, checked)

	req.Resources = req.Resources[2:3]
	send[*kmsg.IncrementalAlterConfigsResponse](t, h, newUpstream(t), req)
	require.Equal(t, []mirror.ConfigChange{
		{Name: "mirror.groups.exclude", Op: mirror.AppendConfig, Value: ptr("a")}, {Name: "client.id", Op: mirror.DeleteConfig},
	}, changes)
}
