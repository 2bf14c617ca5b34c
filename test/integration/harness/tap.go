package harness

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/mirrorgate/mirrorgate/test/faultproxy"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// A gateway with taps listens on one loopback address and advertises another, where taps listen on the same ports: so every
// byte of every client passes through a tap, also on the brokers' ports.
const tapListen, tapAdvertise = "127.0.0.2", "127.0.0.3"

// Tap looks for the addresses of the destination in all that clients receive.
type Tap struct {
	needles map[string][]byte
	own     []byte

	mu    sync.Mutex
	tails map[[2]int64][]byte // the last bytes of each connection, as a needle may be cut in two
	leaks map[string]string   // needle → the bytes around it
	seen  int                 // how often the gateway's own address was received
	bytes int64
}

// TappedGateway runs a gateway with taps in front of all its ports. At the end of the test it fails if an address of the destination, whose
// brokers are known by the given hosts, came through. opts need no addresses to listen on.
func TappedGateway(t testing.TB, opts GatewayOptions, to *kafkatest.Cluster, destinationHosts ...string) (*Gateway, *Tap) {
	t.Helper()
	opts.Listen, opts.Advertise = tapListen, tapAdvertise
	gw := StartGateway(t, opts)
	p := &Tap{needles: map[string][]byte{}, tails: map[[2]int64][]byte{}, leaks: map[string]string{}}
	for _, host := range destinationHosts {
		p.needles[host] = []byte(host)
	}
	for _, port := range to.Ports() {
		p.needles[fmt.Sprintf("port %d as text", port)] = fmt.Appendf(nil, ":%d", port)
		p.needles[fmt.Sprintf("%s with port %d", tapAdvertise, port)] = binary.BigEndian.AppendUint32([]byte(tapAdvertise), uint32(port))
	}
	p.own = binary.BigEndian.AppendUint32([]byte(tapAdvertise), uint32(gw.Port+2)) // broker 1
	for i, port := range gw.Ports() {
		address := net.JoinHostPort(tapAdvertise, strconv.Itoa(port))
		proxy, err := faultproxy.Listen(address, net.JoinHostPort(tapListen, strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		proxy.Observe(func(connection int64, toClient bool, data []byte) {
			if toClient {
				p.look([2]int64{int64(i), connection}, data)
			}
		})
	}
	t.Cleanup(func() { p.report(t) })
	return gw, p
}

func (p *Tap) look(connection [2]int64, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	const longest = 64
	p.bytes += int64(len(data))
	tail := p.tails[connection]
	joined := append(tail, data...)
	for name, needle := range p.needles {
		for at := range indexes(joined, needle) {
			// DescribeGroups has the addresses of a group's members, as "/127.0.0.1": that is the gateway itself.
			if at+len(needle) > len(tail) && (at == 0 || joined[at-1] != '/') {
				p.leaks[name] = fmt.Sprintf("%q", joined[max(0, at-40):min(len(joined), at+40)])
			}
		}
	}
	p.seen += bytes.Count(joined, p.own) - bytes.Count(tail, p.own)
	p.tails[connection] = bytes.Clone(joined[max(0, len(joined)-longest):])
}

// indexes are the places where a needle begins.
func indexes(data, needle []byte) iter.Seq[int] {
	return func(yield func(int) bool) {
		for from := 0; ; {
			i := bytes.Index(data[from:], needle)
			if i < 0 || !yield(from+i) {
				return
			}
			from += i + 1
		}
	}
}

func (p *Tap) report(t testing.TB) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, around := range p.leaks {
		t.Errorf("clients received %s of the destination, as in %s", name, around)
	}
	if p.seen == 0 {
		t.Error("the taps never saw the gateway's own address: they do not see the traffic")
	}
}

// Bytes is how much clients received so far.
func (p *Tap) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}
