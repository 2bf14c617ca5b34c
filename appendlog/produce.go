package appendlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	keyProduce        = 0
	maxProduceVersion = 13
	// idProduce is the first that gives topics by their IDs (Kafka 4.1), instead of by name.
	idProduce = 13
	// minProduceVersion is the first that takes zstd (Kafka 2.1).
	minProduceVersion = 7
	// flexibleProduce is the first with compact types and tagged fields.
	flexibleProduce = 9
)

// item is one batch in a Produce request.
type item struct {
	log   *Log
	batch Batch
	fence bool
}

// produceVersion is the highest version for a request, up to the one that the broker has.
func produceVersion(version int16, items []item) int16 {
	for i := range items {
		if version >= idProduce && items[i].log.p.TopicID == ([16]byte{}) {
			return idProduce - 1
		}
	}
	return version
}

// produceParts puts the body of a Produce request together around the batches, which are not copied. items get sorted by
// topic, as a topic must not come twice.
func produceParts(version int16, timeout time.Duration, items []item) net.Buffers {
	slices.SortStableFunc(items, func(a, b item) int { return compareTopics(a.log.p, b.log.p) })
	e := produceEncoder{
		flexible: version >= flexibleProduce,
		ids:      version >= idProduce,
		parts:    make(net.Buffers, 0, 2*len(items)+1),
		buf:      make([]byte, 0, 32+len(items)*48),
	}
	e.nullString() // transactional ID
	e.buf = binary.BigEndian.AppendUint16(e.buf, 0xffff)
	e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(timeout.Milliseconds()))
	e.arrayLen(countTopics(items))
	for i := 0; i < len(items); {
		n := 1
		for i+n < len(items) && compareTopics(items[i+n].log.p, items[i].log.p) == 0 {
			n++
		}
		e.topic(items[i : i+n])
		i += n
	}
	e.tags()
	e.cut()
	return e.parts
}

// compareTopics orders by name, then by ID: a topic and one of the same name that was made later are two.
func compareTopics(a, b Partition) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), bytes.Compare(a.TopicID[:], b.TopicID[:]))
}

func countTopics(items []item) int {
	n := 0
	for i := range items {
		if i == 0 || compareTopics(items[i].log.p, items[i-1].log.p) != 0 {
			n++
		}
	}
	return n
}

type produceEncoder struct {
	flexible bool
	ids      bool
	parts    net.Buffers
	buf      []byte // what is not in parts yet
}

func (e *produceEncoder) topic(items []item) {
	if e.ids {
		e.buf = append(e.buf, items[0].log.p.TopicID[:]...)
	} else {
		e.string(items[0].log.p.Topic)
	}
	e.arrayLen(len(items))
	for _, it := range items {
		e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(it.log.p.Partition))
		e.batch(it.batch.Bytes)
		e.tags()
	}
	e.tags()
}

// cut moves what was encoded into parts. buf goes on behind it: were it to be reallocated, the part keeps the old array.
func (e *produceEncoder) cut() {
	if len(e.buf) > 0 {
		e.parts = append(e.parts, e.buf)
		e.buf = e.buf[len(e.buf):]
	}
}

func (e *produceEncoder) batch(b []byte) {
	if e.flexible {
		e.buf = binary.AppendUvarint(e.buf, uint64(len(b))+1)
	} else {
		e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(len(b)))
	}
	e.cut()
	e.parts = append(e.parts, b)
}

func (e *produceEncoder) string(s string) {
	if e.flexible {
		e.buf = binary.AppendUvarint(e.buf, uint64(len(s))+1)
	} else {
		e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(len(s)))
	}
	e.buf = append(e.buf, s...)
}

func (e *produceEncoder) nullString() {
	if e.flexible {
		e.buf = append(e.buf, 0)
	} else {
		e.buf = binary.BigEndian.AppendUint16(e.buf, 0xffff)
	}
}

func (e *produceEncoder) arrayLen(n int) {
	if e.flexible {
		e.buf = binary.AppendUvarint(e.buf, uint64(n)+1)
	} else {
		e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(n))
	}
}

func (e *produceEncoder) tags() {
	if e.flexible {
		e.buf = append(e.buf, 0)
	}
}

// findAnswer returns the answer for a partition, or nil if the response has none. from is where to look first; it moves
// on, as answers come in the order of the request.
func findAnswer(resp *kmsg.ProduceResponse, asked Partition, from *[2]int) *kmsg.ProduceResponseTopicPartition {
	for i := range resp.Topics {
		t := &resp.Topics[(from[0]+i)%len(resp.Topics)]
		if resp.Version >= idProduce && t.TopicID != asked.TopicID || resp.Version < idProduce && t.Topic != asked.Topic {
			continue
		}
		start := 0
		if i == 0 {
			start = from[1]
		}
		for j := range t.Partitions {
			at := (start + j) % len(t.Partitions)
			if p := &t.Partitions[at]; p.Partition == asked.Partition {
				from[0], from[1] = (from[0]+i)%len(resp.Topics), at+1
				return p
			}
		}
	}
	return nil
}
