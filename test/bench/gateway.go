package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// mirrorName is the one mirror of each gateway.
const mirrorName = "bench"

// gateway is a running `mirrorgate serve` with a state of its own.
type gateway struct {
	*kafkatest.Process
	lab       *lab
	bootstrap string
	broker    string // the listener for the destination's broker 1
	metrics   string
	ports     *kafkatest.Ports
	dir       string
	client    *kgo.Client
}

// newGateway starts a gateway in front of the common destination and waits until it is ready. The destination forgets what earlier
// gateways left there, and the caller ends it.
func (l *lab) newGateway(ctx context.Context) (*gateway, error) {
	if err := l.deleteTopics(ctx, l.destination, func(topic string) bool { return topic == "__mirror_state" }); err != nil {
		return nil, err
	}
	dir, err := l.folder()
	if err != nil {
		return nil, err
	}
	const brokers = 1
	ports, err := kafkatest.ReserveRange(brokers + 3)
	if err != nil {
		return nil, err
	}
	address := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports.Numbers[i]) }
	g := &gateway{lab: l, dir: dir, ports: ports, bootstrap: address(0), broker: address(2), metrics: address(3)}
	if g.client, err = kgo.NewClient(kgo.SeedBrokers(g.bootstrap), kgo.MaxVersions(mirrormsg.Versions())); err != nil {
		return nil, err
	}
	return g, g.start(ctx)
}

// start runs the process, again after it was ended, with the same state.
func (g *gateway) start(ctx context.Context) error {
	args := []string{"serve", "--listen", g.bootstrap, "--advertise", "127.0.0.1", "--max-broker-id", "1", "--metrics", g.metrics,
		"--destination", g.lab.destination.Bootstrap(), "--data-dir", filepath.Join(g.dir, "data"), "--log-level", "warn"}
	if g.lab.profiles != "" {
		args = append(args, "--pprof")
	}
	process, err := kafkatest.StartProcess(exec.Command(g.lab.mirrorgate, args...), filepath.Join(g.dir, "mirrorgate.log"))
	if err != nil {
		return err
	}
	g.Process = process
	g.lab.started(process)
	return g.until(ctx, 20*time.Millisecond, "the gateway is ready", func() (bool, error) {
		_, err := g.get("/readyz")
		return err == nil, err
	})
}

// end kills the gateway; nothing of it is needed any more.
func (g *gateway) end() {
	g.Kill()
	g.client.Close()
	g.ports.Release()
}

// until waits for something that the process must live for, and looks at every interval.
func (g *gateway) until(ctx context.Context, interval time.Duration, what string, f func() (bool, error)) error {
	return eventually(alive(ctx, g.Process), interval, what, f)
}

func (g *gateway) get(path string) (string, error) {
	response, err := http.Get("http://" + g.metrics + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}

var mirroring = regexp.MustCompile(`(?m)^mirrorgate_mirror_partitions\{mirror="bench",state="MIRRORING"\} (\S+)$`)

// mirroring is the number of partitions that are in that state.
func (g *gateway) mirroring() (int, error) {
	body, err := g.get("/metrics")
	if err != nil {
		return 0, err
	}
	found := mirroring.FindStringSubmatch(body)
	if found == nil {
		return 0, nil
	}
	n, err := strconv.ParseFloat(found[1], 64)
	return int(n), err
}

// mirror makes the mirror, with topics if there are any.
func (g *gateway) mirror(ctx context.Context, source string, topics ...string) error {
	name := mirrorName
	create := mirrormsg.NewPtrCreateMirrorRequest()
	create.MirrorName = &name
	create.Config = []mirrormsg.CreateMirrorRequestConfig{{Name: "bootstrap.servers", Value: &source}}
	created, err := create.RequestWith(ctx, g.client)
	if err == nil {
		err = kerrOf(created.ErrorCode, created.ErrorMessage)
	}
	if err != nil {
		return fmt.Errorf("creating the mirror: %w\n%s", err, g.LogTail(20))
	}
	if len(topics) == 0 {
		return nil
	}
	add := mirrormsg.NewPtrAddTopicsToMirrorRequest()
	for _, topic := range topics {
		add.Topics = append(add.Topics, mirrormsg.AddTopicsToMirrorRequestTopic{TopicName: topic, MirrorName: &name})
	}
	added, err := add.RequestWith(ctx, g.client)
	if err == nil {
		err = kerrOf(added.ErrorCode, added.ErrorMessage)
	}
	if err != nil {
		return fmt.Errorf("adding topics: %w\n%s", err, g.LogTail(20))
	}
	return nil
}

// profile records the gateway's CPU profile for some seconds, from now on, if that was asked for. It does not wait.
func (g *gateway) profile(seconds int) {
	if g.lab.profiles == "" {
		return
	}
	name := filepath.Join(g.lab.profiles, fmt.Sprintf("%s-%d.pprof", g.lab.benchmark, g.lab.round))
	go func() {
		body, err := g.get(fmt.Sprintf("/debug/pprof/profile?seconds=%d", seconds))
		if err == nil {
			err = os.MkdirAll(g.lab.profiles, 0o777)
		}
		if err == nil {
			err = os.WriteFile(name, []byte(body), 0o666)
		}
		if err != nil {
			fmt.Println("profile:", err)
		}
	}()
}
