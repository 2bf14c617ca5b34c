package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// OldestVersion is the oldest release that starts on Java 17: 0.11 ends before it says why.
const OldestVersion = "1.0.2"

// zookeeperSession is how long ZooKeeper remembers a broker that was killed, and for how long one that lives may stand still.
// (Longer than 20 ticks it cannot be.)
const zookeeperSession = 9 * time.Second

// needsZooKeeper tells the releases that run with ZooKeeper here. (3.3 to 3.9 could, too.)
func needsZooKeeper(version string) bool { return olderThan(version, 3, 3) }

func olderThan(version string, major, minor int) bool {
	haveMajor, haveMinor, _ := parseVersion(version)
	return haveMajor < major || haveMajor == major && haveMinor < minor
}

// artifacts are what a release is fetched as.
func artifacts(version string) []Artifact {
	scala := "2.13"
	if olderThan(version, 2, 4) {
		scala = "2.12"
	}
	list := []Artifact{{"org.apache.kafka", "kafka_" + scala, version}, {"org.apache.kafka", "kafka-tools", version}}
	if olderThan(version, 2, 4) {
		// The ZooKeeper 3.4 client that these releases bring cannot read addresses on Java 14 and later.
		list = append(list, Artifact{"org.apache.zookeeper", "zookeeper", "3.5.9"})
	}
	return list
}

// zookeeper is the one ZooKeeper server of a cluster that needs one. It lives as long as the cluster.
type zookeeper struct {
	port    int
	process *Process
}

func (z *zookeeper) addr() string { return net.JoinHostPort(host, strconv.Itoa(z.port)) }

// startZooKeeper starts ZooKeeper and writes the configuration of every node.
func (c *Cluster) startZooKeeper(ctx context.Context) error {
	dir := filepath.Join(c.Dir, "zookeeper")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	z := &zookeeper{port: c.nodes[1].ctrlPort} // brokers without a quorum have no controller port
	config := filepath.Join(dir, "zookeeper.properties")
	settings := map[string]string{
		"dataDir": filepath.Join(dir, "data"), "clientPort": strconv.Itoa(z.port), "clientPortAddress": host,
		"maxClientCnxns": "0", "admin.enableServer": "false", "tickTime": "500", "4lw.commands.whitelist": "dump,ruok",
	}
	if err := os.WriteFile(config, []byte(properties(settings)), 0o666); err != nil {
		return err
	}
	args := append(jvmFlags("128m", false), "-cp", filepath.Join(c.jars, "*"), "org.apache.zookeeper.server.quorum.QuorumPeerMain", config)
	cmd := exec.Command(c.java, args...)
	cmd.Dir = dir
	var err error
	if z.process, err = StartProcess(cmd, filepath.Join(dir, "log")); err != nil {
		return err
	}
	c.zookeeper = z
	if err := z.await(ctx, "ruok", func(answer string) bool { return answer == "imok" }); err != nil {
		return fmt.Errorf("starting ZooKeeper: %w\n%s", err, z.process.LogTail(15))
	}
	for _, n := range c.nodes {
		if err := os.MkdirAll(n.dir, 0o777); err != nil {
			return err
		}
		if err := c.configure(n); err != nil {
			return err
		}
	}
	return nil
}

// zookeeperConfig is what a broker needs instead of a quorum.
func (c *Cluster) zookeeperConfig(n *node, advertised string) map[string]string {
	return map[string]string{
		"broker.id":                    strconv.Itoa(int(n.id)),
		"zookeeper.connect":            c.zookeeper.addr(),
		"zookeeper.session.timeout.ms": strconv.FormatInt(zookeeperSession.Milliseconds(), 10),
		// The default is the session's: too short for the start of a broker on a busy machine.
		"zookeeper.connection.timeout.ms": "120000",
		"inter.broker.listener.name":      "INTERNAL",
		"listener.security.protocol.map":  "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
		"listeners":                       fmt.Sprintf("CLIENT://%s:%d,INTERNAL://%s:%d", host, n.port, host, n.internalPort),
		"advertised.listeners":            fmt.Sprintf("CLIENT://%s,INTERNAL://%s:%d", advertised, host, n.internalPort),
		"log.dirs":                        filepath.Join(n.dir, "data"),
	}
}

// awaitForgotten waits until ZooKeeper no longer knows a broker: one that was killed may only then come back.
func (z *zookeeper) awaitForgotten(ctx context.Context, id int32) error {
	if z == nil {
		return nil
	}
	return z.await(ctx, "dump", func(answer string) bool {
		for line := range strings.Lines(answer) {
			if strings.TrimSpace(line) == fmt.Sprintf("/brokers/ids/%d", id) {
				return false
			}
		}
		return true
	})
}

// await sends one of ZooKeeper's four-letter words until its answer is good.
func (z *zookeeper) await(ctx context.Context, word string, good func(string) bool) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		answer, err := z.ask(word)
		if err == nil && good(answer) {
			return nil
		}
		select {
		case <-z.process.Done():
			return fmt.Errorf("ZooKeeper ended: %w", z.process.Err())
		case <-ctx.Done():
			return fmt.Errorf("%q of ZooKeeper: %q: %w", word, answer, errors.Join(ctx.Err(), err))
		case <-ticker.C:
		}
	}
}

func (z *zookeeper) ask(word string) (string, error) {
	conn, err := net.DialTimeout("tcp", z.addr(), 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

func (z *zookeeper) kill() {
	if z != nil && z.process != nil {
		z.process.Kill()
	}
}
