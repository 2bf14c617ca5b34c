package mirror

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestConfigDefaults(t *testing.T) {
	c, err := ParseConfig(map[string]string{"bootstrap.servers": " a:1, b:2,a:1,, "})
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "b:2"}, c.Bootstrap)
	require.Equal(t, map[string]string{
		"bootstrap.servers": "a:1,b:2", "client.id": "mirrorgate", "request.timeout.ms": "30000",
	}, c.Connection)
	require.Equal(t, 30*time.Second, c.MetadataRefresh)
	require.Equal(t, 500*time.Millisecond, c.FetchMaxWait)
	require.EqualValues(t, 1, c.FetchMinBytes)
	require.EqualValues(t, 1<<20, c.FetchMaxBytes)
	require.EqualValues(t, 10<<20, c.FetchResponseMaxBytes)
	require.EqualValues(t, -1, c.ReplicationFactor)
	require.Empty(t, c.TopicsInclude)
	require.True(t, c.TopicsExclude.Match("__consumer_offsets"))
	require.True(t, c.GroupsInclude.Match("any group"))
	require.False(t, c.GroupsExclude.Match("any group"))
	require.True(t, c.TopicPropertiesExclude.Match("min.insync.replicas"))
	require.Len(t, c.TopicPropertiesExclude, 8)
	require.False(t, c.FailbackRecreate)
	require.True(t, c.MergeBatches)
}

func TestConfigRefusals(t *testing.T) {
	for _, tt := range []struct{ key, value, want string }{
		{"bootstrap.servers", "", "bootstrap.servers: is required"},
		{"bootstrap.servers", "host", `"host" is not host:port`},
		{"bootstrap.servers", ":9092", "is not host:port"},
		{"bootstrap.servers", "h:0", "is not host:port"},
		{"bootstrap.servers", "h:65536", "is not host:port"},
		{"no.such", "1", `unknown mirror configuration "no.such"`},
		{"replication.factor", "0", "replication.factor"},
		{"replication.factor", "40000", "replication.factor"},
		{"mirror.fetch.max.bytes", "-1", "mirror.fetch.max.bytes"},
		{"mirror.fetch.max.bytes", "x", "is not a whole number"},
		{"mirror.num.replica.fetchers", "0", "mirror.num.replica.fetchers"},
		{"mirror.metadata.refresh.interval.ms", "1", "mirror.metadata.refresh.interval.ms"},
		{"mirror.topics.include", "a(", "is not a regular expression"},
		{"mirror.acls.include", "topics", "mirror.acls.include"},
		{"mirror.failback.divergence", "ignore", "neither fail nor recreate"},
		{"mirror.merge.batches", "yes", "neither true nor false"},
		{"request.timeout.ms", "0", "request.timeout.ms"},
	} {
		t.Run(tt.key+"="+tt.value, func(t *testing.T) {
			server := "h:1"
			raw := map[string]*string{"bootstrap.servers": &server}
			raw[tt.key] = &tt.value
			_, refusal := CheckConfig(raw)
			require.NotNil(t, refusal)
			require.Equal(t, kerr.InvalidConfig, refusal.Kafka)
			require.Contains(t, refusal.Message, tt.want)
		})
	}
	_, refusal := CheckConfig(map[string]*string{"bootstrap.servers": nil})
	require.Contains(t, refusal.Message, "bootstrap.servers has no value")
}

func TestPatternsAreAnchored(t *testing.T) {
	ps, err := ParsePatterns("a|b, orders-.*")
	require.NoError(t, err)
	require.True(t, ps.Match("b"))
	require.True(t, ps.Match("orders-1"))
	require.False(t, ps.Match("ab"))
	require.False(t, ps.Match("my-orders-1"))
}

func TestNamesAreLiteral(t *testing.T) {
	ps, err := ParsePatterns("a.b, c.d.*")
	require.NoError(t, err)
	require.True(t, ps.Match("a.b"))
	require.False(t, ps.Match("a-b"))
	require.True(t, ps.Match("c-d"), "that one is a pattern")
}

func TestMirrorNames(t *testing.T) {
	for _, good := range []string{"a", "A.b_c-9", "...", strings.Repeat("x", 249)} {
		require.Nil(t, checkName(good), good)
	}
	for _, bad := range []string{"", ".", "..", "a b", "ä", "a/b", strings.Repeat("x", 250)} {
		refusal := checkName(bad)
		require.NotNil(t, refusal, bad)
		require.Equal(t, kerr.InvalidRequest, refusal.Kafka)
	}
}
