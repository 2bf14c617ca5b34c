package main

import (
	"fmt"
	"maps"
	"time"
)

// settling decides when a mirror may be cut over, from one look at it after the other: every partition is mirrored to the end,
// the source's logs have stood still for the time of settle, as the gateway has heard since, and the groups have been synced
// twice since then (the first of the two may have begun before).
//
// It is pure: the time comes with each look.
type settling struct {
	settle time.Duration
	// groups: wait for group syncs.
	groups bool

	ends   map[string]int64 // of the source, by partition
	whole  bool             // nothing was missing at the last look
	since  time.Time        // when all was first seen as it is, with nothing missing
	cycles int64            // of group syncs then
	moved  string           // the partition whose source end moved last
	at     time.Time        // when that was seen
	lag    int64            // as of the last look; -1 if it is not known of some partition
	status string
}

// look takes what a mirror looks like now. An error means that it cannot be cut over.
func (s *settling) look(m describedMirror, now time.Time) (done bool, err error) {
	ends := make(map[string]int64)
	heard, waits := now, ""
	s.lag = 0
	for _, topic := range m.Topics {
		for _, p := range topic.Partitions {
			name := fmt.Sprintf("%s partition %d", topic.Name, p.Partition)
			switch p.State {
			case "STOPPING", "STOPPED":
				continue // by an earlier cut-over
			case "FAILED", "PAUSED":
				return false, fmt.Errorf("%s is %s: %s", name, p.State, orNoReason(p.Reason))
			}
			ends[name] = p.SourceOffset
			heard = earlier(heard, now.Add(-time.Duration(p.SourceAgeMs)*time.Millisecond))
			switch {
			case p.State != "MIRRORING":
				waits = name + " is " + p.State
			case p.Lag < 0 || p.SourceAgeMs == 0:
				waits = name + ": the source has not been heard"
			case p.Lag > 0 && waits == "" && p.Reason != "":
				waits = name + ": " + p.Reason
			}
			if p.Lag < 0 || s.lag < 0 {
				s.lag = -1
			} else {
				s.lag += p.Lag
			}
		}
	}
	s.notice(ends, now)
	cycles := cyclesOf(m)
	whole := s.lag == 0 && waits == ""
	if !whole || !s.whole || !maps.Equal(s.ends, ends) || cycles < s.cycles { // fewer: the gateway started anew
		s.ends, s.since, s.cycles = ends, now, cycles
	}
	s.whole = whole
	quiet, synced := heard.Sub(s.since), cycles-s.cycles
	switch {
	case s.lag > 0:
		s.status = fmt.Sprintf("lag %d", s.lag)
	default:
		s.status = fmt.Sprintf("caught up; the source has stood still for %s of %s", max(0, quiet).Round(time.Second), s.settle)
		if s.groups {
			s.status += fmt.Sprintf(", %d of 2 group syncs", min(2, synced))
		}
	}
	if waits != "" {
		s.status += "; " + waits
	}
	return whole && quiet >= s.settle && (!s.groups || synced >= 2), nil
}

// notice remembers which partition of the source moved last.
func (s *settling) notice(ends map[string]int64, now time.Time) {
	for name, end := range ends {
		if before, ok := s.ends[name]; ok && before >= 0 && before != end {
			s.moved, s.at = name, now
		}
	}
}

// why says what a cut-over waits for that has waited for too long.
func (s *settling) why(now time.Time) string {
	switch {
	case s.moved != "" && now.Sub(s.at) < 2*s.settle+time.Second:
		return fmt.Sprintf("somebody still writes to the source: the end of %s moved %s ago", s.moved, now.Sub(s.at).Round(100*time.Millisecond))
	case s.status == "":
		return "the gateway did not answer"
	}
	return s.status
}

// cyclesOf is how many whole group syncs a mirror has had.
func cyclesOf(m describedMirror) int64 {
	for _, sync := range m.Syncs {
		if sync.Sync == "groups" {
			return sync.Cycles
		}
	}
	return 0
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
