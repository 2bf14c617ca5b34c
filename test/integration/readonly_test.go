package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// While a topic is mirrored every change of it is refused through the gateway, and other topics in the same request go
// through; once it is removed from the mirror it can be written, behind the last mirrored record.
func TestReadOnly(t *testing.T) {
	topic := harness.Topic{Name: "readonly", Partitions: 2}
	random := harness.Random(t)
	from, to := source(t), destination(t)
	harness.CreateTopics(t, from, topic)
	harness.MustFill(t, from, random, 2000, topic)
	harness.CreateTopics(t, to.Bootstrap(), harness.Topic{Name: "ordinary", Partitions: 1})
	gw := gateway(t, to)
	client := gw.Client(t)
	harness.CreateMirror(t, client, "readonly", from)
	harness.AddTopics(t, client, "readonly", topic.Name)
	harness.WaitMirrored(t, client, "readonly", from, to.Bootstrap(), time.Minute, topic.Name)

	for name, change := range changes(t, gw, topic.Name) {
		if err := change(); !errors.Is(err, kerr.PolicyViolation) {
			t.Errorf("%s on a mirror topic: %v, want POLICY_VIOLATION", name, err)
		}
	}
	for name, change := range changes(t, gw, "ordinary") {
		if err := change(); err != nil {
			t.Errorf("%s on an ordinary topic: %v", name, err)
		}
	}
	large := bytes.Repeat([]byte("large enough to be decided about by its beginning "), 10_000)
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic.Name, Value: large}).FirstErr(); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("a large record for a mirror topic: %v, want POLICY_VIOLATION", err)
	}
	harness.SameRecords(t, from, to.Bootstrap(), topic.Name)

	harness.RemoveTopics(t, client, "readonly", topic.Name)
	last := lastMirrored(t, client, "readonly", topic.Name)
	writer := gw.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(2) {
		if last[p] != 1000 {
			t.Errorf("last mirrored offset of partition %d is %d, want 1000", p, last[p])
		}
		record := &kgo.Record{Topic: topic.Name, Partition: p, Value: [][]byte{[]byte("after the switch"), large}[p]}
		if err := writer.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatalf("writing to the removed topic: %v", err)
		}
		if record.Offset != 1001 { // the fence is at 1000
			t.Errorf("the first record of a client is at %d, want 1001", record.Offset)
		}
	}
	// The source goes on, and none of that may arrive any more.
	harness.MustFill(t, from, random, 200, topic)
	gw.Kill()
	gw.Start(t)
	ends, err := harness.Ends(t.Context(), harness.Admin(t, to.Bootstrap()), topic.Name)
	if err != nil {
		t.Fatal(err)
	}
	if total := harness.Total(ends); total != 2*1002 {
		t.Errorf("the removed topic holds %d offsets, want %d", total, 2*1002)
	}
}

// A gateway that sleeps through the stop of a mirror wakes up with the very next batch in its hands: the fence keeps it
// out, and what clients wrote meanwhile stays where it is.
func TestGatewaySleepsThroughStop(t *testing.T) {
	const writers = 50
	topic := harness.Topic{Name: "asleep", Partitions: 2}
	random := harness.Random(t)
	from, to := source(t), destination(t)
	harness.CreateTopics(t, from, topic)
	sleeper, awake := gateway(t, to, "--gateway-number", "0"), gateway(t, to, "--gateway-number", "1")
	harness.CreateMirror(t, awake.Client(t), "asleep", from)
	harness.AddTopics(t, awake.Client(t), "asleep", topic.Name)
	load := startLoad(t.Context(), from, topic, random)
	for range 20 {
		load.release(2000)
	}
	waitTotal(t, to.Bootstrap(), topic.Name, 5000)
	sleeper.Pause(t)
	harness.RemoveTopics(t, awake.Client(t), "asleep", topic.Name)
	last := lastMirrored(t, awake.Client(t), "asleep", topic.Name)

	// Many idempotent producers: their IDs must not collide with what the mirror left behind, and every acknowledged
	// record must be there.
	written := map[harness.TopicPartition]map[int64]string{}
	for i := range writers {
		record := &kgo.Record{Topic: topic.Name, Partition: int32(i % 2), Value: fmt.Appendf(nil, "writer %d", i)}
		client := awake.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
		client.Close()
		tp := harness.TopicPartition{Topic: topic.Name, Partition: record.Partition}
		if written[tp] == nil {
			written[tp] = map[int64]string{}
		}
		written[tp][record.Offset] = string(record.Value)
	}
	sleeper.Resume(t)
	load.finish(t)
	harness.Eventually(t, time.Minute, "the sleeper knows of the stop", func(ctx context.Context) error {
		described, err := harness.Describe(ctx, sleeper.Client(t), "asleep")
		if err != nil {
			return err
		}
		for _, p := range described[topic.Name] {
			if p.State != "STOPPED" {
				return fmt.Errorf("partition %d is %s there", p.Partition, p.State)
			}
		}
		return nil
	})
	for tp, records := range written {
		if len(records) != writers/2 {
			t.Fatalf("%d different offsets were acknowledged for %d records", len(records), writers/2)
		}
		checkTail(t, to.Bootstrap(), tp, last[tp.Partition], records)
	}
}

// checkTail reads a partition from the last mirrored offset on: the fence, then exactly the records written.
func checkTail(t *testing.T, bootstrap string, tp harness.TopicPartition, from int64, records map[int64]string) {
	t.Helper()
	ends, err := harness.Ends(t.Context(), harness.Admin(t, bootstrap), tp.Topic)
	if err != nil {
		t.Fatal(err)
	}
	if want := from + 1 + int64(len(records)); ends[tp] != want {
		t.Errorf("partition %d ends at %d, want %d: last mirrored %d, the fence and %d records", tp.Partition, ends[tp], want, from, len(records))
	}
	reader := harness.Client(t, bootstrap, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{tp.Topic: {tp.Partition: kgo.NewOffset().At(from + 1)}}))
	ctx, cancel := context.WithTimeout(t.Context(), readPatience)
	defer cancel()
	for range records {
		if record := pollOne(ctx, t, reader); records[record.Offset] != string(record.Value) {
			t.Errorf("partition %d has %q at offset %d, want %q", tp.Partition, record.Value, record.Offset, records[record.Offset])
		}
	}
}

// changes are the requests that change a topic, in an order in which they can be tried on an ordinary one.
func changes(t *testing.T, gw *harness.Gateway, topic string) map[string]func() error {
	admin := harness.Admin(t, gw.Bootstrap())
	ctx, cancel := context.WithTimeout(context.Background(), readPatience)
	t.Cleanup(cancel)
	return map[string]func() error{
		"Produce": func() error {
			return gw.Client(t).ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr()
		},
		"transactional Produce": func() error { return writeInTransaction(ctx, t, gw, topic) },
		"DeleteRecords": func() error {
			var offsets kadm.Offsets
			offsets.AddOffset(topic, 0, 0, -1)
			responses, err := admin.DeleteRecords(ctx, offsets)
			return errors.Join(err, responses.Error())
		},
		"CreatePartitions": func() error {
			responses, err := admin.CreatePartitions(ctx, 1, topic)
			return errors.Join(err, responses.Error())
		},
		"IncrementalAlterConfigs of a held setting": func() error {
			value := "LogAppendTime"
			responses, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "message.timestamp.type", Value: &value}}, topic)
			if err != nil {
				return err
			}
			return responses[0].Err
		},
		"DeleteTopics": func() error {
			if topic == "ordinary" { // other changes need it
				return nil
			}
			responses, err := admin.DeleteTopics(ctx, topic)
			return errors.Join(err, responses.Error())
		},
	}
}

func writeInTransaction(ctx context.Context, t *testing.T, gw *harness.Gateway, topic string) error {
	client := gw.Client(t, kgo.TransactionalID("readonly-"+topic))
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr()
	commit := kgo.TryCommit
	if err != nil {
		commit = kgo.TryAbort
	}
	return errors.Join(err, client.EndTransaction(ctx, commit))
}

func lastMirrored(t *testing.T, client *kgo.Client, mirror, topic string) map[int32]int64 {
	t.Helper()
	offsets, err := harness.LastMirrored(t.Context(), client, mirror, topic)
	if err != nil {
		t.Fatal(err)
	}
	return offsets
}

// CreateTopics v8 gives an ordinary topic a chosen ID, which all clients then see.
func TestCreateTopicsWithID(t *testing.T) {
	to := destination(t)
	gw := gateway(t, to)
	client := gw.Client(t)
	id := [16]byte{0x11, 0x22, 15: 0x99}
	create := func(name string) (int16, string, [16]byte) {
		request := mirrormsg.NewPtrCreateTopicsRequest()
		topic := mirrormsg.CreateTopicsRequestTopic{MirrorInfo: &mirrormsg.MirrorInfo{TopicID: id}}
		topic.CreateTopicsRequestTopic = kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, 1
		request.Topics = append(request.Topics, topic)
		response, err := client.Request(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		answered := response.(*kmsg.CreateTopicsResponse).Topics[0]
		return answered.ErrorCode, harness.Message(answered.ErrorMessage), answered.TopicID
	}
	if code, message, got := create("with-id"); code != 0 || got != id {
		t.Fatalf("created with ID %x and error %v %s, want %x", got, kerr.ErrorForCode(code), message, id)
	}
	if code, message, _ := create("same-id"); code != kerr.TopicAlreadyExists.Code {
		t.Errorf("a second topic with the same ID: %v %s, want TOPIC_ALREADY_EXISTS", kerr.ErrorForCode(code), message)
	}
	gw.Kill()
	gw.Start(t)
	details, err := harness.Admin(t, gw.Bootstrap()).ListTopics(t.Context(), "with-id")
	if err != nil {
		t.Fatal(err)
	}
	if got := details["with-id"].ID; got != id {
		t.Errorf("metadata after a restart has ID %x, want %x", got, id)
	}
	// Fetch by that ID works: kgo uses IDs where it can.
	writer := gw.Client(t)
	if err := writer.ProduceSync(t.Context(), &kgo.Record{Topic: "with-id", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), readPatience)
	defer cancel()
	reader := gw.Client(t, kgo.ConsumeTopics("with-id"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if record := pollOne(ctx, t, reader); string(record.Value) != "v" {
		t.Errorf("read %q", record.Value)
	}
}

// The data directory is only a view: without it, the gateway reads the state from the destination.
func TestDataDirLost(t *testing.T) {
	topic := harness.Topic{Name: "lostdir", Partitions: 2}
	random := harness.Random(t)
	from, to := source(t), destination(t)
	harness.CreateTopics(t, from, topic)
	harness.MustFill(t, from, random, 1000, topic)
	gw := gateway(t, to)
	harness.CreateMirror(t, gw.Client(t), "lostdir", from)
	harness.AddTopics(t, gw.Client(t), "lostdir", topic.Name)
	harness.WaitMirrored(t, gw.Client(t), "lostdir", from, to.Bootstrap(), time.Minute, topic.Name)

	gw.Kill()
	removeAll(t, gw.DataDir())
	harness.MustFill(t, from, random, 1000, topic)
	gw.Start(t)
	harness.WaitMirrored(t, gw.Client(t), "lostdir", from, to.Bootstrap(), time.Minute, topic.Name)
	harness.SameRecords(t, from, gw.Bootstrap(), topic.Name)
	client := gw.Client(t)
	response, err := mirrormsg.NewPtrListMirrorsRequest().RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(len(response.Mirrors)); got != "1" || response.Mirrors[0].MirrorName != "lostdir" || response.Mirrors[0].TopicCount != 1 {
		t.Errorf("ListMirrors: %+v", response.Mirrors)
	}
}
