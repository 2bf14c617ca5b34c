package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchVersions asks for the broker's versions with version 3, and with version 0 where the broker has no 3: it says so
// with UNSUPPORTED_VERSION in the layout of version 0.
func (c *Conn) fetchVersions(ctx context.Context) error {
	for _, version := range []int16{3, 0} {
		resp, err := c.apiVersions(ctx, version)
		if err != nil {
			return err
		}
		if resp.ErrorCode == kerr.UnsupportedVersion.Code && version > 0 {
			continue
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return err
		}
		c.versions = make(map[int16]versionRange, len(resp.ApiKeys))
		for _, k := range resp.ApiKeys {
			c.versions[k.ApiKey] = versionRange{k.MinVersion, k.MaxVersion}
		}
		return nil
	}
	return errors.New("broker refuses every version of ApiVersions")
}

func (c *Conn) apiVersions(ctx context.Context, version int16) (*kmsg.ApiVersionsResponse, error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = version
	req.ClientSoftwareName = "mirrorgate"
	req.ClientSoftwareVersion = "1"
	type result struct {
		body []byte
		err  error
	}
	results := make(chan result, 1)
	if err := c.Send(req, func(body []byte, err error) { results <- result{body, err} }); err != nil {
		return nil, err
	}
	select {
	case r := <-results:
		if r.err != nil {
			return nil, r.err
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		if len(r.body) >= 2 && int16(r.body[0])<<8|int16(r.body[1]) == kerr.UnsupportedVersion.Code {
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			return resp, nil
		}
		resp.Version = version
		return resp, resp.ReadFrom(r.body)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// AuthenticationError says that the broker refused the credentials or the mechanism. It holds no secrets.
type AuthenticationError struct {
	Mechanism string
	Err       error
}

// Error describes the refusal.
func (e *AuthenticationError) Error() string {
	return fmt.Sprintf("SASL authentication with %s: %v", e.Mechanism, e.Err)
}

// Unwrap returns the broker's error.
func (e *AuthenticationError) Unwrap() error { return e.Err }

type requester func(context.Context, kmsg.Request) (kmsg.Response, error)

// authenticate does the SASL exchange (KIP-152) and returns the session's lifetime, 0 if it has no limit.
func (c *Conn) authenticate(ctx context.Context, request requester) (time.Duration, error) {
	lifetime, err := c.exchange(ctx, request)
	if err != nil {
		return 0, &AuthenticationError{Mechanism: c.cfg.SASL.Name(), Err: err}
	}
	return lifetime, nil
}

func (c *Conn) exchange(ctx context.Context, request requester) (time.Duration, error) {
	if err := c.handshake(ctx, request); err != nil {
		return 0, err
	}
	session, message, err := c.cfg.SASL.Authenticate(ctx, c.addr)
	if err != nil {
		return 0, err
	}
	for done := false; ; {
		resp, err := c.saslStep(ctx, request, message)
		if err != nil {
			return 0, err
		}
		if !done {
			if done, message, err = session.Challenge(resp.SASLAuthBytes); err != nil {
				return 0, err
			}
		} else {
			message = nil
		}
		if done && len(message) == 0 {
			return time.Duration(resp.SessionLifetimeMillis) * time.Millisecond, nil
		}
	}
}

func (c *Conn) handshake(ctx context.Context, request requester) error {
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Mechanism = c.cfg.SASL.Name()
	if err := c.SetVersion(req, 1); err != nil {
		return err
	}
	if req.Version < 1 {
		return errors.New("broker is too old (SaslHandshake version 0)")
	}
	kresp, err := request(ctx, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.SASLHandshakeResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("%w (broker offers %v)", err, resp.SupportedMechanisms)
	}
	return nil
}

func (c *Conn) saslStep(ctx context.Context, request requester, message []byte) (*kmsg.SASLAuthenticateResponse, error) {
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.SASLAuthBytes = message
	if err := c.SetVersion(req, 2); err != nil {
		return nil, err
	}
	kresp, err := request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.SASLAuthenticateResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		if resp.ErrorMessage != nil && *resp.ErrorMessage != "" {
			return nil, fmt.Errorf("%w: %s", err, *resp.ErrorMessage)
		}
		return nil, err
	}
	return resp, nil
}

// keepAuthenticated re-authenticates on the open connection (KIP-368) after 85 % of each session's lifetime: a broker
// cuts a connection on the first request after the end of its session.
func (c *Conn) keepAuthenticated(lifetime time.Duration) {
	defer c.wg.Done()
	for lifetime > 0 {
		timer := time.NewTimer(lifetime / 100 * 85)
		select {
		case <-timer.C:
		case <-c.dead:
			timer.Stop()
			return
		}
		var err error
		if lifetime, err = c.reauthenticate(); err != nil {
			c.fail(fmt.Errorf("broker %s: re-authenticating: %w", c.addr, err))
			return
		}
	}
}

// reauthenticate parks the requests that come meanwhile: a broker takes only SASL requests between the two ends of the
// exchange. Those sent before are answered in their order.
func (c *Conn) reauthenticate() (time.Duration, error) {
	c.sendMu.Lock()
	c.reauth = true
	c.sendMu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.requestTimeout())
	defer cancel()
	lifetime, err := c.authenticate(ctx, c.requestNow)
	if err != nil {
		return 0, err
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	for i, p := range c.parked {
		if err := c.writeLocked(p.buffers, p.call); err != nil {
			// The connection ended: failPending, which needs sendMu, answers the rest.
			c.parked = c.parked[i:]
			return 0, err
		}
	}
	c.parked = nil
	c.reauth = false
	return lifetime, nil
}
