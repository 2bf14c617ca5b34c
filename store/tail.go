package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/mirrorgate/mirrorgate/broker"
)

// errTopicReplaced: the state topic was deleted and made anew under our feet. All that the store knows is gone from the
// truth, and to go on as if it were not would write it back or lose it, either way without being asked to.
var errTopicReplaced = errors.New("the state topic was deleted and created again; restart the gateway to begin with what it holds now")

const (
	fetchWait         = 500 * time.Millisecond
	fetchBytes        = 8 << 20
	fetchPartition    = 1 << 20
	confirmCaughtUp   = 30 * time.Second // how often an idle partition is reported as read to its end
	fetchRequestLimit = 30 * time.Second // fetchWait and a slow broker
)

// tail follows the partitions of the state topic: a loop per leader, of raw sessionless fetches, because they tell how
// far the log was read even where the cleaner left offsets without records.
type tail struct {
	*kafkaLog
	deliver func(segment) error
	// Each partition's place is used by one loop only at any time.
	places []place
}

type place struct {
	next   int64
	seen   time.Time // when it was last read to its end
	told   time.Time // when a segment was last delivered
	resets bool      // the next segment starts the view anew
	end    int64     // for resets
}

func (k *kafkaLog) follow(ctx context.Context, from []position, deliver func(segment) error) error {
	t := &tail{kafkaLog: k, deliver: deliver, places: make([]place, len(from))}
	for i, pos := range from {
		t.places[i] = place{next: pos.next, seen: time.Now()}
		if pos.next > 0 {
			t.places[i].seen = time.UnixMilli(pos.seenMs)
		}
	}
	wait := firstBackoff
	for {
		started := time.Now()
		err := t.generation(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errTopicReplaced) {
			return err
		}
		if time.Since(started) > time.Minute {
			wait = firstBackoff
		}
		level := zap.InfoLevel
		if broker.Unauthorized(err) { // it does not pass by itself
			level = zap.WarnLevel
		}
		t.log.Log(level, "following the state topic is interrupted", zap.Error(err), zap.Duration("retryIn", wait))
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, lastBackoff)
		// A partition without a leader does not keep the others from being read.
		if err := t.refresh(ctx); errors.Is(err, errTopicReplaced) {
			return err
		}
	}
}

// generation reads with one set of leaders until one of its loops fails.
func (t *tail) generation(ctx context.Context) error {
	byLeader := make(map[int32][]int32)
	var leaderless []int32
	for p := range t.places {
		if leader := t.leader(int32(p)); leader >= 0 {
			byLeader[leader] = append(byLeader[leader], int32(p))
		} else {
			leaderless = append(leaderless, int32(p))
		}
	}
	if len(byLeader) == 0 {
		return errors.New("no partition has a leader")
	}
	g, ctx := errgroup.WithContext(ctx)
	if len(leaderless) > 0 {
		g.Go(func() error { return t.awaitLeader(ctx, leaderless) })
	}
	for leader, partitions := range byLeader {
		g.Go(func() error {
			for {
				if err := t.fetch(ctx, leader, partitions); err != nil {
					return fmt.Errorf("broker %d: %w", leader, err)
				}
			}
		})
	}
	return g.Wait()
}

// awaitLeader returns an error once one of the partitions has a leader: nothing else would tell, as long as the others can be
// read, and what is written to the partition would never be read back.
func (t *tail) awaitLeader(ctx context.Context, partitions []int32) error {
	for wait := firstBackoff; ; wait = min(2*wait, lastBackoff) {
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		if err := t.refresh(ctx); errors.Is(err, errTopicReplaced) {
			return err
		}
		for _, p := range partitions {
			if leader := t.leader(p); leader >= 0 {
				return fmt.Errorf("partition %d is led by broker %d now", p, leader)
			}
		}
	}
}

// fetch does one fetch of the partitions and delivers what it brings.
func (t *tail) fetch(ctx context.Context, leader int32, partitions []int32) error {
	for _, p := range partitions {
		if err := t.maybeStale(ctx, p); err != nil {
			return err
		}
	}
	reqCtx, cancel := context.WithTimeout(ctx, fetchRequestLimit)
	defer cancel()
	kresp, err := t.client.Broker(int(leader)).Request(reqCtx, t.request(partitions))
	if err != nil {
		return err
	}
	resp, ok := kresp.(*kmsg.FetchResponse)
	if !ok {
		return fmt.Errorf("unexpected response %T to Fetch", kresp)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	empty := true // nothing was left out for want of room
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			empty = empty && len(resp.Topics[i].Partitions[j].RecordBatches) == 0
		}
	}
	var failed error
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if err := t.take(ctx, &resp.Topics[i].Partitions[j], empty); err != nil {
				failed = err
			}
		}
	}
	return failed
}

func (t *tail) request(partitions []int32) *kmsg.FetchRequest {
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = t.topic, t.topicID
	for _, n := range partitions {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = n, t.places[n].next, fetchPartition
		topic.Partitions = append(topic.Partitions, p)
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(fetchWait/time.Millisecond), 1, fetchBytes
	if slices.ContainsFunc(partitions, func(n int32) bool { return t.places[n].told.IsZero() }) {
		req.MaxWaitMillis = 0 // Open waits for the first word of each partition
	}
	req.SessionID, req.SessionEpoch = 0, -1
	req.Topics = append(req.Topics, topic)
	return req
}

// take delivers one partition of a fetch response.
func (t *tail) take(ctx context.Context, rp *kmsg.FetchResponseTopicPartition, empty bool) error {
	if rp.Partition < 0 || int(rp.Partition) >= len(t.places) {
		return fmt.Errorf("a fetch of the state topic brought partition %d", rp.Partition)
	}
	at := &t.places[rp.Partition]
	if rp.ErrorCode == kerr.OffsetOutOfRange.Code {
		return t.reset(ctx, rp.Partition, "the log is shorter than what was read of it")
	}
	fp, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: at.next, Topic: t.topic, Partition: rp.Partition,
	}, rp, kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		return fmt.Errorf("state partition %d: %w", rp.Partition, broker.LacksRight(fp.Err, "READ on topic %s at the destination", t.topic))
	}
	if empty && rp.HighWatermark > next {
		next = rp.HighWatermark // the cleaner left nothing up to there
	}
	now := time.Now()
	seg := segment{partition: rp.Partition, next: next, caughtUp: next >= rp.HighWatermark, reset: at.resets, resetEnd: at.end}
	if seg.caughtUp {
		at.seen = now
	}
	if next == at.next && !seg.reset && !at.told.IsZero() && (!seg.caughtUp || now.Sub(at.told) < confirmCaughtUp) {
		return nil
	}
	for _, r := range fp.Records {
		seg.records = append(seg.records, logRecord{offset: r.Offset, key: r.Key, value: r.Value, nonce: nonceOf(r)})
	}
	at.next, at.resets, at.told = next, false, now
	return t.deliver(seg)
}

func nonceOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == nonceHeader {
			return string(h.Value)
		}
	}
	return ""
}

// maybeStale starts the partition anew if it was not read for so long that the cleaner may have removed tombstones which
// the view has not seen.
func (t *tail) maybeStale(ctx context.Context, partition int32) error {
	at := &t.places[partition]
	if at.next == 0 || at.resets || time.Since(at.seen) < t.staleAfter {
		return nil
	}
	return t.reset(ctx, partition, "it was not read for long")
}

func (t *tail) reset(ctx context.Context, partition int32, why string) error {
	if err := t.refresh(ctx); errors.Is(err, errTopicReplaced) {
		return err
	}
	end, err := t.end(ctx, partition)
	if err != nil {
		return fmt.Errorf("end of state partition %d: %w", partition, err)
	}
	t.log.Warn("reading a state partition anew", zap.Int32("partition", partition), zap.String("because", why),
		zap.Int64("was", t.places[partition].next), zap.Int64("end", end))
	t.places[partition] = place{resets: true, end: end, seen: time.Now()}
	return nil
}
