package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// story is what the demonstration prints: addresses and steps, each once, and below them, on a terminal, a table that is
// drawn anew in place. Without a terminal the table becomes a line now and then.
type story struct {
	mu    sync.Mutex
	out   io.Writer
	live  bool
	begin time.Time
	drawn int // lines of the table on the screen

	groupAt string
	reader  *reader
}

func newStory(out io.Writer, live bool) *story {
	return &story{out: out, live: live, begin: time.Now(), groupAt: "-"}
}

// erase takes the table off the screen. REQUIRES: s.mu.
func (s *story) erase() {
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}

func (s *story) addresses(source, destination, gateway string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, `Mirrorgate demo: two in-process Kafka clusters, a gateway in front of the second, a mirror from the first.

  source       %s
  destination  %s  (as it is, without the gateway)
  gateway      %s  (point your own tools here)

  mirrorgate mirrors describe --bootstrap-server %s --mirror %s
  mirrorgate verify --source %s --destination %s --topics %s
  kcat -b %s -C -t orders -o end

`, source, destination, gateway, gateway, mirrorName, source, gateway, strings.Join(topics, ","), gateway)
}

// step prints what happened.
func (s *story) step(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	fmt.Fprintf(s.out, "%5.1fs  %s\n", time.Since(s.begin).Seconds(), fmt.Sprintf(format, args...))
}

// group says where the group reads from now on.
func (s *story) group(at string, r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groupAt, s.reader = at, r
}

func (s *story) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
}

// show draws the state of the mirror.
func (s *story) show(m mirrormsg.DescribeMirrorsResponseMirror, written int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	positions := map[partition]int64{}
	if s.reader != nil {
		positions = s.reader.positions()
	}
	if !s.live {
		lag, states := totals(m)
		fmt.Fprintf(s.out, "%5.1fs  written %d, lag %d, %s, group read %d at the %s\n",
			time.Since(s.begin).Seconds(), written, lag, states, sum(positions), s.groupAt)
		return
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "\n%d records written at the source; group %q reads at the %s\n\n", written, groupName, s.groupAt)
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "TOPIC\tPARTITION\tSTATE\tSOURCE\tDESTINATION\tLAG\tRECORDS/S\tGROUP\t")
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			fmt.Fprintf(table, "%s\t%d\t%s\t%d\t%d\t%d\t%.0f\t%d\t%s\n", t.TopicName, p.Partition, p.State, p.SourceOffset,
				p.DestinationOffset, p.Lag, p.RecordsPerSecond, positions[partition{t.TopicName, p.Partition}], p.Reason)
		}
	}
	table.Flush()
	fmt.Fprint(&text, "\nCtrl-C ends the demo and compares both sides.\n")
	s.erase()
	_, _ = s.out.Write(text.Bytes())
	s.drawn = bytes.Count(text.Bytes(), []byte("\n"))
}

func totals(m mirrormsg.DescribeMirrorsResponseMirror) (lag int64, states string) {
	counts, order := map[string]int{}, []string{}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			lag += max(0, p.Lag)
			if counts[p.State] == 0 {
				order = append(order, p.State)
			}
			counts[p.State]++
		}
	}
	parts := make([]string, len(order))
	for i, state := range order {
		parts[i] = fmt.Sprintf("%d %s", counts[state], state)
	}
	return lag, strings.Join(parts, ", ")
}

func sum(positions map[partition]int64) (n int64) {
	for _, v := range positions {
		n += v
	}
	return n
}

// watcher asks the gateway for the mirror's state, as a tool would, and shows it.
type watcher struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func (d *demo) watch(ctx context.Context) *watcher {
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{cancel: cancel, done: make(chan struct{})}
	every := 2 * time.Second
	if d.Live {
		every = 250 * time.Millisecond
	}
	go func() {
		defer close(w.done)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			req := mirrormsg.NewPtrDescribeMirrorsRequest()
			req.MirrorNames = []string{mirrorName}
			resp, err := req.RequestWith(ctx, d.admin)
			if err == nil && len(resp.Mirrors) == 1 && ctx.Err() == nil {
				d.story.show(resp.Mirrors[0], d.producer.acked())
			}
		}
	}()
	return w
}

func (w *watcher) stop() {
	w.cancel()
	<-w.done
}
