package mirrormsg

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// golden are the messages of testdata/golden, whose bytes were written by hand from the KIP, field by field. A file of
// which there is no message here fails the test, and the other way round.
func golden() map[string]any {
	id := [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	east, oops, no := kmsg.StringPtr("east"), kmsg.StringPtr("oops"), kmsg.StringPtr("no")
	var unknown kmsg.Tags
	unknown.Set(9, []byte{0xbe, 0xef})
	asked := []TopicPartitions{{Name: "orders", Partitions: []Partition{{Partition: 0}, {Partition: 7}}}}

	described := []DescribeMirrorsResponseMirrorTopicPartition{
		{Partition: 0, SourceOffset: 10, DestinationOffset: 7, Lag: 3, State: "MIRRORING", SourceLastStableOffset: -1},
		{Partition: 1, SourceOffset: -1, DestinationOffset: 2, Lag: -1, State: "FAILED", Reason: "gone",
			SourceLastStableOffset: 9, RecordsPerSecond: 1.5},
	}
	return map[string]any{
		"019_create_topics_v8_request": createTopicsGolden(id),
		"095_add_topics_to_mirror_request": &AddTopicsToMirrorRequest{Topics: []AddTopicsToMirrorRequestTopic{
			{TopicID: id, TopicName: "orders", MirrorName: east}, {TopicName: "x", UnknownTags: unknown}}},
		"095_add_topics_to_mirror_response": &AddTopicsToMirrorResponse{ThrottleMillis: 5, TopicID: id, ErrorCode: 3,
			ErrorMessage: oops, Topics: []TopicResult{{Name: "a", TopicID: id, ErrorCode: 3, ErrorMessage: no}, {Name: "b"}}},
		"096_remove_topics_from_mirror_request": &RemoveTopicsFromMirrorRequest{MirrorName: "east",
			Topics: []RemoveTopicsFromMirrorRequestTopic{{TopicID: id, TopicName: "orders"}}},
		"096_remove_topics_from_mirror_response": &RemoveTopicsFromMirrorResponse{},
		"097_last_mirrored_offsets_request":      &LastMirroredOffsetsRequest{MirrorName: "east", Topics: asked},
		"097_last_mirrored_offsets_response": &LastMirroredOffsetsResponse{Topics: []LastMirroredOffsetsResponseTopic{
			{Name: "orders", Partitions: []LastMirroredOffsetsResponseTopicPartition{
				{Partition: 0, LastMirroredOffset: 1 << 32}, {Partition: 7, LastMirroredOffset: -1, ErrorCode: 3}}}}},
		"098_list_mirrors_request": &ListMirrorsRequest{},
		"098_list_mirrors_response": &ListMirrorsResponse{Mirrors: []ListMirrorsResponseMirror{
			{MirrorName: "east", SourceBootstrap: "kafka:9092", TopicCount: 6}}},
		"099_describe_mirrors_request": &DescribeMirrorsRequest{MirrorNames: []string{"east", "w"},
			IncludeAuthorizedOperations: true},
		"099_describe_mirrors_response": &DescribeMirrorsResponse{Mirrors: []DescribeMirrorsResponseMirror{
			{MirrorName: "east", AuthorizedOperations: 1<<7 | 1<<8,
				Topics: []DescribeMirrorsResponseMirrorTopic{{TopicName: "orders", Partitions: described}}},
			{ErrorCode: 42, MirrorName: "w", AuthorizedOperations: AuthorizedOperationsOmitted}}},
		"099_describe_mirrors_stopped_response": &DescribeMirrorsResponse{Mirrors: []DescribeMirrorsResponseMirror{
			{MirrorName: "east", AuthorizedOperations: AuthorizedOperationsOmitted,
				Topics: []DescribeMirrorsResponseMirrorTopic{{TopicName: "orders", Partitions: []DescribeMirrorsResponseMirrorTopicPartition{
					{Partition: 3, SourceOffset: 10, DestinationOffset: -1, Lag: -1, State: "STOPPED", SourceLastStableOffset: -1, SourceAgeMillis: 256,
						Stop: &DescribeMirrorsResponseMirrorTopicPartitionStop{LastMirroredOffset: 7, SourceOffset: 9, SourceAgeMillis: -1, AgeMillis: 512}}}}},
				Syncs: []DescribeMirrorsResponseMirrorSync{{Sync: "groups", Cycles: 4, AgeMillis: 100, Covered: 5}}}}},
		"099_describe_mirrors_skipped_response": &DescribeMirrorsResponse{Mirrors: []DescribeMirrorsResponseMirror{
			{MirrorName: "east", AuthorizedOperations: AuthorizedOperationsOmitted, Skipped: []DescribeMirrorsResponseMirrorSkipped{
				{Sync: "acls", Reason: "off", Count: 2, Names: []string{"a"}}, {}}}}},
		"099_describe_mirrors_chain_response": &DescribeMirrorsResponse{Mirrors: []DescribeMirrorsResponseMirror{
			{MirrorName: "east", AuthorizedOperations: AuthorizedOperationsOmitted, SourceClusterID: "c2", Topics: []DescribeMirrorsResponseMirrorTopic{
				{TopicName: "t", TopicID: id, DestinationTopicID: id, OriginTopicID: id, Chain: []DescribeMirrorsResponseMirrorTopicLink{{ClusterID: "c2", MirrorName: "east"}, {MirrorName: "w"}}}}}}},
		"100_read_mirror_states_request": &ReadMirrorStatesRequest{MirrorName: "east", NeedPartitionStates: true,
			Topics: []TopicPartitions{{Name: "orders", Partitions: []Partition{{Partition: 7}}}}},
		"100_read_mirror_states_response": &ReadMirrorStatesResponse{Topics: []ReadMirrorStatesResponseTopic{
			{Name: "orders", Partitions: []ReadMirrorStatesResponseTopicPartition{
				{Partition: 7, LastMirroredOffset: 12, State: 8}}}}},
		"101_write_mirror_states_request": &WriteMirrorStatesRequest{MirrorName: "east", RemovedTopics: []string{"x"},
			TopicsUpdated: []WriteMirrorStatesRequestTopic{{Name: "orders",
				Partitions: []WriteMirrorStatesRequestTopicPartition{{Partition: 7, LastMirroredOffset: 12, State: 64}}}}},
		"101_write_mirror_states_response": &WriteMirrorStatesResponse{ErrorCode: 16,
			Topics: []WriteMirrorStatesResponseTopic{{Name: "orders",
				Partitions: []WriteMirrorStatesResponseTopicPartition{{Partition: 7, ErrorCode: 42}}}}},
		"102_pause_mirror_topics_request": &PauseMirrorTopicsRequest{MirrorName: "east",
			Topics: []MirrorTopic{{TopicName: "orders"}}},
		"102_pause_mirror_topics_response": &PauseMirrorTopicsResponse{ErrorCode: 42, ErrorMessage: oops,
			Topics: []MirrorTopicResult{{Name: "orders", ErrorCode: 42, ErrorMessage: no}}},
		"103_resume_mirror_topics_request": &ResumeMirrorTopicsRequest{MirrorName: "east",
			Topics: []MirrorTopic{{TopicName: "orders"}}},
		"103_resume_mirror_topics_response": &ResumeMirrorTopicsResponse{ErrorCode: 42, ErrorMessage: oops,
			Topics: []MirrorTopicResult{{Name: "orders", ErrorCode: 42, ErrorMessage: no}}},
		"104_delete_mirror_request":  &DeleteMirrorRequest{MirrorName: "east"},
		"104_delete_mirror_response": &DeleteMirrorResponse{ErrorCode: 42, ErrorMessage: oops},
		"107_create_mirror_request": &CreateMirrorRequest{MirrorName: east, ValidateOnly: true,
			Config: []CreateMirrorRequestConfig{
				{Name: "bootstrap.servers", Value: kmsg.StringPtr("kafka:9092")}, {Name: "x"}}},
		"107_create_mirror_plain_request": &CreateMirrorRequest{},
		"107_create_mirror_response":      &CreateMirrorResponse{ErrorCode: 40, ErrorMessage: oops},
	}
}

func createTopicsGolden(id [16]byte) *CreateTopicsRequest {
	req := &CreateTopicsRequest{Version: CreateTopicsVersion, TimeoutMillis: 30_000, ValidateOnly: true}
	orders := CreateTopicsRequestTopic{MirrorInfo: &MirrorInfo{TopicID: id}}
	orders.Topic, orders.NumPartitions, orders.ReplicationFactor = "orders", 3, 2
	orders.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "cleanup.policy", Value: kmsg.StringPtr("compact")}}
	plain := CreateTopicsRequestTopic{}
	plain.Topic, plain.NumPartitions, plain.ReplicationFactor = "plain", -1, -1
	plain.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{1, 2}}}
	req.Topics = []CreateTopicsRequestTopic{orders, plain}
	return req
}

// readHex reads a file of hex digits with comments from # to the end of the line.
func readHex(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		code, _, _ := strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(code), ""))
	}
	frame, err := hex.DecodeString(digits.String())
	require.NoError(t, err, name)
	return frame
}

func goldenFiles(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/golden/*.hex")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

func TestGoldenFrames(t *testing.T) {
	messages := golden()
	require.Len(t, goldenFiles(t), len(messages))
	for _, file := range goldenFiles(t) {
		name := strings.TrimSuffix(filepath.Base(file), ".hex")
		t.Run(name, func(t *testing.T) {
			frame := readHex(t, file)
			switch message := messages[name].(type) {
			case kmsg.Request:
				checkRequest(t, frame, message)
			case kmsg.Response:
				checkResponse(t, frame, message)
			default:
				t.Fatalf("no message for %s", file)
			}
		})
	}
}

func checkRequest(t *testing.T, frame []byte, req kmsg.Request) {
	formatter := kmsg.NewRequestFormatter(kmsg.FormatterClientID("golden"))
	written := formatter.AppendRequest(nil, req, 42)
	require.Equal(t, hex.EncodeToString(frame), hex.EncodeToString(written[4:]))

	const header = 2 + 2 + 4 + 2 + len("golden") + 1
	require.Equal(t, req.Key(), int16(binary.BigEndian.Uint16(frame)))
	read := RequestForKey(req.Key())
	require.NotNil(t, read)
	read.SetVersion(req.GetVersion())
	require.NoError(t, read.ReadFrom(frame[header:]))
	if t, ok := req.(kmsg.SetTimeoutRequest); ok && req.Key() != createTopicsKey {
		t.SetTimeout(DefaultTimeoutMillis) // not on the wire
	}
	require.Equal(t, req, read)
	checkPrefixes(t, frame[header:], read.ReadFrom)
}

func checkResponse(t *testing.T, frame []byte, resp kmsg.Response) {
	const header = 4 + 1
	require.Equal(t, "0000002a00", hex.EncodeToString(frame[:header]))
	require.Equal(t, hex.EncodeToString(frame[header:]), hex.EncodeToString(resp.AppendTo(nil)))
	read := RequestForKey(resp.Key()).ResponseKind()
	require.NoError(t, read.ReadFrom(frame[header:]))
	require.Equal(t, resp, read)
	checkPrefixes(t, frame[header:], read.ReadFrom)
}

// checkPrefixes makes sure that neither a cut-off message nor one with bytes behind it is taken for a whole one.
func checkPrefixes(t *testing.T, body []byte, read func([]byte) error) {
	for n := range len(body) {
		require.Error(t, read(body[:n]), "the first %d of %d bytes", n, len(body))
	}
	require.Error(t, read(append(body[:len(body):len(body)], 0)))
}
