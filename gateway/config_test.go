package gateway

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/mirrorgate/mirrorgate/mirror"
)

var update = flag.Bool("update", false, "rewrite the tables of docs/configuration.md")

func flags(c *Config) *pflag.FlagSet {
	fs := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.String("config", "", "YAML file of settings")
	c.Flags(fs)
	return fs
}

func TestFileAndFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mirrorgate.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
# a comment
listen: 127.0.0.1:1234
destination: [a:1, "b:2"]
api-keys: {CreateMirror: 207}
idle-timeout: 90s
max-connections: 7
log-level: debug
`), 0o600))
	cfg := DefaultConfig()
	fs := flags(&cfg)
	require.NoError(t, fs.Parse([]string{"--log-level", "warn", "--max-connections=9"}))
	require.NoError(t, LoadFile(fs, file))
	require.Equal(t, "127.0.0.1:1234", cfg.Listen)
	require.Equal(t, "a:1,b:2", cfg.Destination)
	require.Equal(t, map[string]int{"CreateMirror": 207}, cfg.APIKeys)
	require.Equal(t, 90*time.Second, cfg.Proxy.IdleTimeout)
	require.Equal(t, "warn", cfg.LogLevel, "the command line wins")
	require.Equal(t, 9, cfg.Proxy.MaxConnections)
	require.Equal(t, DefaultConfig().DataDir, cfg.DataDir)
	require.NoError(t, cfg.Validate())
}

func TestFileErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"listen: a:1\nlissten: b:2", `line 2: unknown setting "lissten"`},
		{"config: other.yaml", `unknown setting "config"`},
		{"listen: a:1\nlisten: b:2", "already defined"},
		{"idle-timeout: soon", "line 1"},
		{"data-dir:", "has no value"},
		{"- a", "cannot unmarshal"},
	} {
		cfg := DefaultConfig()
		err := load(flags(&cfg), []byte(tt.text))
		require.ErrorContains(t, err, tt.want)
	}
	cfg := DefaultConfig()
	require.NoError(t, load(flags(&cfg), nil), "an empty file")
	require.ErrorContains(t, LoadFile(flags(&cfg), "no/such/file"), "no/such/file")
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--destination="}, "destination: is required"},
		{[]string{"--listen=nine"}, "listen:"},
		{[]string{"--metrics=:x"}, "metrics:"},
		{[]string{"--pprof"}, "pprof:"},
		{[]string{"--advertise=host:9092"}, "advertise:"},
		{[]string{"--listen=:65535"}, "broker-port-base:"},
		{[]string{"--log-level=loud"}, "log-level:"},
		{[]string{"--log-format=xml"}, "log-format:"},
		{[]string{"--api-keys=CreateMirror=70000"}, "api-keys:"},
		{[]string{"--state-replication-factor=0"}, "state-replication-factor:"},
		{[]string{"--mirror-memory-bytes=1"}, "mirror-memory-bytes:"},
		{[]string{"--broker-refresh=0s"}, "broker-refresh:"},
	} {
		cfg := DefaultConfig()
		require.NoError(t, flags(&cfg).Parse(append([]string{"--destination=a:1"}, tt.args...)))
		require.ErrorContains(t, cfg.Validate(), tt.want)
	}
}

func TestNewReadsTheFilesOfTheConfiguration(t *testing.T) {
	dir := t.TempDir()
	properties, key := filepath.Join(dir, "client.properties"), filepath.Join(dir, "key")
	cfg := DefaultConfig()
	cfg.Destination, cfg.DestinationConfig, cfg.SecretKeyFile = "a:1", properties, key
	_, err := New(cfg, nil)
	require.ErrorContains(t, err, "destination-config")
	require.NoError(t, os.WriteFile(properties, []byte("security.protocol=NOPE\n"), 0o600))
	_, err = New(cfg, nil)
	require.ErrorContains(t, err, "security.protocol")
	require.NoError(t, os.WriteFile(properties, []byte("security.protocol=SSL\nclient.id=me\n"), 0o600))
	require.NoError(t, os.WriteFile(key, []byte("abc"), 0o600))
	_, err = New(cfg, nil)
	require.ErrorContains(t, err, "secret-key-file")
	require.NoError(t, os.WriteFile(key, []byte(strings.Repeat("ab", 32)+"\n"), 0o600))
	g, err := New(cfg, nil)
	require.NoError(t, err)
	require.NotNil(t, g.destination.TLS)
	require.Equal(t, "me", g.destination.ClientID)
	require.Len(t, g.secretKey, 32)
}

const reference = "../docs/configuration.md"

// TestReference compares docs/configuration.md with the code: every setting is there with its default. With -update the
// tables are written anew.
func TestReference(t *testing.T) {
	have, err := os.ReadFile(reference)
	require.NoError(t, err)
	want := string(have)
	want = replaceTable(t, want, "gateway settings", gatewayTable())
	want = replaceTable(t, want, "mirror settings", mirrorTable())
	if *update {
		require.NoError(t, os.WriteFile(reference, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(have), "run go test ./gateway -run TestReference -update")
}

func gatewayTable() string {
	cfg := DefaultConfig()
	var b strings.Builder
	b.WriteString("| setting | default | meaning |\n|---|---|---|\n")
	flags(&cfg).VisitAll(func(f *pflag.Flag) {
		value := f.DefValue
		if value == "[]" {
			value = ""
		}
		row(&b, f.Name, value, f.Usage)
	})
	return b.String()
}

func mirrorTable() string {
	var b strings.Builder
	b.WriteString("| key | default | meaning |\n|---|---|---|\n")
	for _, s := range mirror.Settings() {
		doc := s.Doc
		if s.Secret {
			doc += " Secret: never logged, never returned."
		}
		if s.Planned {
			doc += " Checked and kept, but not used by this version yet."
		}
		row(&b, s.Name, s.Default, doc)
	}
	return b.String()
}

func row(b *strings.Builder, name, value, doc string) {
	if value != "" {
		value = "`" + strings.ReplaceAll(value, ",", "`, `") + "`"
	}
	fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, value, strings.ReplaceAll(doc, "|", `\|`))
}

// replaceTable puts a table between the markers of that name.
func replaceTable(t *testing.T, text, name, table string) string {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	from, to := strings.Index(text, begin), strings.Index(text, end)
	require.True(t, from >= 0 && to > from, "the reference has no markers for %s", name)
	return text[:from+len(begin)] + table + text[to:]
}
