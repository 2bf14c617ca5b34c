package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// stop ends a part; it should return when ctx ends.
type stop func(ctx context.Context) error

// part is one of those that make a gateway. start returns how to stop it, also with an error if something is to be
// stopped; parts are started in order and stopped in reverse.
type part struct {
	name  string
	start func(ctx context.Context) (stop, error)
}

type startedPart struct {
	name string
	stop stop
}

// startAll starts parts until one fails, and returns those that are to be stopped.
func startAll(ctx context.Context, parts []part, log *zap.Logger) ([]startedPart, error) {
	var started []startedPart
	for _, p := range parts {
		stop, err := p.start(ctx)
		if stop != nil {
			started = append(started, startedPart{p.name, stop})
		}
		if err != nil {
			return started, fmt.Errorf("start %s: %w", p.name, err)
		}
		log.Debug("started", zap.String("part", p.name))
	}
	return started, nil
}

// stopAll stops parts in reverse. A part that does not end in time is named and left behind.
func stopAll(started []startedPart, timeout time.Duration, log *zap.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var errs []error
	for i := len(started) - 1; i >= 0; i-- {
		p := started[i]
		done := make(chan error, 1)
		go func() { done <- p.stop(ctx) }()
		select {
		case err := <-done:
			if err != nil {
				errs = append(errs, fmt.Errorf("stop %s: %w", p.name, err))
			}
			log.Debug("stopped", zap.String("part", p.name))
		case <-ctx.Done():
			// What comes next may still stop at once: leave it a moment.
			select {
			case err := <-done:
				errs = append(errs, err)
			case <-time.After(100 * time.Millisecond):
				errs = append(errs, fmt.Errorf("stop %s: it did not end within %v", p.name, timeout))
			}
		}
	}
	return errors.Join(errs...)
}

// hangUpLimit is how often in a row a destination may close connections before it answers anything on them. A broker that is
// killed or stopped does it once; one that expects TLS or SASL, or does not, always does it, which must be seen soon.
const hangUpLimit = 5

// patience decides whether to try again after errors of the destination, one after the other.
type patience struct{ hangUps int }

// has reports whether an error can pass by itself. Refused credentials, missing rights and damaged files do not, and must be seen
// at once.
func (p *patience) has(err error) bool {
	var hangUp *kgo.ErrFirstReadEOF
	if !errors.As(err, &hangUp) {
		p.hangUps = 0
		return transient(err)
	}
	p.hangUps++
	return p.hangUps < hangUpLimit
}

// transient is patience with a single error that is no hang-up.
func transient(err error) bool {
	var code *kerr.Error
	if errors.As(err, &code) {
		return code.Retriable
	}
	var timeout net.Error
	return errors.As(err, &timeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF)
}
