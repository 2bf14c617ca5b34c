package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// A share group reads a mirror full of fillers: it gets every record of the source once and no filler, although the broker
// hands it the fillers' offsets too, which it acknowledges as gaps. Members that come later get only what is new.
func TestFillersAreHiddenFromShareGroups(t *testing.T) {
	from, to := source(t), kafkatest.Start(t, kafkatest.Options{Heap: "512m", Version: "4.2.0"})
	const topic, group = "shared-fillers", "shared-readers"
	harness.CreateTopics(t, from, harness.Topic{Name: topic, Partitions: 1})
	w := hidingWriter{t: t, bootstrap: from, topic: topic, at: time.Now().Truncate(time.Millisecond)}
	w.abort(7)
	w.write(5)
	w.abort(40)
	w.write(3)
	w.abort(1)
	w.write(5)
	w.abort(300)
	gw := gateway(t, to)
	client := gw.Client(t)
	harness.CreateMirror(t, client, "shared", from)
	harness.AddTopics(t, client, "shared", topic)
	harness.WaitMirrored(t, client, "shared", from, to.Bootstrap(), time.Minute, topic)
	readFromTheStart(t, client, group)

	r := shareReader{t: t, got: map[int64]string{}}
	for records := 13; records < 16; records++ {
		want := written(t, harness.Client(t, from), topic, records)
		r.Client = gw.Client(t, kgo.ShareGroup(group), kgo.ConsumeTopics(topic))
		r.readUntil(records)
		if !maps.Equal(r.got, want) {
			t.Fatalf("the share group got offsets %v, want %v", slices.Sorted(maps.Keys(r.got)), slices.Sorted(maps.Keys(want)))
		}
		if err := r.FlushAcks(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.Close()
		w.write(1)
		w.abort(20)
	}
}

type shareReader struct {
	*kgo.Client
	t   *testing.T
	got map[int64]string
}

func (r *shareReader) readUntil(records int) {
	r.t.Helper()
	harness.Eventually(r.t, time.Minute, fmt.Sprintf("the share group has %d records", records), func(ctx context.Context) error {
		polled, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		fetches := r.PollFetches(polled)
		r.MarkAcks(kgo.AckAccept, fetches.Records()...)
		fetches.EachRecord(func(record *kgo.Record) {
			if _, again := r.got[record.Offset]; again {
				r.t.Errorf("offset %d came twice", record.Offset)
			}
			r.got[record.Offset] = shown(record)
		})
		if len(r.got) < records {
			return fmt.Errorf("it has %d", len(r.got))
		}
		return nil
	})
}

// readFromTheStart sets share.auto.offset.reset of a group.
func readFromTheStart(t *testing.T, client *kgo.Client, group string) {
	t.Helper()
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "share.auto.offset.reset", kmsg.StringPtr("earliest")
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	resource.Configs = append(resource.Configs, config)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if r := resp.Resources[0]; r.ErrorCode != 0 {
		t.Fatalf("share.auto.offset.reset: code %d", r.ErrorCode)
	}
}
