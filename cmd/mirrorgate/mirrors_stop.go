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

// What "mirrors failover" and "mirrors cutover" have in common: they stop topics, and say what is known of each partition's
// end.

// stoppedTopic is a topic in their JSON.
type stoppedTopic struct {
	Name       string             `json:"name"`
	Error      *answerError       `json:"error,omitempty"`
	Partitions []stoppedPartition `json:"partitions"`
}

// stoppedPartition has -1 for what is not known.
type stoppedPartition struct {
	Partition int32  `json:"partition"`
	State     string `json:"state"`
	// StopOffset is the offset after the last mirrored record; before the stop, what it would be now.
	StopOffset int64 `json:"stopOffset"`
	// SourceOffset is where the source's log ended as last heard, SourceAgeMs how old that was at the stop (0: the source was
	// asked after it), or is now.
	SourceOffset int64 `json:"sourceOffset"`
	SourceAgeMs  int64 `json:"sourceAgeMs"`
	Lag          int64 `json:"lag"`
}

// groupsSynced says how the groups stand, in their JSON.
type groupsSynced struct {
	// InPlace is how many groups had their offsets at the destination after the last whole sync, AgeMs how long ago that
	// was; -1: there was none since the gateway started the mirror.
	InPlace int32           `json:"inPlace"`
	AgeMs   int64           `json:"ageMs"`
	Skipped []describedSkip `json:"skipped,omitempty"`
}

// stopsOf is what is known of the partitions of a mirror's topics.
func stopsOf(m describedMirror) []stoppedTopic {
	topics := []stoppedTopic{}
	for _, topic := range m.Topics {
		out := stoppedTopic{Name: topic.Name, Partitions: []stoppedPartition{}}
		for _, p := range topic.Partitions {
			out.Partitions = append(out.Partitions, stopOf(p))
		}
		topics = append(topics, out)
	}
	return topics
}

func stopOf(p describedPartition) stoppedPartition {
	out := stoppedPartition{
		Partition: p.Partition, State: p.State, StopOffset: p.DestinationOffset, SourceOffset: p.SourceOffset, SourceAgeMs: p.SourceAgeMs, Lag: -1,
	}
	if p.Stop != nil {
		out.StopOffset, out.SourceOffset, out.SourceAgeMs = p.Stop.LastMirroredOffset, p.Stop.SourceOffset, p.Stop.SourceAgeMs
	} else if p.SourceAgeMs == 0 { // not known
		out.SourceAgeMs = -1
	}
	if out.StopOffset >= 0 && out.SourceOffset >= 0 {
		out.Lag = max(0, out.SourceOffset-out.StopOffset)
	}
	return out
}

// heard says how old the knowledge of the source is.
func (p stoppedPartition) heard() string {
	age := (time.Duration(p.SourceAgeMs) * time.Millisecond).Round(100 * time.Millisecond).String()
	switch {
	case p.SourceOffset < 0 || p.SourceAgeMs < 0:
		return "never"
	case p.State != "STOPPED":
		return age + " ago"
	case p.SourceAgeMs == 0:
		return "after the stop"
	}
	return age + " before the stop"
}

// lagOf sums up the lag of topics.
func lagOf(topics []stoppedTopic) (records int64, behind, unknown, all int) {
	for _, topic := range topics {
		for _, p := range topic.Partitions {
			all++
			switch {
			case p.Lag < 0:
				unknown++
			case p.Lag > 0:
				behind++
				records += p.Lag
			}
		}
	}
	return records, behind, unknown, all
}

// printStops prints the table of partitions.
func printStops(w io.Writer, topics []stoppedTopic) error {
	rows := [][]string{{"TOPIC", "PARTITION", "STATE", "STOP-OFFSET", "SOURCE-OFFSET", "LAG", "SOURCE-HEARD"}}
	for _, topic := range topics {
		for _, p := range topic.Partitions {
			lag := "unknown"
			if p.Lag >= 0 {
				lag = strconv.FormatInt(p.Lag, 10)
			}
			rows = append(rows, []string{topic.Name, strconv.Itoa(int(p.Partition)), p.State, offset(p.StopOffset), offset(p.SourceOffset), lag, p.heard()})
		}
	}
	return printTable(w, rows)
}

// groupsOf says how the groups of a mirror stand.
func groupsOf(m describedMirror) groupsSynced {
	out := groupsSynced{InPlace: -1, AgeMs: -1}
	for _, s := range m.Syncs {
		if s.Sync == "groups" {
			out.InPlace, out.AgeMs = s.Covered, s.AgeMs
		}
	}
	for _, skip := range m.Skipped {
		if skip.Sync == "groups" {
			out.Skipped = append(out.Skipped, skip)
		}
	}
	return out
}

// String is a sentence for people.
func (g groupsSynced) String() string {
	var text strings.Builder
	if g.AgeMs < 0 {
		text.WriteString("Groups: no whole sync since the gateway started the mirror; their offsets are those of an earlier one.")
	} else {
		fmt.Fprintf(&text, "Groups: %d in place, last synced %s ago.", g.InPlace, (time.Duration(g.AgeMs) * time.Millisecond).Round(100*time.Millisecond))
	}
	for _, skip := range g.Skipped {
		if skip.Count == 0 {
			fmt.Fprintf(&text, "\n  The last sync failed: %s", skip.Reason)
			continue
		}
		fmt.Fprintf(&text, "\n  %d skipped: %s (%s)", skip.Count, skip.Reason, strings.Join(skip.Names[:min(len(skip.Names), 3)], ", "))
	}
	return text.String()
}

// selectedOf describes a mirror with the topics of a selection, all of which must be there.
func selectedOf(ctx context.Context, g *gatewayClient, name string, selection *topicSelection) (describedMirror, error) {
	mirrors, err := describe(ctx, g, []string{name}, selection)
	if err != nil {
		return describedMirror{}, err
	}
	if len(mirrors) != 1 {
		return describedMirror{}, fmt.Errorf("the gateway described %d mirrors", len(mirrors))
	}
	m := mirrors[0]
	if m.Error != nil {
		return m, m.Error
	}
	have := make(map[string]bool)
	for _, topic := range m.Topics {
		have[topic.Name] = true
	}
	for _, topic := range selection.topics {
		if !have[topic] {
			return m, fmt.Errorf("topic %s is not in the mirror; 'mirrorgate mirrors describe' shows those that are", topic)
		}
	}
	if len(m.Topics) == 0 {
		return m, errors.New("the mirror has no such topics")
	}
	return m, nil
}

// askAgain is how long to wait before a gateway that did not answer is asked again.
const askAgain = 500 * time.Millisecond

// stopTopics removes topics from a mirror, and asks again while the gateway does not answer, or is not done: a stop that
// was recorded goes on by itself, and asking again is no error. refused is an answer that will not change.
func stopTopics(ctx context.Context, cmd *cobra.Command, g *gatewayClient, name string, topics []string) (refused *topicsOutput, err error) {
	req := mirrormsg.NewPtrRemoveTopicsFromMirrorRequest()
	req.MirrorName = name
	for _, topic := range topics {
		req.Topics = append(req.Topics, mirrormsg.RemoveTopicsFromMirrorRequestTopic{TopicName: topic})
	}
	report := progress{w: cmd.ErrOrStderr(), shown: map[string]string{}}
	for {
		resp, err := ask[*mirrormsg.RemoveTopicsFromMirrorResponse](ctx, g, req)
		switch {
		case err == nil && resp.ErrorCode == 0:
			return nil, nil
		case err == nil && !passing(resp.ErrorCode):
			out := newTopicsOutput(name, resp.ErrorCode, resp.ErrorMessage, resp.Topics)
			return &out, nil
		case err == nil:
			err = answered(resp.ErrorCode, resp.ErrorMessage)
		}
		if ctx.Err() == nil {
			report.line("mirror "+name, fmt.Sprintf("not stopped yet (%v), asking again", err))
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return nil, fmt.Errorf("the gateway has not said that the topics are stopped (%w); the stop goes on if it was recorded: "+
				"run the same command again", ctx.Err())
		}
	}
}

// passing reports whether an error code says to ask again.
func passing(code int16) bool {
	switch kerr.TypedErrorForCode(code) {
	case kerr.RequestTimedOut, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.BrokerNotAvailable:
		return true
	}
	return false
}

// patient is asking that goes on over answers that do not come; an answer that is an error ends it.
func patient[T any](ctx context.Context, cmd *cobra.Command, name string, do func() (T, error)) (T, error) {
	report := progress{w: cmd.ErrOrStderr(), shown: map[string]string{}}
	for {
		out, err := do()
		var refused *answerError
		if err == nil || errors.As(err, &refused) && !passing(refused.Code) {
			return out, err
		}
		if ctx.Err() == nil {
			report.line("mirror "+name, fmt.Sprintf("no answer (%v), asking again", err))
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return out, err
		}
	}
}
