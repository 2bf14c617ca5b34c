package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What comes while a request is on its way goes out with the next one, a topic once in each; an error is that of its topic alone,
// and who gives up before it was sent takes it back.
func TestAlterationsTogether(t *testing.T) {
	w := newWorld(t)
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("t%d", i))
		w.makeTopic(w.admin, names[i], 1)
	}
	names = append(names, "absent")
	var mu sync.Mutex
	var requests [][]string // topics
	arrived, goOn := make(chan struct{}), make(chan struct{})
	w.destination.ControlKey(int16(kmsg.IncrementalAlterConfigs), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.destination.KeepControl()
		var topics []string
		for _, r := range kreq.(*kmsg.IncrementalAlterConfigsRequest).Resources {
			topics = append(topics, r.ResourceName)
		}
		mu.Lock()
		defer mu.Unlock()
		if requests = append(requests, topics); len(requests) == 1 {
			close(arrived)
			w.destination.SleepControl(func() { <-goOn })
		}
		return nil, nil, false
	})
	s := newAlterations(w.client)
	life := w.context()
	alter := func(ctx context.Context, topic, value string) chan error {
		change := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		change.Name, change.Op, change.Value = "retention.ms", kmsg.IncrementalAlterConfigOpSet, &value
		done := make(chan error, 1)
		go func() { done <- s.alter(ctx, life, topic, []kmsg.IncrementalAlterConfigsRequestResourceConfig{change}) }()
		return done
	}
	waiting := func(n int) {
		w.eventually(func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.waiting) == n }, "changes wait")
	}
	first := alter(life, "t0", "1000")
	<-arrived
	var rest []chan error
	for _, name := range names[1:] {
		rest = append(rest, alter(life, name, "2000"))
	}
	waiting(20)
	again := alter(life, "t1", "3000")
	waiting(21)
	impatient, giveUp := context.WithCancel(life)
	gone := alter(impatient, "t2", "4000")
	waiting(22)
	giveUp()
	require.ErrorIs(t, <-gone, context.Canceled)
	close(goOn)

	require.NoError(t, <-first)
	require.NoError(t, <-again)
	for i, done := range rest {
		if err := <-done; names[i+1] == "absent" {
			require.Error(t, err)
		} else {
			require.NoError(t, err)
		}
	}
	require.Len(t, requests, 3)
	require.ElementsMatch(t, names[1:], requests[1])
	require.Equal(t, []string{"t1"}, slices.Compact(requests[2]))
	require.Equal(t, "3000", w.topicConfigs(w.admin, "t1")["retention.ms"])
	require.Equal(t, "2000", w.topicConfigs(w.admin, "t2")["retention.ms"])
}

// A request that fails fails all that are in it.
func TestAlterationsFail(t *testing.T) {
	w := newWorld(t)
	w.makeTopic(w.admin, "t", 1)
	life, end := context.WithCancel(context.Background())
	end()
	err := newAlterations(w.client).alter(w.context(), life, "t", nil)
	require.True(t, errors.Is(err, context.Canceled), err)
}
