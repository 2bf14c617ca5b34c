package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// What the copier cannot carry over verbatim is filled or encoded anew, beside what it can. test/shapes has every kind of
// log; this is the short proof that they live together in one mirror.
func TestNotVerbatim(t *testing.T) {
	random := harness.Random(t)
	from, to := source(t), destination(t)
	good := harness.Topic{Name: "verbatim", Partitions: 1}
	transactional := harness.Topic{Name: "not-transactional", Partitions: 1}
	appendTime := harness.Topic{Name: "not-append-time", Partitions: 1, Configs: map[string]string{"message.timestamp.type": "LogAppendTime"}}
	trimmed := harness.Topic{Name: "not-from-zero", Partitions: 1}
	topics := []harness.Topic{good, transactional, appendTime, trimmed}
	harness.CreateTopics(t, from, topics...)
	harness.MustFill(t, from, random, 100, topics...)
	inTransaction(t, from, transactional.Name)
	trim(t, from, trimmed.Name, 40)
	harness.MustFill(t, from, random, 100, topics...)
	gw := gateway(t, to)
	client := gw.Client(t)
	harness.CreateMirror(t, client, "not", from)
	harness.AddTopics(t, client, "not", harness.Names(topics)...)
	harness.WaitMirrored(t, client, "not", from, to.Bootstrap(), time.Minute, harness.Names(topics)...)
	wait := []string{"verify", "--wait", "--timeout", "5m", "--source", from, "--topics", strings.Join(harness.Names(topics), ",")}
	for _, reader := range []string{to.Bootstrap(), gw.Bootstrap()} {
		if output, err := harness.Run(t, append(wait, "--destination", reader)...); err != nil {
			t.Errorf("mirrorgate verify: %v\n%s", err, output)
		}
	}
}

// inTransaction writes one committed and one aborted transaction of five records each.
func inTransaction(t *testing.T, bootstrap, topic string) {
	t.Helper()
	client := harness.Client(t, bootstrap, kgo.TransactionalID("tx-"+topic))
	for _, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "commit=%v", bool(commit))}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := client.EndTransaction(t.Context(), commit); err != nil {
			t.Fatal(err)
		}
	}
}

// trim removes the records below an offset.
func trim(t *testing.T, bootstrap, topic string, offset int64) {
	t.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, offset, -1)
	responses, err := harness.Admin(t, bootstrap).DeleteRecords(t.Context(), offsets)
	if err = errors.Join(err, responses.Error()); err != nil {
		t.Fatal(err)
	}
}
