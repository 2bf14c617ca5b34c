package integration

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// answerPatience is how long an answer, or the end of a connection, is waited for.
const answerPatience = time.Minute

// Whatever is sent to the gateway's ports: the connection ends or gets a proper answer, the gateway lives on and its
// memory, goroutines and file descriptors come back.
func TestHostileInput(t *testing.T) {
	random := harness.Random(t)
	to := destination(t)
	harness.CreateTopics(t, to.Bootstrap(), harness.Topic{Name: "hostile", Partitions: 1})
	gw := gateway(t, to, "--frame-timeout", "5s") // and no less: a client of this test may stand still for seconds
	warmUp(t, gw)
	goroutines, rss, fds := gw.Metric(t, "go_goroutines"), gw.RSS(t), gw.FDs(t)

	for name, attack := range attacks(t, gw, random) {
		for _, address := range []string{gw.Bootstrap(), gw.BrokerAddr(1)} {
			if err := attack(address); err != nil {
				t.Errorf("%s at %s: %v", name, address, err)
			}
		}
		warmUp(t, gw) // alive?
	}
	harness.Eventually(t, time.Minute, "goroutines and descriptors are back", func(context.Context) error {
		if now := gw.Metric(t, "go_goroutines"); now > goroutines+10 {
			return fmt.Errorf("%v goroutines, %v before", now, goroutines)
		}
		if now := gw.FDs(t); now > fds+10 {
			return fmt.Errorf("%d descriptors, %d before", now, fds)
		}
		return nil
	})
	const allowance = 64 << 20
	harness.Eventually(t, 2*time.Minute, "memory is back", func(context.Context) error {
		if now := gw.RSS(t); now > rss+allowance {
			return fmt.Errorf("%d bytes resident, %d before", now, rss)
		}
		return nil
	})
	t.Logf("before: %v goroutines, %d MB, %d descriptors; after: %v, %d MB, %d", goroutines, rss>>20, fds,
		gw.Metric(t, "go_goroutines"), gw.RSS(t)>>20, gw.FDs(t))
}

// warmUp uses the gateway as a client does.
func warmUp(t *testing.T, gw *harness.Gateway) {
	t.Helper()
	client := gw.Client(t)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), readPatience)
	defer cancel()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "hostile", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatalf("the gateway does not serve: %v", err)
	}
}

// attacks each get an address and must see the connection closed, or a proper answer.
func attacks(t *testing.T, gw *harness.Gateway, random *rand.Rand) map[string]func(address string) error {
	raw := func(data []byte) func(string) error {
		return func(address string) error { return expectClosed(address, data) }
	}
	frame := func(length uint32, rest ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, length), rest...)
	}
	noise := make([]byte, 100_000)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	noise[0] = 0xff // a negative length: what is random behind it does not matter
	return map[string]func(string) error{
		"negative length":         raw(frame(0xffffffff, noise[:100]...)),
		"zero length":             raw(frame(0)),
		"length below a header":   raw(frame(5, 0, 3, 0, 1, 0)),
		"2 GB length":             raw(frame(0x7fffffff, noise[:1000]...)),
		"HTTP":                    raw([]byte("GET / HTTP/1.1\r\nHost: example.com\r\nUser-Agent: curl\r\n\r\n")),
		"TLS":                     tlsHello,
		"noise":                   raw(noise),
		"unknown key":             raw(request(9999, 0, 1, nil)),
		"negative key":            raw(request(-1, 0, 1, nil)),
		"unknown version":         raw(request(3, 99, 1, []byte{0, 0, 0, 0})),
		"half a frame":            raw(frame(1000, request(3, 9, 1, nil)[4:]...)),
		"nothing but a length":    raw(frame(100)),
		"ApiVersions of tomorrow": askApiVersions,
		"one byte at a time":      oneByteAtATime,
		"1,000 pipelined":         pipelined,
		"truncated bodies":        truncated,
		"silent clients":          silent,
		"announced frames":        func(address string) error { return announced(t, gw, address) },
	}
}

// announced opens 100 connections that announce a CreateMirror of 90 MB each and send little of it: memory is for what
// arrives. (It is a request that no broker sees: a broker does reserve what is announced, through the gateway or not.)
func announced(t *testing.T, gw *harness.Gateway, address string) error {
	before := gw.RSS(t)
	for range 100 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		data := request(mirrormsg.CreateMirrorKey, 0, 1, make([]byte, 1000))
		binary.BigEndian.PutUint32(data, 90<<20)
		if _, err := c.Write(data); err != nil {
			return err
		}
	}
	// An answer on another connection comes after the gateway has read those.
	if _, err := roundTrip(address, apiVersionsV0(1)); err != nil {
		return err
	}
	if now := gw.RSS(t); now > before+100<<20 {
		return fmt.Errorf("%d MB resident, %d MB before", now>>20, before>>20)
	}
	return nil
}

// request is a frame with a non-flexible header.
func request(key, version int16, correlation int32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+2+3+len(body)))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(correlation))
	b = append(b, 0, 3, 'b', 'a', 'd')
	return append(b, body...)
}

// expectClosed sends data and waits until the other side closes.
func expectClosed(address string, data []byte) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(answerPatience))
	_, _ = c.Write(data) // it may be closed meanwhile
	n, err := io.Copy(io.Discard, c)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("still open after %v, %d bytes received", answerPatience, n)
	}
	return nil // end of file or reset
}

func tlsHello(address string) error {
	dialer := &net.Dialer{Timeout: answerPatience}
	c, err := tls.DialWithDialer(dialer, "tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err == nil {
		c.Close()
		return errors.New("a TLS handshake succeeded")
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("still open after %v", answerPatience)
	}
	return nil
}

// askApiVersions asks with a version that nobody has: the answer must be UNSUPPORTED_VERSION in version 0.
func askApiVersions(address string) error {
	response, err := roundTrip(address, request(18, 99, 7, []byte{0, 1, 1, 0}))
	if err != nil {
		return err
	}
	if code := binary.BigEndian.Uint16(response[4:]); code != 35 {
		return fmt.Errorf("error code %d, want 35", code)
	}
	return nil
}

func roundTrip(address string, data []byte) ([]byte, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(answerPatience))
	if _, err := c.Write(data); err != nil {
		return nil, err
	}
	return readFrame(c)
}

func readFrame(r io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n < 4 || n > 10<<20 {
		return nil, fmt.Errorf("a response of %d bytes", n)
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(r, frame)
	return frame, err
}

func apiVersionsV0(correlation int32) []byte { return request(18, 0, correlation, nil) }

func oneByteAtATime(address string) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(answerPatience))
	_ = c.(*net.TCPConn).SetNoDelay(true)
	for i := range int32(3) {
		for _, b := range apiVersionsV0(i) {
			if _, err := c.Write([]byte{b}); err != nil {
				return err
			}
		}
		response, err := readFrame(c)
		if err != nil {
			return err
		}
		if got := int32(binary.BigEndian.Uint32(response)); got != i {
			return fmt.Errorf("answer %d to request %d", got, i)
		}
	}
	return nil
}

// pipelined sends 1,000 requests at once, of several kinds (passed, rewritten, answered by the gateway); every one must
// be answered, in order.
func pipelined(address string) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * answerPatience))
	var data []byte
	for i := range int32(1000) {
		switch i % 3 {
		case 0:
			data = append(data, apiVersionsV0(i)...)
		case 1: // Metadata v1 of all topics
			data = append(data, request(3, 1, i, []byte{0xff, 0xff, 0xff, 0xff})...)
		case 2: // ListGroups v0
			data = append(data, request(16, 0, i, nil)...)
		}
	}
	sent := make(chan error, 1)
	go func() { _, err := c.Write(data); sent <- err }()
	for i := range int32(1000) {
		response, err := readFrame(c)
		if err != nil {
			return fmt.Errorf("answer %d: %w", i, err)
		}
		if got := int32(binary.BigEndian.Uint32(response)); got != i {
			return fmt.Errorf("answer %d to request %d", got, i)
		}
	}
	return <-sent
}

// truncated sends, for every request that the gateway may look into, bodies that end too early.
func truncated(address string) error {
	var keys []int16
	for key := range int16(93) {
		keys = append(keys, key)
	}
	for _, key := range append(keys, mirrormsg.Keys()...) {
		message := kmsg.RequestForKey(key)
		if mirror := mirrormsg.RequestForKey(key); mirror != nil {
			message = mirror
		}
		if message == nil {
			continue
		}
		for _, version := range []int16{0, message.MaxVersion()} {
			message.SetVersion(version)
			whole := kmsg.NewRequestFormatter(kmsg.FormatterClientID("bad")).AppendRequest(nil, message, 1)
			for _, cut := range []int{1, 2, (len(whole) - 12) / 2} {
				if err := sendTruncated(address, whole, cut); err != nil {
					return fmt.Errorf("%s v%d without its last %d bytes: %w", kmsg.NameForKey(key), version, cut, err)
				}
			}
		}
	}
	return nil
}

// sendTruncated leaves out the last bytes of a request and makes the length fit. Closing and any proper frame are fine;
// silence is what a broker too gives to a few (acks=0), so it is not waited for.
func sendTruncated(address string, whole []byte, cut int) error {
	if cut <= 0 || len(whole)-cut < 12 {
		return nil
	}
	data := append([]byte(nil), whole[:len(whole)-cut]...)
	binary.BigEndian.PutUint32(data, uint32(len(data)-4))
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(500 * time.Millisecond))
	if _, err := c.Write(data); err != nil {
		return nil
	}
	response, err := readFrame(c)
	if err == nil && binary.BigEndian.Uint32(response) != 1 {
		return fmt.Errorf("a response with correlation ID %d", binary.BigEndian.Uint32(response))
	}
	return nil
}

// silent opens 300 connections that send nothing, or little, and leaves them.
func silent(address string) error {
	for i := range 300 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		if i%2 == 0 {
			if _, err := c.Write([]byte{0, 0, 1, 0, 0, 3}[:1+i%6]); err != nil {
				return err
			}
		}
		defer c.Close()
	}
	return nil
}
