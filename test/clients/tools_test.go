//go:build clients

package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

const toolUser, toolMechanism = kafkatest.Admin, "SCRAM-SHA-512"

// Kafka's own tools do through the gateway what they do directly, on a cluster with SASL (in plaintext, so that taps see everything) and ACLs.
func TestTools(t *testing.T) {
	cluster := kafkatest.Start(t, kafkatest.Options{Version: kafkaVersion(), Brokers: 3, Heap: "512m", AdvertiseHost: "localhost",
		Security: &kafkatest.Security{Mechanisms: []string{toolMechanism, "PLAIN"}, ACLs: true}})
	config := filepath.Join(t.TempDir(), "admin.properties")
	must(t, kafkatest.WriteProperties(config, cluster.ClientProperties(toolUser, toolMechanism)))
	gateway, tap := harness.TappedGateway(t, harness.GatewayOptions{Destination: cluster.Bootstrap(), Flags: []string{"--destination-config", config}}, cluster, "localhost", "127.0.0.1")
	enableShareGroups(t, cluster.InternalBootstrap())
	leaders := moveLeaders(t, cluster.InternalBootstrap(), 3)
	ran := 0
	for _, scenario := range scenarios {
		t.Run(scenario.name, func(t *testing.T) {
			ran++
			for i, address := range []string{cluster.BrokerAddr(1), gateway.Bootstrap()} {
				way := []string{"direct", "gateway"}[i]
				b := &toolbox{ctx: t.Context(), cluster: cluster, address: address, config: config, dir: t.TempDir(), name: scenario.name + "-" + way}
				scenario.do(b)
				if b.err != nil {
					t.Fatalf("%s: %v", way, b.err)
				}
			}
		})
	}
	leaders.report(t)
	if t.Failed() || ran < len(scenarios) {
		return
	}
	text := fmt.Sprintf("%s, Kafka %s: the %d lines below, alike directly and through the gateway. Clients of the gateway received %.1f MB, without an address of\n"+
		"the cluster in it; leaders moved %d times.\n\n| tools | what was done |\n|---|---|\n",
		time.Now().UTC().Format("2006-01-02"), cluster.Version(), len(scenarios), float64(tap.Bytes())/1e6, leaders.total())
	for _, scenario := range scenarios {
		text += fmt.Sprintf("| %s | %s |\n", scenario.name, scenario.what)
	}
	writePart(t, "tools", text)
}

// scenario is something that tools do; do ends at the first error.
type scenario struct {
	name, what string
	do         func(*toolbox)
}

var scenarios = []scenario{
	{"topics", "`kafka-topics`: create, list, describe, more partitions, a second creation refused, delete", topicsScenario},
	{"configs", "`kafka-configs`: of topics, brokers (dynamic and all), groups, client metrics", configsScenario},
	{"quotas", "`kafka-configs`: of users, clients, both, defaults, addresses", quotasScenario},
	{"scram", "`kafka-configs`: a SCRAM user is made, described, logs in, and is removed", scramScenario},
	{"tokens", "`kafka-delegation-tokens`: create, describe, log in, renew, expire", tokensScenario},
	{"acls", "`kafka-acls`: add, list, remove; a user without rights is refused, then let in", aclsScenario},
	{"reassign", "`kafka-reassign-partitions`: generate, execute with a throttle, list, verify, cancel", reassignScenario},
	{"election", "`kafka-leader-election`: preferred for a partition and for all, unclean", electionScenario},
	{"records", "`kafka-delete-records`, `kafka-get-offsets`, `kafka-log-dirs`", recordsScenario},
	{"cluster", "`kafka-cluster`, `kafka-broker-api-versions`, `kafka-features`, `kafka-metadata-quorum` (status, replication)", clusterScenario},
	{"console", "`kafka-console-producer` and `-consumer` in five codecs", consoleScenario},
	{"perf", "`kafka-producer-perf-test`, `kafka-consumer-perf-test`, while a partition's leader moves", perfScenario},
	{"groups", "`kafka-consumer-groups`, `kafka-groups`: list, describe, members, state, reset in five ways, delete offsets, delete", groupsScenario},
	{"transactions", "`kafka-transactions`: list, describe, producers, find-hanging, abort of an open transaction", transactionsScenario},
	{"share", "`kafka-console-share-consumer`, `kafka-share-groups`: list, describe, members, reset (since 4.2), delete", shareScenario},
}

// toolbox runs tools at one address.
type toolbox struct {
	ctx     context.Context
	cluster *kafkatest.Cluster
	address string
	config  string // the properties file for tools
	dir     string
	name    string // begins all names of a scenario on one side
	err     error
}

// run runs a tool that must succeed, and looks for a pattern in what it prints.
func (b *toolbox) run(want, tool string, args ...string) string {
	return b.tool(want, true, "", tool, args...)
}

// refused runs a tool that must fail or complain.
func (b *toolbox) refused(want, tool string, args ...string) string {
	return b.tool(want, false, "", tool, args...)
}

// configFlags are what tools call the file with the properties, where that is not --command-config.
var configFlags = map[string]string{
	"kafka-console-producer": "--producer.config", "kafka-console-consumer": "--consumer.config", "kafka-console-share-consumer": "--consumer-config",
	"kafka-producer-perf-test": "--producer.config", "kafka-consumer-perf-test": "--consumer.config", "kafka-cluster": "--config",
	"kafka-leader-election": "--admin.config",
}

func (b *toolbox) tool(want string, succeeds bool, input, tool string, args ...string) string {
	if b.err != nil {
		return ""
	}
	flag, special := configFlags[tool]
	if !special {
		flag = "--command-config"
	}
	where := []string{"--bootstrap-server", b.address, flag, b.config}
	switch tool {
	case "kafka-producer-perf-test": // the address is a property
		args = slices.Concat(args, where[2:])
	case "kafka-cluster": // its options follow the command, those of other tools precede it
		args = slices.Concat(args, where)
	default:
		args = slices.Concat(where, args)
	}
	ctx, cancel := context.WithTimeout(b.ctx, 3*time.Minute)
	defer cancel()
	command, err := kafkatest.ToolCommand(ctx, b.cluster.Version(), tool, args...)
	if err != nil {
		b.err = err
		return ""
	}
	command.Stdin = strings.NewReader(input)
	output, err := command.CombinedOutput()
	if err != nil && succeeds || !regexp.MustCompile(want).Match(output) {
		b.err = fmt.Errorf("%s %s: %w, wanted %q, got\n%s", tool, strings.Join(args, " "), errors.Join(err, ctx.Err(), errors.New("not as expected")), want, bytes.TrimSpace(output))
	}
	return string(output)
}

// eventually repeats a tool until the pattern is there: brokers learn of changes a moment later.
func (b *toolbox) eventually(want, tool string, args ...string) string {
	for end := time.Now().Add(3 * time.Minute); b.err == nil; {
		output := b.run(want, tool, args...)
		if b.err == nil || time.Now().After(end) {
			return output
		}
		b.err = nil
	}
	return ""
}

// since says whether the release is this one or a newer one.
func (b *toolbox) since(major, minor int) bool {
	var release [2]int
	if _, err := fmt.Sscanf(b.cluster.Version(), "%d.%d", &release[0], &release[1]); err != nil {
		b.err = errors.Join(b.err, err)
	}
	return slices.Compare(release[:], []int{major, minor}) >= 0
}

// find is the first group of a pattern in a text.
func (b *toolbox) find(pattern, text string) string {
	if b.err != nil {
		return ""
	}
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		b.err = fmt.Errorf("no %q in\n%s", pattern, text)
		return ""
	}
	return m[1]
}

func (b *toolbox) file(name, content string) string {
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		b.err = errors.Join(b.err, err)
	}
	return path
}

func (b *toolbox) topic(suffix string, args ...string) string {
	topic := b.name + suffix
	b.run("Created topic", "kafka-topics", append([]string{"--create", "--topic", topic}, args...)...)
	b.eventually("Leader: [1-3]", "kafka-topics", "--describe", "--topic", topic)
	return topic
}

// as is a toolbox whose tools log in otherwise.
func (b *toolbox) as(properties map[string]string) *toolbox {
	other := *b
	other.config = filepath.Join(b.dir, "other.properties")
	other.err = errors.Join(b.err, kafkatest.WriteProperties(other.config, properties))
	return &other
}

func (b *toolbox) lines(topic string, n int, args ...string) {
	b.tool("", true, numbers(n), "kafka-console-producer", append([]string{"--topic", topic}, args...)...)
}

func numbers(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintln(&text, i)
	}
	return text.String()
}

// client is a kgo client with the rights of the tools.
func (b *toolbox) client(opts ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(slices.Concat([]kgo.Opt{kgo.SeedBrokers(b.address)}, b.cluster.ClientOptions(toolUser, toolMechanism), opts)...)
	b.err = errors.Join(b.err, err)
	return client
}
