package replication

import (
	"slices"

	"github.com/mirrorgate/mirrorgate/mirror/cluster"
	"github.com/mirrorgate/mirrorgate/store"
)

// SourceEpochs are the leader epochs of the source under which the records of a mirror partition were written: the
// newest few, for offsets below End. A source that is asked for the end of one (OffsetForLeaderEpoch, KIP-320) tells whether
// it still has those records.
//
// They may be older than the mirror, after a crash for instance: then they say too little, never anything wrong.
type SourceEpochs struct {
	// Epochs ascend in epoch and start. Start may be below the first mirrored record of the epoch: asking for the end of
	// a later epoch than that of a record proves less, but nothing wrong.
	Epochs []store.SourceEpoch
	End    int64
}

// mostEpochs bounds SourceEpochs. Only the last one counts unless the destination lost its tail.
const mostEpochs = 8

func (s SourceEpochs) clone() SourceEpochs {
	s.Epochs = slices.Clone(s.Epochs)
	return s
}

// note takes that the record before next is of epoch. It reports whether that is news, beyond a higher End.
func (s *SourceEpochs) note(epoch int32, next int64) bool {
	last := len(s.Epochs) - 1
	switch {
	case next <= s.End || last >= 0 && epoch < s.Epochs[last].Epoch:
		return false
	case last >= 0 && epoch == s.Epochs[last].Epoch:
		s.End = next
		return false
	}
	// Between End and next, the epoch may have begun anywhere.
	s.Epochs = append(s.Epochs, store.SourceEpoch{Epoch: epoch, Start: s.End})
	if extra := len(s.Epochs) - mostEpochs; extra > 0 {
		s.Epochs = slices.Delete(s.Epochs, 0, extra)
	}
	s.End = next
	return true
}

// truncate forgets what is known of offsets from end on: the destination lost them.
func (s *SourceEpochs) truncate(end int64) {
	s.End = min(s.End, end)
	for len(s.Epochs) > 0 && s.Epochs[len(s.Epochs)-1].Start >= end {
		s.Epochs = s.Epochs[:len(s.Epochs)-1]
	}
}

// at returns the epoch of the last record below end of which one is known, -1 if there is none, and the offset after
// that record.
func (s *SourceEpochs) at(end int64) (epoch int32, until int64) {
	until = min(end, s.End)
	for i := len(s.Epochs) - 1; i >= 0; i-- {
		if e := s.Epochs[i]; e.Start < until {
			return e.Epoch, until
		}
	}
	return -1, 0
}

// noteEpoch keeps the epochs in step with the machine.
func (p *replica) noteEpoch() {
	progress := &p.machine.progress
	if progress.next < 0 {
		return
	}
	p.epochs.truncate(progress.next)
	if progress.epoch < 0 || !p.epochs.note(progress.epoch, progress.next) {
		return
	}
	if fn := p.r.cfg.Events.SourceEpochs; fn != nil {
		fn(p.key.Topic, p.key.Partition, p.epochs.clone())
	}
}

// check carries out a doCheckSource.
func (p *replica) check(e doCheckSource) {
	f := p.r.fetcherFor(p.key, p.machine.leader.broker)
	if f == nil {
		return // the Replicator is closing
	}
	p.checked = ticket{of: f, serial: f.ticket()}
	c := offsetCheck{
		key: p.key, gen: e.gen, target: p, end: e.end, epoch: e.epoch, until: e.end, empty: e.empty, floor: p.machine.floor.floor,
		producers: append([]int64{p.spec.ProducerID}, p.spec.PastProducerIDs...),
	}
	if c.epoch < 0 {
		c.epoch, c.until = p.epochs.at(e.end)
	}
	p.r.view.check(c)
}

// ticket says over which connection of which fetcher a partition may be fetched after a check.
type ticket struct {
	of     *fetcher
	serial uint64
}

// at returns the serial that a subscription to a fetcher may use, 0 if none.
func (t ticket) at(f *fetcher) uint64 {
	if t.of != f {
		return 0
	}
	return t.serial
}

// ticket is what a check takes before it begins, and a subscription has to show: the connection that there is, or, where
// there is none, the next attempt to make one. So what is fetched comes over a connection to a broker that was there
// during the check. Serials begin at 1.
func (f *fetcher) ticket() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live {
		return f.serial
	}
	return f.serial + 1
}

func (f *fetcher) setLive(live bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live = live; live {
		f.serial++
	}
}

// turnAway takes out of a round what has no ticket for the present connection. On one that was there in the last round, only
// what is new can have none.
func (f *fetcher) turnAway() {
	f.mu.Lock()
	serial := f.serial
	f.mu.Unlock()
	if serial == f.admitted {
		for key := range f.want.changed {
			f.admit(key, serial)
		}
		return
	}
	for key := range f.want.at {
		f.admit(key, serial)
	}
	f.admitted = serial
}

func (f *fetcher) admit(key cluster.TopicPartition, serial uint64) {
	position, ok := f.want.at[key]
	if !ok || position.ticket == serial {
		return
	}
	target := f.to[key]
	f.drop(key, false)
	f.leave(key)
	target.handle(evInterrupted{gen: position.gen})
}
