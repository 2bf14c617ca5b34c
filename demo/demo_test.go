package demo

import (
	"bytes"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/test/leaks"
)

func TestDemoMatches(t *testing.T) {
	defer leaks.None(t, goleak.IgnoreCurrent(), gnetPool)
	var out bytes.Buffer
	err := Run(t.Context(), Options{
		Duration: 3 * time.Second, Rate: 300, Listen: "127.0.0.1:0", Out: &out,
		Log: zaptest.NewLogger(t),
	})
	require.NoError(t, err, out.String())
	require.Contains(t, out.String(), "goes on through the gateway")
	require.Contains(t, out.String(), "OK: ")
}

// The reader is what would notice a fault, so it must.
func TestReaderNoticesFaults(t *testing.T) {
	record := func(offset int64, value string) *kgo.Record {
		return &kgo.Record{Topic: "orders", Offset: offset, Value: []byte(value)}
	}
	for name, test := range map[string]struct {
		records []*kgo.Record
		want    string
	}{
		"clean":    {[]*kgo.Record{record(0, "0 a"), record(1, "1 b")}, ""},
		"skipped":  {[]*kgo.Record{record(0, "0 a"), record(2, "2 c")}, "read offset 2 of orders-0 where 1 was next"},
		"repeated": {[]*kgo.Record{record(0, "0 a"), record(0, "0 a")}, "read offset 0 of orders-0 where 1 was next"},
		"shifted":  {[]*kgo.Record{record(0, "1 b")}, `that was written at "1"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReader()
			for _, rec := range test.records {
				r.read(rec)
			}
			if test.want == "" {
				require.NoError(t, r.err())
				return
			}
			require.ErrorContains(t, r.err(), test.want)
		})
	}
}

// A member that leaves commits what it has polled, so it has to read that even if it was told to leave while it polled.
func TestLeavingMemberReadsWhatItPolled(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics...))
	require.NoError(t, err)
	defer cluster.Close()
	// The member is told to leave as soon as records have been polled and before anybody has seen them.
	var g *groupMember
	var polled atomic.Int64
	r := newReader()
	g, err = joinGroup(cluster.ListenAddrs(), r, false, kgo.WithHooks(unbuffered(func() {
		polled.Add(1)
		g.cancel()
	})))
	require.NoError(t, err)
	p, err := startProducer(cluster.ListenAddrs(), 100)
	require.NoError(t, err)
	<-g.done
	p.stop()
	g.stop()
	require.NoError(t, r.err())
	require.Positive(t, polled.Load())
	require.Equal(t, polled.Load(), sum(r.positions()), "records that were polled are read")
}

// unbuffered is a hook that is called for each record as it is polled.
type unbuffered func()

func (f unbuffered) OnFetchRecordUnbuffered(_ *kgo.Record, polled bool) {
	if polled {
		f()
	}
}

// The table is drawn in place: what is erased must be exactly what was drawn.
func TestLiveViewErasesWhatItDrew(t *testing.T) {
	var out bytes.Buffer
	s := newStory(&out, true)
	s.show(mirror(), 6)
	drawn := strings.Count(out.String(), "\n")
	out.Reset()
	s.step("next")
	require.True(t, strings.HasPrefix(out.String(), "\x1b["+strconv.Itoa(drawn)+"A\x1b[J"), "%q", out.String())
}

func mirror() mirrormsg.DescribeMirrorsResponseMirror {
	p := mirrormsg.NewDescribeMirrorsResponseMirrorTopicPartition()
	p.State = "MIRRORING"
	return mirrormsg.DescribeMirrorsResponseMirror{
		MirrorName: mirrorName,
		Topics: []mirrormsg.DescribeMirrorsResponseMirrorTopic{{
			TopicName: "orders", Partitions: []mirrormsg.DescribeMirrorsResponseMirrorTopicPartition{p, p},
		}},
	}
}

// gnet has one pool of idle workers for the process, which outlives its engines.
var gnetPool = goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*goWorker).run.func1")
