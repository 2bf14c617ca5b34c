package handlers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/mirror/replication"
)

// describeEast is an engine's Describe that knows mirror east alone.
func describeEast(name string) (mirror.Description, error) {
	if name != "east" {
		return mirror.Description{}, noSuchMirror(name)
	}
	return mirror.Description{Name: "east", Topics: []mirror.TopicDescription{
		{Name: "a", Partitions: []mirror.PartitionStatus{
			{Status: replication.Status{Partition: 0, State: mirror.Mirroring, SourceHighWatermark: 10, SourceLastStableOffset: 9,
				SourceAge: 250 * time.Millisecond, DestinationEnd: 7, LastMirrored: 7, RecordsPerSecond: 1.5}},
			{Status: replication.Status{Partition: 1, State: mirror.Failed, Reason: "gone", SourceHighWatermark: -1, SourceLastStableOffset: -1,
				DestinationEnd: 3, LastMirrored: 3}},
		}},
		{Name: "b", Partitions: []mirror.PartitionStatus{{Status: replication.Status{Partition: 0, State: mirror.Stopped, DestinationEnd: 6, SourceHighWatermark: -1, SourceAge: -1, LastMirrored: 5},
			Stop: &mirror.PartitionStop{SourceEnd: 6, SourceAge: 2 * time.Second, Ago: time.Minute}}}},
	}, Syncs: []mirror.SyncStatus{{Kind: mirror.SyncGroups, Cycles: 3, Age: time.Second, Covered: 9}}}, nil
}

func asked(name string, partitions ...int32) mirrormsg.TopicPartitions {
	topic := mirrormsg.TopicPartitions{Name: name}
	for _, p := range partitions {
		topic.Partitions = append(topic.Partitions, mirrormsg.Partition{Partition: p})
	}
	return topic
}

func TestLastMirroredOffsets(t *testing.T) {
	h, _ := rpcHandlers(t, &rpcEngine{describe: describeEast})
	ask := func(name string, topics ...mirrormsg.TopicPartitions) *mirrormsg.LastMirroredOffsetsResponse {
		return send[*mirrormsg.LastMirroredOffsetsResponse](t, h, newUpstream(t), &mirrormsg.LastMirroredOffsetsRequest{MirrorName: name, Topics: topics})
	}
	type p = mirrormsg.LastMirroredOffsetsResponseTopicPartition
	type topic = mirrormsg.LastMirroredOffsetsResponseTopic

	require.Equal(t, []topic{
		{Name: "a", Partitions: []p{{Partition: 0, LastMirroredOffset: 7}, {Partition: 1, LastMirroredOffset: 3}}},
		{Name: "b", Partitions: []p{{Partition: 0, LastMirroredOffset: 5}}},
	}, ask("east").Topics, "no topics means all")
	require.Equal(t, []topic{
		{Name: "b", Partitions: []p{{Partition: 0, LastMirroredOffset: 5}}},
		{Name: "a", Partitions: []p{{Partition: 9, LastMirroredOffset: -1, ErrorCode: 3}, {Partition: 1, LastMirroredOffset: 3}}},
		{Name: "x", Partitions: []p{{Partition: 4, LastMirroredOffset: -1, ErrorCode: 3}}},
		{Name: "y", Partitions: []p{{Partition: -1, LastMirroredOffset: -1, ErrorCode: 3}}},
	}, ask("east", asked("b"), asked("a", 9, 1), asked("x", 4), asked("y")).Topics)
	require.Equal(t, kerr.InvalidRequest.Code, ask("west").ErrorCode)
	require.Empty(t, ask("west", asked("a", 0)).Topics)
}

func TestListMirrors(t *testing.T) {
	engine := &rpcEngine{mirrors: func() ([]mirror.Summary, error) {
		return []mirror.Summary{{Name: "east", SourceBootstrap: "kafka:9092", Topics: 6}, {Name: "west"}}, nil
	}}
	h, _ := rpcHandlers(t, engine)
	resp := send[*mirrormsg.ListMirrorsResponse](t, h, newUpstream(t), &mirrormsg.ListMirrorsRequest{})
	require.Equal(t, []mirrormsg.ListMirrorsResponseMirror{
		{MirrorName: "east", SourceBootstrap: "kafka:9092", TopicCount: 6}, {MirrorName: "west"}}, resp.Mirrors)

	engine.mirrors = func() ([]mirror.Summary, error) { return nil, errEngine }
	resp = send[*mirrormsg.ListMirrorsResponse](t, h, newUpstream(t), &mirrormsg.ListMirrorsRequest{})
	require.Equal(t, kerr.UnknownServerError.Code, resp.ErrorCode)
}

func TestDescribeMirrors(t *testing.T) {
	engine := &rpcEngine{describe: describeEast, mirrors: func() ([]mirror.Summary, error) { return []mirror.Summary{{Name: "east"}}, nil }}
	h, _ := rpcHandlers(t, engine)
	east := mirrormsg.DescribeMirrorsResponseMirror{
		MirrorName: "east", AuthorizedOperations: mirrormsg.AuthorizedOperationsOmitted,
		Topics: []mirrormsg.DescribeMirrorsResponseMirrorTopic{
			{TopicName: "a", Partitions: []mirrormsg.DescribeMirrorsResponseMirrorTopicPartition{
				{Partition: 0, SourceOffset: 10, DestinationOffset: 7, Lag: 3, State: "MIRRORING", SourceLastStableOffset: 9, RecordsPerSecond: 1.5, SourceAgeMillis: 250},
				{Partition: 1, SourceOffset: -1, DestinationOffset: 3, Lag: -1, State: "FAILED", Reason: "gone", SourceLastStableOffset: -1}}},
			{TopicName: "b", Partitions: []mirrormsg.DescribeMirrorsResponseMirrorTopicPartition{
				{Partition: 0, SourceOffset: -1, DestinationOffset: 6, Lag: -1, State: "STOPPED",
					Stop: &mirrormsg.DescribeMirrorsResponseMirrorTopicPartitionStop{LastMirroredOffset: 5, SourceOffset: 6, SourceAgeMillis: 2000, AgeMillis: 60_000}}}},
		},
		Syncs: []mirrormsg.DescribeMirrorsResponseMirrorSync{{Sync: "groups", Cycles: 3, AgeMillis: 1000, Covered: 9}},
	}
	unknown := mirrormsg.DescribeMirrorsResponseMirror{MirrorName: "x", ErrorCode: 42, AuthorizedOperations: mirrormsg.AuthorizedOperationsOmitted}
	ask := func(up *rpcUpstream, operations bool, names ...string) []mirrormsg.DescribeMirrorsResponseMirror {
		return send[*mirrormsg.DescribeMirrorsResponse](t, h, up, &mirrormsg.DescribeMirrorsRequest{MirrorNames: names, IncludeAuthorizedOperations: operations}).Mirrors
	}
	require.Equal(t, []mirrormsg.DescribeMirrorsResponseMirror{east}, ask(newUpstream(t), false), "no names means all")
	require.Equal(t, []mirrormsg.DescribeMirrorsResponseMirror{unknown, east}, ask(newUpstream(t), false, "x", "east", "x"))

	t.Run("null means all", func(t *testing.T) {
		frame := []byte{0, 99, 0, 0, 0, 0, 0, 42, 0xff, 0xff, 0, 0, 0, 0}
		out, err := sendRaw(t, h, newUpstream(t), 99, 0, frame)
		require.NoError(t, err)
		var resp mirrormsg.DescribeMirrorsResponse
		require.NoError(t, resp.ReadFrom(out[5:]))
		require.Equal(t, []mirrormsg.DescribeMirrorsResponseMirror{east}, resp.Mirrors)
	})
	t.Run("operations", func(t *testing.T) {
		up := newUpstream(t)
		up.cluster = 1<<kmsg.ACLOperationDescribe | 1<<kmsg.ACLOperationAlter
		got := ask(up, true, "east", "x")
		require.Equal(t, up.cluster, got[0].AuthorizedOperations)
		require.Equal(t, mirrormsg.AuthorizedOperationsOmitted, got[1].AuthorizedOperations)
	})
	t.Run("without DESCRIBE", func(t *testing.T) {
		up := newUpstream(t)
		up.cluster = 0
		got := ask(up, true, "east", "x")
		require.Len(t, got, 2)
		require.Equal(t, kerr.ClusterAuthorizationFailed.Code, got[0].ErrorCode)
		require.Empty(t, got[0].Topics)
		require.Equal(t, mirrormsg.AuthorizedOperationsOmitted, got[0].AuthorizedOperations)
		all := ask(up, false)
		require.Len(t, all, 1, "all mirrors: the error has a place though no name is known")
		require.Equal(t, kerr.ClusterAuthorizationFailed.Code, all[0].ErrorCode)
	})
	t.Run("own trouble", func(t *testing.T) {
		engine.mirrors = func() ([]mirror.Summary, error) { return nil, errEngine }
		require.Equal(t, kerr.UnknownServerError.Code, ask(newUpstream(t), false)[0].ErrorCode)
	})
}

func TestReadMirrorStates(t *testing.T) {
	engine := &rpcEngine{describe: describeEast}
	h, _ := rpcHandlers(t, engine)
	ask := func(name string, need bool, topics ...mirrormsg.TopicPartitions) *mirrormsg.ReadMirrorStatesResponse {
		return send[*mirrormsg.ReadMirrorStatesResponse](t, h, newUpstream(t),
			&mirrormsg.ReadMirrorStatesRequest{MirrorName: name, Topics: topics, NeedPartitionStates: need})
	}
	type p = mirrormsg.ReadMirrorStatesResponseTopicPartition
	type topic = mirrormsg.ReadMirrorStatesResponseTopic
	require.Equal(t, []topic{
		{Name: "a", Partitions: []p{{Partition: 0, LastMirroredOffset: 7, State: 2}, {Partition: 1, LastMirroredOffset: 3, State: 16}}},
		{Name: "b", Partitions: []p{{Partition: 0, LastMirroredOffset: 5, State: 8}}},
	}, ask("east", true).Topics)
	require.Equal(t, []topic{
		{Name: "x", Partitions: []p{{Partition: 3, LastMirroredOffset: -1, State: 32, ErrorCode: 3}}},
		{Name: "b", Partitions: []p{{Partition: 1, LastMirroredOffset: -1, State: 32, ErrorCode: 3}}},
	}, ask("east", true, asked("x", 3), asked("b", 1)).Topics)
	require.Equal(t, []topic{{Name: "a"}, {Name: "b"}}, ask("east", false).Topics)
	require.Equal(t, []topic{{Name: "b"}}, ask("east", false, asked("x"), asked("b")).Topics)
	require.Equal(t, kerr.InvalidRequest.Code, ask("west", true).ErrorCode)

	engine.coordinator = func(key string) (mirror.Member, error) {
		require.Equal(t, "east", key)
		return mirror.Member{Number: 8, Host: "other", Port: 9092}, nil
	}
	require.Equal(t, kerr.NotCoordinator.Code, ask("east", true).ErrorCode)
	engine.coordinator = func(string) (mirror.Member, error) {
		return mirror.Member{}, mirror.Refuse(kerr.CoordinatorLoadInProgress, "wait")
	}
	require.Equal(t, kerr.CoordinatorLoadInProgress.Code, ask("east", true).ErrorCode)
}

func TestWriteMirrorStates(t *testing.T) {
	type p = mirrormsg.WriteMirrorStatesRequestTopicPartition
	var updates []mirror.StateUpdate
	var removed []string
	engine := &rpcEngine{writeStates: func(name string, u []mirror.StateUpdate, r []string) ([]*mirror.Error, error) {
		require.Equal(t, "east", name)
		updates, removed = u, r
		errs := make([]*mirror.Error, len(u))
		for i := range u {
			if u[i].State == mirror.Mirroring {
				errs[i] = mirror.Refuse(kerr.InvalidRequest, "STOPPED does not go to MIRRORING")
			}
		}
		return errs, nil
	}}
	h, logs := rpcHandlers(t, engine)
	req := mirrormsg.NewPtrWriteMirrorStatesRequest()
	req.MirrorName, req.RemovedTopics = "east", []string{"z"}
	req.TopicsUpdated = []mirrormsg.WriteMirrorStatesRequestTopic{
		{Name: "a", Partitions: []p{{Partition: 0, State: 3}, {Partition: 1, State: 64, LastMirroredOffset: 5},
			{Partition: 2, State: 32}, {Partition: 3, State: 16, LastMirroredOffset: -2}}},
		{Name: "b", Partitions: []p{{Partition: 0, State: 2}, {Partition: 1, State: 8, LastMirroredOffset: -1}}},
	}
	resp := send[*mirrormsg.WriteMirrorStatesResponse](t, h, newUpstream(t), req)
	require.Zero(t, resp.ErrorCode)
	type out = mirrormsg.WriteMirrorStatesResponseTopicPartition
	require.Equal(t, []mirrormsg.WriteMirrorStatesResponseTopic{
		{Name: "a", Partitions: []out{{Partition: 0, ErrorCode: 42}, {Partition: 1}, {Partition: 2, ErrorCode: 42}, {Partition: 3, ErrorCode: 42}}},
		{Name: "b", Partitions: []out{{Partition: 0, ErrorCode: 42}, {Partition: 1}}},
	}, resp.Topics)
	require.Equal(t, []mirror.StateUpdate{
		{Topic: "a", Partition: 1, LastMirrored: 5, State: mirror.Paused},
		{Topic: "b", Partition: 0, State: mirror.Mirroring},
		{Topic: "b", Partition: 1, LastMirrored: -1, State: mirror.Stopped},
	}, updates, "numbers that are no states do not reach the engine")
	require.Equal(t, []string{"z"}, removed)
	require.Equal(t, 1, logs.FilterMessage("mirror state refused").Len())

	engine.coordinator = func(string) (mirror.Member, error) { return mirror.Member{Number: 8}, nil }
	resp = send[*mirrormsg.WriteMirrorStatesResponse](t, h, newUpstream(t), req)
	require.Equal(t, kerr.NotCoordinator.Code, resp.ErrorCode)
	require.Empty(t, resp.Topics)

	engine.coordinator = nil
	for _, answer := range []error{noSuchMirror("east"), errEngine} {
		engine.writeStates = func(string, []mirror.StateUpdate, []string) ([]*mirror.Error, error) { return nil, answer }
		resp = send[*mirrormsg.WriteMirrorStatesResponse](t, h, newUpstream(t), req)
		require.Equal(t, codeOf(h.refusal("", "", answer)), resp.ErrorCode)
		require.Empty(t, resp.Topics)
	}
}
