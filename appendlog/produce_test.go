package appendlog

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func items(partitions ...Partition) []item {
	out := make([]item, len(partitions))
	for i, p := range partitions {
		out[i] = item{log: &Log{p: p}, batch: Batch{Bytes: bytes.Repeat([]byte{byte(i + 1)}, 100+i*70)}}
	}
	return out
}

// TestProducePartsAgreeWithKmsg compares the request around the batches with kmsg's, at every version used.
func TestProducePartsAgreeWithKmsg(t *testing.T) {
	for version := int16(minProduceVersion); version <= maxProduceVersion; version++ {
		a, b, c := [16]byte{1}, [16]byte{2}, [16]byte{15: 3}
		list := items(Partition{Topic: "b", TopicID: b, Partition: 3}, Partition{Topic: "a", TopicID: a, Partition: 1},
			Partition{Topic: "b", TopicID: b, Partition: 0}, Partition{Topic: "c", TopicID: c})
		require.Equal(t, version, produceVersion(version, list))
		batches := make([][]byte, len(list))
		for i := range list {
			batches[i] = list[i].batch.Bytes
		}
		var got []byte
		parts := produceParts(version, 15*time.Second, list)
		for _, part := range parts {
			got = append(got, part...)
		}
		for _, b := range batches {
			require.Condition(t, func() bool {
				for _, part := range parts {
					if len(part) == len(b) && &part[0] == &b[0] {
						return true
					}
				}
				return false
			}, "a batch was copied")
		}
		var req kmsg.ProduceRequest
		req.Version = version
		require.NoError(t, req.ReadFrom(got))
		require.Equal(t, int16(-1), req.Acks)
		require.Equal(t, int32(15000), req.TimeoutMillis)
		require.Nil(t, req.TransactionID)
		require.Len(t, req.Topics, 3)
		if version >= idProduce {
			require.Equal(t, a, req.Topics[0].TopicID)
			require.Equal(t, c, req.Topics[2].TopicID)
		} else {
			require.Equal(t, "a", req.Topics[0].Topic)
			require.Equal(t, "c", req.Topics[2].Topic)
		}
		require.Equal(t, batches[1], req.Topics[0].Partitions[0].Records)
		require.Equal(t, int32(3), req.Topics[1].Partitions[0].Partition)
		require.Equal(t, batches[0], req.Topics[1].Partitions[0].Records)
		require.Equal(t, batches[2], req.Topics[1].Partitions[1].Records)
		require.Equal(t, batches[3], req.Topics[2].Partitions[0].Records)
		require.Equal(t, req.AppendTo(nil), got)
	}
}

// A topic and another one of that name that was made later are two, and a log without an ID has the request name topics.
func TestProduceTopicIDs(t *testing.T) {
	old, young := Partition{Topic: "a", TopicID: [16]byte{1}}, Partition{Topic: "a", TopicID: [16]byte{2}, Partition: 1}
	list := items(young, old, young)
	var got []byte
	for _, part := range produceParts(idProduce, time.Second, list) {
		got = append(got, part...)
	}
	var req kmsg.ProduceRequest
	req.Version = idProduce
	require.NoError(t, req.ReadFrom(got))
	require.Len(t, req.Topics, 2)
	require.Equal(t, old.TopicID, req.Topics[0].TopicID)
	require.Len(t, req.Topics[1].Partitions, 2)
	require.EqualValues(t, idProduce-1, produceVersion(idProduce, items(old, Partition{Topic: "b"})))

	resp := kmsg.NewPtrProduceResponse()
	resp.Version = idProduce
	for _, p := range []Partition{old, young} {
		rt := kmsg.NewProduceResponseTopic()
		rt.TopicID = p.TopicID
		rp := kmsg.NewProduceResponseTopicPartition()
		rp.Partition, rp.BaseOffset = p.Partition, int64(p.TopicID[0])
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
	}
	var from [2]int
	require.EqualValues(t, 1, findAnswer(resp, old, &from).BaseOffset)
	require.EqualValues(t, 2, findAnswer(resp, young, &from).BaseOffset)
	require.Nil(t, findAnswer(resp, Partition{Topic: "a", TopicID: old.TopicID, Partition: 1}, &from))
}

func TestFindAnswer(t *testing.T) {
	resp := kmsg.NewPtrProduceResponse()
	for _, topic := range []string{"a", "b"} {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic = topic
		for p := range int32(3) {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.BaseOffset = p, int64(topic[0])*10+int64(p)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	for _, order := range [][]Partition{
		{{Topic: "a"}, {Topic: "a", Partition: 1}, {Topic: "b", Partition: 2}},
		{{Topic: "b", Partition: 2}, {Topic: "a", Partition: 2}, {Topic: "b"}, {Topic: "a"}},
	} {
		var from [2]int
		for _, p := range order {
			got := findAnswer(resp, p, &from)
			require.NotNil(t, got)
			require.Equal(t, int64(p.Topic[0])*10+int64(p.Partition), got.BaseOffset)
		}
		require.Nil(t, findAnswer(resp, Partition{Topic: "a", Partition: 3}, &from))
		require.Nil(t, findAnswer(resp, Partition{Topic: "c"}, &from))
	}
	var from [2]int
	require.Nil(t, findAnswer(kmsg.NewPtrProduceResponse(), Partition{Topic: "a"}, &from))
}

func TestJudgeCode(t *testing.T) {
	p := Partition{Topic: "t", Partition: 4}
	require.Equal(t, appended, judgeCode(0, nil, p, 5, 6).kind)
	for code, want := range map[*kerr.Error]outcomeKind{
		kerr.OutOfOrderSequenceNumber: refused, kerr.CorruptMessage: refused,
		kerr.InvalidProducerEpoch: fencedOff,
		kerr.MessageTooLarge:      rejected, kerr.RecordListTooLarge: rejected, kerr.InvalidRecord: rejected, kerr.InvalidTimestamp: rejected,
		kerr.NotLeaderForPartition: doubtful, kerr.NotEnoughReplicas: doubtful, kerr.NotEnoughReplicasAfterAppend: doubtful,
		kerr.RequestTimedOut: doubtful, kerr.UnknownTopicOrPartition: doubtful, kerr.KafkaStorageError: doubtful,
		kerr.TopicAuthorizationFailed: doubtful, kerr.ClusterAuthorizationFailed: doubtful, kerr.UnknownServerError: doubtful,
		kerr.UnknownProducerID: doubtful, kerr.DuplicateSequenceNumber: doubtful, kerr.InvalidTxnState: doubtful,
	} {
		o := judgeCode(code.Code, nil, p, 5, 6)
		require.Equal(t, want, o.kind, code.Message)
		require.ErrorIs(t, o.err, code)
	}
	message := "timestamps are too old"
	o := judgeCode(kerr.InvalidTimestamp.Code, &message, p, 5, 6)
	for _, part := range []string{"t-4", "offset 5", "6 bytes", message, "message.timestamp.after.max.ms"} {
		require.ErrorContains(t, o.err, part)
	}
	require.Equal(t, doubtful, judgeCode(9999, nil, p, 5, 6).kind)
}
