package proxy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Config is what a Server needs to know. DefaultConfig has every default; zero means what each field says.
type Config struct {
	// Listen is the address of the bootstrap listener, host:port. An empty host, 0.0.0.0 or [::] is all interfaces; port 0
	// is a free port (for tests and the demo). Broker listeners are bound to the same host. Required.
	Listen string

	// AdvertiseHost is the host that clients are told for every listener. Empty: the host in Listen if it names one
	// interface, else this machine's host name if that resolves, else 127.0.0.1. Behind NAT or in a container it must be set.
	AdvertiseHost string

	// AdvertisePort is the port that clients are told for the bootstrap listener. 0: the port it is bound to.
	AdvertisePort int

	// BrokerPortBase is where the broker listeners begin: broker n is bound to port BrokerPortBase + n. 0: the port of
	// Listen + 1; and if that port is 0 as well, every broker listener gets a free port.
	BrokerPortBase int

	// AdvertiseBrokerPortBase replaces BrokerPortBase in what clients are told, where ports are translated on the way.
	// 0: the ports the listeners are bound to.
	AdvertiseBrokerPortBase int

	// MaxNodeID is the highest broker ID that gets a listener; Advertise refuses others. It bounds the ports and
	// descriptors that a destination can make the gateway use. 0: as far as ports go (65535).
	MaxNodeID int32

	// Bootstrap are the destination's bootstrap addresses, host:port. A session of the bootstrap listener goes to one of
	// them or to any broker that has become known, in random order until one connects. Blanks around an address, empty
	// ones and repetitions do not matter. Required.
	Bootstrap []string

	// Dial opens connections to brokers. Nil: TCP. The connection must be a *net.TCPConn or *net.UnixConn, for the event
	// loop takes over its descriptor: a TLS dialer gives one end of a socket pair and copies at the other. It must
	// return when ctx ends.
	Dial func(ctx context.Context, addr string) (net.Conn, error)

	// Accept, if not nil, prepares every accepted connection (a TLS handshake) before it is put on an event loop. It runs
	// on a goroutine of its own, must return when ctx ends, and closes conn itself when it fails. An error that wraps
	// io.EOF says that the client just left, as health checks do.
	Accept func(ctx context.Context, conn net.Conn) (Accepted, error)

	// AcceptTimeout bounds one Accept. 0: 10 seconds.
	AcceptTimeout time.Duration

	// MaxAccepts bounds how many Accept run at once; further connections wait in the kernel's queue. Each costs
	// memory and, in a TLS handshake, CPU time that sessions could use. 0: 1,000.
	MaxAccepts int

	// BrokerHost, if not empty, has all brokers served at the bootstrap listener, each under a host name of its own: it
	// contains $(node_id) once. Accept says which name a client has asked for; any other name is the bootstrap. Nothing is
	// bound for brokers then, and BrokerPortBase, AdvertiseBrokerPortBase and MaxNodeID mean nothing.
	BrokerHost string

	// RequireLogin says that the brokers want SASL of clients. Then the gateway answers a client itself only after a broker
	// has answered it anything that is not part of logging in: else strangers could learn from the gateway what brokers do not tell
	// them. It costs a round trip if the first request of a connection is one that the gateway answers.
	RequireLogin bool

	// APINames names API keys that Kafka does not have, in metrics and logs.
	APINames map[int16]string

	// Loops is the number of event loops. More than one per CPU gains nothing. 0: one per CPU.
	Loops int

	// Workers bounds how many Work functions run at once, over all connections; others queue, one at most per
	// connection. 0: 64.
	Workers int

	// WorkTimeout ends the context of a Work. The connection is closed if it returns an error. 0: 5 minutes.
	WorkTimeout time.Duration

	// MaxConnections bounds client connections; more are closed at once. Each costs two descriptors, and two more for
	// each side that has TLS. 0: 50,000.
	MaxConnections int

	// MaxFrameBytes bounds a request, streamed or held, and the responses that are held to be rewritten; a larger one
	// closes the connection. Streamed responses have no limit. It should not be below the brokers' own
	// socket.request.max.bytes (100 MiB), whose error is the clearer one. 0: 128 MiB.
	MaxFrameBytes int32

	// MaxHeldBytes bounds the memory of all incomplete requests and responses that must be seen whole, over all connections;
	// the connection that would exceed it is closed. Anybody who can connect can make the gateway hold a request of
	// MaxFrameBytes. 0: 1 GiB.
	MaxHeldBytes int64

	// MaxInFlight bounds the requests of one connection that wait for their response; further ones are read when others
	// are answered. 0: 1,000.
	MaxInFlight int

	// OutboundHigh and OutboundLow are the watermarks of what waits to be written to one peer, in bytes: above the first
	// the other side is not read, below the second it is again. They bridge the milliseconds between two looks at a
	// buffer, for which the kernel has its own besides; a long path has what it needs there. 0: 1 MiB and 512 KiB.
	OutboundHigh, OutboundLow int

	// OutboundMax is the size of one peer's outbound buffer in bytes at which the connection is closed. With OutboundHigh
	// working, only held frames of enormous size come near. 0: MaxFrameBytes + OutboundHigh + 16 MiB.
	OutboundMax int

	// PendingMax is how many received bytes may wait to be taken before the connection is closed; it matters only where
	// reading cannot be paused. 0: 64 MiB.
	PendingMax int

	// ConnectTimeout bounds one attempt to connect to a broker. 0: 5 seconds.
	ConnectTimeout time.Duration

	// FirstByteTimeout closes connections that have not sent one whole request header, counted from the accept. Brokers
	// are only dialled after that. 0: 1 minute.
	FirstByteTimeout time.Duration

	// FrameTimeout closes connections that stop in the middle of a request for that long, or that send a request more
	// slowly than FrameTimeout plus its size at 16 KiB/s. 0: 1 minute.
	FrameTimeout time.Duration

	// IdleTimeout closes connections over which nothing moves in either direction. It should be above the brokers'
	// connections.max.idle.ms (10 minutes), so that they decide. 0: 15 minutes.
	IdleTimeout time.Duration

	// LingerTimeout bounds the end of a connection: how long outstanding bytes may take to leave once the other side is
	// gone. It should be longer than the fetch.max.wait.ms of clients that write and read on one connection. 0: 30 seconds.
	LingerTimeout time.Duration
}

// DefaultConfig returns a configuration in which only Listen and Bootstrap are missing.
func DefaultConfig() Config {
	return Config{
		Loops:            runtime.GOMAXPROCS(0),
		Workers:          64,
		WorkTimeout:      5 * time.Minute,
		MaxConnections:   50_000,
		MaxFrameBytes:    128 << 20,
		MaxHeldBytes:     1 << 30,
		MaxInFlight:      1000,
		OutboundHigh:     1 << 20,
		OutboundLow:      512 << 10,
		PendingMax:       64 << 20,
		ConnectTimeout:   5 * time.Second,
		FirstByteTimeout: time.Minute,
		FrameTimeout:     time.Minute,
		IdleTimeout:      15 * time.Minute,
		LingerTimeout:    30 * time.Second,
		AcceptTimeout:    10 * time.Second,
		MaxAccepts:       1000,
	}
}

func orDefault[T int | int32 | int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// complete replaces zeros by defaults and checks the rest.
func (c *Config) complete() error {
	d := DefaultConfig()
	orDefault(&c.Loops, d.Loops)
	orDefault(&c.Workers, d.Workers)
	orDefault(&c.WorkTimeout, d.WorkTimeout)
	orDefault(&c.MaxConnections, d.MaxConnections)
	orDefault(&c.MaxFrameBytes, d.MaxFrameBytes)
	orDefault(&c.MaxHeldBytes, d.MaxHeldBytes)
	orDefault(&c.MaxInFlight, d.MaxInFlight)
	orDefault(&c.OutboundHigh, d.OutboundHigh)
	orDefault(&c.OutboundLow, min(d.OutboundLow, c.OutboundHigh))
	orDefault(&c.OutboundMax, int(c.MaxFrameBytes)+c.OutboundHigh+16<<20)
	orDefault(&c.PendingMax, d.PendingMax)
	orDefault(&c.ConnectTimeout, d.ConnectTimeout)
	orDefault(&c.FirstByteTimeout, d.FirstByteTimeout)
	orDefault(&c.FrameTimeout, d.FrameTimeout)
	orDefault(&c.IdleTimeout, d.IdleTimeout)
	orDefault(&c.LingerTimeout, d.LingerTimeout)
	orDefault(&c.AcceptTimeout, d.AcceptTimeout)
	orDefault(&c.MaxAccepts, d.MaxAccepts)
	orDefault(&c.MaxNodeID, math.MaxUint16)
	if err := c.checkRanges(); err != nil {
		return err
	}
	if c.BrokerHost != "" {
		if c.Accept == nil {
			return errors.New("BrokerHost is given, but no Accept that says which name a client has asked for")
		}
		if err := CheckBrokerHost(c.BrokerHost); err != nil {
			return fmt.Errorf("BrokerHost: %w", err)
		}
	}
	bootstrap, err := cleanAddresses(c.Bootstrap)
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	c.Bootstrap = bootstrap
	return nil
}

func (c *Config) checkRanges() error {
	for _, v := range []struct {
		name     string
		v        int64
		min, max int64
	}{
		{"Loops", int64(c.Loops), 1, 256},
		{"Workers", int64(c.Workers), 1, 1 << 20},
		{"WorkTimeout", int64(c.WorkTimeout), 1, math.MaxInt64},
		{"MaxConnections", int64(c.MaxConnections), 1, math.MaxInt32},
		{"MaxFrameBytes", int64(c.MaxFrameBytes), 1024, math.MaxInt32 - 4},
		{"MaxHeldBytes", c.MaxHeldBytes, int64(c.MaxFrameBytes), math.MaxInt64},
		{"MaxInFlight", int64(c.MaxInFlight), 1, 1 << 20},
		{"OutboundHigh", int64(c.OutboundHigh), 1, math.MaxInt32},
		{"OutboundLow", int64(c.OutboundLow), 0, int64(c.OutboundHigh)},
		{"OutboundMax", int64(c.OutboundMax), int64(c.OutboundHigh), math.MaxInt64},
		{"PendingMax", int64(c.PendingMax), 1 << 20, math.MaxInt64},
		{"ConnectTimeout", int64(c.ConnectTimeout), 1, math.MaxInt64},
		{"FirstByteTimeout", int64(c.FirstByteTimeout), 1, math.MaxInt64},
		{"FrameTimeout", int64(c.FrameTimeout), 1, math.MaxInt64},
		{"IdleTimeout", int64(c.IdleTimeout), 1, math.MaxInt64},
		{"LingerTimeout", int64(c.LingerTimeout), 1, math.MaxInt64},
		{"AcceptTimeout", int64(c.AcceptTimeout), 1, math.MaxInt64},
		{"MaxAccepts", int64(c.MaxAccepts), 1, math.MaxInt32},
		{"AdvertisePort", int64(c.AdvertisePort), 0, math.MaxUint16},
		{"BrokerPortBase", int64(c.BrokerPortBase), 0, math.MaxUint16},
		{"AdvertiseBrokerPortBase", int64(c.AdvertiseBrokerPortBase), 0, math.MaxUint16},
		{"MaxNodeID", int64(c.MaxNodeID), 0, math.MaxInt32},
	} {
		if v.v < v.min || v.v > v.max {
			return fmt.Errorf("%s is %d, but must be from %d to %d", v.name, v.v, v.min, v.max)
		}
	}
	return nil
}

// cleanAddresses returns the addresses in order, without blanks, empty ones and repetitions.
func cleanAddresses(in []string) ([]string, error) {
	var out []string
	seen := make(map[string]bool, len(in))
	for _, list := range in {
		for addr := range strings.SplitSeq(list, ",") {
			addr = strings.TrimSpace(addr)
			if addr == "" || seen[addr] {
				continue
			}
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
				return nil, fmt.Errorf("%q is not host:port", addr)
			}
			seen[addr] = true
			out = append(out, addr)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no address is given")
	}
	return out, nil
}

// advertiseHost decides what clients are told when nothing is configured; see Config.AdvertiseHost.
func advertiseHost(ctx context.Context, listenHost string, bound net.IP) string {
	if bound != nil && !bound.IsUnspecified() {
		return listenHost
	}
	name, err := os.Hostname()
	if err == nil && name != "" {
		if addrs, err := net.DefaultResolver.LookupHost(ctx, name); err == nil && len(addrs) > 0 {
			return name
		}
	}
	return "127.0.0.1"
}
