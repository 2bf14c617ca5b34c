package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// describeOutput is the JSON of "mirrors describe", and of commands that waited.
type describeOutput struct {
	Mirrors []describedMirror `json:"mirrors"`
}

type describedMirror struct {
	Name   string           `json:"name"`
	Error  *answerError     `json:"error,omitempty"`
	Topics []describedTopic `json:"topics"`
	// Skipped is what was left out beside the data.
	Skipped []describedSkip `json:"skipped,omitempty"`
	// Syncs are what was done beside the data.
	Syncs []describedSync `json:"syncs,omitempty"`
	// Config is only there with --config.
	Config []describedSetting `json:"config,omitempty"`
}

// describedSkip is what one sync left out for one reason; count is 0 if the whole sync does not work.
type describedSkip struct {
	Sync   string   `json:"sync"`
	Reason string   `json:"reason"`
	Count  int32    `json:"count"`
	Names  []string `json:"names"`
}

// describedSync is what one sync has done since the gateway started the mirror.
type describedSync struct {
	Sync    string `json:"sync"`
	Cycles  int64  `json:"cycles"`
	AgeMs   int64  `json:"ageMs"`
	Covered int32  `json:"covered"`
}

type describedTopic struct {
	Name       string               `json:"name"`
	Partitions []describedPartition `json:"partitions"`
}

// describedPartition has -1 for what is not known.
type describedPartition struct {
	Partition              int32   `json:"partition"`
	State                  string  `json:"state"`
	SourceOffset           int64   `json:"sourceOffset"`
	SourceLastStableOffset int64   `json:"sourceLastStableOffset"`
	DestinationOffset      int64   `json:"destinationOffset"`
	Lag                    int64   `json:"lag"`
	RecordsPerSecond       float64 `json:"recordsPerSecond"`
	Reason                 string  `json:"reason"`
	// SourceAgeMs is how old SourceOffset is, 0 if not known.
	SourceAgeMs int64          `json:"sourceAgeMs,omitempty"`
	Stop        *describedStop `json:"stop,omitempty"`
}

// describedStop is how the mirroring of a STOPPED partition ended.
type describedStop struct {
	LastMirroredOffset int64 `json:"lastMirroredOffset"`
	// SourceOffset is where the source's log ended as last heard, SourceAgeMs how old that was at the stop: 0 if the source was
	// asked after it.
	SourceOffset int64 `json:"sourceOffset"`
	SourceAgeMs  int64 `json:"sourceAgeMs"`
	AgeMs        int64 `json:"ageMs"`
}

func newMirrorsDescribeCommand(f *gatewayFlags) *cobra.Command {
	var names []string
	var selection topicSelection
	var wait waitFlags
	var config bool
	cmd := &cobra.Command{
		Use:   "describe",
		Short: "Show the partitions of mirrors: state, offsets, lag, reason",
		Long: `Shows every partition of the mirrors named, or of all. SOURCE-OFFSET is the high watermark at the source,
DESTINATION-OFFSET the log end at the destination, LAG their difference; "-" is not known. The lag of a topic with an open
transaction stays above 0 until it ends (sourceLastStableOffset in the JSON).

States: INITIALIZING, PREPARING, MIRRORING, PAUSED, STOPPING, STOPPED (removed from the mirror, and writable), FAILED.

A second table has what the syncs beside the data (topics, topic configs, groups, acls) left out in their last cycles, and why.
--config shows the mirrors' settings instead; secrets are never shown.

--topics and --topics-pattern show those topics of the mirrors alone. --wait waits until they are mirrored up to the end.

JSON: {"mirrors": [{"name", "error"?: {"code", "name", "message"}, "topics": [{"name", "partitions": [{"partition", "state",
"sourceOffset", "sourceLastStableOffset", "destinationOffset", "lag", "recordsPerSecond", "reason", "sourceAgeMs"?, "stop"?: {"lastMirroredOffset",
"sourceOffset", "sourceAgeMs", "ageMs"}}]}], "skipped"?: [{"sync", "reason", "count", "names"}], "syncs"?: [{"sync", "cycles", "ageMs", "covered"}],
"config"?: [{"name", "value", "default", "secret"?}]}]}`,
		Example: `  mirrorgate mirrors describe --bootstrap-server gateway:9092
  mirrorgate mirrors describe --bootstrap-server gateway:9092 --mirror east --topics orders
  mirrorgate mirrors describe --bootstrap-server gateway:9092 --mirror east --wait --timeout 1h`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(selection.check(false), wait.check()); err != nil {
				return err
			}
			g, err := f.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer g.close()
			if wait.wait {
				if err := waitForNames(cmd, g, names, &selection, wait); err != nil {
					return err
				}
			}
			mirrors, err := describe(cmd.Context(), g, names, &selection)
			if err != nil {
				return fmt.Errorf("describing mirrors: %w", err)
			}
			if config {
				return printConfigs(cmd, f, g, mirrors)
			}
			return printDescription(cmd.OutOrStdout(), f, mirrors)
		},
	}
	cmd.Flags().BoolVar(&config, "config", false, "show the settings of the mirrors")
	cmd.Flags().StringArrayVar(&names, "mirror", nil, "name of a mirror, may be repeated; all mirrors if not given")
	selection.register(cmd, "show")
	wait.register(cmd)
	return cmd
}

// waitForNames waits for each of the mirrors named, or for all that there are.
func waitForNames(cmd *cobra.Command, g *gatewayClient, names []string, selection *topicSelection, wait waitFlags) error {
	if len(names) == 0 {
		resp, err := ask[*mirrormsg.ListMirrorsResponse](cmd.Context(), g, mirrormsg.NewPtrListMirrorsRequest())
		if err == nil {
			err = answered(resp.ErrorCode, nil)
		}
		if err != nil {
			return fmt.Errorf("listing mirrors: %w", err)
		}
		for _, m := range resp.Mirrors {
			names = append(names, m.MirrorName)
		}
	}
	began := time.Now()
	for _, name := range names {
		if err := waitForMirror(cmd, g, name, selection, wait, began); err != nil {
			return err
		}
	}
	return nil
}

// describe asks for mirrors, all where names is empty, and keeps the topics of the selection.
func describe(ctx context.Context, g *gatewayClient, names []string, selection *topicSelection) ([]describedMirror, error) {
	req := mirrormsg.NewPtrDescribeMirrorsRequest()
	req.MirrorNames = names
	resp, err := ask[*mirrormsg.DescribeMirrorsResponse](ctx, g, req)
	if err != nil {
		return nil, err
	}
	mirrors := []describedMirror{}
	for _, m := range resp.Mirrors {
		out := describedMirror{Name: m.MirrorName, Topics: []describedTopic{}}
		if m.ErrorCode != 0 && m.MirrorName == "" { // the error of a request for all mirrors
			return nil, answered(m.ErrorCode, nil)
		}
		out.Error = newAnswerError(m.ErrorCode, nil)
		if m.ErrorCode == kerr.InvalidRequest.Code {
			out.Error.Message = "there is no such mirror; 'mirrorgate mirrors list' shows those that are"
		}
		for _, topic := range m.Topics {
			if selection.matches(topic.TopicName) {
				out.Topics = append(out.Topics, describeTopic(topic))
			}
		}
		for _, skip := range m.Skipped {
			out.Skipped = append(out.Skipped, describedSkip{skip.Sync, skip.Reason, skip.Count, append([]string{}, skip.Names...)})
		}
		for _, s := range m.Syncs {
			out.Syncs = append(out.Syncs, describedSync{s.Sync, s.Cycles, s.AgeMillis, s.Covered})
		}
		mirrors = append(mirrors, out)
	}
	return mirrors, nil
}

func describeTopic(topic mirrormsg.DescribeMirrorsResponseMirrorTopic) describedTopic {
	out := describedTopic{Name: topic.TopicName, Partitions: []describedPartition{}}
	for _, p := range topic.Partitions {
		out.Partitions = append(out.Partitions, describedPartition{
			Partition: p.Partition, State: p.State, SourceOffset: p.SourceOffset, SourceLastStableOffset: p.SourceLastStableOffset,
			DestinationOffset: p.DestinationOffset, Lag: p.Lag, RecordsPerSecond: p.RecordsPerSecond, Reason: p.Reason,
			SourceAgeMs: p.SourceAgeMillis, Stop: describeStop(p.Stop),
		})
	}
	return out
}

func describeStop(stop *mirrormsg.DescribeMirrorsResponseMirrorTopicPartitionStop) *describedStop {
	if stop == nil {
		return nil
	}
	return &describedStop{stop.LastMirroredOffset, stop.SourceOffset, stop.SourceAgeMillis, stop.AgeMillis}
}

// printDescription prints all mirrors, and fails if one of them has an error.
func printDescription(w io.Writer, f *gatewayFlags, mirrors []describedMirror) error {
	var failed []error
	for _, m := range mirrors {
		if m.Error != nil {
			failed = append(failed, fmt.Errorf("describing mirror %s: %w", m.Name, m.Error))
		}
	}
	if f.json {
		return errors.Join(append(failed, printJSON(w, describeOutput{mirrors}))...)
	}
	rows := [][]string{{"MIRROR", "TOPIC", "PARTITION", "STATE", "SOURCE-OFFSET", "DESTINATION-OFFSET", "LAG", "RECORDS/S", "REASON"}}
	for _, m := range mirrors {
		for _, topic := range m.Topics {
			for _, p := range topic.Partitions {
				rows = append(rows, []string{m.Name, topic.Name, strconv.Itoa(int(p.Partition)), p.State, offset(p.SourceOffset),
					offset(p.DestinationOffset), offset(p.Lag), strconv.FormatFloat(p.RecordsPerSecond, 'f', 0, 64), p.Reason})
			}
		}
	}
	switch skips := skipRows(mirrors); {
	case len(rows) > 1:
		failed = append(failed, printTable(w, rows))
		if len(skips) > 1 {
			fmt.Fprintln(w)
			failed = append(failed, printTable(w, skips))
		}
	case len(skips) > 1:
		failed = append(failed, printTable(w, skips))
	case len(failed) == 0:
		fmt.Fprintln(w, "There is nothing to show: no mirror has such topics.")
	}
	return errors.Join(failed...)
}

// skipRows are what the syncs of mirrors left out, with a heading.
func skipRows(mirrors []describedMirror) [][]string {
	rows := [][]string{{"MIRROR", "SYNC", "SKIPPED", "SUCH-AS", "REASON"}}
	for _, m := range mirrors {
		for _, skip := range m.Skipped {
			count := strconv.Itoa(int(skip.Count))
			if skip.Count == 0 {
				count = "all"
			}
			rows = append(rows, []string{m.Name, skip.Sync, count, strings.Join(skip.Names[:min(len(skip.Names), 3)], ", "), skip.Reason})
		}
	}
	return rows
}

// printConfigs prints the settings of mirrors.
func printConfigs(cmd *cobra.Command, f *gatewayFlags, g *gatewayClient, mirrors []describedMirror) error {
	var failed []error
	rows := [][]string{{"MIRROR", "SETTING", "VALUE", "FROM"}}
	for i := range mirrors {
		m := &mirrors[i]
		err := error(nil)
		if m.Error == nil {
			m.Config, err = describeConfig(cmd.Context(), g, m.Name)
		} else {
			err = m.Error
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("describing mirror %s: %w", m.Name, err))
		}
		for _, s := range m.Config {
			from := "mirror"
			if s.Default {
				from = "default"
			}
			rows = append(rows, []string{m.Name, s.Name, s.show(), from})
		}
	}
	if f.json {
		return errors.Join(append(failed, printJSON(cmd.OutOrStdout(), describeOutput{mirrors}))...)
	}
	return errors.Join(append(failed, printTable(cmd.OutOrStdout(), rows))...)
}
