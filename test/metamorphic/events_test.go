package metamorphic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// glance is for how long the story waits for something that the source may or may not do: it goes on either way.
const glance = 5 * time.Second

// compact ends a segment of a compacted partition, and then waits for the cleaner, or does not.
func (s *story) compact(random *rand.Rand) {
	s.t.Helper()
	to, partition := place(random, func(t topic) bool { return t.compacted })
	s.clock = s.clock.Add(20 * time.Second)
	client, _ := s.producer(random)
	records := s.records(random, to, partition, 1)
	s.do("ending a segment", func(ctx context.Context) error { return send(ctx, client, records) })
	end := records[0].Offset
	wait := random.IntN(2) == 0 && s.open() == 0 // it stops at the last stable offset
	if !wait {
		s.say("%s/%d: a segment ends before offset %d", to.name, partition, end)
		return
	}
	cleaned := s.glance(func() bool { return s.cleaned(to.name, partition) >= end })
	s.say("%s/%d: a segment ends before offset %d; the cleaner was there: %v", to.name, partition, end, cleaned)
}

// cleaned is the offset up to which the cleaner has worked.
func (s *story) cleaned(name string, partition int32) int64 {
	return s.checkpoint("cleaner-offset-checkpoint", name, partition)
}

// checkpoint is what one of the source broker's files of offsets says of a partition, -1 for nothing.
func (s *story) checkpoint(kind, name string, partition int32) int64 {
	file, err := os.Open(filepath.Join(s.source.Dir, "node-1", "data", kind))
	if err != nil {
		return -1
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var offset int64
		if rest, ok := strings.CutPrefix(lines.Text(), fmt.Sprintf("%s %d ", name, partition)); ok {
			if _, err := fmt.Sscan(rest, &offset); err == nil {
				return offset
			}
		}
	}
	return -1
}

func (s *story) glance(happened func() bool) bool {
	for until := time.Now().Add(glance); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if happened() {
			return true
		}
	}
	return false
}

func (s *story) bounds(name string, partition int32) (start, end int64) {
	s.t.Helper()
	s.do("asking for the log's bounds", func(ctx context.Context) error {
		starts, err := s.admin.ListStartOffsets(ctx, name)
		if err != nil {
			return err
		}
		ends, err := s.admin.ListEndOffsets(ctx, name)
		first, _ := starts.Lookup(name, partition)
		last, _ := ends.Lookup(name, partition)
		start, end = first.Offset, last.Offset
		return errors.Join(err, first.Err, last.Err)
	})
	return start, end
}

// deleteRecords may delete all there is, also records of transactions that are open.
func (s *story) deleteRecords(random *rand.Rand) {
	s.t.Helper()
	to, partition := place(random, func(t topic) bool { return t.deletable })
	part := min(1, 1.2*random.Float64())
	start, end := s.bounds(to.name, partition)
	offset := start + int64(part*float64(end-start))
	s.do("DeleteRecords", func(ctx context.Context) error {
		var offsets kadm.Offsets = map[string]map[int32]kadm.Offset{}
		offsets.AddOffset(to.name, partition, offset, -1)
		deleted, err := s.admin.DeleteRecords(ctx, offsets)
		return errors.Join(err, deleted.Error())
	})
	s.say("%s/%d: records from %d to %d are deleted, of %d", to.name, partition, start, offset, end)
}

// retain lets retention work on a topic for a moment: by size, which spares the last segment, or by age.
func (s *story) retain(random *rand.Rand) {
	s.t.Helper()
	to, partition := place(random, func(t topic) bool { return t.deletable })
	setting, value := "retention.bytes", fmt.Sprint(1+random.IntN(2)*random.IntN(1000))
	if random.IntN(3) == 0 {
		setting, value = "retention.ms", "1"
	}
	patient := random.IntN(3) > 0
	// The next batch is in another segment, so that there is something to delete.
	s.clock = s.clock.Add(20 * time.Second)
	client, _ := s.producer(random)
	records := s.records(random, to, partition, 1)
	s.do("ending a segment", func(ctx context.Context) error { return send(ctx, client, records) })
	before, _ := s.bounds(to.name, partition)
	s.set(to.name, setting, value)
	after := before
	if patient {
		s.glance(func() bool { after, _ = s.bounds(to.name, partition); return after > before })
	}
	s.set(to.name, setting, "-1")
	s.say("%s: %s=%s for a moment; partition %d started at %d, now at %d", to.name, setting, value, partition, before, after)
}

func (s *story) set(name, setting, value string) {
	s.t.Helper()
	s.do("setting "+setting, func(ctx context.Context) error {
		altered, err := s.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: setting, Value: &value}}, name)
		if err != nil {
			return err
		}
		return altered[0].Err
	})
}

// restartSource stops or kills the source's broker while records are written.
func (s *story) restartSource(random *rand.Rand) {
	s.t.Helper()
	to, partition := place(random, every)
	client, name := s.producer(random)
	var batches [][]*kgo.Record
	for range 20 {
		batches = append(batches, s.records(random, to, partition, 10))
	}
	kill := random.IntN(2) == 0
	moment := time.Duration(random.Int64N(int64(200 * time.Millisecond)))
	s.do("restarting the source", func(ctx context.Context) error {
		written := make(chan error, 1)
		go func() {
			var err error
			for _, batch := range batches {
				err = errors.Join(err, send(ctx, client, batch))
			}
			written <- err
		}()
		time.Sleep(moment)
		verb := "stopped"
		if kill {
			verb = "killed"
			s.killed++
			s.noteStarts()
			s.source.Kill(1)
		}
		err := s.source.Restart(ctx, 1)
		err = errors.Join(err, <-written)
		s.say("the source is %s and started again while %d batches are written to %s/%d, %s", verb, len(batches), to.name, partition, name)
		return err
	})
}

// noteStarts remembers where the source's logs start. A broker that is killed forgets the DeleteRecords of the last minute, and
// shows the records again; the mirror, which may have followed, keeps its start.
func (s *story) noteStarts() {
	s.t.Helper()
	s.do("asking for the logs' starts", func(ctx context.Context) error {
		starts, err := s.admin.ListStartOffsets(ctx, names()...)
		if err == nil {
			err = starts.Error()
		}
		starts.Each(func(o kadm.ListedOffset) {
			tp := harness.TopicPartition{Topic: o.Topic, Partition: o.Partition}
			s.starts[tp] = max(s.starts[tp], o.Offset)
		})
		return err
	})
}

// repeatDeletions deletes again what the source has forgotten to be deleted, so that both logs can be the same.
func (s *story) repeatDeletions() {
	s.t.Helper()
	s.do("repeating deletions", func(ctx context.Context) error {
		starts, err := s.admin.ListStartOffsets(ctx, names()...)
		if err == nil {
			err = starts.Error()
		}
		var offsets kadm.Offsets = map[string]map[int32]kadm.Offset{}
		starts.Each(func(o kadm.ListedOffset) {
			if before := s.starts[harness.TopicPartition{Topic: o.Topic, Partition: o.Partition}]; err == nil && o.Offset < before {
				s.say("%s/%d starts at %d again, before the source was killed it was %d: deleted again", o.Topic, o.Partition, o.Offset, before)
				offsets.AddOffset(o.Topic, o.Partition, before, -1)
			}
		})
		if err != nil || len(offsets) == 0 {
			return err
		}
		deleted, err := s.admin.DeleteRecords(ctx, offsets)
		return errors.Join(err, deleted.Error())
	})
}

func (s *story) killGateway(*rand.Rand) {
	s.t.Helper()
	s.gateway.Kill()
	s.gatewayUp = false
	s.killed++
	s.say("the gateway is killed")
}

func (s *story) startGateway(*rand.Rand) {
	s.t.Helper()
	s.gateway.StartNoWait(s.t)
	s.gatewayUp = true
	s.say("the gateway starts")
}

func (s *story) killDestination(*rand.Rand) {
	s.t.Helper()
	s.dest.Kill(1)
	s.destUp = false
	s.killed++
	s.say("the destination is killed")
}

func (s *story) startDestination(*rand.Rand) {
	s.t.Helper()
	s.do("starting the destination", func(ctx context.Context) error { return s.dest.Restart(ctx, 1) })
	s.destUp = true
	s.say("the destination is up again")
}
