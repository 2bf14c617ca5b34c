package limits

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// TestIdleConnections: thousands of connections, most of which have been used, that do nothing cost little memory each, and no goroutine; and all
// of them work when they are needed.
func TestIdleConnections(t *testing.T) {
	g := harness.StartGateway(t, harness.GatewayOptions{Destination: fake(t, 10)})
	before, end := take(t, g), others(t, g)
	all, used := crowd(t, 1000)
	clients := make([]*client, all)
	must(t, parallel(len(clients), func(i int) (err error) {
		if clients[i], err = dial(g.BrokerAddr(0)); err == nil && i < used {
			_, err = clients[i].ask(apiVersions())
		}
		return err
	}))
	harness.Eventually(t, time.Minute, "all are there", func(context.Context) error { return sessions(t, g, before, all, all) })
	idle := take(t, g)
	each := (idle.resident - before.resident) / int64(len(clients))
	t.Logf("%d idle connections, %d of them used: %d bytes each, %v goroutines more", all, used, each, idle.goroutines-before.goroutines)
	if each > 64<<10 {
		t.Errorf("an idle connection takes %d bytes", each)
	}
	if more := idle.goroutines - before.goroutines; more > 100 {
		t.Errorf("%v goroutines for idle connections", more)
	}
	ask := func(clients []*client) {
		t.Helper()
		must(t, parallel(len(clients), func(i int) error { _, err := clients[i].ask(apiVersions()); return err }))
		for _, c := range clients {
			c.Close()
		}
	}
	ask(clients[:used])
	harness.Eventually(t, time.Minute, "their descriptors are free", func(context.Context) error { return sessions(t, g, before, 0, all-used) })
	ask(clients[used:])
	end()
	back(t, g, before)
}

// sessions says what is wrong where there are not between least and most more than before.
func sessions(t *testing.T, g *harness.Gateway, before resources, least, most int) error {
	t.Helper()
	if more := g.Metric(t, "mirrorgate_proxy_sessions") - before.sessions; more < float64(least) || more > float64(most)+1 { // one is that of others
		return fmt.Errorf("%v sessions, not %d to %d", more, least, most)
	}
	return nil
}

// TestConnectionStorm: connections come and go, many at a time: with a request, in the middle of one, without a word, and
// with a reset.
func TestConnectionStorm(t *testing.T) {
	g := harness.StartGateway(t, harness.GatewayOptions{Destination: fake(t, 10), Flags: []string{"--linger-timeout", "2s"}})
	before, end := take(t, g), others(t, g)
	must(t, parallel(2*many(t, 1000), func(i int) error {
		c, err := dial([]string{g.Bootstrap(), g.BrokerAddr(0)}[i/4%2])
		if err != nil {
			return err
		}
		defer c.Close()
		switch i % 4 {
		case 0:
			_, err = c.ask(apiVersions())
		case 1:
			_, err = c.Write(c.frame(metadata("topic-0"))[:13])
		case 2:
			_, err = c.Write(c.frame(metadata("topic-0")))
			if err == nil {
				err = c.Conn.(*net.TCPConn).SetLinger(0)
			}
		}
		return err
	}))
	end()
	back(t, g, before)
}

// TestMoreConnectionsThanAllowed: those above the limit are closed at once, and the limit is named.
func TestMoreConnectionsThanAllowed(t *testing.T) {
	g := harness.StartGateway(t, harness.GatewayOptions{Destination: fake(t, 10), Flags: []string{"--max-connections", "50"}})
	end := others(t, g)
	refused := 0
	for range 200 {
		c, err := dial(g.BrokerAddr(0))
		must(t, err)
		defer c.Close()
		if _, err := c.ask(apiVersions()); err != nil {
			refused++
		}
	}
	if refused != 151 { // the other client has one
		t.Errorf("%d of 200 connections were refused by a limit of 50, want 151", refused)
	}
	named(t, g, "max_connections", "max-connections")
	end()
}

// named checks that the log and the metric of ended connections name a limit.
func named(t *testing.T, g *harness.Gateway, reason string, words ...string) {
	t.Helper()
	if n := g.Metric(t, "mirrorgate_proxy_errors_total", fmt.Sprintf("reason=%q", reason)); n == 0 {
		t.Errorf("mirrorgate_proxy_errors_total has no %s", reason)
	}
	log := g.Log()
	for _, word := range append(words, reason) {
		if !strings.Contains(log, word) {
			t.Errorf("the log does not have %q", word)
		}
	}
}

// TestHalfOpen: peers that are silent, in the middle of a request, or that trickle it, are let go.
func TestHalfOpen(t *testing.T) {
	g := harness.StartGateway(t, harness.GatewayOptions{Destination: fake(t, 10), Flags: []string{
		// Not shorter: what stands still for as long may be this test, and then clients that do nothing wrong are closed.
		"--first-byte-timeout", "6s", "--frame-timeout", "6s", "--idle-timeout", "12s",
	}})
	before, end := take(t, g), others(t, g)
	clients := make([]*client, many(t, 300))
	must(t, parallel(len(clients), func(i int) (err error) {
		c, err := dial(g.BrokerAddr(0))
		if err != nil {
			return err
		}
		switch clients[i] = c; i % 3 {
		case 1: // in the middle of a request
			_, err = c.Write(c.frame(metadata("topic-0"))[:20])
		case 2: // idle
			_, err = c.ask(apiVersions())
		}
		return err
	}))
	must(t, parallel(len(clients), func(i int) error {
		c := clients[i]
		defer c.Close()
		must(t, c.SetReadDeadline(time.Now().Add(2*time.Minute)))
		var b [1]byte
		if _, err := c.Read(b[:]); errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
			return fmt.Errorf("kind %d was not closed: %v", i%3, err)
		}
		return nil
	}))
	named(t, g, "first_byte_timeout")
	named(t, g, "frame_timeout")
	named(t, g, "idle")
	end()
	back(t, g, before)
}

// TestManyConnects: nothing leaks over thousands of connections, one after the other.
func TestManyConnects(t *testing.T) {
	g := harness.StartGateway(t, harness.GatewayOptions{Destination: fake(t, 10)})
	connect := func(n int) {
		t.Helper()
		must(t, parallel(n, func(int) error {
			c, err := dial(g.BrokerAddr(0))
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.ask(apiVersions())
			return err
		}))
	}
	connect(500) // pools and caches have their size
	before := take(t, g)
	n := 2000
	if full {
		n = 20_000
	}
	connect(n)
	back(t, g, before)
	if grown := take(t, g).resident - before.resident; grown > 32<<20 {
		t.Errorf("memory grew by %d bytes over %d connections", grown, n)
	}
}

// TestDescriptorsRunOut: when the process may open no more, the gateway lives, and serves again when others are gone.
func TestDescriptorsRunOut(t *testing.T) {
	g := harness.StartGateway(t, harness.GatewayOptions{Destination: fake(t, 10)})
	most := uint64(g.FDs(t) + 60)
	must(t, setLimit(g.PID(), syscall.Rlimit{Cur: most, Max: most}))
	var clients []*client
	for range 100 {
		c, err := dial(g.BrokerAddr(0))
		if err == nil {
			clients = append(clients, c)
			_ = c.SetDeadline(time.Now().Add(500 * time.Millisecond))
			if _, err = c.Write(c.frame(apiVersions())); err == nil {
				_, _ = c.read(c.sent)
			}
		}
	}
	for _, c := range clients {
		c.Close()
	}
	harness.Eventually(t, time.Minute, "clients are served again", func(context.Context) error {
		c, err := dial(g.BrokerAddr(0))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.ask(apiVersions())
		return err
	})
}
