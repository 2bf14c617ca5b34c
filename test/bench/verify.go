package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"
)

// verifySpeed compares a mirrored topic with its source, both in the page cache.
func verifySpeed(ctx context.Context, l *lab) error {
	for _, name := range []string{"random", "json"} {
		if err := l.verifyTopic(ctx, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (l *lab) verifyTopic(ctx context.Context, name string) error {
	data, err := l.dataset(ctx, name)
	if err != nil {
		return err
	}
	g, err := l.newGateway(ctx)
	if err != nil {
		return err
	}
	defer g.end()
	if err := g.mirror(ctx, l.source.Bootstrap(), name); err != nil {
		return err
	}
	if _, err := l.watch(ctx, g.Process, "mirrorgate", name, data, forever); err != nil {
		return err
	}
	for l.round = range l.repeat {
		cmd := exec.CommandContext(ctx, l.mirrorgate, "verify", "--source", l.source.Bootstrap(), "--destination", l.destination.Bootstrap(), "--topics", name)
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		seconds := time.Since(began).Seconds()
		s := sample{Subject: name}
		s.set("MB/s", float64(data.bytes)/1e6/seconds)
		s.set("records/s", float64(data.records)/seconds)
		s.set("CPU s/GB", (cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()).Seconds()/float64(data.bytes)*1e9)
		l.keep(s)
	}
	return nil
}
