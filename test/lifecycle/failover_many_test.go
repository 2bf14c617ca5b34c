package lifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// Hundreds of topics are failed over by one command, with the source dead.
func TestFailoverOfManyTopics(t *testing.T) {
	const many = 300
	source, destination := kafkatest.Start(t, kafkatest.Options{Heap: "384m"}), kafkatest.Start(t, kafkatest.Options{Heap: "384m"})
	gateway := harness.StartGateway(t, harness.GatewayOptions{Destination: destination.Bootstrap()})
	client := gateway.Client(t)
	var topics []harness.Topic
	partitions := 0
	for i := range many {
		topics = append(topics, harness.Topic{Name: fmt.Sprintf("many-%03d", i), Partitions: int32(1 + i%2)})
		partitions += 1 + i%2
	}
	harness.CreateTopics(t, source.Bootstrap(), topics...)
	names := harness.Names(topics)
	writer := harness.Client(t, source.Bootstrap())
	for _, name := range names {
		writer.Produce(t.Context(), &kgo.Record{Topic: name, Value: []byte("x")}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("write to the source: %v", err)
			}
		})
	}
	if err := writer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	harness.CreateMirror(t, client, "m", source.Bootstrap())
	began := time.Now()
	harness.AddTopics(t, client, "m", names...)
	added := time.Since(began)
	harness.WaitMirrored(t, client, "m", source.Bootstrap(), destination.Bootstrap(), 2*time.Minute, names...)
	t.Logf("%d topics with %d partitions added: %v; and copied: %v", many, partitions, added.Round(100*time.Millisecond), time.Since(began).Round(100*time.Millisecond))

	source.Kill(1)
	began = time.Now()
	out, err := harness.Run(t, "mirrors", "failover", "--bootstrap-server", gateway.Bootstrap(), "--mirror", "m", "--all-topics", "--json")
	took := time.Since(began)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	result := parseSwitched(t, out)
	for _, topic := range result.Topics {
		for _, p := range topic.Partitions {
			if p.State != "STOPPED" {
				t.Errorf("%s-%d is %s", topic.Name, p.Partition, p.State)
			}
		}
	}
	if len(result.Topics) != many || result.Lag != 0 {
		t.Errorf("%d topics, lag %d", len(result.Topics), result.Lag)
	}
	t.Logf("failover of %d topics with %d partitions: %v with the command, %d ms in the gateway", many, partitions, took.Round(10*time.Millisecond), result.TookMs)
	record := &kgo.Record{Topic: names[many-1], Value: []byte("after the failover")}
	if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Error(err)
	}
}
