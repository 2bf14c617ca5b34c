package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// topicsOutput is the JSON of "mirrors add-topics" and "mirrors remove-topics".
type topicsOutput struct {
	Mirror string        `json:"mirror"`
	Error  *answerError  `json:"error,omitempty"`
	Topics []topicResult `json:"topics"`
}

type topicResult struct {
	Name    string       `json:"name"`
	TopicID string       `json:"topicId,omitempty"`
	Error   *answerError `json:"error,omitempty"`
}

type addFlags struct {
	mirror       string
	selection    topicSelection
	sourceConfig string
	wait         waitFlags
}

func newMirrorsAddTopicsCommand(f *gatewayFlags) *cobra.Command {
	var a addFlags
	cmd := &cobra.Command{
		Use:   "add-topics",
		Short: "Mirror topics of the source",
		Long: `Adds topics of the source to a mirror: all of them, or none if one cannot be added. Adding a topic that the mirror has
already changes nothing. The topics are created at the destination, and are read-only there until they are removed.

--topics-pattern and --all-topics are looked up by this command, once, at the source that the gateway names for the mirror;
if this machine must reach it otherwise, --source-config says how (client properties; bootstrap.servers in it counts before
the gateway's). Topics whose names begin with __ are left out. For topics that come later use mirror.topics.include.

JSON: {"mirror", "error"?: {"code", "name", "message"}, "topics": [{"name", "topicId"?, "error"?}]}. With --wait a second
document follows once the mirror has caught up, that of 'mirrors describe'.`,
		Example: `  mirrorgate mirrors add-topics --bootstrap-server gateway:9092 --mirror east --topics orders,payments
  mirrorgate mirrors add-topics --bootstrap-server gateway:9092 --mirror east --topics-pattern 'shop\..*' --wait --timeout 2h
  mirrorgate mirrors add-topics --bootstrap-server gateway:9092 --mirror east --all-topics --source-config old-kafka.properties`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.run(cmd, f) },
	}
	cmd.Flags().StringVar(&a.mirror, "mirror", "", "name of the mirror (required)")
	a.selection.register(cmd, "add")
	cmd.Flags().StringVar(&a.sourceConfig, "source-config", "", "client.properties for the source, to look up --topics-pattern and --all-topics")
	a.wait.register(cmd)
	return cmd
}

func (a *addFlags) run(cmd *cobra.Command, f *gatewayFlags) error {
	if a.mirror == "" {
		return errNoMirror
	}
	if err := errors.Join(a.selection.check(true), a.wait.check()); err != nil {
		return err
	}
	g, err := f.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer g.close()
	topics, err := a.topics(cmd.Context(), g)
	if err != nil {
		return fmt.Errorf("adding topics to mirror %s: %w", a.mirror, err)
	}
	req := mirrormsg.NewPtrAddTopicsToMirrorRequest()
	for _, topic := range topics {
		req.Topics = append(req.Topics, mirrormsg.AddTopicsToMirrorRequestTopic{
			TopicID: topic.id, TopicName: topic.name, MirrorName: &a.mirror,
		})
	}
	resp, err := ask[*mirrormsg.AddTopicsToMirrorResponse](cmd.Context(), g, req)
	if err != nil {
		return fmt.Errorf("adding topics to mirror %s: %w", a.mirror, err)
	}
	out := newTopicsOutput(a.mirror, resp.ErrorCode, resp.ErrorMessage, resp.Topics)
	doing := "adding topics to mirror " + a.mirror + ", of which none was added"
	if err := out.print(cmd, f, doing, "Added to mirror "+a.mirror, topics); err != nil || !a.wait.wait {
		return err
	}
	return a.waitForTopics(cmd, f, g, topics)
}

// topics returns what the selection means.
func (a *addFlags) topics(ctx context.Context, g *gatewayClient) ([]sourceTopic, error) {
	if len(a.selection.topics) > 0 {
		return a.selection.named(), nil
	}
	resp, err := ask[*mirrormsg.ListMirrorsResponse](ctx, g, mirrormsg.NewPtrListMirrorsRequest())
	if err == nil {
		err = answered(resp.ErrorCode, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the mirror's source: %w", err)
	}
	for _, m := range resp.Mirrors {
		if m.MirrorName == a.mirror {
			source, err := a.source(m.SourceBootstrap)
			if err != nil {
				return nil, err
			}
			return a.selection.atSource(ctx, source)
		}
	}
	return nil, errors.New("there is no such mirror; 'mirrorgate mirrors list' shows those that are")
}

// source returns how to reach the source: by --source-config, at the addresses that the gateway names if it has none.
func (a *addFlags) source(bootstrap string) (broker.Config, error) {
	props := map[string]string{}
	if a.sourceConfig != "" {
		var err error
		if props, err = broker.ReadPropertiesFile(a.sourceConfig); err != nil {
			return broker.Config{}, fmt.Errorf("--source-config: %w", err)
		}
	}
	if props["bootstrap.servers"] == "" {
		props["bootstrap.servers"] = bootstrap
	}
	return clientConfigOf("--source-config", props)
}

func (a *addFlags) waitForTopics(cmd *cobra.Command, f *gatewayFlags, g *gatewayClient, topics []sourceTopic) error {
	added := topicSelection{topics: namesOf(topics)}
	if err := waitForMirror(cmd, g, a.mirror, &added, a.wait, time.Now()); err != nil {
		return err
	}
	if !f.json {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Mirrored up to the end: %s.\n", strings.Join(added.topics, ", "))
		return err
	}
	mirrors, err := describe(cmd.Context(), g, []string{a.mirror}, &added)
	if err != nil {
		return fmt.Errorf("describing mirror %s: %w", a.mirror, err)
	}
	return printDescription(cmd.OutOrStdout(), f, mirrors)
}

func newMirrorsRemoveTopicsCommand(f *gatewayFlags) *cobra.Command {
	var name string
	var selection topicSelection
	cmd := &cobra.Command{
		Use:   "remove-topics",
		Short: "Stop mirroring topics and make them writable",
		Long: `Removes topics from a mirror: mirroring stops, and the topics become ordinary, writable topics of the destination. All of
them, or none if one is not in the mirror. It returns when the stop is durable, and needs no source. What the source gets
afterwards is not copied. 'mirrors cutover' is the same for a planned move, with checks so that nothing is lost; 'mirrors failover' is
the same for a dead source, and says what may be missing.

--topics-pattern and --all-topics are matched against the mirror's topics.

JSON: {"mirror", "error"?: {"code", "name", "message"}, "topics": [{"name", "topicId"?, "error"?}]}`,
		Example: `  mirrorgate mirrors remove-topics --bootstrap-server gateway:9092 --mirror east --topics orders
  mirrorgate mirrors remove-topics --bootstrap-server gateway:9092 --mirror east --all-topics --request-timeout 5m`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			return removeTopics(cmd, f, g, name, &selection)
		},
	}
	cmd.Flags().StringVar(&name, "mirror", "", "name of the mirror (required)")
	selection.register(cmd, "remove")
	return cmd
}

func removeTopics(cmd *cobra.Command, f *gatewayFlags, g *gatewayClient, name string, selection *topicSelection) error {
	doing := "removing topics from mirror " + name
	topics := selection.named()
	if len(topics) == 0 {
		var err error
		if topics, err = mirrored(cmd.Context(), g, name, selection, nil); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
	req := mirrormsg.NewPtrRemoveTopicsFromMirrorRequest()
	req.MirrorName = name
	for _, topic := range topics {
		req.Topics = append(req.Topics, mirrormsg.RemoveTopicsFromMirrorRequestTopic{TopicName: topic.name})
	}
	resp, err := ask[*mirrormsg.RemoveTopicsFromMirrorResponse](cmd.Context(), g, req)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	out := newTopicsOutput(name, resp.ErrorCode, resp.ErrorMessage, resp.Topics)
	return out.print(cmd, f, doing, "Removed from mirror "+name+", and writable", topics)
}

// mirrored returns the selected topics that the mirror has, that were not removed before, and that keep accepts, if it is
// not nil.
func mirrored(ctx context.Context, g *gatewayClient, name string, selection *topicSelection, keep func(describedTopic) bool) ([]sourceTopic, error) {
	mirrors, err := describe(ctx, g, []string{name}, selection)
	if err != nil {
		return nil, err
	}
	var topics []sourceTopic
	for _, m := range mirrors {
		if m.Error != nil {
			return nil, m.Error
		}
		for _, topic := range m.Topics {
			if !topic.stopped() && (keep == nil || keep(topic)) {
				topics = append(topics, sourceTopic{name: topic.Name})
			}
		}
	}
	if len(topics) == 0 {
		return nil, errors.New("the mirror has no such topics")
	}
	return topics, nil
}

// stopped reports whether the topic was removed: it has partitions, and all are STOPPED.
func (t describedTopic) stopped() bool {
	for _, p := range t.Partitions {
		if p.State != "STOPPED" {
			return false
		}
	}
	return len(t.Partitions) > 0
}

func namesOf(topics []sourceTopic) []string {
	names := make([]string, len(topics))
	for i, topic := range topics {
		names[i] = topic.name
	}
	return names
}

func newTopicsOutput(name string, code int16, message *string, results []mirrormsg.TopicResult) topicsOutput {
	out := topicsOutput{Mirror: name, Error: newAnswerError(code, message), Topics: []topicResult{}}
	for _, r := range results {
		out.Topics = append(out.Topics, topicResult{r.Name, formatTopicID(r.TopicID), newAnswerError(r.ErrorCode, r.ErrorMessage)})
	}
	return out
}

// print shows the outcome; an answer with errors is one of the command, with every failed topic on a line of its own.
func (o *topicsOutput) print(cmd *cobra.Command, f *gatewayFlags, doing, done string, topics []sourceTopic) error {
	var err error
	if f.json {
		err = printJSON(cmd.OutOrStdout(), o)
	}
	if o.Error == nil {
		if !f.json {
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s.\n", done, strings.Join(namesOf(topics), ", "))
		}
		return err
	}
	var lines []string
	for _, topic := range o.Topics {
		if topic.Error != nil {
			lines = append(lines, fmt.Sprintf("\n  %s: %s", topic.Name, topic.Error))
		}
	}
	if len(lines) > 0 {
		return errors.Join(fmt.Errorf("%s:%s", doing, strings.Join(lines, "")), err)
	}
	return errors.Join(fmt.Errorf("%s: %w", doing, o.Error), err)
}
