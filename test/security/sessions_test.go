package security

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// load is clients that write all the time, Kafka's own and franz-go's.
type load struct {
	t      *testing.T
	topic  string
	java   *exec.Cmd
	output strings.Builder
	franz  *kgo.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	written int   // by franz-go; guarded by mu
	err     error // guarded by mu
}

// javaRate is records a second of Kafka's producer.
const javaRate = 300

// startLoad writes to two topics, topic-java and topic-franz, for about so many seconds.
func startLoad(t *testing.T, g *gateway, topic string, seconds int) *load {
	t.Helper()
	harness.CreateTopics(t, g.destination.InternalBootstrap(),
		harness.Topic{Name: topic + "-java", Partitions: 3}, harness.Topic{Name: topic + "-franz", Partitions: 3})
	allow(t, g.destination, "alice", topic)
	l := &load{t: t, topic: topic}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	var err error
	l.java, err = kafkatest.ToolCommand(ctx, g.destination.Version(), "kafka-producer-perf-test", "--topic", topic+"-java",
		"--num-records", strconv.Itoa(seconds*javaRate), "--throughput", strconv.Itoa(javaRate), "--record-size", "500",
		"--producer.config", g.properties(t, "alice", scram512), "--producer-props", "bootstrap.servers="+g.Bootstrap(), "acks=all")
	must(t, err)
	l.java.Stdout, l.java.Stderr = &l.output, &l.output
	must(t, l.java.Start())
	l.franz = g.client(t, "alice", "OAUTHBEARER")
	l.wg.Go(func() { l.write(ctx) })
	t.Cleanup(func() {
		cancel()
		l.wg.Wait()
	})
	return l
}

func (l *load) write(ctx context.Context) {
	ticker := time.NewTicker(3 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		l.mu.Lock()
		l.written++
		record := &kgo.Record{Topic: l.topic + "-franz", Value: []byte(strconv.Itoa(l.written))}
		l.mu.Unlock()
		l.franz.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.err = errors.Join(l.err, err)
		})
	}
}

// end waits for Kafka's producer, then ends the other, and checks that every record is there once.
func (l *load) end(g *gateway, seconds int) {
	l.t.Helper()
	err := l.java.Wait()
	l.cancel()
	l.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	err = errors.Join(err, l.franz.Flush(ctx))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err = errors.Join(err, l.err); err != nil {
		l.t.Fatalf("%v\n%s", err, l.output.String())
	}
	admin := harness.Admin(l.t, g.destination.InternalBootstrap())
	for topic, want := range map[string]int{"-java": seconds * javaRate, "-franz": l.written} {
		ends, err := harness.Ends(ctx, admin, l.topic+topic)
		must(l.t, err)
		if got := harness.Total(ends); got != int64(want) {
			l.t.Errorf("%s%s has %d records, not %d", l.topic, topic, got, want)
		}
	}
}

// sessionsEnd: brokers on both sides end sessions after seconds, and nobody notices: neither the clients, with requests in
// flight all the time, nor the mirror (P20).
func sessionsEnd(t *testing.T, g *gateway, source *kafkatest.Cluster) {
	const seconds = int(sessionLifetime/time.Second)*2 + 5 // two sessions end
	topic := harness.Topic{Name: "sessions", Partitions: 2}
	harness.CreateTopics(t, source.InternalBootstrap(), topic)
	admin := g.client(t, kafkatest.Admin, scram256)
	harness.CreateMirror(t, admin, "sessions", source.Bootstrap(), sourceConfig(source, kafkatest.Admin, scram256)...)
	harness.AddTopics(t, admin, "sessions", topic.Name)

	l := startLoad(t, g, "sessions-load", seconds)
	consumer := g.client(t, "alice", "PLAIN", kgo.ConsumeTopics("sessions-load-franz"), kgo.ConsumerGroup("sessions-load"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	consumed := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { consumed <- consume(ctx, consumer) }()

	random := harness.Random(t)
	harness.MustFill(t, source.InternalBootstrap(), random, 200, topic)
	harness.WaitMirrored(t, admin, "sessions", source.InternalBootstrap(), g.destination.InternalBootstrap(), time.Minute, topic.Name)
	connections := func() float64 { return g.Metric(t, "mirrorgate_proxy_connections_total", `side="client"`) }
	errorsBefore, connectionsBefore := g.Metric(t, "mirrorgate_proxy_errors_total"), connections()
	doubts := func() float64 { return g.Metric(t, "mirrorgate_appendlog_doubts_total") }
	doubtsBefore, ownBefore := doubts(), g.Metric(t, "mirrorgate_appendlog_connections_total")
	deadline := time.Now().Add(time.Duration(seconds) * time.Second)
	for time.Now().Before(deadline) {
		harness.MustFill(t, source.InternalBootstrap(), random, 100, topic) // in flight all the time
	}
	l.end(g, seconds)
	cancel()
	must(t, <-consumed)
	harness.WaitMirrored(t, admin, "sessions", source.InternalBootstrap(), g.destination.InternalBootstrap(), time.Minute, topic.Name)
	harness.SameRecords(t, source.InternalBootstrap(), g.destination.InternalBootstrap(), topic.Name)
	g.quiet(t, errorsBefore)
	// Clients open a connection now and then for reasons of their own, the more the slower the machine. Were sessions cut,
	// each of the six or more connections would come back twice.
	if now := connections(); now > connectionsBefore+8 {
		t.Errorf("clients connected %v times meanwhile", now-connectionsBefore)
	}
	if now := doubts(); now != doubtsBefore {
		t.Errorf("the mirror had %v doubts", now-doubtsBefore)
	}
	if now := g.Metric(t, "mirrorgate_appendlog_connections_total"); now != ownBefore {
		t.Errorf("the mirror connected to the destination %v times meanwhile", now-ownBefore)
	}
	harness.RemoveTopics(t, admin, "sessions", topic.Name)
}

// consume polls until ctx ends.
func consume(ctx context.Context, client *kgo.Client) error {
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("consuming: %w", err)
		}
	}
}

// restarts: the gateway is stopped and started again under load, and clients do no more than try again.
func restarts(t *testing.T, g *gateway) {
	const seconds = 15
	l := startLoad(t, g, "restarts", seconds)
	for range 3 {
		l.progress(g, seconds)
		g.Stop(t)
		g.Start(t)
	}
	l.progress(g, seconds)
	l.end(g, seconds)
}

// progress waits until both clients have written some more, or Kafka's all that it has: it goes on while a gateway starts that takes its time.
func (l *load) progress(g *gateway, seconds int) {
	l.t.Helper()
	admin := harness.Admin(l.t, g.destination.InternalBootstrap())
	targets := map[string]int64{}
	harness.Eventually(l.t, time.Minute, "records arrive", func(ctx context.Context) error {
		for _, topic := range []string{l.topic + "-java", l.topic + "-franz"} {
			ends, err := harness.Ends(ctx, admin, topic)
			if err != nil {
				return err
			}
			total := harness.Total(ends)
			if targets[topic] == 0 {
				targets[topic] = total + 100
				if topic == l.topic+"-java" {
					targets[topic] = min(total+100, int64(seconds*javaRate))
				}
			}
			if total < targets[topic] {
				return fmt.Errorf("%s has %d records, not %d yet", topic, total, targets[topic])
			}
		}
		return nil
	})
}

// newCertificate: the certificate changes under load; connections stay, and new ones get the new one.
func newCertificate(t *testing.T, g *gateway) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var lost disconnects
	client := g.client(t, "alice", "PLAIN", kgo.WithHooks(&lost), kgo.ConnIdleTimeout(10*time.Minute))
	_, err := metadata(ctx, client)
	must(t, err)
	pair := g.authority.Issue(t, "gateway", subject("renewed"), "127.0.0.1")
	harness.Eventually(t, 30*time.Second, "new connections get the new certificate", func(ctx context.Context) error {
		conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: g.authority.Pool}}).DialContext(ctx, "tcp", g.Bootstrap())
		if err != nil {
			return err
		}
		defer conn.Close()
		if name := conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName; name != pair.TLS.Leaf.Subject.CommonName {
			return fmt.Errorf("it is for %s", name)
		}
		return nil
	})
	_, err = metadata(ctx, client)
	must(t, err)
	if n := lost.n.Load(); n > 0 {
		t.Errorf("%d connections ended", n)
	}
}

// disconnects counts the connections of a client that end.
type disconnects struct{ n atomic.Int64 }

func (d *disconnects) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) { d.n.Add(1) }
