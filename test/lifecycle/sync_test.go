package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// Under load the source topic gets partitions, other settings and ACLs, and another topic comes: all of it is at the
// destination a moment later, and every record from the first one on.
func TestSyncedBesideTheData(t *testing.T) {
	p := newPair(t)
	p.gatewayRights()
	harness.CreateTopics(t, p.source.InternalBootstrap(), harness.Topic{Name: "beside", Partitions: 2, Configs: map[string]string{"segment.ms": "600000"}})
	p.createMirror("mirror.topics.include", `auto\..*`, "mirror.acls.include", "topic,group:beside-.*")
	harness.AddTopics(t, p.client, "m", "beside")
	p.awaitState("beside", "MIRRORING")
	stop := p.load("beside")

	// Partitions, from their first record (M34).
	harness.Eventually(t, time.Minute, "the source topic has 5 partitions", func(ctx context.Context) error {
		results, err := p.from.UpdatePartitions(ctx, 5, "beside")
		if err == nil {
			err = results["beside"].Err
		}
		if errors.Is(err, kerr.InvalidPartitions) {
			return nil
		}
		return err
	})
	harness.CreateTopics(t, p.source.InternalBootstrap(), harness.Topic{Name: "auto.one", Partitions: 1}, harness.Topic{Name: "auto-one", Partitions: 1})
	harness.Eventually(t, time.Minute, "5 partitions are mirrored", func(ctx context.Context) error {
		described, err := harness.Describe(ctx, p.client, "m")
		if err == nil && len(described["beside"]) != 5 {
			err = fmt.Errorf("%d partitions", len(described["beside"]))
		}
		return err
	})
	p.awaitState("beside", "MIRRORING")
	p.awaitState("auto.one", "MIRRORING")
	p.configsFollow()
	p.aclsFollow()

	harness.Eventually(t, time.Minute, "every partition has records", func(ctx context.Context) error {
		ends, err := harness.Ends(ctx, p.to, "beside")
		for tp, end := range ends {
			if end == 0 {
				err = fmt.Errorf("partition %d is empty", tp.Partition)
			}
		}
		return err
	})
	written := stop()
	p.awaitSameEnds("beside")
	if n := harness.SameRecords(t, p.source.InternalBootstrap(), p.destination.InternalBootstrap(), "beside"); n != written {
		t.Errorf("%d records are the same, %d were written", n, written)
	}
	if described, err := harness.Describe(p.ctx(), p.client, "m"); err != nil || len(described["auto-one"]) > 0 {
		t.Errorf("auto-one is in the mirror, or %v", err)
	}

	// Excluded, it leaves and is writable.
	p.command("alter", "--mirror", "m", "--append", "mirror.topics.exclude=auto.one")
	p.awaitState("auto.one", "STOPPED")
	writer := p.gateway.Client(t, saslAdmin(), kgo.DefaultProduceTopic("auto.one"))
	p.must(writer.ProduceSync(p.ctx(), kgo.StringRecord("mine")).FirstErr())
}

// dynamic are the topic configs that are set at a topic.
func dynamic(ctx context.Context, admin *kadm.Client, topic string) (map[string]string, error) {
	described, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	values := make(map[string]string)
	for _, c := range described[0].Configs {
		if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
			values[c.Key] = c.MaybeValue()
		}
	}
	return values, described[0].Err
}

func (p *pair) alterTopic(admin *kadm.Client, topic string, alter ...kadm.AlterConfig) {
	p.t.Helper()
	results, err := admin.AlterTopicConfigs(p.ctx(), alter, topic)
	p.must(err)
	p.must(results[0].Err)
}

func (p *pair) awaitConfigs(topic string, ok func(map[string]string) bool) {
	p.t.Helper()
	harness.Eventually(p.t, time.Minute, "the configs of "+topic, func(ctx context.Context) error {
		values, err := dynamic(ctx, p.to, topic)
		if err == nil && !ok(values) {
			err = fmt.Errorf("%v", values)
		}
		return err
	})
}

// configsFollow: also resets; what only the destination has stays (G9, G10).
func (p *pair) configsFollow() {
	p.t.Helper()
	two, lag, ms, flush := "2", "70000", "700000", "12345"
	p.alterTopic(p.to, "beside", kadm.AlterConfig{Name: "min.insync.replicas", Value: &two}, kadm.AlterConfig{Name: "flush.ms", Value: &flush})
	p.alterTopic(p.from, "beside", kadm.AlterConfig{Name: "segment.ms", Value: &ms}, kadm.AlterConfig{Name: "max.compaction.lag.ms", Value: &lag})
	p.awaitConfigs("beside", func(v map[string]string) bool { return v["segment.ms"] == ms && v["max.compaction.lag.ms"] == lag })
	p.alterTopic(p.from, "beside", kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "max.compaction.lag.ms"})
	p.awaitConfigs("beside", func(v map[string]string) bool {
		_, lag := v["max.compaction.lag.ms"]
		return !lag && v["segment.ms"] == ms && v["min.insync.replicas"] == two && v["flush.ms"] == flush && v["compression.type"] == "producer"
	})
}

// aclsFollow: DENY, PREFIXED and User:*; those made by hand at the destination stay.
func (p *pair) aclsFollow() {
	p.t.Helper()
	topic := func(name string, pattern kadm.ACLPattern) *kadm.ACLBuilder {
		return kadm.NewACLs().Topics(name).ResourcePatternType(pattern).Operations(kadm.OpRead)
	}
	deny := topic("beside", kadm.ACLPatternLiteral).Deny("User:bob").DenyHosts()
	harness.AddACLs(p.t, p.from, topic("beside", kadm.ACLPatternLiteral).Allow("User:alice").AllowHosts())
	harness.AddACLs(p.t, p.from, deny)
	harness.AddACLs(p.t, p.from, topic("bes", kadm.ACLPatternPrefixed).Allow("User:*").AllowHosts())
	harness.AddACLs(p.t, p.from, kadm.NewACLs().Groups("other").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead).Allow("User:alice").AllowHosts())
	harness.AddACLs(p.t, p.to, topic("by-hand", kadm.ACLPatternLiteral).Allow("User:alice").AllowHosts())
	await := func(what string, want map[string]bool) {
		p.t.Helper()
		harness.Eventually(p.t, time.Minute, what, func(ctx context.Context) error {
			have, err := p.aclsAt(ctx, p.to)
			for acl, there := range want {
				if have[acl] != there {
					err = errors.Join(err, fmt.Errorf("%s: %t", acl, have[acl]))
				}
			}
			return err
		})
	}
	await("the ACLs are at the destination", map[string]bool{
		"ALLOW User:alice READ TOPIC LITERAL beside": true, "DENY User:bob READ TOPIC LITERAL beside": true,
		"ALLOW User:* READ TOPIC PREFIXED bes": true, "ALLOW User:alice READ GROUP LITERAL other": false,
		"ALLOW User:alice READ TOPIC LITERAL by-hand": true,
	})
	harness.RemoveACLs(p.t, p.from, deny)
	await("what the source has no more is gone", map[string]bool{
		"ALLOW User:alice READ TOPIC LITERAL beside": true, "DENY User:bob READ TOPIC LITERAL beside": false,
		"ALLOW User:alice READ TOPIC LITERAL by-hand": true,
	})
}

// Classic and KIP-848 groups, share groups, resets at the source; and after the switch nothing moves back, whatever the
// source does and however often the gateway starts (G5).
func TestGroupsAreInPlace(t *testing.T) {
	// Kafka 4.1 cannot set the offsets of share groups.
	recent := options()
	recent.Version = "4.2.0"
	p := pairOf(t, kafkatest.Start(t, recent), kafkatest.Start(t, recent))
	p.gatewayRights()
	topic := harness.Topic{Name: "groups", Partitions: 2}
	harness.CreateTopics(t, p.source.InternalBootstrap(), topic, harness.Topic{Name: "local", Partitions: 1})
	harness.CreateTopics(t, p.destination.InternalBootstrap(), harness.Topic{Name: "local", Partitions: 1})
	harness.MustFill(t, p.source.InternalBootstrap(), harness.Random(t), 2000, topic)
	p.createMirror("mirror.acls.include", "none")
	harness.AddTopics(t, p.client, "m", "groups")
	p.awaitState("groups", "MIRRORING")
	p.awaitSameEnds("groups")

	p.newProtocolGroup("new-protocol")
	commit(p, p.from, "classic", "groups", 300)
	commit(p, p.from, "classic", "local", 0)
	share := make(kadm.Offsets)
	share.AddOffset("groups", 0, 250, -1)
	harness.Eventually(t, time.Minute, "the share group is made", func(ctx context.Context) error { // the first one of the cluster
		altered, err := p.from.AlterShareGroupOffsets(ctx, "shared", share)
		if err == nil {
			err = altered.Error()
		}
		return err
	})

	p.awaitCommitted("classic", 300)
	p.awaitCommitted("new-protocol", 1000)
	harness.Eventually(t, time.Minute, "the share group", func(ctx context.Context) error {
		described, err := p.to.DescribeShareGroupOffsets(ctx, "shared")
		if err == nil {
			err = described["shared"].Err
		}
		if o := described["shared"].Offsets["groups"][0]; err == nil && o.StartOffset != 250 {
			err = fmt.Errorf("starts at %d", o.StartOffset)
		}
		return err
	})
	if fetched, err := p.to.FetchOffsets(p.ctx(), "classic"); err != nil {
		t.Error(err)
	} else if o, ok := fetched.Lookup("local", 0); ok && o.At >= 0 {
		t.Errorf("a topic that is not mirrored has a committed offset %d", o.At)
	}
	commit(p, p.from, "classic", "groups", 200) // reset at the source
	p.awaitCommitted("classic", 200)

	// A member at the destination: the group is left alone, and seen.
	member := p.gateway.Client(t, saslAdmin(), kgo.ConsumerGroup("classic"), kgo.ConsumeTopics("groups"), kgo.DisableAutoCommit())
	member.PollRecords(p.ctx(), 1)
	commit(p, p.from, "classic", "groups", 400)
	harness.Eventually(t, time.Minute, "the skipped group is shown", func(context.Context) error {
		out, err := p.run("describe", "--mirror", "m")
		if err == nil && !strings.Contains(out, "has members at the destination") {
			err = errors.New(out)
		}
		return err
	})
	member.Close()
	p.awaitCommitted("classic", 400)

	p.command("remove-topics", "--mirror", "m", "--topics", "groups")
	commit(p, p.to, "classic", "groups", 450)
	commit(p, p.from, "classic", "groups", 100)
	p.gateway.Kill()
	p.gateway.Start(t)
	harness.CreateTopics(t, p.source.InternalBootstrap(), harness.Topic{Name: "second", Partitions: 1})
	harness.AddTopics(t, p.client, "m", "second") // so that there are cycles
	commit(p, p.from, "classic", "second", 0)
	harness.Eventually(t, time.Minute, "a cycle", func(ctx context.Context) error {
		fetched, err := p.to.FetchOffsets(ctx, "classic")
		if o, ok := fetched.Lookup("second", 0); err == nil && (!ok || o.At != 0) {
			err = errors.New("no offset in the second topic yet")
		}
		return err
	})
	p.awaitCommitted("classic", 450)
}

// newProtocolGroup has a KIP-848 consumer of Kafka read all of the topic and leave.
func (p *pair) newProtocolGroup(group string) {
	p.t.Helper()
	out, err := p.source.Tool(p.ctx(), "kafka-console-consumer", "--bootstrap-server", p.source.InternalBootstrap(), "--topic", "groups", "--from-beginning",
		"--group", group, "--max-messages", "2000", "--timeout-ms", "40000", "--consumer-property", "group.protocol=consumer",
		"--consumer-property", "auto.commit.interval.ms=100")
	if err != nil {
		p.t.Fatalf("%v: %s", err, out[max(0, len(out)-500):])
	}
}

// commit sets the committed offset of a group in all partitions of a topic.
func commit(p *pair, admin *kadm.Client, group, topic string, at int64) {
	p.t.Helper()
	offsets := make(kadm.Offsets)
	partitions := int32(1)
	if topic == "groups" {
		partitions = 2
	}
	for n := range partitions {
		offsets.AddOffset(topic, n, at, -1)
	}
	harness.Eventually(p.t, time.Minute, "commit of "+group, func(ctx context.Context) error {
		return admin.CommitAllOffsets(ctx, group, offsets)
	})
}

// awaitCommitted waits until a group is at an offset in both partitions at the destination.
func (p *pair) awaitCommitted(group string, at int64) {
	p.t.Helper()
	harness.Eventually(p.t, time.Minute, fmt.Sprintf("group %s is at %d", group, at), func(ctx context.Context) error {
		fetched, err := p.to.FetchOffsets(ctx, group)
		for n := range int32(2) {
			if o, ok := fetched.Lookup("groups", n); err == nil && (!ok || o.At != at) {
				err = fmt.Errorf("partition %d is at %d", n, o.At)
			}
		}
		return err
	})
}
