package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// The source dies in mid-load. The failover takes seconds, says what is missing, and what was acknowledged and copied is
// there; producers and groups go on at the gateway. Then the gateway is killed at every step of further failovers, and the
// next start finishes what was begun.
func TestFailover(t *testing.T) {
	p := pairOf(t, kafkatest.Start(t, options()), kafkatest.Start(t, options()))
	p.gatewayRights()
	p.createMirror("mirror.acls.include", "none")
	p.mirrorNew("orders", 3)
	p.mirrorNew("idle", 1)
	crashes := crashTopics(t)
	var names []string
	for _, c := range crashes {
		names = append(names, c.topic)
		harness.CreateTopics(t, p.source.InternalBootstrap(), harness.Topic{Name: c.topic, Partitions: crashPartitions, Configs: map[string]string{"retention.ms": "86400000"}})
	}
	harness.AddTopics(t, p.client, "m", names...)
	book := newLedger()
	for _, topic := range append(names, "idle") {
		client := p.atSource()
		for n := range 100 {
			client.Produce(p.ctx(), &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "fill %d", n)}, book.note)
		}
		p.must(client.Flush(p.ctx()))
	}
	p.awaitSameEnds(append(names, "idle")...)

	written := newLedger()
	load := write(p.atSource(kgo.RecordDeliveryTimeout(10*time.Second)), written, "orders", "load", 0)
	reader := harness.Client(t, p.source.InternalBootstrap(), kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(200*time.Millisecond))
	var readers sync.WaitGroup
	reading, stopReading := context.WithCancel(t.Context())
	readers.Go(func() {
		for reading.Err() == nil {
			reader.PollFetches(reading)
		}
	})
	p.awaitEnd("orders", 1000)
	p.awaitGroup("readers", 300)
	dry := parseSwitched(t, p.command("failover", "--mirror", "m", "--topics", "orders", "--dry-run", "--json"))
	if dry.Unknown != 0 {
		t.Errorf("with the source alive, nothing is known of %d partitions", dry.Unknown)
	}
	var heard []func(*testing.T)
	for topic, partitions := range map[string]int{"orders": 3, "idle": 1, crashes[0].topic: crashPartitions} {
		heard = append(heard, p.heard(topic, partitions)...)
	}
	p.source.Kill(1)
	died := time.Now()
	stopReading()
	readers.Wait()
	load.cancel() // what is in flight is neither acknowledged nor given up: nobody answers
	load.done.Wait()

	// A gateway that is restarted with the source away still knows what it had heard.
	for _, await := range heard {
		await(t)
	}
	p.gateway.Kill()
	p.gateway.Start(t)
	began := time.Now()
	out := parseSwitched(t, p.command("failover", "--mirror", "m", "--topics", "orders,idle", "--json"))
	took := time.Since(began)
	p.checkFailover(out, load.next, written.of("orders"), began.Sub(died))
	t.Logf("failover of 4 partitions: %v with the command, %d ms in the gateway; %d records known to be lost", took.Round(time.Millisecond), out.TookMs, out.Lag)

	// Producers and the group go on, behind the fence.
	p.goOn(out)
	for _, c := range crashes {
		t.Run(c.name, func(t *testing.T) { p.on(t).crash(c, book) })
	}
}

// awaitGroup waits until a group has committed so many offsets at the destination.
func (p *pair) awaitGroup(group string, offsets int64) {
	p.t.Helper()
	harness.Eventually(p.t, time.Minute, "group "+group+" is synced", func(ctx context.Context) error {
		fetched, err := p.to.FetchOffsets(ctx, group)
		total := int64(0)
		for _, o := range fetched.Sorted() {
			total += o.At
		}
		if err == nil && total < offsets {
			err = fmt.Errorf("%d of %d", total, offsets)
		}
		return err
	})
}

// heard returns functions that wait until it is written down, from now on, where the partitions of a topic of the source ended when they
// were heard last. (It may have been before: a source that is slow to answer counts as silent, too.)
func (p *pair) heard(topic string, partitions int) (awaits []func(*testing.T)) {
	p.t.Helper()
	for n := range partitions {
		awaits = append(awaits, p.stateLog(fmt.Sprintf(`"topic":%q,"partition":%d,`, topic, n), `"sourceEndMs":`))
	}
	return awaits
}

// checkFailover compares what the failover says with what the producers of the source, which sent so many records, were told. dead is
// for how long the source was dead when the failover began.
func (p *pair) checkFailover(out switched, sent int, told map[harness.TopicPartition]map[int64]string, dead time.Duration) {
	p.t.Helper()
	stops := out.stopOffsets("orders")
	readable := p.readAll("orders")
	lost, open := 0, int64(sent) // neither acknowledged nor surely not written
	for _, records := range told {
		open -= int64(len(records))
	}
	for tp, records := range told {
		stop, ok := stops[tp]
		if !ok {
			p.t.Fatalf("the failover says nothing of %s/%d", tp.Topic, tp.Partition)
		}
		for at, value := range records {
			switch got, ok := readable[tp][at]; {
			case at >= stop && ok:
				p.t.Errorf("%s/%d has a record at %d, behind its stop at %d", tp.Topic, tp.Partition, at, stop)
			case at >= stop:
				lost++
			case got != value:
				p.t.Errorf("%s/%d: %q was acknowledged at %d; there is %q", tp.Topic, tp.Partition, value, at, got)
			}
		}
	}
	for _, topic := range out.Topics {
		for _, part := range topic.Partitions {
			tp := harness.TopicPartition{Topic: topic.Name, Partition: part.Partition}
			end := int64(len(told[tp])) + open
			if topic.Name == "idle" {
				end = 100
			}
			switch {
			case part.State != "STOPPED" || part.Lag < 0 || part.SourceOffset < part.StopOffset:
				p.t.Errorf("%s/%d: %+v", topic.Name, part.Partition, part)
			case part.SourceOffset > end:
				p.t.Errorf("%s/%d: the source is said to have ended at %d; at most %d records were written", topic.Name, part.Partition, part.SourceOffset, end)
			case time.Duration(part.SourceAgeMs)*time.Millisecond < dead-10*time.Second, part.SourceAgeMs == 0: // the gateway may have read its last words late
				p.t.Errorf("%s/%d: the source is said to have been heard %d ms before the stop, but it had been dead for %v", topic.Name, part.Partition, part.SourceAgeMs, dead)
			}
		}
	}
	if int64(lost)+open < out.Lag {
		p.t.Errorf("%d records are said to be lost, %d are, or %d more", out.Lag, lost, open)
	}
	p.t.Logf("%d acknowledged records of the dead source are not here; %d of them were known", lost, out.Lag)
}

// goOn has producers and the group go on at the gateway.
func (p *pair) goOn(out switched) {
	p.t.Helper()
	stops := out.stopOffsets("orders")
	committed, err := p.to.FetchOffsets(p.ctx(), "readers")
	p.must(err)
	book := newLedger()
	client := p.atGateway(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for tp, stop := range stops {
		r := &kgo.Record{Topic: tp.Topic, Partition: tp.Partition, Value: []byte("after 0")}
		p.must(client.ProduceSync(p.ctx(), r).FirstErr())
		book.note(r, nil)
		if r.Offset != stop+1 {
			p.t.Errorf("%s/%d: the first record is at %d, the stop at %d", tp.Topic, tp.Partition, r.Offset, stop)
		}
		if o, ok := committed.Lookup(tp.Topic, tp.Partition); !ok || o.At > stop {
			p.t.Errorf("%s/%d: the group is at %d, the stop at %d", tp.Topic, tp.Partition, o.At, stop)
		}
	}
	group := p.gateway.Client(p.t, saslAdmin(), kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("orders"))
	defer group.Close()
	next, after := make(map[harness.TopicPartition]int64), 0
	for ctx := p.ctx(); after < len(stops); p.must(ctx.Err()) {
		group.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			tp := harness.TopicPartition{Topic: r.Topic, Partition: r.Partition}
			want, ok := next[tp]
			if !ok {
				o, _ := committed.Lookup(r.Topic, r.Partition)
				want = o.At
			}
			if want == stops[tp] {
				want++ // the fence
			}
			if r.Offset != want {
				p.t.Errorf("%s/%d: the group reads %d, not %d", tp.Topic, tp.Partition, r.Offset, want)
			}
			next[tp] = r.Offset + 1
			if string(r.Value) == "after 0" {
				after++
			}
		})
	}
}

const crashPartitions = 8

// crash is a moment in a failover at which the gateway is killed.
type crash struct {
	name, topic string
	// moment returns a function that waits for it.
	moment func(p *pair) func(t *testing.T)
}

func crashTopics(t *testing.T) []crash {
	random := harness.Random(t)
	crashes := []crash{
		{name: "recorded", moment: func(p *pair) func(*testing.T) { return p.stateLog(`"name":"recorded"`, `"state":4`) }},
		{name: "fenced", moment: func(p *pair) func(*testing.T) { return p.fenceOf("fenced") }},
		{name: "stopped", moment: func(p *pair) func(*testing.T) { return p.stateLog(`"topic":"stopped"`, `"state":8`) }},
		{name: "restored", moment: func(p *pair) func(*testing.T) { return p.settingsOf("restored") }},
		{name: "done", moment: func(p *pair) func(*testing.T) { return p.stateLog(`"name":"done"`, `"state":8`) }},
	}
	for i := range 3 {
		pause := time.Duration(random.Int64N(int64(200 * time.Millisecond)))
		name := fmt.Sprintf("random-%d", i)
		crashes = append(crashes, crash{name: name, moment: func(p *pair) func(*testing.T) {
			wait := p.stateLog(`"name":"`+name+`"`, `"state":4`)
			return func(t *testing.T) { wait(t); time.Sleep(pause) } // a moment like any other
		}})
	}
	for i := range crashes {
		crashes[i].topic = crashes[i].name
	}
	return crashes
}

// crash kills the gateway in the middle of a failover, whose command goes on asking, and looks at what the next start made
// of it.
func (p *pair) crash(c crash, book *ledger) {
	moment := c.moment(p)
	var output string
	var err error
	var running sync.WaitGroup
	running.Go(func() { output, err = p.run("failover", "--mirror", "m", "--topics", c.topic, "--json") })
	moment(p.t)
	p.gateway.Kill()
	p.gateway.Start(p.t)
	running.Wait()
	if err != nil {
		p.t.Fatalf("%v: %s", err, output)
	}
	out := parseSwitched(p.t, output)
	stops := out.stopOffsets(c.topic)
	ends, err := harness.Ends(p.ctx(), p.to, c.topic)
	p.must(err)
	for tp, end := range ends {
		if want := int64(len(book.of(c.topic)[tp])); stops[tp] != want || end != want+1 {
			p.t.Errorf("%s/%d was stopped at %d and ends at %d; the source had %d records", tp.Topic, tp.Partition, stops[tp], end, want)
		}
	}
	harness.Eventually(p.t, time.Minute, "it has its own settings", func(ctx context.Context) error { // as soon as the broker has heard of it
		configs, err := p.to.DescribeTopicConfigs(ctx, c.topic)
		if err != nil {
			return err
		}
		for _, config := range configs[0].Configs {
			if config.Key == "retention.ms" && config.MaybeValue() != "86400000" || config.Key == "message.timestamp.after.max.ms" && config.MaybeValue() != "3600000" {
				err = errors.Join(err, fmt.Errorf("%s is %s", config.Key, config.MaybeValue()))
			}
		}
		return err
	})
	p.must(p.atGateway().ProduceSync(p.ctx(), &kgo.Record{Topic: c.topic, Value: []byte("mine")}).FirstErr())
	p.sameAsLedgerWithout(c.topic, book.of(c.topic), "mine")
}

// sameAsLedgerWithout is sameAsLedger without records of a value.
func (p *pair) sameAsLedgerWithout(topic string, want map[harness.TopicPartition]map[int64]string, value string) {
	p.t.Helper()
	got := p.readAll(topic)
	for tp, records := range got {
		for at, v := range records {
			if v != value && want[tp][at] != v {
				p.t.Errorf("%s/%d has %q at %d, which nobody was told (%q)", topic, tp.Partition, v, at, want[tp][at])
			}
		}
	}
	for tp, records := range want {
		for at, v := range records {
			if got[tp][at] != v {
				p.t.Errorf("%s/%d: %q was acknowledged at %d and is not there", topic, tp.Partition, v, at)
			}
		}
	}
}

// fenceOf waits until a partition of a topic has its fence.
func (p *pair) fenceOf(topic string) func(*testing.T) {
	before, err := harness.Ends(p.ctx(), p.to, topic)
	p.must(err)
	return p.poll(func(ctx context.Context) bool {
		ends, err := harness.Ends(ctx, p.to, topic)
		return err == nil && harness.Total(ends) > harness.Total(before)
	})
}

// settingsOf waits until a topic has its own settings again.
func (p *pair) settingsOf(topic string) func(*testing.T) {
	return p.poll(func(ctx context.Context) bool {
		configs, err := p.to.DescribeTopicConfigs(ctx, topic)
		return err == nil && slices.ContainsFunc(configs, func(c kadm.ResourceConfig) bool {
			return slices.ContainsFunc(c.Configs, func(s kadm.Config) bool { return s.Key == "retention.ms" && s.MaybeValue() == "86400000" })
		})
	})
}

// poll asks without a pause, to be quick.
func (p *pair) poll(ok func(context.Context) bool) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		ctx := p.ctx()
		for !ok(ctx) {
			if ctx.Err() != nil {
				t.Fatal("the moment never came")
			}
		}
	}
}
