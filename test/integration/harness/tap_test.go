package harness

import (
	"strings"
	"testing"
)

func TestTapFindsAddresses(t *testing.T) {
	for text, want := range map[string]bool{"..loc|alh|ost..": true, "x|localhost": true, "loca|_|lhost": false, "/local|host": false, "/localhost|localhost": true} {
		p := &Tap{needles: map[string][]byte{"x": []byte("localhost")}, own: []byte("never"), tails: map[[2]int64][]byte{}, leaks: map[string]string{}}
		for piece := range strings.SplitSeq(text, "|") {
			p.look([2]int64{0, 1}, []byte(piece))
			p.look([2]int64{0, 2}, []byte("ost..")) // another connection must not complete it
		}
		if got := p.leaks["x"] != ""; got != want {
			t.Errorf("%q: found %v, want %v", text, got, want)
		}
	}
}
