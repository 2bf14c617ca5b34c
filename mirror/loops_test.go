package mirror

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLoopText(t *testing.T) {
	chain := func(text ...string) (links []Link) {
		for i := 0; i < len(text); i += 2 {
			links = append(links, Link{ClusterID: text[i], Mirror: text[i+1]})
		}
		return links
	}
	for _, tt := range []struct {
		name  string
		first Link
		rest  []Link
		want  string // the way
	}{
		{"one mirror", Link{"B", "b2a"}, nil, ""},
		{"a chain without a loop", Link{"B", "b2a"}, chain("C", "c2b", "D", "d2c"), ""},
		{"there and back", Link{"B", "b2a"}, chain("A", "a2b"), "A -(mirror a2b)-> B -(mirror b2a)-> A;"},
		{"three clusters", Link{"C", "c2a"}, chain("B", "b2c", "A", "a2b"), "A -(mirror a2b)-> B -(mirror b2c)-> C -(mirror c2a)-> A;"},
		{"what is behind the loop repeats it", Link{"B", "b2a"}, chain("A", "a2b", "B", "b2a", "A", "a2b"), "A -(mirror a2b)-> B -(mirror b2a)-> A;"},
		{"a loop of others", Link{"B", "b2a"}, chain("C", "c2b", "B", "b2c", "A", "?"), ""},
		{"clusters without IDs are not the same", Link{"", "x"}, chain("", "y", "", "z"), ""},
		{"the source itself", Link{"A", "a2a"}, nil, "A -(mirror a2a)-> A;"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := loopText("t", joinChain(tt.first, tt.rest, "A"), "A")
			if tt.want == "" {
				require.Empty(t, got)
				return
			}
			require.Contains(t, got, tt.want)
		})
	}
	require.Empty(t, loopText("t", chain("", "x"), ""), "an unknown destination is not an unknown source")
}

// Two gateways in a loop tell each other what they were told, for ever: the chain must not grow.
func TestChainsDoNotGrow(t *testing.T) {
	var a, b []Link // what A's and B's gateways tell of the topic
	for range 10 {
		a, b = joinChain(Link{"B", "b2a"}, b, "A"), joinChain(Link{"A", "a2b"}, a, "B")
	}
	require.Equal(t, []Link{{"B", "b2a"}, {"A", "a2b"}}, a)
	require.Equal(t, []Link{{"A", "a2b"}, {"B", "b2a"}}, b)

	var long []Link
	for i := range 100 {
		long = joinChain(Link{fmt.Sprint(i), "m"}, long, "")
	}
	require.Len(t, long, longestChain)
}
