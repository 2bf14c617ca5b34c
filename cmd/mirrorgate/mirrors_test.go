package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

func text(s string) *string { return &s }

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.properties")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// nobody is an address at which nothing listens.
const nobody = "127.0.0.1:1"

func TestUsageErrors(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"bogus", `unknown command "bogus"`},
		{"mirrors bogus", `mirrorgate mirrors has no command "bogus"`},
		{"mirrors list", "--bootstrap-server is missing"},
		{"mirrors list --bogus", "unknown flag: --bogus"},
		{"mirrors list --bootstrap-server nowhere", `--bootstrap-server: "nowhere" is not host:port`},
		{"mirrors list --bootstrap-server a:1 --request-timeout 0s", "--request-timeout must be"},
		{"mirrors list --bootstrap-server a:1 --request-timeout soon", `invalid argument "soon"`},
		{"mirrors list --bootstrap-server a:1 --api-keys Bogus=1", `"Bogus" is not a mirror RPC`},
		{"mirrors list --bootstrap-server a:1 --api-keys ListMirrors=70000", "70000 is not an API key"},
		{"mirrors list extra", "takes no arguments"},
		{"mirrors create --bootstrap-server a:1", "--mirror is missing"},
		{"mirrors create --bootstrap-server a:1 --mirror east", "the mirror has no source"},
		{"mirrors create --bootstrap-server a:1 --mirror east --mirror-config secret", "--mirror-config needs KEY=VALUE"},
		{"mirrors create --bootstrap-server a:1 --mirror east --mirror-config x=1 --mirror-config x=2", "gives x twice"},
		{"mirrors add-topics --bootstrap-server a:1 --topics a", "--mirror is missing"},
		{"mirrors add-topics --bootstrap-server a:1 --mirror east", "no topics; give --topics"},
		{"mirrors add-topics --bootstrap-server a:1 --mirror east --topics ,", "--topics names no topic"},
		{"mirrors add-topics --bootstrap-server a:1 --mirror east --topics a --all-topics", "exclude each other"},
		{"mirrors add-topics --bootstrap-server a:1 --mirror east --topics-pattern (", "--topics-pattern: "},
		{"mirrors add-topics --bootstrap-server a:1 --mirror east --topics a --timeout -1s", "--timeout must not be negative"},
		{"mirrors remove-topics --bootstrap-server a:1 --mirror east", "no topics; give --topics"},
		{"mirrors pause --bootstrap-server a:1 --topics a", "--mirror is missing"},
		{"mirrors resume --bootstrap-server a:1 --mirror east", "no topics; give --topics"},
		{"mirrors delete --bootstrap-server a:1", "--mirror is missing"},
		{"mirrors alter --bootstrap-server a:1 --mirror-config x=1", "--mirror is missing"},
		{"mirrors alter --bootstrap-server a:1 --mirror east", "nothing to change"},
		{"mirrors alter --bootstrap-server a:1 --mirror east --mirror-config secret", "--mirror-config needs KEY=VALUE"},
		{"mirrors alter --bootstrap-server a:1 --mirror east --mirror-config x=1 --append x=2", "x is changed twice"},
		{"mirrors alter --bootstrap-server a:1 --mirror east --append x=1 --delete-config x", "x is changed twice"},
		{"mirrors describe --bootstrap-server a:1 --interval 0s", "--interval must be more"},
		{"version extra", "takes no arguments"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			got := command(t, strings.Fields(tt.line)...)
			require.Equal(t, exitUsage, got.code, got.stderr)
			require.Contains(t, got.stderr, tt.want)
			require.Contains(t, got.stderr, "--help' for usage")
			require.NotContains(t, got.stderr, "secret")
			require.Empty(t, got.stdout)
		})
	}
}

func TestGroupsAloneShowHelp(t *testing.T) {
	for _, line := range []string{"", "mirrors"} {
		got := command(t, strings.Fields(line)...)
		require.Equal(t, exitOK, got.code)
		require.Contains(t, got.stdout, "Available Commands:")
	}
}

// Every command has help with an example.
func TestHelp(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		got := command(t, append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
		require.Equal(t, exitOK, got.code)
		if cmd.Name() == "mirrorgate" || strings.HasPrefix(cmd.CommandPath(), "mirrorgate mirrors") || cmd.Name() == "version" {
			require.Contains(t, got.stdout, "Examples:", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				check(sub)
			}
		}
	}
	check(newRootCommand())
}

func TestVersion(t *testing.T) {
	got := command(t, "version")
	require.Equal(t, exitOK, got.code)
	require.Regexp(t, `^mirrorgate \S+, commit \S+, go\S+ \S+/\S+\n$`, got.stdout)
	require.Contains(t, versionText("", nil, false), "mirrorgate unknown, commit unknown")
	require.Contains(t, versionText("v1.2.3", nil, false), "mirrorgate v1.2.3, commit unknown")
}

func TestNoGateway(t *testing.T) {
	got := command(t, "mirrors", "list", "--bootstrap-server", nobody)
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "reaching the gateway at 127.0.0.1:1")
	require.Contains(t, got.stderr, "check --bootstrap-server")

	s := startStub(t, nil)
	s.plain = true
	got = s.mirrors(t, "list")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "is not a Mirrorgate gateway: it does not offer DescribeMirrors (API key 99)")

	got = s.mirrors(t, "list", "--command-config", "/does/not/exist")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "--command-config: ")
	got = s.mirrors(t, "list", "--command-config", writeFile(t, "security.protocl=SSL"))
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "security.protocl: unknown property")
}

func TestCommandConfigMayHoldWhatOtherToolsNeed(t *testing.T) {
	s := startStub(t, func(kmsg.Request) kmsg.Response { return &mirrormsg.ListMirrorsResponse{} })
	got := s.mirrors(t, "list", "--command-config", writeFile(t, "bootstrap.servers="+nobody+"\nacks=all\nclient.id=cli\n"))
	require.Equal(t, exitOK, got.code, got.stderr)
}

func TestMovedKeys(t *testing.T) {
	s := startStub(t, func(kmsg.Request) kmsg.Response { return &mirrormsg.ListMirrorsResponse{} })
	s.moved = map[int16]int16{5098: mirrormsg.ListMirrorsKey, 5099: mirrormsg.DescribeMirrorsKey}
	require.Equal(t, exitFailure, s.mirrors(t, "list").code)
	got := s.mirrors(t, "list", "--api-keys", "ListMirrors=5098,DescribeMirrors=5099")
	require.Equal(t, exitOK, got.code, got.stderr)
}

func TestList(t *testing.T) {
	resp := &mirrormsg.ListMirrorsResponse{Mirrors: []mirrormsg.ListMirrorsResponseMirror{
		{MirrorName: "a-mirror-with-a-long-name", SourceBootstrap: "kafka:9092", TopicCount: 6}, {MirrorName: "w", SourceBootstrap: "k:1"}}}
	s := startStub(t, func(kmsg.Request) kmsg.Response { return resp })
	got := s.mirrors(t, "list")
	require.Equal(t, result{stdout: "" +
		"MIRROR                     SOURCE      TOPICS\n" +
		"a-mirror-with-a-long-name  kafka:9092  6\n" +
		"w                          k:1         0\n"}, got)
	requireJSON(t, `{"mirrors": [{"name": "a-mirror-with-a-long-name", "sourceBootstrap": "kafka:9092", "topicCount": 6},
		{"name": "w", "sourceBootstrap": "k:1", "topicCount": 0}]}`, s.mirrors(t, "list", "--json").stdout)

	resp = &mirrormsg.ListMirrorsResponse{}
	require.Contains(t, s.mirrors(t, "list").stdout, "There are no mirrors")
	requireJSON(t, `{"mirrors": []}`, s.mirrors(t, "list", "--json").stdout)

	resp = &mirrormsg.ListMirrorsResponse{ErrorCode: 31}
	got = s.mirrors(t, "list")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "listing mirrors: CLUSTER_AUTHORIZATION_FAILED: ")
}

func TestCreate(t *testing.T) {
	resp := &mirrormsg.CreateMirrorResponse{}
	s := startStub(t, func(kmsg.Request) kmsg.Response { return resp })
	file := writeFile(t, "bootstrap.servers=old:1\nsasl.jaas.config=hush\n")
	got := s.mirrors(t, "create", "--mirror", "east", "--mirror-config-file", file,
		"--mirror-config", "bootstrap.servers=a:1,b:2", "--mirror-config", "x=y=z", "--validate-only")
	require.Equal(t, result{stdout: "Mirror east could be created.\n"}, got)
	asked := s.requests()[0].(*mirrormsg.CreateMirrorRequest)
	require.Equal(t, "east", *asked.MirrorName)
	require.True(t, asked.ValidateOnly)
	require.Equal(t, []mirrormsg.CreateMirrorRequestConfig{
		{Name: "bootstrap.servers", Value: text("a:1,b:2")}, {Name: "sasl.jaas.config", Value: text("hush")}, {Name: "x", Value: text("y=z")},
	}, asked.Config)

	args := []string{"create", "--mirror", "east", "--mirror-config", "bootstrap.servers=a:1"}
	require.Contains(t, s.mirrors(t, args...).stdout, "Created mirror east.")
	requireJSON(t, `{"mirror": "east", "validateOnly": false}`, s.mirrors(t, append(args, "--json")...).stdout)

	resp = &mirrormsg.CreateMirrorResponse{ErrorCode: 40, ErrorMessage: text("mirror.tpics.include: unknown property")}
	got = s.mirrors(t, args...)
	require.Equal(t, exitFailure, got.code)
	require.Equal(t, "mirrorgate: creating mirror east: INVALID_CONFIG: mirror.tpics.include: unknown property\n", got.stderr)
	got = s.mirrors(t, append(args, "--json")...)
	require.Equal(t, exitFailure, got.code)
	requireJSON(t, `{"mirror": "east", "validateOnly": false, "error": {"code": 40, "name": "INVALID_CONFIG",
		"message": "mirror.tpics.include: unknown property"}}`, got.stdout)
	resp = &mirrormsg.CreateMirrorResponse{ErrorCode: 29999}
	require.Contains(t, s.mirrors(t, args...).stderr, "error 29999: Kafka has no such error code")

	got = s.mirrors(t, "create", "--mirror", "east", "--mirror-config-file", "/does/not/exist")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "--mirror-config-file: ")
}

// addResponse answers AddTopicsToMirror for the topics asked, all well.
func addResponse(req *mirrormsg.AddTopicsToMirrorRequest) *mirrormsg.AddTopicsToMirrorResponse {
	resp := &mirrormsg.AddTopicsToMirrorResponse{}
	for _, topic := range req.Topics {
		resp.Topics = append(resp.Topics, mirrormsg.TopicResult{Name: topic.TopicName, TopicID: [16]byte{1}})
	}
	return resp
}

func TestAddTopics(t *testing.T) {
	s := startStub(t, func(req kmsg.Request) kmsg.Response { return addResponse(req.(*mirrormsg.AddTopicsToMirrorRequest)) })
	got := s.mirrors(t, "add-topics", "--mirror", "east", "--topics", "orders, payments,orders,")
	require.Equal(t, result{stdout: "Added to mirror east: orders, payments.\n"}, got)
	require.Equal(t, []mirrormsg.AddTopicsToMirrorRequestTopic{
		{TopicName: "orders", MirrorName: text("east")}, {TopicName: "payments", MirrorName: text("east")},
	}, s.requests()[0].(*mirrormsg.AddTopicsToMirrorRequest).Topics)
	requireJSON(t, `{"mirror": "east", "topics": [{"name": "orders", "topicId": "AQAAAAAAAAAAAAAAAAAAAA"}]}`,
		s.mirrors(t, "add-topics", "--mirror", "east", "--topics", "orders", "--json").stdout)

	s.set(func(kmsg.Request) kmsg.Response {
		return &mirrormsg.AddTopicsToMirrorResponse{ErrorCode: 3, ErrorMessage: text("orders: no; payments: full"), Topics: []mirrormsg.TopicResult{
			{Name: "orders", ErrorCode: 3, ErrorMessage: text("no")}, {Name: "fine"}, {Name: "payments", ErrorCode: 36, ErrorMessage: text("full")}}}
	})
	got = s.mirrors(t, "add-topics", "--mirror", "east", "--topics", "orders,fine,payments")
	require.Equal(t, result{code: exitFailure, stderr: "mirrorgate: adding topics to mirror east, of which none was added:\n" +
		"  orders: UNKNOWN_TOPIC_OR_PARTITION: no\n  payments: TOPIC_ALREADY_EXISTS: full\n"}, got)
	got = s.mirrors(t, "add-topics", "--mirror", "east", "--topics", "orders,fine,payments", "--json")
	require.Equal(t, exitFailure, got.code)
	requireJSON(t, `{"mirror": "east", "error": {"code": 3, "name": "UNKNOWN_TOPIC_OR_PARTITION", "message": "orders: no; payments: full"},
		"topics": [{"name": "orders", "error": {"code": 3, "name": "UNKNOWN_TOPIC_OR_PARTITION", "message": "no"}}, {"name": "fine"},
		{"name": "payments", "error": {"code": 36, "name": "TOPIC_ALREADY_EXISTS", "message": "full"}}]}`, got.stdout)

	// A gateway built from the KIP alone has no results one by one.
	s.set(func(kmsg.Request) kmsg.Response {
		return &mirrormsg.AddTopicsToMirrorResponse{ErrorCode: 42, ErrorMessage: text("unknown mirror east")}
	})
	got = s.mirrors(t, "add-topics", "--mirror", "east", "--topics", "orders")
	require.Equal(t, "mirrorgate: adding topics to mirror east, of which none was added: INVALID_REQUEST: unknown mirror east\n", got.stderr)
}

// source is a cluster with topics.
func source(t *testing.T, topics ...string) (addr string, ids map[string][16]byte) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topics...))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	defer client.Close()
	listed, err := kadm.NewClient(client).ListTopics(context.Background())
	require.NoError(t, err)
	ids = map[string][16]byte{}
	for name, topic := range listed {
		ids[name] = topic.ID
	}
	return cluster.ListenAddrs()[0], ids
}

func TestAddTopicsFromTheSource(t *testing.T) {
	addr, ids := source(t, "shop.orders", "shop.payments", "shop", "shopping", "__internal")
	bootstrap := addr
	s := startStub(t, func(req kmsg.Request) kmsg.Response {
		if req, ok := req.(*mirrormsg.AddTopicsToMirrorRequest); ok {
			return addResponse(req)
		}
		return &mirrormsg.ListMirrorsResponse{Mirrors: []mirrormsg.ListMirrorsResponseMirror{{MirrorName: "west"}, {MirrorName: "east", SourceBootstrap: bootstrap}}}
	})
	added := func(args ...string) (names []string) {
		t.Helper()
		got := s.mirrors(t, append([]string{"add-topics", "--mirror", "east"}, args...)...)
		require.Equal(t, exitOK, got.code, got.stderr)
		requests := s.requests()
		for _, topic := range requests[len(requests)-1].(*mirrormsg.AddTopicsToMirrorRequest).Topics {
			require.Equal(t, ids[topic.TopicName], topic.TopicID, "the ID that the topic had when it was chosen")
			names = append(names, topic.TopicName)
		}
		return names
	}
	require.Equal(t, []string{"shop", "shop.orders", "shop.payments", "shopping"}, added("--all-topics"))
	require.Equal(t, []string{"shop.orders", "shop.payments"}, added("--topics-pattern", `shop\..*`))
	require.Equal(t, []string{"shop", "shopping"}, added("--topics-pattern", `shop|shopping`))

	got := s.mirrors(t, "add-topics", "--mirror", "east", "--topics-pattern", "nothing")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "has no such topics")
	got = s.mirrors(t, "add-topics", "--mirror", "north", "--all-topics")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "there is no such mirror")

	bootstrap = nobody
	got = s.mirrors(t, "add-topics", "--mirror", "east", "--all-topics")
	require.Equal(t, exitFailure, got.code)
	require.Contains(t, got.stderr, "give --source-config")
	require.Len(t, added("--all-topics", "--source-config", writeFile(t, "bootstrap.servers="+addr)), 4)
}
