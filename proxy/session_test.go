package proxy

import (
	"testing"
)

func TestPassThrough(t *testing.T) {
	b := newFakeBroker(t, echo)
	s := startServer(t, b, handlerFunc{}, nil)
	c := s.dial()
	for i := range int32(3) {
		if _, err := c.Write(request(3, 1, i, []byte("hello"))); err != nil {
			t.Fatal(err)
		}
		expectFrame(t, c, i, "\x00\x01thello")
	}
}
