package handlers

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/handlers/layout/layouttest"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// largeProduce is produceTo with IDs and records of its own.
func largeProduce(version int16, records int, topics ...any) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TransactionID = version, -1, kmsg.StringPtr("tx")
	for _, topic := range topics {
		t := kmsg.ProduceRequestTopic{}
		if name, ok := topic.(string); ok {
			t.Topic = name
		} else {
			t.TopicID = topic.(mirror.TopicID)
		}
		for p := range int32(2) {
			t.Partitions = append(t.Partitions, kmsg.ProduceRequestTopicPartition{Partition: p, Records: bytes.Repeat([]byte{'r'}, records)})
		}
		req.Topics = append(req.Topics, t)
	}
	return requestFrame(keyProduce, version, req.AppendTo(nil))
}

// open asks the handlers about the first bytes of a request.
func open(t *testing.T, h *Handlers, version int16, start []byte) *proxy.Pass {
	t.Helper()
	route := h.Route(stubClient{1}, header(keyProduce, version))
	require.True(t, route.Whole)
	require.NotNil(t, route.Opening)
	return route.Opening(start)
}

// TestLargeProducePasses: a request for one topic that may be written to passes by its beginning, with the destination's topic
// ID; all others are seen whole, and unchanged.
func TestLargeProducePasses(t *testing.T) {
	h, _ := newStubHandlers(t, cutTopics(time.Now().Add(time.Hour)))
	for v := range layout.Request(keyProduce).Versions.Until {
		names := []any{"plain", "done", "held", "old"}
		if v >= 13 {
			names = []any{mirror.TopicID{42}, sourceID(1), sourceID(0), destinationID(2)}
		}
		for i, topic := range names {
			frame := largeProduce(v, 50_000, topic)
			start := bytes.Clone(frame[:4<<10])
			pass := open(t, h, v, start)
			if i > 1 {
				require.Nil(t, pass, "v%d %v", v, topic)
				require.Equal(t, frame[:4<<10], start)
				continue
			}
			require.NotNil(t, pass, "v%d %v", v, topic)
			require.NoError(t, pass.Still())
			want := frame
			if v >= 13 && i == 1 {
				want = largeProduce(v, 50_000, destinationID(1))
			}
			require.Equal(t, want[:4<<10], start)
			require.Equal(t, v >= 10, pass.Rewrite != nil, "addresses and topic IDs in the answer")
		}
		for _, topics := range [][]any{{}, {names[0], names[1]}, {names[0], names[2]}} {
			frame := largeProduce(v, 50_000, topics...)
			start := bytes.Clone(frame[:min(4<<10, len(frame))])
			require.Nil(t, open(t, h, v, start))
			require.Equal(t, frame[:len(start)], start)
		}
	}
}

// TestPassesUntilReadOnly: a topic that becomes a read-only mirror while a request comes in takes nothing of it.
func TestPassesUntilReadOnly(t *testing.T) {
	for v, names := range map[int16][3]any{9: {"new", "new", "plain"}, 13: {mirror.TopicID{7}, sourceID(1), mirror.TopicID{42}}} {
		engine := &liveEngine{}
		engine.topics.Store(mirror.NewTopics(nil, nil))
		h, err := New(Config{Engine: engine, Addresses: stubAddresses{t}})
		require.NoError(t, err)
		first := h.Route(stubClient{1}, header(keyProduce, v)).Opening(largeProduce(v, 50_000, names[0]))
		require.NotNil(t, first, "there is no mirror yet")
		engine.topics.Store(mirror.NewTopics([]mirror.Topic{
			{Name: "done", Mirror: "east", SourceID: sourceID(1), DestinationID: destinationID(1), State: mirror.Stopped},
			{Name: "held", Mirror: "east", SourceID: sourceID(0), DestinationID: destinationID(0), State: mirror.Mirroring, ReadOnly: true},
		}, nil))
		var passes []*proxy.Pass
		for _, name := range names {
			pass := open(t, h, v, largeProduce(v, 50_000, name))
			require.NotNil(t, pass)
			require.NoError(t, pass.Still())
			passes = append(passes, pass)
		}
		engine.topics.Store(mirror.NewTopics([]mirror.Topic{
			{Name: "done", Mirror: "east", SourceID: sourceID(1), DestinationID: destinationID(1), State: mirror.Mirroring, ReadOnly: true},
			{Name: "new", Mirror: "east", SourceID: sourceID(3), DestinationID: mirror.TopicID{7}, State: mirror.Mirroring, ReadOnly: true},
		}, nil))
		require.ErrorIs(t, first.Still(), errBecameReadOnly)
		require.ErrorIs(t, passes[0].Still(), errBecameReadOnly)
		require.ErrorIs(t, passes[1].Still(), errBecameReadOnly)
		require.NoError(t, passes[2].Still())
	}
}

// walkedTopics are the topics of a Produce request, as a walk over all of it finds them.
func walkedTopics(frame []byte, version int16) (topics []string, err error) {
	m := layout.Request(keyProduce)
	at, err := requestBodyAt(frame, m.Flexible.Has(version))
	if err != nil {
		return nil, err
	}
	_, err = m.Walk(frame, at, version, func(s layout.Spot) error {
		if s.Mark == layout.TopicName || s.Mark == layout.TopicID {
			topics = append(topics, string(frame[s.Start:s.End]))
		}
		return nil
	})
	return topics, err
}

// TestOnlyTopic: the beginning of a random request says what kmsg reads from the whole, or it is too short to say anything.
func TestOnlyTopic(t *testing.T) {
	only, others := 0, 0
	for v := range layout.Request(keyProduce).Versions.Until {
		for seed := range int16(300) {
			g := &layouttest.Generator{Rand: newRand(v, seed)}
			body := g.Append(nil, layout.Request(keyProduce), v)
			frame := requestFrame(keyProduce, v, body)
			var req kmsg.ProduceRequest
			req.SetVersion(v)
			require.NoError(t, req.ReadFrom(body))
			known := false
			for n := range len(frame) + 1 {
				spot, ok := onlyTopic(frame[:n:n], v)
				if !ok {
					require.False(t, known, "v%d seed %d: %d bytes say less", v, seed, n)
					continue
				}
				known = true
				require.Len(t, req.Topics, 1)
				name := req.Topics[0].Topic
				if v >= 13 {
					name = string(req.Topics[0].TopicID[:])
				}
				require.Equal(t, name, string(frame[spot.Start:spot.End]))
			}
			require.Equal(t, len(req.Topics) == 1, known)
			if known {
				only++
			} else {
				others++
			}
		}
	}
	require.Greater(t, only, 500)
	require.Greater(t, others, 500)
}

// FuzzOnlyTopic: whatever the bytes are, a request of which the beginning names its only topic has no other, if it can be read
// at all.
func FuzzOnlyTopic(f *testing.F) {
	for v := range layout.Request(keyProduce).Versions.Until {
		f.Add(v, largeProduce(v, 20, "plain"))
		f.Add(v, largeProduce(v, 20, "plain", "held"))
	}
	f.Fuzz(func(t *testing.T, version int16, frame []byte) {
		if version < 0 || version >= layout.Request(keyProduce).Versions.Until {
			return
		}
		spot, ok := onlyTopic(frame, version)
		topics, err := walkedTopics(frame, version)
		switch {
		case !ok && err == nil && len(topics) == 1 && topics[0] != "": // a null name is for a broker to refuse
			t.Fatalf("the only topic of a whole request is not found: %q", topics)
		case ok && err == nil && (len(topics) != 1 || topics[0] != string(frame[spot.Start:spot.End])):
			t.Fatalf("%q is said to be the only topic of %q", frame[spot.Start:spot.End], topics)
		}
	})
}

// BenchmarkOpenProduce is what a large Produce request costs the handlers.
func BenchmarkOpenProduce(b *testing.B) {
	h, err := New(Config{Engine: &stubEngine{topics: someTopics()}, Addresses: anyAddress{}})
	require.NoError(b, err)
	frame := largeProduce(11, 50_000, "plain")
	b.ReportAllocs()
	for b.Loop() {
		if h.Route(stubClient{1}, header(keyProduce, 11)).Opening(frame[:4<<10]) == nil {
			b.Fatal("it does not pass")
		}
	}
}
