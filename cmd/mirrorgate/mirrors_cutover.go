package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Names of the settings of a mirror that make producers wait.
const (
	cutoverTopics   = "mirror.cutover.topics"
	cutoverDeadline = "mirror.cutover.deadline.ms"
)

// cutoverGrace is added to what producers are told to wait, so that they wait until this command has decided.
const cutoverGrace = 30 * time.Second

type cutoverFlags struct {
	mirror     string
	selection  topicSelection
	timeout    time.Duration
	settle     time.Duration
	interval   time.Duration
	maxLag     int64
	skipGroups bool
	abort      bool
	dryRun     bool
}

func newMirrorsCutoverCommand(f *gatewayFlags) *cobra.Command {
	var o cutoverFlags
	cmd := &cobra.Command{
		Use:   "cutover",
		Short: "Move producers from the source to the gateway without losing a record",
		Long: `Conducts a planned move. Point consumers at the gateway whenever you like, before or after. Then run this, and it

  1. checks that the mirror is at work and its lag at most --max-lag; else it refuses and nothing was changed;
  2. makes producers of these topics at the gateway wait instead of refusing them, and says so: now stop the producers at the
     source, and point them at the gateway;
  3. waits until everything is mirrored, the source's logs have stood still for --settle, and the groups have been synced
     twice since;
  4. stops mirroring as 'mirrors failover' does, which makes the topics writable, and the producers that wait go on.

If step 3 is not done within --timeout, because the mirror does not catch up or somebody still writes to the source, it
rolls back: producers at the gateway are refused as before, the mirror goes on, and the message says why. Ctrl-C before step 4
does the same. The timeout should be below the delivery.timeout.ms of the producers (2 minutes by default).

A source cannot be closed for writing from here. So what somebody writes to it between the last look of step 3 and the end
of step 4 is missing here. The source is asked once more after the stop; such records are shown, and the exit code is 3.

If this command or the gateway is killed, run it again: it goes on where it was. If nobody does, producers stop waiting
after the timeout and 30 seconds by themselves. --abort ends their waiting at once, as long as step 4 has not begun.

JSON: {"mirror", "outcome": "done" | "rolled back" | "refused" | "aborted" | "possible", "reason"?, "writePauseMs", "writePauseAtLeast"?, "leftBehind",
"topics": as of 'mirrors failover', "groups"}. writePauseMs is the time for which producers waited at the gateway.

Exit codes: 0 done; 1 refused, rolled back or failed; 2 the command line makes no sense; 3 done, but the source has records that
are not here.`,
		Example: `  mirrorgate mirrors cutover --bootstrap-server gateway:9092 --mirror east --all-topics --dry-run
  mirrorgate mirrors cutover --bootstrap-server gateway:9092 --mirror east --all-topics
  mirrorgate mirrors cutover --bootstrap-server gateway:9092 --mirror east --topics orders --timeout 5m --settle 10s --json
  mirrorgate mirrors cutover --bootstrap-server gateway:9092 --mirror east --all-topics --abort`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.mirror, "mirror", "", "name of the mirror (required)")
	o.selection.register(cmd, "cut over")
	flags.DurationVar(&o.timeout, "timeout", 90*time.Second, "how long producers may wait at most before it rolls back")
	flags.DurationVar(&o.settle, "settle", 5*time.Second, "for how long the source's logs must have stood still")
	flags.DurationVar(&o.interval, "interval", 250*time.Millisecond, "how often to look")
	flags.Int64Var(&o.maxLag, "max-lag", 100_000, "the largest lag in records, over all partitions, with which to begin")
	flags.BoolVar(&o.skipGroups, "skip-groups", false, "do not wait for the groups to be synced")
	flags.BoolVar(&o.abort, "abort", false, "end a cut-over that was left behind: producers wait no more")
	flags.BoolVar(&o.dryRun, "dry-run", false, "check whether it could begin, change nothing")
	return cmd
}

func (o *cutoverFlags) check() error {
	const longest = 55 * time.Minute
	switch {
	case o.mirror == "":
		return errNoMirror
	case o.timeout <= 0 || o.timeout > longest:
		return usagef("--timeout must be more than 0 and at most %s", longest)
	case o.settle < 0 || o.settle >= o.timeout:
		return usagef("--settle must be less than --timeout")
	case o.interval <= 0:
		return usagef("--interval must be more than 0")
	case o.maxLag < 0:
		return usagef("--max-lag must not be negative")
	case o.abort && o.dryRun:
		return usagef("--abort and --dry-run exclude each other")
	}
	return o.selection.check(true)
}

func (o *cutoverFlags) run(cmd *cobra.Command, f *gatewayFlags) error {
	if err := o.check(); err != nil {
		return err
	}
	g, err := f.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer g.close()
	c := &cutoverRun{cutoverFlags: o, cmd: cmd, g: g, report: progress{w: cmd.ErrOrStderr(), shown: map[string]string{}}}
	out, err := c.conduct(cmd.Context())
	if err == nil || out.Outcome != "" {
		err = errors.Join(out.print(cmd, f), err)
	}
	if err == nil && out.LeftBehind > 0 {
		err = &leftBehindError{fmt.Sprintf("the source has %d records that were written after the last look and are not here; they are "+
			"behind the stop offsets in its logs", out.LeftBehind)}
	}
	var left *leftBehindError
	if err == nil || errors.As(err, &left) {
		return err
	}
	return fmt.Errorf("cutting over mirror %s: %w", o.mirror, err)
}

// leftBehindError is a cut-over that was done, but not without loss.
type leftBehindError struct{ message string }

func (e *leftBehindError) Error() string { return e.message }

// ExitCode is that of the command.
func (*leftBehindError) ExitCode() int { return 3 }

// cutoverRun is a cut-over under way.
type cutoverRun struct {
	*cutoverFlags
	cmd    *cobra.Command
	g      *gatewayClient
	report progress

	topics []string
	fenced time.Time // when producers began to wait
	// resumed: producers waited before, since nobody knows when.
	resumed bool
}

// conduct does all steps. Where it returns an outcome and an error, both are to be shown.
func (c *cutoverRun) conduct(ctx context.Context) (cutoverOutput, error) {
	out := cutoverOutput{Mirror: c.mirror}
	m, err := selectedOf(ctx, c.g, c.mirror, &c.selection)
	if err != nil {
		return out, err
	}
	c.topics = m.topicNames()
	c.selection = topicSelection{topics: c.topics} // topics that join meanwhile are none of its business
	out.describe(m)
	if c.abort {
		if err := c.unfence(ctx); err != nil {
			return out, err
		}
		out.Outcome = "aborted"
		return out, nil
	}
	if begun(m) {
		c.say("a stop of these topics has begun already: finishing it")
		return c.stop(ctx, out)
	}
	if err := c.refuse(m); err != nil {
		out.Outcome, out.Reason = "refused", err.Error()
		return out, err
	}
	if c.dryRun {
		out.Outcome = "possible"
		return out, nil
	}
	if err := c.fence(ctx); err != nil {
		return out, err
	}
	if err := c.settled(ctx); err != nil {
		err = c.rollBack(err)
		out.Outcome, out.Reason = "rolled back", err.Error()
		return out, err
	}
	return c.stop(ctx, out)
}

// begun reports whether there is nothing to wait for: all partitions are STOPPING or STOPPED.
func begun(m describedMirror) bool {
	for _, topic := range m.Topics {
		for _, p := range topic.Partitions {
			if p.State != "STOPPING" && p.State != "STOPPED" {
				return false
			}
		}
	}
	return true
}

// refuse says why a cut-over should not begin.
func (c *cutoverRun) refuse(m describedMirror) error {
	lag := int64(0)
	for _, topic := range m.Topics {
		for _, p := range topic.Partitions {
			switch {
			case p.State == "STOPPING" || p.State == "STOPPED":
			case p.State != "MIRRORING":
				return fmt.Errorf("topic %s partition %d is %s: %s", topic.Name, p.Partition, p.State, orNoReason(p.Reason))
			case p.Lag < 0 || p.SourceAgeMs == 0 || time.Duration(p.SourceAgeMs)*time.Millisecond > c.timeout:
				return fmt.Errorf("topic %s partition %d: the source is not heard (%s); if it is dead, 'mirrorgate mirrors failover' is for that",
					topic.Name, p.Partition, orNoReason(p.Reason))
			default:
				lag += p.Lag
			}
		}
	}
	if lag > c.maxLag {
		return fmt.Errorf("the lag is %d records, more than --max-lag %d: producers would have to wait for too long; try later", lag, c.maxLag)
	}
	return nil
}

func (c *cutoverRun) say(format string, args ...any) {
	c.report.line("mirror "+c.mirror, fmt.Sprintf(format, args...))
}

// fence makes producers wait.
func (c *cutoverRun) fence(ctx context.Context) error {
	if settings, err := describeConfig(ctx, c.g, c.mirror); err == nil {
		c.resumed = waitsFor(settings, c.topics, time.Now())
	}
	c.fenced = time.Now()
	wait := "+" + strconv.FormatInt((c.timeout+cutoverGrace).Milliseconds(), 10)
	names := strings.Join(c.topics, ",")
	_, err := patient(ctx, c.cmd, c.mirror, func() (struct{}, error) {
		return struct{}{}, c.alter(ctx, alteration(cutoverTopics, kmsg.IncrementalAlterConfigOpAppend, &names), alteration(cutoverDeadline, kmsg.IncrementalAlterConfigOpSet, &wait))
	})
	if err != nil {
		return fmt.Errorf("making producers wait: %w", err)
	}
	if c.resumed {
		c.say("going on with a cut-over that had begun")
	}
	c.say("producers at the gateway wait now: stop those at the source, and point them at the gateway (%s left)", c.timeout)
	return nil
}

// waitsFor reports whether the settings of a mirror make producers wait for a topic.
func waitsFor(settings []describedSetting, topics []string, now time.Time) bool {
	listed, until := []string(nil), time.Time{}
	for _, s := range settings {
		switch {
		case s.Value == nil:
		case s.Name == cutoverTopics:
			listed = strings.Split(*s.Value, ",")
		case s.Name == cutoverDeadline:
			ms, _ := strconv.ParseInt(*s.Value, 10, 64)
			until = time.UnixMilli(ms)
		}
	}
	return now.Before(until) && slices.ContainsFunc(topics, func(topic string) bool { return slices.Contains(listed, topic) })
}

func (c *cutoverRun) alter(ctx context.Context, changes ...kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	refused, err := alterMirror(ctx, c.g, c.mirror, changes, false)
	if err == nil && refused != nil {
		err = refused
	}
	return err
}

// unfence ends the waiting of producers.
func (c *cutoverRun) unfence(ctx context.Context) error {
	names := strings.Join(c.topics, ",")
	_, err := patient(ctx, c.cmd, c.mirror, func() (struct{}, error) {
		return struct{}{}, c.alter(ctx, alteration(cutoverTopics, kmsg.IncrementalAlterConfigOpSubtract, &names))
	})
	if err != nil {
		return fmt.Errorf("telling the gateway that producers wait no more: %w; they stop waiting by themselves, "+
			"%s after they began at the latest", err, c.timeout+cutoverGrace)
	}
	return nil
}

// settled waits until nothing is missing and nobody writes to the source any more.
func (c *cutoverRun) settled(ctx context.Context) error {
	ctx, cancel := context.WithDeadline(ctx, c.fenced.Add(c.timeout))
	defer cancel()
	watch := &settling{settle: c.settle, groups: !c.skipGroups}
	ticker := time.NewTicker(c.interval)
	defer ticker.Stop()
	for {
		m, err := selectedOf(ctx, c.g, c.mirror, &c.selection)
		var refused *answerError
		switch {
		case err == nil:
			done, err := watch.look(m, time.Now())
			if done || err != nil {
				return err
			}
			c.say("%s", watch.status)
		case errors.As(err, &refused) && !passing(refused.Code):
			return err
		case ctx.Err() == nil:
			c.say("no answer (%v), asking again", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if c.cmd.Context().Err() != nil {
				return errors.New("it was interrupted")
			}
			return fmt.Errorf("not done within %s: %s", c.timeout, watch.why(time.Now()))
		}
	}
}

// rollBack lets everything be as before, and returns why.
func (c *cutoverRun) rollBack(why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.cmd.Context()), cutoverGrace)
	defer cancel()
	if err := c.unfence(ctx); err != nil {
		return fmt.Errorf("rolled back, the mirror goes on: %w; %w", why, err)
	}
	return fmt.Errorf("rolled back, the mirror goes on: %w", why)
}

// stop is the point of no return, and everything behind it.
func (c *cutoverRun) stop(ctx context.Context, out cutoverOutput) (cutoverOutput, error) {
	c.say("stopping")
	refused, err := stopTopics(ctx, c.cmd, c.g, c.mirror, c.topics)
	if err == nil && refused != nil {
		err = refused.Error
	}
	if err != nil {
		return out, fmt.Errorf("the stop was asked for: %w", err)
	}
	if !c.fenced.IsZero() {
		out.WritePauseMs, out.WritePauseAtLeast = time.Since(c.fenced).Milliseconds(), c.resumed
	}
	out.Outcome = "done"
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	m, err := patient(ctx, c.cmd, c.mirror, func() (describedMirror, error) { return selectedOf(ctx, c.g, c.mirror, &c.selection) })
	if err != nil {
		return out, fmt.Errorf("the topics are stopped and writable, but what became of them could not be asked: %w", err)
	}
	out.describe(m)
	if err := c.unfence(ctx); err != nil { // it means nothing any more
		c.say("%v", err)
	}
	return out, nil
}
