package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// wan has a mirror catch up with one partition of a source that is 100 ms away and beyond the reach of the common one.
func wan(ctx context.Context, l *lab) error {
	if err := l.clusters(ctx); err != nil {
		return err
	}
	path, err := newDelayProxy()
	if err != nil {
		return err
	}
	defer path.close()
	options := l.options(1)
	options.Advertise = map[int32]string{1: path.addr()}
	nearby := ""
	path.target.Store(&nearby)
	far, err := kafkatest.Run(ctx, filepath.Join(l.dir, "far"), options)
	if err != nil {
		return err
	}
	defer far.Close()
	target := far.BrokerAddr(1)
	path.target.Store(&target)
	data, err := l.fill(ctx, far, "wan", 1, l.records/2)
	if err != nil {
		return err
	}
	if err := readAll(ctx, far, data); err != nil {
		return err
	}
	const oneWay = 50 * time.Millisecond
	path.delay.Store(int64(oneWay))
	subjects := []subject{
		{"mirrorgate", func(ctx context.Context) (sample, error) {
			g, err := l.newGateway(ctx)
			if err != nil {
				return sample{}, err
			}
			defer g.end()
			if err := g.mirror(ctx, path.addr(), data.topic); err != nil {
				return sample{}, err
			}
			g.profile(5)
			s, err := l.watch(ctx, g.Process, "mirrorgate", data.topic, data, forever)
			if err != nil {
				return sample{}, err
			}
			g.Kill()
			return s, l.deleteTopics(ctx, l.destination, func(t string) bool { return t == data.topic })
		}},
		{"mm2", func(ctx context.Context) (sample, error) {
			m, err := l.newMM2(ctx, far, data.topic, nil)
			if err != nil {
				return sample{}, err
			}
			s, err := l.watch(ctx, m.Process, "mm2", m.topic, data, 10*time.Second)
			if err != nil {
				return sample{}, err
			}
			return s, m.end(ctx)
		}},
	}
	defer func() {
		l.admins[far].Close()
		delete(l.admins, far)
	}()
	// MirrorMaker is far from the target in every run; one look at it is enough.
	if err := l.turn(ctx, subjects); err != nil {
		return err
	}
	for l.round = 1; l.round < l.repeat; l.round++ {
		if err := l.turn(ctx, subjects[:1]); err != nil {
			return err
		}
	}
	return nil
}
