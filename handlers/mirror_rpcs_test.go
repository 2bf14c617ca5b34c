package handlers

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
)

func without(operation kmsg.ACLOperation) int32 { return allOperations &^ (1 << operation) }

func TestRightsOnTheCluster(t *testing.T) {
	describe := func(string) (mirror.Description, error) { return mirror.Description{}, nil }
	h, _ := rpcHandlers(t, &rpcEngine{
		describe:     describe,
		createMirror: func(string, map[string]*string, bool) error { return nil },
		mirrors:      func() ([]mirror.Summary, error) { return nil, nil },
		addTopics:    func([]mirror.TopicRef) ([]mirror.TopicResult, error) { return nil, nil },
		removeTopics: func(string, []mirror.TopicRef) ([]mirror.TopicResult, error) { return nil, nil },
		pauseTopics:  func(string, []mirror.TopicRef) ([]mirror.TopicResult, error) { return nil, nil },
		resumeTopics: func(string, []mirror.TopicRef) ([]mirror.TopicResult, error) { return nil, nil },
		deleteMirror: func(string) error { return nil },
		mirrorConfig: func(string) ([]mirror.ConfigEntry, error) { return nil, nil },
		alterMirror:  func(string, []mirror.ConfigChange, bool) error { return nil },
	})
	describeConfigs := kmsg.NewPtrDescribeConfigsRequest()
	describeConfigs.Version = 4
	describeConfigs.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: resourceMirror, ResourceName: "east"}}
	alterConfigs := kmsg.NewPtrIncrementalAlterConfigsRequest()
	alterConfigs.Version = 1
	alterConfigs.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: resourceMirror, ResourceName: "east"}}
	create := mirrormsg.NewPtrCreateMirrorRequest()
	create.MirrorName = kmsg.StringPtr("east")
	for _, tt := range []struct {
		req   kmsg.Request
		needs kmsg.ACLOperation
	}{
		{create, kmsg.ACLOperationAlter},
		{&mirrormsg.AddTopicsToMirrorRequest{}, kmsg.ACLOperationAlter},
		{&mirrormsg.RemoveTopicsFromMirrorRequest{MirrorName: "east"}, kmsg.ACLOperationAlter},
		{&mirrormsg.PauseMirrorTopicsRequest{MirrorName: "east"}, kmsg.ACLOperationAlter},
		{&mirrormsg.ResumeMirrorTopicsRequest{MirrorName: "east"}, kmsg.ACLOperationAlter},
		{&mirrormsg.DeleteMirrorRequest{MirrorName: "east"}, kmsg.ACLOperationAlter},
		{describeConfigs, kmsg.ACLOperationDescribe},
		{alterConfigs, kmsg.ACLOperationAlter},
		{&mirrormsg.LastMirroredOffsetsRequest{MirrorName: "east"}, kmsg.ACLOperationDescribe},
		{&mirrormsg.ListMirrorsRequest{}, kmsg.ACLOperationDescribe},
		{&mirrormsg.DescribeMirrorsRequest{}, kmsg.ACLOperationDescribe},
		{&mirrormsg.ReadMirrorStatesRequest{MirrorName: "east"}, kmsg.ACLOperationAlter},
		{&mirrormsg.WriteMirrorStatesRequest{MirrorName: "east"}, kmsg.ACLOperationClusterAction},
	} {
		t.Run(kmsg.NameForKey(tt.req.Key())+fmt.Sprintf("%T", tt.req), func(t *testing.T) {
			up := newUpstream(t)
			require.Zero(t, topCode(send[kmsg.Response](t, h, up, tt.req)))
			up.cluster = 1 << tt.needs
			require.Zero(t, topCode(send[kmsg.Response](t, h, up, tt.req)), "%s is enough", tt.needs)
			up.cluster = without(tt.needs)
			require.Equal(t, kerr.ClusterAuthorizationFailed.Code, topCode(send[kmsg.Response](t, h, up, tt.req)))
			for _, none := range []int32{0, mirrormsg.AuthorizedOperationsOmitted} {
				up.cluster = none
				require.Equal(t, kerr.ClusterAuthorizationFailed.Code, topCode(send[kmsg.Response](t, h, up, tt.req)))
			}
			up.cluster, up.clusterErr = allOperations, kerr.ClusterAuthorizationFailed.Code
			require.Equal(t, kerr.ClusterAuthorizationFailed.Code, topCode(send[kmsg.Response](t, h, up, tt.req)))

			// What is not known is not allowed: the connection ends.
			up.clusterErr = kerr.BrokerNotAvailable.Code
			_, err := sendFrame(t, h, up, tt.req)
			require.ErrorIs(t, err, kerr.BrokerNotAvailable)
			up.lost = errEngine
			_, err = sendFrame(t, h, up, tt.req)
			require.ErrorIs(t, err, errEngine)
		})
	}
}

// topCode returns the error code of a whole response.
func topCode(resp kmsg.Response) int16 {
	switch resp := resp.(type) {
	case *mirrormsg.CreateMirrorResponse:
		return resp.ErrorCode
	case *mirrormsg.AddTopicsToMirrorResponse:
		return resp.ErrorCode
	case *mirrormsg.RemoveTopicsFromMirrorResponse:
		return resp.ErrorCode
	case *mirrormsg.PauseMirrorTopicsResponse:
		return resp.ErrorCode
	case *mirrormsg.ResumeMirrorTopicsResponse:
		return resp.ErrorCode
	case *mirrormsg.DeleteMirrorResponse:
		return resp.ErrorCode
	case *kmsg.DescribeConfigsResponse:
		return resp.Resources[0].ErrorCode
	case *kmsg.IncrementalAlterConfigsResponse:
		return resp.Resources[0].ErrorCode
	case *mirrormsg.LastMirroredOffsetsResponse:
		return resp.ErrorCode
	case *mirrormsg.ListMirrorsResponse:
		return resp.ErrorCode
	case *mirrormsg.DescribeMirrorsResponse:
		if len(resp.Mirrors) == 0 {
			return 0
		}
		return resp.Mirrors[0].ErrorCode
	case *mirrormsg.ReadMirrorStatesResponse:
		return resp.ErrorCode
	case *mirrormsg.WriteMirrorStatesResponse:
		return resp.ErrorCode
	}
	panic(fmt.Sprintf("%T", resp))
}

func TestCreateMirror(t *testing.T) {
	long := strings.Repeat("x", 250)
	for _, tt := range []struct {
		name    string
		mirror  *string
		config  []mirrormsg.CreateMirrorRequestConfig
		engine  error
		code    int16
		message string
		asked   bool // the engine was
	}{
		{name: "created", mirror: ptr("east"), asked: true},
		{name: "249 characters", mirror: ptr(long[:249]), asked: true},
		{name: "null name", code: 42, message: "is null"},
		{name: "empty name", mirror: ptr(""), code: 42, message: "is empty"},
		{name: "dot", mirror: ptr("."), code: 42, message: `"."`},
		{name: "dots", mirror: ptr(".."), code: 42, message: `".."`},
		{name: "too long", mirror: &long, code: 42, message: "250"},
		{name: "bad character", mirror: ptr("a b"), code: 42, message: `"a b"`},
		{name: "not ASCII", mirror: ptr("süd"), code: 42, message: "süd"},
		{name: "setting given twice", mirror: ptr("east"), code: 40, message: "x is given twice",
			config: []mirrormsg.CreateMirrorRequestConfig{{Name: "x", Value: ptr("1")}, {Name: "x"}}},
		{name: "exists", mirror: ptr("east"), engine: mirror.Refuse(kerr.InvalidRequest, "mirror east already exists"),
			code: 42, message: "already exists", asked: true},
		{name: "bad setting", mirror: ptr("east"), engine: mirror.Refuse(kerr.InvalidConfig, "no such key"), code: 40,
			message: "no such key", asked: true},
		{name: "wrapped refusal", mirror: ptr("east"), engine: fmt.Errorf("asking: %w", mirror.Refuse(kerr.SaslAuthenticationFailed, "the source refuses")),
			code: 58, message: "the source refuses", asked: true},
		{name: "late", mirror: ptr("east"), engine: context.DeadlineExceeded, code: 7, message: "gave up", asked: true},
		{name: "own trouble", mirror: ptr("east"), engine: errEngine, code: -1, message: "log says why", asked: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := false
			h, logs := rpcHandlers(t, &rpcEngine{createMirror: func(string, map[string]*string, bool) error {
				asked = true
				return tt.engine
			}})
			req := mirrormsg.NewPtrCreateMirrorRequest()
			req.MirrorName, req.Config = tt.mirror, tt.config
			resp := send[*mirrormsg.CreateMirrorResponse](t, h, newUpstream(t), req)
			require.Equal(t, tt.code, resp.ErrorCode)
			require.Equal(t, tt.asked, asked)
			if tt.message == "" {
				require.Nil(t, resp.ErrorMessage)
				return
			}
			require.Contains(t, *resp.ErrorMessage, tt.message)
			require.NotContains(t, *resp.ErrorMessage, "10.0.0.1")
			require.Equal(t, tt.engine == errEngine, logs.FilterField(zapError(errEngine)).Len() == 1)
		})
	}
}

// TestSecretsNeedAKey: without a key to seal it with, no secret gets into the state topic.
func TestSecretsNeedAKey(t *testing.T) {
	asked := 0
	engine := &rpcEngine{
		createMirror: func(string, map[string]*string, bool) error { asked++; return nil },
		alterMirror:  func(string, []mirror.ConfigChange, bool) error { asked++; return nil },
	}
	h, logs := rpcHandlers(t, engine)
	create := func(name, value string) *mirrormsg.CreateMirrorResponse {
		req := mirrormsg.NewPtrCreateMirrorRequest()
		req.MirrorName = ptr("east")
		req.Config = []mirrormsg.CreateMirrorRequestConfig{{Name: name, Value: &value}}
		return send[*mirrormsg.CreateMirrorResponse](t, h, newUpstream(t), req)
	}
	alter := func(name string, value *string) kmsg.IncrementalAlterConfigsResponseResource {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.Version = 1
		req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
			ResourceType: resourceMirror, ResourceName: "east", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: name, Value: value}},
		}}
		return send[*kmsg.IncrementalAlterConfigsResponse](t, h, newUpstream(t), req).Resources[0]
	}
	for _, secret := range []string{"sasl.jaas.config", "ssl.keystore.key"} {
		require.Zero(t, create(secret, "hush").ErrorCode, "there is a key")
		require.Zero(t, alter(secret, ptr("hush")).ErrorCode)
	}
	require.Equal(t, 4, asked)
	h.noSecrets = true
	for _, secret := range []string{"sasl.jaas.config", "ssl.keystore.key"} {
		created, altered := create(secret, "hush"), alter(secret, ptr("hush"))
		for _, code := range []int16{created.ErrorCode, altered.ErrorCode} {
			require.Equal(t, kerr.InvalidConfig.Code, code, secret)
		}
		for _, message := range []*string{created.ErrorMessage, altered.ErrorMessage} {
			require.Contains(t, *message, secret+" is a secret")
			require.Contains(t, *message, "--secret-key-file")
			require.NotContains(t, *message, "hush")
		}
	}
	require.Equal(t, 4, asked)
	require.Zero(t, create("client.id", "me").ErrorCode)
	require.Zero(t, alter("sasl.jaas.config", nil).ErrorCode, "taking one away")
	require.NotContains(t, fmt.Sprint(logs.All()), "hush")
}

func TestCreateMirrorPassesEverythingOn(t *testing.T) {
	h, _ := rpcHandlers(t, &rpcEngine{createMirror: func(name string, config map[string]*string, validateOnly bool) error {
		require.Equal(t, "east", name)
		require.Equal(t, map[string]*string{"bootstrap.servers": ptr("kafka:9092"), "x": nil}, config)
		require.True(t, validateOnly)
		return nil
	}})
	req := mirrormsg.NewPtrCreateMirrorRequest()
	req.MirrorName, req.ValidateOnly = ptr("east"), true
	req.Config = []mirrormsg.CreateMirrorRequestConfig{{Name: "bootstrap.servers", Value: ptr("kafka:9092")}, {Name: "x"}}
	require.Zero(t, send[*mirrormsg.CreateMirrorResponse](t, h, newUpstream(t), req).ErrorCode)
}

// topicCase is a test of the two RPCs that change topics.
type topicCase struct {
	name   string
	topics []mirrormsg.AddTopicsToMirrorRequestTopic
	up     func(*rpcUpstream)
	// results and err are the engine's answer; it must not be asked where both are nil.
	results []mirror.TopicResult
	err     error
	code    int16
	message string
	topicID mirror.TopicID
	codes   []int16 // one by one
}

var idA, idB = mirror.TopicID{1}, mirror.TopicID{2}

func topicCases() []topicCase {
	a := mirrormsg.AddTopicsToMirrorRequestTopic{TopicName: "a", TopicID: idA, MirrorName: ptr("east")}
	b := mirrormsg.AddTopicsToMirrorRequestTopic{TopicName: "b", MirrorName: ptr("east")}
	both := []mirrormsg.AddTopicsToMirrorRequestTopic{a, b}
	missing := mirror.Refuse(kerr.UnknownTopicOrPartition, "the source has no topic a")
	changed := mirror.Refuse(kerr.InconsistentTopicID, "the source's topic has the ID 5")
	full := mirror.Refuse(kerr.TopicAlreadyExists, "the destination topic has records")
	foreign := mirror.Refuse(kerr.InvalidRequest, "a belongs to mirror west")
	one := func(err *mirror.Error) []mirror.TopicResult {
		return []mirror.TopicResult{{Name: "a", ID: idA, Err: err}, {Name: "b", ID: idB}}
	}
	return []topicCase{
		{name: "all right", topics: both, results: one(nil), codes: []int16{0, 0}},
		{name: "missing at the source", topics: both, results: one(missing), code: 3, topicID: idA, codes: []int16{3, 0},
			message: "a: the source has no topic a"},
		{name: "other ID", topics: both, results: one(changed), code: 103, topicID: idA, codes: []int16{103, 0},
			message: "a: the source's topic has the ID 5"},
		{name: "destination not empty", topics: both, results: one(full), code: 36, topicID: idA, codes: []int16{36, 0},
			message: "a: the destination topic has records"},
		{name: "in another mirror", topics: both, results: one(foreign), code: 42, topicID: idA, codes: []int16{42, 0},
			message: "a: a belongs to mirror west"},
		{name: "two failed", topics: both, results: []mirror.TopicResult{{Name: "a", ID: idA, Err: missing}, {Name: "b", ID: idB, Err: full}},
			code: 3, codes: []int16{3, 36}, message: "a: the source has no topic a; b: the destination topic has records"},
		{name: "unknown mirror", topics: both, err: noSuchMirror("east"), code: 42, message: "unknown mirror east"},
		{name: "own trouble", topics: both, err: errEngine, code: -1, message: "the gateway failed; its log says why"},
		{name: "named twice", topics: append(both[:2:2], a), code: 42, topicID: idA, codes: []int16{0, 0, 42},
			message: "a: the topic is named twice in the request"},
		{name: "no ALTER on an existing topic", topics: both, code: 29, topicID: idA, codes: []int16{29, 0},
			up:      func(u *rpcUpstream) { u.topic, u.topicErrors["a"] = without(kmsg.ACLOperationAlter), 0 },
			message: "a: this needs ALTER on the destination topic"},
		{name: "no DESCRIBE on a topic", topics: both, code: 29, topicID: idA, codes: []int16{29, 0},
			up:      func(u *rpcUpstream) { u.topicErrors["a"] = kerr.TopicAuthorizationFailed.Code },
			message: "a: this needs ALTER on the destination topic"},
		{name: "bad topic name", topics: both, code: 17, codes: []int16{0, 17},
			up:      func(u *rpcUpstream) { u.topicErrors["b"] = kerr.InvalidTopicException.Code },
			message: "b: the destination refuses the topic: " + kerr.InvalidTopicException.Description},
		{name: "ALTER on an existing topic", topics: both, results: one(nil), codes: []int16{0, 0},
			up: func(u *rpcUpstream) { u.topic, u.topicErrors["a"] = 1<<kmsg.ACLOperationAlter, 0 }},
		{name: "no topics", results: []mirror.TopicResult{}},
	}
}

func (tt *topicCase) upstream(t *testing.T) *rpcUpstream {
	up := newUpstream(t)
	up.topicErrors = map[string]int16{}
	if tt.up != nil {
		tt.up(up)
	}
	return up
}

func (tt *topicCase) check(t *testing.T, code int16, message *string, topicID mirror.TopicID, topics []mirrormsg.TopicResult, asked bool) {
	require.Equal(t, tt.code, code)
	require.Equal(t, tt.topicID, topicID)
	require.Equal(t, tt.results != nil || tt.err != nil, asked)
	if tt.message == "" {
		require.Nil(t, message)
	} else {
		require.Equal(t, tt.message, *message)
	}
	var codes []int16
	for _, topic := range topics {
		codes = append(codes, topic.ErrorCode)
		require.Equal(t, topic.ErrorCode == 0, topic.ErrorMessage == nil)
	}
	require.Equal(t, tt.codes, codes)
}

func TestAddTopicsToMirror(t *testing.T) {
	for _, tt := range append(topicCases(),
		topicCase{name: "null mirror name", code: 42, topicID: idA, codes: []int16{42, 0}, message: "a: the mirror name is null; give one",
			topics: []mirrormsg.AddTopicsToMirrorRequestTopic{{TopicName: "a", TopicID: idA}, {TopicName: "b", MirrorName: ptr("east")}}},
	) {
		t.Run(tt.name, func(t *testing.T) {
			asked := false
			h, _ := rpcHandlers(t, &rpcEngine{addTopics: func(refs []mirror.TopicRef) ([]mirror.TopicResult, error) {
				asked = true
				for i, ref := range refs {
					require.Equal(t, mirror.TopicRef{Mirror: "east", Name: tt.topics[i].TopicName, ID: tt.topics[i].TopicID}, ref)
				}
				return tt.results, tt.err
			}})
			req := mirrormsg.NewPtrAddTopicsToMirrorRequest()
			req.Topics = tt.topics
			resp := send[*mirrormsg.AddTopicsToMirrorResponse](t, h, tt.upstream(t), req)
			tt.check(t, resp.ErrorCode, resp.ErrorMessage, resp.TopicID, resp.Topics, asked)
		})
	}
}

func TestRemoveTopicsFromMirror(t *testing.T) {
	for _, tt := range topicCases() {
		t.Run(tt.name, func(t *testing.T) {
			asked := false
			h, _ := rpcHandlers(t, &rpcEngine{removeTopics: func(name string, refs []mirror.TopicRef) ([]mirror.TopicResult, error) {
				asked = true
				require.Equal(t, "east", name)
				for i, ref := range refs {
					require.Equal(t, mirror.TopicRef{Name: tt.topics[i].TopicName, ID: tt.topics[i].TopicID}, ref)
				}
				return tt.results, tt.err
			}})
			req := mirrormsg.NewPtrRemoveTopicsFromMirrorRequest()
			req.MirrorName = "east"
			for _, topic := range tt.topics {
				req.Topics = append(req.Topics, mirrormsg.RemoveTopicsFromMirrorRequestTopic{TopicID: topic.TopicID, TopicName: topic.TopicName})
			}
			resp := send[*mirrormsg.RemoveTopicsFromMirrorResponse](t, h, tt.upstream(t), req)
			tt.check(t, resp.ErrorCode, resp.ErrorMessage, resp.TopicID, resp.Topics, asked)
		})
	}
	h, _ := rpcHandlers(t, &rpcEngine{})
	resp := send[*mirrormsg.RemoveTopicsFromMirrorResponse](t, h, newUpstream(t), mirrormsg.NewPtrRemoveTopicsFromMirrorRequest())
	require.Equal(t, kerr.InvalidRequest.Code, resp.ErrorCode, "no mirror name")
}
