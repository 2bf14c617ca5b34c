package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// Loops of two and three clusters are refused, with the way in the message; a mirror of the cluster itself, too, also through
// another gateway of it.
func TestLoops(t *testing.T) {
	sites := newSites(t, 3)
	a, b, c := sites[0], sites[1], sites[2]
	harness.CreateTopics(t, a.cluster.Bootstrap(), harness.Topic{Name: "ring", Partitions: 1})
	a.write(make(writings), "ring", "a", 1, 10)
	b.mirrorFrom(a, "a2b")
	c.mirrorFrom(b, "b2c")
	a.mirrorFrom(b, "b2a")
	a.mirrorFrom(c, "c2a")
	harness.AddTopics(t, b.client, "a2b", "ring")
	b.await("a2b", "ring", "MIRRORING") // until then B's broker may not know that it has it
	harness.AddTopics(t, c.client, "b2c", "ring")
	c.awaitMirrored(a, "b2c", "ring")
	a.refused([]string{fmt.Sprintf("%s -(mirror a2b)-> %s -(mirror b2a)-> %s;", a.id, b.id, a.id)}, "add-topics", "--mirror", "b2a", "--topics", "ring")
	harness.Eventually(t, time.Minute, "C's gateway knows where B's topic is from", func(ctx context.Context) error {
		out, err := a.run("add-topics", "--mirror", "c2a", "--topics", "ring")
		if err == nil {
			t.Fatal("a loop of three was let pass")
		}
		if want := fmt.Sprintf("%s -(mirror a2b)-> %s -(mirror b2c)-> %s -(mirror c2a)-> %s;", a.id, b.id, c.id, a.id); !contains(out, want) {
			return errors.New(out)
		}
		return ctx.Err()
	})
	second := harness.StartGateway(t, harness.GatewayOptions{Destination: a.cluster.Bootstrap()})
	a.refused([]string{"the source is the destination cluster itself"}, "create", "--mirror", "itself", "--mirror-config", "bootstrap.servers="+a.gateway.Bootstrap())
	a.refused([]string{"the source is the destination cluster itself"}, "create", "--mirror", "itself", "--mirror-config", "bootstrap.servers="+second.Bootstrap())

	// The end of one mirror opens the ring.
	b.command("remove-topics", "--mirror", "a2b", "--topics", "ring")
	harness.AddTopics(t, a.client, "b2a", "ring")
	a.awaitMirrored(b, "b2a", "ring")
}

// Both sides add the same topics at the same moment, so that neither can see what the other does. Whatever comes through is
// found, and never mirrored on both sides for long.
func TestLoopsThatAreClosedAtOnce(t *testing.T) {
	sites := newSites(t, 2)
	a, b := sites[0], sites[1]
	var topics []harness.Topic
	for i := range 4 {
		topics = append(topics, harness.Topic{Name: fmt.Sprintf("at-once-%d", i), Partitions: 1})
	}
	harness.CreateTopics(t, a.cluster.Bootstrap(), topics...)
	harness.CreateTopics(t, b.cluster.Bootstrap(), topics...)
	b.mirrorFrom(a, "a2b", "mirror.failback.divergence", "recreate")
	a.mirrorFrom(b, "b2a")
	both := 0
	for _, topic := range topics {
		var adding sync.WaitGroup
		refused := make([]error, 2)
		adding.Go(func() { _, refused[0] = b.run("add-topics", "--mirror", "a2b", "--topics", topic.Name) })
		adding.Go(func() { _, refused[1] = a.run("add-topics", "--mirror", "b2a", "--topics", topic.Name) })
		adding.Wait()
		if refused[0] != nil || refused[1] != nil {
			continue
		}
		both++
		for _, side := range []struct {
			*site
			mirror string
		}{{a, "b2a"}, {b, "a2b"}} {
			side.awaitLoop(side.mirror, topic.Name)
		}
		// Each side shows the other's topic ID now, so both are removed before one is added again.
		a.command("remove-topics", "--mirror", "b2a", "--topics", topic.Name)
		b.command("remove-topics", "--mirror", "a2b", "--topics", topic.Name)
		harness.AddTopics(t, b.client, "a2b", topic.Name)
		b.awaitMirrored(a, "a2b", topic.Name)
	}
	t.Logf("%d of %d loops were closed from both sides at once", both, len(topics))
}

// awaitLoop waits until a topic is not mirrored, and is said to be in a loop. The side that was slower has not even begun: to it, the
// topic of the other one was another already.
func (s *site) awaitLoop(mirror, topic string) {
	s.t.Helper()
	harness.Eventually(s.t, time.Minute, topic+" is told to be in a loop", func(ctx context.Context) error {
		partitions, err := s.status(ctx, mirror, topic)
		for n, p := range partitions {
			if p.State != "FAILED" && p.State != "INITIALIZING" || !contains(p.Reason, "in a loop of clusters: "+s.id) {
				err = fmt.Errorf("partition %d is %s: %s", n, p.State, p.Reason)
			}
		}
		return err
	})
}
