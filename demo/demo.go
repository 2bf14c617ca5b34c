// Package demo shows Mirrorgate without any Kafka: two in-process clusters, a gateway between them, a producer on the
// source, a mirror made through the gateway's RPCs, and a consumer group that moves from the source to the gateway.
//
// Every record names its own offset in its value, so that each reader can tell by itself, in constant memory, whether it
// got every record once, in order and at its place.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/gateway"
	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/verify"
)

const (
	mirrorName = "demo"
	groupName  = "shop"
	partitions = 3
)

var topics = []string{"orders", "payments"}

// Options of a demonstration.
type Options struct {
	// Duration is how long records are produced; 0 = until the context ends.
	Duration time.Duration
	// Rate is how many records are produced a second.
	Rate int
	// Listen is the address of the gateway; port 0 picks free ones.
	Listen string
	// Out gets the live view and the result.
	Out io.Writer
	// Live redraws the view in place, for a terminal; otherwise a line is printed now and then.
	Live bool
	// Log gets the gateway's log; nil drops it.
	Log *zap.Logger
}

// Run runs the demonstration and returns nil only if all that was compared matched: both logs record by record, and
// what the consumer group read before and after it moved.
func Run(ctx context.Context, o Options) error {
	d := &demo{Options: o, story: newStory(o.Out, o.Live)}
	if d.Log == nil {
		d.Log = zap.NewNop()
	}
	defer d.story.close()
	if err := d.start(ctx); err != nil {
		d.stop()
		return err
	}
	defer d.stop()
	return d.play(ctx)
}

type demo struct {
	Options
	story       *story
	source      *kfake.Cluster
	destination *kfake.Cluster
	gateway     *gateway.Gateway
	gatewayDone chan error
	endGateway  context.CancelFunc
	dir         string
	admin       *kgo.Client // through the gateway
	producer    *producer
}

// start brings up both clusters and the gateway.
func (d *demo) start(ctx context.Context) (err error) {
	if d.source, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("demo-source"), kfake.SeedTopics(partitions, topics...)); err != nil {
		return fmt.Errorf("starting the source: %w", err)
	}
	if d.destination, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("demo-destination")); err != nil {
		return fmt.Errorf("starting the destination: %w", err)
	}
	if d.dir, err = os.MkdirTemp("", "mirrorgate-demo-"); err != nil {
		return fmt.Errorf("making a data directory: %w", err)
	}
	cfg := gateway.DefaultConfig()
	cfg.Listen = d.Listen
	cfg.Destination = strings.Join(d.destination.ListenAddrs(), ",")
	cfg.DataDir = d.dir
	if err = d.startGateway(ctx, cfg); err != nil {
		return err
	}
	d.story.addresses(strings.Join(d.source.ListenAddrs(), ","), cfg.Destination, d.gateway.BootstrapAddr())
	d.admin, err = kgo.NewClient(kgo.SeedBrokers(d.gateway.BootstrapAddr()), kgo.MaxVersions(mirrormsg.Versions()))
	if err != nil {
		return fmt.Errorf("making a client of the gateway: %w", err)
	}
	return nil
}

// startGateway returns when the gateway serves. The gateway outlives ctx: the end of the story needs it.
func (d *demo) startGateway(ctx context.Context, cfg gateway.Config) error {
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d.endGateway = cancel
	g, err := gateway.New(cfg, d.Log)
	if err != nil {
		return fmt.Errorf("making the gateway: %w", err)
	}
	d.gateway = g
	d.gatewayDone = make(chan error, 1)
	go func() { d.gatewayDone <- g.Run(runCtx) }()
	select {
	case <-g.Ready():
		return nil
	case err := <-d.gatewayDone:
		d.gatewayDone <- nil
		return fmt.Errorf("starting the gateway: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *demo) stop() {
	if d.producer != nil {
		d.producer.stop()
	}
	if d.admin != nil {
		d.admin.Close()
	}
	if d.gatewayDone != nil {
		d.endGateway()
		<-d.gatewayDone
	}
	for _, c := range []*kfake.Cluster{d.source, d.destination} {
		if c != nil {
			c.Close()
		}
	}
	if d.dir != "" {
		_ = os.RemoveAll(d.dir)
	}
}

// play tells the story: produce, mirror, read at the source, move, read through the gateway, compare.
func (d *demo) play(ctx context.Context) error {
	end, cancel := d.deadline(ctx)
	defer cancel()
	finish := context.WithoutCancel(ctx) // what must still happen after Ctrl-C

	var err error
	if d.producer, err = startProducer(d.source.ListenAddrs(), d.Rate); err != nil {
		return err
	}
	d.story.step("producing %d records a second to %s at the source", d.Rate, strings.Join(topics, " and "))
	if err := d.makeMirror(finish); err != nil {
		return err
	}
	d.story.step("made mirror %q through the gateway: the topics are being copied with their offsets", mirrorName)

	watch := d.watch(finish)
	defer watch.stop()
	reader := newReader()
	moved, err := d.moveGroup(end, finish, reader)
	if err != nil {
		return err
	}
	defer moved.stop()
	<-end.Done()
	d.producer.stop()
	d.story.step("stopped producing after %d records; comparing", d.producer.acked())
	return d.compare(finish, reader, moved)
}

func (d *demo) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if d.Duration == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d.Duration)
}

// makeMirror uses the RPCs that any client of the gateway would use.
func (d *demo) makeMirror(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	name := mirrorName
	create := mirrormsg.NewPtrCreateMirrorRequest()
	create.MirrorName = &name
	for key, value := range map[string]string{
		"bootstrap.servers":                   strings.Join(d.source.ListenAddrs(), ","),
		"mirror.metadata.refresh.interval.ms": "1000",
	} {
		create.Config = append(create.Config, mirrormsg.CreateMirrorRequestConfig{Name: key, Value: &value})
	}
	created, err := create.RequestWith(ctx, d.admin)
	if err == nil {
		err = refusal(created.ErrorCode, created.ErrorMessage)
	}
	if err != nil {
		return fmt.Errorf("creating the mirror: %w", err)
	}
	add := mirrormsg.NewPtrAddTopicsToMirrorRequest()
	for _, topic := range topics {
		add.Topics = append(add.Topics, mirrormsg.AddTopicsToMirrorRequestTopic{TopicName: topic, MirrorName: &name})
	}
	added, err := add.RequestWith(ctx, d.admin)
	if err == nil {
		err = refusal(added.ErrorCode, added.ErrorMessage)
	}
	if err != nil {
		return fmt.Errorf("adding topics to the mirror: %w", err)
	}
	return nil
}

func refusal(code int16, message *string) error {
	if code == 0 {
		return nil
	}
	if message == nil {
		return fmt.Errorf("error code %d", code)
	}
	return errors.New(*message)
}

// compare waits until mirror and group have everything, and compares both logs record by record.
func (d *demo) compare(ctx context.Context, r *reader, g *groupMember) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := d.producer.err(); err != nil {
		return err
	}
	if err := r.waitFor(ctx, d.producer.ends()); err != nil {
		return fmt.Errorf("waiting for the group to read everything through the gateway: %w", err)
	}
	g.stop()
	if err := r.err(); err != nil {
		return err
	}
	report, err := verify.Run(ctx, verify.Options{
		Source:      broker.Config{Bootstrap: d.source.ListenAddrs()},
		Destination: broker.Config{Bootstrap: []string{d.gateway.BootstrapAddr()}},
		Topics:      topics,
		Wait:        true,
	})
	if err != nil {
		return fmt.Errorf("verifying: %w", err)
	}
	if !report.Equal {
		return fmt.Errorf("the logs differ in %d places, the first: %+v", report.Differences, report.First)
	}
	if written := d.producer.acked(); report.Records != written || sum(r.positions()) != written {
		return fmt.Errorf("%d records were written, %d compared, %d read by the group", written, report.Records, sum(r.positions()))
	}
	d.story.step("OK: %d records, each at the same offset on both sides; the group read each exactly once", report.Records)
	return nil
}
