package handlers

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// stamped gives a batch of this package's making its offset and producer, as the log has it.
func stamped(batch []byte, offset, producer int64) []byte {
	binary.BigEndian.PutUint64(batch, uint64(offset))
	binary.BigEndian.PutUint32(batch[12:], 6) // leader epoch, not under the CRC
	binary.BigEndian.PutUint64(batch[43:], uint64(producer))
	binary.BigEndian.PutUint16(batch[51:], 0)
	fixCRC(batch)
	return batch
}

func fixCRC(batch []byte) {
	binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
}

// data makes an uncompressed batch of one record.
func data(offset, producer int64, key, value []byte) []byte {
	record := []byte{0, 0, 0}
	for _, b := range [][]byte{key, value} {
		if b == nil {
			record = append(record, 1)
			continue
		}
		record = binary.AppendVarint(record, int64(len(b)))
		record = append(record, b...)
	}
	record = append(record, 0)
	payload := append(binary.AppendVarint(nil, int64(len(record))), record...)
	batch := kmsg.RecordBatch{
		FirstOffset: offset, Length: int32(49 + len(payload)), PartitionLeaderEpoch: 6, Magic: 2,
		ProducerID: producer, ProducerEpoch: 0, FirstSequence: int32(offset), NumRecords: 1, Records: payload,
	}
	out := batch.AppendTo(nil)
	fixCRC(out)
	return out
}

// partitionRecords makes the record data of a partition as the destination has it and as clients must see it.
func partitionRecords(rng *rand.Rand) (stored, seen []byte) {
	offset, whole := int64(rng.IntN(1000)), false
	var marker []byte
	for range rng.IntN(6) {
		offset += int64(rng.IntN(3)) // a hole, as the cleaner leaves it
		switch kind := rng.IntN(7); kind {
		case 0, 1, 2:
			count := 1 + rng.IntN(300)
			filler := recordbatch.AppendFiller(nil, count, kind == 1, int64(rng.IntN(1000)))
			if kind == 2 {
				count, filler = 1, recordbatch.AppendFence(nil, rng.IntN(2) == 0, 5)
			}
			stored = append(stored, stamped(filler, offset, mirrorProducer)...)
			offset += int64(count)
			h, _ := recordbatch.ParseHeader(filler)
			marker = recordbatch.AppendCommitMarker(nil, offset-1, h.LeaderEpoch, h.ProducerID, h.ProducerEpoch, h.MaxTimestamp)
			continue
		case 3: // a user's own batch that looks like a filler
			batch := stamped(recordbatch.AppendFiller(nil, 1, true, 5), offset, 99)
			stored, seen = append(stored, batch...), append(seen, batch...)
		case 4: // a mirrored tombstone with a key of its own, one with null key and value
			batch := data(offset, mirrorProducer, []byte("some key of 16 b"), nil)
			if rng.IntN(2) == 0 {
				batch = data(offset, mirrorProducer, nil, nil)
			}
			stored, seen = append(stored, batch...), append(seen, batch...)
		default:
			batch := data(offset, [...]int64{-1, 99, mirrorProducer}[rng.IntN(3)], []byte("k"), make([]byte, rng.IntN(300)))
			stored, seen = append(stored, batch...), append(seen, batch...)
		}
		offset, whole = offset+1, true
	}
	hidden := marker != nil
	if rng.IntN(3) == 0 { // brokers cut off the last batch
		cut := stamped(recordbatch.AppendFiller(nil, 1, true, 5), offset, mirrorProducer)
		cut = cut[:1+rng.IntN(len(cut)-1)]
		stored = append(stored, cut...)
		if whole || !hidden {
			seen = append(seen, cut...)
		}
	}
	if hidden && !whole {
		seen = append(seen, marker...)
	}
	return stored, seen
}

// shownAt adds base to the leader epochs of whole batches.
func shownAt(records []byte, base int64) []byte {
	for rest := records; ; {
		batch, tail, err := recordbatch.Next(rest)
		if err != nil {
			return records
		}
		epoch := batch[recordbatch.LeaderEpochAt:]
		binary.BigEndian.PutUint32(epoch, binary.BigEndian.Uint32(epoch)+uint32(base))
		rest = tail
	}
}

// TestFillersAreHidden: random answers in every version are, byte for byte, what they would be had the destination no
// fillers, but for a marker where nothing is left.
func TestFillersAreHidden(t *testing.T) {
	h, _ := newStubHandlers(t, writableTopics())
	markers := 0
	for _, key := range []int16{keyFetch, 78} {
		m := layout.Response(key)
		for v := m.Versions.From; v < m.Versions.Until; v++ {
			for seed := range int16(80) {
				stored, seen := destinationSide(newRand(key, v, seed)), clientSide(newRand(key, v, seed))
				stored.Records = func() []byte { b, _ := partitionRecords(stored.Rand); return b }
				seen.Records = func() []byte { _, b := partitionRecords(seen.Rand); return shownAt(b, seen.base()) }
				frame := responseFrame(key, v, stored.Append(nil, m, v))
				want := responseFrame(key, v, seen.Append(nil, m, v))
				rewrite := h.rewriteResponse(key, h.engine.Topics(), v)
				require.NotNil(t, rewrite)
				got, err := rewrite(frame)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, got), "%s v%d seed %d", m.Name, v, seed)
				markers += bytes.Count(got, []byte{32, 0, 0, 0, 8, 0, 0, 0, 1})
			}
		}
	}
	require.Greater(t, markers, 100, "the case of an empty answer was met")
}

// TestFillersOfAYoungerMirror: the answer of a long poll is judged by what is known when it comes.
func TestFillersOfAYoungerMirror(t *testing.T) {
	engine := &stubEngine{topics: mirror.NewTopics([]mirror.Topic{{Name: "new", ReadOnly: true}}, nil)}
	h, err := New(Config{Engine: engine, Addresses: stubAddresses{t}})
	require.NoError(t, err)
	rewrite := h.Route(stubClient{1}, header(keyFetch, 11)).Rewrite
	engine.topics = mirror.NewTopics([]mirror.Topic{{Name: "new", ReadOnly: true}}, []int64{mirrorProducer})

	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 11
	topic := kmsg.NewFetchResponseTopic()
	partition := kmsg.NewFetchResponseTopicPartition()
	partition.RecordBatches = stamped(recordbatch.AppendFiller(nil, 10, false, 5), 90, mirrorProducer)
	topic.Topic, topic.Partitions = "new", append(topic.Partitions, partition)
	resp.Topics = append(resp.Topics, topic)
	out, err := rewrite(responseFrame(keyFetch, 11, resp.AppendTo(nil)))
	require.NoError(t, err)
	records := decodeResponse(t, out, resp).Topics[0].Partitions[0].RecordBatches
	head, err := recordbatch.ParseHeader(records)
	require.NoError(t, err)
	require.NoError(t, recordbatch.CheckCRC(records))
	require.True(t, head.Control() && head.Transactional())
	require.Equal(t, int64(99), head.BaseOffset)
}

func BenchmarkFetchWithoutFillers(b *testing.B) {
	h, err := New(Config{Engine: &stubEngine{topics: someTopics()}, Addresses: anyAddress{}})
	require.NoError(b, err)
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 17
	for i := range 3 {
		topic := kmsg.NewFetchResponseTopic()
		topic.TopicID = destinationID(i)
		for range 10 {
			partition := kmsg.NewFetchResponseTopicPartition()
			for offset := range int64(20) {
				partition.RecordBatches = append(partition.RecordBatches, data(offset, mirrorProducer, []byte("k"), make([]byte, 16<<10))...)
			}
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	frame := responseFrame(keyFetch, 17, resp.AppendTo(nil))
	rewrite := h.rewriteResponse(keyFetch, h.engine.Topics(), 17)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := rewrite(frame); err != nil {
			b.Fatal(err)
		}
	}
}
