package mirror

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/store"
)

// # Loops
//
// A topic may be mirrored on: A -> B -> C, where C reads from B's gateway and so sees A's records at A's offsets. It must not
// come back to where it is from: nobody could write to it any more, and who made it anew would lose it everywhere.
//
// Each gateway tells, with DescribeMirrors, where each topic comes from: the chain of clusters behind it. It knows its own
// source, and asks that, if it is a gateway, for the rest: before topics are added, when the mirror connects, and with every
// refresh. So a loop that was closed from both sides at once, when neither side could see it, is seen a moment later.
// A STOPPED topic is the end of a chain.

// Link is a mirror that a topic's records come through: from the cluster ClusterID, by the mirror of that name at the gateway
// of the cluster that is next on the way. ClusterID is "" for a cluster too old to have one.
type Link struct{ ClusterID, Mirror string }

// longestChain bounds what is believed of a peer.
const longestChain = 32

// chain is where the records of a topic come from, as far as it is known; empty if it is STOPPED.
func (m *Manager) chain(rec store.Topic, run *mirrorRun) []Link {
	mirror, ok := m.records.Mirror(rec.Mirror)
	if !ok || State(rec.State) == Stopped {
		return nil
	}
	first := Link{ClusterID: mirror.SourceClusterID, Mirror: rec.Mirror}
	if run == nil {
		return []Link{first}
	}
	here := ""
	if id := m.destinationID.Load(); id != nil {
		here = *id
	}
	return joinChain(first, run.peer.Load().chain(rec.Name), here)
}

// joinChain puts a link before a chain. It ends where a cluster comes the second time: what follows repeats itself.
func joinChain(first Link, rest []Link, here string) []Link {
	chain, seen := []Link{first}, []string{here, first.ClusterID}
	for _, link := range rest {
		if len(chain) == longestChain {
			break
		}
		chain = append(chain, link)
		if link.ClusterID != "" && slices.Contains(seen, link.ClusterID) {
			break
		}
		seen = append(seen, link.ClusterID)
	}
	return chain
}

// loopText shows a chain that comes back to the cluster here, "" if it does not.
func loopText(topic string, chain []Link, here string) string {
	i := slices.IndexFunc(chain, func(l Link) bool { return l.ClusterID == here && here != "" })
	if i < 0 {
		return ""
	}
	var way strings.Builder
	for ; i >= 0; i-- {
		fmt.Fprintf(&way, "%s -(mirror %s)-> ", chain[i].ClusterID, chain[i].Mirror)
	}
	return fmt.Sprintf("topic %s would be mirrored in a loop of clusters: %s%s; remove it from one of these mirrors", topic, &way, here)
}

// loop says how a topic of this mirror would come back to the destination, "" if it would not.
func (r *mirrorRun) loop(topic string, p *peer, here string) string {
	first := Link{ClusterID: r.sourceClusterID, Mirror: r.name}
	return loopText(topic, joinChain(first, p.chain(topic), here), here)
}

// checkLoops asks the source again, and fails the topics that have come into a loop.
func (r *mirrorRun) checkLoops(ctx context.Context) {
	p, err := r.askPeer(ctx)
	here := ""
	if err == nil {
		here, err = r.m.destinationClusterID(ctx)
	}
	if err == nil || broker.Unauthorized(err) {
		r.tellHidden(p, err)
	}
	if err != nil {
		r.log.Debug("where the topics of the source come from is not known", zap.Error(err))
		return
	}
	if p.bypassed && !r.bypassTold {
		r.bypassTold = true
		r.log.Warn(bypassing(r.name).Message)
	}
	r.failLoops(p, here)
}

// failLoops fails the topics that are in a loop by what the source said.
func (r *mirrorRun) failLoops(p *peer, here string) {
	for _, rec := range r.m.records.topicsOf(r.name) {
		if t := r.topic(rec.Name); t != nil && State(rec.State) == Mirroring {
			t.inLoop(r.loop(rec.Name, p, here))
		}
	}
}

// tellHidden tells, once, that it cannot be seen without a right whether the source's topics are mirrors themselves.
func (r *mirrorRun) tellHidden(p *peer, why error) {
	if why == nil {
		why = p.hidden
	}
	switch told := why != nil; {
	case told == r.hiddenTold:
	case told:
		r.log.Warn("whether topics of the source are mirrors themselves cannot be seen", zap.Error(why))
	default:
		r.log.Info("whether topics of the source are mirrors themselves can be seen now")
	}
	r.hiddenTold = why != nil
}

// inLoop fails a topic that is at work; why is "" if it is in no loop. One that has failed because the source shows it by another ID now is
// told so, too: in a loop the gateways show each other's IDs, and which of the two is noticed first is chance.
func (t *topicRun) inLoop(why string) {
	if why == "" || !t.active() && !t.failedAsRemade() {
		return
	}
	t.mu.Lock()
	t.lost = why + ", then resume it in the others; or, if the source shows another topic ID by then, remove it there, too, delete it at the destination and add it again"
	t.mu.Unlock()
	t.wakeUp()
}

// failedAsRemade reports whether a partition has failed because the source topic seems to be another one.
func (t *topicRun) failedAsRemade() bool {
	return slices.ContainsFunc(t.m.records.Partitions(t.run.name, t.name), func(part store.Partition) bool {
		return State(part.State) == Failed && strings.HasPrefix(part.Reason, replication.SourceRemade)
	})
}

// otherSource is why a topic cannot be made whose source has another ID than when it was added: perhaps because the source's gateway
// mirrors it from here since then.
func (t *topicRun) otherSource(err error) error {
	here := t.m.destinationID.Load()
	if here == nil {
		return err
	}
	if why := t.run.loop(t.name, t.run.peer.Load(), *here); why != "" {
		return fmt.Errorf("%s; if it does not go on here then, remove it here, too, and add it again", why)
	}
	return err
}
