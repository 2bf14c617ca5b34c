package main

import (
	"fmt"
)

// target is what a subject must reach: so many times a peer's value in the same round, or a number by itself.
type target struct {
	benchmark, subject, value string
	atMost                    bool // else at least
	number                    float64
	peer                      string // of the same benchmark; "" = the number itself
}

const (
	atLeast = false
	atMost  = true
)

// targets are those of the project; docs/performance.md says more of each.
var targets = []target{
	{"catchup-random", "mirrorgate", "MB/s", atLeast, 4, "mm2"},
	{"catchup-random", "mirrorgate", "MB/s", atLeast, 0.9, "raw"},
	{"catchup-random", "mirrorgate", "CPU s/GB", atMost, 1. / 15, "mm2"},
	{"catchup-random", "mirrorgate", "peak MB", atMost, 1. / 15, "mm2"},
	{"catchup-random", "mirrorgate", "peak MB", atMost, 150, ""},
	{"catchup-json", "mirrorgate", "MB/s", atLeast, 6, "mm2"},
	{"catchup-json", "mirrorgate", "MB/s", atLeast, 0.9, "raw"},
	{"catchup-json", "mirrorgate", "CPU s/GB", atMost, 1. / 15, "mm2"},
	{"catchup-json", "mirrorgate", "peak MB", atMost, 1. / 15, "mm2"},
	{"catchup-json", "mirrorgate", "peak MB", atMost, 150, ""},
	{"tiny", "mirrorgate", "records/s", atLeast, 5, "mm2"},
	{"wan", "mirrorgate", "MB/s", atLeast, 50, ""},
	{"latency", "mirrorgate", "p50 ms", atMost, 0.5, "mm2"},
	{"latency", "mirrorgate", "p99 ms", atMost, 0.5, "mm2"},
	{"idle", "mirrorgate", "CPU %", atMost, 5, ""},
	{"idle", "mirrorgate", "resident MB", atMost, 300, ""},
	{"idle", "mirrorgate", "slowest new record s", atMost, 1, ""},
	{"idle", "mirrorgate", "start s", atMost, 30, ""},
	{"client", "gateway", "produce MB/s", atLeast, 0.95, "direct"},
	{"client", "gateway", "consume MB/s", atLeast, 0.95, "direct"},
	{"client", "gateway", "produce CPU s/GB", atMost, 1, "kafka-proxy"},
	{"client", "gateway", "consume CPU s/GB", atMost, 1, "kafka-proxy"},
	{"small", "gateway", "added p50 ms", atMost, 0.10, ""},
	{"small", "gateway", "added p50 ms", atMost, 1, "kafka-proxy"},
	{"gap", "mirrorgate", "M offsets/s", atLeast, 10, ""},
	{"verify", "random", "MB/s", atLeast, 300, ""},
}

// verdict is a target with what was measured.
type verdict struct {
	Benchmark string  `json:"benchmark"`
	Wanted    string  `json:"wanted"`
	Measured  float64 `json:"measured"` // a ratio where a peer is named
	Peer      string  `json:"peer,omitempty"`
	Known     bool    `json:"known"`
	Met       bool    `json:"met"`
}

// judge takes the median over the rounds, of the ratio within each round where there is a peer.
func (t target) judge(samples []sample) verdict {
	v := verdict{Benchmark: t.benchmark, Peer: t.peer, Wanted: fmt.Sprintf("%s %s %s", t.value, sign(t.atMost), trim(t.number))}
	if t.peer != "" {
		v.Wanted = fmt.Sprintf("%s %s %s × %s", t.value, sign(t.atMost), trim(t.number), t.peer)
	}
	var found []float64
	for _, s := range of(samples, t.benchmark, t.subject) {
		number, ok := s.get(t.value)
		if !ok {
			continue
		}
		if t.peer == "" {
			found = append(found, number)
			continue
		}
		for _, peer := range of(samples, t.benchmark, t.peer) {
			if other, ok := peer.get(t.value); ok && peer.Round == s.Round && other > 0 {
				found = append(found, number/other)
			}
		}
	}
	if len(found) == 0 {
		return v
	}
	v.Known, v.Measured = true, median(found)
	v.Met = v.Measured >= t.number
	if t.atMost {
		v.Met = v.Measured <= t.number
	}
	return v
}

func (v verdict) mark() string {
	switch {
	case !v.Known:
		return "?"
	case v.Met:
		return "met"
	}
	return "NOT MET"
}

func (v verdict) found() string {
	switch {
	case !v.Known:
		return "not measured"
	case v.Peer != "":
		return format(v.Measured) + " ×"
	}
	return format(v.Measured)
}

func sign(atMost bool) string {
	if atMost {
		return "≤"
	}
	return "≥"
}

func trim(number float64) string {
	if number < 0.1 {
		return fmt.Sprintf("1/%.0f", 1/number)
	}
	return fmt.Sprintf("%g", number)
}
