// Package harness has what the integration tests share: a gateway as a process of its own, the mirror RPCs, data
// generators and comparers.
package harness

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// stopPatience is for the end of a gateway, which has 30 s for it (--shutdown-timeout).
const stopPatience = 2 * time.Minute

// MaxBrokerID is the highest ID of a destination broker that the gateways of tests serve.
const MaxBrokerID = 5

// Gateway is a running `mirrorgate serve`.
type Gateway struct {
	// Dir has the gateway's log and data.
	Dir string
	// Port is that of the bootstrap listener; broker n is at Port + 1 + n.
	Port int

	opts        GatewayOptions
	metricsAddr string
	process     *kafkatest.Process
}

// GatewayOptions configure a gateway; only Destination is required.
type GatewayOptions struct {
	// Destination is its bootstrap list.
	Destination string
	// Listen and Advertise are loopback hosts, 127.0.0.1 by default.
	Listen, Advertise string
	// Flags are further flags of serve.
	Flags []string
	// Env are further environment variables.
	Env []string
	// NoWait: return before the gateway answers.
	NoWait bool
}

// StartGateway runs a gateway for the test and waits until it is ready. The test fails if it was not ended by the test
// and is no longer running at the end.
func StartGateway(t testing.TB, opts GatewayOptions) *Gateway {
	t.Helper()
	if opts.Listen == "" {
		opts.Listen = "127.0.0.1"
	}
	if opts.Advertise == "" {
		opts.Advertise = opts.Listen
	}
	ports, err := kafkatest.ReserveRange(MaxBrokerID + 3)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	g := &Gateway{Dir: dir, Port: ports.Numbers[0], opts: opts, metricsAddr: net.JoinHostPort(opts.Listen, strconv.Itoa(ports.Numbers[MaxBrokerID+2]))}
	t.Cleanup(func() { g.end(t); ports.Release() })
	g.Start(t)
	return g
}

func (g *Gateway) end(t testing.TB) {
	if process := g.process; process != nil {
		select {
		case <-process.Done():
			t.Errorf("the gateway ended by itself: %v", process.Err())
		default:
			g.Stop(t)
		}
	}
	for _, sign := range []string{"panic:", "fatal error:", "WARNING: DATA RACE"} {
		if _, rest, found := strings.Cut(g.Log(), "\n"+sign); found {
			lines := strings.SplitN(rest, "\n", 60)
			t.Errorf("the gateway's log has %s%s", sign, strings.Join(lines[:len(lines)-1], "\n"))
		}
	}
	if t.Failed() {
		t.Logf("end of the gateway's log (%s):\n%s", g.logFile(), lastLines(g.Log(), 40))
	}
}

// Start runs the gateway again after Kill or Stop, with the same ports and data.
func (g *Gateway) Start(t testing.TB) {
	t.Helper()
	flags := append([]string{
		"serve", "--listen", net.JoinHostPort(g.opts.Listen, strconv.Itoa(g.Port)), "--advertise", g.opts.Advertise,
		"--max-broker-id", strconv.Itoa(MaxBrokerID), "--destination", g.opts.Destination, "--data-dir", g.DataDir(),
		"--metrics", g.metricsAddr, "--broker-refresh", "1s",
	}, g.opts.Flags...)
	if !slices.Contains(flags, "--secret-key-file") && !slices.Contains(flags, "--allow-clear-secrets") {
		flags = append(flags, "--secret-key-file", g.secretKey(t))
	}
	cmd := exec.Command(Binary(t), flags...)
	cmd.Env = append(os.Environ(), g.opts.Env...)
	process, err := kafkatest.StartProcess(cmd, g.logFile())
	if err != nil {
		t.Fatal(err)
	}
	g.process = process
	if !g.opts.NoWait {
		g.WaitReady(t)
	}
}

// secretKey is a file with a key for the secrets of mirrors, the same for all gateways of tests.
func (g *Gateway) secretKey(t testing.TB) string {
	t.Helper()
	file := filepath.Join(g.Dir, "secret.key")
	if err := os.WriteFile(file, []byte(strings.Repeat("5e", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// StartNoWait is Start without waiting until it is ready.
func (g *Gateway) StartNoWait(t testing.TB) {
	t.Helper()
	wait := g.opts.NoWait
	g.opts.NoWait = true
	g.Start(t)
	g.opts.NoWait = wait
}

// WaitReady waits until the gateway says that it is ready.
func (g *Gateway) WaitReady(t testing.TB) {
	t.Helper()
	process := g.process
	Eventually(t, time.Minute, "the gateway is ready", func(ctx context.Context) error {
		select {
		case <-process.Done():
			t.Fatalf("the gateway ended: %v\n%s", process.Err(), lastLines(g.Log(), 30))
		default:
		}
		_, err := g.Get(ctx, "/readyz")
		return err
	})
}

// Kill ends the gateway with SIGKILL.
func (g *Gateway) Kill() {
	if g.process != nil {
		g.process.Kill()
		g.process = nil
	}
}

// Stop ends the gateway with SIGTERM and fails the test if the exit status is not 0: as it is not where a part did not end within
// --shutdown-timeout.
func (g *Gateway) Stop(t testing.TB) {
	t.Helper()
	process := g.process
	g.process = nil
	if process == nil {
		return
	}
	if !process.Stop(stopPatience) {
		t.Errorf("the gateway did not stop within %v of SIGTERM", stopPatience)
	} else if err := process.Err(); err != nil {
		t.Errorf("the gateway's exit after SIGTERM: %v", err)
	}
}

// Pause stops the gateway's process in its tracks (SIGSTOP), as a long pause of its machine would. Resume ends that.
func (g *Gateway) Pause(t testing.TB) { g.signal(t, syscall.SIGSTOP) }

// Resume ends a Pause.
func (g *Gateway) Resume(t testing.TB) { g.signal(t, syscall.SIGCONT) }

func (g *Gateway) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if err := g.process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// DataDir is where the gateway keeps its local state.
func (g *Gateway) DataDir() string { return filepath.Join(g.Dir, "data") }

func (g *Gateway) logFile() string { return filepath.Join(g.Dir, "log") }

// Log is all that the gateway logged, over all its starts.
func (g *Gateway) Log() string {
	log, err := os.ReadFile(g.logFile())
	if err != nil {
		return err.Error()
	}
	return string(log)
}

// Bootstrap is the host:port for clients.
func (g *Gateway) Bootstrap() string {
	return net.JoinHostPort(g.opts.Advertise, strconv.Itoa(g.Port))
}

// BrokerAddr is the host:port where clients reach a destination broker.
func (g *Gateway) BrokerAddr(id int32) string {
	return net.JoinHostPort(g.opts.Advertise, strconv.Itoa(g.Port+1+int(id)))
}

// Ports are the ports of the bootstrap listener and of all possible brokers.
func (g *Gateway) Ports() []int {
	var ports []int
	for i := range MaxBrokerID + 2 {
		ports = append(ports, g.Port+i)
	}
	return ports
}

// Client is a kgo client of the gateway that may send mirror RPCs. It is closed at the end of the test.
func (g *Gateway) Client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return Client(t, g.Bootstrap(), append([]kgo.Opt{kgo.MaxVersions(mirrormsg.Versions())}, opts...)...)
}

// Client is a kgo client that is closed at the end of the test.
func Client(t testing.TB, bootstrap string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	base := []kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.MetadataMinAge(100 * time.Millisecond)}
	client, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseAllowingRebalance)
	return client
}

// Admin is a kadm client that is closed at the end of the test.
func Admin(t testing.TB, bootstrap string) *kadm.Client {
	t.Helper()
	return kadm.NewClient(Client(t, bootstrap))
}

// Get asks the gateway's HTTP server for a path, and returns an error for any status but 200.
func (g *Gateway) Get(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.metricsAddr+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, body)
	}
	return string(body), err
}

// Metric is the sum of the series of a metric whose labels contain all of the given texts (`state="FAILED"`).
func (g *Gateway) Metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	body, err := g.Get(ctx, "/metrics")
	if err != nil {
		t.Fatalf("metrics: %v", err)
	}
	sum := 0.0
series:
	for line := range strings.Lines(body) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, label) {
				continue series
			}
		}
		fields := strings.Fields(rest[strings.LastIndexByte(rest, '}')+1:])
		value, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			t.Fatalf("metrics: %q: %v", line, err)
		}
		sum += value
	}
	return sum
}

// RSS is the resident memory of the gateway in bytes.
func (g *Gateway) RSS(t testing.TB) int64 { return g.status(t, "VmRSS:") * 1024 }

// PID is the gateway's process ID.
func (g *Gateway) PID() int { return g.process.PID }

// FDs is the number of file descriptors that the gateway has open.
func (g *Gateway) FDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", g.process.PID))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func (g *Gateway) status(t testing.TB, field string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.process.PID))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), field)
	value, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

var buildOnce = sync.OnceValues(build)

// Binary is the path of the mirrorgate binary: $MIRRORGATE_BINARY, or built from this tree once per test binary. With
// MIRRORGATE_RACE=1 it is built with the race detector.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func build() (string, error) {
	if path := os.Getenv("MIRRORGATE_BINARY"); path != "" {
		return filepath.Abs(path)
	}
	dir, err := os.MkdirTemp("", "mirrorgate-binary-")
	if err != nil {
		return "", err
	}
	binaryDir = dir
	args := []string{"build", "-o", filepath.Join(dir, "mirrorgate")}
	if os.Getenv("MIRRORGATE_RACE") == "1" {
		args = append(args, "-race")
	}
	output, err := exec.Command("go", append(args, "github.com/mirrorgate/mirrorgate/cmd/mirrorgate")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building mirrorgate: %w\n%s", err, output)
	}
	return filepath.Join(dir, "mirrorgate"), nil
}

var binaryDir string

// Main is the TestMain of packages that use the harness.
func Main(m *testing.M) int {
	defer func() {
		if binaryDir != "" {
			_ = os.RemoveAll(binaryDir)
		}
	}()
	return kafkatest.Main(m)
}

// Run runs the mirrorgate binary and returns both outputs.
func Run(t testing.TB, args ...string) (output string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	bytes, err := exec.CommandContext(ctx, Binary(t), args...).CombinedOutput()
	return string(bytes), err
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
