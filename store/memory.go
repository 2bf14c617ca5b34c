package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/appendlog"
)

// NewMemory returns a store without Kafka and disk, for unit tests of what uses a store; it behaves as an opened one.
// Close ends it.
func NewMemory() *Store {
	s, err := openMemory(Config{}, newMemoryLog())
	if err != nil {
		panic(err) // there is nothing to fail
	}
	return s
}

func openMemory(cfg Config, logs stateLog) (*Store, error) {
	s, err := newStore(cfg)
	if err != nil {
		return nil, err
	}
	s.logs = logs
	if err := s.start(context.Background()); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// memoryLog is a state topic in memory that treats sequences as a broker does (facts: an unknown producer may begin
// anywhere, the last five batches are recognised, anything but the next sequence is refused).
type memoryLog struct {
	mu         sync.Mutex
	partitions []memoryPartition
	producers  int64
	moved      chan struct{} // closed and replaced at each append
}

type memoryPartition struct {
	records []logRecord
	writers map[int64]*memoryWriter
}

type memoryWriter struct {
	next   int64
	recent []memoryBatch
}

type memoryBatch struct{ sequence, count, base int64 }

func newMemoryLog() *memoryLog {
	m := &memoryLog{partitions: make([]memoryPartition, StatePartitions), moved: make(chan struct{})}
	for i := range m.partitions {
		m.partitions[i].writers = map[int64]*memoryWriter{}
	}
	return m
}

func (m *memoryLog) Append(_ context.Context, id appendlog.Partition, b appendlog.Batch) error {
	records, sequence, err := readBatch(b.Bytes)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := &m.partitions[id.Partition]
	base, ok := p.place(id.ProducerID, sequence, int64(len(records)))
	switch {
	case !ok:
		return fmt.Errorf("%w: out of order", ErrRefused)
	case base == int64(len(p.records)):
		m.push(p, records)
	}
	if base != b.Base {
		return fmt.Errorf("%w: appended at %d instead of %d", ErrRefused, base, b.Base)
	}
	return nil
}

// push appends records and wakes the followers. REQUIRES: m.mu.
func (m *memoryLog) push(p *memoryPartition, records []logRecord) {
	for _, r := range records {
		r.offset = int64(len(p.records))
		p.records = append(p.records, r)
	}
	close(m.moved)
	m.moved = make(chan struct{})
}

// place returns where a batch of a producer goes, or already is.
func (p *memoryPartition) place(producer, sequence, count int64) (base int64, ok bool) {
	w := p.writers[producer]
	if w == nil {
		w = &memoryWriter{next: sequence}
		p.writers[producer] = w
	}
	for _, b := range w.recent {
		if b.sequence == sequence && b.count == count {
			return b.base, true
		}
	}
	if sequence != w.next {
		return 0, false
	}
	base = int64(len(p.records))
	w.next = sequence + count
	w.recent = append(w.recent, memoryBatch{sequence, count, base})
	if len(w.recent) > 5 {
		w.recent = w.recent[1:]
	}
	return base, true
}

// readBatch reads what buildBatch made.
func readBatch(raw []byte) (records []logRecord, sequence int64, err error) {
	var b kmsg.RecordBatch
	if err := b.ReadFrom(raw); err != nil {
		return nil, 0, err
	}
	for rest := b.Records; len(rest) > 0; {
		length, n := binary.Varint(rest)
		if n <= 0 || int64(len(rest)-n) < length {
			return nil, 0, fmt.Errorf("record %d is cut off", len(records))
		}
		var r kmsg.Record
		if err := r.ReadFrom(rest[:n+int(length)]); err != nil {
			return nil, 0, err
		}
		lr := logRecord{key: r.Key, value: r.Value}
		for _, h := range r.Headers {
			if h.Key == nonceHeader {
				lr.nonce = string(h.Value)
			}
		}
		records, rest = append(records, lr), rest[n+int(length):]
	}
	return records, int64(b.FirstSequence), nil
}

func (m *memoryLog) newProducer(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.producers++
	return m.producers, nil
}

func (m *memoryLog) end(_ context.Context, partition int32) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.partitions[partition].records)), nil
}

func (m *memoryLog) ends(context.Context) ([]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ends := make([]int64, len(m.partitions))
	for i := range ends {
		ends[i] = int64(len(m.partitions[i].records))
	}
	return ends, nil
}

func (m *memoryLog) nextSequence(_ context.Context, partition int32, producer int64) (int32, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.partitions[partition].writers[producer]
	if w == nil {
		return 0, false, nil
	}
	return int32(w.next & 0x7fffffff), true, nil
}

func (m *memoryLog) follow(ctx context.Context, from []position, deliver func(segment) error) error {
	next := make([]int64, len(from))
	for i := range from {
		next[i] = from[i].next
	}
	for first := true; ; first = false {
		m.mu.Lock()
		var segments []segment
		for i := range m.partitions {
			records := m.partitions[i].records
			if end := int64(len(records)); first || end > next[i] {
				segments = append(segments, segment{partition: int32(i), records: records[next[i]:end:end], next: end, caughtUp: true})
				next[i] = end
			}
		}
		moved := m.moved
		m.mu.Unlock()
		for _, seg := range segments {
			if err := deliver(seg); err != nil {
				return err
			}
		}
		if len(segments) > 0 && !first {
			continue
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
