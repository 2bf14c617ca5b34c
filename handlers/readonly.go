package handlers

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// A mirror topic is read-only until its mirroring has stopped. Requests that change it are refused topic by topic with
// POLICY_VIOLATION, which every client knows and none retries; the other topics of the request go through, and the
// answers are merged.

// refusedCode is the error of what is refused because a topic is a read-only mirror.
var refusedCode = kerr.PolicyViolation.Code

// refusal returns the message for a refused topic.
func refusal(t *mirror.Topic) *string {
	return kmsg.StringPtr(fmt.Sprintf("topic %q is a read-only mirror (mirror %q, %s): change it at its source, or stop mirroring it with "+
		"RemoveTopicsFromMirror (mirrorgate mirrors remove-topics)", t.Name, t.Mirror, t.State))
}

// readOnly returns the topic called name if it refuses changes, else nil.
func readOnly(topics *mirror.Topics, name string) *mirror.Topic {
	if t := topics.ByName(name); t != nil && t.ReadOnly {
		return t
	}
	return nil
}

// readOnlyID is readOnly by any of the topic's IDs.
func readOnlyID(topics *mirror.Topics, id mirror.TopicID) *mirror.Topic {
	if t := topics.ByID(id); t != nil && t.ReadOnly {
		return t
	}
	return nil
}

// anyReadOnly is the whole function of an entry that refuses changes of read-only topics.
func anyReadOnly(_ *Handlers, t *mirror.Topics, _ int16) bool { return t.AnyReadOnly() }

// anyReadOnlyOrIDs is anyReadOnly for an API whose requests carry topic IDs.
func anyReadOnlyOrIDs(key int16) func(h *Handlers, t *mirror.Topics, version int16) bool {
	return func(_ *Handlers, t *mirror.Topics, version int16) bool {
		return t.AnyReadOnly() || translates(t, marksOf(key, version))
	}
}

// verdict is the error that a change of a read-only topic gets.
type verdict func(t *mirror.Topic) (code int16, message *string)

// split decides about a decoded request of which parts, which change the topics refused, were taken out, and kept ones are
// left in req. merge adds the answers for the refused to resp; it must keep nothing of the request's frame.
//
// The destination is asked whether the client may change these topics at all: if not, it gets the destination's error.
// The question goes before the rest of the request, or in its place if nothing is left of it.
func (h *Handlers) split(r *request, req kmsg.Request, kept, parts int, refused []*mirror.Topic,
	merge func(resp kmsg.Response, why verdict),
) proxy.Decision {
	if parts == 0 {
		return forward(r)
	}
	h.metrics.refused.WithLabelValues(nameOf(r.Key)).Add(float64(parts))
	ask := rightsRequest(refused)
	if kept == 0 {
		return proxy.Decision{
			Forward: ownRequest(r, ask),
			Rewrite: func(frame []byte) ([]byte, error) {
				why, err := verdictFrom(r.Key, ask, frame)
				if err != nil {
					return nil, err
				}
				resp := req.ResponseKind()
				merge(resp, why)
				return encodeResponse(r.CorrelationID, resp), nil
			},
		}
	}
	r.frame = appendRequest(r.frame, r.bodyAt, req)
	d := forward(r)
	why, asked := verdict(nil), errors.New("the destination was not asked about rights")
	d.Ask, d.Asked = ask, func(frame []byte) { why, asked = verdictFrom(r.Key, ask, frame) }
	rewrite := h.rewriteResponse(r.Key, r.topics, r.Version)
	d.Rewrite = func(frame []byte) ([]byte, error) {
		if asked != nil {
			return nil, asked
		}
		if rewrite != nil {
			var err error
			if frame, err = rewrite(frame); err != nil {
				return nil, err
			}
		}
		return mergeResponse(frame, req.ResponseKind(), func(resp kmsg.Response) { merge(resp, why) })
	}
	return d
}

// verdictFrom reads the answer to ask, which is about the topics of a request with API key key.
func verdictFrom(key int16, ask *kmsg.MetadataRequest, frame []byte) (verdict, error) {
	resp := ask.ResponseKind().(*kmsg.MetadataResponse)
	at, err := responseBodyAt(frame, resp.Key(), resp.IsFlexible())
	if err == nil {
		err = resp.ReadFrom(frame[at:])
	}
	if err != nil {
		return nil, fmt.Errorf("the client's rights on topics: %w", err)
	}
	return verdictOf(key, resp), nil
}

// verdictOf is verdictFrom of a decoded answer.
func verdictOf(key int16, resp *kmsg.MetadataResponse) verdict {
	topics := forbidden(key, resp)
	return func(t *mirror.Topic) (int16, *string) {
		if topics[t.Name] {
			return kerr.TopicAuthorizationFailed.Code, kmsg.StringPtr("Topic authorization failed.")
		}
		return refusedCode, refusal(t)
	}
}

// mergeResponse adds to the response in frame, which has the type and version of resp, what merge adds.
func mergeResponse(frame []byte, resp kmsg.Response, merge func(resp kmsg.Response)) ([]byte, error) {
	at, err := responseBodyAt(frame, resp.Key(), resp.IsFlexible())
	if err != nil {
		return nil, err
	}
	if err := resp.ReadFrom(frame[at:]); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	merge(resp)
	return reencodeResponse(frame, at, resp), nil
}

// undecodable closes the connection of a client whose request cannot be read.
func undecodable(err error) proxy.Decision { return proxy.Decision{Close: err} }
