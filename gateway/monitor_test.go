package gateway

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
)

// TestPprof: profiles are served where they were asked for, and nowhere else.
func TestPprof(t *testing.T) {
	for _, on := range []bool{false, true} {
		noLeaks(t)
		destination := cluster(t, "destination", kfake.NumBrokers(1))
		cfg := testConfig(t, destination.ListenAddrs()[0])
		cfg.Pprof = on
		g := start(t, cfg)
		g.awaitReady(t)
		for path, contains := range map[string]string{
			"":                  "goroutine",
			"goroutine?debug=1": "goroutine profile:",
			"heap?debug=1":      "heap profile:",
			"profile?seconds=1": "\x1f\x8b", // gzip, as all profiles are
			"symbol":            "num_symbols",
			"cmdline":           "",
		} {
			status, body := get(t, "http://"+g.MonitorAddr()+"/debug/pprof/"+path)
			if !on || contains == "" {
				require.Equal(t, http.StatusNotFound, status, path)
				continue
			}
			require.Equal(t, http.StatusOK, status, path)
			require.Contains(t, body, contains, path)
		}
		require.NoError(t, g.stop())
	}
}
