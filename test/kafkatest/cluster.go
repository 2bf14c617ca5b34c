package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/mirrorgate/mirrorgate/test/certs"
)

const (
	host = "127.0.0.1"
	// startPatience is how long a broker may take on a machine that is busy with other things.
	startPatience = 6 * time.Minute
	stopPatience  = 4 * time.Minute
)

// Cluster is a running Kafka cluster. Its methods may be called from several goroutines, but Kill, Stop and Restart of
// one node only by one at a time.
type Cluster struct {
	// Dir has a folder node-ID per node, with its log, data and configuration.
	Dir string
	// Authority has signed the brokers' certificates, where they have any.
	Authority *certs.Authority

	certificate certs.Pair

	opts  Options
	jars  string
	java  string
	ports *Ports

	zookeeper *zookeeper // nil where the brokers need none

	mu    sync.Mutex
	nodes map[int32]*node
}

type node struct {
	id                           int32
	port, internalPort, ctrlPort int
	dir                          string
	process                      *Process // nil where it is down
}

// Run starts a cluster with its files in dir (made where it does not exist) and returns when all brokers answer. ctx
// bounds the start only. The caller must Close the cluster.
func Run(ctx context.Context, dir string, opts Options) (*Cluster, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	java, err := Java()
	if err != nil {
		return nil, err
	}
	jars, err := Jars(ctx, opts.Version)
	if err != nil {
		return nil, err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("kafkatest: %w", err)
	}
	ports, err := ReservePorts(3 * opts.Brokers)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: dir, opts: opts, jars: jars, java: java, ports: ports, nodes: map[int32]*node{}}
	if err := c.start(ctx); err != nil {
		err = fmt.Errorf("kafkatest: starting Kafka %s: %w\n%s", opts.Version, err, c.LogTails(15))
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for i := range c.opts.Brokers {
		id := int32(i + 1)
		p := c.ports.Numbers[3*i:]
		c.nodes[id] = &node{id: id, port: p[0], internalPort: p[1], ctrlPort: p[2], dir: filepath.Join(c.Dir, fmt.Sprintf("node-%d", id))}
	}
	if err := c.prepareSecurity(); err != nil {
		return err
	}
	prepare := c.format
	if needsZooKeeper(c.opts.Version) {
		prepare = c.startZooKeeper
	}
	if err := prepare(ctx); err != nil {
		return err
	}
	for _, n := range c.nodes {
		if err := c.launch(n); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := c.waitReady(ctx, n, c.opts.Brokers); err != nil {
			return err
		}
	}
	return nil
}

// format writes the configuration and the metadata folder of every node.
func (c *Cluster) format(ctx context.Context) error {
	var raw [16]byte
	_, _ = rand.Read(raw[:])
	raw[0] &= 0x7f // an ID that begins with a dash would be read as a flag
	clusterID := base64.RawURLEncoding.EncodeToString(raw[:])
	for _, n := range c.nodes {
		if err := os.MkdirAll(n.dir, 0o777); err != nil {
			return err
		}
		if err := c.configure(n); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		args := append([]string{"format", "-t", clusterID, "-c", n.config()}, c.scramFlags()...)
		group.Go(func() error { // each is a JVM of its own
			if output, err := c.Tool(ctx, "kafka-storage", args...); err != nil {
				return fmt.Errorf("formatting node %d: %w\n%s", n.id, err, tail(output, 10))
			}
			return nil
		})
	}
	return group.Wait()
}

func (c *Cluster) configure(n *node) error {
	return os.WriteFile(n.config(), []byte(properties(c.serverConfig(n))), 0o666)
}

func (c *Cluster) serverConfig(n *node) map[string]string {
	advertised := net.JoinHostPort(host, strconv.Itoa(n.port))
	if c.opts.AdvertiseHost != "" {
		advertised = net.JoinHostPort(c.opts.AdvertiseHost, strconv.Itoa(n.port))
	}
	if other, ok := c.opts.Advertise[n.id]; ok {
		advertised = other
	}
	config := quick(c.opts.Brokers)
	if c.zookeeper != nil {
		maps.Copy(config, c.zookeeperConfig(n, advertised))
	} else {
		maps.Copy(config, c.quorumConfig(n, advertised))
	}
	maps.Copy(config, c.securityConfig())
	maps.Copy(config, c.opts.Settings)
	maps.Copy(config, c.opts.NodeSettings[n.id])
	return config
}

// quorumConfig is what a node needs that is broker and controller.
func (c *Cluster) quorumConfig(n *node, advertised string) map[string]string {
	var voters []string
	for id, other := range c.nodes {
		voters = append(voters, fmt.Sprintf("%d@%s:%d", id, host, other.ctrlPort))
	}
	return map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        strconv.Itoa(int(n.id)),
		"controller.quorum.voters":       strings.Join(voters, ","),
		"controller.listener.names":      "CONTROLLER",
		"inter.broker.listener.name":     "INTERNAL",
		"listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"listeners": fmt.Sprintf("CLIENT://%s:%d,INTERNAL://%s:%d,CONTROLLER://%s:%d",
			host, n.port, host, n.internalPort, host, n.ctrlPort),
		"advertised.listeners": fmt.Sprintf("CLIENT://%s,INTERNAL://%s:%d,CONTROLLER://%s:%d",
			advertised, host, n.internalPort, host, n.ctrlPort),
		"log.dirs": filepath.Join(n.dir, "data"),
	}
}

func (c *Cluster) launch(n *node) error {
	args := append(jvmFlags(c.opts.Heap, c.opts.Throughput), "-cp", filepath.Join(c.jars, "*"),
		"kafka.Kafka", n.config())
	cmd := exec.Command(c.java, args...)
	cmd.Dir = n.dir
	process, err := StartProcess(cmd, n.log())
	if err != nil {
		return err
	}
	c.mu.Lock()
	n.process = process
	c.mu.Unlock()
	return nil
}

func (n *node) log() string { return filepath.Join(n.dir, "log") }

func (n *node) config() string { return filepath.Join(n.dir, "server.properties") }

func jvmFlags(heap string, throughput bool) []string {
	flags := []string{
		"-Xmx" + heap, "-Xshare:auto", "-Djava.awt.headless=true",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dorg.slf4j.simpleLogger.showDateTime=true",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
	}
	if !throughput {
		flags = append(flags, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
	}
	return flags
}

// waitReady waits until a node answers with a controller and at least brokers nodes.
func (c *Cluster) waitReady(ctx context.Context, n *node, brokers int) error {
	c.mu.Lock()
	process := n.process
	c.mu.Unlock()
	port := n.port
	if c.opts.Security != nil {
		port = n.internalPort // which needs no credentials
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(net.JoinHostPort(host, strconv.Itoa(port))))
	if err != nil {
		return err
	}
	defer client.Close()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	var last error
	for {
		if last = ready(ctx, client, n.id, brokers); last == nil {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("node %d ended: %w", n.id, errors.Join(process.Err(), last))
		case <-ctx.Done():
			return fmt.Errorf("node %d does not answer: %w", n.id, errors.Join(ctx.Err(), last))
		case <-ticker.C:
		}
	}
}

// ready asks the node itself: the seed is its own port, whatever it advertises.
func ready(ctx context.Context, client *kgo.Client, id int32, brokers int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{}
	response, err := client.SeedBrokers()[0].Request(ctx, request)
	if err != nil {
		return err
	}
	metadata := response.(*kmsg.MetadataResponse)
	self := false
	for _, broker := range metadata.Brokers {
		self = self || broker.NodeID == id
	}
	if !self || len(metadata.Brokers) < brokers || metadata.ControllerID < 0 {
		return fmt.Errorf("it knows %d of %d brokers", len(metadata.Brokers), brokers)
	}
	return nil
}

// Version is the Kafka release that runs.
func (c *Cluster) Version() string { return c.opts.Version }

// Bootstrap is the list of the addresses that the brokers listen on (not those they may advertise).
func (c *Cluster) Bootstrap() string {
	var addresses []string
	for id := range c.opts.Brokers {
		addresses = append(addresses, c.BrokerAddr(int32(id+1)))
	}
	return strings.Join(addresses, ",")
}

// BrokerAddr is the host:port that a broker listens on for clients.
func (c *Cluster) BrokerAddr(id int32) string {
	return net.JoinHostPort(host, strconv.Itoa(c.node(id).port))
}

// Ports are all the ports of the cluster: what clients of a gateway must never see.
func (c *Cluster) Ports() []int { return c.ports.Numbers }

// PID is the process ID of a broker, 0 where it is down.
func (c *Cluster) PID(id int32) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.nodes[id]; n != nil && n.process != nil {
		return n.process.PID
	}
	return 0
}

// node panics on an ID that the cluster does not have: a mistake in the test.
func (c *Cluster) node(id int32) *node {
	n := c.nodes[id]
	if n == nil {
		panic(fmt.Sprintf("kafkatest: no broker %d among %d", id, c.opts.Brokers))
	}
	return n
}

func (c *Cluster) take(n *node) *Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	process := n.process
	n.process = nil
	return process
}

// Kill ends a broker with SIGKILL, as a crash does.
func (c *Cluster) Kill(id int32) {
	if process := c.take(c.node(id)); process != nil {
		process.Kill()
	}
}

// Stop shuts a broker down cleanly.
func (c *Cluster) Stop(id int32) error {
	process := c.take(c.node(id))
	if process != nil && !process.Stop(stopPatience) {
		return fmt.Errorf("kafkatest: broker %d did not stop in %v, killed", id, stopPatience)
	}
	return nil
}

// Pause stops a broker's process in its tracks (SIGSTOP): its connections stay open and nothing answers. Resume lets it
// go on.
func (c *Cluster) Pause(id int32) error { return c.signal(id, pauseSignal) }

// Resume ends a Pause.
func (c *Cluster) Resume(id int32) error { return c.signal(id, resumeSignal) }

func (c *Cluster) signal(id int32, signal os.Signal) error {
	n := c.node(id)
	c.mu.Lock()
	process := n.process
	c.mu.Unlock()
	if process == nil {
		return fmt.Errorf("kafkatest: broker %d is down", id)
	}
	return process.Signal(signal)
}

// Restart starts a broker again on the same ports and data, after a clean stop if it runs, and waits until it answers.
func (c *Cluster) Restart(ctx context.Context, id int32) error {
	if err := c.Stop(id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	n := c.node(id)
	if err := c.zookeeper.awaitForgotten(ctx, id); err != nil {
		return err
	}
	if err := c.launch(n); err != nil {
		return err
	}
	if err := c.waitReady(ctx, n, 1); err != nil {
		return fmt.Errorf("kafkatest: restarting broker %d: %w\n%s", id, err, c.LogTails(15))
	}
	return nil
}

// Replace ends the cluster and starts another one in its place: with another cluster ID and no data, on the same ports. It is
// for releases that need no ZooKeeper.
func (c *Cluster) Replace(ctx context.Context) error {
	if c.zookeeper != nil {
		return errors.New("kafkatest: a cluster with a ZooKeeper cannot be replaced")
	}
	for _, n := range c.nodes {
		if process := c.take(n); process != nil {
			process.Kill()
		}
		if err := os.RemoveAll(n.dir); err != nil {
			return fmt.Errorf("kafkatest: %w", err)
		}
	}
	if err := c.start(ctx); err != nil {
		return fmt.Errorf("kafkatest: starting another cluster: %w\n%s", err, c.LogTails(15))
	}
	return nil
}

// Advertise makes a broker tell clients another address from its next Restart on.
func (c *Cluster) Advertise(id int32, address string) error {
	n := c.node(id)
	advertise := maps.Clone(c.opts.Advertise)
	if advertise == nil {
		advertise = map[int32]string{}
	}
	advertise[id] = address
	c.opts.Advertise = advertise
	return c.configure(n)
}

// LogTails shows the last lines of every broker's log.
func (c *Cluster) LogTails(lines int) string {
	var b strings.Builder
	for id := range c.opts.Brokers {
		n := c.nodes[int32(id+1)]
		if n == nil {
			continue
		}
		output, err := os.ReadFile(n.log())
		if err != nil {
			continue
		}
		fmt.Fprintf(&b, "--- %s\n%s\n", n.log(), tail(output, lines))
	}
	return b.String()
}

// Close kills all brokers; the files stay.
func (c *Cluster) Close() {
	var processes []*Process
	for _, n := range c.nodes {
		if process := c.take(n); process != nil {
			_ = process.Signal(os.Kill)
			processes = append(processes, process)
		}
	}
	for _, process := range processes {
		<-process.Done()
	}
	c.zookeeper.kill()
	c.ports.Release()
}
