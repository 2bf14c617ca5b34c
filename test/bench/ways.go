package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// way is how clients reach the destination.
type way struct {
	name      string
	bootstrap string
	broker    string // where broker 1 is
	pid       int    // of what stands between, 0 for nothing
}

// ways returns when the topic is mirrored. They are the direct one, the gateway, and kafka-proxy if it can be had. The gateway has a live mirror: of the topic that clients
// read, so that answers must be searched for fillers, topic IDs differ, and produce requests be looked at.
func (l *lab) ways(ctx context.Context, mirrored dataset) (all []way, end func(), err error) {
	broker := l.destination.BrokerAddr(1)
	all = append(all, way{name: "direct", bootstrap: l.destination.Bootstrap(), broker: broker})
	g, err := l.newGateway(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err = g.mirror(ctx, l.source.Bootstrap(), mirrored.topic); err == nil {
		_, err = l.watch(ctx, g.Process, "mirrorgate", mirrored.topic, mirrored, forever)
	}
	if err != nil {
		g.end()
		return nil, nil, err
	}
	all = append(all, way{name: "gateway", bootstrap: g.bootstrap, broker: g.broker, pid: g.PID})
	end = g.end
	l.profiled = g
	if proxy, err := l.kafkaProxyWay(ctx, broker); err == nil {
		all = append(all, proxy)
	} else {
		fmt.Printf("  without kafka-proxy: %v\n", err)
	}
	return all, end, nil
}

// kafkaProxyVersion is what is compared with.
const kafkaProxyVersion = "v0.4.3"

func (l *lab) kafkaProxyWay(ctx context.Context, broker string) (way, error) {
	binary, err := l.kafkaProxyBinary(ctx)
	if err != nil {
		return way{}, err
	}
	ports, err := kafkatest.ReservePorts(1)
	if err != nil {
		return way{}, err
	}
	dir, err := l.folder()
	if err != nil {
		return way{}, err
	}
	listen := fmt.Sprintf("127.0.0.1:%d", ports.Numbers[0])
	process, err := kafkatest.StartProcess(exec.Command(binary, "server", "--http-disable", "--log-level", "warning",
		"--bootstrap-server-mapping", broker+","+listen, "--dynamic-listeners-disable"), filepath.Join(dir, "kafka-proxy.log"))
	if err != nil {
		return way{}, err
	}
	l.started(process)
	return way{name: "kafka-proxy", bootstrap: listen, broker: listen, pid: process.PID}, nil
}

// kafkaProxyBinary builds it where nobody has yet. It is not part of this module, whose dependencies would not fit.
func (l *lab) kafkaProxyBinary(ctx context.Context) (string, error) {
	if l.kafkaProxy != "" {
		return l.kafkaProxy, nil
	}
	cache, err := kafkatest.CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "kafka-proxy-"+kafkaProxyVersion)
	binary := filepath.Join(dir, "kafka-proxy")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	install := exec.CommandContext(ctx, "go", "install", "github.com/grepplabs/kafka-proxy@"+kafkaProxyVersion)
	install.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go install (or name a binary with --kafka-proxy): %w", errors.Join(err, errors.New(string(out))))
	}
	return binary, nil
}
