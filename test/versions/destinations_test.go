package versions

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// releases are the destinations that are supported: the newest release of each minor version.
var releases = []string{"4.0.2", "4.1.2", "4.2.2", "4.3.1", "4.4.0"}

// tested are all of them, or the oldest and the newest where it must be quick (the other tests have 4.1).
func tested() []string {
	if os.Getenv("MIRRORGATE_VERSIONS") == "all" {
		return releases
	}
	return []string{releases[0], releases[len(releases)-1]}
}

// TestDestinations: everything that matters works before a destination of every release.
func TestDestinations(t *testing.T) {
	for _, version := range tested() {
		t.Run(version, func(t *testing.T) {
			destination := kafkatest.Start(t, kafkatest.Options{Version: version})
			g := harness.StartGateway(t, harness.GatewayOptions{Destination: destination.Bootstrap()})
			mirrors(t, g, kafkatest.Shared(t, "source", kafkatest.Options{}), destination)
			t.Run("ApiVersions", func(t *testing.T) { apiVersions(t, g, destination) })
			t.Run("Unknown", func(t *testing.T) { unknownVersions(t, g) })
		})
	}
}

// mirrors copies a topic, reads it in both kinds of groups as the source's topic, and stops.
func mirrors(t *testing.T, g *harness.Gateway, source, destination *kafkatest.Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	topic := harness.Topic{Name: "versions-" + destination.Version(), Partitions: 3, Codec: kgo.ZstdCompression()}
	harness.CreateTopics(t, source.Bootstrap(), topic)
	harness.MustFill(t, source.Bootstrap(), harness.Random(t), 2000, topic)
	client := g.Client(t)
	harness.CreateMirror(t, client, "m", source.Bootstrap())
	harness.AddTopics(t, client, "m", topic.Name)
	harness.WaitMirrored(t, client, "m", source.Bootstrap(), destination.Bootstrap(), 2*time.Minute, topic.Name)
	harness.SameRecords(t, source.Bootstrap(), g.Bootstrap(), topic.Name)
	want := topicID(ctx, t, source.Bootstrap(), topic.Name)
	if got := topicID(ctx, t, g.Bootstrap(), topic.Name); got != want {
		t.Errorf("clients see the topic ID %v, the source has %v", got, want)
	}
	ends, err := harness.Ends(ctx, harness.Admin(t, source.Bootstrap()), topic.Name)
	must(t, err)
	//lint:ignore SA1029 franz-go looks for this very string
	nextGen := context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)
	for kind, opts := range map[string][]kgo.Opt{"classic": nil, "consumer": {kgo.WithContext(nextGen)}} {
		reader := harness.Client(t, g.Bootstrap(), append(opts, kgo.ConsumerGroup("versions-"+kind), kgo.ConsumeTopics(topic.Name),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
		for seen := int64(0); seen < harness.Total(ends); {
			fetches := reader.PollFetches(ctx)
			must(t, fetches.Err())
			seen += int64(fetches.NumRecords())
		}
		must(t, reader.CommitUncommittedOffsets(ctx))
	}
	// A transaction beside the mirror, and one record behind it once it is over.
	harness.CreateTopics(t, g.Bootstrap(), harness.Topic{Name: "beside", Partitions: 1})
	writer := harness.Client(t, g.Bootstrap(), kgo.TransactionalID("versions"))
	must(t, writer.BeginTransaction())
	must(t, writer.ProduceSync(ctx, &kgo.Record{Topic: "beside", Value: []byte("x")}).FirstErr())
	must(t, writer.EndTransaction(ctx, kgo.TryCommit))
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic.Name, Value: []byte("x")}).FirstErr(); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("a record for the mirror: %v", err)
	}
	harness.RemoveTopics(t, client, "m", topic.Name)
	must(t, client.ProduceSync(ctx, &kgo.Record{Topic: topic.Name, Value: []byte("x")}).FirstErr())
}

func topicID(ctx context.Context, t *testing.T, bootstrap, topic string) kadm.TopicID {
	t.Helper()
	topics, err := harness.Admin(t, bootstrap).ListTopics(ctx, topic)
	must(t, err)
	return topics[topic].ID
}

// exchange sends a frame and returns the answer without its length.
func exchange(t *testing.T, address string, frame []byte) []byte {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, 30*time.Second)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = conn.Write(frame)
	must(t, err)
	var size [4]byte
	_, err = io.ReadFull(conn, size[:])
	must(t, err)
	answer := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err = io.ReadFull(conn, answer)
	must(t, err)
	return answer
}

// apiVersions: at every version, the gateway says what the broker says, less what it cannot rewrite, plus its own.
func apiVersions(t *testing.T, g *harness.Gateway, destination *kafkatest.Cluster) {
	for v := range int16(7) {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = v, "versions", "1"
		frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("versions")).AppendRequest(nil, req, 7)
		// What brokers say has the offset up to which they know the cluster's metadata: the answers are comparable if that stood still.
		var direct, through []byte
		harness.Eventually(t, time.Minute, "an answer between two equal ones", func(context.Context) error {
			direct, through = exchange(t, destination.BrokerAddr(1), frame), exchange(t, g.BrokerAddr(1), frame)
			if again := exchange(t, destination.BrokerAddr(1), frame); !bytes.Equal(direct, again) {
				return fmt.Errorf("the broker says %x, and then %x", direct, again)
			}
			return nil
		})
		want, got := decoded(t, v, direct), decoded(t, v, through)
		offered := map[int16]kmsg.ApiVersionsResponseApiKey{}
		for _, k := range want.ApiKeys {
			offered[k.ApiKey] = k
		}
		for _, k := range got.ApiKeys {
			broker, ok := offered[k.ApiKey]
			switch own := k.ApiKey >= 95 && k.ApiKey <= 107; {
			case ok == own:
				t.Errorf("v%d: API key %d is from the broker: %v", v, k.ApiKey, ok)
			case k.ApiKey == 19 && k.MaxVersion == 8 && broker.MaxVersion == 7: // with a topic ID
			case ok && (k.MinVersion < broker.MinVersion || k.MaxVersion > broker.MaxVersion):
				t.Errorf("v%d: API key %d has versions %d to %d, the broker's are %d to %d", v, k.ApiKey, k.MinVersion, k.MaxVersion, broker.MinVersion, broker.MaxVersion)
			}
			delete(offered, k.ApiKey)
		}
		if len(offered) > 0 {
			t.Errorf("v%d: the gateway does not offer %v", v, offered)
		}
		want.ApiKeys, got.ApiKeys = nil, nil
		if a, b := want.AppendTo(nil), got.AppendTo(nil); !bytes.Equal(a, b) {
			t.Errorf("v%d: beside the API keys, the broker says %x and the gateway %x", v, a, b)
		}
	}
}

// decoded reads an answer to ApiVersions, which has the shape of v0 if the version was refused.
func decoded(t *testing.T, version int16, answer []byte) *kmsg.ApiVersionsResponse {
	t.Helper()
	resp := kmsg.NewPtrApiVersionsResponse()
	if resp.Version = version; int16(binary.BigEndian.Uint16(answer[4:])) == kerr.UnsupportedVersion.Code {
		resp.Version = 0
	}
	must(t, resp.ReadFrom(answer[4:]))
	return resp
}

// unknownVersions: ApiVersions of a version that nobody knows gets error 35 in the shape of v0 and the way back.
func unknownVersions(t *testing.T, g *harness.Gateway) {
	for _, version := range []int16{6, 42, 32767} {
		frame := []byte{0, 0, 0, 0, 0, 18, 0, 0, 0, 0, 0, 9, 0xff, 0xff, 0, 1, 2, 3}
		binary.BigEndian.PutUint16(frame[6:], uint16(version))
		binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		resp := decoded(t, version, exchange(t, g.Bootstrap(), frame))
		err := fmt.Errorf("it does not name ApiVersions itself: %+v", resp.ApiKeys)
		for _, k := range resp.ApiKeys {
			if k.ApiKey == 18 && k.MaxVersion >= 4 {
				err = nil
			}
		}
		if resp.ErrorCode != kerr.UnsupportedVersion.Code || err != nil {
			t.Errorf("version %d: error %d, %v", version, resp.ErrorCode, err)
		}
	}
}
