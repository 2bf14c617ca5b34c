package limits

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// TestHugeMetadata: answers with 50,000 partitions for many clients at once, some of which do not read them. Memory is
// bounded by what is promised for a connection.
func TestHugeMetadata(t *testing.T) {
	partitions, readers, slow := 20_000, 4, 8
	if full {
		partitions, readers, slow = 50_000, 50, 100
	}
	const high = 1 << 20
	g := harness.StartGateway(t, harness.GatewayOptions{Destination: fake(t, partitions), Flags: []string{
		"--outbound-high-bytes", fmt.Sprint(high), "--outbound-low-bytes", fmt.Sprint(high / 4)}})
	all := metadata()
	c, err := dial(g.BrokerAddr(0))
	must(t, err)
	answer, err := c.ask(all)
	must(t, err)
	c.Close()
	before, end := take(t, g), others(t, g)

	// Those that do not read ask again and again.
	var stuck []*client
	for range slow {
		c, err := dial(g.BrokerAddr(0))
		must(t, err)
		defer c.Close()
		stuck = append(stuck, c)
		for range 20 {
			_, err := c.Write(c.frame(all))
			must(t, err)
		}
	}
	must(t, parallel(readers, func(int) error {
		c, err := dial(g.BrokerAddr(0))
		if err != nil {
			return err
		}
		defer c.Close()
		for range 3 {
			got, err := c.ask(all)
			if err != nil {
				return err
			}
			if len(got) != len(answer) {
				return fmt.Errorf("an answer of %d bytes instead of %d", len(got), len(answer))
			}
		}
		return nil
	}))
	harness.Eventually(t, time.Minute, "connections are paused for slow readers", func(context.Context) error {
		if n := g.Metric(t, "mirrorgate_proxy_paused_connections"); n < float64(slow) {
			return fmt.Errorf("%v are", n)
		}
		return nil
	})
	// Each slow reader: what is above the watermark by one answer, and the next answer held to be rewritten, in buffers that
	// grow by doubling.
	allowed := int64(slow)*(high+6*int64(len(answer))) + int64(readers)*4*int64(len(answer)) + 64<<20
	now := take(t, g)
	t.Logf("answers of %d bytes: %d MB resident, %d MB before, %d MB allowed", len(answer), now.resident>>20, before.resident>>20, allowed>>20)
	if now.resident-before.resident > allowed {
		t.Errorf("memory grew by %d bytes", now.resident-before.resident)
	}
	// They get all of it once they read.
	must(t, stuck[0].SetDeadline(time.Now().Add(2*time.Minute)))
	for i := range int32(20) {
		got, err := stuck[0].read(i + 1)
		must(t, err)
		if len(got) != len(answer) {
			t.Fatalf("an answer of %d bytes instead of %d", len(got), len(answer))
		}
	}
	for _, c := range stuck {
		c.Close()
	}
	end()
	back(t, g, before)
}

// TestPipelining: a client that sends far more requests than may be in flight, and reads nothing for a while, is read no
// further, costs little memory, and gets every answer in order.
func TestPipelining(t *testing.T) {
	requests := int32(20_000)
	if full {
		requests = 200_000
	}
	g := harness.StartGateway(t, harness.GatewayOptions{Destination: fake(t, 10), Flags: []string{"--max-in-flight", "100"}})
	before, end := take(t, g), others(t, g)
	c, err := dial(g.BrokerAddr(0))
	must(t, err)
	defer c.Close()
	sent := make(chan error, 1)
	go func() {
		var stream []byte
		for range requests {
			if stream = append(stream, c.frame(metadata("topic-0"))...); len(stream) > 1<<20 || c.sent == requests {
				if _, err := c.Write(stream); err != nil {
					sent <- err
					return
				}
				stream = stream[:0]
			}
		}
		sent <- nil
	}()
	harness.Eventually(t, time.Minute, "the client is read no further", func(context.Context) error {
		if g.Metric(t, "mirrorgate_proxy_requests_in_flight") > 101 {
			t.Fatalf("%v requests are in flight", g.Metric(t, "mirrorgate_proxy_requests_in_flight"))
		}
		if g.Metric(t, "mirrorgate_proxy_paused_connections") == 0 && g.Metric(t, "mirrorgate_proxy_requests_total") < float64(requests) {
			return fmt.Errorf("%v requests so far", g.Metric(t, "mirrorgate_proxy_requests_total"))
		}
		return nil
	})
	if grown := take(t, g).resident - before.resident; grown > 64<<20 {
		t.Errorf("memory grew by %d bytes", grown)
	}
	must(t, c.SetReadDeadline(time.Now().Add(5*time.Minute)))
	for i := range requests {
		_, err := c.read(i + 1)
		must(t, err)
	}
	must(t, <-sent)
	c.Close()
	end()
	back(t, g, before)
}
