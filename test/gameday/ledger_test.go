//go:build gameday

package gameday

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// entry is a record that an application was told is written, or has read.
type entry struct {
	Partition int32
	Offset    int64
	Value     string
}

// acknowledged reads the ledger of an application: the lines of app.py, or those of Kafka's verifiable producer.
func acknowledged(t *testing.T, file string) []entry {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var entries []entry
	for line := range strings.Lines(string(content)) {
		var e entry
		if _, err := fmt.Sscanf(line, "A %d %d %s", &e.Partition, &e.Offset, &e.Value); err == nil {
			entries = append(entries, e)
			continue
		}
		var sent struct {
			Name string
			entry
		}
		if json.Unmarshal([]byte(line), &sent) == nil && sent.Name == "producer_send_success" {
			entries = append(entries, sent.entry)
		}
	}
	return entries
}

// contents reads a whole topic, as its readers see it.
func contents(t *testing.T, bootstrap, topic string) []entry {
	t.Helper()
	ends, err := harness.Ends(t.Context(), harness.Admin(t, bootstrap), topic)
	if err != nil {
		t.Fatal(err)
	}
	client := harness.Client(t, bootstrap, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for tp, end := range ends {
		if end == 0 {
			delete(ends, tp)
		}
	}
	var entries []entry
	for len(ends) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			tp := harness.TopicPartition{Topic: r.Topic, Partition: r.Partition}
			if r.Offset >= ends[tp]-1 {
				delete(ends, tp)
			}
			if !r.Attrs.IsControl() {
				entries = append(entries, entry{r.Partition, r.Offset, string(r.Value)})
			}
		})
	}
	return entries
}

// audit is what became of the acknowledged records of a topic.
type audit struct {
	Topic        string
	Application  string
	Acknowledged int
	Final        int // records of the final log
	Once         int // acknowledged records that are in it once, at the offset that was told
	Lost         []entry
	Problems     []string
}

// auditTopic compares a ledger with the final log. lastMirrored is where the dead source had not yet given more, at the time
// of the failover; before are the values that were acknowledged by then. diverged are the records that were saved of it.
func auditTopic(topic, application string, ledger, final, diverged []entry, before int, lastMirrored map[int32]int64) audit {
	a := audit{Topic: topic, Application: application, Acknowledged: len(ledger), Final: len(final)}
	at := map[string][]entry{}
	for _, e := range final {
		at[e.Value] = append(at[e.Value], e)
	}
	saved := map[string]int{}
	for _, e := range diverged {
		saved[e.Value]++
	}
	for i, e := range ledger {
		found := at[e.Value]
		if i < before && e.Offset >= lastMirrored[e.Partition] {
			a.Lost = append(a.Lost, e)
			if len(found) > 0 || saved[e.Value] != 1 {
				a.Problems = append(a.Problems, fmt.Sprintf("%+v was not given, but is in the log %d times and saved %d times", e, len(found), saved[e.Value]))
			}
			continue
		}
		if len(found) != 1 || found[0] != e {
			a.Problems = append(a.Problems, fmt.Sprintf("%+v is in the final log as %+v", e, found))
			continue
		}
		a.Once++
	}
	return a
}
