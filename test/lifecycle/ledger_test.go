package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// ledger is what a producer was told: the value of every acknowledged record, by where it is. It is compared with the logs.
type ledger struct {
	mu      sync.Mutex
	records map[harness.TopicPartition]map[int64]string
	failed  []error // of records that were given up
}

func newLedger() *ledger {
	return &ledger{records: make(map[harness.TopicPartition]map[int64]string)}
}

// note is the promise of a record.
func (l *ledger) note(r *kgo.Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed = append(l.failed, err)
		return
	}
	tp := harness.TopicPartition{Topic: r.Topic, Partition: r.Partition}
	if l.records[tp] == nil {
		l.records[tp] = make(map[int64]string)
	}
	l.records[tp][r.Offset] = string(r.Value)
}

// of are the records of a topic.
func (l *ledger) of(topic string) map[harness.TopicPartition]map[int64]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[harness.TopicPartition]map[int64]string)
	for tp, records := range l.records {
		if tp.Topic == topic {
			out[tp] = make(map[int64]string, len(records))
			for at, value := range records {
				out[tp][at] = value
			}
		}
	}
	return out
}

func (l *ledger) failures() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]error(nil), l.failed...)
}

// writer writes numbered records to a topic, in turn to its partitions, until it is stopped.
type writer struct {
	name   string
	client *kgo.Client
	next   int
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// write starts writing; numbers begin at from.
func write(client *kgo.Client, l *ledger, topic, name string, from int) *writer {
	ctx, cancel := context.WithCancel(context.Background())
	w := &writer{name: name, client: client, next: from, cancel: cancel}
	w.done.Go(func() {
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			client.Produce(context.Background(), &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%s %d", name, w.next)}, l.note)
			w.next++
		}
	})
	return w
}

// stop ends the writing and waits until every record is acknowledged or given up. It returns the next number.
func (w *writer) stop(t *testing.T) int {
	t.Helper()
	w.cancel()
	w.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := w.client.Flush(ctx); err != nil {
		t.Errorf("records of %s are neither acknowledged nor given up: %v", w.name, err)
	}
	return w.next
}

func writing() []kgo.Opt {
	return []kgo.Opt{
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerLinger(2 * time.Millisecond),
		kgo.RequiredAcks(kgo.AllISRAcks()),
	}
}

// readAll reads what readers of the gateway see of a topic, up to the ends that the destination has.
func (p *pair) readAll(topic string) map[harness.TopicPartition]map[int64]string {
	p.t.Helper()
	ends, err := harness.Ends(p.ctx(), p.to, topic)
	p.must(err)
	client := p.gateway.Client(p.t, append(reading(topic), saslAdmin())...)
	records := make(map[harness.TopicPartition]map[int64]string)
	readTo(p.t, client, ends, func(tp harness.TopicPartition, r *kgo.Record) {
		if records[tp] == nil {
			records[tp] = make(map[int64]string)
		}
		records[tp][r.Offset] = string(r.Value)
	})
	return records
}

// sameAsLedger compares a topic, as readers of the gateway see it, with what producers were told. It returns the number of
// records.
func (p *pair) sameAsLedger(topic string, want map[harness.TopicPartition]map[int64]string) int {
	p.t.Helper()
	got, n := p.readAll(topic), 0
	for tp, records := range got {
		for at, value := range records {
			n++
			if told, ok := want[tp][at]; !ok || told != value {
				p.t.Errorf("%s/%d has %q at %d, which nobody was told (%q)", tp.Topic, tp.Partition, value, at, told)
			}
		}
	}
	for tp, records := range want {
		for at, value := range records {
			if _, ok := got[tp][at]; !ok {
				p.t.Errorf("%s/%d: %q was acknowledged at %d and is not there", tp.Topic, tp.Partition, value, at)
			}
		}
	}
	return n
}

// inOrder checks that the records of each writer are in its order in every partition.
func inOrder(t *testing.T, records map[harness.TopicPartition]map[int64]string) {
	t.Helper()
	for tp, log := range records {
		last := make(map[string][2]int64) // of each writer: number, offset
		for at := range int64(1 << 20) {
			value, ok := log[at]
			if !ok {
				if len(last) > 0 && at > maxKey(log) {
					break
				}
				continue
			}
			var number int64
			name, digits, _ := strings.Cut(value, " ")
			if _, err := fmt.Sscan(digits, &number); err != nil {
				t.Fatalf("%q is no record of a writer", value)
			}
			if before, ok := last[name]; ok && before[0] >= number {
				t.Errorf("%s/%d: %s wrote %d at %d behind %d at %d", tp.Topic, tp.Partition, name, number, at, before[0], before[1])
			}
			last[name] = [2]int64{number, at}
		}
	}
}

func maxKey(m map[int64]string) int64 {
	most := int64(-1)
	for at := range m {
		most = max(most, at)
	}
	return most
}

// switched is the JSON of "mirrors failover" and "mirrors cutover".
type switched struct {
	Outcome      string `json:"outcome"`
	Reason       string `json:"reason"`
	WritePauseMs int64  `json:"writePauseMs"`
	LeftBehind   int64  `json:"leftBehind"`
	TookMs       int64  `json:"tookMs"`
	Lag          int64  `json:"lag"`
	Unknown      int    `json:"unknownPartitions"`
	Topics       []struct {
		Name       string `json:"name"`
		Partitions []struct {
			Partition    int32  `json:"partition"`
			State        string `json:"state"`
			StopOffset   int64  `json:"stopOffset"`
			SourceOffset int64  `json:"sourceOffset"`
			SourceAgeMs  int64  `json:"sourceAgeMs"`
			Lag          int64  `json:"lag"`
		} `json:"partitions"`
	} `json:"topics"`
	Groups struct {
		InPlace int   `json:"inPlace"`
		AgeMs   int64 `json:"ageMs"`
	} `json:"groups"`
}

func parseSwitched(t *testing.T, output string) switched {
	t.Helper()
	var out switched
	if i := strings.Index(output, "{"); i < 0 {
		t.Fatalf("no JSON: %s", output)
	} else if err := json.NewDecoder(strings.NewReader(output[i:])).Decode(&out); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return out
}

// stopOffsets are where the partitions of a topic were stopped.
func (s switched) stopOffsets(topic string) map[harness.TopicPartition]int64 {
	offsets := make(map[harness.TopicPartition]int64)
	for _, t := range s.Topics {
		for _, p := range t.Partitions {
			if t.Name == topic {
				offsets[harness.TopicPartition{Topic: topic, Partition: p.Partition}] = p.StopOffset
			}
		}
	}
	return offsets
}

// awaitCommittedEnds waits until a group's committed offsets at the destination are these.
func awaitCommittedEnds(t *testing.T, p *pair, group string, ends map[harness.TopicPartition]int64) {
	t.Helper()
	harness.Eventually(t, time.Minute, "group "+group+" is at the end", func(ctx context.Context) error {
		fetched, err := p.to.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		for tp, end := range ends {
			if o, ok := fetched.Lookup(tp.Topic, tp.Partition); !ok || o.At != end {
				err = errors.Join(err, fmt.Errorf("%s/%d is at %d, not %d", tp.Topic, tp.Partition, o.At, end))
			}
		}
		return err
	})
}
