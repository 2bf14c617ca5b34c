package integration

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/test/faultproxy"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// A destination of three brokers: one that comes up later is served, one that goes down costs only the connections to
// it, and one that moves is found again; the mirror goes on through all of it.
func TestBrokersComeGoAndMove(t *testing.T) {
	random := harness.Random(t)
	from := source(t)
	to := kafkatest.Start(t, kafkatest.Options{Brokers: 3, Settings: map[string]string{
		"default.replication.factor": "3", "min.insync.replicas": "1", "auto.leader.rebalance.enable": "true", "leader.imbalance.check.interval.seconds": "1"}})
	topic := harness.Topic{Name: "moves", Partitions: 6}
	harness.CreateTopics(t, from, topic)
	to.Kill(3)
	gw := harness.StartGateway(t, harness.GatewayOptions{Destination: to.BrokerAddr(1) + "," + to.BrokerAddr(2)})
	harness.CreateMirror(t, gw.Client(t), "moves", from)

	if err := to.Restart(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	writer := startLoad(t.Context(), from, topic, random)
	writer.release(6000)
	harness.AddTopics(t, gw.Client(t), "moves", topic.Name)
	harness.Eventually(t, time.Minute, "broker 3 is served", func(context.Context) error { return answers(gw.BrokerAddr(3)) })

	open := map[int32]net.Conn{}
	for id := int32(1); id <= 3; id++ {
		c, err := net.Dial("tcp", gw.BrokerAddr(id))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := ask(c); err != nil {
			t.Fatalf("broker %d: %v", id, err)
		}
		open[id] = c
	}
	writer.release(6000)
	to.Kill(2)
	_ = open[2].SetReadDeadline(time.Now().Add(answerPatience))
	if n, err := open[2].Read(make([]byte, 1)); err == nil || n > 0 {
		t.Errorf("the connection to the killed broker gave %d bytes, %v", n, err)
	} else if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		t.Errorf("the connection to the killed broker is still open after %v", answerPatience)
	}
	for _, id := range []int32{1, 3} {
		if err := ask(open[id]); err != nil {
			t.Errorf("the connection to broker %d did not survive the death of broker 2: %v", id, err)
		}
	}
	writer.release(6000)
	// Broker 2 comes back under another address.
	ports, err := kafkatest.ReservePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ports.Release)
	moved := fmt.Sprintf("127.0.0.1:%d", ports.Numbers[0])
	proxy, err := faultproxy.Listen(moved, to.BrokerAddr(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	if err := to.Advertise(2, moved); err != nil {
		t.Fatal(err)
	}
	if err := to.Restart(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, time.Minute, "clients of broker 2 come to its new address", func(context.Context) error {
		before := proxy.Accepted()
		if err := answers(gw.BrokerAddr(2)); err != nil {
			return err
		}
		if proxy.Accepted() == before {
			return fmt.Errorf("answered from the old address")
		}
		return nil
	})
	writer.finish(t)
	clean(t, gw, "moves", from, to.Bootstrap(), writer.total, topic.Name)

	// A client of the gateway alone reaches every partition.
	reader := gw.Client(t, kgo.ConsumeTopics(topic.Name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), readPatience)
	defer cancel()
	for range writer.total {
		pollOne(ctx, t, reader)
	}
}

// A rolling restart of all brokers under load, of the destination and of the source: leaders move, and nothing has to be
// done by hand.
func TestRollingRestart(t *testing.T) {
	three := kafkatest.Options{Brokers: 3, Settings: map[string]string{"default.replication.factor": "3", "min.insync.replicas": "2"}}
	for _, side := range []string{"destination", "source"} {
		t.Run(side, func(t *testing.T) {
			clusters := map[string]*kafkatest.Cluster{}
			for _, name := range []string{"source", "destination"} {
				options := kafkatest.Options{}
				if name == side {
					options = three
				}
				clusters[name] = kafkatest.Start(t, options)
			}
			rollingRestart(t, clusters["source"], clusters["destination"], clusters[side])
		})
	}
}

func rollingRestart(t *testing.T, from, to, restarted *kafkatest.Cluster) {
	random := harness.Random(t)
	topic := harness.Topic{Name: "rolling", Partitions: 6, Codec: kgo.GzipCompression()}
	harness.CreateTopics(t, from.Bootstrap(), topic)
	gw := gateway(t, to)
	harness.CreateMirror(t, gw.Client(t), "rolling", from.Bootstrap())
	harness.AddTopics(t, gw.Client(t), "rolling", topic.Name)
	writer := startLoad(t.Context(), from.Bootstrap(), topic, random)
	for id := int32(1); id <= 3; id++ {
		writer.release(10_000)
		waitTotal(t, to.Bootstrap(), topic.Name, writer.total-9500)
		if err := restarted.Restart(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	writer.finish(t)
	clean(t, gw, "rolling", from.Bootstrap(), to.Bootstrap(), writer.total, topic.Name)
}

// answers opens a connection and asks for ApiVersions.
func answers(address string) error {
	response, err := roundTrip(address, apiVersionsV0(5))
	if err == nil && binary.BigEndian.Uint32(response) != 5 {
		err = fmt.Errorf("the answer has correlation ID %d", binary.BigEndian.Uint32(response))
	}
	return err
}

// ask asks for ApiVersions on an open connection.
func ask(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(answerPatience))
	if _, err := c.Write(apiVersionsV0(6)); err != nil {
		return err
	}
	_, err := readFrame(c)
	return err
}
