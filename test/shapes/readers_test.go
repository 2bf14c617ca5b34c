package shapes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/recordbatch"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// A reading is what a reader sees of each topic: a line per record (offset, timestamp, key, value, headers), and the
// offset at which it is at the end.
type reading map[string]*readTopic

type readTopic struct {
	lines []string
	end   string
}

// A reader reads partition 0 of topics up to the given ends, with an isolation level of its own client.
type reader struct {
	name string
	line func(string) string // what it makes of a line, nil if that is right
	read func(ctx context.Context, bootstrap, isolation string, logs map[string]bounds) (reading, error)
}

var readers = []reader{
	{name: "franz-go", line: wrapped, read: readFranz},
	{name: "librdkafka", read: readLibrdkafka},
	{name: "java", read: readJava},
}

// maxText is how long a key or value may be to be shown in full.
const maxText = 200

func text(b []byte) string {
	switch {
	case b == nil:
		return "-"
	case len(b) > maxText:
		return fmt.Sprintf("#%d:%d", len(b), crc32.ChecksumIEEE(b))
	}
	return fmt.Sprintf("x%x", b)
}

func line(r *kgo.Record) string {
	timestamp := r.Timestamp.UnixMilli()
	if r.Timestamp.IsZero() {
		timestamp = -1 // format v0
	}
	return lineAt(r, timestamp)
}

func lineAt(r *kgo.Record, timestamp int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d %s %s", r.Offset, timestamp, text(r.Key), text(r.Value))
	for _, h := range r.Headers {
		fmt.Fprintf(&b, " %s=%s", text([]byte(h.Key)), text(h.Value))
	}
	return b.String()
}

// reference is what a reader of committed records sees at the source, taken from plain Fetch answers.
func (l *log) reference(ctx context.Context) (*readTopic, bounds, error) {
	b, err := l.bounds(ctx)
	if err != nil {
		return nil, b, err
	}
	result := &readTopic{end: fmt.Sprint(b.lso)}
	for at := b.start; at < b.lso; {
		got, err := fetch(ctx, l.client, l.topic, at, 1)
		if err != nil {
			return nil, b, err
		}
		opts := kgo.ProcessFetchPartitionOpts{Offset: at, Topic: l.topic, IsolationLevel: kgo.ReadCommitted()}
		fp, next := kgo.ProcessFetchPartition(opts, got, lenient{kgo.DefaultDecompressor()}, nil)
		if fp.Err != nil {
			return nil, b, fp.Err
		}
		if next <= at {
			return nil, b, fmt.Errorf("nothing can be read from offset %d of %d", at, b.lso)
		}
		exact := timestamps(got.RecordBatches)
		for _, r := range fp.Records {
			if r.Offset >= b.lso {
				break
			}
			at := line(r)
			if timestamp, ok := exact[r.Offset]; ok {
				at = lineAt(r, timestamp)
			}
			result.lines = append(result.lines, at)
		}
		at = next
	}
	return result, b, nil
}

// lenient reads the lz4 frames of format v0 as well, whose checksum of the frame's header Kafka computed wrongly.
type lenient struct{ kgo.Decompressor }

func (l lenient) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	out, err := l.Decompressor.Decompress(src, codec)
	if err == nil || codec != kgo.CodecLz4 || len(src) < 7 {
		return out, err
	}
	const checksum = 6 // behind magic, flags and block size
	repaired := bytes.Clone(src)
	for i := range 256 {
		repaired[checksum] = byte(i)
		if out, err := l.Decompressor.Decompress(repaired, codec); err == nil {
			return out, nil
		}
	}
	return nil, err
}

// timestamps are those of v2 batches by offset: franz-go counts in nanoseconds, which end in 2262.
func timestamps(batches []byte) map[int64]int64 {
	exact := map[int64]int64{}
	for {
		batch, rest, err := recordbatch.Next(batches)
		if err != nil {
			return exact
		}
		_ = recordbatch.Records(batch, func(r recordbatch.Record) error {
			exact[r.Offset] = r.Timestamp
			return nil
		})
		batches = rest
	}
}

// wrapped is a line as franz-go sees it.
func wrapped(line string) string {
	offset, rest, _ := strings.Cut(line, " ")
	at, rest, _ := strings.Cut(rest, " ")
	ms, _ := strconv.ParseInt(at, 10, 64)
	return fmt.Sprintf("%s %d %s", offset, time.Unix(0, ms*1e6).UnixMilli(), rest)
}

// readFranz knows where it is from records and markers alone, so it is at the end only if one of those is the last.
func readFranz(ctx context.Context, bootstrap, isolation string, logs map[string]bounds) (reading, error) {
	level := kgo.ReadUncommitted()
	if isolation == "read_committed" {
		level = kgo.ReadCommitted()
	}
	from := map[string]map[int32]kgo.Offset{}
	at, result := map[string]int64{}, reading{}
	for topic, log := range logs {
		result[topic] = &readTopic{}
		if at[topic] = log.start; log.start < log.lso {
			from[topic] = map[int32]kgo.Offset{0: kgo.NewOffset().AtStart()}
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(level), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	behind := func() bool {
		for topic := range from {
			if at[topic] < logs[topic].lso {
				return true
			}
		}
		return false
	}
	for behind() && ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			at[r.Topic] = r.Offset + 1
			if !r.Attrs.IsControl() {
				result[r.Topic].lines = append(result[r.Topic].lines, line(r))
			}
		})
	}
	for topic, r := range result {
		r.end = fmt.Sprint(at[topic])
	}
	return result, nil
}

func readLibrdkafka(ctx context.Context, bootstrap, isolation string, logs map[string]bounds) (reading, error) {
	python, err := harness.Python(ctx, "confluent-kafka==2.16.1")
	if err != nil {
		return nil, err
	}
	return readWith(ctx, logs, python, "testdata/reader.py", bootstrap, isolation)
}

// compiled is the folder with the class of testdata/Reader.java. Kafka needs a Java runtime only, so the compiler is
// fetched like Kafka itself.
var compiled = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	java, err := kafkatest.Java()
	if err != nil {
		return "", err
	}
	compiler, err := kafkatest.Fetch(ctx, "ecj-3.33.0", kafkatest.Artifact{Group: "org.eclipse.jdt", Name: "ecj", Version: "3.33.0"})
	if err != nil {
		return "", err
	}
	kafka, err := kafkatest.Jars(ctx, newest)
	if err != nil {
		return "", err
	}
	clients, err := filepath.Glob(filepath.Join(kafka, "kafka-clients-*.jar"))
	if err != nil || len(clients) == 0 {
		return "", fmt.Errorf("no kafka-clients in %s: %w", kafka, err)
	}
	dir, err := os.MkdirTemp("", "mirrorgate-shapes-")
	if err != nil {
		return "", err
	}
	classes = dir
	output, err := exec.CommandContext(ctx, java, "-cp", filepath.Join(compiler, "*"), "org.eclipse.jdt.internal.compiler.batch.Main",
		"-17", "-nowarn", "-proc:none", "-cp", strings.Join(clients, ":"), "-d", dir, "testdata/Reader.java").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compiling Reader.java: %w\n%s", err, output)
	}
	return dir, nil
})

// classes is removed by TestMain.
var classes string

func readJava(ctx context.Context, bootstrap, isolation string, logs map[string]bounds) (reading, error) {
	dir, err := compiled()
	if err != nil {
		return nil, err
	}
	java, err := kafkatest.Java()
	if err != nil {
		return nil, err
	}
	kafka, err := kafkatest.Jars(ctx, newest)
	if err != nil {
		return nil, err
	}
	return readWith(ctx, logs, java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-cp", dir+":"+filepath.Join(kafka, "*"), "Reader", bootstrap, isolation)
}

// readWith runs a program that prints lines of topic and record, and "topic end offset".
func readWith(ctx context.Context, logs map[string]bounds, command ...string) (reading, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	result := reading{}
	for topic, log := range logs {
		result[topic] = &readTopic{}
		command = append(command, fmt.Sprintf("%s=%d", topic, log.lso))
	}
	var problems bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = &problems
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(command[0]), err, problems.Bytes())
	}
	for text := range strings.Lines(string(output)) {
		topic, rest, _ := strings.Cut(strings.TrimSuffix(text, "\n"), " ")
		r := result[topic]
		if r == nil {
			return nil, fmt.Errorf("%s: unexpected line %q", filepath.Base(command[0]), text)
		}
		if end, ok := strings.CutPrefix(rest, "end "); ok {
			r.end = end
		} else {
			r.lines = append(r.lines, rest)
		}
	}
	return result, nil
}

// differs says where a reading is not as the reference.
func (r reader) differs(want, got *readTopic) error {
	if got == nil {
		return errors.New("it was not read")
	}
	for i := range max(len(want.lines), len(got.lines)) {
		w, g := "nothing", "nothing"
		if i < len(want.lines) {
			w = want.lines[i]
			if r.line != nil {
				w = r.line(w)
			}
		}
		if i < len(got.lines) {
			g = got.lines[i]
		}
		if w != g {
			return fmt.Errorf("record %d of %d (%d read) differs:\n source %s\n mirror %s", i, len(want.lines), len(got.lines), w, g)
		}
	}
	if got.end != want.end {
		return fmt.Errorf("the reader ends at %s, want %s", got.end, want.end)
	}
	return nil
}
