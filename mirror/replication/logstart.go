package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// trimmer moves the log starts of destination partitions up to those of the source, with DeleteRecords. It takes the
// wishes of all partitions of a mirror together, once a trimPause: a source whose start moves all the time costs one
// request per second and broker. What fails is tried again, more and more slowly; a newer wish of the partition
// replaces the one before. Deleting what is gone already succeeds, so nothing has to be remembered over a restart.
type trimmer struct {
	trim    trimLogs
	allow   func(ctx context.Context, topic string) (done func(), err error)
	metrics *mirrorMetrics
	log     *zap.Logger
	pause   time.Duration

	mu     sync.Mutex
	wishes map[*replica]trimWish
	wake   chan struct{} // capacity 1
}

type trimWish struct {
	offset   int64
	attempts int
	due      time.Time
}

// trimLogs deletes the records below the offsets. The result has the new log start, or the error, of each partition.
type trimLogs func(ctx context.Context, offsets map[cluster.TopicPartition]int64) map[cluster.TopicPartition]trimResult

type trimResult struct {
	start int64
	err   error
}

const (
	trimPause   = time.Second
	trimTimeout = 30 * time.Second
	// allowTries is how often a topic is tried after it was made to allow DeleteRecords: brokers learn of it a moment later.
	allowTries = 20
)

func newTrimmer(cfg Config, metrics *mirrorMetrics, log *zap.Logger) *trimmer {
	t := &trimmer{
		trim: cfg.trimLogs, allow: cfg.Events.AllowDeleteRecords, metrics: metrics, log: log, pause: trimPause,
		wishes: make(map[*replica]trimWish), wake: make(chan struct{}, 1),
	}
	if t.trim == nil && cfg.DestinationAdmin != nil {
		t.trim = deleteRecords(cfg.DestinationAdmin)
	}
	return t
}

// want notes that a partition is to start at offset.
func (t *trimmer) want(p *replica, offset int64) {
	if t.trim == nil {
		p.handle(evTrimmed{start: offset})
		return
	}
	t.mu.Lock()
	t.wishes[p] = trimWish{offset: offset, due: time.Now()}
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// forget drops the wish of a partition. One that is under way may still be carried out.
func (t *trimmer) forget(p *replica) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.wishes, p)
}

func (t *trimmer) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-timer.C:
		}
		t.round(ctx)
		timer.Reset(t.untilDue())
		pause := time.NewTimer(t.pause)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

func (t *trimmer) untilDue() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := time.Hour
	for _, w := range t.wishes {
		wait = min(wait, time.Until(w.due))
	}
	return max(wait, 0)
}

// round carries out what is due.
func (t *trimmer) round(ctx context.Context) {
	due := make(map[cluster.TopicPartition]*replica)
	offsets := make(map[cluster.TopicPartition]int64)
	t.mu.Lock()
	for p, w := range t.wishes {
		if time.Until(w.due) <= 0 {
			due[p.key], offsets[p.key] = p, w.offset
		}
	}
	t.mu.Unlock()
	if len(due) == 0 {
		return
	}
	results := t.tryTrim(ctx, offsets)
	forbidden := make(map[string]map[cluster.TopicPartition]int64)
	for key, r := range results {
		if errors.Is(r.err, kerr.PolicyViolation) && t.allow != nil {
			if forbidden[key.Topic] == nil {
				forbidden[key.Topic] = make(map[cluster.TopicPartition]int64)
			}
			forbidden[key.Topic][key] = offsets[key]
		}
	}
	for topic, offsets := range forbidden {
		for key, r := range t.trimForbidden(ctx, topic, offsets) {
			results[key] = r
		}
	}
	for key, p := range due {
		t.done(ctx, p, offsets[key], results[key])
	}
}

func (t *trimmer) tryTrim(ctx context.Context, offsets map[cluster.TopicPartition]int64) map[cluster.TopicPartition]trimResult {
	ctx, cancel := context.WithTimeout(ctx, trimTimeout)
	defer cancel()
	return t.trim(ctx, offsets)
}

// trimForbidden trims partitions of a topic whose policy forbids it.
func (t *trimmer) trimForbidden(ctx context.Context, topic string, offsets map[cluster.TopicPartition]int64) map[cluster.TopicPartition]trimResult {
	allowed, cancel := context.WithTimeout(ctx, trimTimeout)
	defer cancel()
	done, err := t.allow(allowed, topic)
	if err != nil {
		results := make(map[cluster.TopicPartition]trimResult, len(offsets))
		for key := range offsets {
			results[key] = trimResult{err: err}
		}
		return results
	}
	defer done()
	for try := 1; ; try++ {
		results := t.tryTrim(ctx, offsets)
		again := false
		for _, r := range results {
			again = again || errors.Is(r.err, kerr.PolicyViolation)
		}
		if !again || try == allowTries || ctx.Err() != nil {
			return results
		}
		pause := time.NewTimer(100 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// done tells a partition what became of its wish.
func (t *trimmer) done(ctx context.Context, p *replica, offset int64, r trimResult) {
	if ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	w, wanted := t.wishes[p]
	switch {
	case !wanted:
	case r.err != nil:
		w.attempts++
		w.due = time.Now().Add(slowBackoff(w.attempts))
		t.wishes[p] = w
	case w.offset == offset:
		delete(t.wishes, p)
	}
	t.mu.Unlock()
	switch {
	case !wanted:
	case r.err != nil:
		t.log.Warn("log start of the destination cannot follow the source's", zap.String("topic", p.key.Topic),
			zap.Int32("partition", p.key.Partition), zap.Int64("start", offset), zap.Error(r.err))
		p.handle(evTrimTrouble{err: r.err})
	default:
		t.metrics.trimmed()
		t.log.Info("log start of the destination follows the source's", zap.String("topic", p.key.Topic),
			zap.Int32("partition", p.key.Partition), zap.Int64("start", r.start))
		p.handle(evTrimmed{start: max(r.start, offset)})
	}
}

// deleteRecords asks the leaders.
func deleteRecords(client *kgo.Client) trimLogs {
	return func(ctx context.Context, offsets map[cluster.TopicPartition]int64) map[cluster.TopicPartition]trimResult {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = int32(trimTimeout.Milliseconds()) / 2
		results := make(map[cluster.TopicPartition]trimResult, len(offsets))
		topics := make(map[string]int)
		for key, offset := range offsets {
			results[key] = trimResult{err: errors.New("DeleteRecords: no answer")}
			i, ok := topics[key.Topic]
			if !ok {
				i = len(req.Topics)
				topics[key.Topic] = i
				topic := kmsg.NewDeleteRecordsRequestTopic()
				topic.Topic = key.Topic
				req.Topics = append(req.Topics, topic)
			}
			partition := kmsg.NewDeleteRecordsRequestTopicPartition()
			partition.Partition, partition.Offset = key.Partition, offset
			req.Topics[i].Partitions = append(req.Topics[i].Partitions, partition)
		}
		for _, shard := range client.RequestSharded(ctx, req) {
			if shard.Err != nil {
				failed, ok := shard.Req.(*kmsg.DeleteRecordsRequest)
				for i := 0; ok && i < len(failed.Topics); i++ {
					for _, p := range failed.Topics[i].Partitions {
						results[cluster.TopicPartition{Topic: failed.Topics[i].Topic, Partition: p.Partition}] = trimResult{err: fmt.Errorf("DeleteRecords: %w", shard.Err)}
					}
				}
				continue
			}
			for _, topic := range shard.Resp.(*kmsg.DeleteRecordsResponse).Topics {
				for _, p := range topic.Partitions {
					r := trimResult{start: p.LowWatermark}
					if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
						r.err = fmt.Errorf("DeleteRecords: %w", broker.LacksRight(err, "DELETE on topic %s at the destination", topic.Topic))
					}
					results[cluster.TopicPartition{Topic: topic.Topic, Partition: p.Partition}] = r
				}
			}
		}
		return results
	}
}
