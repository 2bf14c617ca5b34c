package appendlog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestCore runs the stories in testdata/core. Commands, one a line:
//
//	new [in-flight=N]             a new core
//	open | wake | stale | fence   events without arguments
//	opened N                      open, and twice the end at N, ours
//	end N VERDICT [at=N] [producer=N] [deep] [last=N]
//	unreadable REASON             the reading failed
//	unreachable                   the broker could not be connected to
//	append BASE..LAST [bulk]      queue a batch
//	merge N                       make one of the next N batches
//	crowded                       whether batches wait for a round trip
//	send                          send what may be sent
//	ok BASE [at=N]                the broker appended the batch (at another offset)
//	err BASE CODE                 it did not
//	fence-ok N | fence-err CODE   answer to the fence
//	before VERDICT [at=N]         the batch before the fence was read
func TestCore(t *testing.T) {
	datadriven.Walk(t, "testdata/core", func(t *testing.T, path string) {
		c := newCore(Partition{Topic: "t", ProducerID: 7}, 5)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				inFlight := 5
				d.MaybeScanArgs(t, "in-flight", &inFlight)
				c = newCore(Partition{Topic: "t", ProducerID: 7}, inFlight)
				return ""
			}
			if d.Cmd != "run" {
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			var out strings.Builder
			for line := range strings.SplitSeq(d.Input, "\n") {
				if err := runCore(&c, line, &out); err != nil {
					d.Fatalf(t, "%s: %v", line, err)
				}
				checkCore(t, &c)
			}
			fmt.Fprintf(&out, "%v, %d in flight, %d queued", c.state, c.sent, c.queue.len()-c.sent)
			return out.String()
		})
	})
}

func runCore(c *core, line string, out *strings.Builder) error {
	words := strings.Fields(line)
	arg := func(i int) int64 {
		n, err := strconv.ParseInt(words[i], 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	option := func(name string, def int64) int64 {
		for _, w := range words {
			if v, ok := strings.CutPrefix(w, name+"="); ok {
				n, err := strconv.ParseInt(v, 10, 64)
				if err != nil {
					panic(err)
				}
				return n
			}
		}
		return def
	}
	switch words[0] {
	case "open":
		c.start()
	case "opened": // with both looks
		c.start()
		c.endRead(tail{end: arg(1), verdict: tailOurs})
		c.wake()
		c.endRead(tail{end: arg(1), verdict: tailOurs})
	case "wake":
		c.wake()
	case "stale":
		c.markStale()
	case "fence":
		c.fence()
	case "end":
		t := tail{end: arg(1), verdict: verdictOf(words[2]), offset: option("at", arg(1)-1), producerID: option("producer", 99)}
		t.deep = strings.Contains(line, " deep")
		if last := option("last", -1); last >= 0 {
			t.lastKnown, t.last = true, int32(last)
		}
		c.endRead(t)
	case "unreadable":
		c.readFailed(errors.New(strings.Join(words[1:], " ")))
	case "unreachable":
		c.unreachable(errors.New("connection refused"))
	case "append":
		base, last, _ := strings.Cut(words[1], "..")
		from, _ := strconv.ParseInt(base, 10, 64)
		to, _ := strconv.ParseInt(last, 10, 64)
		if err := c.append(Batch{Bytes: make([]byte, to-from+1), Base: from, Next: to + 1, Bulk: strings.HasSuffix(line, " bulk")}); err != nil {
			fmt.Fprintf(out, "append: %v\n", err)
		}
	case "merge":
		if run := c.mergeable(nil, 1<<20)[:arg(1)]; c.canSend() && len(run) > 1 {
			c.merge(run, make([]byte, len(run)))
		}
	case "crowded":
		fmt.Fprintf(out, "crowded: %v\n", c.crowded())
	case "send":
		for c.canSend() {
			if b, ok := c.nextSend(); ok {
				fmt.Fprintf(out, "send %d..%d\n", b.Base, b.Next-1)
			}
		}
	case "ok":
		c.result(arg(1), outcome{kind: appended, base: option("at", arg(1))})
	case "err":
		c.result(arg(1), codeOutcome(c, arg(1), words[2]))
	case "fence-ok":
		c.fenceResult(outcome{kind: appended, base: arg(1)})
	case "before":
		c.fenceConfirmed(tail{verdict: verdictOf(words[1]), offset: option("at", -1), producerID: -1})
	case "fence-err":
		c.fenceResult(codeOutcome(c, 0, words[1]))
	default:
		return errors.New("unknown event")
	}
	for _, e := range c.effects {
		fmt.Fprintln(out, effectString(e))
	}
	c.effects = c.effects[:0]
	return nil
}

func verdictOf(s string) verdict {
	for v, name := range verdictNames {
		if name == s {
			return verdict(v)
		}
	}
	panic("no verdict " + s)
}

func codeOutcome(c *core, base int64, name string) outcome {
	if name == "LOST" {
		return outcome{kind: doubtful, err: errors.New("connection lost")}
	}
	for code := int16(-1); code < 140; code++ {
		if err := kerr.ErrorForCode(code); err != nil && strings.HasPrefix(err.Error(), name+":") {
			return judgeCode(code, nil, c.p, base, 100)
		}
	}
	panic("no error " + name)
}

func effectString(e effect) string {
	switch e.kind {
	case callReady:
		return fmt.Sprintf("  Ready(%d)", e.offset)
	case callAcked:
		if e.batches > 1 {
			return fmt.Sprintf("  Acked(%d) of %d batches, %d bytes", e.offset, e.batches, e.bytes)
		}
		return fmt.Sprintf("  Acked(%d)", e.offset)
	case callDoubt:
		return fmt.Sprintf("  Doubt(%v)", e.err)
	case callFenced:
		return fmt.Sprintf("  Fenced(%d)", e.offset)
	case callFailed:
		return fmt.Sprintf("  Failed(%v)", e.err)
	case doRead:
		if e.deep {
			return fmt.Sprintf("  read the end, and all behind %d", e.offset)
		}
		return "  read the end"
	case doWait:
		return fmt.Sprintf("  wait (attempt %d)", e.attempt)
	case doFence:
		return "  send the fence"
	case doConfirm:
		return fmt.Sprintf("  read what is before %d", e.offset)
	case fenceDone:
		return fmt.Sprintf("  Fence returns %d, %v", e.offset, e.err)
	}
	return "?"
}

// checkCore checks what must hold after every event.
func checkCore(t *testing.T, c *core) {
	t.Helper()
	switch {
	case c.sent > c.maxInFlight, c.state == probing && c.sent > 1:
		t.Fatalf("%d in flight while %v", c.sent, c.state)
	case c.sent > 0 && c.state != probing && c.state != pipelined && c.state != draining:
		t.Fatalf("%d in flight while %v", c.sent, c.state)
	case c.ready && (c.state == waiting || c.state == draining || c.state == fencing || c.state == confirming || c.state == fenced || c.state == failed):
		t.Fatalf("ready while %v", c.state)
	}
	for i := range c.sent {
		if c.queue.at(i).Bulk != c.bulk {
			t.Fatalf("batch %d is in flight in the wrong lane", c.queue.at(i).Base)
		}
	}
	bytes, merged := 0, 0
	for i := range c.queue.len() {
		b := c.queue.at(i)
		bytes += b.size()
		if b.sources > 0 {
			merged += len(b.Bytes)
		}
	}
	if bytes != c.queue.bytes || merged != c.queue.merged {
		t.Fatalf("queue holds %d bytes and %d merged ones, and counts %d and %d", bytes, merged, c.queue.bytes, c.queue.merged)
	}
	for i := 1; i < c.queue.len(); i++ {
		if c.queue.at(i).Base != c.queue.at(i-1).Next {
			t.Fatalf("queue has a gap before %d", c.queue.at(i).Base)
		}
	}
}
