package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// idleClients opens more and more connections through the gateway, each of which has asked once, and measures what they
// cost while nothing moves. Each takes two descriptors, of which a process may have 20,000 on our machines.
func idleClients(ctx context.Context, l *lab) error {
	if err := l.clusters(ctx); err != nil {
		return err
	}
	g, err := l.newGateway(ctx)
	if err != nil {
		return err
	}
	defer g.end()
	request := kmsg.NewPtrApiVersionsRequest()
	request.SetVersion(0)
	frame := formatter.AppendRequest(nil, request, 1)
	var open []*wire
	defer func() {
		for _, w := range open {
			w.close()
		}
	}()
	for _, n := range []int{0, 10, 100, 1000, 9500} {
		for len(open) < n {
			w, err := dialWire(ctx, g.broker)
			if err != nil {
				return err
			}
			open = append(open, w)
			if _, err := w.roundTrip(frame); err != nil {
				return fmt.Errorf("connection %d: %w", len(open), err)
			}
		}
		if err := pause(ctx, 2*time.Second); err != nil {
			return err
		}
		cpu, began := cpuSeconds(g.PID), time.Now()
		if err := pause(ctx, 5*time.Second); err != nil {
			return err
		}
		s := sample{Subject: fmt.Sprintf("%d clients", n)}
		s.set("resident MB", residentMB(g.PID))
		s.set("CPU %", (cpuSeconds(g.PID)-cpu)/time.Since(began).Seconds()*100)
		l.keep(s)
	}
	return nil
}

// slowClientCount clients ask for slowClientBytes each.
const (
	slowClientCount = 100
	slowClientBytes = 50 << 20
)

// slowClients has clients ask for a lot and read nothing: what the gateway holds for them must be bounded.
func slowClients(ctx context.Context, l *lab) error {
	data, err := l.dataset(ctx, "random")
	if err != nil {
		return err
	}
	g, err := l.newGateway(ctx)
	if err != nil {
		return err
	}
	defer g.end()
	if err := g.mirror(ctx, l.source.Bootstrap(), data.topic); err != nil {
		return err
	}
	if _, err := l.watch(ctx, g.Process, "mirrorgate", data.topic, data, forever); err != nil {
		return err
	}
	id, err := topicID(ctx, g.client, data.topic)
	if err != nil {
		return err
	}
	if err := forgetPeak(g.PID); err != nil {
		return err
	}
	before := residentMB(g.PID)
	request := kmsg.NewPtrFetchRequest()
	request.SetVersion(17)
	request.MinBytes, request.MaxBytes, request.MaxWaitMillis, request.SessionEpoch = 1, slowClientBytes, 500, -1
	topic := kmsg.NewFetchRequestTopic()
	topic.TopicID = id
	for p := range int32(data.partitions) {
		partition := kmsg.NewFetchRequestTopicPartition()
		partition.Partition, partition.PartitionMaxBytes = p, slowClientBytes
		topic.Partitions = append(topic.Partitions, partition)
	}
	request.Topics = []kmsg.FetchRequestTopic{topic}
	frame := formatter.AppendRequest(nil, request, 1)
	var open []*wire
	defer func() {
		for _, w := range open {
			w.close()
		}
	}()
	for range slowClientCount {
		w, err := dialWire(ctx, g.broker)
		if err != nil {
			return err
		}
		open = append(open, w)
		if _, err := w.conn.Write(frame); err != nil {
			return err
		}
	}
	if err := pause(ctx, 10*time.Second); err != nil {
		return err
	}
	s := sample{Subject: "mirrorgate"}
	s.set("before MB", before)
	s.set("peak MB", peakMB(g.PID))
	s.set("per client MB", (peakMB(g.PID)-before)/slowClientCount)
	alive := 0
	for _, w := range open { // they must be served all the same, once they read
		_ = w.conn.SetDeadline(time.Now().Add(patience))
		if answer, err := w.receive(); err == nil && len(answer) > slowClientBytes/2 {
			alive++
		}
	}
	s.set("served", float64(alive))
	s.set("peak MB at the end", peakMB(g.PID))
	l.keep(s)
	return nil
}
