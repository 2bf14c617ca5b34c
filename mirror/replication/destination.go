package replication

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/appendlog"
	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// destinationLog is what a partition needs of an appendlog.Log.
type destinationLog interface {
	Append(appendlog.Batch) error
	Fence(ctx context.Context) (last int64, err error)
	Close()
}

func openDestination(c *appendlog.Client) func(appendlog.Partition, []int64, appendlog.Handler) destinationLog {
	return func(p appendlog.Partition, past []int64, h appendlog.Handler) destinationLog {
		return c.Open(p, past, h)
	}
}

// logHandler turns the calls of one opening of a destination log into events. Those that come after the log was
// replaced are dropped by the replica, which knows the serial of the present one.
type logHandler struct {
	p      *replica
	serial int
}

var _ appendlog.Handler = logHandler{}

func (h logHandler) Ready(end int64) { h.handle(evLogReady{end: end}) }

func (h logHandler) Acked(next int64, batches, bytes int) {
	h.handle(evAcked{next: next, batches: batches, bytes: bytes})
}

func (h logHandler) Doubt(err error) { h.handle(evDoubt{err: err}) }

func (h logHandler) Fenced(last int64) { h.handle(evFenced{last: last}) }

func (h logHandler) Failed(err error) {
	ev := evLogFailed{err: err, foreign: -1}
	var foreign *appendlog.ForeignWriteError
	var sequence *appendlog.SequenceError
	_ = errors.As(err, &ev.rejected)
	switch {
	case errors.As(err, &foreign):
		ev.permanent, ev.foreign = true, foreign.Offset
	case errors.As(err, &sequence):
		ev.permanent = true
	}
	h.handle(ev)
}

func (h logHandler) handle(ev event) { h.p.handle(fromLog{serial: h.serial, event: ev}) }

// maybeRaiseLimit: a source topic can have got a higher max.message.bytes since the mirror topic was made. If that was
// it, the partition goes on at once; else it stays FAILED.
func (p *replica) maybeRaiseLimit(ev evLogFailed) {
	raise := p.r.cfg.Events.RaiseBatchLimit
	if raise == nil || p.machine.state != Failed || ev.rejected == nil || !errors.Is(ev.rejected.Err, kerr.MessageTooLarge) {
		return
	}
	p.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, sourceRequestTimeout)
		defer cancel()
		raised, err := raise(ctx, p.key.Topic, ev.rejected.Bytes)
		if err != nil {
			p.log.Warn("max.message.bytes cannot be compared with the source's", zap.Error(err))
		}
		if raised {
			p.handle(evStart{})
		}
	})
}

// fromLog is an event of an opening of the log. It never reaches the machine itself.
type fromLog struct {
	event
	serial int
}

// watchDestination looks at the starts of all partitions and compares the ends of idle ones with what was acknowledged, each
// refresh interval: a write or a deletion that went directly to a destination broker is found even if the source is
// silent (M43).
func (r *Replicator) watchDestination(ctx context.Context) {
	tick := time.NewTicker(r.cfg.Fetch.MetadataRefresh)
	defer tick.Stop()
	before := make(map[cluster.TopicPartition]int64)
	for {
		select {
		case <-tick.C:
			before = r.checkDestination(ctx, before)
		case <-ctx.Done():
			return
		}
	}
}

// checkDestination looks at the partitions, and returns where those stand that nothing is in flight for.
func (r *Replicator) checkDestination(ctx context.Context, before map[cluster.TopicPartition]int64) map[cluster.TopicPartition]int64 {
	at := make(map[cluster.TopicPartition]int64)
	var idle, all []cluster.TopicPartition
	for _, p := range r.snapshot("") {
		acked, mirroring, settled := p.standing()
		if !mirroring {
			continue
		}
		all = append(all, p.key)
		if !settled {
			continue
		}
		at[p.key] = acked
		if was, ok := before[p.key]; ok && was == acked {
			idle = append(idle, p.key)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sourceRequestTimeout)
	defer cancel()
	err := r.eachListed(ctx, all, cluster.Earliest, func(p *replica, start int64) { p.handle(evDestinationStart{start: start}) })
	if err == nil {
		err = r.eachListed(ctx, idle, cluster.Latest, func(p *replica, end int64) { p.handle(evDestinationEnd{end: end, acked: at[p.key]}) })
	}
	if err != nil {
		r.log.Info("destination logs could not be looked at", zap.Error(err))
	}
	return at
}

// eachListed asks the destination for offsets, and tells those that it knows.
func (r *Replicator) eachListed(ctx context.Context, keys []cluster.TopicPartition, timestamp int64, tell func(*replica, int64)) error {
	if len(keys) == 0 {
		return nil
	}
	offsets, err := cluster.ListOffsets(ctx, r.cfg.DestinationAdmin, keys, timestamp, cluster.ReadUncommitted)
	for key, o := range offsets {
		if p := r.lookup(key); p != nil && o.Found && o.Code == 0 && o.Offset >= 0 {
			tell(p, o.Offset)
		}
	}
	return err
}
