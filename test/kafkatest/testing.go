package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// SkipVariable is the environment variable that skips the tests that need real Kafka.
const SkipVariable = "MIRRORGATE_SKIP_KAFKA"

// Require fails the test where Java or the jars of the version cannot be had, or skips it where the environment asks
// for that.
func Require(t testing.TB, version string) {
	t.Helper()
	if os.Getenv(SkipVariable) == "1" {
		t.Skipf("skipped: needs real Kafka, and %s=1 is set", SkipVariable)
	}
	if _, err := Java(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	if _, err := Jars(ctx, version); err != nil {
		t.Fatal(err)
	}
}

// Start runs a cluster for one test. It is killed and its files are removed when the test ends; if the test failed, the
// ends of the brokers' logs are shown.
func Start(t testing.TB, opts Options) *Cluster {
	t.Helper()
	version := opts.Version
	if version == "" {
		version = DefaultVersion
	}
	Require(t, version)
	c, err := Run(t.Context(), filepath.Join(t.TempDir(), "kafka"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if t.Failed() {
			t.Logf("ends of the brokers' logs:\n%s", c.LogTails(15))
		}
	})
	return c
}

type shared struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

var (
	sharedMu  sync.Mutex
	sharedAll = map[string]*shared{}
	sharedDir string
)

// Shared returns a cluster that all tests of the binary with the same options share, started by the first that asks.
// Tests must use topics and groups of their own, and leave its brokers running. TestMain must call Main, which removes
// the clusters' files; the brokers die with the test binary in any case.
func Shared(t testing.TB, name string, opts Options) *Cluster {
	t.Helper()
	opts, err := opts.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	Require(t, opts.Version)
	sharedMu.Lock()
	key := name + "\n" + opts.key()
	s := sharedAll[key]
	if s == nil {
		s = &shared{}
		sharedAll[key] = s
	}
	if sharedDir == "" {
		sharedDir, err = os.MkdirTemp("", "mirrorgate-kafka-")
	}
	dir := filepath.Join(sharedDir, fmt.Sprint(len(sharedAll)))
	sharedMu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	s.once.Do(func() { s.cluster, s.err = Run(context.Background(), dir, opts) })
	if s.err != nil {
		t.Fatal(s.err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("ends of the shared brokers' logs:\n%s", s.cluster.LogTails(15))
		}
	})
	return s.cluster
}

// Main runs the tests of a binary that uses Shared, then ends the shared clusters and removes their files:
//
//	func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }
func Main(m *testing.M) int {
	code := m.Run()
	sharedMu.Lock()
	defer sharedMu.Unlock()
	for _, s := range sharedAll {
		if s.cluster != nil {
			s.cluster.Close()
		}
	}
	if sharedDir != "" {
		if err := os.RemoveAll(sharedDir); err != nil && !errors.Is(err, os.ErrNotExist) {
			fmt.Fprintln(os.Stderr, "kafkatest:", err)
		}
	}
	return code
}
