package security

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// rightsWorld is a gateway between two clusters, with the least rights on both sides.
type rightsWorld struct {
	t                   *testing.T
	source, destination *kafkatest.Cluster
	from, to            *kadm.Client // super users, past the gateway
	producer            *kgo.Client  // of the source, as super user
	g                   *harness.Gateway
	client              *kgo.Client // an operator at the gateway
	login               string      // the gateway's own
	// mark is where the gateway's log ended when the right was taken away; answer is what the operator was told since.
	mark   int
	answer string
	// changes numbers what is changed at the source.
	changes int
}

const (
	rightsTopic = rightsPrefix + "-topic"
	rightsGroup = rightsPrefix + "-group"
)

// TestLeastRights: with the rights of the tables in docs/security.md a mirror works wholly. Without any one of them what needs it
// says so and names it, and goes on by itself once it is there again.
func TestLeastRights(t *testing.T) {
	w := newRightsWorld(t)
	rights := leastRights(t)
	tests := rightTests()
	w.firstStart(rights)
	w.createMirror()
	w.wholly()
	for _, r := range rights {
		test, ok := tests[r.String()]
		if delete(tests, r.String()); !ok {
			t.Errorf("docs/security.md has a row that is not tested: %v", r)
			continue
		}
		if test.told == nil {
			continue // firstStart
		}
		t.Run(r.String(), func(t *testing.T) { w.inTest(t).without(r, test) })
	}
	for row := range tests {
		t.Errorf("docs/security.md has no row %q", row)
	}
	w.wholly()
	w.stopWithoutRight(rights)
	t.Run("Operators", func(t *testing.T) { operators(w.inTest(t)) })
	t.Run("Failback", func(t *testing.T) { failback(w.inTest(t), rights) })
}

func newRightsWorld(t *testing.T) *rightsWorld {
	t.Helper()
	w := &rightsWorld{t: t, source: kafkatest.Shared(t, "rights-source", rightsOptions), destination: kafkatest.Shared(t, "rights-destination", rightsOptions)}
	w.from, w.to = harness.Admin(t, w.source.InternalBootstrap()), harness.Admin(t, w.destination.InternalBootstrap())
	w.producer = harness.Client(t, w.source.InternalBootstrap(), kgo.DefaultProduceTopic(rightsTopic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	w.login = filepath.Join(t.TempDir(), "gateway.properties")
	must(t, kafkatest.WriteProperties(w.login, w.destination.ClientProperties(gatewayUser, scram512)))
	harness.CreateTopics(t, w.source.InternalBootstrap(), harness.Topic{Name: rightsTopic, Partitions: 2})
	w.change()
	return w
}

func (w *rightsWorld) inTest(t *testing.T) *rightsWorld {
	inner := *w
	inner.t = t
	return &inner
}

func (w *rightsWorld) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

// firstStart: without CREATE on the state topic the gateway ends, and names the right; with it, it starts.
func (w *rightsWorld) firstStart(rights []right) {
	w.t.Helper()
	var create right
	for _, r := range rights {
		if strings.HasPrefix(r.where, "the gateway ends") {
			create = r
			continue
		}
		w.grant(r)
	}
	ports, err := kafkatest.ReserveRange(2)
	must(w.t, err)
	defer ports.Release()
	out, err := harness.Run(w.t, "serve", "--listen", fmt.Sprintf("127.0.0.1:%d", ports.Numbers[0]), "--destination", w.destination.Bootstrap(), "--destination-config", w.login,
		"--data-dir", w.t.TempDir(), "--max-broker-id", "0", "--allow-clear-secrets")
	if err == nil || !strings.Contains(out, "the gateway's user needs "+create.words) {
		w.t.Errorf("without %v: %v, no %q in\n%s", create, err, create.words, out)
	}
	w.grant(create)
	w.g = harness.StartGateway(w.t, harness.GatewayOptions{Destination: w.destination.Bootstrap(), Flags: []string{"--destination-config", w.login}})
	w.client = w.g.Client(w.t, kgo.SASL(kafkatest.Mechanism(kafkatest.Admin, scram512)))
}

func (w *rightsWorld) createMirror() {
	w.t.Helper()
	harness.CreateMirror(w.t, w.client, "m", w.source.Bootstrap(), sourceConfig(w.source, gatewayUser, scram512)...)
	harness.AddTopics(w.t, w.client, "m", rightsTopic)
}

// without takes a right away and gives it back.
func (w *rightsWorld) without(r right, test rightTest) {
	words := "the gateway's user needs " + strings.ReplaceAll(strings.ReplaceAll(r.words, "TOPIC", test.topic()), "GROUP", rightsGroup)
	w.mark, w.answer = len(w.g.Log()), ""
	w.take(r)
	given := false
	defer func() {
		if !given {
			w.grant(r) // for the rows behind it
		}
	}()
	if test.cause != nil {
		test.cause(w)
	}
	harness.Eventually(w.t, 45*time.Second, words, func(ctx context.Context) error {
		text, err := test.told(ctx, w)
		if err == nil && !strings.Contains(text, words) {
			err = fmt.Errorf("%s says: %s", r.where, text)
		}
		return err
	})
	w.grant(r)
	given = true
	if test.again != nil {
		harness.Eventually(w.t, time.Minute, "the operator can repeat it", func(ctx context.Context) error { return test.again(ctx, w) })
	}
	harness.Eventually(w.t, time.Minute, "it goes on by itself", w.works)
}

// wholly changes all that is mirrored, and waits until it is mirrored.
func (w *rightsWorld) wholly() {
	w.t.Helper()
	harness.Eventually(w.t, time.Minute, "all is mirrored", w.works)
	w.change()
	harness.Eventually(w.t, time.Minute, "all changes are mirrored", w.works)
	harness.SameRecords(w.t, w.source.InternalBootstrap(), w.destination.InternalBootstrap(), rightsTopic)
}

// works reports what is not as at the source, or said to be wrong.
func (w *rightsWorld) works(ctx context.Context) error {
	for _, same := range []func(context.Context, *kadm.Client) (any, error){topicState, groupState, aclState} {
		there, err := same(ctx, w.from)
		here, err2 := same(ctx, w.to)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if fmt.Sprint(there) != fmt.Sprint(here) {
			return fmt.Errorf("source: %v; destination: %v", there, here)
		}
	}
	text, err := described(ctx, w)
	if err == nil && strings.TrimSpace(text) != "" {
		err = errors.New(text)
	}
	return err
}

// described is what DescribeMirrors says is not as it should be.
func described(ctx context.Context, w *rightsWorld) (string, error) {
	resp, err := mirrormsg.NewPtrDescribeMirrorsRequest().RequestWith(ctx, w.client)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, m := range resp.Mirrors {
		for _, topic := range m.Topics {
			for _, p := range topic.Partitions {
				if p.Reason != "" || p.State != "MIRRORING" && p.State != "STOPPED" {
					fmt.Fprintf(&text, "%s-%d is %s: %s\n", topic.TopicName, p.Partition, p.State, p.Reason)
				}
			}
		}
		for _, skip := range m.Skipped {
			if !strings.Contains(skip.Reason, "gateway's own user") {
				fmt.Fprintf(&text, "%s: %s %v\n", skip.Sync, skip.Reason, skip.Names)
			}
		}
	}
	return text.String(), nil
}

func logged(_ context.Context, w *rightsWorld) (string, error) { return w.g.Log()[w.mark:], nil }

func answered(_ context.Context, w *rightsWorld) (string, error) { return w.answer, nil }
