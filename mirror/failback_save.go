package mirror

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/recordbatch"
	"github.com/mirrorgate/mirrorgate/store"
)

// # Saving
//
// The records of [own, end) of each partition are written to the same partition of <topic>.diverged, in order, with a header
// that names the topic ID and offset they are from. That makes saving repeatable: whoever begins anew, after a crash, reads
// what is there, and goes on with the first record that is missing. A record can be there twice, as the request of a process
// that died can still arrive; it is missed out never: the topic is deleted only after a reading that found each of its records,
// in order and the same in every byte.

// divergedHeader is the key of that header; its value is <topic ID>/<offset>.
const divergedHeader = "mirrorgate.diverged"

const (
	saveParallel   = 4 // partitions at one time
	saveChunkBytes = 1 << 20
	saveTries      = 3
)

// saver saves the records of one topic.
type saver struct {
	t        *topicRun
	fb       *store.Failback
	to       string
	id       string // of the topic they are from, as in the header
	producer *kgo.Client
}

// save makes sure that everything that only the destination has is in another topic.
func (t *topicRun) save(ctx context.Context, rec store.Topic, l failbackLook) error {
	if unchanged, err := t.unchanged(ctx, rec, l); err != nil {
		return err
	} else if !unchanged {
		return t.toPhase(ctx, rec, func(now *store.Topic) { now.Failback = rec.Failback.In(store.FailbackCheck) })
	}
	var savedID TopicID
	some, err := t.anythingToSave(ctx, rec.Failback)
	if err == nil && some {
		savedID, err = t.saveAll(ctx, rec.Failback)
	}
	if err != nil {
		return err
	}
	return t.toPhase(ctx, rec, func(now *store.Topic) {
		now.Failback = rec.Failback.In(store.FailbackDeleting)
		now.Failback.SavedID = savedID
	})
}

// unchanged reports whether the destination topic is the one that the record says, and ends where it says.
func (t *topicRun) unchanged(ctx context.Context, rec store.Topic, l failbackLook) (bool, error) {
	fb := rec.Failback
	if l.found.Missing() || l.found.ID != fb.TopicID || int(l.found.Partitions) != len(fb.End) {
		return false, nil
	}
	_, ends, err := cluster.LogRanges(ctx, t.m.cfg.Destination, t.name, l.found.Partitions)
	if err != nil {
		return false, err
	}
	for p, end := range ends {
		if end != fb.End[p] {
			t.log.Warn("somebody wrote to a topic that is to be made anew; both logs are compared again", zap.Int("partition", p),
				zap.Int64("end", end), zap.Int64("was", fb.End[p]))
			return false, nil
		}
	}
	return true, nil
}

func (t *topicRun) anythingToSave(ctx context.Context, fb *store.Failback) (bool, error) {
	for p := range fb.End {
		for _, err := range t.recordsOf(ctx, int32(p), fb.Own[p], fb.End[p]) {
			return err == nil, err
		}
	}
	return false, nil
}

func (t *topicRun) saveAll(ctx context.Context, fb *store.Failback) (TopicID, error) {
	s := saver{t: t, fb: fb, to: t.name + savedSuffix, id: cluster.IDString(fb.TopicID)}
	savedID, err := s.makeTopic(ctx)
	if err != nil {
		return savedID, err
	}
	s.producer, err = kgo.NewClient(append(t.m.cfg.Destination.Opts(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(64<<20), kgo.AllowIdempotentProduceCancellation())...)
	if err != nil {
		return savedID, fmt.Errorf("client that saves records: %w", err)
	}
	defer s.producer.Close()
	t.log.Warn("records that only the destination has are being saved", zap.String("to", s.to), zap.Int64s("from", fb.Own), zap.Int64s("end", fb.End))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(saveParallel)
	counts := make([]int64, len(fb.End))
	for p := range fb.End {
		group.Go(func() (err error) {
			counts[p], err = s.partition(ctx, int32(p))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return savedID, fmt.Errorf("save to %s: %w", s.to, err)
	}
	t.log.Warn("records are saved, and were read again", zap.String("to", s.to), zap.Int64s("records", counts))
	return savedID, nil
}

// makeTopic makes the topic that they are saved to, or makes it fit, so that nothing of it is deleted by itself.
func (s *saver) makeTopic(ctx context.Context) (TopicID, error) {
	m := s.t.m
	if rec, ok := m.records.owner(s.to); ok {
		return TopicID{}, fmt.Errorf("topic %s is needed to save records, but it is in mirror %s; remove it from there, and delete it if it is not needed", s.to, rec.Mirror)
	}
	shape, err := m.shape(ctx, s.t.name)
	if err != nil {
		return TopicID{}, err
	}
	configs := maps.Clone(held)
	maps.Copy(configs, unlimited)
	configs[cleanupPolicy] = "delete"
	configs[maxMessageBytes] = strconv.Itoa(max(shape.maxBytes, defaultMaxMessageBytes) + 1<<16) // there is one header more
	partitions := int32(len(s.fb.End))
	found, err := m.destinationTopic(ctx, s.to)
	switch {
	case err != nil:
		return TopicID{}, err
	case found.Missing():
		id, err := m.createTopic(ctx, s.to, topicPlan{partitions: partitions, replicas: s.fb.Replicas, configs: configs}, false)
		if err != nil {
			return TopicID{}, fmt.Errorf("create topic %s, to save records: %w", s.to, err)
		}
		return id, s.awaitLeaders(ctx, partitions)
	case found.Err != nil:
		return TopicID{}, fmt.Errorf("topic %s, to save records: %w", s.to, found.Err)
	case found.Partitions < partitions:
		if err := m.growDestination(ctx, s.to, partitions); err != nil {
			return TopicID{}, err
		}
	}
	return found.ID, m.alterTopic(ctx, s.to, configs, nil)
}

// awaitLeaders waits a little until the partitions of a new topic answer.
func (s *saver) awaitLeaders(ctx context.Context, partitions int32) error {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		_, _, err := cluster.LogRanges(ctx, s.t.m.cfg.Destination, s.to, partitions)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// partition saves the records of a partition, and returns how many there are.
func (s *saver) partition(ctx context.Context, p int32) (count int64, err error) {
	for range saveTries {
		missing, count, err := s.firstMissing(ctx, p)
		if err != nil || missing < 0 {
			return count, err
		}
		if err := s.write(ctx, p, missing); err != nil {
			return 0, err
		}
	}
	missing, count, err := s.firstMissing(ctx, p)
	if err == nil && missing >= 0 {
		err = fmt.Errorf("the record of offset %d of partition %d was written, but cannot be found there", missing, p)
	}
	return count, err
}

// write writes the records from an offset on.
func (s *saver) write(ctx context.Context, p int32, from int64) error {
	var chunk []*kgo.Record
	size := 0
	flush := func() error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := s.producer.ProduceSync(ctx, chunk...).FirstErr(); err != nil {
			return fmt.Errorf("partition %d: %w", p, lacksRight(err, "WRITE on topic %s at the destination", s.to))
		}
		chunk, size = chunk[:0], 0
		return nil
	}
	for r, err := range s.t.recordsOf(ctx, p, from, s.fb.End[p]) {
		if err != nil {
			return err
		}
		bytes := len(r.Key) + len(r.Value) + 100
		if len(chunk) > 0 && size+bytes > saveChunkBytes {
			if err := flush(); err != nil {
				return err
			}
			s.t.note(fmt.Sprintf("saving the records that only the destination has to %s: partition %d is at offset %d of %d", s.to, p, r.Offset, s.fb.End[p]))
		}
		chunk, size = append(chunk, s.copy(p, r)), size+bytes
	}
	return flush()
}

// copy is a record as it is saved.
func (s *saver) copy(p int32, r recordbatch.Record) *kgo.Record {
	saved := &kgo.Record{
		Topic: s.to, Partition: p, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), Timestamp: time.UnixMilli(r.Timestamp),
	}
	for _, h := range r.Headers {
		saved.Headers = append(saved.Headers, kgo.RecordHeader{Key: string(h.Key), Value: bytes.Clone(h.Value)})
	}
	saved.Headers = append(saved.Headers, kgo.RecordHeader{Key: divergedHeader, Value: []byte(s.id + "/" + strconv.FormatInt(r.Offset, 10))})
	return saved
}

// firstMissing reads what is saved of a partition and compares it with the topic. It returns the offset of the first record that
// is not there, -1 if all are, and then how many there are.
func (s *saver) firstMissing(ctx context.Context, p int32) (offset, count int64, err error) {
	starts, ends, err := cluster.LogRanges(ctx, s.t.m.cfg.Destination, s.to, p+1)
	if err != nil {
		return -1, 0, err
	}
	next, stop := iter.Pull2(s.t.recordsOf(ctx, p, s.fb.Own[p], s.fb.End[p]))
	defer stop()
	want, err, some := next()
	saved := cluster.Scan{Client: s.t.m.cfg.Destination, Partition: cluster.TopicPartition{Topic: s.to, Partition: p}, From: starts[p], To: ends[p]}
	for have, err2 := range saved.Records(ctx) {
		switch {
		case err != nil || err2 != nil:
			return -1, 0, firstOf(err, err2)
		case !some:
			return -1, count, nil
		case s.savedOffset(have) != want.Offset:
			continue // of another topic, or one that was found already
		case !sameSaved(want, have):
			return -1, 0, fmt.Errorf("the record of offset %d of partition %d differs from what was saved at offset %d", want.Offset, p, have.Offset)
		}
		count++
		want, err, some = next()
	}
	switch {
	case err != nil:
		return -1, 0, err
	case some:
		return want.Offset, 0, nil
	}
	return -1, count, nil
}

// savedOffset returns which offset of our topic a record was saved from, -1 if it is of another.
func (s *saver) savedOffset(r recordbatch.Record) int64 {
	if len(r.Headers) == 0 {
		return -1
	}
	last := r.Headers[len(r.Headers)-1]
	text, ours := strings.CutPrefix(string(last.Value), s.id+"/")
	offset, err := strconv.ParseInt(text, 10, 64)
	if string(last.Key) != divergedHeader || !ours || err != nil {
		return -1
	}
	return offset
}

// sameSaved compares a record with its copy, which has one header more.
func sameSaved(r, saved recordbatch.Record) bool {
	equal := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
	if r.Timestamp != saved.Timestamp || !equal(r.Key, saved.Key) || !equal(r.Value, saved.Value) || len(r.Headers)+1 != len(saved.Headers) {
		return false
	}
	for i, h := range r.Headers {
		if !bytes.Equal(h.Key, saved.Headers[i].Key) || !equal(h.Value, saved.Headers[i].Value) {
			return false
		}
	}
	return true
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// recordsOf reads what clients would get of a range of the topic at the destination.
func (t *topicRun) recordsOf(ctx context.Context, partition int32, from, to int64) iter.Seq2[recordbatch.Record, error] {
	scan := cluster.Scan{
		Client: t.m.cfg.Destination, Partition: cluster.TopicPartition{Topic: t.name, Partition: partition}, From: from, To: to,
		IsFiller: func(batch []byte) bool { return recordbatch.IsFiller(batch, t.m.Topics().IsProducer) },
	}
	return scan.Records(ctx)
}
