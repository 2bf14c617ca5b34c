package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/store"
)

// peer is what a source says of mirrors into it. Only a gateway (or a broker that implements KIP-1279) says anything.
type peer struct {
	// gateway: it answers mirror RPCs.
	gateway bool
	// bypassed: it does not, but a gateway writes to its cluster. What that filled in would be taken for records.
	bypassed bool
	// hidden: whether it is bypassed cannot be seen, as a right is missing.
	hidden  error
	mirrors []peerMirror
}

// peerMirror is a mirror whose destination is our source.
type peerMirror struct {
	name          string
	sourceCluster string // "" if it is not told
	topics        map[string]peerTopic
}

// peerTopic is a topic in such a mirror. chain is empty if it is STOPPED, or if the peer does not tell; so it is with IDs.
type peerTopic struct {
	stopped                     bool
	chain                       []Link
	id, destinationID, originID TopicID
}

// mirrorRPCs are the requests by which a peer is known.
var mirrorRPCs = []int16{mirrormsg.LastMirroredOffsetsKey, mirrormsg.DescribeMirrorsKey}

// askPeer asks a source for its mirrors.
func askPeer(ctx context.Context, source *kgo.Client) (*peer, error) {
	p := new(peer)
	versions, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("source: ask which requests it knows: %w", err)
	}
	p.gateway = !slices.ContainsFunc(mirrorRPCs, func(key int16) bool {
		return !slices.ContainsFunc(versions.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == key })
	})
	if !p.gateway {
		topics, _, err := cluster.DescribeTopics(ctx, source, store.DefaultTopic)
		if err != nil {
			return nil, err
		}
		state := topics[store.DefaultTopic].Err
		if p.bypassed = state == nil; broker.Unauthorized(state) {
			p.hidden = lacksRight(state, "DESCRIBE on topic %s at the source", store.DefaultTopic)
		}
		return p, nil
	}
	resp, err := mirrormsg.NewPtrDescribeMirrorsRequest().RequestWith(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("source: describe its mirrors: %w", lacksRight(err, "DESCRIBE on the cluster at the source"))
	}
	for _, described := range resp.Mirrors {
		if err := kerr.ErrorForCode(described.ErrorCode); err != nil {
			return nil, fmt.Errorf("source: its gateway does not describe its mirrors: %w", lacksRight(err, "DESCRIBE on the cluster at the source"))
		}
		p.mirrors = append(p.mirrors, peerMirrorOf(described))
	}
	return p, nil
}

func peerMirrorOf(described mirrormsg.DescribeMirrorsResponseMirror) peerMirror {
	m := peerMirror{name: described.MirrorName, sourceCluster: described.SourceClusterID, topics: make(map[string]peerTopic)}
	for _, t := range described.Topics {
		topic := peerTopic{
			stopped: len(t.Partitions) > 0 && len(t.Chain) == 0,
			id:      t.TopicID, destinationID: t.DestinationTopicID, originID: t.OriginTopicID,
		}
		for _, p := range t.Partitions {
			topic.stopped = topic.stopped && p.State == Stopped.String()
		}
		for _, link := range t.Chain[:min(len(t.Chain), longestChain)] {
			topic.chain = append(topic.chain, Link{ClusterID: link.ClusterID, Mirror: link.MirrorName})
		}
		m.topics[t.TopicName] = topic
	}
	return m
}

// chain is where a topic of the source comes from, empty if it is not mirrored there.
func (p *peer) chain(topic string) []Link {
	if p == nil {
		return nil
	}
	for _, m := range p.mirrors {
		if chain := m.topics[topic].chain; len(chain) > 0 {
			return chain
		}
	}
	return nil
}

// errBeingMade is why a topic that the source shows cannot be mirrored yet.
var errBeingMade = errors.New("the source's gateway is making it, or has lost it")

// settled refuses a topic that the source's gateway mirrors, and shows by another ID than that of its own source: so it does while it makes
// it. Whoever took that ID for the topic's would find another one a moment later.
func (p *peer) settled(topic string, shown TopicID) error {
	none := TopicID{}
	for _, m := range p.mirrors {
		if t := m.topics[topic]; len(t.chain) > 0 && t.id != shown && t.id != none && shown != none {
			return errBeingMade
		}
	}
	return nil
}

// originID returns the ID by which the source's cluster knows a topic that the source shows by the ID shown; none if that is
// not certain.
func (p *peer) originID(topic string, shown TopicID) TopicID {
	none, origin := TopicID{}, shown
	certain, found := true, false
	for _, m := range p.mirrors {
		t, ok := m.topics[topic]
		if !ok || t.id != shown || shown == none {
			continue
		}
		if !t.stopped {
			return t.destinationID // at work: this is the one that is there
		}
		certain = certain && (!found || origin == t.destinationID)
		origin, found = t.destinationID, true
	}
	if !certain {
		return none
	}
	return origin
}

// askPeer asks the source and keeps the answer.
func (r *mirrorRun) askPeer(ctx context.Context) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	p, err := askPeer(ctx, r.source)
	if err != nil {
		return nil, err
	}
	r.peer.Store(p)
	return p, nil
}

// bypassing refuses a source behind whose gateway's back the mirror would read.
func bypassing(name string) *Error {
	return Refuse(kerr.InvalidRequest, "a gateway mirrors into the source cluster of mirror %q (it has the topic %s), and bootstrap.servers leads to its brokers: what that gateway filled in "+
		"would be taken for records; have bootstrap.servers name that gateway (mirrorgate mirrors alter), or, if there is none any more and none of the cluster's topics was ever "+
		"mirrored, delete %s there", name, store.DefaultTopic, store.DefaultTopic)
}
