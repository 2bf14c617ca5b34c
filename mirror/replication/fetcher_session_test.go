package replication

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// become makes the wants those of positions.
func (w *fetchWants) become(gen uint64, positions map[string]int64) *fetchWants {
	for key := range maps.Clone(w.at) {
		if _, ok := positions[key.Topic]; !ok {
			w.remove(key)
		}
	}
	for name, offset := range positions {
		w.set(cluster.TopicPartition{Topic: name}, fetchPosition{topicID: cluster.TopicID{name[0]}, offset: offset, epoch: 1, lastEpoch: -1, gen: gen})
	}
	return w
}

// show writes a request as "id/epoch +a@5 -b".
func show(req *kmsg.FetchRequest) string {
	var parts []string
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			parts = append(parts, fmt.Sprintf("+%s@%d", t.Topic, p.FetchOffset))
		}
	}
	for _, t := range req.ForgottenTopics {
		parts = append(parts, "-"+t.Topic)
	}
	slices.Sort(parts)
	return strings.TrimSpace(fmt.Sprintf("v%d %d/%d %s", req.Version, req.SessionID, req.SessionEpoch, strings.Join(parts, " ")))
}

func answer(version int16, id int32, code int16) *kmsg.FetchResponse {
	return &kmsg.FetchResponse{Version: version, SessionID: id, ErrorCode: code}
}

func TestFetchSessionIsIncremental(t *testing.T) {
	var s fetchSession
	want := newFetchWants()
	request := func(gen uint64, at map[string]int64) string {
		return show(s.request(17, want.become(gen, at), 100))
	}
	require.Equal(t, "v17 0/0 +a@0 +b@0", request(1, map[string]int64{"a": 0, "b": 0}))
	require.NoError(t, s.response(answer(17, 77, 0)))
	require.Equal(t, "v17 77/1 +a@5", request(2, map[string]int64{"a": 5, "b": 0}), "a new generation alone is no change")
	require.NoError(t, s.response(answer(17, 77, 0)))
	require.Equal(t, "v17 77/2 +c@0 -b", request(3, map[string]int64{"a": 5, "c": 0}))
	require.NoError(t, s.response(answer(17, 77, 0)))
	require.Equal(t, "v17 77/3 +b@0", request(4, map[string]int64{"a": 5, "b": 0, "c": 0}))

	key, p, ok := s.lookup(&kmsg.FetchResponseTopic{TopicID: cluster.TopicID{'b'}}, 0)
	require.True(t, ok)
	require.Equal(t, "b", key.Topic)
	require.EqualValues(t, 4, p.gen)
	_, _, ok = s.lookup(&kmsg.FetchResponseTopic{TopicID: cluster.TopicID{'x'}}, 0)
	require.False(t, ok, "what was not asked for")
}

func TestFetchSessionReplacesAnID(t *testing.T) {
	var s fetchSession
	want := newFetchWants().become(1, map[string]int64{"a": 0, "b": 0})
	s.request(17, want, 100)
	require.NoError(t, s.response(answer(17, 77, 0)))
	want.set(cluster.TopicPartition{Topic: "a"}, fetchPosition{topicID: cluster.TopicID{'A'}, epoch: 1, lastEpoch: -1, gen: 2})
	require.Equal(t, "v17 77/1 +a@0 -a", show(s.request(17, want, 100)))
}

// M14: whatever goes wrong with the session, the next request is a full one.
func TestFetchSessionStartsOver(t *testing.T) {
	at := map[string]int64{"a": 0, "b": 0}
	for _, tt := range []struct {
		name string
		code int16
		id   int32
		fail bool
		want string
	}{
		{name: "epoch", code: kerr.InvalidFetchSessionEpoch.Code, fail: true, want: "v17 77/0 +a@0 +b@0"},
		{name: "not found", code: kerr.FetchSessionIDNotFound.Code, fail: true, want: "v17 0/0 +a@0 +b@0"},
		{name: "topic ID error", code: kerr.FetchSessionTopicIDError.Code, fail: true, want: "v17 77/0 +a@0 +b@0"},
		{name: "other", code: kerr.UnknownServerError.Code, fail: true, want: "v17 77/0 +a@0 +b@0"},
		{name: "closed by the broker", id: 0, want: "v17 0/0 +a@0 +b@0"},
		{name: "another session", id: 78, want: "v17 77/0 +a@0 +b@0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s fetchSession
			want := newFetchWants().become(1, at)
			s.request(17, want, 100)
			require.NoError(t, s.response(answer(17, 77, 0)))
			require.Equal(t, "v17 77/1", show(s.request(17, want, 100)))
			err := s.response(answer(17, tt.id, tt.code))
			require.Equal(t, tt.fail, err != nil)
			require.Equal(t, tt.want, show(s.request(17, want, 100)))
			require.NoError(t, s.response(answer(17, 79, 0)))
			require.Equal(t, "v17 79/1", show(s.request(17, want, 100)))
		})
	}
	t.Run("connection lost", func(t *testing.T) {
		var s fetchSession
		want := newFetchWants().become(1, at)
		s.request(17, want, 100)
		require.NoError(t, s.response(answer(17, 77, 0)))
		s.startOver()
		require.Equal(t, "v17 77/0 +a@0 +b@0", show(s.request(17, want, 100)))
	})
}

func TestFetchSessionByName(t *testing.T) {
	var s fetchSession
	want := newFetchWants().become(1, map[string]int64{"a": 0, "b": 0})
	require.Equal(t, "v17 0/0 +a@0 +b@0", show(s.request(17, want, 100)))
	require.NoError(t, s.response(answer(17, 77, 0)))
	// One topic without an ID: everything by name, in a new session.
	want.set(cluster.TopicPartition{Topic: "c"}, fetchPosition{gen: 1})
	require.Equal(t, "v12 77/0 +a@0 +b@0 +c@0", show(s.request(17, want, 100)))
	require.NoError(t, s.response(answer(12, 80, 0)))
	require.Equal(t, "v12 80/1", show(s.request(17, want, 100)))
	_, _, ok := s.lookup(&kmsg.FetchResponseTopic{Topic: "c"}, 0)
	require.True(t, ok)

	// Before v7 there are no sessions.
	var old fetchSession
	for range 2 {
		require.Equal(t, "v5 0/-1 +a@0 +b@0 +c@0", show(old.request(5, want, 100)))
		require.NoError(t, old.response(answer(5, 0, 0)))
	}
	// A broker with no free slot.
	var none fetchSession
	for range 2 {
		require.Equal(t, "v11 0/0 +a@0 +b@0 +c@0", show(none.request(11, want, 100)))
		require.NoError(t, none.response(answer(11, 0, 0)))
	}
}

// TestFetchSessionSaysWhatChanged: whatever changes between two requests, the broker's session is what is wanted.
func TestFetchSessionSaysWhatChanged(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var s fetchSession
	want, broker := newFetchWants(), make(map[string]int64)
	names := []string{"a", "b", "c", "d", "e"}
	for range 2000 {
		for range r.IntN(6) {
			key := cluster.TopicPartition{Topic: names[r.IntN(len(names))]}
			if r.IntN(3) == 0 {
				want.remove(key)
				continue
			}
			id := cluster.TopicID{key.Topic[0]}
			if r.IntN(30) == 0 {
				id = cluster.TopicID{}
			}
			want.set(key, fetchPosition{topicID: id, offset: r.Int64N(3), epoch: 1, gen: r.Uint64()})
		}
		req := s.request(17, want, 100)
		if req.SessionEpoch == 0 {
			clear(broker)
		}
		for _, f := range req.ForgottenTopics {
			require.Contains(t, broker, f.Topic)
			delete(broker, f.Topic)
		}
		nameless := false
		for _, topic := range req.Topics {
			broker[topic.Topic] = topic.Partitions[0].FetchOffset
		}
		wanted := make(map[string]int64)
		for key, p := range want.at {
			wanted[key.Topic] = p.offset
			nameless = nameless || p.topicID == (cluster.TopicID{})
		}
		require.Equal(t, wanted, broker)
		require.Equal(t, !nameless, req.Version >= 13)
		if r.IntN(20) == 0 {
			s.startOver()
		} else {
			require.NoError(t, s.response(answer(req.Version, 77, 0)))
		}
	}
}
