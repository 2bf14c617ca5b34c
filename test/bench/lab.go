package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// lab has what the benchmarks share: two clusters that stay up, so that their brokers are warm, the datasets at the
// source, and the results.
type lab struct {
	config
	dir       string
	benchmark string // the one that runs
	round     int
	runs      int
	samples   []sample
	// sourceBrokers is 2 where a follower is wanted.
	sourceBrokers int

	source, destination *kafkatest.Cluster // nil until they are needed
	admins              map[*kafkatest.Cluster]*access
	datasets            map[string]dataset
	processes           []*kafkatest.Process
	profiled            *gateway // the one that clients use
}

func newLab(c config) (*lab, error) {
	dir, err := os.MkdirTemp("", "mirrorgate-bench-")
	if err != nil {
		return nil, err
	}
	return &lab{config: c, dir: dir, sourceBrokers: 1, admins: map[*kafkatest.Cluster]*access{}, datasets: map[string]dataset{}}, nil
}

func (l *lab) close() {
	l.endProcesses()
	for _, admin := range l.admins {
		admin.Close()
	}
	for _, cluster := range []*kafkatest.Cluster{l.source, l.destination} {
		if cluster != nil {
			cluster.Close()
		}
	}
	os.RemoveAll(l.dir)
}

// started has a process end with its benchmark, if it is not ended before.
func (l *lab) started(p *kafkatest.Process) { l.processes = append(l.processes, p) }

func (l *lab) endProcesses() {
	for _, p := range l.processes {
		p.Kill()
	}
	l.processes = nil
}

// folder makes a folder for one run.
func (l *lab) folder() (string, error) {
	l.runs++
	dir := filepath.Join(l.dir, fmt.Sprintf("run-%d", l.runs))
	return dir, os.MkdirAll(dir, 0o777)
}

func (l *lab) options(brokers int) kafkatest.Options {
	return kafkatest.Options{Version: l.version, Brokers: brokers, Heap: l.heap, Throughput: true, Settings: map[string]string{
		"log.segment.bytes": "1073741824", "num.network.threads": "3", "num.io.threads": "8",
		// What kafkatest hurries for tests would take CPU time in the background.
		"log.retention.check.interval.ms": "300000", "log.cleaner.backoff.ms": "15000",
		// The second broker may fall behind without being declared dead.
		"broker.session.timeout.ms": "30000", "broker.heartbeat.interval.ms": "2000",
	}}
}

// clusters starts both clusters where they do not run yet.
func (l *lab) clusters(ctx context.Context) error {
	if l.destination != nil {
		return nil
	}
	var (
		wg       sync.WaitGroup
		clusters [2]*kafkatest.Cluster
		errs     [2]error
	)
	for i, brokers := range []int{l.sourceBrokers, 1} {
		dir, err := l.folder()
		if err != nil {
			return err
		}
		wg.Go(func() { clusters[i], errs[i] = kafkatest.Run(ctx, dir, l.options(brokers)) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		for _, c := range clusters {
			if c != nil {
				c.Close()
			}
		}
		return err
	}
	l.source, l.destination = clusters[0], clusters[1]
	return nil
}

// admin is a client of a cluster that does not serve answers from memory.
func (l *lab) admin(cluster *kafkatest.Cluster) (*access, error) {
	if admin := l.admins[cluster]; admin != nil {
		return admin, nil
	}
	admin, err := dialAccess(cluster.BrokerAddr(1))
	if err != nil {
		return nil, err
	}
	l.admins[cluster] = admin
	return admin, nil
}

// createTopic makes a topic whose partitions are all led by broker 1.
func (l *lab) createTopic(ctx context.Context, cluster *kafkatest.Cluster, topic string, partitions int, settings map[string]string) error {
	admin, err := l.admin(cluster)
	if err != nil {
		return err
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 60_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, -1, -1
	for p := range int32(partitions) {
		t.ReplicaAssignment = append(t.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: p, Replicas: []int32{1}})
	}
	for name, value := range settings {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: name, Value: &value})
	}
	request.Topics = append(request.Topics, t)
	response, err := request.RequestWith(ctx, admin.kgo)
	if err != nil {
		return fmt.Errorf("creating %s: %w", topic, err)
	}
	if err := kerrOf(response.Topics[0].ErrorCode, response.Topics[0].ErrorMessage); err != nil {
		return fmt.Errorf("creating %s: %w", topic, err)
	}
	return awaitLeaders(ctx, admin, topic, partitions)
}

// deleteTopics deletes those that there are, and waits until they are gone.
func (l *lab) deleteTopics(ctx context.Context, cluster *kafkatest.Cluster, which func(topic string) bool) error {
	admin, err := l.admin(cluster)
	if err != nil {
		return err
	}
	for {
		topics, err := topicNames(ctx, admin)
		if err != nil {
			return err
		}
		topics = slices.DeleteFunc(topics, func(topic string) bool { return !which(topic) })
		if len(topics) == 0 {
			return nil
		}
		if _, err := admin.DeleteTopics(ctx, topics...); err != nil {
			return fmt.Errorf("deleting %v: %w", topics, err)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("deleting %v: %w", topics, err)
		}
	}
}

// tidy removes what an earlier benchmark, which may have failed, has left at the destination.
func (l *lab) tidy(ctx context.Context) error {
	if l.destination == nil {
		return nil
	}
	return l.deleteTopics(ctx, l.destination, func(topic string) bool { return !strings.HasPrefix(topic, "__") })
}

// pause waits between two looks at something.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// eventually looks every d until f says that it holds.
func eventually(ctx context.Context, d time.Duration, what string, f func() (bool, error)) error {
	var last error
	for {
		ok, err := f()
		if ok && err == nil {
			return nil
		}
		last = err
		if err := pause(ctx, d); err != nil {
			return fmt.Errorf("waiting until %s: %w", what, errors.Join(context.Cause(ctx), last))
		}
	}
}
