package layout_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/handlers/layout/layouttest"
)

// eachVersion runs test for every message of the tables at every version that Kafka has.
func eachVersion(t *testing.T, test func(t *testing.T, m *layout.Message, v int16)) {
	for key := range layout.Keys {
		for _, m := range []*layout.Message{layout.Request(key), layout.Response(key)} {
			require.NotNil(t, m, "API key %d", key)
			for v := m.Versions.From; v < m.Versions.Until; v++ {
				t.Run(fmt.Sprintf("%s/v%d", m.Name, v), func(t *testing.T) { test(t, m, v) })
			}
		}
	}
}

// walk returns the spots of a body as layouttest has them.
func walk(m *layout.Message, b []byte, at int, v int16) (spots []layout.Spot, end int, err error) {
	end, err = m.Walk(b, at, v, func(s layout.Spot) error {
		if s.Start < s.Field || s.End < s.Start || s.End > len(b) {
			return fmt.Errorf("spot out of place: %+v", s)
		}
		if s.Mark == layout.TagSize || s.Mark == layout.TagEnd {
			return nil
		}
		s.Field, s.Start, s.End = 0, s.Start-at, s.End-at
		spots = append(spots, s)
		return nil
	})
	return spots, end, err
}

func TestWalkFindsWhatWasWritten(t *testing.T) {
	eachVersion(t, func(t *testing.T, m *layout.Message, v int16) {
		g := &layouttest.Generator{Rand: rand.New(rand.NewPCG(uint64(m.Key), uint64(v)))}
		for range 30 {
			prefix := g.Rand.IntN(20)
			b := g.Append(make([]byte, prefix), m, v)
			spots, end, err := walk(m, b, prefix, v)
			require.NoError(t, err)
			require.Equal(t, len(b), end)
			require.ElementsMatch(t, g.Spots, spots)
		}
	})
}

func TestWalkOfTruncatedMessages(t *testing.T) {
	eachVersion(t, func(t *testing.T, m *layout.Message, v int16) {
		g := &layouttest.Generator{Rand: rand.New(rand.NewPCG(uint64(m.Key), uint64(v)))}
		b := g.Append(nil, m, v)
		for n := range min(len(b), 2000) {
			_, _, err := walk(m, b[:n:n], 0, v)
			require.ErrorIs(t, err, layout.ErrTruncated, "%d of %d bytes", n, len(b))
		}
	})
}

func TestWalkOfDamagedMessages(t *testing.T) {
	eachVersion(t, func(t *testing.T, m *layout.Message, v int16) {
		g := &layouttest.Generator{Rand: rand.New(rand.NewPCG(uint64(m.Key), uint64(v)))}
		for range 20 {
			b := g.Append(nil, m, v)
			for range min(len(b), 5) {
				b[g.Rand.IntN(len(b))] = byte(g.Rand.Uint32())
				_, end, err := walk(m, b, 0, v) // must come back, and stay inside
				if err == nil {
					require.LessOrEqual(t, end, len(b))
				}
			}
		}
	})
}

func TestWalkOfUnknownVersion(t *testing.T) {
	m := layout.Request(1)
	for _, v := range []int16{-1, m.MaxVersion() + 1, 0x7fff} {
		_, err := m.Walk(make([]byte, 100), 0, v, nil)
		require.ErrorIs(t, err, layout.ErrVersion)
	}
}

func TestWalkDoesNotAllocate(t *testing.T) {
	g := &layouttest.Generator{Rand: rand.New(rand.NewPCG(1, 2))}
	m := layout.Response(1)
	b := g.Append(nil, m, 16)
	n := 0
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := m.Walk(b, 0, 16, func(s layout.Spot) error { n += int(s.Mark); return nil }); err != nil {
			t.Fatal(err)
		}
	})
	require.LessOrEqual(t, allocs, 1.0) // the interface key of the plan
}

func FuzzWalk(f *testing.F) {
	for _, key := range []int16{0, 1, 3, 9, 10, 19, 55, 68, 75, 78, 88, 89} {
		for i, m := range []*layout.Message{layout.Request(key), layout.Response(key)} {
			g := &layouttest.Generator{Rand: rand.New(rand.NewPCG(uint64(key), 7))}
			f.Add(key, i == 1, m.MaxVersion(), g.Append(nil, m, m.MaxVersion()))
		}
	}
	f.Fuzz(func(t *testing.T, key int16, response bool, v int16, body []byte) {
		m := layout.Request(key)
		if response {
			m = layout.Response(key)
		}
		if m == nil {
			return
		}
		_, end, err := walk(m, body, 0, v)
		if err == nil && end > len(body) {
			t.Fatalf("walked to %d of %d", end, len(body))
		}
	})
}
