package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// PauseTopics pauses topics of a mirror, and returns when they are PAUSED.
func PauseTopics(t testing.TB, client *kgo.Client, mirror string, topics ...string) {
	t.Helper()
	request := &mirrormsg.PauseMirrorTopicsRequest{MirrorName: mirror, Topics: mirrorTopics(topics)}
	ctx, cancel := context.WithTimeout(t.Context(), rpcPatience)
	defer cancel()
	response, err := request.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(response.ErrorCode)
	}
	if err != nil {
		t.Fatalf("PauseMirrorTopics: %v", err)
	}
	Eventually(t, time.Minute, "PAUSED", func(ctx context.Context) error {
		described, err := Describe(ctx, client, mirror)
		for _, topic := range topics {
			for _, p := range described[topic] {
				if p.State != "PAUSED" {
					err = fmt.Errorf("%s/%d is %s", topic, p.Partition, p.State)
				}
			}
		}
		return err
	})
}

// ResumeTopics ends a pause.
func ResumeTopics(t testing.TB, client *kgo.Client, mirror string, topics ...string) {
	t.Helper()
	request := &mirrormsg.ResumeMirrorTopicsRequest{MirrorName: mirror, Topics: mirrorTopics(topics)}
	ctx, cancel := context.WithTimeout(t.Context(), rpcPatience)
	defer cancel()
	response, err := request.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(response.ErrorCode)
	}
	if err != nil {
		t.Fatalf("ResumeMirrorTopics: %v", err)
	}
}

func mirrorTopics(names []string) []mirrormsg.MirrorTopic {
	var topics []mirrormsg.MirrorTopic
	for _, name := range names {
		topics = append(topics, mirrormsg.MirrorTopic{TopicName: name})
	}
	return topics
}
