package appendlog

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/broker"
)

// outcomeKind says what became of a batch that was sent. The order is that of gravity.
type outcomeKind int8

const (
	// appended: in the log, replicated, and for the first or for another time; at base.
	appended outcomeKind = iota
	// doubtful: in the log or not, or not yet. The end of the log tells.
	doubtful
	// refused: not appended, as the log does not end there (as far as the broker knows), or as the bytes came damaged.
	// If that goes on, it has a reason that must be found.
	refused
	// rejected: never appended, however often it is sent.
	rejected
	// fencedOff: the producer epoch was raised.
	fencedOff
	// foreign: the log holds what we did not write.
	foreign
)

type outcome struct {
	kind outcomeKind
	base int64 // only if appended
	err  error
}

// settings are the topic settings that explain why a batch is rejected.
var settings = map[int16]string{
	kerr.MessageTooLarge.Code:             "max.message.bytes",
	kerr.RecordListTooLarge.Code:          "segment.bytes",
	kerr.InvalidRecord.Code:               "cleanup.policy",
	kerr.InvalidTimestamp.Code:            "message.timestamp.before.max.ms, message.timestamp.after.max.ms and message.timestamp.type",
	kerr.UnsupportedForMessageFormat.Code: "message.format.version",
	kerr.InvalidRequiredAcks.Code:         "",
	kerr.InvalidTopicException.Code:       "",
	kerr.UnsupportedCompressionType.Code:  "compression.type",
	kerr.PolicyViolation.Code:             "",
}

// judgeCode says what an error code in a Produce response means for the batch.
//
// Everything that is not known to be permanent is doubtful: it is tried again for ever, and shown. DUPLICATE_SEQUENCE_NUMBER
// and UNKNOWN_PRODUCER_ID are among them: the first says "in the log" but not where, the second comes from old brokers
// that removed the producer's last batch. So are the *_AUTHORIZATION_FAILED, which an operator can mend.
func judgeCode(code int16, message *string, p Partition, base int64, size int) outcome {
	err := broker.LacksRight(kerr.ErrorForCode(code), "WRITE on topic %s at the destination", p.Topic)
	switch code {
	case 0:
		return outcome{kind: appended, base: base}
	case kerr.OutOfOrderSequenceNumber.Code, kerr.CorruptMessage.Code:
		return outcome{kind: refused, err: fmt.Errorf("batch for offset %d: %w", base, err)}
	case kerr.InvalidProducerEpoch.Code, kerr.ProducerFenced.Code:
		return outcome{kind: fencedOff, err: fmt.Errorf("batch for offset %d: %w", base, err)}
	}
	text := ""
	if message != nil {
		text = *message
	}
	if setting, ok := settings[code]; ok {
		return outcome{kind: rejected, err: &RejectedError{
			Topic: p.Topic, Partition: p.Partition, Offset: base, Bytes: size, Setting: setting, Message: text, Err: err,
		}}
	}
	if text != "" {
		return outcome{kind: doubtful, err: fmt.Errorf("batch for offset %d: %w: %s", base, err, text)}
	}
	return outcome{kind: doubtful, err: fmt.Errorf("batch for offset %d: %w", base, err)}
}
