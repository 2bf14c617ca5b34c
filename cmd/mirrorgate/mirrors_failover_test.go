package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// stops makes partitions STOPPED, as "stopOffset sourceOffset sourceAgeMs" of each.
func stops(m mirrormsg.DescribeMirrorsResponseMirror, of map[string][][3]int64) mirrormsg.DescribeMirrorsResponseMirror {
	for i := range m.Topics {
		for j, stop := range of[m.Topics[i].TopicName] {
			p := &m.Topics[i].Partitions[j]
			p.State, p.DestinationOffset, p.SourceOffset, p.Lag = "STOPPED", -1, -1, -1
			p.Stop = &mirrormsg.DescribeMirrorsResponseMirrorTopicPartitionStop{LastMirroredOffset: stop[0], SourceOffset: stop[1], SourceAgeMillis: stop[2]}
		}
	}
	return m
}

func describedBy(m mirrormsg.DescribeMirrorsResponseMirror) kmsg.Response {
	return &mirrormsg.DescribeMirrorsResponse{Mirrors: []mirrormsg.DescribeMirrorsResponseMirror{m}}
}

func TestFailover(t *testing.T) {
	removed, tries := false, 0
	groups := mirrormsg.DescribeMirrorsResponseMirrorSync{Sync: "groups", Cycles: 7, AgeMillis: 12_340, Covered: 42}
	s := startStub(t, func(req kmsg.Request) kmsg.Response {
		if _, ok := req.(*mirrormsg.RemoveTopicsFromMirrorRequest); ok {
			switch tries++; tries {
			case 1:
				return nil // the gateway dies
			case 2:
				return &mirrormsg.RemoveTopicsFromMirrorResponse{ErrorCode: 7, ErrorMessage: text("STOPPING, but not STOPPED yet")}
			}
			removed = true
			return &mirrormsg.RemoveTopicsFromMirrorResponse{}
		}
		m := mirrorOf(map[string][]string{"orders": {"MIRRORING 3", "MIRRORING 0"}, "payments": {"PREPARING -1"}})
		m.Topics[0].Partitions[0].SourceAgeMillis = 1500
		m.Syncs = []mirrormsg.DescribeMirrorsResponseMirrorSync{groups}
		m.Skipped = []mirrormsg.DescribeMirrorsResponseMirrorSkipped{{Sync: "groups", Reason: "has members at the destination", Count: 2, Names: []string{"a", "b"}}}
		if removed {
			m = stops(m, map[string][][3]int64{"orders": {{100, 105, 65_000}, {90, 90, 0}}, "payments": {{0, -1, -1}}})
		}
		return describedBy(m)
	})
	got := s.mirrors(t, "failover", "--mirror", "east", "--all-topics", "--dry-run")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Equal(t, ""+
		"TOPIC     PARTITION  STATE      STOP-OFFSET  SOURCE-OFFSET  LAG      SOURCE-HEARD\n"+
		"orders    0          MIRRORING  100          103            3        1.5s ago\n"+
		"orders    1          MIRRORING  100          100            0        never\n"+
		"payments  0          PREPARING  100          -              unknown  never\n\n"+
		"Nothing was changed. A failover now would leave at the source what LAG shows, and what it took since it was last heard.\n"+
		"Lag: 3 records in 1 of 3 partitions are known to be at the source only; of 1 partitions nothing is known.\n"+
		"What the source took after it was last heard is not known here, and comes on top.\n"+
		"Groups: 42 in place, last synced 12.3s ago.\n  2 skipped: has members at the destination (a, b)\n", got.stdout)
	require.Zero(t, tries)

	got = s.mirrors(t, "failover", "--mirror", "east", "--topics", "orders,payments")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, ""+
		"orders    0          STOPPED  100          105            5        1m5s before the stop\n"+
		"orders    1          STOPPED  90           90             0        after the stop\n"+
		"payments  0          STOPPED  0            -              unknown  never\n")
	require.Contains(t, got.stdout, "and writable: orders, payments.\nLag: 5 records in 1 of 3 partitions")
	require.Contains(t, got.stderr, "mirror east: not stopped yet (REQUEST_TIMED_OUT: STOPPING, but not STOPPED yet), asking again")

	got = s.mirrors(t, "failover", "--mirror", "east", "--topics", "orders,other")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "failing over mirror east: topic other is not in the mirror")
	require.Equal(t, exitUsage, s.mirrors(t, "failover", "--mirror", "east").code)

	groups.AgeMillis = 1000
	s.set(func(req kmsg.Request) kmsg.Response {
		if _, ok := req.(*mirrormsg.RemoveTopicsFromMirrorRequest); ok {
			return &mirrormsg.RemoveTopicsFromMirrorResponse{ErrorCode: 29, ErrorMessage: text("orders: no"), Topics: []mirrormsg.TopicResult{{Name: "orders", ErrorCode: 29, ErrorMessage: text("this needs ALTER")}}}
		}
		return describedBy(mirrorOf(map[string][]string{"orders": {"MIRRORING 3"}}))
	})
	got = s.mirrors(t, "failover", "--mirror", "east", "--all-topics", "--json")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "nothing was stopped:\n  orders: TOPIC_AUTHORIZATION_FAILED: this needs ALTER")
	requireJSON(t, `{"mirror": "east", "error": {"code": 29, "name": "TOPIC_AUTHORIZATION_FAILED", "message": "orders: no"},
		"topics": [{"name": "orders", "error": {"code": 29, "name": "TOPIC_AUTHORIZATION_FAILED", "message": "this needs ALTER"}, "partitions": []}],
		"lag": 0, "unknownPartitions": 0, "tookMs": 0}`, got.stdout)
	s.set(func(req kmsg.Request) kmsg.Response {
		return describedBy(stops(mirrorOf(map[string][]string{"orders": {"MIRRORING 3"}}), map[string][][3]int64{"orders": {{5, 7, 10}}}))
	})
	requireJSON(t, `{"mirror": "east", "dryRun": true, "topics": [{"name": "orders", "partitions": [
		{"partition": 0, "state": "STOPPED", "stopOffset": 5, "sourceOffset": 7, "sourceAgeMs": 10, "lag": 2}]}],
		"lag": 2, "unknownPartitions": 0, "groups": {"inPlace": -1, "ageMs": -1}, "tookMs": 0}`,
		s.mirrors(t, "failover", "--mirror", "east", "--all-topics", "--dry-run", "--json").stdout)
}
