package appendlog

import (
	"testing"
	"time"

	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// pump appends as many batches as left says, keep of them at a time, from the Handler's calls. make gives a batch whose
// Next is its number of records.
type pump struct {
	*recorder // for the calls that are not expected
	make      func() Batch
	keep      int
	left      int
	log       *Log
	opened    chan struct{} // it begins when this is closed
	ready     chan struct{}
	done      chan struct{}
	out       int
	base      int64
}

func (p *pump) open(c *Client, id Partition) *pump {
	p.recorder = newRecorder()
	p.opened, p.ready, p.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	p.log = c.Open(id, nil, p)
	return p
}

func (p *pump) Ready(end int64) {
	p.base, p.out = end, 0
	select {
	case <-p.ready:
	default:
		close(p.ready)
	}
	<-p.opened
	p.feed()
}

func (p *pump) Acked(next int64, batches, _ int) {
	p.out -= batches
	p.feed()
}

func (p *pump) feed() {
	for ; p.left > 0 && p.out < p.keep; p.left-- {
		b := p.make()
		n := b.Next
		b.Base, b.Next = p.base, p.base+n
		if p.log.Append(b) != nil {
			return
		}
		p.base = b.Next
		p.out++
	}
	if p.left == 0 && p.out == 0 {
		close(p.done)
		p.left = -1
	}
}

// BenchmarkKafkaBesideFill: batches of one record to a real broker, alone and beside a partition that is filled with the
// largest fillers.
func BenchmarkKafkaBesideFill(b *testing.B) {
	bootstrap := singleBroker(b)
	for _, name := range []string{"alone", "normal lane", "bulk lane"} {
		b.Run(name, func(b *testing.B) {
			topic := topicName(b) + time.Now().Format("150405.000000")
			createTopic(b, bootstrap, topic, 2, 1, nil)
			c := testClient(b, bootstrap, nil)
			id := producerID(b, c)
			one := makeBatch(0, 1)
			live := (&pump{keep: 20, left: b.N, make: func() Batch { return Batch{Bytes: append([]byte(nil), one.Bytes...), Next: 1} }}).
				open(c, Partition{Topic: topic, Partition: 0, ProducerID: id})
			filler := Batch{Bytes: recordbatch.AppendFiller(nil, recordbatch.FillerBatchRecords, false, -1), Next: recordbatch.FillerBatchRecords}
			fill := &pump{keep: 4, left: 1 << 40, make: func() Batch {
				f := filler
				f.Bulk = name == "bulk lane"
				f.Bytes = append([]byte(nil), filler.Bytes...)
				return f
			}}
			<-live.ready
			if name != "alone" {
				fill.open(c, Partition{Topic: topic, Partition: 1, ProducerID: id})
				<-fill.ready
				close(fill.opened)
			}
			b.ResetTimer()
			close(live.opened)
			<-live.done
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.StopTimer()
			if fill.log != nil {
				fill.log.Close()
				b.ReportMetric(float64(fill.base)/b.Elapsed().Seconds()/1e6, "Mfilled/s")
			}
			live.log.Close()
			c.Close()
		})
	}
}
