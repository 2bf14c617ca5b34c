package metamorphic

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/verify"
)

// log is the records of a partition, in the order in which they were read.
type log []*kgo.Record

// compare reads the source and, through the gateway, the mirror, and compares. Nothing is written meanwhile.
func (s *story) compare() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	dest := harness.Client(s.t, s.dest.Bootstrap())
	defer dest.Close()
	starts, err := s.sameStarts(ctx, kadm.NewClient(dest))
	if err != nil {
		s.t.Fatal(err)
	}
	ends, err := harness.Ends(ctx, s.admin, names()...)
	if err != nil {
		s.t.Fatal(err)
	}
	want, err := read(ctx, s.source.Bootstrap(), kgo.ReadCommitted(), starts, ends)
	if err != nil {
		s.t.Fatalf("reading the source: %v", err)
	}
	records := 0
	for name, level := range map[string]kgo.IsolationLevel{"read_committed": kgo.ReadCommitted(), "read_uncommitted": kgo.ReadUncommitted()} {
		got, err := read(ctx, s.gateway.Bootstrap(), level, starts, ends)
		if err != nil {
			s.t.Fatalf("reading the mirror (%s): %v", name, err)
		}
		records = s.compareLogs(name, want, got)
	}
	s.holes = 0
	for tp, end := range ends {
		s.holes += end - starts[tp] - int64(len(want[tp]))
	}
	s.verify(ctx)
	s.compared++
	if s.t.Failed() {
		s.t.Fatalf("step %d: the logs are not the same", s.steps)
	}
	s.say("both logs read the same: %d records, and %d offsets without a record", records, s.holes)
}

func (s *story) compareLogs(reader string, want, got map[harness.TopicPartition]log) (records int) {
	s.t.Helper()
	for _, topic := range topics {
		for partition := range topic.partitions {
			tp := harness.TopicPartition{Topic: topic.name, Partition: partition}
			differences := differences(want[tp], got[tp], topic.compacted)
			for _, d := range differences[:min(5, len(differences))] {
				s.t.Errorf("%s/%d, %s: %s", topic.name, partition, reader, d)
			}
			records += len(want[tp])
		}
	}
	return records
}

// verify runs package verify, directly at both clusters. Records that are on one side only are no fault of compacted
// topics; whether they may be missing was looked at above.
func (s *story) verify(ctx context.Context) {
	s.t.Helper()
	report, err := verify.Run(ctx, verify.Options{
		Source:      broker.Config{Bootstrap: []string{s.source.Bootstrap()}},
		Destination: broker.Config{Bootstrap: []string{s.dest.Bootstrap()}},
		Topics:      names(), Differences: 1 << 20,
	})
	if err != nil {
		s.t.Fatalf("verify: %v", err)
	}
	compacted := map[string]bool{}
	for _, topic := range topics {
		compacted[topic.name] = topic.compacted
	}
	shown := 0
	for _, d := range report.First {
		if compacted[d.Topic] && d.Field == verify.FieldRecord {
			continue
		}
		if shown++; shown <= 10 {
			s.t.Errorf("verify: %s/%d at %d: %s: source %s, destination %s", d.Topic, d.Partition, d.Offset, d.Field, d.Source, d.Destination)
		}
	}
}

// read reads partitions from their starts up to their ends, whose last offset is a record or a marker.
func read(ctx context.Context, bootstrap string, level kgo.IsolationLevel, starts, ends map[harness.TopicPartition]int64) (map[harness.TopicPartition]log, error) {
	from, at := map[string]map[int32]kgo.Offset{}, maps.Clone(starts)
	for tp, end := range ends {
		if starts[tp] < end {
			if from[tp.Topic] == nil {
				from[tp.Topic] = map[int32]kgo.Offset{}
			}
			from[tp.Topic][tp.Partition] = kgo.NewOffset().At(starts[tp])
		}
	}
	logs := map[harness.TopicPartition]log{}
	if len(from) == 0 {
		return logs, nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(level),
		kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(200*time.Millisecond), kgo.AlwaysRetryEOF())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for {
		behind := ""
		for tp, end := range ends {
			if at[tp] < end {
				behind = fmt.Sprintf("%s/%d is read up to %d of %d", tp.Topic, tp.Partition, at[tp], end)
			}
		}
		if behind == "" {
			return logs, nil
		}
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", behind, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			tp := harness.TopicPartition{Topic: r.Topic, Partition: r.Partition}
			at[tp] = r.Offset + 1
			if !r.Attrs.IsControl() {
				logs[tp] = append(logs[tp], r)
			}
		})
	}
}

// differences says what is wrong with a mirror. See the package's documentation for compacted logs.
func differences(want, got log, compacted bool) (found []string) {
	wantLast, gotLast := lastOffsets(want), lastOffsets(got)
	if compacted {
		for key, offset := range wantLast {
			if other, ok := gotLast[key]; !ok || other != offset {
				found = append(found, fmt.Sprintf("key %q ends with offset %d, in the mirror with %d (%v)", key, offset, other, ok))
			}
		}
		for key, offset := range gotLast {
			if _, ok := wantLast[key]; !ok {
				found = append(found, fmt.Sprintf("key %q ends with offset %d in the mirror, and is not at the source", key, offset))
			}
		}
	}
	for i := 1; i < len(got); i++ {
		if got[i].Offset <= got[i-1].Offset {
			found = append(found, fmt.Sprintf("offset %d is read after offset %d", got[i].Offset, got[i-1].Offset))
		}
	}
	wanted, have := byOffset(want), byOffset(got)
	all := maps.Clone(wanted)
	maps.Copy(all, have)
	for _, offset := range slices.Sorted(maps.Keys(all)) {
		w, h := wanted[offset], have[offset]
		switch {
		case w != nil && h != nil:
			if what := differ(w, h); what != "" {
				found = append(found, fmt.Sprintf("offset %d: %s", offset, what))
			}
		case compacted && wantLast[string(all[offset].Key)] > offset && gotLast[string(all[offset].Key)] > offset:
		case h == nil:
			found = append(found, fmt.Sprintf("offset %d (key %q, value %.40q) is not in the mirror", offset, w.Key, w.Value))
		default:
			found = append(found, fmt.Sprintf("offset %d (key %q, value %.40q) is in the mirror only", offset, h.Key, h.Value))
		}
	}
	return found
}

// lastOffsets are by key; on compacted topics every record has one.
func lastOffsets(l log) map[string]int64 {
	last := map[string]int64{}
	for _, r := range l {
		last[string(r.Key)] = r.Offset
	}
	return last
}

func byOffset(l log) map[int64]*kgo.Record {
	all := map[int64]*kgo.Record{}
	for _, r := range l {
		all[r.Offset] = r
	}
	return all
}

func differ(a, b *kgo.Record) string {
	switch {
	case !a.Timestamp.Equal(b.Timestamp):
		return fmt.Sprintf("timestamp %v, in the mirror %v", a.Timestamp, b.Timestamp)
	case !equal(a.Key, b.Key):
		return fmt.Sprintf("key %q, in the mirror %q", a.Key, b.Key)
	case !equal(a.Value, b.Value):
		return fmt.Sprintf("value %.40q (%d bytes), in the mirror %.40q (%d bytes)", a.Value, len(a.Value), b.Value, len(b.Value))
	case !slices.EqualFunc(a.Headers, b.Headers, func(a, b kgo.RecordHeader) bool { return a.Key == b.Key && equal(a.Value, b.Value) }):
		return fmt.Sprintf("headers %q, in the mirror %q", a.Headers, b.Headers)
	}
	return ""
}

// equal tells null from empty.
func equal(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// The comparison must be able to fail.
func TestDifferences(t *testing.T) {
	r := func(offset int64, key, value string) *kgo.Record {
		return &kgo.Record{Offset: offset, Key: []byte(key), Value: []byte(value), Timestamp: time.UnixMilli(offset)}
	}
	null := r(2, "a", "")
	null.Value = nil
	whole := log{r(0, "a", "1"), r(1, "b", "2"), r(2, "a", "")}
	for _, test := range []struct {
		name               string
		want, got          log
		plain, compactedOK bool // no difference
	}{
		{"same", whole, whole, true, true},
		{"cleaned at the source", whole[1:], whole, false, true},
		{"cleaned in the mirror", whole, whole[1:], false, true},
		{"last of a key is missing", whole, whole[:2], false, false},
		{"last of a key is extra", whole[:2], whole, false, false},
		{"key is missing", whole, log{whole[0], whole[2]}, false, false},
		{"key is extra", log{whole[0], whole[2]}, whole, false, false},
		{"null is not empty", whole, log{whole[0], whole[1], null}, false, false},
		{"another value", whole, log{r(0, "a", "x"), whole[1], whole[2]}, false, false},
		{"another order", whole, log{whole[1], whole[0], whole[2]}, false, false},
		{"twice", whole, log{whole[0], whole[1], whole[1], whole[2]}, false, false},
		{"nothing", whole, nil, false, false},
	} {
		for compacted, ok := range map[bool]bool{false: test.plain, true: test.compactedOK} {
			if found := differences(test.want, test.got, compacted); (len(found) == 0) != ok {
				t.Errorf("%s, compacted %v: found %q", test.name, compacted, found)
			}
		}
	}
}
