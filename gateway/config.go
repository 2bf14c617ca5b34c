// Package gateway has the configuration of `mirrorgate serve` and puts all parts together: proxy, handlers, mirror
// engine, state and metrics. It is used by the command, by the demo and by tests.
package gateway

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"

	"github.com/mirrorgate/mirrorgate/proxy"
)

// Config configures a gateway. DefaultConfig has the defaults; a field without one there is zero.
type Config struct {
	// Listen is the host:port of the bootstrap listener. Port 0 picks a free one, for tests; broker ports then are free
	// ones too unless BrokerPortBase is set.
	Listen string
	// Advertise is the host that clients are told to connect to, for every listener. Empty = the host of Listen, or
	// this machine's name if that is all interfaces.
	Advertise string
	// BrokerPortBase is where the listeners of the single brokers begin: broker n is at BrokerPortBase + 1 + n. 0 = the
	// port of Listen. The range must be free and reachable for clients.
	BrokerPortBase int

	// Destination is the host:port,… of the destination cluster, where its brokers can be reached by the gateway.
	Destination string
	// DestinationConfig is a file of Kafka client properties (security, credentials) for the gateway's own connections
	// to the destination. Clients bring their own credentials. Empty = plaintext.
	DestinationConfig string
	// BrokerRefresh is how often the destination is asked for its brokers, so that those that appear or move are
	// served without a restart. Shorter finds them sooner and costs one small request each time.
	BrokerRefresh time.Duration

	// DataDir has the local view of the state; losing it costs a replay. Empty = in memory only, for tests.
	DataDir string
	// SecretKeyFile has the key that encrypts passwords in the state log: 32 bytes as 64 hex digits. All gateways of
	// a destination need the same one. Without it no mirror can be given a password or a private key.
	SecretKeyFile string
	// AllowClearSecrets lets mirrors have passwords and private keys without SecretKeyFile. They are stored as given then,
	// readable for whoever may read the state topic or the data directory.
	AllowClearSecrets bool
	// StateReplicationFactor of the state topic when it is created; -1 = the destination's default. Use 3 in production.
	StateReplicationFactor int
	// Number is this gateway's number among those of one destination. Clients see it as node 1,000,000,000 + Number.
	Number int

	// Metrics is the host:port of the HTTP server with /metrics, /healthz and /readyz. Empty = none.
	Metrics string
	// Pprof serves profiles of the process (CPU, heap, goroutines, traces) at that address too, under /debug/pprof/. Whoever
	// reaches it can slow the gateway down and see names of topics in stacks, so it is for when something is looked for.
	Pprof bool
	// LogLevel is debug, info, warn or error.
	LogLevel string
	// LogFormat is console (for people) or json.
	LogFormat string

	// MirrorMemory bounds the bytes that all mirrors together have fetched and not yet stored. More is faster over long
	// distances; when it is used up, mirrors slow down.
	MirrorMemory int64
	// APIKeys moves mirror RPCs to other API keys, by name (CreateMirror: 207), for destinations that use the default
	// ones themselves.
	APIKeys map[string]int
	// ShutdownTimeout bounds a graceful stop. What has not ended by then is abandoned.
	ShutdownTimeout time.Duration

	// TLS is how clients reach the gateway.
	TLS TLS

	// Proxy has the limits of the client path; its Listen, AdvertiseHost, BrokerPortBase and Bootstrap are set from the
	// fields above.
	Proxy proxy.Config
}

// DefaultConfig returns the defaults of every setting.
func DefaultConfig() Config {
	limits := proxy.DefaultConfig()
	limits.MaxNodeID = 999
	limits.Loops = 0 // whatever the machine has, which the reference cannot know
	return Config{
		Listen:                 "0.0.0.0:9092",
		BrokerRefresh:          10 * time.Second,
		DataDir:                "mirrorgate-data",
		StateReplicationFactor: -1,
		LogLevel:               "info",
		LogFormat:              "console",
		MirrorMemory:           64 << 20,
		ShutdownTimeout:        30 * time.Second,
		TLS:                    TLS{ClientAuth: clientAuthRequired},
		Proxy:                  limits,
	}
}

// Flags defines a flag for every setting, with the values that c has now as defaults.
func (c *Config) Flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.Listen, "listen", c.Listen, "host:port of the bootstrap listener")
	fs.StringVar(&c.Advertise, "advertise", c.Advertise, "host that clients are told to connect to (default: the host of --listen, or this machine's name)")
	fs.IntVar(&c.BrokerPortBase, "broker-port-base", c.BrokerPortBase, "broker n is served at this port + 1 + n (default: the port of --listen)")

	fs.StringVar(&c.Destination, "destination", c.Destination, "host:port[,...] of the destination cluster (required)")
	fs.StringVar(&c.DestinationConfig, "destination-config", c.DestinationConfig, "file of Kafka client properties for the gateway's own connections to the destination")
	fs.DurationVar(&c.BrokerRefresh, "broker-refresh", c.BrokerRefresh, "how often to look for brokers that appeared or moved")

	fs.StringVar(&c.DataDir, "data-dir", c.DataDir, "directory of the local view of the state; losing it costs a replay")
	fs.StringVar(&c.SecretKeyFile, "secret-key-file", c.SecretKeyFile, "file with 64 hex digits, the key for passwords in the state log; the same for all gateways")
	fs.BoolVar(&c.AllowClearSecrets, "allow-clear-secrets", c.AllowClearSecrets, "without --secret-key-file, passwords of mirrors are stored as given")
	fs.IntVar(&c.StateReplicationFactor, "state-replication-factor", c.StateReplicationFactor, "replication factor of the state topic; -1 = the destination's default")
	fs.IntVar(&c.Number, "gateway-number", c.Number, "this gateway's number among those of one destination")

	fs.StringVar(&c.Metrics, "metrics", c.Metrics, "host:port of /metrics, /healthz and /readyz (default: none)")
	fs.BoolVar(&c.Pprof, "pprof", c.Pprof, "serves profiles of the process at /debug/pprof/ of --metrics")
	fs.StringVar(&c.LogLevel, "log-level", c.LogLevel, "debug, info, warn or error")
	fs.StringVar(&c.LogFormat, "log-format", c.LogFormat, "console or json")

	fs.Int64Var(&c.MirrorMemory, "mirror-memory-bytes", c.MirrorMemory, "most bytes that all mirrors together hold")
	fs.StringToIntVar(&c.APIKeys, "api-keys", c.APIKeys, "moves mirror RPCs to other API keys, as in CreateMirror=207")
	fs.DurationVar(&c.ShutdownTimeout, "shutdown-timeout", c.ShutdownTimeout, "longest graceful stop")
	c.TLS.flags(&c.Proxy, fs)
	proxyFlags(&c.Proxy, fs)
}

func proxyFlags(p *proxy.Config, fs *pflag.FlagSet) {
	fs.IntVar(&p.AdvertisePort, "advertise-port", p.AdvertisePort, "port that clients are told for the bootstrap listener (default: the port of --listen)")
	fs.IntVar(&p.AdvertiseBrokerPortBase, "advertise-broker-port-base", p.AdvertiseBrokerPortBase, "clients are told this port + 1 + n for broker n (default: the port it is bound to)")
	fs.Int32Var(&p.MaxNodeID, "max-broker-id", p.MaxNodeID, "highest broker ID that gets a listener")
	fs.IntVar(&p.Loops, "event-loops", p.Loops, "event loops of the client path; 0 = one for each CPU")
	fs.IntVar(&p.Workers, "workers", p.Workers, "most requests that the gateway answers itself at one time")
	fs.DurationVar(&p.WorkTimeout, "work-timeout", p.WorkTimeout, "longest time for a request that the gateway answers itself")
	fs.IntVar(&p.MaxConnections, "max-connections", p.MaxConnections, "most client connections; further ones are closed at once")
	fs.Int32Var(&p.MaxFrameBytes, "max-frame-bytes", p.MaxFrameBytes, "largest request, and largest response that is held to be rewritten")
	fs.IntVar(&p.MaxInFlight, "max-in-flight", p.MaxInFlight, "most unanswered requests of one connection; further ones wait unread")
	fs.IntVar(&p.OutboundHigh, "outbound-high-bytes", p.OutboundHigh, "bytes waiting to be sent to one peer above which the other side is not read")
	fs.IntVar(&p.OutboundLow, "outbound-low-bytes", p.OutboundLow, "bytes waiting to be sent below which the other side is read again")
	fs.IntVar(&p.PendingMax, "pending-max-bytes", p.PendingMax, "received bytes waiting to be handled at which a connection is closed")
	fs.DurationVar(&p.ConnectTimeout, "connect-timeout", p.ConnectTimeout, "longest connect to a broker for a client")
	fs.DurationVar(&p.FirstByteTimeout, "first-byte-timeout", p.FirstByteTimeout, "closes a connection that sends no request header in this time")
	fs.DurationVar(&p.FrameTimeout, "frame-timeout", p.FrameTimeout, "closes a connection that stops within a request for this time")
	fs.DurationVar(&p.IdleTimeout, "idle-timeout", p.IdleTimeout, "closes a connection on which nothing moves")
	fs.DurationVar(&p.LingerTimeout, "linger-timeout", p.LingerTimeout, "longest end of a connection whose other side is gone")
}

// Validate checks what can be checked without a network. The errors name the setting.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(strings.TrimSpace(c.Destination) != "", "destination: is required (host:port of the destination cluster)")
	_, port, err := splitHostPort(c.Listen)
	check(err == nil, "listen: %q is not host:port", c.Listen)
	if c.Metrics != "" {
		_, _, err := splitHostPort(c.Metrics)
		check(err == nil, "metrics: %q is not host:port", c.Metrics)
	}
	check(!c.Pprof || c.Metrics != "", "pprof: needs metrics, the address where profiles are served")
	base := c.BrokerPortBase
	if base == 0 {
		base = port
	}
	check(c.BrokerPortBase >= 0 && base+1 <= 65535, "broker-port-base: %d leaves no room for broker ports below 65536", base)
	check(c.BrokerRefresh >= 100*time.Millisecond, "broker-refresh: must be 100ms or more")
	check(c.StateReplicationFactor == -1 || c.StateReplicationFactor > 0 && c.StateReplicationFactor < 1<<15,
		"state-replication-factor: must be -1 or positive")
	check(c.Number >= 0 && c.Number < 1_000_000_000, "gateway-number: must be within 0 and 999999999")
	check(c.MirrorMemory >= 1<<20, "mirror-memory-bytes: must be 1048576 or more")
	check(c.ShutdownTimeout > 0, "shutdown-timeout: must be positive")
	_, err = zapcore.ParseLevel(c.LogLevel)
	check(err == nil, "log-level: %q is not debug, info, warn or error", c.LogLevel)
	check(c.LogFormat == "console" || c.LogFormat == "json", "log-format: %q is neither console nor json", c.LogFormat)
	for name, key := range c.APIKeys {
		check(key >= 0 && key <= math.MaxInt16, "api-keys: %s=%d is not within 0 and 32767", name, key)
	}
	if _, _, err := net.SplitHostPort(c.Advertise); err == nil {
		check(false, "advertise: %q must be a host without a port; see advertise-port", c.Advertise)
	}
	c.TLS.validate(check)
	return errors.Join(errs...)
}

// splitHostPort splits host:port with a number for a port.
func splitHostPort(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseUint(text, 10, 16)
	return host, int(n), err
}
