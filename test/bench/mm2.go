package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// mm2 is MirrorMaker 2 in its dedicated mode.
type mm2 struct {
	*kafkatest.Process
	lab   *lab
	topic string // at the destination
	alias string
}

// newMM2 starts MirrorMaker 2 with its stock settings and these. Each has another alias for the source, so that it finds
// nothing of those before it at the destination.
func (l *lab) newMM2(ctx context.Context, source *kafkatest.Cluster, topic string, settings map[string]string) (*mm2, error) {
	java, err := kafkatest.Java()
	if err != nil {
		return nil, err
	}
	jars, err := kafkatest.Fetch(ctx, "mm2-"+l.version, kafkatest.Artifact{Group: "org.apache.kafka", Name: "connect-mirror", Version: l.version})
	if err != nil {
		return nil, err
	}
	dir, err := l.folder()
	if err != nil {
		return nil, err
	}
	m := &mm2{lab: l, alias: filepath.Base(dir)}
	m.topic = m.alias + "." + topic
	config := m.config(source, topic)
	maps.Copy(config, settings)
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(config)) {
		fmt.Fprintf(&text, "%s = %s\n", key, config[key])
	}
	file := filepath.Join(dir, "mm2.properties")
	if err := os.WriteFile(file, []byte(text.String()), 0o666); err != nil {
		return nil, err
	}
	cmd := exec.Command(java, "-Xmx"+l.mm2Heap, "-Xms256m", "-XX:+UseG1GC", "-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(jars, "*"), "org.apache.kafka.connect.mirror.MirrorMaker", file)
	if m.Process, err = kafkatest.StartProcess(cmd, filepath.Join(dir, "mm2.log")); err != nil {
		return nil, err
	}
	l.started(m.Process)
	return m, nil
}

func (m *mm2) config(source *kafkatest.Cluster, topic string) map[string]string {
	return map[string]string{
		"clusters":                              m.alias + ",dst",
		m.alias + ".bootstrap.servers":          source.Bootstrap(),
		"dst.bootstrap.servers":                 m.lab.destination.Bootstrap(),
		m.alias + "->dst.enabled":               "true",
		"dst->" + m.alias + ".enabled":          "false",
		"topics":                                topic,
		"tasks.max":                             "2",
		"emit.heartbeats.enabled":               "false", // nothing but the data
		"emit.checkpoints.enabled":              "false",
		"sync.topic.acls.enabled":               "false",
		"replication.factor":                    "1", // one broker each
		"offset-syncs.topic.replication.factor": "1", "checkpoints.topic.replication.factor": "1",
		"heartbeats.topic.replication.factor": "1", "offset.storage.replication.factor": "1",
		"status.storage.replication.factor": "1", "config.storage.replication.factor": "1",
	}
}

// end kills MirrorMaker and deletes what it made.
func (m *mm2) end(ctx context.Context) error {
	m.Kill()
	own := func(topic string) bool {
		return strings.HasPrefix(topic, m.alias+".") || strings.HasPrefix(topic, "mm2-") && strings.Contains(topic, "."+m.alias+".")
	}
	return m.lab.deleteTopics(ctx, m.lab.destination, own)
}
