package appendlog

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/recordbatch"
)

// writer sends the batches of one lane of a broker over one connection. It gathers one batch per Log into a request, in the
// order in which the Logs got something to send, so that all have their turn; while as many requests are in flight as may
// be, more Logs queue up, and the next request is larger.
//
// Why lanes: a broker works off the requests of a connection one by one, and a filler of 100,000 records takes it 8 ms. On
// one connection with a partition that is being filled, another one got 130 batches of one record through in a second, and
// 4,800 on a connection of its own (9,100 without the other; Kafka 4.1, two cores).
type writer struct {
	client *Client
	id     writerID
	signal chan struct{} // capacity 1
	reads  chan struct{} // has an entry for each reading of a log's end

	mu       sync.Mutex
	addr     string
	conn     *broker.Conn // may have ended
	dialling *dialling    // a dial under way, else nil
	ready    []*Log       // each once: those with listed set
	requests int          // in flight
	pause    time.Time    // until when the broker wants nothing (quota)
	// roundTrip (ns) and batches are the averages of the last requests. See pace.
	roundTrip, batches float64

	// These belong to the writer's goroutine.
	merger recordbatch.Merger
	source []Batch // what is being merged
}

// maxReads bounds the readings of log ends on one broker at the same time.
const maxReads = 32

type dialling struct {
	done chan struct{}
	conn *broker.Conn
	err  error
}

func newWriter(c *Client, id writerID) *writer {
	return &writer{client: c, id: id, signal: make(chan struct{}, 1), reads: make(chan struct{}, maxReads)}
}

// setAddr: a broker that moved is dialled at the new address.
func (w *writer) setAddr(addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.addr == addr {
		return
	}
	if w.conn != nil {
		w.conn.Abort(fmt.Errorf("broker %d has moved from %s to %s", w.id.node, w.addr, addr))
	}
	w.addr = addr
}

// connect returns the connection, after making one if need be. Several callers wait for one dial.
func (w *writer) connect(ctx context.Context) (*broker.Conn, error) {
	w.mu.Lock()
	if w.conn != nil && w.conn.Err() == nil {
		defer w.mu.Unlock()
		return w.conn, nil
	}
	d := w.dialling
	if d == nil {
		d = &dialling{done: make(chan struct{})}
		w.dialling = d
		old, addr := w.conn, w.addr
		w.client.wg.Go(func() { w.dial(d, old, addr) })
	}
	w.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *writer) dial(d *dialling, old *broker.Conn, addr string) {
	if old != nil {
		old.Close() // it has ended; this waits until all its requests were answered
	}
	d.conn, d.err = broker.Dial(w.client.ctx, addr, w.client.cfg.Broker)
	w.mu.Lock()
	w.conn, w.dialling = d.conn, nil
	w.mu.Unlock()
	if d.err == nil {
		if w.client.ctx.Err() != nil {
			d.conn.Abort(ErrClosed) // Close may have looked at w.conn too early
		}
		w.client.wg.Go(func() {
			<-d.conn.Done()
			w.client.connectionLost(d.conn)
		})
		w.client.cfg.Metrics.connections.Inc()
		w.client.cfg.Log.Debug("connected to destination broker", zap.Int32("broker", w.id.node), zap.String("address", addr), zap.Bool("bulk", w.id.bulk))
	}
	close(d.done)
}

// abort ends the connection; what is in flight gets err.
func (w *writer) abort(err error) {
	w.mu.Lock()
	conn := w.conn
	w.mu.Unlock()
	if conn != nil {
		conn.Abort(err)
	}
}

// close waits until the connection has answered everything. REQUIRES: no dial is under way.
func (w *writer) close() {
	if w.conn != nil {
		w.conn.Close()
	}
}

// push lists a Log. It is called with Log.mu.
func (w *writer) push(l *Log) {
	w.mu.Lock()
	w.ready = append(w.ready, l)
	w.mu.Unlock()
	w.wake()
}

func (w *writer) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// run is the writer's goroutine.
func (w *writer) run() {
	for {
		select {
		case <-w.signal:
		case <-w.client.ctx.Done():
			return
		}
		for w.client.ctx.Err() == nil && w.sendOne() {
		}
	}
}

// sendOne sends one request. It returns false when there is nothing to do until the next signal.
func (w *writer) sendOne() bool {
	logs := w.takeReady()
	if len(logs) == 0 {
		return false
	}
	conn, err := w.connect(w.client.ctx)
	var version int16
	if err == nil {
		var ok bool
		if version, ok = conn.Version(keyProduce, maxProduceVersion); !ok || version < minProduceVersion {
			err = fmt.Errorf("broker %d has no usable version of Produce", w.id.node)
		}
	}
	if err != nil {
		for _, l := range logs {
			l.unreachable(w, err)
		}
		return true
	}
	if items := w.gather(conn, logs); len(items) > 0 {
		w.send(conn, version, items)
	}
	return true
}

// takeReady takes the list, unless the broker is to be left alone.
func (w *writer) takeReady() []*Log {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.requests >= w.client.cfg.MaxRequests {
		return nil // an answer signals
	}
	if pause := time.Until(w.pause); pause > 0 {
		if len(w.ready) > 0 {
			time.AfterFunc(pause, w.wake) // touches nothing but the signal, so nobody needs to wait for it
		}
		return nil
	}
	logs := w.ready
	w.ready = nil
	return logs
}

// gather takes one batch of each Log while there is room. Those without room stay first in the list, those with more
// to send go behind.
func (w *writer) gather(conn *broker.Conn, logs []*Log) []item {
	items := make([]item, 0, len(logs))
	room := w.client.cfg.MaxRequestBytes
	var again []*Log
	for i, l := range logs {
		limit := room
		if len(items) == 0 {
			limit = w.client.cfg.MaxBatchBytes // one batch always fits
		}
		l.merge(w)
		it, more, fits := l.take(w, conn, limit)
		if !fits {
			again = append(logs[i:len(logs):len(logs)], again...)
			break
		}
		if more {
			again = append(again, l)
		}
		if it.log != nil {
			if !it.fence {
				l.stamp(it.batch)
			}
			items = append(items, it)
			room -= len(it.batch.Bytes)
		}
	}
	if len(again) > 0 {
		w.mu.Lock()
		w.ready = append(again, w.ready...)
		w.mu.Unlock()
	}
	return items
}

func (w *writer) send(conn *broker.Conn, version int16, items []item) {
	w.mu.Lock()
	w.requests++
	w.mu.Unlock()
	m := w.client.cfg.Metrics
	bytes := 0
	for _, it := range items {
		bytes += len(it.batch.Bytes)
	}
	m.requests.Inc()
	m.batches.Add(float64(len(items)))
	m.bytes.Add(float64(bytes))
	m.inFlight.Add(float64(len(items)))
	version = produceVersion(version, items)
	parts := produceParts(version, w.client.cfg.ProduceTimeout, items)
	began := w.client.cfg.Now()
	err := conn.SendFrames(keyProduce, version, parts, func(body []byte, err error) { w.answered(version, items, began, body, err) })
	if err != nil {
		// Not sent, and the connection has ended; but a Log counts on answers in the order of its batches, so those that
		// the connection still has to give come first.
		<-conn.Done()
		w.answered(version, items, began, nil, err)
	}
}

// answered tells every Log what became of its batch. It runs on the connection's reader (or on the writer if the request
// could not be sent).
func (w *writer) answered(version int16, items []item, began time.Time, body []byte, err error) {
	took := w.client.cfg.Now().Sub(began)
	resp := kmsg.NewPtrProduceResponse()
	if err == nil {
		resp.Version = version
		if err = resp.ReadFrom(body); err != nil {
			err = fmt.Errorf("decoding the Produce response of broker %d: %w", w.id.node, err)
		}
	}
	w.client.cfg.Metrics.inFlight.Sub(float64(len(items)))
	var from [2]int
	for _, it := range items {
		it.log.answer(it, w.outcome(it, resp, err, &from))
	}
	w.mu.Lock()
	w.requests--
	if err == nil {
		w.measure(took, len(items))
	}
	if resp.ThrottleMillis > 0 {
		w.pause = time.Now().Add(time.Duration(resp.ThrottleMillis) * time.Millisecond)
	}
	w.mu.Unlock()
	w.wake()
}

func (w *writer) outcome(it item, resp *kmsg.ProduceResponse, err error, from *[2]int) outcome {
	if err != nil {
		return outcome{kind: doubtful, err: fmt.Errorf("batch for offset %d: %w", it.batch.Base, err)}
	}
	got := findAnswer(resp, it.log.p, from)
	if got == nil {
		return outcome{kind: doubtful, err: fmt.Errorf("batch for offset %d: broker %d did not answer for the partition", it.batch.Base, w.id.node)}
	}
	o := judgeCode(got.ErrorCode, got.ErrorMessage, it.log.p, it.batch.Base, len(it.batch.Bytes))
	if o.kind == appended {
		o.base = got.BaseOffset
	}
	return o
}
