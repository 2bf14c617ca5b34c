package replication

import "time"

// How old what is known of the source's logs is. A fetcher's answer leaves out partitions of which nothing is new, watermarks
// included: so it confirms the watermarks of all that were asked about.

// round is the last answer of a fetcher.
type round struct {
	// asked is when the partitions that it is about were gathered.
	asked, answered instant
}

// listening is where a partition waits for news.
type listening struct {
	fetcher *fetcher // nil: nowhere
	since   instant
}

// listen notes, after a step, whether the source was heard in it, and where it will be heard next. before is machine.heard
// before the step. REQUIRES: p.mu, and the caller is the runner.
func (p *replica) listen(before uint64) {
	if p.machine.heard != before {
		p.heard = now()
	}
	p.listens = listening{}
	if p.machine.asking == askingData {
		p.listens = listening{p.fetcher, p.asked}
	}
}

// sourceAge is how old the watermarks are, -1 if there are none. REQUIRES: p.mu.
func (p *replica) sourceAge() time.Duration {
	if p.status.marks.hw < 0 {
		return -1
	}
	age := p.heard.since()
	if f := p.listens.fetcher; f != nil {
		if last := f.heard.Load(); last != nil && !last.asked.t.Before(p.listens.since.t) {
			age = min(age, last.answered.since())
		}
	}
	return age
}
