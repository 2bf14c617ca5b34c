package replication

import (
	"fmt"
	"maps"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// fetchSession is the client's side of one incremental fetch session (KIP-227), as Kafka's FetchSessionHandler keeps it:
// it turns "these partitions, from there" into the request that says only what changed, and draws the consequences of
// the answer. It is pure; the fetcher sends. Its rules:
//
//   - session ID 0, epoch 0 asks for a session with a full request; a broker without a free slot answers ID 0, and the
//     next request is full again;
//   - FETCH_SESSION_ID_NOT_FOUND starts over with ID 0; any other trouble, a lost connection too, with a full request
//     that names the old ID, so that the broker frees its slot (M14, M16);
//   - a session is by topic ID or by name, not both; changing over means starting over.
//
// Partitions that are not to be fetched for now are taken out of the session: the broker would go on sending their data
// or their error each time (M13).
type fetchSession struct {
	id, epoch int32
	byID      bool
	sent      map[cluster.TopicPartition]fetchPosition // the partitions of the session, as the broker has them
	topics    map[cluster.TopicID]string               // of sent
}

// fetchPosition is what a fetch request says of one partition. The zero gen is not used.
type fetchPosition struct {
	topicID   cluster.TopicID
	epoch     int32
	offset    int64
	lastEpoch int32
	// ticket ties it to a connection; see fetcher.ticket. The broker does not see it.
	ticket  uint64
	copying copyOptions // what the copier needs; the broker does not see it
	// gen goes along for the answer; the broker does not see it.
	gen uint64
}

// fetchWants is what is to be fetched, and what of it is new to the broker. A round costs what changed, not what there is.
type fetchWants struct {
	at       map[cluster.TopicPartition]fetchPosition
	changed  map[cluster.TopicPartition]struct{} // since the last request
	nameless int                                 // how many have no topic ID
}

func newFetchWants() *fetchWants {
	return &fetchWants{at: make(map[cluster.TopicPartition]fetchPosition), changed: make(map[cluster.TopicPartition]struct{})}
}

func (w *fetchWants) set(key cluster.TopicPartition, p fetchPosition) {
	w.remove(key)
	w.at[key] = p
	if p.topicID == (cluster.TopicID{}) {
		w.nameless++
	}
}

func (w *fetchWants) remove(key cluster.TopicPartition) {
	if old, ok := w.at[key]; ok && old.topicID == (cluster.TopicID{}) {
		w.nameless--
	}
	delete(w.at, key)
	w.changed[key] = struct{}{}
}

// request makes the next request for exactly the partitions of want, and takes note of its changes. version is the highest
// that may be used. The order of partitions is that of the map, random, so that none is always first when a full answer
// has not room for all.
func (s *fetchSession) request(version int16, want *fetchWants, partitionMax int32) *kmsg.FetchRequest {
	byID := version >= 13 && want.nameless == 0
	if !byID {
		version = min(version, 12)
	}
	if byID != s.byID && s.epoch > 0 {
		s.startOver()
	}
	s.byID = byID
	req := kmsg.NewPtrFetchRequest()
	req.Version = version
	req.IsolationLevel = 1
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	if version < 7 {
		req.SessionID, req.SessionEpoch = 0, -1
	}
	b := fetchRequestBuilder{req: req, topics: make(map[string]int), forgotten: make(map[forgottenTopic]int)}
	if s.epoch == 0 || version < 7 {
		s.all(&b, want, partitionMax)
	} else {
		s.changes(&b, want, partitionMax)
	}
	clear(want.changed)
	return req
}

// all makes a full request.
func (s *fetchSession) all(b *fetchRequestBuilder, want *fetchWants, partitionMax int32) {
	s.sent = maps.Clone(want.at)
	s.topics = make(map[cluster.TopicID]string)
	for key, p := range want.at {
		s.topics[p.topicID] = key.Topic
		b.add(key, p, partitionMax)
	}
}

// changes makes an incremental request.
func (s *fetchSession) changes(b *fetchRequestBuilder, want *fetchWants, partitionMax int32) {
	for key := range want.changed {
		old, known := s.sent[key]
		p, ok := want.at[key]
		if known && (!ok || p.topicID != old.topicID) {
			b.forget(key, old)
			delete(s.sent, key)
		}
		if !ok {
			continue
		}
		s.sent[key] = p
		s.topics[p.topicID] = key.Topic
		if old.gen = p.gen; !known || old != p {
			b.add(key, p, partitionMax)
		}
	}
}

// forgottenTopic: a topic can be forgotten under an old ID and added under a new one.
type forgottenTopic struct {
	name string
	id   cluster.TopicID
}

type fetchRequestBuilder struct {
	req       *kmsg.FetchRequest
	topics    map[string]int // index in req.Topics
	forgotten map[forgottenTopic]int
}

func (b *fetchRequestBuilder) add(key cluster.TopicPartition, p fetchPosition, partitionMax int32) {
	i, ok := b.topics[key.Topic]
	if !ok {
		i = len(b.req.Topics)
		b.topics[key.Topic] = i
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = key.Topic, p.topicID
		b.req.Topics = append(b.req.Topics, t)
	}
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.FetchOffset = key.Partition, p.epoch, p.offset
	rp.LastFetchedEpoch, rp.PartitionMaxBytes = p.lastEpoch, partitionMax
	b.req.Topics[i].Partitions = append(b.req.Topics[i].Partitions, rp)
}

func (b *fetchRequestBuilder) forget(key cluster.TopicPartition, p fetchPosition) {
	name := forgottenTopic{key.Topic, p.topicID}
	i, ok := b.forgotten[name]
	if !ok {
		i = len(b.req.ForgottenTopics)
		b.forgotten[name] = i
		t := kmsg.NewFetchRequestForgottenTopic()
		t.Topic, t.TopicID = key.Topic, p.topicID
		b.req.ForgottenTopics = append(b.req.ForgottenTopics, t)
	}
	b.req.ForgottenTopics[i].Partitions = append(b.req.ForgottenTopics[i].Partitions, key.Partition)
}

// response takes the answer to the last request. An error means that there is nothing else in it, and that the next
// request is a full one.
func (s *fetchSession) response(resp *kmsg.FetchResponse) error {
	if resp.Version < 7 {
		return nil
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		if resp.ErrorCode == kerr.FetchSessionIDNotFound.Code {
			s.id = 0
		}
		s.startOver()
		return fmt.Errorf("fetch session: %w", err)
	}
	switch {
	case resp.SessionID == 0: // none to be had, or closed by the broker
		s.id, s.epoch = 0, 0
	case s.epoch == 0:
		s.id, s.epoch = resp.SessionID, 1
	case resp.SessionID != s.id:
		s.startOver()
	case s.epoch == math.MaxInt32:
		s.epoch = 1
	default:
		s.epoch++
	}
	return nil
}

// startOver makes the next request a full one that frees the session, if the broker still has it.
func (s *fetchSession) startOver() { s.epoch = 0 }

// lookup finds what was asked for a partition of the answer; false if it was not asked for.
func (s *fetchSession) lookup(t *kmsg.FetchResponseTopic, partition int32) (cluster.TopicPartition, fetchPosition, bool) {
	name := t.Topic
	if s.byID {
		name = s.topics[t.TopicID]
	}
	key := cluster.TopicPartition{Topic: name, Partition: partition}
	p, ok := s.sent[key]
	return key, p, ok && (!s.byID || p.topicID == t.TopicID)
}
