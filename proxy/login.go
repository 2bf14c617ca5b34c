package proxy

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// provesLogin tells whether a broker gives this response only to clients that have logged in: brokers close connections
// on which anything else is asked before.
func provesLogin(e *expected) bool {
	return !e.token && e.key != keyAPIVersions && e.key != keySaslHandshake && e.key != keySaslAuthenticate
}

// mustLogIn tells whether the client must prove that it has logged in before the gateway answers it.
func (s *session) mustLogIn(h Header) bool {
	return s.srv.cfg.RequireLogin && !s.loggedIn && h.Key != keyAPIVersions
}

// afterLogin asks the broker something that everybody may ask who has logged in, then does work. Of others the broker
// closes the connection, which ends the session.
func afterLogin(work Work) Work {
	return func(ctx context.Context, up Upstream) ([]byte, error) {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 4                            // all destinations have it
		req.Topics = []kmsg.MetadataRequestTopic{} // none
		if _, err := up.RoundTrip(ctx, req); err != nil {
			return nil, fmt.Errorf("the client has not logged in: %w", err)
		}
		return work(ctx, up)
	}
}
