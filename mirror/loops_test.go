package mirror

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/store"
)

func TestLoopText(t *testing.T) {
	chain := func(text ...string) (links []Link) {
		for i := 0; i < len(text); i += 2 {
			links = append(links, Link{ClusterID: text[i], Mirror: text[i+1]})
		}
		return links
	}
	for _, tt := range []struct {
		name  string
		first Link
		rest  []Link
		want  string // the way
	}{
		{"one mirror", Link{"B", "b2a"}, nil, ""},
		{"a chain without a loop", Link{"B", "b2a"}, chain("C", "c2b", "D", "d2c"), ""},
		{"there and back", Link{"B", "b2a"}, chain("A", "a2b"), "A -(mirror a2b)-> B -(mirror b2a)-> A;"},
		{"three clusters", Link{"C", "c2a"}, chain("B", "b2c", "A", "a2b"), "A -(mirror a2b)-> B -(mirror b2c)-> C -(mirror c2a)-> A;"},
		{"what is behind the loop repeats it", Link{"B", "b2a"}, chain("A", "a2b", "B", "b2a", "A", "a2b"), "A -(mirror a2b)-> B -(mirror b2a)-> A;"},
		{"a loop of others", Link{"B", "b2a"}, chain("C", "c2b", "B", "b2c", "A", "?"), ""},
		{"clusters without IDs are not the same", Link{"", "x"}, chain("", "y", "", "z"), ""},
		{"the source itself", Link{"A", "a2a"}, nil, "A -(mirror a2a)-> A;"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := loopText("t", joinChain(tt.first, tt.rest, "A"), "A")
			if tt.want == "" {
				require.Empty(t, got)
				return
			}
			require.Contains(t, got, tt.want)
		})
	}
	require.Empty(t, loopText("t", chain("", "x"), ""), "an unknown destination is not an unknown source")
}

// Two gateways in a loop tell each other what they were told, for ever: the chain must not grow.
func TestChainsDoNotGrow(t *testing.T) {
	var a, b []Link // what A's and B's gateways tell of the topic
	for range 10 {
		a, b = joinChain(Link{"B", "b2a"}, b, "A"), joinChain(Link{"A", "a2b"}, a, "B")
	}
	require.Equal(t, []Link{{"B", "b2a"}, {"A", "a2b"}}, a)
	require.Equal(t, []Link{{"A", "a2b"}, {"B", "b2a"}}, b)

	var long []Link
	for i := range 100 {
		long = joinChain(Link{fmt.Sprint(i), "m"}, long, "")
	}
	require.Len(t, long, longestChain)
}

// aroundTheWorld is a source whose gateway mirrors topics from the world's destination.
func aroundTheWorld(topics ...string) *peer {
	back := peerMirror{name: "back", topics: make(map[string]peerTopic)}
	for _, topic := range topics {
		back.topics[topic] = peerTopic{chain: []Link{{ClusterID: "destination-cluster", Mirror: "back"}}}
	}
	return &peer{gateway: true, mirrors: []peerMirror{back}}
}

const aroundText = "destination-cluster -(mirror back)-> source-cluster -(mirror m)-> destination-cluster;"

// In a loop the source shows the topic by another ID. If that is noticed first, the loop is told all the same; but it is no reason to
// forget what else a topic has failed for.
func TestLoopThatLooksLikeAnotherSource(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("remade", 1)
	w.sourceTopic("written", 1)
	w.add("remade", "written")
	w.eventually(func() bool { return len(w.replication("m").runs()) == 2 }, "running")
	reasons := map[string]string{"remade": replication.SourceRemade + ": its ID is …", "written": "somebody else wrote to it"}
	for topic, reason := range reasons {
		w.replication("m").events.StateChanged(replication.StateChange{Topic: topic, From: Mirroring, To: Failed, Reason: reason, Permanent: true})
		w.eventually(func() bool { return w.partition(topic, 0).Reason == reason }, "failed")
	}
	w.m.mirror("m").failLoops(aroundTheWorld("remade", "written"), "destination-cluster")
	w.eventually(func() bool { return strings.Contains(w.partition("remade", 0).Reason, aroundText) }, "the loop is told")
	require.Equal(t, Failed, w.partition("remade", 0).State)
	require.Equal(t, reasons["written"], w.partition("written", 0).Reason)
}

// The other side was quicker with everything: by the time that the destination topic would be made, the source shows another ID.
func TestLoopBeforeTheTopicIsMade(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1)
	run := w.m.mirror("m")
	w.eventually(func() bool { return run.peer.Load() != nil }, "the source was asked")
	run.peer.Store(aroundTheWorld("t"))
	require.NoError(t, w.m.update(w.context(), store.Update{Key: store.TopicKey("m", "t"), Fn: store.Typed(func(*store.Topic) (*store.Topic, error) {
		return &store.Topic{Mirror: "m", Name: "t", SourceID: TopicID{1}, Partitions: 1, State: int8(Initializing)}, nil
	})}))
	w.eventually(func() bool { return strings.Contains(w.partition("t", 0).Reason, aroundText) }, "the loop is told")
	require.Equal(t, Initializing, w.partition("t", 0).State)
}

// A topic that the source's gateway is making has the ID that the source's cluster gave it, for a moment: it is not taken for the topic's.
func TestTopicThatTheSourceIsMaking(t *testing.T) {
	stays, passing := TopicID{1}, TopicID{2}
	chain := []Link{{ClusterID: "A", Mirror: "a2b"}}
	p := &peer{gateway: true, mirrors: []peerMirror{
		{name: "a2b", topics: map[string]peerTopic{"made": {chain: chain, id: stays}, "stopped": {stopped: true, id: stays}, "old": {chain: chain}}},
		{name: "untold", topics: map[string]peerTopic{"made": {}}},
	}}
	require.ErrorIs(t, p.settled("made", passing), errBeingMade)
	require.NoError(t, p.settled("made", stays))
	require.NoError(t, p.settled("made", TopicID{}), "a source without topic IDs")
	require.NoError(t, p.settled("stopped", passing), "clients may have made it anew")
	require.NoError(t, p.settled("old", passing), "its own source has no topic IDs")
	require.NoError(t, p.settled("other", passing))
}
