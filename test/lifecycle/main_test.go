// Package lifecycle tests what is around the data on real Kafka with SASL and ACLs on both sides: what is synced beside
// it, and the states of a mirror from its creation to its deletion.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

const mechanism = "SCRAM-SHA-512"

func options() kafkatest.Options {
	return kafkatest.Options{
		Heap:     "384m",
		Security: &kafkatest.Security{Mechanisms: []string{mechanism}, ACLs: true},
	}
}

// pair is a source, a destination and a gateway in front of it.
type pair struct {
	t                   *testing.T
	source, destination *kafkatest.Cluster
	gateway             *harness.Gateway
	// from and to are super users of both sides, straight.
	from, to *kadm.Client
	// client is admin at the gateway.
	client *kgo.Client
	// login is a file with the credentials of admin.
	login string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	return pairOf(t, kafkatest.Shared(t, "source", options()), kafkatest.Start(t, options()))
}

func pairOf(t *testing.T, source, destination *kafkatest.Cluster) *pair {
	t.Helper()
	p := &pair{t: t, source: source, destination: destination}
	p.login = filepath.Join(t.TempDir(), "admin.properties")
	p.must(kafkatest.WriteProperties(p.login, p.destination.ClientProperties(kafkatest.Admin, mechanism)))
	p.gateway = harness.StartGateway(t, harness.GatewayOptions{
		Destination: p.destination.Bootstrap(), Flags: []string{"--destination-config", p.login},
	})
	p.from, p.to = harness.Admin(t, p.source.InternalBootstrap()), harness.Admin(t, p.destination.InternalBootstrap())
	p.client = p.gateway.Client(t, kgo.SASL(kafkatest.Mechanism(kafkatest.Admin, mechanism)))
	return p
}

func (p *pair) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) ctx() context.Context {
	ctx, cancel := context.WithTimeout(p.t.Context(), 3*time.Minute)
	p.t.Cleanup(cancel)
	return ctx
}

// createMirror makes the mirror "m", with further key, value, …
func (p *pair) createMirror(config ...string) {
	p.t.Helper()
	p.createMirrorAt(p.source.Bootstrap(), config...)
}

func (p *pair) createMirrorAt(bootstrap string, config ...string) {
	p.t.Helper()
	for key, value := range p.source.ClientProperties("gateway", mechanism) {
		config = append([]string{key, value}, config...)
	}
	harness.CreateMirror(p.t, p.client, "m", bootstrap, config...)
}

// gatewayRights are what the gateway's user needs at the source.
func (p *pair) gatewayRights() {
	p.t.Helper()
	harness.AddACLs(p.t, p.from, kadm.NewACLs().Topics("*").Groups("*").ResourcePatternType(kadm.ACLPatternLiteral).
		Operations(kadm.OpRead, kadm.OpDescribe, kadm.OpDescribeConfigs).Allow("User:gateway").AllowHosts())
	harness.AddACLs(p.t, p.from, kadm.NewACLs().Clusters().Operations(kadm.OpDescribe).Allow("User:gateway").AllowHosts())
}

// aclsAt are the ACLs of a cluster, in words.
func (p *pair) aclsAt(ctx context.Context, admin *kadm.Client) (map[string]bool, error) {
	all := kadm.NewACLs().AnyResource().Operations(kadm.OpAny).ResourcePatternType(kadm.ACLPatternAny).Allow().Deny().AllowHosts().DenyHosts()
	results, err := admin.DescribeACLs(ctx, all)
	acls := make(map[string]bool)
	for _, r := range results {
		err = errors.Join(err, r.Err)
		for _, d := range r.Described {
			acls[fmt.Sprintf("%s %s %s %s %s %s", d.Permission, d.Principal, d.Operation, d.Type, d.Pattern, d.Name)] = true
		}
	}
	return acls, err
}

// command runs "mirrorgate mirrors" as admin and fails the test if it fails.
func (p *pair) command(args ...string) string {
	p.t.Helper()
	out, err := p.run(args...)
	if err != nil {
		p.t.Fatalf("mirrors %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (p *pair) run(args ...string) (string, error) {
	return harness.Run(p.t, append([]string{"mirrors", args[0], "--bootstrap-server", p.gateway.Bootstrap(), "--command-config", p.login}, args[1:]...)...)
}

// refused runs a command that must be refused with a message.
func (p *pair) refused(message string, args ...string) {
	p.t.Helper()
	if out, err := p.run(args...); err == nil || !strings.Contains(out, message) {
		p.t.Errorf("mirrors %s: %v, without %q:\n%s", strings.Join(args, " "), err, message, out)
	}
}

// awaitState waits until all partitions of a topic have a state.
func (p *pair) awaitState(topic, state string) {
	p.t.Helper()
	harness.Eventually(p.t, time.Minute, topic+" is "+state, func(ctx context.Context) error {
		described, err := harness.Describe(ctx, p.client, "m")
		if err == nil && len(described[topic]) == 0 {
			err = errors.New("it is not in the mirror")
		}
		for n, partition := range described[topic] {
			if partition.State != state {
				err = fmt.Errorf("partition %d is %s %s", n, partition.State, partition.Reason)
			}
		}
		return err
	})
}

func (p *pair) awaitSameEnds(topics ...string) {
	p.t.Helper()
	harness.WaitSameEnds(p.t, p.source.InternalBootstrap(), p.destination.InternalBootstrap(), time.Minute, topics...)
}

// reading are the options of a client that reads a topic from its start for readTo.
func reading(topic string) []kgo.Opt {
	return []kgo.Opt{
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords(), kgo.FetchMaxWait(200 * time.Millisecond),
	}
}

// readTo reads until it has seen the last offset of each partition, and shows the records. The client must keep control records: where
// the end of a log has no record, there is a marker, also instead of what a gateway hides.
func readTo(t *testing.T, client *kgo.Client, ends map[harness.TopicPartition]int64, show func(harness.TopicPartition, *kgo.Record)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	behind := make(map[harness.TopicPartition]bool)
	for tp, end := range ends {
		if end > 0 {
			behind[tp] = true
		}
	}
	for len(behind) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("reading up to %v: %v", ends, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			tp := harness.TopicPartition{Topic: r.Topic, Partition: r.Partition}
			if r.Offset >= ends[tp]-1 {
				delete(behind, tp)
			}
			if !r.Attrs.IsControl() {
				show(tp, r)
			}
		})
	}
}

// load writes to all partitions of a topic of the source, as many as it has at the time, until stop.
func (p *pair) load(topic string) (stop func() int64) {
	p.t.Helper()
	client := harness.Client(p.t, p.source.InternalBootstrap(), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()),
		kgo.MetadataMaxAge(500*time.Millisecond), kgo.ProducerLinger(5*time.Millisecond))
	ctx, cancel := context.WithCancel(p.t.Context())
	var running sync.WaitGroup
	var written atomic.Int64
	running.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			client.Produce(context.Background(), kgo.StringRecord(fmt.Sprint(n)), func(_ *kgo.Record, err error) {
				if err != nil {
					p.t.Errorf("write to the source: %v", err)
				}
				written.Add(1)
			})
		}
	})
	var once sync.Once
	end := func() int64 {
		once.Do(func() {
			cancel()
			running.Wait()
			p.must(client.Flush(context.Background()))
		})
		return written.Load()
	}
	p.t.Cleanup(func() { end() })
	return end
}
