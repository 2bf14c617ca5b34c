package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

func newMirrorsPauseCommand(f *gatewayFlags) *cobra.Command {
	return newMirrorsChangeCommand(f, topicsChange{
		verb: "pause", doing: "pausing topics of mirror ", done: "Paused in mirror ", request: pauseTopics, states: []string{"PREPARING", "MIRRORING", "PAUSED"},
	}, &cobra.Command{
		Use:   "pause",
		Short: "Stop copying topics for a while; they stay read-only",
		Long: `Pauses topics of a mirror: nothing is fetched or written any more, and they stay read-only. All of them, or none if one
cannot be paused. It returns when nothing more is written. Partitions that are FAILED stay so. 'mirrors resume' goes on from
where it was, as long as the source still has what comes next.

--topics-pattern and --all-topics are matched against the mirror's topics that are at work.

JSON: {"mirror", "error"?: {"code", "name", "message"}, "topics": [{"name", "error"?}]}`,
		Example: `  mirrorgate mirrors pause --bootstrap-server gateway:9092 --mirror east --topics orders
  mirrorgate mirrors pause --bootstrap-server gateway:9092 --mirror east --all-topics`,
	})
}

func newMirrorsResumeCommand(f *gatewayFlags) *cobra.Command {
	return newMirrorsChangeCommand(f, topicsChange{
		verb: "resume", doing: "resuming topics of mirror ", done: "Resumed in mirror ", request: resumeTopics,
	}, &cobra.Command{
		Use:   "resume",
		Short: "Go on with paused topics, and try failed ones again",
		Long: `Goes on with topics that are PAUSED, and tries those that are FAILED again at once. All of them, or none if one cannot be
resumed: a topic that was removed from the mirror, and is writable, cannot. Topics that are at work are left as they are.

--topics-pattern and --all-topics are matched against the mirror's topics that were not removed.

JSON: {"mirror", "error"?: {"code", "name", "message"}, "topics": [{"name", "error"?}]}`,
		Example: `  mirrorgate mirrors resume --bootstrap-server gateway:9092 --mirror east --topics orders
  mirrorgate mirrors resume --bootstrap-server gateway:9092 --mirror east --all-topics`,
	})
}

// topicsChange is a command that changes topics of a mirror, all or none.
type topicsChange struct {
	verb, doing, done string
	request           func(ctx context.Context, g *gatewayClient, mirror string, topics []mirrormsg.MirrorTopic) (topicsOutput, error)
	// states limit what --topics-pattern and --all-topics select to topics with a partition in one of them; nil: all.
	states []string
}

func newMirrorsChangeCommand(f *gatewayFlags, change topicsChange, cmd *cobra.Command) *cobra.Command {
	var name string
	var selection topicSelection
	cmd.Args = noArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if name == "" {
			return errNoMirror
		}
		if err := selection.check(true); err != nil {
			return err
		}
		g, err := f.connect(cmd.Context())
		if err != nil {
			return err
		}
		defer g.close()
		return change.run(cmd, f, g, name, &selection)
	}
	cmd.Flags().StringVar(&name, "mirror", "", "name of the mirror (required)")
	selection.register(cmd, change.verb)
	return cmd
}

func (c topicsChange) run(cmd *cobra.Command, f *gatewayFlags, g *gatewayClient, name string, selection *topicSelection) error {
	topics := selection.named()
	if len(topics) == 0 {
		var err error
		if topics, err = mirrored(cmd.Context(), g, name, selection, c.selects); err != nil {
			return fmt.Errorf("%s%s: %w", c.doing, name, err)
		}
	}
	var request []mirrormsg.MirrorTopic
	for _, topic := range topics {
		request = append(request, mirrormsg.MirrorTopic{TopicName: topic.name})
	}
	out, err := c.request(cmd.Context(), g, name, request)
	if err != nil {
		return fmt.Errorf("%s%s: %w", c.doing, name, err)
	}
	return out.print(cmd, f, c.doing+name, c.done+name, topics)
}

func (c topicsChange) selects(topic describedTopic) bool {
	return c.states == nil || slices.ContainsFunc(topic.Partitions, func(p describedPartition) bool { return slices.Contains(c.states, p.State) })
}

func pauseTopics(ctx context.Context, g *gatewayClient, name string, topics []mirrormsg.MirrorTopic) (topicsOutput, error) {
	req := mirrormsg.NewPtrPauseMirrorTopicsRequest()
	req.MirrorName, req.Topics = name, topics
	resp, err := ask[*mirrormsg.PauseMirrorTopicsResponse](ctx, g, req)
	if err != nil {
		return topicsOutput{}, err
	}
	return newTopicsOutput(name, resp.ErrorCode, resp.ErrorMessage, withoutIDs(resp.Topics)), nil
}

func resumeTopics(ctx context.Context, g *gatewayClient, name string, topics []mirrormsg.MirrorTopic) (topicsOutput, error) {
	req := mirrormsg.NewPtrResumeMirrorTopicsRequest()
	req.MirrorName, req.Topics = name, topics
	resp, err := ask[*mirrormsg.ResumeMirrorTopicsResponse](ctx, g, req)
	if err != nil {
		return topicsOutput{}, err
	}
	return newTopicsOutput(name, resp.ErrorCode, resp.ErrorMessage, withoutIDs(resp.Topics)), nil
}

// withoutIDs are results of messages that have no topic IDs.
func withoutIDs(results []mirrormsg.MirrorTopicResult) []mirrormsg.TopicResult {
	out := make([]mirrormsg.TopicResult, len(results))
	for i, r := range results {
		out[i] = mirrormsg.TopicResult{Name: r.Name, ErrorCode: r.ErrorCode, ErrorMessage: r.ErrorMessage}
	}
	return out
}
