package versions

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/faultproxy"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// reader is a consumer that runs through the whole test, and the offsets that it has seen.
type reader struct {
	name string

	mu      sync.Mutex
	offsets []int64
	lines   []string // what is no record, of a process
}

func (r *reader) saw(offset int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.offsets = append(r.offsets, offset)
}

// await waits until the reader has seen want, in this order, and nothing else.
func (r *reader) await(t *testing.T, want []int64) {
	t.Helper()
	harness.Eventually(t, time.Minute, r.name+" reads on", func(context.Context) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, offset := range r.offsets {
			if i >= len(want) || offset != want[i] {
				t.Fatalf("%s: record %d has offset %d; seen %v, wanted %v\n%s", r.name, i, offset, span(r.offsets), span(want), strings.Join(r.lines, "\n"))
			}
		}
		if len(r.offsets) < len(want) {
			return fmt.Errorf("it has seen %v, wanted %v\n%s", span(r.offsets), span(want), strings.Join(r.lines, "\n"))
		}
		return nil
	})
}

// noErrors fails the test if the reader has told of an error. It is none that a member commits before it has noticed that its group is
// elsewhere: it joins that then.
func (r *reader) noErrors(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.lines, func(line string) bool {
		commit := strings.Contains(line, "ConsumerCoordinator") && strings.Contains(line, "ommit")
		return strings.Contains(line, "ERROR") && !commit
	}) {
		t.Errorf("%s:\n%s", r.name, strings.Join(r.lines, "\n"))
	}
}

// span shows the ends of a long list.
func span(offsets []int64) string {
	if len(offsets) < 20 {
		return fmt.Sprint(offsets)
	}
	return fmt.Sprintf("%v … %v (%d)", offsets[:5], offsets[len(offsets)-5:], len(offsets))
}

// franzReader reads by itself, or in a group.
func franzReader(t *testing.T, bootstrap, group string) *reader {
	r := &reader{name: "franz-go " + group}
	opts := []kgo.Opt{kgo.MetadataMaxAge(time.Second), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	if group == "" {
		opts = append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"moving": {0: kgo.NewOffset().At(0)}}))
	} else {
		opts = append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics("moving"), kgo.AutoCommitInterval(200*time.Millisecond))
	}
	client := harness.Client(t, bootstrap, opts...)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			fetches := client.PollFetches(t.Context())
			if t.Context().Err() != nil || fetches.IsClientClosed() {
				return
			}
			fetches.EachError(func(topic string, p int32, err error) {
				if !kerr.IsRetriable(err) {
					r.mu.Lock()
					r.lines = append(r.lines, err.Error())
					r.mu.Unlock()
				}
			})
			fetches.EachRecord(func(record *kgo.Record) { r.saw(record.Offset) })
		}
	})
	t.Cleanup(running.Wait)
	return r
}

// processReader is a consumer in a process of its own that prints "Offset:N" at the beginning of the line of each record.
func processReader(t *testing.T, name string, command *exec.Cmd) *reader {
	r := &reader{name: name}
	out, err := command.StdoutPipe()
	must(t, err)
	command.Stderr = command.Stdout
	must(t, command.Start())
	var running sync.WaitGroup
	running.Go(func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			text, ok := strings.CutPrefix(lines.Text(), "Offset:")
			text, _, _ = strings.Cut(text, "\t")
			offset, err := strconv.ParseInt(text, 10, 64)
			if ok && err == nil {
				r.saw(offset)
				continue
			}
			r.mu.Lock()
			if len(r.lines) < 40 {
				r.lines = append(r.lines, lines.Text())
			}
			r.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = command.Process.Kill()
		running.Wait()
		_ = command.Wait()
	})
	return r
}

// javaReader is Kafka's own consumer of a release.
func javaReader(t *testing.T, version, bootstrap, group string) *reader {
	args := []string{"--bootstrap-server", bootstrap, "--topic", "moving", "--property", "print.offset=true", "--property", "print.value=false",
		"--consumer-property", "metadata.max.age.ms=1000", "--consumer-property", "auto.commit.interval.ms=200"}
	if group == "" {
		args = append(args, "--partition", "0", "--offset", "0", "--consumer-property", "auto.offset.reset=none")
	} else {
		args = append(args, "--group", group, "--consumer-property", "auto.offset.reset=earliest")
	}
	command, err := kafkatest.ToolCommand(t.Context(), version, "kafka-console-consumer", args...)
	must(t, err)
	return processReader(t, "Kafka "+version+" "+group, command)
}

// raiseLeaderEpoch moves the leader between brokers 1 and 2 so often, and ends at broker 2.
func raiseLeaderEpoch(t *testing.T, admin *kadm.Client, topic string, times int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for i := range times {
		replicas := []int32{1, 2}
		if (times-i)%2 == 1 {
			replicas = []int32{2, 1}
		}
		var to kadm.AlterPartitionAssignmentsReq
		to.Assign(topic, 0, replicas)
		_, err := admin.AlterPartitionAssignments(ctx, to)
		must(t, err)
		harness.Eventually(t, time.Minute, "the leader moves", func(ctx context.Context) error {
			var partition kadm.TopicsSet
			partition.Add(topic, 0)
			if _, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, partition); err != nil {
				return err
			}
			topics, err := admin.ListTopics(ctx, topic)
			if err == nil && topics[topic].Partitions[0].Leader != replicas[0] {
				err = fmt.Errorf("the leader is %d", topics[topic].Partitions[0].Leader)
			}
			return err
		})
	}
}

// TestConsumersMove: consumers read at the source, whose addresses then lead to the gateway. They go on at the next offset,
// without a restart, in the same topic, although the destination's leader epochs are lower than those that they
// remember, and its brokers are others.
func TestConsumersMove(t *testing.T) {
	var relays [3]*faultproxy.Proxy // by broker
	advertise := map[int32]string{}
	for id := int32(1); id <= 2; id++ {
		relay, err := faultproxy.Listen("127.0.0.1:0", "127.0.0.1:1")
		must(t, err)
		t.Cleanup(relay.Close)
		relays[id], advertise[id] = relay, relay.Addr()
	}
	source := kafkatest.Start(t, kafkatest.Options{Brokers: 2, Heap: "256m", Advertise: advertise})
	for id := int32(1); id <= 2; id++ {
		relays[id].SetTarget(source.BrokerAddr(id))
	}
	destination := kafkatest.Shared(t, "destination", kafkatest.Options{})
	admin := harness.Admin(t, source.InternalBootstrap())
	topic := harness.Topic{Name: "moving", Partitions: 1}
	harness.CreateTopics(t, source.InternalBootstrap(), topic)
	raiseLeaderEpoch(t, admin, topic.Name, 5)
	g := harness.StartGateway(t, harness.GatewayOptions{Destination: destination.Bootstrap()})
	client := g.Client(t)
	harness.CreateMirror(t, client, "m", source.InternalBootstrap())
	harness.AddTopics(t, client, "m", topic.Name)

	random := harness.Random(t)
	harness.MustFill(t, source.InternalBootstrap(), random, 300, topic)
	bootstrap := relays[1].Addr()
	readers := []*reader{
		franzReader(t, bootstrap, ""), franzReader(t, bootstrap, "franz"),
		javaReader(t, kafkatest.DefaultVersion, bootstrap, ""), javaReader(t, kafkatest.DefaultVersion, bootstrap, "java"),
	}
	want := offsets(0, 300)
	for _, r := range readers {
		r.await(t, want)
	}
	mirrored := func() {
		t.Helper()
		harness.WaitMirrored(t, client, "m", source.InternalBootstrap(), destination.Bootstrap(), time.Minute, topic.Name)
	}
	mirrored()
	harness.Eventually(t, time.Minute, "groups are in place", func(ctx context.Context) error {
		for _, group := range []string{"franz", "java"} {
			committed, err := harness.Admin(t, destination.Bootstrap()).FetchOffsets(ctx, group)
			if err != nil {
				return err
			}
			if o, ok := committed.Lookup(topic.Name, 0); !ok || o.At != 300 {
				return fmt.Errorf("group %s is at %d", group, o.At)
			}
		}
		return nil
	})

	for _, relay := range relays[1:] {
		relay.SetTarget(g.Bootstrap())
		relay.Cut()
	}
	// A member that has not noticed yet that its group is elsewhere reads on, but cannot commit; when it does, it reads that again.
	harness.Eventually(t, time.Minute, "the members are at the gateway", func(ctx context.Context) error {
		described, err := kadm.NewClient(client).DescribeGroups(ctx, "franz", "java")
		for _, group := range described {
			if group.State != "Stable" || len(group.Members) != 1 {
				err = errors.Join(err, group.Err, fmt.Errorf("group %s is %s, with %d members", group.Group, group.State, len(group.Members)))
			}
		}
		return err
	})
	harness.MustFill(t, source.InternalBootstrap(), random, 300, topic)
	mirrored()
	want = append(want, offsets(300, 600)...)
	for _, r := range readers {
		r.await(t, want)
	}

	// After the failover they go on, too: behind the fence.
	harness.RemoveTopics(t, client, "m", topic.Name)
	harness.MustFill(t, g.Bootstrap(), random, 100, topic)
	want = append(want, offsets(601, 701)...)
	for _, r := range readers {
		r.await(t, want)
		r.noErrors(t)
	}
}

func offsets(from, to int64) []int64 {
	var list []int64
	for o := from; o < to; o++ {
		list = append(list, o)
	}
	return list
}
