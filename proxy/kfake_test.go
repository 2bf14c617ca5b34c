package proxy

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// mapper is the least that a real client needs: broker addresses in responses become the gateway's.
type mapper struct{ to Addresses }

func (m mapper) Route(_ Client, h Header) Route {
	switch h.Key {
	case 3, 10, 60:
		return Route{Rewrite: func(frame []byte) ([]byte, error) { return m.rewrite(h, frame) }}
	}
	return Route{}
}

func (mapper) Request(Client, Header, []byte) Decision { panic("no request is wanted whole") }

func (m mapper) rewrite(h Header, frame []byte) ([]byte, error) {
	req := kmsg.RequestForKey(h.Key)
	req.SetVersion(h.Version)
	resp := req.ResponseKind()
	c := cursor{b: frame, end: len(frame)}
	if c.skip(4); resp.IsFlexible() {
		c.skipTags()
	}
	if err := resp.ReadFrom(frame[c.off:]); err != nil {
		return nil, err
	}
	if err := m.addresses(resp); err != nil {
		return nil, err
	}
	return resp.AppendTo(frame[:c.off:c.off]), nil
}

func (m mapper) addresses(resp kmsg.Response) (err error) {
	change := func(node int32, host *string, port *int32) {
		if node >= 0 && err == nil {
			*host, *port, err = m.to.Advertise(node, *host, *port)
		}
	}
	switch r := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range r.Brokers {
			change(r.Brokers[i].NodeID, &r.Brokers[i].Host, &r.Brokers[i].Port)
		}
	case *kmsg.FindCoordinatorResponse:
		if r.Port > 0 {
			change(r.NodeID, &r.Host, &r.Port)
		}
		for i := range r.Coordinators {
			if c := &r.Coordinators[i]; c.Port > 0 {
				change(c.NodeID, &c.Host, &c.Port)
			}
		}
	case *kmsg.DescribeClusterResponse:
		for i := range r.Brokers {
			change(r.Brokers[i].NodeID, &r.Brokers[i].Host, &r.Brokers[i].Port)
		}
	}
	return err
}

// TestKgo: a real client produces and consumes, with a group, through the gateway alone.
func TestKgo(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(6, "orders"))
	require.NoError(t, err)
	defer cluster.Close()
	throughGateway(t, cluster.ListenAddrs(), "orders")
}

// throughGateway produces to a topic and consumes it, with connections to the gateway only.
func throughGateway(t *testing.T, bootstrap []string, topic string, opts ...kgo.Opt) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cfg := DefaultConfig()
	cfg.Listen, cfg.Bootstrap = "127.0.0.1:0", bootstrap
	srv, err := New(cfg, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, srv.Start(ctx, mapper{srv}))
	defer func() { require.NoError(t, srv.Stop(ctx)) }()

	direct := map[string]bool{}
	for _, addr := range bootstrap {
		direct[addr] = true
	}
	opts = append(opts, kgo.SeedBrokers(srv.Addr()), kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		if direct[addr] {
			t.Errorf("the client learned the address of a broker: %s", addr)
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}))
	producer, err := kgo.NewClient(opts...)
	require.NoError(t, err)
	defer producer.Close()
	const n = 5000
	for i := range n {
		producer.Produce(ctx, &kgo.Record{Topic: topic, Key: []byte(strconv.Itoa(i)), Value: fmt.Appendf(nil, "value %d", i)},
			func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
	}
	require.NoError(t, producer.Flush(ctx))

	consumer, err := kgo.NewClient(append(opts, kgo.ConsumeTopics(topic), kgo.ConsumerGroup("g"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	require.NoError(t, err)
	defer consumer.Close()
	seen := map[string]string{}
	for len(seen) < n {
		fetches := consumer.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { seen[string(r.Key)] = string(r.Value) })
	}
	for i := range n {
		require.Equal(t, "value "+strconv.Itoa(i), seen[strconv.Itoa(i)])
	}
	require.NoError(t, consumer.CommitUncommittedOffsets(ctx))
}
