package layout_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
)

// harmless are the UUIDs, epochs and hosts that clients may see, with the reason. A field that a newer Kafka adds is in
// spots.txt but neither here nor marked, and fails the test.
var harmless = map[string]string{
	"SnapshotId.Epoch":     "of the metadata log",
	"Topology.Epoch":       "of a streams group",
	"ServerAssignor":       "the name of an assignor",
	"ReplicaDirectoryId":   "log directory",
	"VoterDirectoryId":     "log directory",
	"CandidateDirectoryId": "log directory",
	"Directories.Id":       "log directory",
	"OfflineLogDirs":       "log directory",
	"CordonedLogDirs":      "log directory",
	"LogDirs":              "log directory",
	"IncarnationId":        "of a broker process",
	"ClientInstanceId":     "of a client",
	"ClientHost":           "a client's address",
	"Acls.Host":            "user's data",
	"HostFilter":           "user's data",
	"Creations.Host":       "user's data",
	"MatchingAcls.Host":    "user's data",
	"UserEndpoint.Host":    "a streams instance's address",
	"Listeners.Host":       "in a request: what the sender says of itself",
	"LeaderEndpoints.Host": "in a request: what the sender says of itself",
}

// amongBrokers are the messages with leader epochs that no client sends or gets, or that are about the metadata log.
var amongBrokers = []string{
	"Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "DescribeQuorum", "AlterPartition", "FetchSnapshot", "UpdateRaftVoter",
	"ReadShareGroupState", "WriteShareGroupState", "ReadShareGroupStateSummary",
}

func TestEveryTopicIDEpochAndAddressIsMarkedOrHarmless(t *testing.T) {
	text, err := os.ReadFile("testdata/spots.txt")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Greater(t, len(lines), 80)
	for _, line := range lines {
		f := strings.Fields(line)
		path, mark := f[1], f[4]
		if mark != "-" {
			continue
		}
		known := false
		for suffix := range harmless {
			known = known || strings.HasSuffix(path, "."+suffix)
		}
		for _, name := range amongBrokers {
			known = known || strings.HasSuffix(path, "LeaderEpoch") && (strings.HasPrefix(path, name+"Request.") || strings.HasPrefix(path, name+"Response."))
		}
		require.True(t, known, "%s is not marked", path)
		require.NotEqual(t, "TopicId", path[strings.LastIndexByte(path, '.')+1:])
		if strings.HasSuffix(path, "isteners.Host") || strings.HasSuffix(path, "Endpoints.Host") {
			require.Contains(t, path, "Request.")
		}
	}
}

// TestSpotsMatchTables ties the list to the tables, so that neither is generated without the other.
func TestSpotsMatchTables(t *testing.T) {
	text, err := os.ReadFile("testdata/spots.txt")
	require.NoError(t, err)
	listed := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		f := strings.Fields(line)
		listed[f[0]+" "+strings.SplitN(f[1], ".", 2)[0]+" "+f[4]]++
	}
	counted := map[string]int{}
	for key := range layout.Keys {
		for _, m := range []*layout.Message{layout.Request(key), layout.Response(key)} {
			count(m.Fields, func(mark layout.Mark) {
				counted[fmt.Sprintf("%d %s %s", key, m.Name, mark)]++
			})
		}
	}
	for what, n := range counted {
		switch strings.Fields(what)[2] {
		case "TopicID", "BrokerHost", "Listeners", "ControllerHost", "LeaderEpoch", "EndOfEpoch":
			require.Equal(t, listed[what], n, what)
			delete(listed, what)
		}
	}
	for what := range listed {
		require.True(t, strings.HasSuffix(what, " -"), "%s is not in the tables", what)
	}
}

func count(fields []layout.Field, add func(layout.Mark)) {
	for _, f := range fields {
		add(f.Mark)
		count(f.Fields, add)
	}
}

// TestSpotsMatchWhatWasReadByHand compares with a list that was read by hand from the definitions of Kafka 4.4.
func TestSpotsMatchWhatWasReadByHand(t *testing.T) {
	topicIDs := map[string][2]int16{ // first version in request and response, -1 for never
		"Produce": {13, 13}, "Fetch": {13, 13}, "Metadata": {10, 10}, "OffsetCommit": {10, 10}, "OffsetFetch": {10, 10},
		"CreateTopics": {-1, 7}, "DeleteTopics": {6, 6}, "TxnOffsetCommit": {6, 6}, "ConsumerGroupHeartbeat": {0, 0},
		"ConsumerGroupDescribe": {-1, 0}, "DescribeTopicPartitions": {-1, 0}, "ShareGroupHeartbeat": {-1, 0},
		"ShareGroupDescribe": {-1, 0}, "ShareFetch": {0, 0}, "ShareAcknowledge": {0, 0},
		"DescribeShareGroupOffsets": {-1, 0}, "AlterShareGroupOffsets": {-1, 0}, "DeleteShareGroupOffsets": {-1, 0},
		"AlterPartition": {2, 2}, "AssignReplicasToDirs": {0, 0}, "InitializeShareGroupState": {0, 0},
		"ReadShareGroupState": {0, 0}, "WriteShareGroupState": {0, 0}, "DeleteShareGroupState": {0, 0},
		"ReadShareGroupStateSummary": {0, 0},
	}
	addresses := map[string]int16{
		"Metadata": 0, "FindCoordinator": 0, "DescribeCluster": 0, "Produce": 10, "Fetch": 16, "ShareFetch": 0, "ShareAcknowledge": 0,
	}
	epochs := map[string][2]int16{
		"Produce": {-1, 10}, "Fetch": {9, 12}, "ListOffsets": {4, 4}, "Metadata": {-1, 7}, "OffsetCommit": {6, -1}, "OffsetFetch": {-1, 5},
		"OffsetForLeaderEpoch": {2, 1}, "TxnOffsetCommit": {2, -1}, "DescribeTopicPartitions": {-1, 0}, "ShareFetch": {-1, 0},
		"ShareAcknowledge": {-1, 0}, "DescribeShareGroupOffsets": {-1, 0},
	}
	for key := range layout.Keys {
		req, resp := layout.Request(key), layout.Response(key)
		name := strings.TrimSuffix(req.Name, "Request")
		ids, ok := topicIDs[name]
		if !ok {
			ids = [2]int16{-1, -1}
		}
		require.Equal(t, ids, [2]int16{first(req, layout.TopicID), first(resp, layout.TopicID)}, name)
		epoch, ok := epochs[name]
		if !ok {
			epoch = [2]int16{-1, -1}
		}
		require.Equal(t, epoch, [2]int16{first(req, layout.LeaderEpoch), first(resp, layout.LeaderEpoch)}, name)
		address, ok := addresses[name]
		if !ok {
			address = -1
		}
		require.Equal(t, address, first(resp, layout.BrokerHost), name)
	}
}

// first returns the first version of m that has mark; versions that Kafka dropped count.
func first(m *layout.Message, mark layout.Mark) int16 {
	for v := range m.Versions.Until {
		if m.Has(v, mark) {
			return v
		}
	}
	return -1
}
