package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// waitFlags are the flags of commands that can wait for a mirror to catch up.
type waitFlags struct {
	wait     bool
	timeout  time.Duration
	interval time.Duration
}

func (w *waitFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.wait, "wait", false, "wait, with progress, until every partition is MIRRORING and its lag is 0; fail if one is FAILED")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 10*time.Minute, "with --wait: how long to wait; 0 = for ever")
	cmd.Flags().DurationVar(&w.interval, "interval", 500*time.Millisecond, "with --wait: how often to look")
}

func (w *waitFlags) check() error {
	switch {
	case w.timeout < 0:
		return usagef("--timeout must not be negative")
	case w.interval <= 0:
		return usagef("--interval must be more than 0")
	}
	return nil
}

// waitForMirror waits until the selected topics of a mirror, all if there is no selection, are mirrored up to the end. It
// fails when a partition is FAILED or was stopped, or when it takes longer than the timeout, counted from began. Progress
// goes to standard error. A gateway that does not answer is asked again.
func waitForMirror(cmd *cobra.Command, g *gatewayClient, name string, selection *topicSelection, w waitFlags, began time.Time) error {
	ctx := cmd.Context()
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, began.Add(w.timeout))
		defer cancel()
	}
	report := progress{w: cmd.ErrOrStderr(), shown: map[string]string{}}
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for {
		mirrors, err := describe(ctx, g, []string{name}, selection)
		var refused *answerError
		switch {
		case errors.As(err, &refused):
			return fmt.Errorf("waiting for mirror %s: %w", name, err)
		case err != nil:
			if ctx.Err() == nil {
				report.line("mirror "+name, fmt.Sprintf("no answer (%v), asking again", err))
			}
		case len(mirrors) != 1:
			return fmt.Errorf("waiting for mirror %s: the gateway described %d mirrors", name, len(mirrors))
		case mirrors[0].Error != nil:
			return fmt.Errorf("waiting for mirror %s: %w", name, mirrors[0].Error)
		default:
			done, err := report.look(mirrors[0], selection.topics)
			if done || err != nil {
				return err
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("mirror %s has not caught up within %s; it goes on, and 'mirrorgate mirrors describe' shows how far it is",
					name, w.timeout)
			}
			return fmt.Errorf("waiting for mirror %s: %w", name, ctx.Err())
		}
	}
}

// progress shows what changed, topic by topic.
type progress struct {
	w     io.Writer
	shown map[string]string
}

// line shows text for a topic unless it was the last one shown.
func (p *progress) line(subject, text string) {
	if p.shown[subject] != text {
		p.shown[subject] = text
		fmt.Fprintf(p.w, "%s: %s\n", printable(subject), printable(text))
	}
}

// look shows a mirror's progress and returns whether it has caught up. expected are topics that must be there.
func (p *progress) look(m describedMirror, expected []string) (done bool, err error) {
	done = true
	for _, name := range expected {
		if !slices.ContainsFunc(m.Topics, func(t describedTopic) bool { return t.Name == name }) {
			p.line(name, "not in the mirror yet")
			done = false
		}
	}
	var failed []error
	for _, topic := range m.Topics {
		caughtUp, err := p.topic(topic)
		if err != nil {
			failed = append(failed, err)
		}
		done = done && caughtUp
	}
	if len(failed) > 0 {
		return false, errors.Join(failed...)
	}
	return done, nil
}

func (p *progress) topic(topic describedTopic) (caughtUp bool, err error) {
	mirroring, lag, unknown := 0, int64(0), 0
	other := "" // the state and reason of a partition that is not mirroring
	for _, part := range topic.Partitions {
		switch {
		case part.State == "FAILED" || part.State == "STOPPED" || part.State == "STOPPING":
			err = errors.Join(err, fmt.Errorf("topic %s partition %d is %s: %s", topic.Name, part.Partition, part.State, orNoReason(part.Reason)))
		case part.State == "MIRRORING":
			mirroring++
		case other == "":
			other = ", partition " + fmt.Sprint(part.Partition) + " is " + part.State
			if part.Reason != "" {
				other += " (" + part.Reason + ")"
			}
		}
		if part.Lag < 0 {
			unknown++
		}
		lag += max(0, part.Lag)
	}
	text := fmt.Sprintf("%d of %d partitions mirroring, lag %d", mirroring, len(topic.Partitions), lag)
	if unknown > 0 {
		text += fmt.Sprintf(" and not known of %d", unknown)
	}
	p.line(topic.Name, text+other)
	return len(topic.Partitions) > 0 && mirroring == len(topic.Partitions) && lag == 0 && unknown == 0, err
}

func orNoReason(reason string) string {
	if reason == "" {
		return "no reason given"
	}
	return reason
}
