package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// TestSettling plays looks at a mirror: "end lag ageMs" of each partition, and the cycles of group syncs.
func TestSettling(t *testing.T) {
	start := time.Now()
	type look struct {
		at         int // seconds
		partitions []string
		cycles     int64
		want       string // the status, "done", or an error
	}
	for name, looks := range map[string][]look{
		"quiet": {
			{0, []string{"10 4 1"}, 3, "lag 4"},
			{1, []string{"10 0 1"}, 3, "caught up; the source has stood still for 0s of 5s, 0 of 2 group syncs"},
			{3, []string{"10 0 1"}, 5, "caught up; the source has stood still for 2s of 5s, 2 of 2 group syncs"},
			{6, []string{"10 0 999"}, 5, "caught up; the source has stood still for 4s of 5s, 2 of 2 group syncs"},
			{7, []string{"10 0 1"}, 5, "done"},
		},
		"one group sync may have begun before": {
			{0, []string{"10 0 1"}, 3, "caught up; the source has stood still for 0s of 5s, 0 of 2 group syncs"},
			{9, []string{"10 0 1"}, 4, "caught up; the source has stood still for 9s of 5s, 1 of 2 group syncs"},
			{10, []string{"10 0 1"}, 5, "done"},
		},
		"written to, and mirrored at once": {
			{0, []string{"10 0 1", "7 0 1"}, 3, "caught up; the source has stood still for 0s of 5s, 0 of 2 group syncs"},
			{4, []string{"10 0 1", "8 0 1"}, 9, "caught up; the source has stood still for 0s of 5s, 0 of 2 group syncs"},
			{6, []string{"10 0 1", "8 0 1"}, 9, "caught up; the source has stood still for 2s of 5s, 0 of 2 group syncs"},
		},
		"the source is not heard": {
			{0, []string{"10 0 1"}, 3, "caught up; the source has stood still for 0s of 5s, 0 of 2 group syncs"},
			{8, []string{"10 0 8000"}, 9, "caught up; the source has stood still for 0s of 5s, 2 of 2 group syncs"},
			{9, []string{"-1 -1 0"}, 9, "caught up; the source has stood still for 0s of 5s, 0 of 2 group syncs; t partition 0: the source has not been heard"},
		},
		"a new partition": {
			{0, []string{"10 0 1"}, 3, "caught up; the source has stood still for 0s of 5s, 0 of 2 group syncs"},
			{9, []string{"10 0 1", "0 0 1"}, 9, "caught up; the source has stood still for 0s of 5s, 0 of 2 group syncs"},
		},
		"the gateway was restarted": {
			{0, []string{"10 0 1"}, 9, "caught up; the source has stood still for 0s of 5s, 0 of 2 group syncs"},
			{9, []string{"10 0 1"}, 1, "caught up; the source has stood still for 0s of 5s, 0 of 2 group syncs"},
			{15, []string{"10 0 1"}, 3, "done"},
		},
		"failed": {{0, []string{"10 0 1 FAILED"}, 3, "t partition 0 is FAILED: it broke"}},
		"paused": {{0, []string{"10 0 1 PAUSED"}, 3, "t partition 0 is PAUSED: it broke"}},
		"not at work": {
			{0, []string{"10 0 1 PREPARING"}, 3, "caught up; the source has stood still for 0s of 5s, 0 of 2 group syncs; t partition 0 is PREPARING"},
			{9, []string{"10 0 1 PREPARING"}, 9, "caught up; the source has stood still for 0s of 5s, 0 of 2 group syncs; t partition 0 is PREPARING"},
		},
		"stopped before": {
			{0, []string{"10 0 1 STOPPED", "3 0 1"}, 3, "caught up; the source has stood still for 0s of 5s, 0 of 2 group syncs"},
			{6, []string{"11 0 1 STOPPED", "3 0 1"}, 5, "done"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &settling{settle: 5 * time.Second, groups: true}
			for _, l := range looks {
				m := describedMirror{Topics: []describedTopic{{Name: "t"}}, Syncs: []describedSync{{Sync: "groups", Cycles: l.cycles}}}
				for i, text := range l.partitions {
					p := describedPartition{Partition: int32(i), State: "MIRRORING"}
					_, _ = fmt.Sscan(text, &p.SourceOffset, &p.Lag, &p.SourceAgeMs, &p.State)
					if p.State != "MIRRORING" {
						p.Reason = "it broke"
					}
					m.Topics[0].Partitions = append(m.Topics[0].Partitions, p)
				}
				done, err := s.look(m, start.Add(time.Duration(l.at)*time.Second))
				switch {
				case err != nil:
					require.Equal(t, l.want, err.Error())
				case done:
					require.Equal(t, l.want, "done", "at %d", l.at)
				default:
					require.Equal(t, l.want, s.status, "at %d", l.at)
				}
			}
		})
	}
}

// cutGateway is a gateway that can be cut over, as far as a command can see.
type cutGateway struct {
	topics  map[string][]string
	cycles  int64
	moving  bool // somebody writes to the source
	late    int64
	removed bool
	waiting []string
	alters  []string
}

func (g *cutGateway) answer(req kmsg.Request) kmsg.Response {
	switch req := req.(type) {
	case *mirrormsg.RemoveTopicsFromMirrorRequest:
		g.removed = true
		return &mirrormsg.RemoveTopicsFromMirrorResponse{}
	case *kmsg.DescribeConfigsRequest:
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		list, until := "orders", fmt.Sprint(time.Now().Add(time.Minute).UnixMilli())
		resource := kmsg.DescribeConfigsResponseResource{ResourceType: 64, ResourceName: "east"}
		if len(g.waiting) > 0 {
			resource.Configs = []kmsg.DescribeConfigsResponseResourceConfig{{Name: cutoverTopics, Value: &list}, {Name: cutoverDeadline, Value: &until}}
		}
		resp.Resources = append(resp.Resources, resource)
		return resp
	case *kmsg.IncrementalAlterConfigsRequest:
		for _, c := range req.Resources[0].Configs {
			g.alters = append(g.alters, c.Op.String()+" "+c.Name+" "+*c.Value)
		}
		resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
		resp.Resources = []kmsg.IncrementalAlterConfigsResponseResource{{ResourceType: 64, ResourceName: "east"}}
		return resp
	}
	m := mirrorOf(g.topics)
	g.cycles++
	m.Syncs = []mirrormsg.DescribeMirrorsResponseMirrorSync{{Sync: "groups", Cycles: g.cycles, Covered: 3}}
	for i := range m.Topics {
		for j := range m.Topics[i].Partitions {
			p := &m.Topics[i].Partitions[j]
			p.SourceAgeMillis = 1
			if g.moving {
				p.SourceOffset += g.cycles
			}
			if g.removed {
				p.State, p.Stop = "STOPPED", &mirrormsg.DescribeMirrorsResponseMirrorTopicPartitionStop{LastMirroredOffset: 100, SourceOffset: 100 + g.late}
			}
		}
	}
	return describedBy(m)
}

func TestCutover(t *testing.T) {
	g := &cutGateway{topics: map[string][]string{"orders": {"MIRRORING 0", "MIRRORING 0"}, "payments": {"MIRRORING 0"}}}
	s := startStub(t, g.answer)
	quick := []string{"cutover", "--mirror", "east", "--all-topics", "--settle", "30ms", "--interval", "5ms"}
	cut := func(more ...string) result { return s.mirrors(t, append(slices.Clone(quick), more...)...) }

	got := cut("--dry-run")
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "A cut-over could begin. Nothing was changed.\nGroups: 3 in place")
	require.Empty(t, g.alters)

	got = cut()
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "\nCut over, and writable: orders, payments.\nProducers at the gateway waited for ")
	require.Equal(t, []string{"APPEND " + cutoverTopics + " orders,payments", "SET " + cutoverDeadline + " +120000", "SUBTRACT " + cutoverTopics + " orders,payments"}, g.alters)
	require.Contains(t, got.stderr, "mirror east: producers at the gateway wait now: stop those at the source")

	// Again: there is nothing left to do.
	got = cut("--json")
	require.Equal(t, exitOK, got.code, got.stderr)
	var out cutoverOutput
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &out))
	require.Equal(t, "done", out.Outcome)
	require.Zero(t, out.WritePauseMs)
	require.Equal(t, stoppedPartition{Partition: 0, State: "STOPPED", StopOffset: 100, SourceOffset: 100, SourceAgeMs: 0, Lag: 0}, out.Topics[0].Partitions[0])

	// Going on with one that was left behind; and somebody wrote to the source in the last moment.
	*g = cutGateway{topics: g.topics, waiting: []string{"orders"}, late: 2}
	got = cut()
	require.Equal(t, 3, got.code)
	require.Contains(t, got.stderr, "the source has 6 records that were written after the last look and are not here")
	require.Contains(t, got.stderr, "going on with a cut-over that had begun")
	require.Contains(t, got.stdout, "Producers at the gateway waited for at least ")
}

func TestCutoverRollsBack(t *testing.T) {
	g := &cutGateway{topics: map[string][]string{"orders": {"MIRRORING 0"}}, moving: true}
	s := startStub(t, g.answer)
	cut := func(more ...string) result {
		return s.mirrors(t, append([]string{"cutover", "--mirror", "east", "--topics", "orders", "--settle", "50ms", "--interval", "5ms", "--timeout", "2s"}, more...)...)
	}
	back := "SUBTRACT " + cutoverTopics + " orders"
	got := cut("--json")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "rolled back, the mirror goes on: not done within 2s: somebody still writes to the source: the end of orders partition 0 moved ")
	require.Contains(t, got.stdout, `"outcome": "rolled back"`)
	require.Equal(t, back, g.alters[len(g.alters)-1])
	require.False(t, g.removed)

	*g = cutGateway{topics: map[string][]string{"orders": {"MIRRORING 7"}}}
	got = cut()
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "not done within 2s: lag 7")
	require.Equal(t, back, g.alters[len(g.alters)-1])
	require.False(t, g.removed)

	for state, message := range map[string]string{"FAILED -1": "orders partition 0 is FAILED: foreign write", "PAUSED -1": "is PAUSED", "MIRRORING -1": "the source is not heard", "MIRRORING 200000": "more than --max-lag 100000"} {
		*g = cutGateway{topics: map[string][]string{"orders": {state}}}
		got = cut()
		require.Equal(t, exitFailure, got.code)
		require.Contains(t, got.stderr, message)
		require.Empty(t, g.alters, "nothing was changed")
		require.False(t, g.removed)
	}

	*g = cutGateway{topics: map[string][]string{"orders": {"MIRRORING 0"}}}
	got = cut("--abort")
	require.Equal(t, result{stdout: "Producers at the gateway wait no more; the mirror goes on.\n"}, got)
	require.Equal(t, []string{back}, g.alters)
	for _, args := range [][]string{{"--timeout", "1h"}, {"--settle", "3s"}, {"--abort", "--dry-run"}, {"--interval", "0s"}, {"--max-lag", "-1"}} {
		require.Equal(t, exitUsage, cut(args...).code)
	}
}
