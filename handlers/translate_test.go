package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

const epochBase = int32(1 << 24)

func TestLevelsOfEpochs(t *testing.T) {
	for _, c := range []struct {
		epoch int32
		level int8
	}{{-1, 1}, {0, 1}, {1<<24 - 1, 1}, {1 << 24, 2}, {7<<24 + 5, 8}, {1<<31 - 1, 127}} {
		require.Equal(t, c.level, mirror.EpochLevel(c.epoch), "%d", c.epoch)
		if c.level < 127 {
			require.Greater(t, mirror.EpochBaseOf(c.level), c.epoch)
		}
	}
	require.Equal(t, epochBase, mirror.EpochBaseOf(0), "a record of an older gateway")
	require.Positive(t, mirror.EpochBaseOf(127))
}

// TestEpochsOfTheSourceInRequests: what a client remembers of the source does not disturb the destination.
func TestEpochsOfTheSourceInRequests(t *testing.T) {
	h, _ := newStubHandlers(t, writableTopics())
	for v := int16(9); v <= 18; v++ {
		req := kmsg.NewPtrFetchRequest()
		req.Version = v
		topic := kmsg.FetchRequestTopic{Topic: "a", TopicID: sourceID(0)}
		for _, epochs := range [][2]int32{{5, 4}, {-1, -1}, {epochBase + 3, epochBase + 2}, {epochBase + 3, 4}} {
			p := kmsg.NewFetchRequestTopicPartition()
			p.CurrentLeaderEpoch, p.LastFetchedEpoch = epochs[0], epochs[1]
			topic.Partitions = append(topic.Partitions, p)
		}
		plain := topic
		plain.Topic, plain.TopicID = "plain", [16]byte{42}
		req.Topics = []kmsg.FetchRequestTopic{topic, plain}
		seen := forwarded(t, askFor(h, req), req)
		for i, want := range [][2]int32{{-1, -1}, {-1, -1}, {3, 2}, {3, -1}} {
			got := seen.Topics[0].Partitions[i]
			require.Equal(t, want[0], got.CurrentLeaderEpoch, "v%d, partition %d", v, i)
			require.Equal(t, topic.Partitions[i].CurrentLeaderEpoch, seen.Topics[1].Partitions[i].CurrentLeaderEpoch, "another topic")
			if v >= 12 {
				require.Equal(t, want[1], got.LastFetchedEpoch, "v%d, partition %d", v, i)
			}
		}
	}
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version = 9
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "a", Partitions: []kmsg.OffsetCommitRequestTopicPartition{
		{Offset: 7, LeaderEpoch: 5}, {Offset: 8, LeaderEpoch: epochBase + 1},
	}}}
	partitions := forwarded(t, askFor(h, commit), commit).Topics[0].Partitions
	require.Equal(t, []int32{-1, 1}, []int32{partitions[0].LeaderEpoch, partitions[1].LeaderEpoch})
}

// TestEndsOfEpochsOfTheSource: the mirror's log has all that the source wrote in its epochs, so that the end of any of
// them is the end of the log.
func TestEndsOfEpochsOfTheSource(t *testing.T) {
	h, _ := newStubHandlers(t, writableTopics())
	for v := int16(2); v <= 4; v++ {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version = v
		topic := kmsg.OffsetForLeaderEpochRequestTopic{Topic: "a"}
		for _, epochs := range [][2]int32{{epochBase + 3, 5}, {epochBase + 3, epochBase + 1}, {5, 5}, {-1, 5}, {-1, epochBase + 2}, {-1, -1}} {
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.CurrentLeaderEpoch, p.LeaderEpoch = epochs[0], epochs[1]
			topic.Partitions = append(topic.Partitions, p)
		}
		req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{topic}
		seen := forwarded(t, askFor(h, req), req)
		for i, want := range [][2]int32{{3, 3}, {3, 1}, {5, 5}, {-1, 5}, {-1, 2}, {-1, -1}} {
			p := seen.Topics[0].Partitions[i]
			require.Equal(t, want, [2]int32{p.CurrentLeaderEpoch, p.LeaderEpoch}, "v%d, partition %d", v, i)
		}
	}
}

// TestEpochsInRecords: batches show the epochs of their topic, and so does the marker that stands for fillers.
func TestEpochsInRecords(t *testing.T) {
	h, _ := newStubHandlers(t, writableTopics())
	batch := func(epoch int32, filler bool) []byte {
		b := data(7, -1, []byte("k"), []byte("v"))
		if filler {
			b = stamped(recordbatch.AppendFiller(nil, 3, false, 5), 7, mirrorProducer)
		}
		b[recordbatch.LeaderEpochAt+3] = byte(epoch)
		return b
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 16
	for _, id := range [][16]byte{destinationID(0), {42}} {
		resp.Topics = append(resp.Topics, kmsg.FetchResponseTopic{TopicID: id, Partitions: []kmsg.FetchResponseTopicPartition{
			{RecordBatches: append(batch(3, false), batch(4, false)...)}, {RecordBatches: batch(5, true)},
		}})
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version = 16
	out, err := askFor(h, req).Rewrite(responseFrame(keyFetch, 16, resp.AppendTo(nil)))
	require.NoError(t, err)
	got := decodeResponse(t, out, resp)
	for i, base := range []int32{epochBase, 0} {
		var epochs []int32
		for _, p := range got.Topics[i].Partitions {
			for rest := p.RecordBatches; len(rest) > 0; {
				one, tail, err := recordbatch.Next(rest)
				require.NoError(t, err)
				header, err := recordbatch.ParseHeader(one)
				require.NoError(t, err)
				epochs = append(epochs, header.LeaderEpoch)
				rest = tail
			}
		}
		require.Equal(t, []int32{base + 3, base + 4, base + 5}, epochs)
	}
}
