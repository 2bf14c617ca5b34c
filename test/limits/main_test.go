// Package limits tests what many, slow and hostile clients do to a gateway: its memory stays within what is promised,
// other clients are served on, and all that they took comes back. The brokers are a fake one in this process, which starts at once.
package limits

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// full: the numbers that are promised, instead of those that are quick.
var full = os.Getenv("MIRRORGATE_LIMITS") == "full"

// many is the number of connections of a test: quick, or 10,000 if this machine lets a process have two descriptors for each.
func many(t *testing.T, quick int) int {
	t.Helper()
	if !full {
		return quick
	}
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	return min(10_000, int(limit.Cur-1000)/2)
}

// crowd is how many connections may be idle, and how many of them can have been used: those have a second descriptor, for the broker's side.
func crowd(t *testing.T, quick int) (all, used int) {
	t.Helper()
	if !full {
		return quick, quick * 9 / 10
	}
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	return 10_000, min(10_000, int(limit.Cur)-500-10_000)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fake starts brokers with partitions of a few topics.
func fake(t *testing.T, partitions int) string {
	t.Helper()
	const topics = 10
	names := make([]string, topics)
	for i := range names {
		names[i] = fmt.Sprintf("topic-%d", i)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(int32(partitions/topics), names...))
	must(t, err)
	t.Cleanup(cluster.Close)
	return strings.Join(cluster.ListenAddrs(), ",")
}

// resources are what a gateway has taken.
type resources struct {
	goroutines      float64
	descriptors     int
	resident        int64
	sessions, conns float64
}

func take(t *testing.T, g *harness.Gateway) resources {
	t.Helper()
	return resources{g.Metric(t, "go_goroutines"), g.FDs(t), g.RSS(t), g.Metric(t, "mirrorgate_proxy_sessions"), g.Metric(t, "mirrorgate_proxy_connections")}
}

// back waits until the gateway has given back what it took since before: all but caches and pools.
func back(t *testing.T, g *harness.Gateway, before resources) {
	t.Helper()
	harness.Eventually(t, 2*time.Minute, "all is given back", func(context.Context) error {
		now := take(t, g)
		if now.goroutines > before.goroutines+20 || now.descriptors > before.descriptors+20 || now.sessions > before.sessions || now.conns > before.conns {
			return fmt.Errorf("now %+v, before %+v", now, before)
		}
		return nil
	})
	t.Logf("before %+v, after %+v", before, take(t, g))
}

// client is a raw connection to the gateway.
type client struct {
	net.Conn
	formatter *kmsg.RequestFormatter
	sent      int32
}

func dial(address string) (*client, error) {
	conn, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		return nil, err
	}
	return &client{Conn: conn, formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID("limits"))}, nil
}

func (c *client) frame(req kmsg.Request) []byte {
	c.sent++
	return c.formatter.AppendRequest(nil, req, c.sent)
}

// ask sends a request and reads its answer.
func (c *client) ask(req kmsg.Request) ([]byte, error) {
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return nil, err
	}
	if _, err := c.Write(c.frame(req)); err != nil {
		return nil, err
	}
	return c.read(c.sent)
}

func (c *client) read(correlationID int32) ([]byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != correlationID {
		return nil, fmt.Errorf("the answer to request %d came instead of %d", got, correlationID)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:4])-4)
	_, err := io.ReadFull(c, body)
	return body, err
}

func apiVersions() kmsg.Request {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion, req.Version = "limits", "1", 3
	return req
}

func metadata(topics ...string) kmsg.Request {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 9
	for _, name := range topics {
		req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &name})
	}
	return req
}

// others is a client that works all the time, from before this returns; end fails the test if anything went wrong for it, and returns
// its slowest request.
func others(t *testing.T, g *harness.Gateway) (end func() time.Duration) {
	t.Helper()
	c, err := dial(g.BrokerAddr(0))
	must(t, err)
	if _, err := c.ask(metadata("topic-0")); err != nil {
		t.Fatalf("another client is not served: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var slowest time.Duration
	var asked int
	var failed error
	running.Go(func() {
		defer c.Close()
		for ctx.Err() == nil {
			began := time.Now()
			if _, failed = c.ask(metadata("topic-0")); failed != nil {
				return
			}
			asked++
			slowest = max(slowest, time.Since(began))
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
		}
	})
	return func() time.Duration {
		t.Helper()
		cancel()
		running.Wait()
		if failed != nil || asked == 0 {
			t.Errorf("another client was disturbed after %d requests: %v", asked, failed)
		}
		t.Logf("another client meanwhile: %d requests, the slowest took %v", asked, slowest)
		return slowest
	}
}

// parallel runs do n times, some at a time.
func parallel(n int, do func(i int) error) error {
	var running sync.WaitGroup
	var mu sync.Mutex
	var first error
	slots := make(chan struct{}, 64)
	for i := range n {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			if err := do(i); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = fmt.Errorf("number %d: %w", i, err)
				}
			}
		})
	}
	running.Wait()
	return first
}
