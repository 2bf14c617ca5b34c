package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// zombieTries is how often it is tried without MIRRORGATE_ZOMBIES (make gameday sets it).
const zombieTries = 15

// A zombie is a gateway that is stopped with SIGSTOP while it copies, and woken after another gateway has stopped the
// mirror and clients have written: it must not write a byte. It is tried at random moments, with data of different kinds;
// the two gateways are the zombie in turn. In the end every log holds the source's records, the fence, and what clients
// were told was written, and nothing else.
func TestZombie(t *testing.T) {
	tries := zombieTries
	if n, err := strconv.Atoi(os.Getenv("MIRRORGATE_ZOMBIES")); err == nil {
		tries = n
	}
	z := newGraveyard(t)
	var kinds []*zombie
	for i := range tries {
		if i%zombieChunk == 0 {
			kinds = z.prepare(i, min(zombieChunk, tries-i))
		}
		z.try(kinds[i%zombieChunk])
	}
	for _, tried := range z.tried {
		z.check(tried)
	}
	refused := 0
	for _, tried := range z.tried {
		if z.refused(tried) {
			refused++
		}
	}
	t.Logf("%d zombies; %d of them sent a batch after they woke, and were refused", tries, refused)
	if refused == 0 {
		t.Error("no zombie tried to write: the moments are not what this test is for")
	}
}

const (
	zombieChunk      = 10
	zombiePartitions = 3
)

// zombie is one try, and its topic.
type zombie struct {
	topic string
	zombieKind
	sleeper *harness.Gateway
	last    map[int32]int64
	written map[harness.TopicPartition]map[int64]string
}

type zombieKind struct {
	name    string
	size    int // of the largest value
	old     bool
	anew    bool // the topic is deleted and made again before clients write
	configs map[string]string
}

var zombieKinds = []zombieKind{
	{name: "small", size: 200},
	{name: "large", size: 100_000},
	{name: "old", size: 1000, old: true},
	{name: "compacted", size: 1000, configs: map[string]string{"cleanup.policy": "compact"}},
	{name: "anew", size: 1000, anew: true},
}

type graveyard struct {
	*pair
	random *rand.Rand
	// other is the second gateway of the destination; second is admin there.
	other  *harness.Gateway
	second *kgo.Client
	tried  []*zombie
}

func newGraveyard(t *testing.T) *graveyard {
	opts := options()
	// Brokers look once a second, instead of every 10 minutes, which producers they may forget by the age of their records.
	opts.Settings = map[string]string{"producer.id.expiration.check.interval.ms": "1000"}
	z := &graveyard{pair: pairOf(t, kafkatest.Shared(t, "source", options()), kafkatest.Start(t, opts)), random: harness.Random(t)}
	z.gatewayRights()
	z.other = harness.StartGateway(t, harness.GatewayOptions{
		Destination: z.destination.Bootstrap(), Flags: []string{"--destination-config", z.login, "--gateway-number", "1"},
	})
	z.second = z.other.Client(t, saslAdmin())
	z.createMirror("mirror.acls.include", "none", "mirror.groups.include", "none")
	return z
}

// prepare makes the topics of the next tries and waits until they are mirrored.
func (z *graveyard) prepare(first, n int) []*zombie {
	z.t.Helper()
	var tries []*zombie
	var topics []harness.Topic
	for i := range n {
		kind := zombieKinds[z.random.IntN(len(zombieKinds))]
		next := &zombie{topic: fmt.Sprintf("zombie-%03d-%s", first+i, kind.name), zombieKind: kind, written: map[harness.TopicPartition]map[int64]string{}}
		tries = append(tries, next)
		topics = append(topics, harness.Topic{Name: next.topic, Partitions: zombiePartitions, Configs: kind.configs})
	}
	harness.CreateTopics(z.t, z.source.InternalBootstrap(), topics...)
	harness.AddTopics(z.t, z.client, "m", harness.Names(topics)...)
	for _, client := range []*kgo.Client{z.client, z.second} {
		z.awaitAt(client, "MIRRORING", harness.Names(topics)...)
	}
	return tries
}

// try lets one gateway copy alone, puts it to sleep in the middle of that, has the other one stop the topic and clients
// write to it, and wakes the sleeper.
func (z *graveyard) try(now *zombie) {
	z.t.Helper()
	sleeper, awake, client, sleeping := z.gateway, z.other, z.second, z.client
	if z.random.IntN(2) == 0 {
		sleeper, awake, client, sleeping = awake, sleeper, sleeping, client
	}
	now.sleeper = sleeper
	// It copies alone, so that it surely is in the middle of something.
	if now.old {
		awake.Kill()
	} else {
		awake.Pause(z.t)
	}
	stop := z.flood(now)
	z.awaitRecords(now)
	z.chance(150 * time.Millisecond)
	sleeper.Pause(z.t)
	if now.old {
		awake.Start(z.t)
	} else {
		awake.Resume(z.t)
	}
	harness.RemoveTopics(z.t, client, "m", now.topic)
	now.last = z.lastMirrored(client, now.topic)
	if now.anew {
		z.makeAnew(awake, now)
	}
	z.write(awake, now)
	z.chance(300 * time.Millisecond)
	sleeper.Resume(z.t)
	z.awaitAt(sleeping, "STOPPED", now.topic)
	stop()
	z.tried = append(z.tried, now)
	z.checkEnds(now)
}

// chance is a random moment.
func (z *graveyard) chance(most time.Duration) {
	time.Sleep(time.Duration(z.random.Int64N(int64(most))))
}

// flood writes to the source without a pause until stop.
func (z *graveyard) flood(now *zombie) (stop func()) {
	client := harness.Client(z.t, z.source.InternalBootstrap(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(300),
		kgo.MaxBufferedBytes(4<<20))
	random := rand.New(rand.NewPCG(z.random.Uint64(), 0))
	ctx, cancel := context.WithCancel(z.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		noise := make([]byte, now.size)
		for i := range noise {
			noise[i] = byte(random.Uint32())
		}
		for n := 0; ctx.Err() == nil; n++ {
			record := &kgo.Record{Topic: now.topic, Partition: int32(n % zombiePartitions), Key: fmt.Append(nil, n), Value: noise[:1+random.IntN(now.size)]}
			if now.old {
				record.Timestamp = time.Now().Add(-48 * time.Hour)
			}
			client.Produce(ctx, record, func(_ *kgo.Record, err error) {
				if err != nil && ctx.Err() == nil {
					z.t.Errorf("write to the source: %v", err)
				}
			})
		}
	})
	return func() {
		cancel()
		running.Wait()
		client.Close()
	}
}

// awaitRecords waits until every partition of the topic has something at the destination.
func (z *graveyard) awaitRecords(now *zombie) {
	z.t.Helper()
	harness.Eventually(z.t, time.Minute, "records are mirrored", func(ctx context.Context) error {
		ends, err := harness.Ends(ctx, z.to, now.topic)
		for tp, end := range ends {
			if end == 0 {
				err = fmt.Errorf("partition %d is empty", tp.Partition)
			}
		}
		return err
	})
}

func (z *graveyard) lastMirrored(client *kgo.Client, topic string) map[int32]int64 {
	z.t.Helper()
	offsets, err := harness.LastMirrored(z.ctx(), client, "m", topic)
	z.must(err)
	return offsets
}

// write has several clients write to each partition, and notes what was acknowledged.
func (z *graveyard) write(through *harness.Gateway, now *zombie) {
	z.t.Helper()
	for writer := range 1 + z.random.IntN(3) {
		client := through.Client(z.t, saslAdmin(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for p := range int32(zombiePartitions) {
			record := &kgo.Record{Topic: now.topic, Partition: p, Key: fmt.Appendf(nil, "client %d", writer), Value: fmt.Appendf(nil, "of client %d", writer)}
			z.must(client.ProduceSync(z.ctx(), record).FirstErr())
			tp := harness.TopicPartition{Topic: now.topic, Partition: p}
			if now.written[tp] == nil {
				now.written[tp] = map[int64]string{}
			}
			now.written[tp][record.Offset] = string(record.Value)
		}
		client.Close()
	}
}

// makeAnew deletes the topic and creates one of the same name, in which nothing is left of the fence.
func (z *graveyard) makeAnew(through *harness.Gateway, now *zombie) {
	z.t.Helper()
	admin := kadm.NewClient(through.Client(z.t, saslAdmin()))
	defer admin.Close()
	_, err := admin.DeleteTopic(z.ctx(), now.topic)
	z.must(err)
	harness.Eventually(z.t, time.Minute, "the topic is made anew", func(ctx context.Context) error {
		_, err := admin.CreateTopic(ctx, zombiePartitions, -1, nil, now.topic)
		return err
	})
	harness.Eventually(z.t, time.Minute, "the topic made anew has leaders", func(ctx context.Context) error {
		ends, err := harness.Ends(ctx, z.to, now.topic)
		if err == nil && harness.Total(ends) > 0 {
			err = fmt.Errorf("ends at %v", ends)
		}
		return err
	})
	clear(now.last)
	for p := range int32(zombiePartitions) {
		now.last[p] = -1
	}
}

func (z *graveyard) awaitAt(client *kgo.Client, state string, topics ...string) {
	z.t.Helper()
	harness.Eventually(z.t, time.Minute, fmt.Sprintf("%s is %s", strings.Join(topics, ", "), state), func(ctx context.Context) error {
		described, err := harness.Describe(ctx, client, "m")
		for _, topic := range topics {
			if err == nil && len(described[topic]) != zombiePartitions {
				err = fmt.Errorf("%s has %d partitions", topic, len(described[topic]))
			}
			for n, partition := range described[topic] {
				if partition.State != state {
					err = fmt.Errorf("%s/%d is %s %s", topic, n, partition.State, partition.Reason)
				}
			}
		}
		return err
	})
}

// checkEnds compares where the logs end with the last mirrored offset, the fence and what was written.
func (z *graveyard) checkEnds(tried *zombie) {
	z.t.Helper()
	ends, err := harness.Ends(z.ctx(), z.to, tried.topic)
	z.must(err)
	for tp, records := range tried.written {
		if want := tried.last[tp.Partition] + 1 + int64(len(records)); ends[tp] != want {
			z.t.Errorf("%s/%d ends at %d, want %d: last mirrored %d, the fence, and %d records of clients", tp.Topic, tp.Partition, ends[tp], want,
				tried.last[tp.Partition], len(records))
		}
	}
}

// check reads the logs of a topic whole: the source's records, the fence, the records of clients.
func (z *graveyard) check(tried *zombie) {
	z.t.Helper()
	z.checkEnds(tried)
	for tp, records := range tried.written {
		last := tried.last[tp.Partition]
		end := last + 1 + int64(len(records))
		source, err := z.source.InternalBootstrap(), error(nil)
		from := z.readLog(source, tp, last)
		to := z.readLog(z.destination.InternalBootstrap(), tp, end)
		for offset, value := range from {
			if to[offset] != value {
				got, there := to[offset]
				err = errors.Join(err, fmt.Errorf("offset %d differs: %d bytes at the source, %d at the destination (there: %v); last mirrored %d, end %d, records of clients %v",
					offset, len(value), len(got), there, last, end, records))
				break
			}
		}
		for offset, value := range records {
			if to[offset] != value {
				err = errors.Join(err, fmt.Errorf("offset %d is %q, and %q was acknowledged there", offset, to[offset], value))
			}
		}
		if tried.configs == nil && int64(len(to)) != end {
			err = errors.Join(err, fmt.Errorf("%d records in %d offsets", len(to), end))
		}
		if err != nil {
			z.t.Errorf("%s/%d: %v", tp.Topic, tp.Partition, err)
		}
	}
}

// readLog reads a partition up to an end, straight from a broker.
func (z *graveyard) readLog(bootstrap string, tp harness.TopicPartition, end int64) map[int64]string {
	z.t.Helper()
	records := map[int64]string{}
	if end <= 0 {
		return records
	}
	client := harness.Client(z.t, bootstrap, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{tp.Topic: {tp.Partition: kgo.NewOffset().AtStart()}}))
	defer client.Close()
	ctx, cancel := context.WithTimeout(z.t.Context(), time.Minute)
	defer cancel()
	for next := int64(0); next < end; {
		fetches := client.PollFetches(ctx)
		z.must(fetches.Err0())
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < end {
				records[r.Offset] = string(r.Value)
			}
			next = r.Offset + 1
		})
	}
	return records
}

// refused reports whether the broker refused a batch of the zombie: only then does its log know of the fence without its
// offset. A topic that was made anew has another ID.
func (z *graveyard) refused(tried *zombie) bool {
	for line := range strings.Lines(tried.sleeper.Log()) {
		fenced := strings.Contains(line, "destination log is fenced") && strings.Contains(line, `"offset": -1`)
		if strings.Contains(line, tried.topic) && (fenced || strings.Contains(line, "UNKNOWN_TOPIC_ID")) {
			return true
		}
	}
	return false
}
