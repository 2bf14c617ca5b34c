package replication

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/broker"
)

// problemOf says what an error code of a source partition means for it; nil for 0.
func problemOf(code int16) *problem {
	err := kerr.TypedErrorForCode(code)
	if err == nil {
		return nil
	}
	p := &problem{kind: problemPassing, reason: fmt.Sprintf("%s (%s)", err.Message, err.Description)}
	if broker.Unauthorized(err) {
		p.reason = broker.LacksRight(err, "READ on the topic at the source").Error()
	}
	switch {
	case code == kerr.OffsetOutOfRange.Code:
		p.kind = problemRange
	case code == kerr.CorruptMessage.Code: // retriable to clients, but a damaged disk does not heal in seconds
	case err.Retriable, moving[code]:
		p.kind = problemMoved
	}
	return p
}

// moving are the codes, not all of them retriable by the book, that come with elections, restarts and topics that come
// and go. Metadata decides what it is.
var moving = map[int16]bool{
	kerr.UnknownServerError.Code:         true,
	kerr.UnknownTopicOrPartition.Code:    true,
	kerr.UnknownTopicID.Code:             true,
	kerr.InconsistentTopicID.Code:        true,
	kerr.FencedLeaderEpoch.Code:          true,
	kerr.UnknownLeaderEpoch.Code:         true,
	kerr.ReplicaNotAvailable.Code:        true,
	kerr.OffsetMovedToTieredStorage.Code: true,
	kerr.NotLeaderForPartition.Code:      true,
	kerr.KafkaStorageError.Code:          true,
	kerr.OffsetNotAvailable.Code:         true,
	kerr.LeaderNotAvailable.Code:         true,
}
