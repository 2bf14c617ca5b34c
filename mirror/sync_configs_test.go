package mirror

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/store"
)

// set changes configs of a topic; an empty value resets one.
func (w *world) set(admin *kadm.Client, topic string, keyValues ...string) {
	w.t.Helper()
	var configs []kadm.AlterConfig
	for i := 0; i < len(keyValues); i += 2 {
		c := kadm.AlterConfig{Name: keyValues[i], Op: kadm.SetConfig, Value: &keyValues[i+1]}
		if keyValues[i+1] == "" {
			c.Op, c.Value = kadm.DeleteConfig, nil
		}
		configs = append(configs, c)
	}
	results, err := admin.AlterTopicConfigs(w.context(), configs, topic)
	require.NoError(w.t, err)
	require.NoError(w.t, results[0].Err, results[0].ErrMessage)
}

func (w *world) syncConfigs() outcome {
	w.t.Helper()
	o := w.m.mirror("m").syncConfigs(w.context())
	require.NoError(w.t, o.err)
	return o
}

func TestTopicConfigsFollow(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1, "segment.bytes", "1000000", "min.insync.replicas", "1", "message.timestamp.type", "LogAppendTime")
	w.add("t")
	require.Zero(t, w.syncConfigs().changes, "all is in place from the start")

	// What only the destination has, and what is excluded, stays whatever happens (G9, G10).
	w.set(w.admin, "t", "delete.retention.ms", "77", "min.insync.replicas", "2")
	w.set(w.sourceAdmin, "t", "segment.bytes", "2000000", "max.compaction.lag.ms", "5000")
	for range 3 {
		w.syncConfigs()
	}
	have := w.topicConfigs(w.admin, "t")
	require.Equal(t, "2000000", have["segment.bytes"])
	require.Equal(t, "5000", have["max.compaction.lag.ms"])
	require.Equal(t, "77", have["delete.retention.ms"])
	require.Equal(t, "2", have["min.insync.replicas"])
	require.Equal(t, "CreateTime", have["message.timestamp.type"], "held")

	// A key that the source has no more is reset; the source wins over a change here; held ones come back.
	w.set(w.sourceAdmin, "t", "max.compaction.lag.ms", "", "message.timestamp.type", "CreateTime", "compression.type", "gzip")
	w.set(w.admin, "t", "segment.bytes", "3000000", "compression.type", "lz4")
	require.Equal(t, 1, w.syncConfigs().changes)
	have = w.topicConfigs(w.admin, "t")
	require.NotContains(t, have, "max.compaction.lag.ms")
	require.Equal(t, "2000000", have["segment.bytes"])
	require.Equal(t, "producer", have["compression.type"])
	require.Zero(t, w.syncConfigs().changes)
	rec, _ := w.state.Topic("m", "t")
	require.Contains(t, rec.Synced, "segment.bytes")
	require.NotContains(t, rec.Synced, "max.compaction.lag.ms")

	// The stop needs no source, and gives what the source had last.
	w.source.Close()
	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	have = w.topicConfigs(w.admin, "t")
	require.Equal(t, "gzip", have["compression.type"])
	require.Equal(t, "CreateTime", have["message.timestamp.type"])
	require.Equal(t, "2000000", have["segment.bytes"])
}

// max.message.bytes is at least the source's while records of the larger size may be on their way, and the source's at the end.
func TestMaxMessageBytesIsNotLowered(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1, "max.message.bytes", "5000000")
	w.add("t")
	w.set(w.sourceAdmin, "t", "max.message.bytes", "2000000")
	w.syncConfigs()
	require.Equal(t, "5000000", w.topicConfigs(w.admin, "t")["max.message.bytes"])
	w.set(w.sourceAdmin, "t", "max.message.bytes", "7000000")
	w.syncConfigs()
	require.Equal(t, "7000000", w.topicConfigs(w.admin, "t")["max.message.bytes"])
	w.set(w.sourceAdmin, "t", "max.message.bytes", "")
	w.syncConfigs()
	require.Equal(t, "7000000", w.topicConfigs(w.admin, "t")["max.message.bytes"])
	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	require.NotContains(t, w.topicConfigs(w.admin, "t"), "max.message.bytes")
}

// What the destination does not know, or does not take, is left out alone and can be seen.
func TestConfigsThatTheDestinationRefuses(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1)
	w.add("t")
	w.set(w.sourceAdmin, "t", "segment.bytes", "2000000", "segment.ms", "9000", "flush.ms", "8000")
	refuse := map[string]string{"segment.ms": "Unknown topic config name: segment.ms", "flush.ms": "Invalid value 8000 for configuration flush.ms"}
	w.destination.ControlKey(int16(kmsg.IncrementalAlterConfigs), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.destination.KeepControl()
		req := kreq.(*kmsg.IncrementalAlterConfigsRequest)
		for _, c := range req.Resources[0].Configs {
			if message, ok := refuse[c.Name]; ok {
				resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
				r := kmsg.NewIncrementalAlterConfigsResponseResource()
				r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
				r.ErrorCode, r.ErrorMessage = kerr.InvalidConfig.Code, &message
				resp.Resources = append(resp.Resources, r)
				return resp, nil, true
			}
		}
		return nil, nil, false
	})
	o := w.syncConfigs()
	require.Equal(t, 1, o.changes)
	require.Contains(t, o.skipped["t"], "the destination does not know segment.ms")
	require.Contains(t, o.skipped["t"], "flush.ms: ")
	require.Contains(t, o.skipped["t"], "Invalid value 8000")
	require.Equal(t, "2000000", w.topicConfigs(w.admin, "t")["segment.bytes"])

	w.m.mirror("m").timed(SyncConfigs, w.m.mirror("m").syncConfigs)
	d, err := w.m.Describe(w.context(), "m")
	require.NoError(t, err)
	require.Len(t, d.Skipped, 1)
	require.Equal(t, []string{"t"}, d.Skipped[0].Names)
}

// A stop has given the held settings back; a cycle that began before must not take them again.
func TestConfigSyncLeavesStoppingTopicsAlone(t *testing.T) {
	w := newWorld(t)
	w.createMirror("m")
	w.sourceTopic("t", 1)
	w.add("t")
	run := w.m.mirror("m")
	topic := run.topic("t")
	require.NotNil(t, topic)
	require.NoError(t, w.m.update(w.context(), changeTopic("m", "t", func(now *store.Topic) bool { now.State = int8(Stopping); return true })))
	changed, skipped := run.syncTopicConfigs(w.context(), "t", kadm.ResourceConfig{}, kadm.ResourceConfig{})
	require.False(t, changed)
	require.Empty(t, skipped)
}
