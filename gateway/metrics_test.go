package gateway

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/mirrorgate/mirrorgate/appendlog"
	"github.com/mirrorgate/mirrorgate/handlers"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/mirror/replication"
	"github.com/mirrorgate/mirrorgate/proxy"
	"github.com/mirrorgate/mirrorgate/proxy/tunnel"
	"github.com/mirrorgate/mirrorgate/store"
)

const metricsReference = "../docs/metrics.md"

// TestMetricsReference compares docs/metrics.md with the code. With -update the table is written anew.
func TestMetricsReference(t *testing.T) {
	have, err := os.ReadFile(metricsReference)
	require.NoError(t, err)
	want := replaceTable(t, string(have), "metrics", metricsTable(t))
	if *update {
		require.NoError(t, os.WriteFile(metricsReference, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(have), "run go test ./gateway -run TestMetricsReference -update")
}

var descText = regexp.MustCompile(`fqName: "([^"]+)", help: "(.*?)", (?:unit: "[^"]*", )?constLabels: .*variableLabels: \{([^}]*)\}`)

func metricsTable(t *testing.T) string {
	registry := prometheus.NewRegistry()
	proxy.NewMetrics(registry)
	handlers.NewMetrics(registry)
	store.NewMetrics(registry)
	appendlog.NewMetrics(registry)
	replication.NewMetrics(registry)
	mirror.NewManagerMetrics(registry)
	tunnel.NewMetrics(registry)
	descs := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descs)
		close(descs)
	}()
	var rows []string
	for desc := range descs {
		found := descText.FindStringSubmatch(desc.String())
		require.NotNil(t, found, desc.String())
		require.NotEmpty(t, found[2], "%s has no help", found[1])
		labels := strings.ReplaceAll(found[3], ",", ", ")
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", found[1], labels, strings.ReplaceAll(found[2], `\"`, `"`)))
	}
	slices.Sort(rows)
	return "| metric | labels | meaning |\n|---|---|---|\n" + strings.Join(rows, "")
}
