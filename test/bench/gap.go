package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// gapOffsets is how long the gap is.
const gapOffsets = 50_000_000

// gap has a mirror fill the offsets below the start of a source's log.
func gap(ctx context.Context, l *lab) error {
	if err := l.clusters(ctx); err != nil {
		return err
	}
	data := dataset{topic: "gap", partitions: 1, records: gapOffsets}
	if err := l.makeGap(ctx, data); err != nil {
		return err
	}
	return l.rounds(ctx, []subject{{"mirrorgate", func(ctx context.Context) (sample, error) {
		s, err := l.mirrorRun(ctx, data)
		if err != nil {
			return s, err
		}
		rate, _ := s.get("records/s")
		peak, _ := s.get("peak MB")
		out := sample{Subject: s.Subject}
		out.set("M offsets/s", rate/1e6)
		out.set("peak MB", peak)
		return out, nil
	}}}, func(context.Context) error { return nil })
}

// makeGap makes the source's log start at gapOffsets, with nothing behind: records without content, deleted again.
func (l *lab) makeGap(ctx context.Context, data dataset) error {
	if err := l.createTopic(ctx, l.source, data.topic, 1, nil); err != nil {
		return err
	}
	const perBatch = 100_000
	frame := produceFrame(data.topic, producePart{0, anonymous(recordbatch.AppendFiller(nil, perBatch, false, 1_700_000_000_000))})
	frames := make([][]byte, gapOffsets/perBatch)
	for i := range frames {
		frames[i] = frame
	}
	w, err := dialWire(ctx, l.source.BrokerAddr(1))
	if err != nil {
		return err
	}
	defer w.close()
	if err := w.pipeline(frames, replayDepth, produced); err != nil {
		return fmt.Errorf("writing offsets: %w", err)
	}
	request := kmsg.NewPtrDeleteRecordsRequest()
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = 0, gapOffsets
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic, t.Partitions = data.topic, []kmsg.DeleteRecordsRequestTopicPartition{p}
	request.Topics = []kmsg.DeleteRecordsRequestTopic{t}
	admin, err := l.admin(l.source)
	if err != nil {
		return err
	}
	response, err := admin.kgo.Broker(1).RetriableRequest(ctx, request)
	if err != nil {
		return err
	}
	return kerrOf(response.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0].ErrorCode, nil)
}
