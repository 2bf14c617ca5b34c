package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/faultproxy"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

func saslAdmin() kgo.Opt { return kgo.SASL(kafkatest.Mechanism(kafkatest.Admin, mechanism)) }

// A mirror from its creation to its deletion, under load: paused, restarted while it is paused, resumed, its connection
// changed, its password changed, removed, deleted; and what was filled in stays hidden behind it.
func TestLifeOfAMirror(t *testing.T) {
	p := newPair(t)
	p.gatewayRights()
	harness.CreateTopics(t, p.source.InternalBootstrap(), harness.Topic{Name: "life", Partitions: 2})
	detour, err := faultproxy.Listen("127.0.0.1:0", p.source.Bootstrap())
	p.must(err)
	t.Cleanup(detour.Close)
	p.createMirrorAt(detour.Addr(), "mirror.acls.include", "none")
	harness.AddTopics(t, p.client, "m", "life")
	p.awaitState("life", "MIRRORING")
	stop := p.load("life")
	p.transactions("life")

	// Paused: nothing more is written, the topic stays read-only, also across a restart.
	p.command("pause", "--mirror", "m", "--topics", "life")
	p.awaitState("life", "PAUSED")
	paused, err := harness.Ends(p.ctx(), p.to, "life")
	p.must(err)
	before := harness.Total(paused)
	p.awaitProgress(2000)
	p.gateway.Kill()
	p.gateway.Start(t)
	p.awaitState("life", "PAUSED")
	ends, err := harness.Ends(p.ctx(), p.to, "life")
	p.must(err)
	if after := harness.Total(ends); after != before {
		t.Errorf("%d records were written to the paused topic", after-before)
	}
	writer := p.gateway.Client(t, saslAdmin(), kgo.DefaultProduceTopic("life"))
	if err := writer.ProduceSync(p.ctx(), kgo.StringRecord("no")).FirstErr(); err == nil {
		t.Error("a paused topic can be written")
	}
	p.refused("not STOPPED (life)", "delete", "--mirror", "m")
	p.command("resume", "--mirror", "m", "--all-topics")
	p.awaitState("life", "MIRRORING")

	// The connection changes: another way to the same cluster, another user; never to another cluster.
	p.command("alter", "--mirror", "m", "--mirror-config", "bootstrap.servers="+p.source.Bootstrap())
	detour.Close()
	p.refused("this would be a loop", "alter", "--mirror", "m", "--mirror-config", "bootstrap.servers="+p.destination.Bootstrap(),
		"--mirror-config-file", p.login)
	p.refused("SASL_AUTHENTICATION_FAILED", "alter", "--mirror", "m", "--mirror-config",
		"sasl.jaas.config="+strings.ReplaceAll(p.source.ClientProperties("gateway", mechanism)["sasl.jaas.config"], kafkatest.Password("gateway"), "wrong"))
	p.command("alter", "--mirror", "m", "--mirror-config", "sasl.jaas.config="+p.source.ClientProperties(kafkatest.Admin, mechanism)["sasl.jaas.config"])
	p.awaitState("life", "MIRRORING")
	shown := p.command("describe", "--mirror", "m", "--config")
	if strings.Contains(shown, kafkatest.Password(kafkatest.Admin)) || !strings.Contains(shown, "[hidden]") {
		t.Errorf("the configuration shows a secret, or nothing of it:\n%s", shown)
	}

	p.transactions("life")
	stop()
	p.awaitSameEnds("life")
	p.command("remove-topics", "--mirror", "m", "--topics", "life")
	p.refused("STOPPED and cannot be paused", "pause", "--mirror", "m", "--topics", "life")
	p.refused("cannot be resumed", "resume", "--mirror", "m", "--topics", "life")
	p.sameForReaders("life")
	p.command("delete", "--mirror", "m")
	p.refused("unknown mirror", "delete", "--mirror", "m")
	p.gateway.Kill()
	p.gateway.Start(t)
	p.sameForReaders("life")
	p.must(writer.ProduceSync(p.ctx(), kgo.StringRecord("mine")).FirstErr())
}

// A foreign write fails a partition; an operator's retry finds the same, the other partition goes on, and removing it works.
// The topic can be added again once it is deleted at the destination.
func TestRetryAndAddAgain(t *testing.T) {
	p := newPair(t)
	p.gatewayRights()
	topic := harness.Topic{Name: "again", Partitions: 1}
	harness.CreateTopics(t, p.source.InternalBootstrap(), topic)
	random := harness.Random(t)
	harness.MustFill(t, p.source.InternalBootstrap(), random, 100, topic)
	p.createMirror("mirror.acls.include", "none")
	harness.AddTopics(t, p.client, "m", "again")
	p.awaitState("again", "MIRRORING")
	p.awaitSameEnds("again")
	foreign := harness.Client(t, p.destination.InternalBootstrap(), kgo.DefaultProduceTopic("again"))
	p.must(foreign.ProduceSync(p.ctx(), kgo.StringRecord("foreign")).FirstErr())
	harness.MustFill(t, p.source.InternalBootstrap(), random, 100, topic)
	p.awaitState("again", "FAILED")
	p.refused("no partition that is at work", "pause", "--mirror", "m", "--topics", "again")
	p.command("resume", "--mirror", "m", "--topics", "again")
	p.awaitState("again", "FAILED")
	p.command("remove-topics", "--mirror", "m", "--topics", "again")
	p.refused("not empty", "add-topics", "--mirror", "m", "--topics", "again")
	_, err := p.to.DeleteTopic(p.ctx(), "again")
	p.must(err)
	p.awaitDeleted("again")
	p.command("add-topics", "--mirror", "m", "--topics", "again", "--wait")
	p.awaitSameEnds("again")
	harness.SameRecords(t, p.source.InternalBootstrap(), p.destination.InternalBootstrap(), "again")
}

// awaitDeleted waits until the destination's broker, too, knows that a topic is no more.
func (p *pair) awaitDeleted(topic string) {
	p.t.Helper()
	harness.Eventually(p.t, time.Minute, topic+" is deleted", func(ctx context.Context) error {
		topics, err := p.to.ListTopics(ctx, topic)
		if err == nil && !errors.Is(topics[topic].Err, kerr.UnknownTopicOrPartition) {
			err = fmt.Errorf("it is there, or %v", topics[topic].Err)
		}
		return err
	})
}

// transactions write a committed and an aborted transaction to a topic of the source: offsets without records.
func (p *pair) transactions(topic string) {
	p.t.Helper()
	client := harness.Client(p.t, p.source.InternalBootstrap(), kgo.TransactionalID(fmt.Sprintf("%s-%d", topic, time.Now().UnixNano())), kgo.DefaultProduceTopic(topic))
	for _, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		p.must(client.BeginTransaction())
		for range 10 {
			p.must(client.ProduceSync(p.ctx(), kgo.StringRecord("transactional")).FirstErr())
		}
		p.must(client.EndTransaction(p.ctx(), commit))
	}
}

// awaitProgress waits until the source has so many more records.
func (p *pair) awaitProgress(records int64) {
	p.t.Helper()
	ends, err := harness.Ends(p.ctx(), p.from, "life")
	p.must(err)
	goal := harness.Total(ends) + records
	harness.Eventually(p.t, time.Minute, "the source goes on", func(ctx context.Context) error {
		ends, err := harness.Ends(ctx, p.from, "life")
		if total := harness.Total(ends); err == nil && total < goal {
			err = fmt.Errorf("%d of %d", total, goal)
		}
		return err
	})
}

// sameForReaders compares what readers see at the source and at the gateway, read_committed: records and offsets.
func (p *pair) sameForReaders(topic string) {
	p.t.Helper()
	ends, err := harness.Ends(p.ctx(), p.from, topic)
	p.must(err)
	want := p.read(harness.Client(p.t, p.source.InternalBootstrap(), readCommitted(topic)...), ends)
	got := p.read(p.gateway.Client(p.t, append(readCommitted(topic), saslAdmin())...), ends)
	if len(want) != len(got) {
		p.t.Errorf("readers of the source see %d records, those of the gateway %d", len(want), len(got))
	}
	for at, value := range want {
		if got[at] != value {
			p.t.Fatalf("%s: the source has %q, the gateway %q", at, value, got[at])
		}
	}
}

func readCommitted(topic string) []kgo.Opt {
	return append(reading(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
}

// read reads up to the ends, and returns the values by partition and offset.
func (p *pair) read(client *kgo.Client, ends map[harness.TopicPartition]int64) map[string]string {
	p.t.Helper()
	records := make(map[string]string)
	readTo(p.t, client, ends, func(tp harness.TopicPartition, r *kgo.Record) {
		if r.Offset < ends[tp] {
			records[fmt.Sprintf("%s/%d@%d", tp.Topic, tp.Partition, r.Offset)] = string(r.Value)
		}
	})
	return records
}
