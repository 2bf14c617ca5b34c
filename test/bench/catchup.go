package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// catchUp lets everyone copy a dataset in turns: the mirror, MirrorMaker 2, the raw replay, and a follower.
func catchUp(name string) func(context.Context, *lab) error {
	return func(ctx context.Context, l *lab) error {
		data, err := l.dataset(ctx, name)
		if err != nil {
			return err
		}
		subjects := []subject{
			{"mirrorgate", func(ctx context.Context) (sample, error) { return l.mirrorRun(ctx, data) }},
			{"raw", func(ctx context.Context) (sample, error) { return rawRun(ctx, l, data) }},
			{"mm2", func(ctx context.Context) (sample, error) { return l.mm2Run(ctx, "mm2", data, nil) }},
			{"follower", func(ctx context.Context) (sample, error) { return l.followerRun(ctx, data) }},
		}
		if name == "json" {
			tuned := map[string]string{"dst.producer.batch.size": "65536", "dst.producer.linger.ms": "50", "dst.producer.compression.type": "zstd"}
			subjects = append(subjects, subject{"mm2-tuned", func(ctx context.Context) (sample, error) { return l.mm2Run(ctx, "mm2-tuned", data, tuned) }})
		}
		return l.rounds(ctx, subjects, func(ctx context.Context) error { return readAll(ctx, l.source, data) })
	}
}

// subject is one of those that are compared.
type subject struct {
	name string
	run  func(ctx context.Context) (sample, error)
}

// rounds lets all subjects run in turns, in another order each time, and keeps what they measure.
func (l *lab) rounds(ctx context.Context, subjects []subject, before func(context.Context) error) error {
	for l.round = range l.repeat {
		if err := before(ctx); err != nil {
			return err
		}
		first := l.round % len(subjects)
		if err := l.turn(ctx, append(slices.Clone(subjects[first:]), subjects[:first]...)); err != nil {
			return err
		}
	}
	return nil
}

// turn lets subjects run one after the other.
func (l *lab) turn(ctx context.Context, subjects []subject) error {
	for _, s := range subjects {
		measured, err := s.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		l.keep(measured)
	}
	return nil
}

// forever is no limit but that of the benchmark.
const forever = time.Hour

func (l *lab) mirrorRun(ctx context.Context, data dataset) (sample, error) {
	g, err := l.newGateway(ctx)
	if err != nil {
		return sample{}, err
	}
	defer g.end()
	if err := g.mirror(ctx, l.source.Bootstrap(), data.topic); err != nil {
		return sample{}, err
	}
	g.profile(2)
	s, err := l.watch(ctx, g.Process, "mirrorgate", data.topic, data, forever)
	if err != nil {
		return sample{}, err
	}
	g.Kill()
	return s, l.deleteTopics(ctx, l.destination, func(t string) bool { return t == data.topic })
}

func (l *lab) mm2Run(ctx context.Context, name string, data dataset, settings map[string]string) (sample, error) {
	m, err := l.newMM2(ctx, l.source, data.topic, settings)
	if err != nil {
		return sample{}, err
	}
	s, err := l.watch(ctx, m.Process, name, m.topic, data, forever)
	if err != nil {
		return sample{}, err
	}
	return s, m.end(ctx)
}

// followerRun has the source's second broker become a follower of the dataset's topic, and takes it off again. The clock
// runs from when the new replicas are seen until all are in sync. CPU time is that of the whole broker.
func (l *lab) followerRun(ctx context.Context, data dataset) (sample, error) {
	admin, err := l.admin(l.source)
	if err != nil {
		return sample{}, err
	}
	if err := reassign(ctx, admin, data, 1, 2); err != nil {
		return sample{}, err
	}
	clock := l.startClock(l.source.PID(2))
	err = eventually(ctx, 10*time.Millisecond, "the follower is in sync", func() (bool, error) {
		before := l.startClock(l.source.PID(2))
		replicas, inSync, err := replicasOf(ctx, admin, data, 2)
		if replicas == 0 {
			clock = before
		}
		return inSync == data.partitions, err
	})
	if err != nil {
		return sample{}, err
	}
	s := clock.stop("follower", data.bytes, data.records)
	if err := reassign(ctx, admin, data, 1); err != nil {
		return sample{}, err
	}
	return s, eventually(ctx, 50*time.Millisecond, "the follower is gone", func() (bool, error) {
		replicas, _, err := replicasOf(ctx, admin, data, 2)
		return replicas == 0, err
	})
}

func reassign(ctx context.Context, admin *access, data dataset, brokers ...int32) error {
	request := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	t.Topic = data.topic
	for p := range int32(data.partitions) {
		t.Partitions = append(t.Partitions, kmsg.AlterPartitionAssignmentsRequestTopicPartition{Partition: p, Replicas: brokers})
	}
	request.Topics = append(request.Topics, t)
	response, err := request.RequestWith(ctx, admin.kgo)
	if err == nil {
		err = kerrOf(response.ErrorCode, response.ErrorMessage)
	}
	if err != nil {
		return fmt.Errorf("reassigning %s to %v: %w", data.topic, brokers, err)
	}
	for _, p := range response.Topics[0].Partitions {
		if err := kerrOf(p.ErrorCode, p.ErrorMessage); err != nil {
			return fmt.Errorf("reassigning %s/%d to %v: %w", data.topic, p.Partition, brokers, err)
		}
	}
	return nil
}

// replicasOf counts the partitions that a broker has a replica of, and those where it is in sync.
func replicasOf(ctx context.Context, admin *access, data dataset, broker int32) (replicas, inSync int, err error) {
	response, err := metadata(ctx, admin, []string{data.topic})
	if err != nil {
		return 0, 0, err
	}
	count := func(brokers []int32) int {
		n := 0
		for _, b := range brokers {
			if b == broker {
				n++
			}
		}
		return n
	}
	for _, p := range response.Topics[0].Partitions {
		replicas += count(p.Replicas)
		inSync += count(p.ISR)
	}
	return replicas, inSync, nil
}
