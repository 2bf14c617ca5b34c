package mirror

import (
	"context"
	"fmt"
	"math"
	"net"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/mirror/replication"
)

// Config is the parsed configuration of a mirror (CreateMirror's Config).
type Config struct {
	// Connection has the Kafka client properties of the source, bootstrap.servers cleaned up, to be read by
	// broker.ParseProperties. It holds secrets.
	Connection map[string]string
	raw        map[string]string // as it is stored
	unusable   error             // why this gateway cannot reach the source by it, see usableConfig
	// Bootstrap is bootstrap.servers without blanks and duplicates.
	Bootstrap []string

	TopicsInclude, TopicsExclude Patterns
	GroupsInclude, GroupsExclude Patterns
	// ACLsInclude says which ACLs of the source are synced.
	ACLsInclude ACLRules
	// TopicPropertiesExclude are patterns of the topic configs that are not taken over from the source.
	TopicPropertiesExclude Patterns
	// MetadataRefresh is the interval of the syncers beside the data.
	MetadataRefresh time.Duration
	// CutoverUntil is when producers stop waiting for the topics of a cut-over; see cutover.go.
	CutoverUntil time.Time

	// NumFetchers is the number of fetchers for each source broker.
	NumFetchers int32
	// FetchMaxWait is how long a source broker may wait for FetchMinBytes.
	FetchMaxWait  time.Duration
	FetchMinBytes int32
	// FetchMaxBytes is for one partition, FetchResponseMaxBytes for one response.
	FetchMaxBytes, FetchResponseMaxBytes int32
	// ThrottledRate is the most bytes per second that a gateway fetches for the mirror, 0 = no limit.
	ThrottledRate int64
	// MergeBatches: small batches are merged where the round trip to the destination is the limit (mirror.merge.batches).
	MergeBatches bool
	// ReplicationFactor of the topics made at the destination, -1 = the destination's default.
	ReplicationFactor int16
	// FailbackRecreate: a destination topic that diverged is saved, deleted and mirrored anew (mirror.failback.divergence).
	FailbackRecreate bool
}

// Setting documents one key of a mirror's configuration.
type Setting struct {
	Name    string
	Default string // as it would be written; empty = none
	Doc     string
	// Secret values are never logged nor returned.
	Secret bool
	// Planned: the value is checked and kept, but nothing uses it in this version.
	Planned bool
	// List: the value is a list with commas, so that it can be appended to and subtracted from.
	List bool

	// live: a change takes effect without a new connection to the source.
	live  bool
	parse func(c *Config, value string) error // nil: a connection property
}

// defaultTopicPropertiesExclude are the eight of the KIP-1279 drafts. Those that are held while mirroring are given
// the source's values when the mirroring stops, whether excluded or not.
const defaultTopicPropertiesExclude = "follower.replication.throttled.replicas,leader.replication.throttled.replicas," +
	"message.timestamp.difference.max.ms,log.message.timestamp.before.max.ms,log.message.timestamp.after.max.ms," +
	"message.timestamp.type,unclean.leader.election.enable,min.insync.replicas"

// Settings returns every key that a mirror's configuration may have, in the order in which they are documented.
func Settings() []Setting { return slices.Clone(settings) }

var settings = []Setting{
	{Name: "bootstrap.servers", Doc: "Comma-separated host:port list of the source cluster. Required.", List: true, parse: parseBootstrap},
	{Name: "security.protocol", Default: "PLAINTEXT", Doc: "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."},
	{Name: "sasl.mechanism", Doc: "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."},
	{Name: "sasl.jaas.config", Doc: "JAAS line with the credentials, as in Kafka's property files.", Secret: true},
	{Name: "sasl.oauthbearer.token.endpoint.url", Doc: "Where OAUTHBEARER tokens are fetched."},
	{Name: "ssl.truststore.type", Default: "PEM", Doc: "PEM."},
	{Name: "ssl.truststore.certificates", Doc: "Trusted certificates in PEM."},
	{Name: "ssl.truststore.location", Doc: "File with trusted certificates in PEM, on the gateway's machine."},
	{Name: "ssl.keystore.type", Default: "PEM", Doc: "PEM."},
	{Name: "ssl.keystore.location", Doc: "File with the client's private key and certificate chain in PEM, on the gateway's machine."},
	{Name: "ssl.keystore.certificate.chain", Doc: "Client certificate chain in PEM."},
	{Name: "ssl.keystore.key", Doc: "Client private key in PEM.", Secret: true},
	{Name: "ssl.endpoint.identification.algorithm", Default: "https", Doc: "https checks the broker's host name; empty does not."},
	{Name: "client.id", Default: "mirrorgate", Doc: "Client ID shown to the source, for its quotas and logs."},
	{Name: "request.timeout.ms", Default: "30000", Doc: "How long to wait for the source's answer, in milliseconds.",
		parse: checkInt(1, math.MaxInt32)},
	{Name: "mirror.topics.include", Doc: "Patterns of source topics that join the mirror by themselves; none by default.", List: true, live: true,
		parse: patterns(func(c *Config) *Patterns { return &c.TopicsInclude })},
	{Name: "mirror.topics.exclude", Default: "__.*", List: true, live: true,
		Doc:   "Patterns of topics that do not join by themselves, and of those that did, which leave again; wins over include.",
		parse: patterns(func(c *Config) *Patterns { return &c.TopicsExclude })},
	{Name: "mirror.groups.include", Default: ".*", Doc: "Patterns of consumer and share groups whose offsets are synced.", List: true, live: true,
		parse: patterns(func(c *Config) *Patterns { return &c.GroupsInclude })},
	{Name: "mirror.groups.exclude", Doc: "Patterns of groups that are left alone; wins over include.", List: true, live: true,
		parse: patterns(func(c *Config) *Patterns { return &c.GroupsExclude })},
	{Name: "mirror.acls.include", Default: "*", List: true, live: true,
		Doc:   "The ACLs to sync: * = all, none, or a list of topic, group, cluster, transactional-id, delegation-token and user, each alone or as type:pattern of the resource's name.",
		parse: func(c *Config, v string) (err error) { c.ACLsInclude, err = ParseACLRules(v); return err }},
	{Name: "mirror.topic.properties.exclude", Default: defaultTopicPropertiesExclude, List: true, live: true,
		Doc:   "Patterns of topic configs that are not taken over from the source.",
		parse: patterns(func(c *Config) *Patterns { return &c.TopicPropertiesExclude })},
	{Name: "mirror.metadata.refresh.interval.ms", Default: "30000", Doc: "Interval of what is synced beside the data.",
		parse: milliseconds(100, func(c *Config) *time.Duration { return &c.MetadataRefresh })},
	{Name: cutoverTopicsSetting, List: true, live: true, parse: parseCutoverTopics,
		Doc: "Topics of a cut-over that is under way: producers at the gateway wait for them instead of being refused. `mirrors cutover` sets it."},
	{Name: cutoverDeadlineSetting, Default: "0", live: true, parse: parseCutoverDeadline,
		Doc: "When producers stop waiting, in milliseconds since 1970. A change to `+n` is n milliseconds from now, at most an hour."},
	{Name: "mirror.num.replica.fetchers", Default: "1", Doc: "Fetchers for each source broker.",
		parse: integer(1, 64, func(c *Config) *int32 { return &c.NumFetchers })},
	{Name: "mirror.fetch.wait.max.ms", Default: "500", Doc: "How long a source broker may hold a fetch that finds too little.",
		parse: milliseconds(0, func(c *Config) *time.Duration { return &c.FetchMaxWait })},
	{Name: "mirror.fetch.min.bytes", Default: "1", Doc: "The least bytes that a fetch waits for.",
		parse: integer(0, math.MaxInt32, func(c *Config) *int32 { return &c.FetchMinBytes })},
	{Name: "mirror.fetch.max.bytes", Default: "1048576", Doc: "The most bytes of one partition in a fetch; a larger batch still passes. Where the round trip to the source takes long, it is more, up to mirror.fetch.response.max.bytes.",
		parse: integer(1, math.MaxInt32, func(c *Config) *int32 { return &c.FetchMaxBytes })},
	{Name: "mirror.fetch.response.max.bytes", Default: "10485760", Doc: "The most bytes of one fetch.",
		parse: integer(1, math.MaxInt32, func(c *Config) *int32 { return &c.FetchResponseMaxBytes })},
	{Name: "mirror.replication.throttled.rate", Default: "0", Doc: "The most bytes per second that a gateway fetches for the mirror; 0 = no limit.", live: true,
		parse: integer(0, math.MaxInt64, func(c *Config) *int64 { return &c.ThrottledRate })},
	{Name: "mirror.merge.batches", Default: "true",
		Doc:   "Merge small batches where the round trip to the destination is the limit; false keeps every batch as it is at the source, whatever that costs.",
		parse: boolean(func(c *Config) *bool { return &c.MergeBatches })},
	{Name: "replication.factor", Default: "-1", Doc: "Replication factor of the topics made at the destination; -1 = its default.", live: true,
		parse: parseReplicationFactor},
	{Name: "mirror.failback.divergence", Default: "fail", live: true,
		Doc:   "What to do with a destination topic that has records which the source never had: fail (somebody decides), or recreate (they are saved to a topic of that name with .diverged behind it, then it is deleted and mirrored anew).",
		parse: parseDivergence},
}

// settingByName finds a key of the configuration.
func settingByName(name string) (Setting, bool) {
	for _, s := range settings {
		if s.Name == name {
			return s, true
		}
	}
	return Setting{}, false
}

// liveChange reports whether a change of the configuration takes effect without a new connection to the source.
func liveChange(from, to map[string]string) bool {
	for _, s := range settings {
		before, had := from[s.Name]
		after, has := to[s.Name]
		if !s.live && (had != has || before != after) {
			return false
		}
	}
	return true
}

// CheckConfig turns the Config of a CreateMirror request into the form that is stored; a null value or an unknown key is
// INVALID_CONFIG.
func CheckConfig(raw map[string]*string) (map[string]string, *Error) {
	config := make(map[string]string, len(raw))
	for _, name := range sortedKeys(raw) {
		if _, ok := settingByName(name); !ok {
			return nil, Refuse(kerr.InvalidConfig, "unknown mirror configuration %q", name)
		}
		if raw[name] == nil {
			return nil, Refuse(kerr.InvalidConfig, "mirror configuration %s has no value", name)
		}
		config[name] = *raw[name]
	}
	parsed, err := ParseConfig(config)
	if err != nil {
		return nil, Refuse(kerr.InvalidConfig, "%s", err)
	}
	if _, err := parsed.Source(); err != nil {
		return nil, Refuse(kerr.InvalidConfig, "%s", err)
	}
	return config, nil
}

// ParseConfig reads a mirror's configuration, with the defaults of what is not in it. Errors name the key, never a
// secret. The connection properties are only collected here; broker.ParseProperties checks them.
func ParseConfig(config map[string]string) (Config, error) {
	c := Config{Connection: make(map[string]string), raw: config}
	for name := range config {
		if _, ok := settingByName(name); !ok {
			return Config{}, fmt.Errorf("unknown mirror configuration %q", name)
		}
	}
	for _, s := range settings {
		value, given := config[s.Name]
		if !given {
			value = s.Default
		}
		if s.parse != nil {
			if err := s.parse(&c, strings.TrimSpace(value)); err != nil {
				return Config{}, fmt.Errorf("mirror configuration %s: %w", s.Name, err)
			}
		}
		if s.connection() && (given || s.Name == "client.id" || s.Name == "request.timeout.ms") {
			c.Connection[s.Name] = value
		}
	}
	c.Connection["bootstrap.servers"] = strings.Join(c.Bootstrap, ",")
	return c, nil
}

// Source says how to reach the source cluster. Files that the properties name are read now.
func (c Config) Source() (broker.Config, error) {
	if c.unusable == nil {
		return broker.ParseProperties(c.Connection, nil)
	}
	refuse := func(context.Context, string, string) (net.Conn, error) { return nil, c.unusable }
	return broker.Config{Bootstrap: c.Bootstrap, DialContext: refuse}, nil
}

// usableConfig reads a stored configuration. One that this gateway cannot use (a file that is missing here, a setting of a
// later version) gives a source that does not answer, and says why: what needs no source, above all a failover, must work.
func usableConfig(stored map[string]string) (Config, error) {
	config, err := ParseConfig(stored)
	parsed := err == nil
	if parsed {
		_, err = config.Source()
	}
	if err == nil {
		return config, nil
	}
	unusable := fmt.Errorf("this gateway cannot use the mirror's configuration: %w", err)
	if !parsed {
		if config, err = ParseConfig(map[string]string{"bootstrap.servers": stored["bootstrap.servers"]}); err != nil {
			return Config{}, unusable
		}
	}
	config.unusable = unusable
	return config, nil
}

// connection reports whether the key belongs to the client properties of the source.
func (s Setting) connection() bool { return s.parse == nil || s.Name == "request.timeout.ms" }

func parseBootstrap(c *Config, value string) error {
	for _, server := range strings.Split(value, ",") {
		server = strings.TrimSpace(server)
		if server == "" || slices.Contains(c.Bootstrap, server) {
			continue
		}
		colon := strings.LastIndexByte(server, ':')
		if port, err := strconv.ParseUint(server[colon+1:], 10, 16); colon <= 0 || err != nil || port == 0 {
			return fmt.Errorf("%q is not host:port", server)
		}
		c.Bootstrap = append(c.Bootstrap, server)
	}
	if len(c.Bootstrap) == 0 {
		return fmt.Errorf("is required (host:port,… of the source cluster)")
	}
	return nil
}

func parseReplicationFactor(c *Config, value string) error {
	n, err := strconv.ParseInt(value, 10, 16)
	if err != nil || n == 0 || n < -1 {
		return fmt.Errorf("%q is neither -1 nor a positive number", value)
	}
	c.ReplicationFactor = int16(n)
	return nil
}

func parseDivergence(c *Config, value string) error {
	if value != "fail" && value != "recreate" {
		return fmt.Errorf("%q is neither fail nor recreate", value)
	}
	c.FailbackRecreate = value == "recreate"
	return nil
}

func checkInt(least, most int64) func(*Config, string) error {
	return func(_ *Config, value string) error {
		_, err := parseInt(value, least, most)
		return err
	}
}

func integer[T int32 | int64](least, most int64, field func(*Config) *T) func(*Config, string) error {
	return func(c *Config, value string) error {
		n, err := parseInt(value, least, most)
		*field(c) = T(n)
		return err
	}
}

func boolean(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, value string) error {
		if value != "true" && value != "false" {
			return fmt.Errorf("%q is neither true nor false", value)
		}
		*field(c) = value == "true"
		return nil
	}
}

func milliseconds(least int64, field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, value string) error {
		n, err := parseInt(value, least, math.MaxInt32)
		*field(c) = time.Duration(n) * time.Millisecond
		return err
	}
}

func parseInt(value string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number", value)
	}
	if n < least || n > most {
		return 0, fmt.Errorf("%d is not within %d and %d", n, least, most)
	}
	return n, nil
}

// Patterns is a list of names and anchored regular expressions (RE2), written with commas between them. An item of nothing
// but letters, digits, '.', '_' and '-' is a name, and literal: a.b is not a-b.
type Patterns []*regexp.Regexp

// ParsePatterns reads a comma-separated list; blanks around an item do not count, an empty list matches nothing.
func ParsePatterns(list string) (Patterns, error) {
	var ps Patterns
	for _, item := range strings.Split(list, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if literalName(item) {
			item = regexp.QuoteMeta(item)
		}
		re, err := regexp.Compile("^(?:" + item + ")$")
		if err != nil {
			return nil, fmt.Errorf("%q is not a regular expression (RE2): %w", item, err)
		}
		ps = append(ps, re)
	}
	return ps, nil
}

// Match reports whether any pattern matches the whole of s.
func (ps Patterns) Match(s string) bool {
	for _, re := range ps {
		if re.MatchString(s) {
			return true
		}
	}
	return false
}

func patterns(field func(*Config) *Patterns) func(*Config, string) error {
	return func(c *Config, value string) (err error) {
		*field(c), err = ParsePatterns(value)
		return err
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// checkName applies the rule for mirror names, which is Kafka's for topic names.
func checkName(name string) *Error {
	switch {
	case name == "":
		return Refuse(kerr.InvalidRequest, "the mirror name is missing")
	case name == "." || name == "..":
		return Refuse(kerr.InvalidRequest, "a mirror cannot be named %q", name)
	case len(name) > 249:
		return Refuse(kerr.InvalidRequest, "the mirror name is longer than 249 characters")
	}
	if !literalName(name) {
		return Refuse(kerr.InvalidRequest, "mirror name %q: only letters, digits, '.', '_' and '-' are allowed", name)
	}
	return nil
}

// literalName reports whether s has only what names of topics and mirrors may have.
func literalName(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r)
	}) < 0
}

// FetchOptions returns the mirror.fetch.* settings of a mirror.
func (c Config) FetchOptions() replication.FetchOptions {
	return replication.FetchOptions{
		WaitMax: c.FetchMaxWait, MinBytes: c.FetchMinBytes, MaxBytes: c.FetchMaxBytes,
		ResponseMax: c.FetchResponseMaxBytes, Fetchers: int(c.NumFetchers), MetadataRefresh: c.MetadataRefresh, ThrottledRate: c.ThrottledRate,
	}
}
