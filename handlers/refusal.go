package handlers

import (
	"context"
	"errors"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/store"
)

// refusal turns an error of the engine into what a client sees. An error that is not meant for clients is logged, and
// shown as UNKNOWN_SERVER_ERROR without its text, which could name what is none of the client's business.
func (h *Handlers) refusal(doing, mirrorName string, err error) *mirror.Error {
	if err == nil {
		return nil
	}
	var refused *mirror.Error
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, context.DeadlineExceeded):
		return mirror.Refuse(kerr.RequestTimedOut, "the gateway gave up waiting; it goes on if it had begun: ask again")
	}
	h.log.Error("mirror request failed", zap.String("request", doing), zap.String("mirror", mirrorName), zap.Error(err))
	if broker.Unauthorized(err) { // not the client's rights
		return mirror.Refuse(kerr.UnknownServerError, "%s", mirror.WithoutRequest(err.Error()))
	}
	return mirror.Refuse(kerr.UnknownServerError, "the gateway failed; its log says why")
}

// codeOf returns the error code of a refusal, 0 for none.
func codeOf(refused *mirror.Error) int16 {
	if refused == nil {
		return 0
	}
	return refused.Kafka.Code
}

// messageOf returns the message of a refusal, null for none.
func messageOf(refused *mirror.Error) *string {
	if refused == nil {
		return nil
	}
	return kmsg.StringPtr(refused.Message)
}

// refuseName returns a refusal unless name can be the name of a mirror.
func refuseName(name *string) *mirror.Error {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	switch {
	case name == nil:
		return mirror.Refuse(kerr.InvalidRequest, "the mirror name is null; give one")
	case *name == "":
		return mirror.Refuse(kerr.InvalidRequest, "the mirror name is empty; give one")
	case *name == "." || *name == "..":
		return mirror.Refuse(kerr.InvalidRequest, "a mirror cannot be named %q", *name)
	case len(*name) > 249:
		return mirror.Refuse(kerr.InvalidRequest, "the mirror name has %d characters; 249 are allowed", len(*name))
	}
	if i := strings.IndexFunc(*name, func(r rune) bool { return !strings.ContainsRune(allowed, r) }); i >= 0 {
		return mirror.Refuse(kerr.InvalidRequest, "the mirror name %q has characters other than a-z, A-Z, 0-9, '.', '_' and '-'", *name)
	}
	return nil
}

// refuseSecret returns a refusal if key is a setting of a mirror whose value is secret, and the gateway has no key to seal it
// with: whoever may read the state topic could read it.
func (h *Handlers) refuseSecret(key string, value *string) *mirror.Error {
	if !h.noSecrets || value == nil || *value == "" || !store.Secret(key) {
		return nil
	}
	return mirror.Refuse(kerr.InvalidConfig, "%s is a secret, and this gateway has no key to seal it with in the state topic: start it with "+
		"--secret-key-file (openssl rand -hex 32 makes a key), or with --allow-clear-secrets", key)
}

// topicOutcome is the common part of the answers to AddTopicsToMirror and RemoveTopicsFromMirror.
type topicOutcome struct {
	topicID [16]byte
	code    int16
	message *string
	topics  []mirrormsg.TopicResult
}

// outcomeOf sums up the results: the first error is that of the request, the message names every failed topic, and the
// topic ID is that of the only failed topic. whole, an error of the request as such, comes first.
func outcomeOf(results []mirror.TopicResult, whole *mirror.Error) topicOutcome {
	out := topicOutcome{code: codeOf(whole), message: messageOf(whole)}
	var failed []mirror.TopicResult
	for _, result := range results {
		out.topics = append(out.topics, mirrormsg.TopicResult{
			Name: result.Name, TopicID: result.ID, ErrorCode: codeOf(result.Err), ErrorMessage: messageOf(result.Err),
		})
		if result.Err != nil {
			failed = append(failed, result)
		}
	}
	if len(failed) == 1 {
		out.topicID = failed[0].ID
	}
	if whole == nil && len(failed) > 0 {
		out.code = failed[0].Err.Kafka.Code
		messages := make([]string, len(failed))
		for i, result := range failed {
			messages[i] = result.Name + ": " + result.Err.Message
		}
		out.message = kmsg.StringPtr(strings.Join(messages, "; "))
	}
	return out
}

// refuseTopics returns results that give each of refs its refusal, and whether there is one at all. A name that occurs
// twice is refused: both could not have one outcome.
func refuseTopics(refs []mirror.TopicRef, refuse func(i int) *mirror.Error) (results []mirror.TopicResult, any bool) {
	seen := make(map[string]bool, len(refs))
	for i, ref := range refs {
		refused := refuse(i)
		if refused == nil && seen[ref.Name] {
			refused = mirror.Refuse(kerr.InvalidRequest, "the topic is named twice in the request")
		}
		seen[ref.Name] = true
		any = any || refused != nil
		results = append(results, mirror.TopicResult{Name: ref.Name, ID: ref.ID, Err: refused})
	}
	return results, any
}

func topicNames(refs []mirror.TopicRef) []string {
	names := make([]string, 0, len(refs))
	for _, ref := range refs {
		names = append(names, ref.Name)
	}
	return names
}
