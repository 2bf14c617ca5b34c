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

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// A site is a cluster with a gateway in front of it, as there is one on each side of a failback.
type site struct {
	t       *testing.T
	id      string // the cluster's ID
	cluster *kafkatest.Cluster
	gateway *harness.Gateway
	direct  *kadm.Client // at the brokers
	client  *kgo.Client  // at the gateway
}

// newSites starts clusters, all at once, and their gateways. Nothing is secured there: that is for others to test.
func newSites(t *testing.T, n int) []*site {
	t.Helper()
	sites := make([]*site, n)
	for i := range sites {
		// One after the other would take as long again as the rest of the test.
		sites[i] = &site{t: t, cluster: kafkatest.Shared(t, fmt.Sprintf("site-%d", i), kafkatest.Options{Heap: "384m"})}
	}
	for _, s := range sites {
		s.gateway = harness.StartGateway(t, harness.GatewayOptions{Destination: s.cluster.Bootstrap()})
		s.direct = harness.Admin(t, s.cluster.Bootstrap())
		s.client = s.gateway.Client(t)
		metadata, err := s.direct.BrokerMetadata(t.Context())
		s.must(err)
		s.id = metadata.Cluster
		t.Cleanup(s.forget)
	}
	return sites
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// forget deletes the mirrors of the gateway, for the next test with the cluster. Gateways that they mirror from may be gone.
func (s *site) forget() {
	harness.Eventually(s.t, time.Minute, "the mirrors are deleted", func(ctx context.Context) error {
		listed, err := mirrormsg.NewPtrListMirrorsRequest().RequestWith(ctx, s.client)
		if err != nil {
			return err
		}
		for _, m := range listed.Mirrors {
			_, _ = s.run("remove-topics", "--mirror", m.MirrorName, "--all-topics") // an error if it has none
			if out, deleteErr := s.run("delete", "--mirror", m.MirrorName); deleteErr != nil {
				err = errors.Join(err, fmt.Errorf("mirror %s: %w\n%s", m.MirrorName, deleteErr, out))
			}
		}
		return err
	})
}

// run runs "mirrorgate mirrors" at the gateway.
func (s *site) run(args ...string) (string, error) {
	return harness.Run(&background{s.t}, append([]string{"mirrors", args[0], "--bootstrap-server", s.gateway.Bootstrap()}, args[1:]...)...)
}

// background is a test whose context lasts until its cleanup is over.
type background struct{ testing.TB }

func (background) Context() context.Context { return context.Background() }

func (s *site) command(args ...string) string {
	s.t.Helper()
	out, err := s.run(args...)
	if err != nil {
		s.t.Fatalf("mirrors %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// refused runs a command that must be refused with messages.
func (s *site) refused(messages []string, args ...string) {
	s.t.Helper()
	out, err := s.run(args...)
	for _, message := range messages {
		if err == nil || !strings.Contains(out, message) {
			s.t.Errorf("mirrors %s: %v, without %q:\n%s", strings.Join(args, " "), err, message, out)
		}
	}
}

// mirrorFrom makes a mirror whose source is the gateway of another site.
func (s *site) mirrorFrom(from *site, name string, config ...string) {
	s.t.Helper()
	harness.CreateMirror(s.t, s.client, name, from.gateway.Bootstrap(), config...)
}

// status is what the gateway says of a topic, by partition.
func (s *site) status(ctx context.Context, mirror, topic string) (map[int32]harness.Partition, error) {
	described, err := harness.Describe(ctx, s.client, mirror)
	if err == nil && len(described[topic]) == 0 {
		err = fmt.Errorf("topic %s is not in mirror %s", topic, mirror)
	}
	return described[topic], err
}

// await waits until all partitions of a topic have a state.
func (s *site) await(mirror, topic, state string) {
	s.t.Helper()
	harness.Eventually(s.t, time.Minute, topic+" is "+state, func(ctx context.Context) error {
		partitions, err := s.status(ctx, mirror, topic)
		for n, p := range partitions {
			if p.State != state {
				err = fmt.Errorf("partition %d is %s %s", n, p.State, p.Reason)
			}
		}
		return err
	})
}

// awaitMirrored waits until a topic is MIRRORING and ends where the source's does.
func (s *site) awaitMirrored(from *site, mirror, topic string) {
	s.t.Helper()
	harness.WaitMirrored(s.t, s.client, mirror, from.cluster.Bootstrap(), s.cluster.Bootstrap(), time.Minute, topic)
}

// sameAs compares what readers of both gateways see with read_committed, record by record, offsets and all. It returns how many.
func (s *site) sameAs(other *site, topic string) (records int) {
	s.t.Helper()
	for tp := range s.ends(topic) {
		here, there := s.records(tp), other.records(tp)
		records += len(here)
		for i := range max(len(here), len(there)) {
			if i >= len(here) || i >= len(there) || here[i] != there[i] {
				s.t.Errorf("%s-%d: record %d of %d differs: here %+v, there, of %d, %+v", topic, tp.Partition, i, len(here), here[min(i, len(here)):min(i+1, len(here))], len(there), there[min(i, len(there)):min(i+1, len(there))])
				break
			}
		}
	}
	return records
}

func (s *site) ends(topic string) map[harness.TopicPartition]int64 {
	s.t.Helper()
	ends, err := harness.Ends(s.t.Context(), s.direct, topic)
	s.must(err)
	return ends
}

// topicID is the topic's ID as clients of the gateway see it, or of the brokers.
func (s *site) topicID(admin *kadm.Client, topic string) kadm.TopicID {
	s.t.Helper()
	topics, err := admin.ListTopics(s.t.Context(), topic)
	s.must(err)
	s.must(topics[topic].Err)
	return topics[topic].ID
}

// writings is what clients were told was written: by topic and partition, in order.
type writings map[harness.TopicPartition][]string

// write writes records through the gateway, in turn to all partitions, some in a transaction; and some in one that is aborted.
func (s *site) write(l writings, topic, text string, partitions int32, records int) {
	s.t.Helper()
	plain := s.gateway.Client(s.t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	inTransactions := s.gateway.Client(s.t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(fmt.Sprintf("%s-%s-%d", topic, text, time.Now().UnixNano())))
	defer plain.CloseAllowingRebalance()
	defer inTransactions.CloseAllowingRebalance()
	write := func(client *kgo.Client, kind string, n int) (written []*kgo.Record) {
		for i := range n {
			written = append(written, &kgo.Record{
				Topic: topic, Partition: int32(i) % partitions, Key: fmt.Appendf(nil, "%d", i%7), Value: fmt.Appendf(nil, "%s %s %d", text, kind, i),
			})
		}
		s.must(client.ProduceSync(s.t.Context(), written...).FirstErr())
		return written
	}
	note := func(records []*kgo.Record) {
		for _, r := range records {
			at := harness.TopicPartition{Topic: topic, Partition: r.Partition}
			l[at] = append(l[at], string(r.Value))
		}
	}
	note(write(plain, "plain", records))
	s.must(inTransactions.BeginTransaction())
	committed := write(inTransactions, "committed", int(partitions)*3)
	s.must(inTransactions.EndTransaction(s.t.Context(), kgo.TryCommit))
	note(committed)
	s.must(inTransactions.BeginTransaction())
	write(inTransactions, "aborted", int(partitions)*2)
	s.must(inTransactions.EndTransaction(s.t.Context(), kgo.TryAbort))
}

// has compares a ledger with what readers of the gateway get.
func (s *site) has(l writings, topic string) {
	s.t.Helper()
	for tp, want := range l {
		if tp.Topic != topic {
			continue
		}
		if got := s.read(tp); !slices.Equal(got, want) {
			s.t.Errorf("%s-%d at %s: %d records, the ledger has %d; the first that differs is %d", topic, tp.Partition, s.id, len(got), len(want), firstDifference(got, want))
		}
	}
}

func firstDifference(a, b []string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return i
}

// seen is a record as a reader sees it.
type seen struct {
	offset, timestamp   int64
	key, value, headers string
}

// read reads the values of a partition through the gateway.
func (s *site) read(tp harness.TopicPartition) (values []string) {
	s.t.Helper()
	for _, r := range s.records(tp) {
		values = append(values, r.value)
	}
	return values
}

// records reads a partition through the gateway, read_committed, up to its end.
func (s *site) records(tp harness.TopicPartition) (records []seen) {
	s.t.Helper()
	end := s.ends(tp.Topic)[tp]
	client := s.gateway.Client(s.t, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(200*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{tp.Topic: {tp.Partition: kgo.NewOffset().AtStart()}}))
	defer client.CloseAllowingRebalance()
	readTo(s.t, client, map[harness.TopicPartition]int64{tp: end}, func(_ harness.TopicPartition, r *kgo.Record) {
		records = append(records, seen{r.Offset, r.Timestamp.UnixMilli(), fmt.Sprintf("%q", r.Key), string(r.Value), fmt.Sprintf("%q", r.Headers)})
	})
	return records
}
