package broker

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// unauthorized are the errors of rights that are missing. None of them says which.
var unauthorized = []error{
	kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed,
	kerr.TransactionalIDAuthorizationFailed, kerr.DelegationTokenAuthorizationFailed,
}

// Unauthorized reports whether err is about a missing right.
func Unauthorized(err error) bool {
	for _, target := range unauthorized {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// LacksRight adds to an error about a missing right which one the gateway's user needs, as in "READ on topic x at the
// source". Other errors, and nil, stay as they are.
func LacksRight(err error, format string, args ...any) error {
	if !Unauthorized(err) {
		return err
	}
	return &rightError{err: err, right: fmt.Sprintf(format, args...)}
}

type rightError struct {
	err   error
	right string
}

func (e *rightError) Error() string {
	return fmt.Sprintf("%v: the gateway's user needs %s", e.err, e.right)
}

func (e *rightError) Unwrap() error { return e.err }
