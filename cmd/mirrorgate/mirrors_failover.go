package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// failoverOutput is the JSON of "mirrors failover".
type failoverOutput struct {
	Mirror string         `json:"mirror"`
	DryRun bool           `json:"dryRun,omitempty"`
	Error  *answerError   `json:"error,omitempty"`
	Topics []stoppedTopic `json:"topics"`
	// Lag is the sum of what is known; UnknownPartitions are not in it.
	Lag               int64         `json:"lag"`
	UnknownPartitions int           `json:"unknownPartitions"`
	Groups            *groupsSynced `json:"groups,omitempty"`
	TookMs            int64         `json:"tookMs"`
}

type failoverFlags struct {
	mirror    string
	selection topicSelection
	timeout   time.Duration
	dryRun    bool
}

func newMirrorsFailoverCommand(f *gatewayFlags) *cobra.Command {
	var o failoverFlags
	cmd := &cobra.Command{
		Use:   "failover",
		Short: "Make topics writable now: the source is dead, or given up",
		Long: `Stops mirroring topics at once and makes them ordinary, writable topics of the destination, without the source. All of them,
or none if one cannot be stopped. It returns when that is durable; from then on producers write through the gateway, and
consumer groups go on where they were. For a move with a source that is alive, 'mirrors cutover' loses nothing.

It cannot be undone, and what the source took and the mirror had not yet copied is not here. The table has, for each
partition: STOP-OFFSET, up to which the mirror is complete; SOURCE-OFFSET, where the source's log ended when it was
last heard, and when that was; and LAG, the difference. Records that the source took after it was last heard are in
addition to that, and nobody here can know of them. To get them back when the source returns, keep it from being written
to, and mirror it back (failback): what it has beyond the stop offset is what was lost here.

If the command or the gateway dies meanwhile, run it again: a stop that was recorded is finished by the gateway's next start,
and what is stopped already stays so. --dry-run shows the same table as of now and changes nothing.

JSON: {"mirror", "dryRun"?, "error"?: {"code", "name", "message"}, "topics": [{"name", "error"?, "partitions": [{"partition", "state",
"stopOffset", "sourceOffset", "sourceAgeMs", "lag"}]}], "lag", "unknownPartitions", "groups"?: {"inPlace", "ageMs", "skipped"?: [{"sync",
"reason", "count", "names"}]}, "tookMs"}; -1 is not known, and a sourceAgeMs of 0 is a source that was asked after the stop.`,
		Example: `  mirrorgate mirrors failover --bootstrap-server gateway:9092 --mirror east --all-topics --dry-run
  mirrorgate mirrors failover --bootstrap-server gateway:9092 --mirror east --all-topics
  mirrorgate mirrors failover --bootstrap-server gateway:9092 --mirror east --topics orders,payments --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, f) },
	}
	cmd.Flags().StringVar(&o.mirror, "mirror", "", "name of the mirror (required)")
	o.selection.register(cmd, "fail over")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long to ask a gateway that does not answer or is not done; 0 = for ever")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "show what is known, change nothing")
	return cmd
}

func (o *failoverFlags) run(cmd *cobra.Command, f *gatewayFlags) error {
	switch {
	case o.mirror == "":
		return errNoMirror
	case o.timeout < 0:
		return usagef("--timeout must not be negative")
	}
	if err := o.selection.check(true); err != nil {
		return err
	}
	ctx := cmd.Context()
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	g, err := f.connect(ctx)
	if err != nil {
		return err
	}
	defer g.close()
	if err := o.stop(ctx, cmd, f, g); err != nil {
		return fmt.Errorf("failing over mirror %s: %w", o.mirror, err)
	}
	return nil
}

func (o *failoverFlags) stop(ctx context.Context, cmd *cobra.Command, f *gatewayFlags, g *gatewayClient) error {
	look := func() (describedMirror, error) { return selectedOf(ctx, g, o.mirror, &o.selection) }
	m, err := look()
	if err != nil {
		return err
	}
	if o.dryRun {
		return o.print(cmd, f, m, 0)
	}
	began := time.Now()
	refused, err := stopTopics(ctx, cmd, g, o.mirror, m.topicNames())
	if err != nil {
		return err
	}
	if refused != nil {
		return printRefused(cmd, f, refused)
	}
	took := time.Since(began)
	if m, err = patient(ctx, cmd, o.mirror, look); err != nil {
		return fmt.Errorf("the topics are stopped and writable, but what became of them could not be asked: %w", err)
	}
	return o.print(cmd, f, m, took)
}

// printRefused prints that nothing was done, and why; it is the error.
func printRefused(cmd *cobra.Command, f *gatewayFlags, refused *topicsOutput) error {
	out := failoverOutput{Mirror: refused.Mirror, Error: refused.Error, Topics: []stoppedTopic{}}
	lines := ""
	for _, topic := range refused.Topics {
		out.Topics = append(out.Topics, stoppedTopic{Name: topic.Name, Error: topic.Error, Partitions: []stoppedPartition{}})
		if topic.Error != nil {
			lines += fmt.Sprintf("\n  %s: %s", topic.Name, topic.Error)
		}
	}
	if f.json {
		if err := printJSON(cmd.OutOrStdout(), out); err != nil {
			return err
		}
	}
	if lines == "" {
		return refused.Error
	}
	return fmt.Errorf("nothing was stopped:%s", lines)
}

func (o *failoverFlags) print(cmd *cobra.Command, f *gatewayFlags, m describedMirror, took time.Duration) error {
	groups := groupsOf(m)
	out := failoverOutput{Mirror: o.mirror, DryRun: o.dryRun, Topics: stopsOf(m), Groups: &groups, TookMs: took.Milliseconds()}
	var behind, all int
	out.Lag, behind, out.UnknownPartitions, all = lagOf(out.Topics)
	w := cmd.OutOrStdout()
	if f.json {
		return printJSON(w, out)
	}
	if err := printStops(w, out.Topics); err != nil {
		return err
	}
	if o.dryRun {
		fmt.Fprintf(w, "\nNothing was changed. A failover now would leave at the source what LAG shows, and what it took since it was last heard.\n")
	} else {
		fmt.Fprintf(w, "\nFailed over in %s, and writable: %s.\n", took.Round(10*time.Millisecond), strings.Join(m.topicNames(), ", "))
	}
	fmt.Fprintf(w, "Lag: %d records in %d of %d partitions are known to be at the source only", out.Lag, behind, all)
	if out.UnknownPartitions > 0 {
		fmt.Fprintf(w, "; of %d partitions nothing is known", out.UnknownPartitions)
	}
	fmt.Fprintf(w, ".\nWhat the source took after it was last heard is not known here, and comes on top.\n%s\n", groups)
	return nil
}

func (m describedMirror) topicNames() []string {
	names := make([]string, len(m.Topics))
	for i, topic := range m.Topics {
		names[i] = topic.Name
	}
	return names
}
