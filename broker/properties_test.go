package broker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseBootstrap(t *testing.T) {
	for list, want := range map[string][]string{
		"a:1":                     {"a:1"},
		" a:1, b:2 ,":             {"a:1", "b:2"},
		"a:1,a:1,, ,b:2,a:1":      {"a:1", "b:2"},
		"[::1]:9092":              {"[::1]:9092"},
		"a:1,\n\tb:2":             {"a:1", "b:2"},
		"broker-1.example:65535,": {"broker-1.example:65535"},
	} {
		cfg, err := ParseProperties(map[string]string{"bootstrap.servers": list}, nil)
		require.NoError(t, err, list)
		require.Equal(t, want, cfg.Bootstrap, list)
	}
	for _, list := range []string{"", " , ", "a", "a:", ":1", "a:0", "a:65536", "a:x", "a:1 b:2", "http://a:1", "::1:9092"} {
		_, err := ParseProperties(map[string]string{"bootstrap.servers": list}, nil)
		var bad *PropertyError
		require.ErrorAs(t, err, &bad, list)
		require.Equal(t, "bootstrap.servers", bad.Key)
	}
}

const plainJaas = `org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";`

func TestParseProperties(t *testing.T) {
	cfg, err := ParseProperties(map[string]string{
		"bootstrap.servers": "a:1", "client.id": "me", "request.timeout.ms": "1500", "mirror.topics.include": ".*",
	}, func(key string) bool { return strings.HasPrefix(key, "mirror.") })
	require.NoError(t, err)
	require.Equal(t, "me", cfg.ClientID)
	require.Equal(t, 1500*time.Millisecond, cfg.RequestTimeout)
	require.Nil(t, cfg.TLS)
	require.Nil(t, cfg.SASL)

	cfg, err = ParseProperties(map[string]string{"bootstrap.servers": "a:1", "security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.jaas.config": plainJaas}, nil)
	require.NoError(t, err)
	require.NotNil(t, cfg.TLS)
	require.Equal(t, "PLAIN", cfg.SASL.Name())
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(format, cfg), "hunter2")
		require.NotContains(t, fmt.Sprintf(format, &cfg), "hunter2")
	}
}

func TestPropertyErrorsNameTheKeyAndHideSecrets(t *testing.T) {
	for _, c := range []struct {
		key   string
		props map[string]string
	}{
		{"mirror.x", map[string]string{"mirror.x": "1"}},
		{"ssl.key.password", map[string]string{"ssl.key.password": "hunter2"}},
		{"ssl.keystore.type", map[string]string{"security.protocol": "SSL", "ssl.keystore.type": "JKS"}},
		{"ssl.truststore.location", map[string]string{"security.protocol": "SSL", "ssl.truststore.location": "/nonexistent"}},
		{"ssl.truststore.certificates", map[string]string{"security.protocol": "SSL", "ssl.truststore.certificates": "hunter2"}},
		{"ssl.keystore.key", map[string]string{"security.protocol": "SSL", "ssl.keystore.certificate.chain": "x"}},
		{"ssl.keystore.certificate.chain", map[string]string{"security.protocol": "SSL", "ssl.keystore.certificate.chain": "x", "ssl.keystore.key": "hunter2"}},
		{"ssl.endpoint.identification.algorithm", map[string]string{"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"}},
		{"security.protocol", map[string]string{"security.protocol": "TLS"}},
		{"request.timeout.ms", map[string]string{"request.timeout.ms": "-1"}},
		{"sasl.mechanism", map[string]string{"security.protocol": "SASL_SSL"}},
		{"sasl.mechanism", map[string]string{"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}},
		{"sasl.jaas.config", map[string]string{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}},
		{"sasl.jaas.config", map[string]string{"sasl.jaas.config": plainJaas}},
		{"sasl.jaas.config", map[string]string{"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": plainJaas}},
		{"sasl.jaas.config", map[string]string{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": `hunter2`}},
		{"sasl.jaas.config", map[string]string{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": `PlainLoginModule required username="u" password="hunter2`}},
		{"sasl.jaas.config", map[string]string{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": `PlainLoginModule required username="u" password="hunter2"`}},
		{"sasl.jaas.config", map[string]string{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": plainJaas + plainJaas}},
		{"sasl.jaas.config", map[string]string{"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": `PlainLoginModule required username="u";`}},
		{"sasl.oauthbearer.token.endpoint.url", map[string]string{"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": `OAuthBearerLoginModule required;`}},
	} {
		c.props["bootstrap.servers"] = "a:1"
		_, err := ParseProperties(c.props, nil)
		var bad *PropertyError
		require.ErrorAs(t, err, &bad, "%v", c.props)
		require.Equal(t, c.key, bad.Key, "%v", err)
		require.Contains(t, err.Error(), c.key)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestParseJaas(t *testing.T) {
	entry, err := parseJaas("  a.b.PlainLoginModule\n required\n  username = 'it''s'  x=1\tpassword=\"a\\\"b\\\\c;=\" ;  ")
	require.Error(t, err, "two strings without a space")
	entry, err = parseJaas("  a.b.PlainLoginModule\n required\n  username = 'it is'  x=1\tpassword=\"a\\\"b\\\\c;=\" ;  ")
	require.NoError(t, err)
	require.Equal(t, "a.b.PlainLoginModule", entry.module)
	require.Equal(t, map[string]string{"username": "it is", "x": "1", "password": `a"b\c;=`}, entry.options)
}

func FuzzParseJaas(f *testing.F) {
	f.Add(plainJaas)
	f.Add(`a required b='c' d="\e"`)
	f.Fuzz(func(t *testing.T, text string) { _, _ = parseJaas(text) })
}

func TestPropertiesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "client.properties")
	text := "# comment\n! another\n\n  bootstrap.servers = a:1,\\\n     b:2\nkey:value\r\nbare\n with\\ space\\=x y = z \npath=C\\:\\\\tmp\\tx\nuni=\\u00e9\\ud83d\\ude00 ü\nempty=\nends=with\\\\\nlast=1\\"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	props, err := ReadPropertiesFile(path)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"bootstrap.servers": "a:1,b:2", "key": "value", "bare": "", "with space=x": "y = z ", "path": "C:\\tmp\tx",
		"uni": "é😀 ü", "empty": "", "ends": `with\`, "last": "1",
	}, props)
	for _, bad := range []string{"a=1\na=2", `a=\u12`, `a=\uzzzz`} {
		require.NoError(t, os.WriteFile(path, []byte(bad), 0o600))
		_, err := ReadPropertiesFile(path)
		require.Error(t, err)
	}
	_, err = ReadPropertiesFile(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func FuzzProperties(f *testing.F) {
	f.Add("a=b\\\n c\n#x\n")
	f.Add(`\u00e9:\ud83d\ude00`)
	f.Fuzz(func(t *testing.T, text string) { _, _ = parsePropertiesText(text) })
}

// Options of login modules beyond name and password reach the broker.
func TestLoginOptions(t *testing.T) {
	for _, tt := range []struct{ mechanism, options, want string }{
		{"SCRAM-SHA-256", `ScramLoginModule required username="id" password="hmac" tokenauth="true"`, "tokenauth=true"},
		{"SCRAM-SHA-512", `ScramLoginModule required username="id" password="hmac"`, "n=id"},
		{"OAUTHBEARER", `OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="me" extension_logicalCluster="lkc-1"`, "\x01logicalCluster=lkc-1\x01"},
		{"OAUTHBEARER", `OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="me" unsecuredLoginExtension_pool="p"`, "\x01pool=p\x01"},
	} {
		cfg, err := ParseProperties(map[string]string{"bootstrap.servers": "h:1", "security.protocol": "SASL_PLAINTEXT",
			"sasl.mechanism": tt.mechanism, "sasl.jaas.config": tt.options + ";"}, nil)
		require.NoError(t, err)
		_, first, err := cfg.SASL.Authenticate(context.Background(), "h:1")
		require.NoError(t, err)
		require.Contains(t, string(first), tt.want)
		require.Equal(t, strings.Contains(tt.options, "tokenauth"), strings.Contains(string(first), "tokenauth"))
	}
}
