package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/faultproxy"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// load writes to a topic while other things happen. Chunks of records are released one by one, so that the writing lasts
// as long as the test.
type load struct {
	chunks chan int
	done   chan error
	total  int
}

func startLoad(ctx context.Context, bootstrap string, topic harness.Topic, random *rand.Rand) *load {
	l := &load{chunks: make(chan int, 100), done: make(chan error, 1)}
	own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
	go func() {
		var err error
		for n := range l.chunks {
			err = errors.Join(err, harness.Fill(ctx, bootstrap, topic, n, own))
		}
		l.done <- err
	}()
	return l
}

func (l *load) release(n int) {
	l.total += n
	l.chunks <- n
}

func (l *load) finish(t *testing.T) {
	t.Helper()
	close(l.chunks)
	if err := <-l.done; err != nil {
		t.Fatalf("the load on the source: %v", err)
	}
}

// pause waits for a random time up to limit: it picks the moment of a crash and is never waited for something.
func pause(random *rand.Rand, limit time.Duration) {
	time.Sleep(time.Duration(random.Int64N(int64(limit))))
}

// clean waits until the mirror has caught up by itself, then compares.
func clean(t *testing.T, gw *harness.Gateway, mirror, from, to string, records int, topics ...string) {
	t.Helper()
	harness.WaitMirrored(t, gw.Client(t), mirror, from, to, 10*time.Minute, topics...)
	if n := harness.SameRecords(t, from, to, topics...); n != int64(records) {
		t.Errorf("compared %d records, want %d", n, records)
	}
	output, err := harness.Run(t, "verify", "--source", from, "--destination", to, "--topics", strings.Join(topics, ","))
	if err != nil {
		t.Errorf("mirrorgate verify: %v\n%s", err, output)
	}
}

// The gateway is killed 20 times at random moments while 300,000 records are written and mirrored.
func TestGatewayKilled(t *testing.T) {
	random := harness.Random(t)
	killGateway(t, random, "killed", 20, 300_000)
}

func killGateway(t *testing.T, random *rand.Rand, name string, kills, records int) {
	topic := harness.Topic{Name: name, Partitions: 6, Codec: kgo.Lz4Compression()}
	from, to := source(t), destination(t)
	harness.CreateTopics(t, from, topic)
	writer := startLoad(t.Context(), from, topic, random)
	gw := gateway(t, to)
	harness.CreateMirror(t, gw.Client(t), name, from)
	harness.AddTopics(t, gw.Client(t), name, topic.Name)
	midway := 0
	for i := range kills {
		before := writer.total
		writer.release(records / kills)
		if i%2 == 0 {
			// At any moment, also during the start.
			pause(random, 1500*time.Millisecond)
		} else {
			// In the middle of mirroring.
			waitTotal(t, to.Bootstrap(), topic.Name, before+1+random.IntN(records/kills/2))
			midway++
		}
		gw.Kill()
		gw.StartNoWait(t)
	}
	writer.finish(t)
	gw.WaitReady(t)
	t.Logf("killed %d times, %d of them while the destination grew", kills, midway)
	clean(t, gw, name, from, to.Bootstrap(), writer.total, topic.Name)
}

// waitTotal waits until the topic holds so many offsets.
func waitTotal(t *testing.T, bootstrap, topic string, wanted int) {
	t.Helper()
	admin := harness.Admin(t, bootstrap)
	defer admin.Close()
	harness.Eventually(t, time.Minute, "the mirror grows", func(ctx context.Context) error {
		ends, err := harness.Ends(ctx, admin, topic)
		if err == nil && harness.Total(ends) < int64(wanted) {
			err = fmt.Errorf("%d offsets, waiting for %d", harness.Total(ends), wanted)
		}
		return err
	})
}

// The destination's broker, then the source's, is killed and restarted three times under load.
func TestBrokersKilled(t *testing.T) {
	const records = 120_000
	random := harness.Random(t)
	from, to := destination(t), destination(t)
	topic := harness.Topic{Name: "brokers", Partitions: 4, Codec: kgo.ZstdCompression()}
	harness.CreateTopics(t, from.Bootstrap(), topic)
	writer := startLoad(t.Context(), from.Bootstrap(), topic, random)
	gw := gateway(t, to)
	harness.CreateMirror(t, gw.Client(t), "brokers", from.Bootstrap())
	harness.AddTopics(t, gw.Client(t), "brokers", topic.Name)
	for i := range 6 {
		victim := []*kafkatest.Cluster{to, from}[i%2]
		waitTotal(t, to.Bootstrap(), topic.Name, max(0, writer.total-records/6))
		writer.release(records / 6)
		pause(random, time.Second)
		victim.Kill(1)
		if err := victim.Restart(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	writer.finish(t)
	clean(t, gw, "brokers", from.Bootstrap(), to.Bootstrap(), writer.total, topic.Name)
}

// 200 times the connection to the destination breaks after a batch was appended and before the answer arrives, and 50
// times after a random number of bytes.
func TestConnectionsCut(t *testing.T) {
	random := harness.Random(t)
	topic := harness.Topic{Name: "cut", Partitions: 4}
	from := source(t)
	ports, err := kafkatest.ReservePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ports.Release)
	// The broker tells its clients to come through the proxy.
	address := fmt.Sprintf("127.0.0.1:%d", ports.Numbers[0])
	to := kafkatest.Start(t, kafkatest.Options{Advertise: map[int32]string{1: address}, Heap: "512m"})
	proxy, err := faultproxy.Listen(address, to.BrokerAddr(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)

	harness.CreateTopics(t, from, topic)
	writer := startLoad(t.Context(), from, topic, random)
	gw := harness.StartGateway(t, harness.GatewayOptions{Destination: address})
	harness.CreateMirror(t, gw.Client(t), "cut", from, "mirror.fetch.max.bytes", "16384")
	harness.AddTopics(t, gw.Client(t), "cut", topic.Name)

	const wanted = 200
	var mu sync.Mutex
	chance := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
	cut := 0
	proxy.CutResponses(func(key, _ int16) bool {
		mu.Lock()
		defer mu.Unlock()
		if key != 0 || cut == wanted || chance.IntN(2) == 0 {
			return false
		}
		cut++
		return true
	})
	writeUntilCut(t, proxy, writer, wanted)
	proxy.CutResponses(nil)
	sizes := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
	proxy.CutAfter(func(int64) int64 {
		mu.Lock()
		defer mu.Unlock()
		return 100 + sizes.Int64N(60_000)
	})
	proxy.Cut()
	writeUntilCut(t, proxy, writer, wanted+50)
	proxy.CutAfter(nil)
	proxy.Cut()
	// A black hole for a while, too.
	proxy.Pause()
	writer.release(2000)
	pause(random, 3*time.Second)
	proxy.Resume()
	writer.finish(t)
	t.Logf("%d connections cut, %d of them between append and answer; %d records", proxy.Cuts(), wanted, writer.total)
	clean(t, gw, "cut", from, address, writer.total, topic.Name)
}

// writeUntilCut writes to the source until so many connections were cut altogether: more with each cut, and also where there was
// none for a while, as all that was written may have got through.
func writeUntilCut(t *testing.T, proxy *faultproxy.Proxy, writer *load, cuts int64) {
	t.Helper()
	const while = 40 // looks
	before, looks := int64(-1), 0
	harness.Eventually(t, 10*time.Minute, "connections are cut", func(context.Context) error {
		now := proxy.Cuts()
		if now >= cuts {
			return nil
		}
		if looks++; now != before || looks == while {
			before, looks = now, 0
			writer.release(2000)
		}
		return fmt.Errorf("%d cuts of %d", now, cuts)
	})
}

// Two gateways run the same mirror at once, with budgets that make them fetch other sizes, and are stopped and killed in
// turn.
func TestTwoGateways(t *testing.T) {
	const records = 100_000
	random := harness.Random(t)
	topic := harness.Topic{Name: "two", Partitions: 4, Codec: kgo.SnappyCompression()}
	from, to := source(t), destination(t)
	harness.CreateTopics(t, from, topic)
	writer := startLoad(t.Context(), from, topic, random)
	first := gateway(t, to, "--gateway-number", "0")
	harness.CreateMirror(t, first.Client(t), "two", from)
	harness.AddTopics(t, first.Client(t), "two", topic.Name)
	second := gateway(t, to, "--gateway-number", "1", "--mirror-memory-bytes", "1048576")
	for i := range 8 {
		writer.release(records / 8)
		pause(random, 1500*time.Millisecond)
		victim := []*harness.Gateway{first, second}[i%2]
		victim.Kill()
		victim.StartNoWait(t)
	}
	writer.finish(t)
	first.WaitReady(t)
	second.WaitReady(t)
	clean(t, first, "two", from, to.Bootstrap(), writer.total, topic.Name)
	clean(t, second, "two", from, to.Bootstrap(), writer.total, topic.Name)
}

// Either cluster is away for longer than clients' usual timeouts; the mirror goes on by itself.
func TestClusterAway(t *testing.T) {
	random := harness.Random(t)
	from, to := destination(t), destination(t)
	topic := harness.Topic{Name: "away", Partitions: 2}
	harness.CreateTopics(t, from.Bootstrap(), topic)
	harness.MustFill(t, from.Bootstrap(), random, 2000, topic)
	gw := gateway(t, to)
	harness.CreateMirror(t, gw.Client(t), "away", from.Bootstrap())
	harness.AddTopics(t, gw.Client(t), "away", topic.Name)
	harness.WaitMirrored(t, gw.Client(t), "away", from.Bootstrap(), to.Bootstrap(), time.Minute, topic.Name)
	away := 15 * time.Second
	for _, cluster := range []*kafkatest.Cluster{from, to} {
		cluster.Kill(1)
		time.Sleep(away) // the outage itself
		if err := cluster.Restart(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		harness.MustFill(t, from.Bootstrap(), random, 2000, topic)
		harness.WaitMirrored(t, gw.Client(t), "away", from.Bootstrap(), to.Bootstrap(), time.Minute, topic.Name)
	}
	harness.SameRecords(t, from.Bootstrap(), to.Bootstrap(), topic.Name)
}

// TestSoak repeats the kills for as long as MIRRORGATE_SOAK says (make soak), and once, shortly, without it.
func TestSoak(t *testing.T) {
	duration, err := time.ParseDuration(os.Getenv("MIRRORGATE_SOAK"))
	if err != nil && os.Getenv("MIRRORGATE_SOAK") != "" {
		t.Fatal(err)
	}
	deadline := time.Now().Add(duration)
	for i := 0; i == 0 || time.Now().Before(deadline); i++ {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			kills := 2
			if duration > 0 {
				kills = 20
			}
			killGateway(t, harness.Random(t), fmt.Sprintf("soak-%d", i), kills, kills*10_000)
		})
	}
}
