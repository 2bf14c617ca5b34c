package handlers

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// rpcEngine is an engine that answers what a test tells it, and remembers what it was asked. A function that is not set
// must not be called.
type rpcEngine struct {
	mirror.Engine
	topics *mirror.Topics

	createMirror func(name string, config map[string]*string, validateOnly bool) error
	addTopics    func([]mirror.TopicRef) ([]mirror.TopicResult, error)
	removeTopics func(string, []mirror.TopicRef) ([]mirror.TopicResult, error)
	pauseTopics  func(string, []mirror.TopicRef) ([]mirror.TopicResult, error)
	resumeTopics func(string, []mirror.TopicRef) ([]mirror.TopicResult, error)
	deleteMirror func(string) error
	mirrorConfig func(string) ([]mirror.ConfigEntry, error)
	alterMirror  func(string, []mirror.ConfigChange, bool) error
	mirrors      func() ([]mirror.Summary, error)
	describe     func(string) (mirror.Description, error)
	writeStates  func(string, []mirror.StateUpdate, []string) ([]*mirror.Error, error)
	coordinator  func(string) (mirror.Member, error)
	reserveErr   func(name string, id mirror.TopicID) error
	confirmErr   error
	// ids are the calls about topic IDs, in words.
	ids []string
}

func (e *rpcEngine) Topics() *mirror.Topics {
	if e.topics == nil {
		return mirror.NewTopics(nil, nil)
	}
	return e.topics
}

func (e *rpcEngine) CreateMirror(_ context.Context, name string, config map[string]*string, validateOnly bool) error {
	return e.createMirror(name, config, validateOnly)
}

func (e *rpcEngine) AddTopics(_ context.Context, topics []mirror.TopicRef) ([]mirror.TopicResult, error) {
	return e.addTopics(topics)
}

func (e *rpcEngine) RemoveTopics(_ context.Context, name string, topics []mirror.TopicRef) ([]mirror.TopicResult, error) {
	return e.removeTopics(name, topics)
}

func (e *rpcEngine) PauseTopics(_ context.Context, name string, topics []mirror.TopicRef) ([]mirror.TopicResult, error) {
	return e.pauseTopics(name, topics)
}

func (e *rpcEngine) ResumeTopics(_ context.Context, name string, topics []mirror.TopicRef) ([]mirror.TopicResult, error) {
	return e.resumeTopics(name, topics)
}

func (e *rpcEngine) DeleteMirror(_ context.Context, name string) error { return e.deleteMirror(name) }

func (e *rpcEngine) MirrorConfig(_ context.Context, name string) ([]mirror.ConfigEntry, error) {
	return e.mirrorConfig(name)
}

func (e *rpcEngine) AlterMirror(_ context.Context, name string, changes []mirror.ConfigChange, validateOnly bool) error {
	return e.alterMirror(name, changes, validateOnly)
}

func (e *rpcEngine) Mirrors(context.Context) ([]mirror.Summary, error) { return e.mirrors() }

func (e *rpcEngine) Describe(_ context.Context, name string) (mirror.Description, error) {
	return e.describe(name)
}

func (e *rpcEngine) LastMirrored(_ context.Context, name string) ([]mirror.TopicDescription, error) {
	description, err := e.describe(name)
	return description.Topics, err
}

func (e *rpcEngine) WriteStates(_ context.Context, name string, updates []mirror.StateUpdate, removed []string) ([]*mirror.Error, error) {
	return e.writeStates(name, updates, removed)
}

func (e *rpcEngine) Coordinator(_ context.Context, key string) (mirror.Member, error) {
	if e.coordinator == nil {
		return e.Self(), nil
	}
	return e.coordinator(key)
}

func (e *rpcEngine) Self() mirror.Member { return mirror.Member{Number: 7, Host: "self", Port: 9092} }

func (e *rpcEngine) ReserveTopicID(_ context.Context, name string, id mirror.TopicID) error {
	e.ids = append(e.ids, "reserve "+name+" "+string('0'+rune(id[0])))
	if e.reserveErr != nil {
		return e.reserveErr(name, id)
	}
	return nil
}

func (e *rpcEngine) ConfirmTopicID(_ context.Context, name string, id mirror.TopicID) error {
	e.ids = append(e.ids, "confirm "+name+" "+string('0'+rune(id[0])))
	return e.confirmErr
}

func (e *rpcEngine) ReleaseTopicID(_ context.Context, name string) error {
	e.ids = append(e.ids, "release "+name)
	return nil
}

// rpcUpstream is a client's broker connection: a destination with rights and topics.
type rpcUpstream struct {
	t *testing.T
	// cluster and topic are the operations that the client may do; allOperations by default.
	cluster, topic int32
	// topicErrors are the errors of Metadata by name; a name that is not there does not exist.
	topicErrors map[string]int16
	// ids are the topic IDs that exist at the destination, with the error of Metadata.
	ids map[mirror.TopicID]int16
	// fenced is the state of brokers.
	fenced map[int32]bool
	// create answers CreateTopics.
	create func(*kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse
	// other answers what is none of the above.
	other func(kmsg.Request) kmsg.Response
	// lost is the error of every round trip.
	lost error
	// clusterErr is the error code of DescribeCluster.
	clusterErr int16
}

const allOperations = int32(1)<<14 - 1

func newUpstream(t *testing.T) *rpcUpstream {
	return &rpcUpstream{t: t, cluster: allOperations, topic: allOperations}
}

func (u *rpcUpstream) RoundTrip(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	if u.lost != nil {
		return nil, u.lost
	}
	switch req := req.(type) {
	case *kmsg.DescribeClusterRequest:
		return u.describeCluster(req), nil
	case *kmsg.MetadataRequest:
		require.Equal(u.t, int16(12), req.Version)
		require.False(u.t, req.AllowAutoTopicCreation, "a question must not create topics")
		require.NotEmpty(u.t, req.Topics, "null would ask for all topics")
		return u.metadata(req), nil
	case *kmsg.CreateTopicsRequest:
		require.Equal(u.t, int16(7), req.Version)
		return u.create(req), nil
	}
	if u.other != nil {
		return u.other(req), nil
	}
	u.t.Fatalf("unexpected %T", req)
	return nil, nil
}

func (u *rpcUpstream) describeCluster(req *kmsg.DescribeClusterRequest) *kmsg.DescribeClusterResponse {
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.ErrorCode = u.clusterErr
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = u.cluster
	}
	for id, fenced := range u.fenced {
		require.True(u.t, req.IncludeFencedBrokers)
		broker := kmsg.NewDescribeClusterResponseBroker()
		broker.NodeID, broker.IsFenced = id, fenced
		resp.Brokers = append(resp.Brokers, broker)
	}
	return resp
}

func (u *rpcUpstream) metadata(req *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	resp := kmsg.NewPtrMetadataResponse()
	for _, asked := range req.Topics {
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.TopicID = asked.Topic, asked.TopicID
		if asked.Topic == nil {
			code, ok := u.ids[asked.TopicID]
			if topic.ErrorCode = code; !ok {
				topic.ErrorCode = kerr.UnknownTopicID.Code
			}
		} else {
			code, ok := u.topicErrors[*asked.Topic]
			if topic.ErrorCode = code; !ok {
				topic.ErrorCode = kerr.UnknownTopicOrPartition.Code
			}
			if topic.ErrorCode == 0 && req.IncludeTopicAuthorizedOperations {
				topic.AuthorizedOperations = u.topic
			}
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

type rpcClient struct{}

func (rpcClient) ID() uint64         { return 1 }
func (rpcClient) RemoteAddr() string { return "client:1" }
func (rpcClient) Node() int32        { return 1 }

type rpcAddresses struct{}

func (rpcAddresses) Advertise(node int32, _ string, _ int32) (string, int32, error) {
	return "gateway", 9093 + node, nil
}

// rpcHandlers returns handlers with engine, and their log.
func rpcHandlers(t *testing.T, engine mirror.Engine) (*Handlers, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	h, err := New(Config{Engine: engine, Addresses: rpcAddresses{}, Log: zap.New(core)})
	require.NoError(t, err)
	return h, logs
}

// send passes a request through the handlers as the proxy does, and returns the response.
func send[R kmsg.Response](t *testing.T, h *Handlers, up proxy.Upstream, req kmsg.Request) R {
	t.Helper()
	frame, err := sendFrame(t, h, up, req)
	require.NoError(t, err)
	require.Equal(t, uint32(42), binary.BigEndian.Uint32(frame))
	require.Equal(t, byte(0), frame[4], "response header v1 without tagged fields")
	resp := req.ResponseKind()
	require.NoError(t, resp.ReadFrom(frame[5:]))
	return resp.(R)
}

func sendFrame(t *testing.T, h *Handlers, up proxy.Upstream, req kmsg.Request) ([]byte, error) {
	t.Helper()
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, 42)[4:]
	return sendRaw(t, h, up, req.Key(), req.GetVersion(), frame)
}

func sendRaw(t *testing.T, h *Handlers, up proxy.Upstream, key, version int16, frame []byte) ([]byte, error) {
	t.Helper()
	hd := proxy.Header{Key: key, Version: version, CorrelationID: 42, Size: int32(len(frame))}
	route := h.Route(rpcClient{}, hd)
	require.NoError(t, route.Close)
	require.True(t, route.Whole)
	decision := h.Request(rpcClient{}, hd, frame)
	if decision.Close != nil {
		return nil, decision.Close
	}
	require.NotNil(t, decision.Work)
	clear(frame) // it belongs to the proxy
	return decision.Work(context.Background(), up)
}

var errEngine = errors.New("disk on fire at 10.0.0.1")

func noSuchMirror(name string) *mirror.Error {
	return mirror.Refuse(kerr.InvalidRequest, "unknown mirror %s", name)
}

func ptr(s string) *string { return &s }

func zapError(err error) zap.Field { return zap.Error(err) }

// lostAtCreate loses the connection at CreateTopics.
type lostAtCreate struct{ *rpcUpstream }

func (u lostAtCreate) RoundTrip(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if req.Key() == keyCreateTopics {
		return nil, errEngine
	}
	return u.rpcUpstream.RoundTrip(ctx, req)
}
