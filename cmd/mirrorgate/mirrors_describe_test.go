package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// mirrorOf is a DescribeMirrors answer: topics by name, partitions as "STATE lag".
func mirrorOf(topics map[string][]string) mirrormsg.DescribeMirrorsResponseMirror {
	m := mirrormsg.NewDescribeMirrorsResponseMirror()
	m.MirrorName = "east"
	for _, name := range []string{"orders", "payments", "audit"} {
		if topics[name] == nil {
			continue
		}
		topic := mirrormsg.DescribeMirrorsResponseMirrorTopic{TopicName: name}
		for i, description := range topics[name] {
			p := mirrormsg.NewDescribeMirrorsResponseMirrorTopicPartition()
			p.Partition, p.DestinationOffset = int32(i), 100
			_, err := fmt.Sscan(description, &p.State, &p.Lag)
			if err != nil {
				panic(err)
			}
			p.SourceOffset = p.DestinationOffset + p.Lag
			if p.Lag < 0 {
				p.SourceOffset = -1
			}
			if p.State == "FAILED" {
				p.Reason = "foreign write\nat 7"
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		m.Topics = append(m.Topics, topic)
	}
	return m
}

func TestDescribe(t *testing.T) {
	s := startStub(t, func(kmsg.Request) kmsg.Response {
		return &mirrormsg.DescribeMirrorsResponse{Mirrors: []mirrormsg.DescribeMirrorsResponseMirror{
			mirrorOf(map[string][]string{"orders": {"MIRRORING 3", "FAILED -1"}, "audit": {"STOPPED 0"}})}}
	})
	got := s.mirrors(t, "describe", "--mirror", "east")
	require.Equal(t, result{stdout: "" +
		"MIRROR  TOPIC   PARTITION  STATE      SOURCE-OFFSET  DESTINATION-OFFSET  LAG  RECORDS/S  REASON\n" +
		"east    orders  0          MIRRORING  103            100                 3    0\n" +
		"east    orders  1          FAILED     -              100                 -    0          foreign write at 7\n" +
		"east    audit   0          STOPPED    100            100                 0    0\n"}, got)
	require.Equal(t, []string{"east"}, s.requests()[0].(*mirrormsg.DescribeMirrorsRequest).MirrorNames)
	requireJSON(t, `{"mirrors": [{"name": "east", "topics": [{"name": "orders", "partitions": [
		{"partition": 0, "state": "MIRRORING", "sourceOffset": 103, "sourceLastStableOffset": -1, "destinationOffset": 100, "lag": 3, "recordsPerSecond": 0, "reason": ""},
		{"partition": 1, "state": "FAILED", "sourceOffset": -1, "sourceLastStableOffset": -1, "destinationOffset": 100, "lag": -1, "recordsPerSecond": 0, "reason": "foreign write\nat 7"}
		]}]}]}`, s.mirrors(t, "describe", "--topics-pattern", "or.*", "--json").stdout)
	require.NotContains(t, s.mirrors(t, "describe", "--topics", "audit").stdout, "orders")
	require.Contains(t, s.mirrors(t, "describe", "--topics", "none").stdout, "nothing to show")

	s.set(func(kmsg.Request) kmsg.Response {
		return &mirrormsg.DescribeMirrorsResponse{Mirrors: []mirrormsg.DescribeMirrorsResponseMirror{
			mirrorOf(map[string][]string{"orders": {"MIRRORING 3"}}), {ErrorCode: 42, MirrorName: "north"}}}
	})
	got = s.mirrors(t, "describe", "--mirror", "east", "--mirror", "north")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stdout, "orders", "what is known is shown")
	require.Contains(t, got.stderr, "describing mirror north: INVALID_REQUEST: there is no such mirror")

	s.set(func(kmsg.Request) kmsg.Response {
		return &mirrormsg.DescribeMirrorsResponse{Mirrors: []mirrormsg.DescribeMirrorsResponseMirror{{ErrorCode: 31}}}
	})
	got = s.mirrors(t, "describe")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "describing mirrors: CLUSTER_AUTHORIZATION_FAILED")
}

// scripted answers DescribeMirrors with one step after the other, the last one again and again.
func scripted(steps ...map[string][]string) func(kmsg.Request) kmsg.Response {
	return func(req kmsg.Request) kmsg.Response {
		switch req := req.(type) {
		case *mirrormsg.AddTopicsToMirrorRequest:
			return addResponse(req)
		case *mirrormsg.ListMirrorsRequest:
			return &mirrormsg.ListMirrorsResponse{Mirrors: []mirrormsg.ListMirrorsResponseMirror{{MirrorName: "east"}}}
		}
		step := steps[0]
		if len(steps) > 1 {
			steps = steps[1:]
		}
		if step == nil {
			return nil // the gateway is gone for a moment
		}
		return &mirrormsg.DescribeMirrorsResponse{Mirrors: []mirrormsg.DescribeMirrorsResponseMirror{mirrorOf(step)}}
	}
}

func TestWait(t *testing.T) {
	type step = map[string][]string
	wait := []string{"--wait", "--interval", "5ms"}
	add := append([]string{"add-topics", "--mirror", "east", "--topics", "orders,payments"}, wait...)
	start := []step{
		{},
		{"orders": {"INITIALIZING -1"}},
		{"orders": {"MIRRORING 5", "PREPARING -1"}, "payments": {"MIRRORING 0"}, "audit": {"FAILED 0"}},
		{"orders": {"MIRRORING 5", "PREPARING -1"}, "payments": {"MIRRORING 0"}},
	}
	s := startStub(t, scripted(append(start, step{"orders": {"MIRRORING 0", "MIRRORING 0"}, "payments": {"MIRRORING 0"}})...))
	got := s.mirrors(t, add...)
	require.Equal(t, result{stdout: "Added to mirror east: orders, payments.\nMirrored up to the end: orders, payments.\n", stderr: "" +
		"orders: not in the mirror yet\n" +
		"payments: not in the mirror yet\n" +
		"orders: 0 of 1 partitions mirroring, lag 0 and not known of 1, partition 0 is INITIALIZING\n" +
		"orders: 1 of 2 partitions mirroring, lag 5 and not known of 1, partition 1 is PREPARING\n" +
		"payments: 1 of 1 partitions mirroring, lag 0\n" +
		"orders: 2 of 2 partitions mirroring, lag 0\n"}, got)

	s.set(scripted(append(start, step{"orders": {"MIRRORING 0", "FAILED -1"}, "payments": {"MIRRORING 0"}})...))
	got = s.mirrors(t, add...)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "mirrorgate: topic orders partition 1 is FAILED: foreign write")

	s.set(scripted(step{"orders": {"MIRRORING 0"}, "payments": {"STOPPED 0"}}))
	got = s.mirrors(t, add...)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "topic payments partition 0 is STOPPED: no reason given")

	s.set(scripted(step{"orders": {"MIRRORING 1"}, "payments": {"MIRRORING 0"}}))
	got = s.mirrors(t, append(add, "--timeout", "50ms")...)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "mirror east has not caught up within 50ms")

	s.set(scripted(step{"orders": {"MIRRORING 1"}}, nil, nil, nil, nil, step{"orders": {"MIRRORING 0"}}))
	got = s.mirrors(t, append([]string{"describe", "--json"}, wait...)...)
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, `"lag": 0`)
}

func TestRemoveTopics(t *testing.T) {
	var removed []string
	s := startStub(t, func(req kmsg.Request) kmsg.Response {
		switch req := req.(type) {
		case *mirrormsg.RemoveTopicsFromMirrorRequest:
			removed = nil
			for _, topic := range req.Topics {
				removed = append(removed, topic.TopicName)
			}
			return &mirrormsg.RemoveTopicsFromMirrorResponse{}
		case *mirrormsg.DescribeMirrorsRequest:
			if req.MirrorNames[0] != "east" {
				return &mirrormsg.DescribeMirrorsResponse{Mirrors: []mirrormsg.DescribeMirrorsResponseMirror{{MirrorName: req.MirrorNames[0], ErrorCode: 42}}}
			}
			return &mirrormsg.DescribeMirrorsResponse{Mirrors: []mirrormsg.DescribeMirrorsResponseMirror{
				mirrorOf(map[string][]string{"orders": {"MIRRORING 0", "STOPPED 0"}, "payments": {"FAILED 0"}, "audit": {"STOPPED 0", "STOPPED 0"}})}}
		}
		return nil
	})
	got := s.mirrors(t, "remove-topics", "--mirror", "east", "--topics", "x")
	require.Equal(t, result{stdout: "Removed from mirror east, and writable: x.\n"}, got)
	require.Equal(t, []string{"x"}, removed)
	require.Equal(t, exitOK, s.mirrors(t, "remove-topics", "--mirror", "east", "--all-topics").code)
	require.Equal(t, []string{"orders", "payments"}, removed, "those that are not removed yet")
	require.Equal(t, exitOK, s.mirrors(t, "remove-topics", "--mirror", "east", "--topics-pattern", "pay.*").code)
	require.Equal(t, []string{"payments"}, removed)

	got = s.mirrors(t, "remove-topics", "--mirror", "east", "--topics-pattern", "aud.*")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "the mirror has no such topics")
	got = s.mirrors(t, "remove-topics", "--mirror", "north", "--all-topics")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "removing topics from mirror north: INVALID_REQUEST: there is no such mirror")
}
