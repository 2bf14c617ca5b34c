package handlers

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// passed sends a frame through a stream in pieces of random size, as sockets give them.
func passed(h *Handlers, version int16, frame []byte, rng *rand.Rand) ([]byte, error) {
	frame = bytes.Clone(frame)
	passage := h.streamFetch(h.engine.Topics(), version)(len(frame))
	var out []byte
	for len(frame) > 0 {
		n := min(len(frame), 1+rng.IntN(1+rng.IntN(200)))
		pieces, err := passage.Feed(frame[:n:n])
		for _, p := range pieces {
			out = append(out, p...)
		}
		clear(frame[:n]) // the socket's buffer is used again
		if frame = frame[n:]; err != nil {
			return out, err
		}
	}
	return out, passage.End()
}

// TestStreamedFetch: a random answer that passes is, however it is cut into pieces, of the same length as before and the
// same for its reader as one that is rewritten as a whole, which is the oracle here.
func TestStreamedFetch(t *testing.T) {
	h, _ := newStubHandlers(t, writableTopics())
	m := layout.Response(keyFetch)
	same, differ := 0, 0
	for v := m.Versions.From; v < m.Versions.Until; v++ {
		for seed := range int16(300) {
			rng := newRand(v, seed)
			stored := destinationSide(newRand(keyFetch, v, seed))
			stored.Records = func() []byte { b, _ := partitionRecords(stored.Rand); return b }
			frame := responseFrame(keyFetch, v, stored.Append(nil, m, v))
			want, err := h.rewriteFrame(keyFetch, h.engine.Topics(), v, bytes.Clone(frame))
			require.NoError(t, err)
			got, err := passed(h, v, frame, rng)
			require.NoError(t, err)
			require.Len(t, got, len(frame), "v%d seed %d", v, seed)
			again, err := passed(h, v, frame, rng)
			require.NoError(t, err)
			require.True(t, bytes.Equal(got, again), "v%d seed %d: the pieces make a difference", v, seed)
			if bytes.Equal(want, got) {
				same++
				continue
			}
			differ++
			require.Equal(t, visible(t, v, want), visible(t, v, got), "v%d seed %d", v, seed)
		}
	}
	require.Greater(t, same, 500)
	require.Greater(t, differ, 500)
}

// visible decodes an answer to what a reader takes from it.
func visible(t *testing.T, version int16, frame []byte) *kmsg.FetchResponse {
	t.Helper()
	at, err := responseBodyAt(frame, keyFetch, layout.Response(keyFetch).Flexible.Has(version))
	require.NoError(t, err)
	var resp kmsg.FetchResponse
	resp.SetVersion(min(version, resp.MaxVersion()))
	require.NoError(t, resp.ReadFrom(frame[at:]))
	resp.Brokers, resp.UnknownTags = nil, kmsg.Tags{} // hints, which may be left out
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			records := &resp.Topics[i].Partitions[j].RecordBatches
			*records = wholeBatches(*records)
		}
	}
	return &resp
}

// wholeBatches leaves out what is cut off. Batches without records, which readers skip, do not count: what is too small to
// have a marker in its place stays.
func wholeBatches(records []byte) []byte {
	out := []byte{}
	for {
		batch, rest, err := recordbatch.Next(records)
		if err != nil {
			return out
		}
		out, records = append(out, batch...), rest
	}
}

// TestStreamedEndpoints: endpoints of brokers are the gateway's if they fit, and otherwise nobody's; the broker's own never
// pass.
func TestStreamedEndpoints(t *testing.T) {
	h, _ := newStubHandlers(t, writableTopics())
	kept := 0
	for node := range int32(60) {
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = 17
		broker := kmsg.NewFetchResponseBroker()
		broker.NodeID, broker.Host, broker.Port = node, "upstream-broker-of-some-name", 30_000+node
		resp.Brokers = append(resp.Brokers, broker)
		out, err := passed(h, 17, responseFrame(keyFetch, 17, resp.AppendTo(nil)), newRand(int16(node)))
		require.NoError(t, err)
		require.NotContains(t, string(out), "upstream")
		got := decodeResponse(t, out, resp).Brokers
		if len(got) == 0 {
			continue
		}
		kept++
		require.Equal(t, gatewayHost(node), got[0].Host)
		require.Equal(t, 9093+node, got[0].Port)
	}
	require.Equal(t, 1, kept, "one has the right length")
}

// TestStreamedLargeBatch: fillers between batches that are larger than any read are found, whatever is read at a time.
func TestStreamedLargeBatch(t *testing.T) {
	h, _ := newStubHandlers(t, writableTopics())
	large := func(offset int64) []byte { return data(offset, mirrorProducer, []byte("k"), make([]byte, 1_000_000)) }
	var stored, seen []byte
	for i := range int64(5) {
		batch := large(i * 200_000)
		stored, seen = append(stored, batch...), append(seen, batch...)
		stored = append(stored, stamped(recordbatch.AppendFiller(nil, recordbatch.FillerBatchRecords, i%2 == 0, 5), i*200_000+1, mirrorProducer)...)
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 12
	topic := kmsg.NewFetchResponseTopic()
	partition := kmsg.NewFetchResponseTopicPartition()
	partition.RecordBatches = stored
	topic.Topic, topic.Partitions = "any", append(topic.Partitions, partition)
	resp.Topics = append(resp.Topics, topic)
	frame := responseFrame(keyFetch, 12, resp.AppendTo(nil))
	for _, read := range []int{1 << 16, 1 << 18, len(frame)} {
		passage := h.streamFetch(h.engine.Topics(), 12)(len(frame))
		var out []byte
		for chunk := range slices.Chunk(bytes.Clone(frame), read) {
			pieces, err := passage.Feed(chunk)
			require.NoError(t, err)
			for _, p := range pieces {
				out = append(out, p...)
			}
		}
		require.NoError(t, passage.End())
		got := decodeResponse(t, out, resp).Topics[0].Partitions[0].RecordBatches
		require.Len(t, got, len(stored))
		require.True(t, bytes.Equal(seen, wholeBatches(got)), "reads of %d", read)
		// The rest is the beginning of a batch that is longer than what is there, as readers check it.
		rest := got[len(seen):]
		require.Greater(t, int(binary.BigEndian.Uint32(rest[8:]))+12, len(rest))
		require.Equal(t, byte(2), rest[16])
	}
}

// TestLargeFetchStreams: a route has a stream exactly where the answer has something to rewrite.
func TestLargeFetchStreams(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	require.NotNil(t, h.Route(stubClient{1}, header(keyFetch, 11)).Stream)
	nothing, _ := newStubHandlers(t, mirror.NewTopics(nil, nil))
	require.Nil(t, nothing.Route(stubClient{1}, header(keyFetch, 11)).Stream)
	require.NotNil(t, nothing.Route(stubClient{1}, header(keyFetch, 17)).Stream, "addresses")
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(17)
	d := h.Request(stubClient{1}, header(keyFetch, 17), requestFrame(keyFetch, 17, req.AppendTo(nil)))
	require.NotNil(t, d.Forward)
	require.NotNil(t, d.Stream, "a request whose topic IDs were translated")
}

// FuzzStreamedFetch: what is refused as a whole is refused on its way and the other way round, and nothing else happens to
// bytes that are no answer.
func FuzzStreamedFetch(f *testing.F) {
	m := layout.Response(keyFetch)
	for v := m.Versions.From; v < m.Versions.Until; v++ {
		side := destinationSide(newRand(keyFetch, v))
		side.Records = func() []byte { b, _ := partitionRecords(side.Rand); return b }
		f.Add(v, uint64(v), responseFrame(keyFetch, v, side.Append(nil, m, v)))
	}
	h, err := New(Config{Engine: &stubEngine{topics: writableTopics()}, Addresses: anyAddress{}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, version int16, seed uint64, frame []byte) {
		if version < m.Versions.From || version >= m.Versions.Until || len(frame) == 0 {
			return
		}
		want, wantErr := h.rewriteFrame(keyFetch, h.engine.Topics(), version, bytes.Clone(frame))
		got, gotErr := passed(h, version, frame, rand.New(rand.NewPCG(seed, 1)))
		if (wantErr == nil) != (gotErr == nil) {
			t.Fatalf("whole: %v, streamed: %v", wantErr, gotErr)
		}
		if gotErr != nil {
			return
		}
		if len(got) != len(frame) {
			t.Fatalf("%d bytes became %d", len(frame), len(got))
		}
		_ = want
	})
}

// BenchmarkStreamedFetch is an answer of 10 MB with topic IDs to translate, in reads of the size that the proxy has, without
// and with fillers.
func BenchmarkStreamedFetch(b *testing.B) {
	for _, fillers := range []bool{false, true} {
		name := map[bool]string{false: "records", true: "fillers"}[fillers]
		b.Run(name, func(b *testing.B) { benchmarkStreamedFetch(b, fillers) })
	}
}

func benchmarkStreamedFetch(b *testing.B, fillers bool) {
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
				partition.RecordBatches = append(partition.RecordBatches, data(2*offset, mirrorProducer, []byte("k"), make([]byte, 16<<10))...)
				if fillers {
					partition.RecordBatches = append(partition.RecordBatches, stamped(recordbatch.AppendFiller(nil, 1, false, 5), 2*offset+1, mirrorProducer)...)
				}
			}
			topic.Partitions = append(topic.Partitions, partition)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	frame := responseFrame(keyFetch, 17, resp.AppendTo(nil))
	stream := h.streamFetch(h.engine.Topics(), 17)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		passage := stream(len(frame))
		for chunk := range slices.Chunk(frame, 256<<10) {
			if _, err := passage.Feed(chunk); err != nil {
				b.Fatal(err)
			}
		}
		if err := passage.End(); err != nil {
			b.Fatal(err)
		}
	}
}
