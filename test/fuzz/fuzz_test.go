package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFiguresAreThoseOfTheLastLine(t *testing.T) {
	var got figures
	for _, line := range []string{
		"fuzz: elapsed: 0s, gathering baseline coverage: 0/31 completed",
		"fuzz: elapsed: 3s, execs: 120450 (40150/sec), new interesting: 4 (total: 35)",
		"fuzz: elapsed: 6s, execs: 1240007 (39850/sec), new interesting: 5 (total: 36)",
		"PASS",
	} {
		got.read(line)
	}
	require.Equal(t, figures{executions: 1_240_007, inputs: 36}, got)
}

func TestTable(t *testing.T) {
	require.Equal(t, "| fuzz test | executions | inputs | took | |\n|---|---:|---:|---:|---|\n"+
		"| `b.FuzzOne` | 1,234,567 | 9 | 20s | no crash |\n"+
		"| `c.FuzzTwo` | 10 | 1 | 1s | **failed** |\n"+
		"| all 2 | 1,234,577 | 10 | 21s | 1 failed |\n", table([]row{
		{target{pkg: "a/b", name: "FuzzOne"}, figures{1_234_567, 20 * time.Second, 9}, nil},
		{target{pkg: "a/c", name: "FuzzTwo"}, figures{10, time.Second, 1}, errors.New("crash")},
	}))
}

// The inputs that reach something new come first, the one with most before the others; then the smallest.
func TestChoose(t *testing.T) {
	of := func(name string, size int64, blocks ...string) input {
		in := input{name: name, size: size, blocks: map[string]bool{}}
		for _, block := range blocks {
			in.blocks[block] = true
		}
		return in
	}
	inputs := []input{of("large", 90, "x", "y", "z"), of("nothing", 50, "seed"), of("small", 10, "y"), of("other", 70, "w", "seed"), of("less", 40)}
	var names []string
	for _, in := range choose(inputs, map[string]bool{"seed": true}, 4) {
		names = append(names, in.name)
	}
	require.Equal(t, []string{"large", "other", "small", "less"}, names)
}

func TestBlocksOf(t *testing.T) {
	require.Equal(t, map[string]bool{"a.go:1.2,3.4": true},
		blocksOf("mode: set\na.go:1.2,3.4 5 1\na.go:9.2,10.4 2 0\n"))
}
