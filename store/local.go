package store

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"go.uber.org/zap"
)

// local is the copy of the view on this gateway's disk, which spares a restart the replay of the whole log. It is never
// the truth: whatever is wrong with it, it is thrown away.
//
// Keys: "m" → identity; 'o' partition → next, seen; 'r' partition text-of-key → offset, value. A transaction holds the
// records of a segment and then its position; one that was cut in pieces leaves the old position, and applying the same
// records again in log order ends at the same view.
type local struct{ db *badger.DB }

// localRecord is a record that counts, on its way to the disk; value nil removes it.
type localRecord struct {
	text   []byte
	offset int64
	value  []byte
}

// identity says which log the copy is of. Another cluster or a topic that was made anew (case M38) has another.
type identity struct {
	Format    int    `json:"format"`
	ClusterID string `json:"clusterId"`
	TopicID   hexID  `json:"topicId"`
}

// openLocal opens the copy, empty if it was of something else or damaged. A dir of "" means no copy.
func openLocal(dir string, id identity, log *zap.Logger) (*local, error) {
	if dir == "" {
		return nil, nil
	}
	db, err := openBadger(dir)
	if err != nil && !locked(err) {
		log.Warn("the local view of the state is damaged; it is read anew from the destination", zap.String("dir", dir), zap.Error(err))
		if err := os.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("removing the damaged local view of the state: %w", err)
		}
		db, err = openBadger(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the local view of the state in %s: %w", dir, err)
	}
	l := &local{db: db}
	if err := l.identify(id, log); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("opening the local view of the state in %s: %w", dir, err)
	}
	return l, nil
}

// locked tells a directory in use by another process, whose data must not be removed, from a damaged one.
func locked(err error) bool {
	// badger does not wrap its errors.
	return errors.Is(err, os.ErrPermission) || strings.Contains(err.Error(), "directory lock")
}

func openBadger(dir string) (*badger.DB, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// A few MB of records: badger's defaults would take hundreds of MB of memory and address space for them.
	return badger.Open(badger.DefaultOptions(dir).WithLogger(nil).WithMetricsEnabled(false).
		WithMemTableSize(4 << 20).WithNumMemtables(2).WithBlockCacheSize(0).WithNumCompactors(2).
		WithValueLogFileSize(16 << 20).WithValueThreshold(256 << 10).WithNumGoroutines(2).WithDetectConflicts(false).
		WithCompression(0))
}

func (l *local) identify(want identity, log *zap.Logger) error {
	var have identity
	err := l.db.View(func(txn *badger.Txn) error {
		item, err := txn.Get([]byte("m"))
		if err != nil {
			return err
		}
		return item.Value(func(v []byte) error { return json.Unmarshal(v, &have) })
	})
	if err == nil && have == want {
		return nil
	}
	if err == nil {
		log.Warn("the local view of the state is of another destination or state topic; it is thrown away",
			zap.String("cluster", have.ClusterID), zap.String("wantedCluster", want.ClusterID))
	}
	if err := l.db.DropAll(); err != nil {
		return err
	}
	value, err := json.Marshal(want)
	if err != nil {
		return err
	}
	return l.db.Update(func(txn *badger.Txn) error { return txn.Set([]byte("m"), value) })
}

// load calls back with every position and every record.
func (l *local) load(at func(partition int32, pos position), record func(partition int32, r localRecord)) error {
	return l.db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.DefaultIteratorOptions)
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			key := it.Item().KeyCopy(nil)
			if len(key) < 5 {
				continue
			}
			value, err := it.Item().ValueCopy(nil)
			if err != nil {
				return err
			}
			n := int32(binary.BigEndian.Uint32(key[1:]))
			switch {
			case key[0] == 'o' && len(value) == 16:
				at(n, position{int64(binary.BigEndian.Uint64(value)), int64(binary.BigEndian.Uint64(value[8:]))})
			case key[0] == 'r' && len(value) >= 8:
				record(n, localRecord{key[5:], int64(binary.BigEndian.Uint64(value)), value[8:]})
			}
		}
		return nil
	})
}

func localKey(kind byte, partition int32, text []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(partition)), text...)
}

// commit writes records and then the position, in as few transactions as badger's limit allows.
func (l *local) commit(partition int32, pos position, records []localRecord) error {
	txn := l.db.NewTransaction(true)
	defer func() { txn.Discard() }()
	write := func(do func() error) error {
		err := do()
		if !errors.Is(err, badger.ErrTxnTooBig) {
			return err
		}
		if err := txn.Commit(); err != nil {
			return err
		}
		txn = l.db.NewTransaction(true)
		return do()
	}
	for _, r := range records {
		key := localKey('r', partition, r.text)
		if err := write(func() error {
			if r.value == nil {
				return txn.Delete(key)
			}
			return txn.Set(key, append(binary.BigEndian.AppendUint64(nil, uint64(r.offset)), r.value...))
		}); err != nil {
			return err
		}
	}
	value := binary.BigEndian.AppendUint64(nil, uint64(pos.next))
	value = binary.BigEndian.AppendUint64(value, uint64(pos.seenMs))
	if err := write(func() error { return txn.Set(localKey('o', partition, nil), value) }); err != nil {
		return err
	}
	return txn.Commit()
}

// drop removes a partition from the copy, its position first: a crash in between leaves nothing that could be taken
// for a view.
func (l *local) drop(partition int32) error {
	if err := l.db.Update(func(txn *badger.Txn) error { return txn.Delete(localKey('o', partition, nil)) }); err != nil {
		return err
	}
	return l.db.DropPrefix(localKey('r', partition, nil))
}

func (l *local) close() error { return l.db.Close() }

// saveLocal writes an applied segment to the local copy. A failure costs only time at the next start.
func (s *Store) saveLocal(seg segment, pos position, puts []localRecord) {
	if s.local == nil || (!seg.reset && len(puts) == 0 && len(seg.records) == 0) {
		return
	}
	var err error
	if seg.reset {
		err = s.local.drop(seg.partition)
	}
	if err == nil {
		err = s.local.commit(seg.partition, pos, puts)
	}
	if err != nil {
		s.localFailed(err)
	}
}

func (s *Store) localFailed(err error) {
	s.log.Error("writing the local view of the state failed; the next start will read more of the log", zap.Error(err))
}

// loadLocal fills the view from the local copy, before anything else runs.
func (s *Store) loadLocal() error {
	if s.local == nil {
		return nil
	}
	positioned := make([]bool, len(s.partitions))
	orphans := make(map[int32]bool)
	err := s.local.load(func(n int32, pos position) {
		if int(n) < len(s.partitions) {
			s.partitions[n].next, s.partitions[n].seenMs = pos.next, pos.seenMs
			positioned[n] = true
		}
	}, func(n int32, r localRecord) {
		// Positions sort before records, so what has none yet never will: a drop was interrupted.
		if int(n) >= len(s.partitions) || !positioned[n] {
			orphans[n] = true
			return
		}
		s.loadRecord(s.partitions[n], r)
	})
	if err != nil {
		return fmt.Errorf("reading the local view of the state: %w", err)
	}
	for n := range orphans {
		if err := s.local.drop(n); err != nil {
			return fmt.Errorf("cleaning the local view of the state: %w", err)
		}
	}
	return nil
}

func (s *Store) loadRecord(p *statePartition, r localRecord) {
	key, ok := parseKey(string(r.text))
	if !ok {
		return
	}
	e := s.entry(key, r.offset, r.value)
	p.entries[key] = e
	s.index(key, nil, e, nil)
	if producer, ok := e.value.(*Producer); ok && (p.producer < 0 || e.offset > p.producerAt) {
		p.producer, p.producerAt = producer.ID, e.offset
	}
}

// notePositions writes how far each partition is known to be read, though nothing may have come.
func (s *Store) notePositions() {
	if s.local == nil {
		return
	}
	s.mu.Lock()
	positions := make([]position, len(s.partitions))
	for i, p := range s.partitions {
		if p.confirmed {
			positions[i] = position{p.next, p.seenMs}
		}
	}
	s.mu.Unlock()
	for i, pos := range positions {
		if pos.seenMs == 0 {
			continue
		}
		if err := s.local.commit(int32(i), pos, nil); err != nil {
			s.localFailed(err)
			return
		}
	}
}
