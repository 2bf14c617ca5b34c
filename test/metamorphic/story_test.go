package metamorphic

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// patience is how long anything may take that is waited for; only a hang reaches it.
const patience = 10 * time.Minute

// mirror is the name of the one mirror of a story.
const mirror = "story"

// topic is a topic of the story.
type topic struct {
	name       string
	partitions int32
	compacted  bool // every record has a key
	deletable  bool // DeleteRecords is allowed, and retention works
	appendTime bool
	configs    map[string]string
}

// quick begins a new segment with a batch that is 10 s younger than the first of its segment.
var quick = map[string]string{"segment.ms": "10000", "message.timestamp.after.max.ms": "9223372036854775807", "retention.ms": "-1"}

// compacting makes the cleaner work at once on all but the last segment.
var compacting = map[string]string{"min.cleanable.dirty.ratio": "0.0001", "min.compaction.lag.ms": "0"}

var topics = []topic{
	{name: "plain", partitions: 3, deletable: true, configs: map[string]string{"cleanup.policy": "delete"}},
	{name: "compact", partitions: 2, compacted: true, configs: map[string]string{"cleanup.policy": "compact"}},
	{name: "both", partitions: 2, compacted: true, deletable: true, configs: map[string]string{"cleanup.policy": "compact,delete"}},
	{name: "append-time", partitions: 2, deletable: true, appendTime: true, configs: map[string]string{"message.timestamp.type": "LogAppendTime"}},
}

func names() []string {
	var all []string
	for _, t := range topics {
		all = append(all, t.name)
	}
	return all
}

// story is the clusters, the gateway between them and what has happened so far.
type story struct {
	t      *testing.T
	random *rand.Rand
	began  time.Time
	steps  int

	source, dest     *kafkatest.Cluster
	gateway          *harness.Gateway
	client           *kgo.Client // of the gateway
	admin            *kadm.Client
	gatewayUp        bool
	destUp           bool
	producers        map[string]*kgo.Client
	transactions     []*transaction
	clock            time.Time                        // of the records; goes ahead so that segments end
	starts           map[harness.TopicPartition]int64 // the highest of the source's logs, as of its last deaths
	produced, holes  int64
	compared, killed int
}

func newStory(t *testing.T, random *rand.Rand) *story {
	t.Helper()
	s := &story{t: t, random: random, began: time.Now(), clock: time.Now().Truncate(time.Second), producers: map[string]*kgo.Client{}, starts: map[harness.TopicPartition]int64{}, gatewayUp: true, destUp: true}
	s.source = kafkatest.Start(t, kafkatest.Options{Settings: map[string]string{"transaction.max.timeout.ms": fmt.Sprint(transactionTimeout.Milliseconds())}})
	s.dest = kafkatest.Start(t, kafkatest.Options{})
	s.admin = harness.Admin(t, s.source.Bootstrap())
	var made []harness.Topic
	for _, topic := range topics {
		configs := maps.Clone(quick)
		maps.Copy(configs, topic.configs)
		if topic.compacted {
			maps.Copy(configs, compacting)
		}
		made = append(made, harness.Topic{Name: topic.name, Partitions: topic.partitions, Configs: configs})
	}
	harness.CreateTopics(t, s.source.Bootstrap(), made...)
	for i := range 3 {
		s.transactions = append(s.transactions, s.newTransaction(i))
	}
	s.gateway = harness.StartGateway(t, harness.GatewayOptions{Destination: s.dest.Bootstrap()})
	s.client = s.gateway.Client(t)
	harness.CreateMirror(t, s.client, mirror, s.source.Bootstrap())
	harness.AddTopics(t, s.client, mirror, names()...)
	return s
}

// say logs a line of the story.
func (s *story) say(format string, args ...any) {
	s.t.Helper()
	s.t.Logf("%4d %6.1fs  %s", s.steps, time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// do is a step that may take until the patience is used up.
func (s *story) do(what string, f func(ctx context.Context) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if err := f(ctx); err != nil {
		s.t.Fatalf("step %d: %s: %v", s.steps, what, err)
	}
}

// action is something that can happen next.
type action struct {
	weight int
	act    func(s *story, random *rand.Rand)
	// possible, where it is not nil, tells from the story so far alone.
	possible func(s *story) bool
}

var actions = []action{
	{weight: 30, act: (*story).produce},
	{weight: 18, act: (*story).writeInTransaction},
	{weight: 12, act: (*story).endTransaction, possible: func(s *story) bool { return s.open() > 0 }},
	{weight: 8, act: (*story).compact},
	{weight: 7, act: (*story).deleteRecords},
	{weight: 4, act: (*story).retain},
	{weight: 4, act: (*story).restartSource},
	{weight: 5, act: (*story).killGateway, possible: func(s *story) bool { return s.gatewayUp }},
	{weight: 14, act: (*story).startGateway, possible: func(s *story) bool { return !s.gatewayUp }},
	{weight: 4, act: (*story).killDestination, possible: func(s *story) bool { return s.destUp }},
	{weight: 14, act: (*story).startDestination, possible: func(s *story) bool { return !s.destUp }},
}

// step takes one random step. It draws two numbers from the story's seed, always.
func (s *story) step() {
	s.t.Helper()
	random := rand.New(rand.NewPCG(s.random.Uint64(), s.random.Uint64()))
	s.steps++
	var possible []action
	total := 0
	for _, a := range actions {
		if a.possible == nil || a.possible(s) {
			possible = append(possible, a)
			total += a.weight
		}
	}
	at := random.IntN(total)
	i := slices.IndexFunc(possible, func(a action) bool { at -= a.weight; return at < 0 })
	// The moment of the step: nothing is waited for.
	time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
	possible[i].act(s, random)
}

// chapter takes some steps, lets everything come to rest, and compares.
func (s *story) chapter() {
	s.t.Helper()
	for range stepsOfChapter {
		s.step()
	}
	s.settle()
	s.compare()
}

// settle ends all transactions, starts all that is down, and waits until the mirror has everything.
func (s *story) settle() {
	s.t.Helper()
	s.steps++
	for _, x := range s.transactions {
		if x.open {
			s.end(x, kgo.TryCommit)
		}
	}
	if !s.destUp {
		s.startDestination(nil)
	}
	if !s.gatewayUp {
		s.startGateway(nil)
	}
	s.gateway.WaitReady(s.t)
	harness.Eventually(s.t, patience, "all transactions have their markers", func(ctx context.Context) error {
		stable, err := s.admin.ListCommittedOffsets(ctx, names()...)
		if err != nil {
			return err
		}
		ends, err := harness.Ends(ctx, s.admin, names()...)
		for tp, end := range ends {
			if o, ok := stable.Lookup(tp.Topic, tp.Partition); !ok || o.Err != nil || o.Offset != end {
				return fmt.Errorf("%s/%d is stable up to %d of %d (%v)", tp.Topic, tp.Partition, o.Offset, end, o.Err)
			}
		}
		return err
	})
	s.repeatDeletions()
	harness.WaitMirrored(s.t, s.client, mirror, s.source.Bootstrap(), s.dest.Bootstrap(), patience, names()...)
	dest := harness.Client(s.t, s.dest.Bootstrap())
	defer dest.Close()
	harness.Eventually(s.t, patience, "both logs start at the same offsets", func(ctx context.Context) error {
		_, err := s.sameStarts(ctx, kadm.NewClient(dest))
		return err
	})
	s.say("everything is up and mirrored")
}

// sameStarts are the offsets at which the logs of both sides start.
func (s *story) sameStarts(ctx context.Context, dest *kadm.Client) (map[harness.TopicPartition]int64, error) {
	want, err := s.admin.ListStartOffsets(ctx, names()...)
	if err != nil {
		return nil, err
	}
	got, err := dest.ListStartOffsets(ctx, names()...)
	if err != nil {
		return nil, err
	}
	starts := map[harness.TopicPartition]int64{}
	var wrong []string
	want.Each(func(o kadm.ListedOffset) {
		starts[harness.TopicPartition{Topic: o.Topic, Partition: o.Partition}] = o.Offset
		if other, _ := got.Lookup(o.Topic, o.Partition); o.Err != nil || other.Err != nil || other.Offset != o.Offset {
			wrong = append(wrong, fmt.Sprintf("%s/%d starts at %d (%v), source at %d (%v)", o.Topic, o.Partition, other.Offset, other.Err, o.Offset, o.Err))
		}
	})
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return starts, nil
}

// sum says what the story was about, and fails if it was about nothing.
func (s *story) sum() {
	s.say("the end: %d records written, %d comparisons, %d offsets without a record at the source in the last, %d processes killed", s.produced, s.compared, s.holes, s.killed)
	if s.produced == 0 || s.compared == 0 {
		s.t.Error("nothing was written or compared")
	}
}
