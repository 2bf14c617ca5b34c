package replication

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// TestModel copies random source logs, made of everything that real ones are made of, through copier and machine into a
// destination that takes nothing but the next offset, with acknowledgements, doubts and lost tails at random. Afterwards
// every committed record is at its offset, once, and every other offset is a filler.
func TestModel(t *testing.T) {
	seeds := 400
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			m := &model{t: t, rng: rng, log: randomLog(rng), records: make(map[int64]string), budget: NewBudget(1 << 40)}
			m.run(seed%2 == 0)
		})
	}
}

// sourceLog is a source partition: batches as a broker stores them, and what readers see of them.
type sourceLog struct {
	start, next int64
	batches     []sourceBatch
	records     map[int64]string // by offset: timestamp and value
	aborted     []abortedRange
}

type sourceBatch struct {
	base, next int64
	bytes      []byte
}

type abortedRange struct {
	producer, first, last int64
}

func randomLog(rng *rand.Rand) *sourceLog {
	l := &sourceLog{records: make(map[int64]string)}
	switch rng.IntN(4) {
	case 0:
		l.start = rng.Int64N(1000)
	case 1:
		l.start = 3_000_000
	}
	l.next = l.start
	for range 1 + rng.IntN(40) {
		switch rng.IntN(9) {
		case 0:
			l.next += 1 + rng.Int64N(20) // removed by the cleaner
		case 1:
			l.add(rng, batchShape{control: true, transactional: true, producer: 9})
		case 2:
			l.add(rng, batchShape{empty: true})
		case 3:
			l.add(rng, batchShape{holes: true})
		case 4:
			l.add(rng, batchShape{appendTime: true, holes: rng.IntN(2) == 0})
		case 5:
			l.transaction(rng)
		case 6:
			l.oldMessages(rng)
		default:
			l.add(rng, batchShape{mark: rng.IntN(3) == 0})
		}
	}
	if rng.IntN(3) == 0 {
		l.next += 1 + rng.Int64N(300_000) // the cleaner emptied the end
	}
	return l
}

// transaction adds batches of two producers, one of which aborts.
func (l *sourceLog) transaction(rng *rand.Rand) {
	bad := abortedRange{producer: 20, first: -1}
	for range 1 + rng.IntN(4) {
		if rng.IntN(2) == 0 {
			l.add(rng, batchShape{transactional: true, producer: 10, holes: rng.IntN(3) == 0})
			continue
		}
		if bad.first < 0 {
			bad.first = l.next
		}
		l.add(rng, batchShape{transactional: true, producer: 20, aborted: true})
	}
	l.add(rng, batchShape{transactional: true, control: true, producer: 10})
	bad.last = l.next
	l.add(rng, batchShape{transactional: true, control: true, producer: 20})
	if bad.first >= 0 {
		l.aborted = append(l.aborted, bad)
	}
}

type batchShape struct {
	transactional, control, aborted, empty, holes, appendTime, mark bool
	producer                                                        int64
}

func (l *sourceLog) add(rng *rand.Rand, s batchShape) {
	n := 1 + rng.IntN(12)
	if s.control {
		n = 1
	}
	b := kmsg.RecordBatch{
		FirstOffset: l.next, PartitionLeaderEpoch: 3, Magic: 2, LastOffsetDelta: int32(n - 1), FirstTimestamp: 1000 + rng.Int64N(1000),
		ProducerID: s.producer, ProducerEpoch: 1, FirstSequence: 5,
	}
	if b.MaxTimestamp = b.FirstTimestamp + int64(n); s.appendTime {
		b.Attributes |= 1 << 3
	}
	for bit, set := range map[int]bool{4: s.transactional, 5: s.control, 7: s.mark} {
		if set {
			b.Attributes |= 1 << bit
		}
	}
	for i := range n {
		if s.empty || s.holes && rng.IntN(2) == 0 {
			continue
		}
		timestamp := b.FirstTimestamp + int64(i)
		value := fmt.Sprintf("value of %d", l.next+int64(i))
		r := kmsg.Record{TimestampDelta64: int64(i), OffsetDelta: int32(i), Key: []byte("k"), Value: []byte(value)}
		if s.mark {
			r.Key, r.Value, value = nil, nil, ""
			r.Headers = []kmsg.Header{{Key: recordbatch.GapHeader}}
		}
		r.Length = int32(len(r.AppendTo(nil)) - 1)
		b.Records = r.AppendTo(b.Records)
		b.NumRecords++
		if s.appendTime {
			timestamp = b.MaxTimestamp
		}
		if !s.control && !s.aborted {
			l.records[l.next+int64(i)] = fmt.Sprint(timestamp, " ", value)
		}
	}
	b.Length = int32(recordbatch.HeaderSize - 12 + len(b.Records))
	bytes := b.AppendTo(nil)
	fixCRC(bytes)
	l.append(bytes, int64(n))
}

func (l *sourceLog) append(bytes []byte, offsets int64) {
	l.batches = append(l.batches, sourceBatch{base: l.next, next: l.next + offsets, bytes: bytes})
	l.next += offsets
}

// oldMessages adds messages of format v1, uncompressed.
func (l *sourceLog) oldMessages(rng *rand.Rand) {
	for range 1 + rng.IntN(5) {
		value := fmt.Sprintf("value of %d", l.next)
		b := make([]byte, 34, 34+len(value))
		binary.BigEndian.PutUint64(b, uint64(l.next))
		b[16] = 1
		binary.BigEndian.PutUint64(b[18:], 777)
		binary.BigEndian.PutUint32(b[26:], 0xffffffff)
		binary.BigEndian.PutUint32(b[30:], uint32(len(value)))
		b = append(b, value...)
		binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
		binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b[16:]))
		l.records[l.next] = fmt.Sprint(777, " ", value)
		l.append(b, 1)
	}
}

// fetch answers as a broker does: whole batches from the one that holds the position on, the last one cut off perhaps.
func (l *sourceLog) fetch(rng *rand.Rand, position int64) (data []byte, aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction) {
	end := position
	for _, b := range l.batches {
		if b.next <= position {
			continue
		}
		if len(data) > 0 && rng.IntN(4) == 0 {
			data = append(data, b.bytes[:rng.IntN(len(b.bytes))]...)
			break
		}
		data = append(data, b.bytes...)
		end = b.next
	}
	for _, a := range l.aborted {
		if a.first < end && a.last >= position {
			aborted = append(aborted, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: a.producer, FirstOffset: a.first})
		}
	}
	return data, aborted
}

// model is a destination and what runs a machine against it.
type model struct {
	t       *testing.T
	rng     *rand.Rand
	log     *sourceLog
	machine *machine
	copier  copier
	budget  *Budget

	inFlight []pendingBatch
	appended []sourceBatch // what the destination holds, stamped
	end      int64
	records  map[int64]string
	start    int64
	fetch    *doFetch
	check    *doCheckSource
	reset    bool
	trims    []int64
	notes    []int64
}

func (m *model) run(keyed bool) {
	m.machine = newMachine(20_000)
	m.machine.mirrored, m.machine.progress.backlog.keyed = false, keyed
	m.step(evLeader{broker: 1, epoch: 3})
	m.step(evStart{})
	m.step(evLogReady{end: 0})
	for i := 0; ; i++ {
		require.Less(m.t, i, 100_000, "it comes to an end")
		require.NotEqual(m.t, Failed, m.machine.state, m.machine.reason)
		if m.machine.state == Mirroring && m.machine.progress.settled() && m.end == m.log.next && m.start == m.log.start {
			break
		}
		m.next()
	}
	m.compare()
}

// next lets one thing happen.
func (m *model) next() {
	switch {
	case m.reset:
		m.reset = false
		m.step(evLogReady{end: m.end})
	case len(m.trims) > 0 && m.rng.IntN(2) == 0:
		m.start, m.trims = m.trims[0], m.trims[1:]
		m.step(evTrimmed{start: m.start})
	case len(m.notes) > 0 && m.rng.IntN(2) == 0:
		note := m.notes[0]
		m.notes = m.notes[1:]
		m.step(evStartNoted{start: note})
	case m.check != nil:
		gen := m.check.gen
		m.check = nil
		m.step(evOffsets{gen: gen, start: m.log.start, lso: m.log.next, hw: m.log.next, epoch: -1})
	case len(m.inFlight) > 0 && m.rng.IntN(20) == 0:
		m.doubt()
	case len(m.inFlight) > 0 && (m.fetch == nil || m.rng.IntN(2) == 0):
		b := m.inFlight[0]
		m.inFlight = m.inFlight[1:]
		m.write(b)
		m.step(evAcked{next: b.Next, batches: 1, bytes: len(b.Bytes)})
	case m.fetch != nil:
		m.answer(*m.fetch)
	default:
		m.step(evRetry{timer: m.machine.timer})
	}
}

// doubt: some of what is in flight arrives, and some of the end may be lost.
func (m *model) doubt() {
	for range m.rng.IntN(len(m.inFlight) + 1) {
		m.write(m.inFlight[0])
		m.inFlight = m.inFlight[1:]
	}
	for len(m.appended) > 0 && m.rng.IntN(3) == 0 && m.appended[len(m.appended)-1].base >= m.start {
		lost := m.appended[len(m.appended)-1]
		m.appended = m.appended[:len(m.appended)-1]
		m.end = lost.base
	}
	m.inFlight = nil
	m.step(evDoubt{err: fmt.Errorf("doubt")})
	m.step(evLogReady{end: m.end})
}

func (m *model) write(b pendingBatch) {
	require.Equal(m.t, m.end, b.Base)
	m.appended = append(m.appended, sourceBatch{base: b.Base, next: b.Next, bytes: b.Bytes})
	m.end = b.Next
}

func (m *model) answer(f doFetch) {
	data, aborted := m.log.fetch(m.rng, f.offset)
	marks := watermarks{start: m.log.start, lso: m.log.next, hw: m.log.next}
	if len(data) == 0 {
		m.step(evWatermarks{gen: f.gen, marks: marks, starved: true})
		return
	}
	m.fetch = nil
	c := m.copier.copy(f.offset, data, aborted)
	require.NoError(m.t, c.corrupt)
	e := m.copier.encode(nil, c.outputs, copyOptions{maxBytes: 300}, instant{})
	m.budget.Force(1)
	m.step(&evFetched{gen: f.gen, pieces: e.pieces, epoch: c.epoch, problem: e.problem, marks: marks, buffer: newFetchBuffer(m.budget, 1)})
}

func (m *model) step(ev event) {
	for _, e := range append([]effect(nil), m.machine.step(ev)...) {
		switch e := e.(type) {
		case doCheckSource:
			m.check = &e
		case doFetch:
			m.fetch = &e
		case doStopFetch:
			m.fetch = nil
		case doResetLog, doOpenLog:
			_, started := ev.(evStart)
			m.reset, m.inFlight = !started, nil
		case doRelease:
			e.buffer.release()
		case doAppend:
			for _, b := range e.batches {
				recordbatch.Stamp(b.Bytes, 7, 0, recordbatch.Sequence(b.Base))
				m.inFlight = append(m.inFlight, b)
			}
			require.Less(m.t, len(m.machine.progress.backlog.inFlight), 200)
		case doNoteStart:
			m.notes = append(m.notes, e.start)
		case doTrim:
			require.LessOrEqual(m.t, e.offset, min(m.log.start, m.end), "no further than the source, and than there is")
			m.trims = append(m.trims, e.offset)
		}
	}
}

// compare reads the destination as a reader behind the gateway does.
func (m *model) compare() {
	require.Zero(m.t, m.budget.Used())
	isOurs := func(id int64) bool { return id == 7 }
	got := make(map[int64]string)
	next := int64(0)
	for _, b := range m.appended {
		h, err := recordbatch.ParseHeader(b.bytes)
		require.NoError(m.t, err)
		require.NoError(m.t, recordbatch.CheckCRC(b.bytes))
		require.Equal(m.t, next, b.base)
		require.EqualValues(m.t, b.next-b.base, h.NumRecords)
		require.NoError(m.t, recordbatch.Verbatim(h, 0), "a broker takes it")
		next = b.next
		if recordbatch.IsFiller(b.bytes, isOurs) {
			continue
		}
		require.NoError(m.t, recordbatch.Records(b.bytes, func(r recordbatch.Record) error {
			got[b.base+r.Offset] = fmt.Sprint(r.Timestamp, " ", string(r.Value))
			return nil
		}))
	}
	require.Equal(m.t, m.log.next, next)
	require.Equal(m.t, m.log.records, got)
	require.Equal(m.t, m.log.start, m.start)
}
