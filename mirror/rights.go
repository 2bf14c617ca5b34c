package mirror

import (
	"errors"
	"fmt"
	"strings"

	"github.com/mirrorgate/mirrorgate/broker"
)

// What is needed at the destination also to read what is changed there, as one right includes the other.
const (
	alterConfigsRight = "ALTER_CONFIGS (which includes DESCRIBE_CONFIGS) on topic %s at the destination"
	alterClusterRight = "ALTER (which includes DESCRIBE) on the cluster at the destination"
)

// lacksRight is broker.LacksRight for errors that can be refusals, which keep their code.
func lacksRight(err error, format string, args ...any) error {
	var refused *Error
	if errors.As(err, &refused) && broker.Unauthorized(refused.Kafka) {
		return Refuse(refused.Kafka, "%s: the gateway's user needs %s", refused.Message, fmt.Sprintf(format, args...))
	}
	return broker.LacksRight(err, format, args...)
}

// WithoutRequest takes out of an error message the request that a broker quotes where a right on the cluster is missing:
// clients would learn the broker's address from it.
func WithoutRequest(message string) string {
	from, to := strings.Index(message, "Request("), strings.LastIndexByte(message, ')')
	if !strings.Contains(message, "connectionId=") || from < 0 || to < from {
		return message
	}
	return message[:from] + "Request(…)" + message[to+1:]
}
