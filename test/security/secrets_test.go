package security

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/store"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// secretKey writes a key for the state log.
func secretKey(t *testing.T) (file, text string) {
	t.Helper()
	var key [32]byte
	_, _ = rand.Read(key[:])
	file, text = filepath.Join(t.TempDir(), "secret.key"), hex.EncodeToString(key[:])
	must(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
	return file, text
}

// keyLine is a line from the middle of a PEM key.
func keyLine(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	lines := strings.Split(string(text), "\n")
	if len(lines) < 4 || len(lines[1]) < 60 {
		t.Fatalf("%s is no PEM key", file)
	}
	return lines[1]
}

// said collects all that the gateway says, by where.
type said map[string][]byte

func (s said) response(where string, resp kmsg.Response) {
	s[where] = append(s[where], resp.AppendTo(nil)...)
}

// secretsStay: what is secret appears in no log, answer, error, metric or file, and not in the state topic.
func secretsStay(t *testing.T, g *gateway, source *kafkatest.Cluster, keyText string) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	client := g.client(t, kafkatest.Admin, "PLAIN")
	seen := said{}
	key := g.authority.Issue(t, "mirror", subject("mirror"))
	chain, err := os.ReadFile(key.CertFile)
	must(t, err)
	private, err := os.ReadFile(key.KeyFile)
	must(t, err)
	secrets := map[string]string{
		"password of the destination, and of a client": kafkatest.Password(kafkatest.Admin),
		"password of a client":                         kafkatest.Password("alice"),
		"password of the source":                       kafkatest.Password("gateway"),
		"wrong password of the source":                 "Wrong-Pa55word-of-gateway",
		"OAuth secret":                                 "0Auth-client-s3cret",
		"key of the mirror":                            keyLine(t, key.KeyFile),
		"key of the gateway":                           keyLine(t, g.own.KeyFile),
		"key of the state log":                         keyText,
		"key that is none":                             "this-is-no-key-but-secret",
	}

	// A mirror that works, with an inline key, and many that do not.
	allowAll(t, source, "gateway")
	good := append(sourceConfig(source, "gateway", scram256), "ssl.keystore.certificate.chain", string(chain), "ssl.keystore.key", string(private))
	harness.CreateMirror(t, client, "secretive", source.Bootstrap(), good...)
	jaas := func(password string) string {
		return fmt.Sprintf(`org.apache.kafka.common.security.scram.ScramLoginModule required username="gateway" password=%q;`, password)
	}
	for i, change := range [][2]string{
		{"sasl.jaas.config", jaas(secrets["wrong password of the source"])},
		{"sasl.jaas.config", strings.TrimSuffix(jaas(secrets["wrong password of the source"]), ";")},
		{"sasl.jaas.config", "password=" + secrets["wrong password of the source"]},
		{"sasl.jaas.confg", jaas(secrets["wrong password of the source"])},
		{"ssl.keystore.key", secrets["key that is none"]},
		{"ssl.key.password", secrets["key that is none"]},
		{"client.id", strings.Repeat("x", 40_000)},
	} {
		seen.response("CreateMirror", create(ctx, t, client, fmt.Sprintf("broken-%d", i), source, append(good[:len(good):len(good)], change[0], change[1])))
	}
	oauth := []string{"security.protocol", "SASL_SSL", "sasl.mechanism", "OAUTHBEARER", "ssl.truststore.type", "PEM", "ssl.truststore.location", source.Authority.File,
		"sasl.oauthbearer.token.endpoint.url", "http://127.0.0.1:1/token", "sasl.jaas.config",
		fmt.Sprintf(`org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="me" clientSecret=%q;`, secrets["OAuth secret"])}
	seen.response("CreateMirror", create(ctx, t, client, "oauth", source, oauth))

	describe := kmsg.NewPtrDescribeConfigsRequest()
	describe.IncludeDocumentation, describe.IncludeSynonyms = true, true
	for _, kind := range []kmsg.ConfigResourceType{64, kmsg.ConfigResourceTypeBroker} {
		resource := kmsg.NewDescribeConfigsRequestResource()
		resource.ResourceType, resource.ResourceName = kind, map[kmsg.ConfigResourceType]string{64: "secretive", kmsg.ConfigResourceTypeBroker: "1"}[kind]
		describe.Resources = append(describe.Resources, resource)
	}
	for _, req := range []kmsg.Request{describe, mirrormsg.NewPtrListMirrorsRequest(), mirrormsg.NewPtrDescribeMirrorsRequest(), mirrormsg.NewPtrReadMirrorStatesRequest()} {
		resp, err := client.Request(ctx, req)
		if err != nil {
			seen[fmt.Sprintf("error of %T", req)] = []byte(err.Error())
			continue
		}
		seen.response(fmt.Sprintf("%T", resp), resp)
	}
	seen["log"], seen["state topic"] = []byte(g.Log()), stateTopic(ctx, t, g.destination)
	metrics, err := g.Get(ctx, "/metrics")
	must(t, err)
	seen["metrics"] = []byte(metrics)
	for where, text := range seen {
		for what, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s: it has the %s", where, what)
			}
		}
	}
	for _, needed := range []string{"log", "state topic", "metrics", "CreateMirror"} {
		if len(seen[needed]) < 100 {
			t.Errorf("%s: only %d bytes were looked at", needed, len(seen[needed]))
		}
	}
	if err := contains(string(seen["state topic"]), "secretive"); err != nil {
		t.Errorf("state topic: %v", err)
	}
	dataDir(t, g, secrets)
}

// create sends CreateMirror, which must be refused.
func create(ctx context.Context, t *testing.T, client *kgo.Client, name string, source *kafkatest.Cluster, config []string) *mirrormsg.CreateMirrorResponse {
	t.Helper()
	request := mirrormsg.NewPtrCreateMirrorRequest()
	request.MirrorName = &name
	bootstrap := source.Bootstrap()
	values := map[string]*string{"bootstrap.servers": &bootstrap}
	for i := 0; i < len(config); i += 2 {
		values[config[i]] = &config[i+1] // the last counts
	}
	for key, value := range values {
		request.Config = append(request.Config, mirrormsg.CreateMirrorRequestConfig{Name: key, Value: value})
	}
	response, err := request.RequestWith(ctx, client)
	must(t, err)
	if response.ErrorCode == 0 {
		t.Errorf("the mirror %s was created", name)
	}
	return response
}

// stateTopic reads all of the gateway's state.
func stateTopic(ctx context.Context, t *testing.T, cluster *kafkatest.Cluster) []byte {
	t.Helper()
	bootstrap := cluster.InternalBootstrap()
	behind, err := harness.Ends(ctx, harness.Admin(t, bootstrap), store.DefaultTopic)
	must(t, err)
	maps.DeleteFunc(behind, func(_ harness.TopicPartition, end int64) bool { return end == 0 })
	client := harness.Client(t, bootstrap, kgo.ConsumeTopics(store.DefaultTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var text []byte
	for len(behind) > 0 { // the cleaner leaves the last record of a log
		fetches := client.PollFetches(ctx)
		must(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			text = append(append(text, r.Key...), r.Value...)
			if tp := (harness.TopicPartition{Topic: r.Topic, Partition: r.Partition}); r.Offset >= behind[tp]-1 {
				delete(behind, tp)
			}
		})
	}
	return text
}

// dataDir looks at the files of the local view.
func dataDir(t *testing.T, g *gateway, secrets map[string]string) {
	t.Helper()
	files := 0
	must(t, filepath.WalkDir(g.DataDir(), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the gateway is at work, and its files come and go
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		files++
		for what, secret := range secrets {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("data directory: %s has the %s", filepath.Base(path), what)
			}
		}
		return nil
	}))
	if files == 0 {
		t.Error("data directory: no file was looked at")
	}
}
