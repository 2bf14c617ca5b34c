package handlers

import (
	"encoding/binary"
	"math"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/mirror"
)

// A mirror topic has the source's topic ID for clients, and leader epochs above the source's: the destination's own plus
// mirror.Topic.EpochBase. A client that was at the source remembers its epochs, and takes lower ones in the same topic for
// old news or for a log that lost its end: it would go on asking brokers that are not there, or begin anew.
//
// What a client says of epochs below the base comes from the source and means nothing at the destination:
//
//   - The leader's epoch that it knows (Fetch, ListOffsets) is left out: a broker knows by itself whether it leads.
//   - So is the epoch of its last record (Fetch), and that of a committed offset.
//   - Where an epoch of the source ends (OffsetForLeaderEpoch) is the end of the mirror's log, which is the end of the
//     present epoch: a mirror has all that the source had up to there, or is FAILED.

// topicCursor knows which topic a walk is in.
type topicCursor struct {
	topics *mirror.Topics
	frame  []byte
	spot   layout.Spot // of the name or the ID
	byID   bool
	known  bool // topic is that of spot
	topic  *mirror.Topic
}

func (c *topicCursor) name(s layout.Spot) { c.spot, c.byID, c.known = s, false, false }

// id is called behind name where a message has both. The zero ID says nothing.
func (c *topicCursor) id(s layout.Spot) {
	if mirror.TopicID(c.frame[s.Start:s.End]) != (mirror.TopicID{}) {
		c.spot, c.byID, c.known = s, true, false
	}
}

// base returns the EpochBase of the topic that the walk is in, 0 if it is no mirror.
func (c *topicCursor) base() int32 {
	if !c.topics.ShiftsEpochs() {
		return 0
	}
	if !c.known {
		value := c.frame[c.spot.Start:c.spot.End]
		if c.known = true; c.byID {
			c.topic = c.topics.ByID(mirror.TopicID(value))
		} else {
			c.topic = c.topics.ByName(string(value))
		}
	}
	if c.topic == nil {
		return 0
	}
	return c.topic.EpochBase
}

// showEpoch turns the epoch at b into the one that clients see. A negative one is none.
func showEpoch(b []byte, base int32) {
	if epoch := int32(binary.BigEndian.Uint32(b)); epoch >= 0 && epoch <= math.MaxInt32-base {
		binary.BigEndian.PutUint32(b, uint32(epoch+base))
	}
}

// hideEpoch is the reverse of showEpoch; ok is false for an epoch of the source.
func hideEpoch(epoch, base int32) (hidden int32, ok bool) {
	if epoch < 0 || base == 0 {
		return epoch, true
	}
	return epoch - base, epoch >= base
}

// translateRequest puts the destination's topic IDs and leader epochs into the body of a request, in place.
func translateRequest(r *request) error {
	if !translates(r.topics, marksOf(r.Key, r.Version)) {
		return nil
	}
	topics := topicCursor{topics: r.topics, frame: r.frame}
	leader := int32(-1) // the epoch of the leader in the present partition, at the destination
	_, err := layout.Request(r.Key).Walk(r.frame, r.bodyAt, r.Version, func(s layout.Spot) error {
		value := r.frame[s.Start:s.End]
		switch s.Mark {
		case layout.TopicName:
			topics.name(s)
		case layout.TopicID:
			topics.id(s)
			if t := r.topics.BySourceID(mirror.TopicID(value)); t != nil {
				copy(value, t.DestinationID[:])
			}
		case layout.LeaderEpoch:
			epoch, ok := hideEpoch(int32(binary.BigEndian.Uint32(value)), topics.base())
			switch leader = epoch; {
			case ok:
				binary.BigEndian.PutUint32(value, uint32(epoch))
			case r.Key == keyOffsetForLeaderEpoch:
				leader = -1 // it stays, and is refused: the client must learn the present one before its question has an answer
			default:
				binary.BigEndian.PutUint32(value, math.MaxUint32)
			}
		case layout.EndOfEpoch:
			epoch, ok := hideEpoch(int32(binary.BigEndian.Uint32(value)), topics.base())
			if !ok {
				epoch = leader
			}
			if ok || leader >= 0 {
				binary.BigEndian.PutUint32(value, uint32(epoch))
			}
			leader = -1
		}
		return nil
	})
	return err
}
