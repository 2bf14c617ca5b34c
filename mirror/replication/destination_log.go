package replication

import (
	"time"

	"github.com/mirrorgate/mirrorgate/appendlog"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// The destination log of a replica. There may be only one of a partition at a time, and closing one can take as long as
// a broker takes to answer; so a log that is opened behind one that is still closing waits for that as a task.

// evLogFree: the log before the one with this serial is closed. It never reaches the machine.
type evLogFree struct{ serial int }

func (evLogFree) isEvent() {}

func (p *replica) openLog() {
	p.serial++
	if p.destEnded == nil {
		p.openLogNow()
		return
	}
	ended, serial := p.destEnded, p.serial
	p.tasks.Go(func() {
		<-ended
		p.handle(evLogFree{serial: serial})
	})
}

func (p *replica) openLogNow() {
	id := appendlog.Partition{
		Topic: p.key.Topic, Partition: p.key.Partition, TopicID: p.spec.DestinationTopicID,
		ProducerID: p.spec.ProducerID,
	}
	if !p.r.cfg.KeepBatches {
		id.MergeBytes = p.spec.mergeBytes()
	}
	id.From = p.spec.From
	p.dest = p.r.cfg.openLog(id, p.spec.PastProducerIDs, logHandler{p: p, serial: p.serial})
	p.destEnded = nil
	if p.fencing {
		p.fence()
	}
}

// mergeBytes is the size up to which small batches are merged: no broker's default limits, nor those of readers, are below.
func (s PartitionSpec) mergeBytes() int {
	if s.MaxBatchBytes > 0 {
		return min(s.MaxBatchBytes, 1<<20)
	}
	return recordbatch.DefaultMaxBytes
}

// logFree: unless it was closed again while it waited.
func (p *replica) logFree(ev evLogFree) {
	if ev.serial == p.serial && p.dest == nil {
		p.openLogNow()
	}
}

func (p *replica) closeLog() {
	p.forgetPending()
	p.serial++
	p.fencing = false
	if p.dest == nil {
		return
	}
	dest, ended := p.dest, make(chan struct{})
	p.dest, p.destEnded = nil, ended
	p.tasks.Go(func() {
		dest.Close()
		close(ended)
	})
}

// fence fences the log as a task, opening it first if it is not open.
func (p *replica) fence() {
	p.fencing = true
	if p.dest == nil {
		p.openLog() // an opening that waits already is overtaken by its serial; this one comes back here
		return
	}
	dest := p.dest
	p.tasks.Go(func() { p.fenceUntilDone(dest) })
}

func (p *replica) fenceUntilDone(dest destinationLog) {
	for attempt := 1; p.ctx.Err() == nil; attempt++ {
		last, err := dest.Fence(p.ctx)
		switch {
		case err == nil:
			p.handle(evFenceDone{fence: last})
			return
		case p.ctx.Err() != nil:
			return
		}
		p.handle(evFenceTrouble{err: err})
		pause := time.NewTimer(slowBackoff(attempt))
		select {
		case <-pause.C:
		case <-p.ctx.Done():
		}
		pause.Stop()
	}
}
