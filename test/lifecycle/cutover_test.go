package lifecycle

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// Producers move from the source to the gateway while their topics are cut over: every record that was acknowledged is in the
// log, once, where the producer was told, and in order. It rolls back if somebody stays at the source; and it survives that
// the command and the gateway are killed.
func TestCutover(t *testing.T) {
	p := newPair(t)
	p.gatewayRights()
	p.createMirror("mirror.acls.include", "none")
	t.Run("live producers", func(t *testing.T) { p.on(t).cutLive() })
	t.Run("rolls back", func(t *testing.T) { p.on(t).cutBack() })
	t.Run("the command is killed", func(t *testing.T) { p.on(t).cutCommandKilled() })
	t.Run("the gateway is killed", func(t *testing.T) { p.on(t).cutGatewayKilled() })
}

// on is the pair for a part of its test.
func (p *pair) on(t *testing.T) *pair {
	part := *p
	part.t = t
	return &part
}

// mirrorNew makes a topic at the source and mirrors it.
func (p *pair) mirrorNew(topic string, partitions int32) {
	p.t.Helper()
	harness.CreateTopics(p.t, p.source.InternalBootstrap(), harness.Topic{Name: topic, Partitions: partitions})
	harness.AddTopics(p.t, p.client, "m", topic)
	p.awaitState(topic, "MIRRORING")
}

func (p *pair) atSource(opts ...kgo.Opt) *kgo.Client {
	return harness.Client(p.t, p.source.InternalBootstrap(), append(writing(), opts...)...)
}

func (p *pair) atGateway(opts ...kgo.Opt) *kgo.Client {
	return p.gateway.Client(p.t, append(append(writing(), saslAdmin()), opts...)...)
}

// cutting is a "mirrors cutover" under way.
type cutting struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout bytes.Buffer
	done   chan error

	mu    sync.Mutex
	lines []string // of standard error
	news  chan struct{}
}

// settle is for how long the source's logs must stand still before a cut-over stops the mirror. It is longer than anything that works here
// should stand still for by itself: a producer that is about to move, a consumer that is about to commit.
const settle = 4 * time.Second

// cut starts "mirrors cutover" of a topic.
func (p *pair) cut(topic string, more ...string) *cutting {
	p.t.Helper()
	args := append([]string{
		"mirrors", "cutover", "--bootstrap-server", p.gateway.Bootstrap(), "--command-config", p.login, "--mirror", "m", "--topics", topic,
		"--settle", settle.String(), "--interval", "100ms", "--json",
	}, more...)
	c := &cutting{t: p.t, cmd: exec.Command(harness.Binary(p.t), args...), done: make(chan error, 1), news: make(chan struct{}, 1)}
	stderr, err := c.cmd.StderrPipe()
	p.must(err)
	c.cmd.Stdout = &c.stdout
	p.must(c.cmd.Start())
	go func() {
		c.read(stderr)
		c.done <- c.cmd.Wait()
	}()
	p.t.Cleanup(c.kill)
	return c
}

func (c *cutting) read(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		c.mu.Lock()
		c.lines = append(c.lines, lines.Text())
		c.mu.Unlock()
		select {
		case c.news <- struct{}{}:
		default:
		}
	}
}

func (c *cutting) kill() { _ = c.cmd.Process.Kill() }

func (c *cutting) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.lines, "\n")
}

// await waits until the command says something.
func (c *cutting) await(text string) {
	c.t.Helper()
	patience := time.After(3 * time.Minute)
	for !strings.Contains(c.said(), text) {
		select {
		case <-c.news:
		case <-patience:
			c.t.Fatalf("the command does not say %q:\n%s", text, c.said())
		}
	}
}

const waitNow = "producers at the gateway wait now"

// end waits for the end of the command, and returns its exit code.
func (c *cutting) end() (int, switched) {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(5 * time.Minute):
		c.t.Fatalf("the command does not end:\n%s", c.said())
	}
	out := switched{}
	if c.stdout.Len() > 0 {
		out = parseSwitched(c.t, c.stdout.String())
	}
	return c.cmd.ProcessState.ExitCode(), out
}

// awaitWaiting waits until requests of producers wait at the gateway.
func (p *pair) awaitWaiting(n float64) {
	p.t.Helper()
	harness.Eventually(p.t, time.Minute, "producers wait", func(context.Context) error {
		if waiting := p.gateway.Metric(p.t, "mirrorgate_proxy_waiting_requests"); waiting < n {
			return fmt.Errorf("%v do", waiting)
		}
		return nil
	})
}

func (p *pair) cutLive() {
	p.mirrorNew("live", 3)
	book := newLedger()
	first, second := write(p.atSource(), book, "live", "first", 0), write(p.atSource(), book, "live", "second", 0)
	reader := harness.Client(p.t, p.source.InternalBootstrap(), kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("live"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(200*time.Millisecond))
	reading, stopReading := context.WithCancel(p.t.Context())
	var readers sync.WaitGroup
	readers.Go(func() {
		for reading.Err() == nil {
			reader.PollFetches(reading)
		}
	})
	p.awaitEnd("live", 500)
	refused := p.atGateway().ProduceSync(p.ctx(), &kgo.Record{Topic: "live", Value: []byte("no")}).FirstErr()
	if !errors.Is(refused, kerr.PolicyViolation) {
		p.t.Errorf("before a cut-over, a producer gets %v", refused)
	}

	c := p.cut("live")
	c.await(waitNow)
	// The first moves at once and waits with several requests in flight; its patience is short, so that it is answered, cut off
	// and comes back. The second moves a moment later.
	moved := write(p.atGateway(kgo.ProduceRequestTimeout(time.Second)), book, "live", "first", first.stop(p.t))
	p.awaitWaiting(1)
	late := write(p.atGateway(), book, "live", "second", second.stop(p.t))
	code, out := c.end()
	stopReading()
	readers.Wait()
	p.must(reader.CommitUncommittedOffsets(p.ctx()))
	if code != 0 || out.Outcome != "done" || out.LeftBehind != 0 || out.WritePauseMs < settle.Milliseconds() {
		p.t.Fatalf("exit code %d, %+v\n%s", code, out, c.said())
	}
	stops := out.stopOffsets("live")
	awaitCommittedEnds(p.t, p, "readers", stops)
	p.awaitGrowth("live", 300)
	moved.stop(p.t)
	late.stop(p.t)
	if failed := book.failures(); len(failed) > 0 {
		p.t.Errorf("%d records were given up: %v", len(failed), failed[0])
	}
	records := book.of("live")
	n := p.sameAsLedger("live", records)
	inOrder(p.t, records)
	copied := int64(0)
	for tp, stop := range stops {
		if _, ok := records[tp][stop]; ok {
			p.t.Errorf("%s/%d: a record is where the fence must be, at %d", tp.Topic, tp.Partition, stop)
		}
		if _, ok := records[tp][stop+1]; !ok {
			p.t.Errorf("%s/%d: no record directly behind the fence at %d", tp.Topic, tp.Partition, stop)
		}
		copied += stop
	}
	p.t.Logf("%d records, %d of them from the source; producers waited for %d ms; groups in place: %d", n, copied, out.WritePauseMs, out.Groups.InPlace)

	// The group goes on at the gateway with the first record that was written there.
	group := p.gateway.Client(p.t, saslAdmin(), kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("live"))
	seen := make(map[harness.TopicPartition]int64)
	for ctx := p.ctx(); len(seen) < len(stops); p.must(ctx.Err()) {
		group.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			tp := harness.TopicPartition{Topic: r.Topic, Partition: r.Partition}
			if _, ok := seen[tp]; !ok {
				seen[tp] = r.Offset
			}
		})
	}
	for tp, at := range seen {
		if at != stops[tp]+1 {
			p.t.Errorf("%s/%d: the group goes on at %d, not behind the fence at %d", tp.Topic, tp.Partition, at, stops[tp])
		}
	}
	group.Close()
}

func (p *pair) cutBack() {
	p.mirrorNew("stays", 2)
	book := newLedger()
	stubborn := write(p.atSource(), book, "stays", "stubborn", 0)
	p.awaitEnd("stays", 200)
	c := p.cut("stays", "--timeout", "20s")
	c.await(waitNow)
	hopeful := p.atGateway()
	given := make(chan error, 1)
	hopeful.Produce(context.Background(), &kgo.Record{Topic: "stays", Value: []byte("hopeful 0")}, func(_ *kgo.Record, err error) { given <- err })
	p.awaitWaiting(1)
	code, out := c.end()
	if code != 1 || out.Outcome != "rolled back" || !strings.Contains(out.Reason, "somebody still writes to the source: the end of stays partition") {
		p.t.Errorf("exit code %d, %+v\n%s", code, out, c.said())
	}
	if err := <-given; !errors.Is(err, kerr.PolicyViolation) {
		p.t.Errorf("a producer that waited gets %v after the way back", err)
	}
	p.awaitState("stays", "MIRRORING")
	stubborn.stop(p.t)
	p.awaitSameEnds("stays")
	p.sameAsLedger("stays", book.of("stays"))

	// What is in the way is said before anything is done.
	p.command("pause", "--mirror", "m", "--topics", "stays")
	refused := p.cut("stays")
	if code, out := refused.end(); code != 1 || out.Outcome != "refused" || !strings.Contains(out.Reason, "stays partition 0 is PAUSED") || strings.Contains(refused.said(), waitNow) {
		p.t.Errorf("exit code %d, %+v\n%s", code, out, refused.said())
	}
	p.command("resume", "--mirror", "m", "--topics", "stays")
}

func (p *pair) cutCommandKilled() {
	p.mirrorNew("killed", 2)
	book := newLedger()
	before := write(p.atSource(), book, "killed", "one", 0)
	p.awaitEnd("killed", 200)
	c := p.cut("killed")
	c.await(waitNow)
	c.kill()
	c.end()
	moved := write(p.atGateway(), book, "killed", "two", 0) // the gateway has not forgotten
	p.awaitWaiting(1)
	before.stop(p.t)
	again := p.cut("killed")
	code, out := again.end()
	if code != 0 || out.Outcome != "done" || out.LeftBehind != 0 || !strings.Contains(again.said(), "going on with a cut-over that had begun") {
		p.t.Fatalf("exit code %d, %+v\n%s", code, out, again.said())
	}
	p.awaitGrowth("killed", 100)
	moved.stop(p.t)
	if failed := book.failures(); len(failed) > 0 {
		p.t.Errorf("%d records were given up: %v", len(failed), failed[0])
	}
	p.sameAsLedger("killed", book.of("killed"))
	inOrder(p.t, book.of("killed"))

	// Once more: it is done already.
	if code, out := p.cut("killed").end(); code != 0 || out.Outcome != "done" {
		p.t.Errorf("again: exit code %d, %+v", code, out)
	}
}

func (p *pair) cutGatewayKilled() {
	p.mirrorNew("dies", 2)
	book := newLedger()
	before := write(p.atSource(), book, "dies", "one", 0)
	p.awaitEnd("dies", 200)
	c := p.cut("dies")
	c.await(waitNow)
	moved := write(p.atGateway(), book, "dies", "two", 0)
	p.awaitWaiting(1)
	p.gateway.Kill()
	p.gateway.Start(p.t)
	p.awaitWaiting(1)
	stopping := p.stateLog(`"name":"dies"`, `"state":4`)
	before.stop(p.t)
	stopping(p.t) // the point of no return
	p.gateway.Kill()
	p.gateway.Start(p.t)
	code, out := c.end()
	if code != 0 || out.Outcome != "done" || out.LeftBehind != 0 {
		p.t.Fatalf("exit code %d, %+v\n%s", code, out, c.said())
	}
	p.awaitGrowth("dies", 100)
	moved.stop(p.t)
	if failed := book.failures(); len(failed) > 0 {
		p.t.Errorf("%d records were given up: %v", len(failed), failed[0])
	}
	p.sameAsLedger("dies", book.of("dies"))
	inOrder(p.t, book.of("dies"))
}

// awaitEnd waits until a topic of the destination has so many offsets.
func (p *pair) awaitEnd(topic string, offsets int64) {
	p.t.Helper()
	harness.Eventually(p.t, time.Minute, topic+" is mirrored", func(ctx context.Context) error {
		ends, err := harness.Ends(ctx, p.to, topic)
		if total := harness.Total(ends); err == nil && total < offsets {
			err = fmt.Errorf("%d of %d", total, offsets)
		}
		return err
	})
}

// awaitGrowth waits until a topic of the destination has so many offsets more.
func (p *pair) awaitGrowth(topic string, offsets int64) {
	p.t.Helper()
	ends, err := harness.Ends(p.ctx(), p.to, topic)
	p.must(err)
	p.awaitEnd(topic, harness.Total(ends)+offsets)
}

// stateLog returns a function that waits until a record with all of the texts is written to the state log. What is there already does
// not count.
func (p *pair) stateLog(texts ...string) func(t *testing.T) {
	p.t.Helper()
	client := harness.Client(p.t, p.destination.InternalBootstrap(), kgo.ConsumeTopics("__mirror_state"), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	found, ctx := make(chan struct{}), p.t.Context()
	ends, err := p.to.ListEndOffsets(p.ctx(), "__mirror_state")
	p.must(err)
	go func() {
		defer close(found)
		for ctx.Err() == nil {
			for _, r := range client.PollFetches(ctx).Records() {
				if end, ok := ends.Lookup(r.Topic, r.Partition); ok && r.Offset >= end.Offset && containsAll(string(r.Value), texts) {
					return
				}
			}
		}
	}()
	return func(t *testing.T) {
		t.Helper()
		select {
		case <-found:
		case <-time.After(3 * time.Minute):
			t.Fatalf("no record with %q in the state log", texts)
		}
	}
}

func containsAll(s string, texts []string) bool {
	for _, text := range texts {
		if !strings.Contains(s, text) {
			return false
		}
	}
	return true
}
