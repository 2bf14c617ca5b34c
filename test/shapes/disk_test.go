package shapes

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// data is a batch header of an ordinary producer.
func data(offset int64) kmsg.RecordBatch {
	return kmsg.RecordBatch{
		FirstOffset: offset, Magic: 2, FirstTimestamp: epochMillis, MaxTimestamp: epochMillis,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
	}
}

// encode is the bytes of a batch of uncompressed records, whose offset deltas count up from 0.
func encode(batch kmsg.RecordBatch, records ...kmsg.Record) []byte {
	batch.NumRecords, batch.LastOffsetDelta = int32(len(records)), max(batch.LastOffsetDelta, int32(len(records))-1)
	batch.Records = nil
	for i, r := range records {
		r.OffsetDelta, r.Length = int32(i), 0
		body := r.AppendTo(nil)[1:] // without the length, a varint of one byte for 0
		batch.Records = append(binary.AppendVarint(batch.Records, int64(len(body))), body...)
	}
	batch.Length = int32(49 + len(batch.Records))
	b := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func oneRecord(i int64) kmsg.Record {
	return kmsg.Record{Key: fmt.Appendf(nil, "key-%d", i), Value: fmt.Appendf(nil, "value-%d", i)}
}

// writeSegment replaces a stopped partition's files by one segment that begins at base. The broker builds the indexes
// when it starts.
func writeSegment(t *testing.T, dir string, base int64, batches []byte) {
	t.Helper()
	for _, file := range segmentFiles(t, dir) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%020d.log", base)), batches, 0o666); err != nil {
		t.Fatal(err)
	}
}

// segmentFiles are the files that depend on what the log holds.
func segmentFiles(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, entry := range entries {
		switch filepath.Ext(entry.Name()) {
		case ".log", ".index", ".timeindex", ".txnindex", ".snapshot":
			files = append(files, filepath.Join(dir, entry.Name()))
		}
		if entry.Name() == "leader-epoch-checkpoint" {
			files = append(files, filepath.Join(dir, entry.Name()))
		}
	}
	return files
}

// loseActiveSegment removes the files of the last segment, as a broken disk may.
func loseActiveSegment(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) < 2 {
		t.Fatalf("segments %v, %v: want two or more", logs, err)
	}
	slices.Sort(logs)
	last := strings.TrimSuffix(logs[len(logs)-1], ".log")
	for _, file := range segmentFiles(t, dir) {
		if strings.HasPrefix(file, last) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// cutBatches takes the last n batches off a log of one segment, as an unclean election does.
func cutBatches(t *testing.T, dir string, n int) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("segments %v, %v: want one", logs, err)
	}
	content, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	var starts []int
	for rest := content; len(rest) > 0; {
		starts = append(starts, len(content)-len(rest))
		if _, rest, err = recordbatch.Next(rest); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range segmentFiles(t, dir) {
		if ext := filepath.Ext(file); ext == ".index" || ext == ".timeindex" {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Truncate(logs[0], int64(starts[len(starts)-n])); err != nil {
		t.Fatal(err)
	}
}
