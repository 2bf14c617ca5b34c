package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

const partitions = 3

// There and back again, three times, with writes on each side: nothing is lost, nothing is copied twice, nothing is made anew,
// and clients see the topic by one ID.
func TestFailbackThreeTimes(t *testing.T) {
	sites := newSites(t, 2)
	a, b := sites[0], sites[1]
	harness.CreateTopics(t, a.cluster.Bootstrap(), harness.Topic{Name: "journey", Partitions: partitions})
	id := a.topicID(a.direct, "journey")
	written := make(writings)
	a.write(written, "journey", "home", partitions, 300)
	b.mirrorFrom(a, "there")
	a.mirrorFrom(b, "back")
	harness.AddTopics(t, b.client, "there", "journey")
	for round := range 3 {
		b.awaitMirrored(a, "there", "journey")
		b.sameAs(a, "journey")
		b.command("remove-topics", "--mirror", "there", "--topics", "journey")
		b.write(written, "journey", fmt.Sprintf("away %d", round), partitions, 200)
		if round == 1 { // the gateway forgets nothing
			b.gateway.Kill()
			b.gateway.Start(t)
		}

		before := a.ends("journey")
		harness.AddTopics(t, a.client, "back", "journey")
		a.awaitMirrored(b, "back", "journey")
		a.sameAs(b, "journey")
		a.has(written, "journey")
		if now := a.ends("journey"); harness.Total(now) <= harness.Total(before) {
			t.Errorf("round %d: nothing was copied home: %v, was %v", round, now, before)
		}
		if round == 1 { // a restart in the middle
			a.gateway.Kill()
			a.gateway.Start(t)
			a.awaitMirrored(b, "back", "journey")
			if err := a.gateway.Client(t, kgo.DefaultProduceTopic("journey")).ProduceSync(t.Context(), kgo.StringRecord("no")).FirstErr(); err == nil {
				t.Error("clients can write to the topic while it is mirrored home")
			}
		}
		a.command("remove-topics", "--mirror", "back", "--topics", "journey")
		a.write(written, "journey", fmt.Sprintf("home %d", round), partitions, 200)
		harness.AddTopics(t, b.client, "there", "journey")
	}
	b.awaitMirrored(a, "there", "journey")
	records := b.sameAs(a, "journey")
	a.has(written, "journey")
	b.has(written, "journey")
	for _, s := range sites {
		if got := s.topicID(kadm.NewClient(s.client), "journey"); got != id {
			t.Errorf("clients at %s see topic ID %v, at first it was %v", s.id, got, id)
		}
	}
	if a.topicID(a.direct, "journey") != id {
		t.Error("the topic was made anew")
	}
	t.Logf("%d records, in 7 pieces from two sides", records)
}

// The old source died with records that were never mirrored. They are counted, and nothing is touched; or they are saved, and
// the topic is made anew: also if the gateway dies while it does so.
func TestFailbackOfADivergedTopic(t *testing.T) {
	sites := newSites(t, 2)
	a, b := sites[0], sites[1]
	admin := kadm.NewClient(a.client)
	harness.CreateTopics(t, a.cluster.Bootstrap(), harness.Topic{Name: "accident", Partitions: partitions, Configs: map[string]string{"min.insync.replicas": "1"}})
	id := a.topicID(a.direct, "accident")
	written := make(writings)
	a.write(written, "accident", "before", partitions, 90)
	b.mirrorFrom(a, "there")
	a.mirrorFrom(b, "home") // another name than at the other side, and another mirror there, too
	b.mirrorFrom(a, "other")
	harness.AddTopics(t, b.client, "there", "accident")
	b.awaitMirrored(a, "there", "accident")
	b.command("pause", "--mirror", "there", "--topics", "accident") // the source is gone, as it were
	mirrored := a.ends("accident")
	lost := make(writings)
	for p, n := range []int{0, 7, 2000} {
		client := a.gateway.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for i := range n {
			r := &kgo.Record{Topic: "accident", Partition: int32(p), Value: fmt.Appendf(nil, "lost %d", i), Timestamp: time.UnixMilli(int64(i)), Headers: []kgo.RecordHeader{{Key: "h"}}}
			client.Produce(t.Context(), r, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
			at := harness.TopicPartition{Topic: "accident", Partition: int32(p)}
			lost[at] = append(lost[at], string(r.Value))
		}
		a.must(client.Flush(t.Context()))
	}
	b.command("remove-topics", "--mirror", "there", "--topics", "accident")
	b.write(written, "accident", "after", partitions, 90)

	// fail: all is told, nothing is changed, and it can be left at that.
	before := a.ends("accident")
	harness.AddTopics(t, a.client, "home", "accident")
	a.await("home", "accident", "FAILED")
	described, err := a.status(t.Context(), "home", "accident")
	a.must(err)
	for p, want := range map[int32]string{
		0: "partition 1 of the topic diverged",
		1: fmt.Sprintf("7 records at offsets %d to %d", mirrored[harness.TopicPartition{Topic: "accident", Partition: 1}], before[harness.TopicPartition{Topic: "accident", Partition: 1}]-1),
		2: fmt.Sprintf("2000 records at offsets %d to %d", mirrored[harness.TopicPartition{Topic: "accident", Partition: 2}], before[harness.TopicPartition{Topic: "accident", Partition: 2}]-1),
	} {
		if !strings.Contains(described[p].Reason, want) {
			t.Errorf("partition %d: %q is not in the reason: %s", p, want, described[p].Reason)
		}
	}
	a.command("resume", "--mirror", "home", "--topics", "accident")
	a.await("home", "accident", "FAILED")
	a.command("remove-topics", "--mirror", "home", "--topics", "accident")
	if got := a.ends("accident"); harness.Total(got) != harness.Total(before) {
		t.Errorf("the topic was changed: it ends at %v, before at %v", got, before)
	}
	one := &kgo.Record{Topic: "accident", Partition: 1, Value: []byte("one more"), Timestamp: time.UnixMilli(1)}
	a.must(a.gateway.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner())).ProduceSync(t.Context(), one).FirstErr())
	lost[harness.TopicPartition{Topic: "accident", Partition: 1}] = append(lost[harness.TopicPartition{Topic: "accident", Partition: 1}], "one more")

	// recreate: it is decided while the topic is FAILED; and the gateway is killed at each step.
	harness.AddTopics(t, a.client, "home", "accident")
	a.await("home", "accident", "FAILED")
	a.command("alter", "--mirror", "home", "--mirror-config", "mirror.failback.divergence=recreate")
	a.command("resume", "--mirror", "home", "--topics", "accident")
	for _, step := range []string{"records that only the destination has are being saved", "records are saved", "the destination topic was deleted"} {
		harness.Eventually(t, time.Minute, step, func(context.Context) error {
			if !strings.Contains(a.gateway.Log(), step) {
				return errors.New("not yet")
			}
			return nil
		})
		a.gateway.Kill()
		a.gateway.Start(t)
	}
	a.awaitMirrored(b, "home", "accident")
	a.sameAs(b, "accident")
	a.has(written, "accident")
	for tp, want := range lost {
		var got []string
		for _, value := range a.read(harness.TopicPartition{Topic: "accident.diverged", Partition: tp.Partition}) {
			if !slices.Contains(got, value) { // after a crash some can be there twice
				got = append(got, value)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("partition %d: %d records were saved, %d were lost; the first that differs is %d", tp.Partition, len(got), len(want), firstDifference(got, want))
		}
	}
	if got := a.topicID(admin, "accident"); got != id {
		t.Errorf("clients see topic ID %v, at first it was %v", got, id)
	}
	if a.topicID(a.direct, "accident") == id {
		t.Error("the topic was not made anew")
	}

	// And on it goes: what was said of the topic that is gone does not count for the new one.
	a.command("remove-topics", "--mirror", "home", "--topics", "accident")
	a.write(written, "accident", "home again", partitions, 30)
	harness.AddTopics(t, b.client, "other", "accident") // in another mirror than before
	b.awaitMirrored(a, "other", "accident")
	b.sameAs(a, "accident")
	b.has(written, "accident")
	if b.topicID(b.direct, "accident") == id {
		t.Error("the other side has the ID of a topic that is gone")
	}
}

// A topic that was stopped cannot go on from where it was mirrored from, as its log has the fence; and nobody else knows it.
func TestFailbackRefusals(t *testing.T) {
	sites := newSites(t, 2)
	a, b := sites[0], sites[1]
	harness.CreateTopics(t, a.cluster.Bootstrap(), harness.Topic{Name: "same-way", Partitions: 1}, harness.Topic{Name: "unknown", Partitions: 1})
	harness.CreateTopics(t, b.cluster.Bootstrap(), harness.Topic{Name: "unknown", Partitions: 1})
	written := make(writings)
	a.write(written, "same-way", "1", 1, 20)
	a.write(make(writings), "unknown", "at a", 1, 5)
	b.write(make(writings), "unknown", "at b", 1, 5)
	b.mirrorFrom(a, "there")
	harness.AddTopics(t, b.client, "there", "same-way")
	b.awaitMirrored(a, "there", "same-way")
	b.command("remove-topics", "--mirror", "there", "--topics", "same-way")
	b.refused([]string{"not empty", "mirror.failback.divergence=recreate"}, "add-topics", "--mirror", "there", "--topics", "same-way")
	b.refused([]string{"not empty", "no mirror of it from this cluster"}, "add-topics", "--mirror", "there", "--topics", "unknown")

	// Around the gateway of the source, fillers would be records.
	harness.CreateMirror(t, b.client, "bypass", a.cluster.Bootstrap())
	b.refused([]string{"__mirror_state", "name that gateway"}, "add-topics", "--mirror", "bypass", "--topics", "same-way")

	// Made anew, nothing has to be saved: all of it came from there.
	b.command("alter", "--mirror", "there", "--mirror-config", "mirror.failback.divergence=recreate")
	a.write(written, "same-way", "2", 1, 20)
	harness.AddTopics(t, b.client, "there", "same-way")
	b.awaitMirrored(a, "there", "same-way")
	b.has(written, "same-way")
	if topics, err := b.direct.ListTopics(t.Context(), "same-way.diverged"); err != nil || topics["same-way.diverged"].Err == nil {
		t.Errorf("there is a topic of saved records, or not: %v", err)
	}
}
