package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Topic describes a topic to create and how it is filled.
type Topic struct {
	Name       string
	Partitions int32
	Codec      kgo.CompressionCodec // the zero value is no compression
	Plain      bool                 // written by a producer without idempotence
	// MaxValue is the size of most values: 1 byte to MaxValue, 0 means 200.
	MaxValue int
	// Large is the size of one value in about 2,000, 0 means none.
	Large int
	// Configs of the topic.
	Configs map[string]string
}

// CreateTopics creates the topics and waits until every partition has a leader that answers.
func CreateTopics(t testing.TB, bootstrap string, topics ...Topic) {
	t.Helper()
	admin := Admin(t, bootstrap)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var names []string
	for _, topic := range topics {
		// Some records are years old: retention would delete them, and mirrors of that start above 0.
		forever := "-1"
		configs := map[string]*string{"retention.ms": &forever}
		for key, value := range topic.Configs {
			configs[key] = &value
		}
		response, err := admin.CreateTopic(ctx, topic.Partitions, -1, configs, topic.Name)
		if err = errors.Join(err, response.Err); err != nil {
			t.Fatalf("creating %s: %v", topic.Name, err)
		}
		names = append(names, topic.Name)
	}
	Eventually(t, time.Minute, "the topics have leaders", func(ctx context.Context) error {
		_, err := Ends(ctx, admin, names...)
		return err
	})
}

// Names are the names of topics.
func Names(topics []Topic) []string {
	var names []string
	for _, topic := range topics {
		names = append(names, topic.Name)
	}
	return names
}

// Fill produces records records to a topic, spread over its partitions, and returns when all are acknowledged. The
// content follows from the numbers of random alone.
func Fill(ctx context.Context, bootstrap string, topic Topic, records int, random *rand.Rand) error {
	client, err := kgo.NewClient(producerOptions(bootstrap, topic)...)
	if err != nil {
		return err
	}
	defer client.Close()
	generator := newGenerator(topic, random)
	var (
		mu    sync.Mutex
		first error
	)
	for i := range records {
		client.Produce(ctx, generator.record(i), func(_ *kgo.Record, err error) {
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				first = errors.Join(first, err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("filling %s: %w", topic.Name, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if first != nil {
		return fmt.Errorf("filling %s: %w", topic.Name, first)
	}
	return nil
}

// MustFill is Fill for several topics at once, each with its own random numbers.
func MustFill(t testing.TB, bootstrap string, random *rand.Rand, records int, topics ...Topic) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	errs := make(chan error, len(topics))
	for _, topic := range topics {
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		go func() { errs <- Fill(ctx, bootstrap, topic, records, own) }()
	}
	for range topics {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

func producerOptions(bootstrap string, topic Topic) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(topic.Codec),
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond),
		// What is written is counted, so no record may be given up: neither when a broker dies before its first answer on a
		// connection, nor when one has not heard of a new topic yet.
		kgo.AlwaysRetryEOF(),
		kgo.UnknownTopicRetries(-1),
	}
	if topic.Plain {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	return opts
}

// generator makes records with all the odd shapes: null and empty keys, values and header values, repeated and empty
// header names, chosen timestamps, tiny and huge values.
type generator struct {
	topic  Topic
	random *rand.Rand
	noise  []byte
}

func newGenerator(topic Topic, random *rand.Rand) *generator {
	noise := make([]byte, 1<<20)
	for i := range noise {
		// Half of it compresses, half does not.
		if noise[i] = byte(random.Uint32()); i%512 < 256 {
			noise[i] = "the quick brown fox jumps over the lazy dog "[i%44]
		}
	}
	return &generator{topic: topic, random: random, noise: noise}
}

func (g *generator) record(i int) *kgo.Record {
	record := &kgo.Record{Topic: g.topic.Name, Partition: int32(i) % g.topic.Partitions}
	switch g.random.IntN(20) {
	case 0: // null key
	case 1:
		record.Key = []byte{}
	default:
		record.Key = fmt.Appendf(nil, "key-%d", g.random.IntN(10_000))
	}
	switch g.random.IntN(20) {
	case 0: // null value
	case 1:
		record.Value = []byte{}
	default:
		record.Value = g.value(i)
	}
	record.Headers = g.headers()
	if g.random.IntN(10) == 0 {
		record.Timestamp = time.UnixMilli(1_600_000_000_000 + g.random.Int64N(1_000_000_000))
	}
	return record
}

func (g *generator) value(i int) []byte {
	size := g.topic.MaxValue
	if size == 0 {
		size = 200
	}
	size = 1 + g.random.IntN(size)
	if g.topic.Large > 0 && i%2000 == 1999 {
		size = g.topic.Large
	}
	from := g.random.IntN(len(g.noise) - size)
	return g.noise[from : from+size]
}

func (g *generator) headers() []kgo.RecordHeader {
	switch g.random.IntN(8) {
	case 0:
		return []kgo.RecordHeader{{Key: "null"}, {Key: "empty", Value: []byte{}}, {Key: "", Value: []byte("no name")}}
	case 1:
		return []kgo.RecordHeader{{Key: "twice", Value: []byte("1")}, {Key: "twice", Value: []byte("2")}, {Key: "ünïcödé", Value: []byte{0, 255}}}
	}
	return nil
}
