package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// A chain A -> B -> C through gateways has A's records at A's offsets, whatever B had to fill in; and follows a failover at B.
func TestChain(t *testing.T) {
	sites := newSites(t, 3)
	a, b, c := sites[0], sites[1], sites[2]
	compacted := map[string]string{"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100", "file.delete.delay.ms": "100"}
	harness.CreateTopics(t, a.cluster.Bootstrap(), harness.Topic{Name: "chained", Partitions: partitions}, harness.Topic{Name: "chained-keys", Partitions: 1, Configs: compacted})
	id := a.topicID(a.direct, "chained")
	written := make(writings)
	a.write(written, "chained", "1", partitions, 300)
	a.deleteRecords("chained", 20) // a log that starts above 0
	a.compact("chained-keys")
	b.mirrorFrom(a, "a2b")
	c.mirrorFrom(b, "b2c")
	harness.AddTopics(t, b.client, "a2b", "chained", "chained-keys")
	for _, topic := range []string{"chained", "chained-keys"} {
		b.await("a2b", topic, "MIRRORING") // until then B's broker may not know that it has it
	}
	harness.AddTopics(t, c.client, "b2c", "chained", "chained-keys")
	a.write(written, "chained", "2", partitions, 100)
	b.awaitMirrored(a, "a2b", "chained")
	c.awaitMirrored(a, "b2c", "chained")
	t.Logf("chained: %d records", c.sameAs(a, "chained"))
	c.awaitMirrored(a, "b2c", "chained-keys")
	t.Logf("chained-keys: %d records", c.sameKeysAs(a, harness.TopicPartition{Topic: "chained-keys"}))
	if got := c.topicID(kadm.NewClient(c.client), "chained"); got != id {
		t.Errorf("clients of C see topic ID %v, it is %v at A", got, id)
	}
	harness.Eventually(t, time.Minute, "C's gateway tells the chain", func(ctx context.Context) error {
		described, err := mirrormsg.NewPtrDescribeMirrorsRequest().RequestWith(ctx, c.client)
		if err != nil {
			return err
		}
		if len(described.Mirrors) == 0 || len(described.Mirrors[0].Topics) == 0 {
			return errors.New("it knows no topic of a mirror")
		}
		var chain []string
		for _, link := range described.Mirrors[0].Topics[0].Chain {
			chain = append(chain, link.ClusterID+" by "+link.MirrorName)
		}
		if got, want := strings.Join(chain, ", "), fmt.Sprintf("%s by b2c, %s by a2b", b.id, a.id); got != want {
			return fmt.Errorf("%s, not %s", got, want)
		}
		return nil
	})

	// After a failover at B, what clients write there goes on to C.
	b.command("remove-topics", "--mirror", "a2b", "--topics", "chained")
	b.write(written, "chained", "3", partitions, 100)
	c.awaitMirrored(b, "b2c", "chained")
	c.sameAs(b, "chained")
}

// sameKeysAs is sameAs for a compacted log, of which each cluster's cleaner takes records out when it likes: the last record of each key is
// the same, and at the same offset; so is every other one that both still have, and what only one has is older than the last of its key.
func (s *site) sameKeysAs(other *site, tp harness.TopicPartition) (records int) {
	s.t.Helper()
	here, there := s.records(tp), other.records(tp)
	last := func(records []seen) map[string]seen {
		byKey := make(map[string]seen)
		for _, r := range records {
			byKey[r.key] = r
		}
		return byKey
	}
	mine, theirs := last(here), last(there)
	if len(mine) == 0 || !maps.Equal(mine, theirs) {
		s.t.Errorf("%s-%d: the last records by key differ: here %+v, there %+v", tp.Topic, tp.Partition, mine, theirs)
	}
	atOffset := make(map[int64]seen)
	for _, r := range there {
		atOffset[r.offset] = r
	}
	for _, r := range here {
		if twin, ok := atOffset[r.offset]; ok && twin != r {
			s.t.Errorf("%s-%d: a record differs: here %+v, there %+v", tp.Topic, tp.Partition, r, twin)
		}
	}
	return len(here)
}

// deleteRecords deletes the records of a topic below an offset.
func (s *site) deleteRecords(topic string, below int64) {
	s.t.Helper()
	offsets := make(kadm.Offsets)
	for tp := range s.ends(topic) {
		offsets.AddOffset(topic, tp.Partition, below, -1)
	}
	_, err := s.direct.DeleteRecords(s.t.Context(), offsets)
	s.must(err)
}

// compact writes to a compacted topic until the cleaner has taken records out.
func (s *site) compact(topic string) {
	s.t.Helper()
	client := harness.Client(s.t, s.cluster.Bootstrap(), kgo.DefaultProduceTopic(topic))
	defer client.Close()
	harness.Eventually(s.t, time.Minute, "the cleaner has been at work", func(ctx context.Context) error {
		for i := range 20 {
			if err := client.ProduceSync(ctx, &kgo.Record{Key: fmt.Appendf(nil, "%d", i%5), Value: []byte("v")}).FirstErr(); err != nil {
				return err
			}
		}
		batches, err := harness.Batches(ctx, harness.Client(s.t, s.cluster.Bootstrap()), topic, 0)
		if err != nil {
			return err
		}
		for i := 1; i < len(batches); i++ {
			if batches[i].Base != batches[i-1].Last+1 || batches[i].Records == 0 {
				return nil
			}
		}
		return errors.New("not yet")
	})
}
