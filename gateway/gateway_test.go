package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/test/leaks"
)

// noLeaks checks that everything that the test starts ends, but for the workers of a pool that gnet keeps for the process.
func noLeaks(t *testing.T) {
	ignore := goleak.IgnoreCurrent()
	pool := goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*goWorker).run.func1")
	t.Cleanup(func() { leaks.None(t, ignore, pool) })
}

// longEnough is when something that must happen soon is taken to hang.
const longEnough = 2 * time.Minute

func cluster(t *testing.T, id string, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.ClusterID(id)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func testConfig(t *testing.T, destination string) Config {
	cfg := DefaultConfig()
	cfg.Listen, cfg.Destination, cfg.DataDir, cfg.Metrics = "127.0.0.1:0", destination, t.TempDir(), "127.0.0.1:0"
	cfg.BrokerRefresh = 200 * time.Millisecond
	return cfg
}

// running is a gateway that the test ends.
type running struct {
	*Gateway
	logs *observer.ObservedLogs
	done chan error
	stop func() error
}

func start(t *testing.T, cfg Config) *running {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	g, err := New(cfg, zap.New(core))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Gateway: g, logs: logs, done: make(chan error, 1)}
	go func() { r.done <- g.Run(ctx) }()
	r.stop = func() error {
		cancel()
		err := <-r.done
		r.done <- err
		return err
	}
	t.Cleanup(func() {
		_ = r.stop()
		if t.Failed() {
			for _, e := range logs.All() {
				t.Log(e.Time.Format("05.000"), e.Level, e.Message, e.ContextMap())
			}
		}
	})
	return r
}

func (r *running) awaitReady(t *testing.T) {
	t.Helper()
	select {
	case <-r.Ready():
	case err := <-r.done:
		r.done <- err
		t.Fatalf("the gateway ended: %v", err)
	case <-time.After(longEnough):
		t.Fatal("the gateway does not get ready")
	}
}

func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestMirrorThroughTheGateway goes the whole way: a mirror, a restart, a group that moves, and a stop.
func TestMirrorThroughTheGateway(t *testing.T) {
	noLeaks(t)
	ctx := testContext(t)
	source := cluster(t, "source", kfake.SeedTopics(2, "orders"))
	destination := cluster(t, "destination")
	cfg := testConfig(t, strings.Join(destination.ListenAddrs(), ","))
	g := start(t, cfg)
	g.awaitReady(t)

	addr := source.ListenAddrs()[0]
	interval := "200"
	require.NoError(t, g.Manager().CreateMirror(ctx, "m", map[string]*string{
		"bootstrap.servers": &addr, "mirror.metadata.refresh.interval.ms": &interval,
	}, false))
	results, err := g.Manager().AddTopics(ctx, []mirror.TopicRef{{Mirror: "m", Name: "orders"}})
	require.NoError(t, err)
	require.Nil(t, results[0].Err)

	producer := client(t, addr)
	produce(t, producer, "orders", 0, 100)
	sourceAdmin := kadm.NewClient(producer)
	offsets := make(kadm.Offsets)
	offsets.Add(kadm.Offset{Topic: "orders", Partition: 1, At: 17, LeaderEpoch: -1})
	require.NoError(t, sourceAdmin.CommitAllOffsets(ctx, "g", offsets))
	awaitLag(t, g, 100)

	// Another life of the gateway goes on where the first one ended.
	require.NoError(t, g.stop())
	produce(t, producer, "orders", 100, 150)
	g = start(t, cfg)
	g.awaitReady(t)
	awaitLag(t, g, 150)

	through := client(t, g.BootstrapAddr())
	require.Equal(t, consume(t, addr, 300), consume(t, g.BootstrapAddr(), 300))
	err = through.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("x")}).FirstErr()
	require.ErrorIs(t, err, kerr.PolicyViolation)
	admin := kadm.NewClient(through)
	require.Eventually(t, func() bool {
		fetched, err := admin.FetchOffsets(ctx, "g")
		o, ok := fetched.Lookup("orders", 1)
		return err == nil && ok && o.At == 17
	}, longEnough, 20*time.Millisecond, "the group's offset")

	_, err = g.Manager().RemoveTopics(ctx, "m", []mirror.TopicRef{{Name: "orders"}})
	require.NoError(t, err)
	require.NoError(t, through.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: []byte("after"), Partition: 1}).FirstErr())
	require.NoError(t, g.stop())
}

// produce writes the records from to to into both partitions, each with its number.
func produce(t *testing.T, c *kgo.Client, topic string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		for p := range int32(2) {
			r := &kgo.Record{Topic: topic, Partition: p, Key: []byte("k"), Value: []byte(strconv.Itoa(i))}
			require.NoError(t, c.ProduceSync(testContext(t), r).FirstErr())
		}
	}
}

// awaitLag waits until both partitions end at an offset.
func awaitLag(t *testing.T, g *running, end int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		d, err := g.Manager().Describe(context.Background(), "m")
		if err != nil || len(d.Topics) != 1 || len(d.Topics[0].Partitions) != 2 {
			return false
		}
		p := d.Topics[0].Partitions
		return p[0].DestinationEnd == end && p[1].DestinationEnd == end
	}, longEnough, 10*time.Millisecond, "mirrored up to %d", end)
}

// consume reads n records of both partitions of orders and returns them as text.
func consume(t *testing.T, addr string, n int) map[string]string {
	t.Helper()
	c := client(t, addr, kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	records := make(map[string]string)
	for len(records) < n {
		fetches := c.PollFetches(testContext(t))
		require.NoError(t, fetches.Err0())
		fetches.EachRecord(func(r *kgo.Record) {
			records[fmt.Sprintf("%d@%d", r.Partition, r.Offset)] = fmt.Sprintf("%s=%s %d", r.Key, r.Value, r.Timestamp.UnixMilli())
		})
	}
	return records
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestDestinationThatComesLater(t *testing.T) {
	noLeaks(t)
	port := reserve(t, 1)[0]
	g := start(t, testConfig(t, loopback(port)))
	require.Eventually(t, func() bool {
		return g.logs.FilterMessage("the destination does not answer; waiting for it").Len() > 0
	}, longEnough, 10*time.Millisecond, "it says what it waits for")
	status, _ := get(t, "http://"+g.MonitorAddr()+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, status)
	status, _ = get(t, "http://"+g.MonitorAddr()+"/healthz")
	require.Equal(t, http.StatusOK, status)

	cluster(t, "destination", kfake.NumBrokers(1), kfake.Ports(port))
	g.awaitReady(t)
	status, _ = get(t, "http://"+g.MonitorAddr()+"/readyz")
	require.Equal(t, http.StatusOK, status)
	_, metrics := get(t, "http://"+g.MonitorAddr()+"/metrics")
	for _, name := range []string{"mirrorgate_proxy_", "mirrorgate_store_", "go_goroutines"} {
		require.Contains(t, metrics, name)
	}
	require.NoError(t, g.stop())
}

// A broker that is killed or stopped while the gateway starts closes its connection before it has answered. That passes; a destination
// that always does so speaks another protocol, and ends the start.
func TestDestinationThatHangsUp(t *testing.T) {
	for hangUps, ends := range map[int64]bool{1: false, hangUpLimit - 1: false, hangUpLimit: true} {
		t.Run(fmt.Sprint(hangUps), func(t *testing.T) {
			noLeaks(t)
			destination := cluster(t, "destination", kfake.NumBrokers(1))
			g := start(t, testConfig(t, hangingUp(t, destination.ListenAddrs()[0], hangUps)))
			if !ends {
				g.awaitReady(t)
				require.NoError(t, g.stop())
				return
			}
			err := <-g.done
			g.done <- err
			require.ErrorAs(t, err, new(*kgo.ErrFirstReadEOF))
		})
	}
}

// hangingUp is an address where the first connections are closed once they have sent something; later ones lead to target.
func hangingUp(t *testing.T, target string, connections int64) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for n := int64(0); ; n++ {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			if n >= connections {
				running.Go(func() { forward(c, target) })
				continue
			}
			_, _ = c.Read(make([]byte, 1<<10)) // all of the request, or the end would be a reset
			c.Close()
		}
	})
	t.Cleanup(func() { listener.Close(); running.Wait() })
	return listener.Addr().String()
}

// forward connects c with target until either side ends.
func forward(c net.Conn, target string) {
	defer c.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(c, server); c.Close() })
	_, _ = io.Copy(server, c)
	server.Close()
	back.Wait()
}

func TestStopWhileWaiting(t *testing.T) {
	noLeaks(t)
	g := start(t, testConfig(t, "127.0.0.1:1"))
	require.NoError(t, g.stop(), "a start that was called off is no failure")
}

// The destination refuses a connection just as the start is called off.
func TestStopAsWaitingFails(t *testing.T) {
	g := &Gateway{log: zap.NewNop()}
	ctx, cancel := context.WithCancel(t.Context())
	refused := errors.New("connection refused")
	err := g.retry(ctx, "waiting", func(context.Context) error {
		cancel()
		return refused
	})
	require.ErrorIs(t, err, context.Canceled, "which Run takes for a stop that was asked for")
	require.ErrorIs(t, err, refused)
}

func TestDestinationWithKeysOfItsOwn(t *testing.T) {
	noLeaks(t)
	destination := cluster(t, "destination", kfake.NumBrokers(1))
	destination.ControlKey(int16(kmsg.ApiVersions), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		destination.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.ApiVersionsResponse)
		for key := range int16(93) {
			if req := kmsg.RequestForKey(key); req != nil {
				k := kmsg.NewApiVersionsResponseApiKey()
				k.ApiKey, k.MaxVersion = key, min(req.MaxVersion(), 7)
				resp.ApiKeys = append(resp.ApiKeys, k)
			}
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey = 107
		resp.ApiKeys = append(resp.ApiKeys, k)
		return resp, nil, true
	})
	cfg := testConfig(t, destination.ListenAddrs()[0])
	g := start(t, cfg)
	select {
	case err := <-g.done:
		g.done <- err
		require.ErrorContains(t, err, "107")
		require.ErrorContains(t, err, "api-keys.CreateMirror")
	case <-time.After(longEnough):
		t.Fatal("the gateway starts all the same")
	}
	cfg.APIKeys, cfg.DataDir = map[string]int{"CreateMirror": 207}, t.TempDir()
	g = start(t, cfg)
	g.awaitReady(t)
	require.NoError(t, g.stop())
}

func TestBrokersThatAppear(t *testing.T) {
	noLeaks(t)
	destination := cluster(t, "destination", kfake.NumBrokers(1))
	g := start(t, testConfig(t, destination.ListenAddrs()[0]))
	g.awaitReady(t)
	node, _, err := destination.AddNode(-1, 0)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		entries := g.logs.FilterMessage("listening for a broker").FilterField(zap.Int32("node", node))
		return entries.Len() == 1
	}, longEnough, 10*time.Millisecond, "the new broker has a listener")
	require.NoError(t, g.stop())
}

func TestStopsInReverseAndNamesWhatHangs(t *testing.T) {
	noLeaks(t)
	var order []string
	release := make(chan struct{})
	record := func(name string, hang bool) part {
		return part{name, func(context.Context) (stop, error) {
			order = append(order, "+"+name)
			return func(context.Context) error {
				if hang {
					<-release
					return nil
				}
				order = append(order, "-"+name)
				return nil
			}, nil
		}}
	}
	started, err := startAll(context.Background(), []part{record("a", false), record("b", false), record("c", true)}, zap.NewNop())
	require.NoError(t, err)
	err = stopAll(started, 50*time.Millisecond, zap.NewNop())
	require.ErrorContains(t, err, "stop c: it did not end")
	require.Equal(t, []string{"+a", "+b", "+c", "-b", "-a"}, order)
	close(release)
}
