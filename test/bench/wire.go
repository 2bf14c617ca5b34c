package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire is a bare connection to a broker, which costs the measuring side as little as can be. Requests are made before
// the clock runs, answers are only looked at for errors.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench"))

func dialWire(ctx context.Context, addr string) (*wire, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}, nil
}

func (w *wire) close() { w.conn.Close() }

// patience bounds single answers, so that a lost one is noticed.
const patience = 2 * time.Minute

// roundTrip sends a request frame and returns the answer without its length.
func (w *wire) roundTrip(frame []byte) ([]byte, error) {
	_ = w.conn.SetDeadline(time.Now().Add(patience))
	if _, err := w.conn.Write(frame); err != nil {
		return nil, err
	}
	return w.receive()
}

func (w *wire) receive() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(w.in, size[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(w.in, answer)
	return answer, err
}

// pipeline sends frames with at most depth of them unanswered, and hands every answer to check.
func (w *wire) pipeline(frames [][]byte, depth int, check func(answer []byte) error) error {
	free := make(chan struct{}, depth)
	done := make(chan error, 1)
	go func() {
		for range frames {
			answer, err := w.receive()
			if err == nil {
				err = check(answer)
			}
			if err != nil {
				w.conn.Close() // which ends the sender too
				done <- err
				return
			}
			<-free
		}
		done <- nil
	}()
	var sent error
	for _, frame := range frames {
		select {
		case free <- struct{}{}:
		case err := <-done:
			return err
		}
		if _, sent = w.conn.Write(frame); sent != nil {
			break
		}
	}
	if sent != nil {
		w.conn.Close()
	}
	if err := <-done; err != nil {
		return err
	}
	return sent
}

// producePart is a batch for a partition.
type producePart struct {
	partition int32
	batch     []byte
}

// produceVersion is the last that names topics, so that no topic ID is needed.
const produceVersion = 12

// produceFrame is a Produce request with acks=all, at most one batch for each partition.
func produceFrame(topic string, parts ...producePart) []byte {
	request := kmsg.NewPtrProduceRequest()
	request.SetVersion(produceVersion)
	request.Acks, request.TimeoutMillis = -1, 30_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	for _, part := range parts {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = part.partition, part.batch
		t.Partitions = append(t.Partitions, p)
	}
	request.Topics = []kmsg.ProduceRequestTopic{t}
	return formatter.AppendRequest(nil, request, 7)
}

// produced checks the answer to a produceFrame.
func produced(answer []byte) error {
	var response kmsg.ProduceResponse
	response.SetVersion(produceVersion)
	const header = 4 + 1 // correlation ID, no tagged fields
	if len(answer) < header {
		return fmt.Errorf("answer of %d bytes", len(answer))
	}
	if err := response.ReadFrom(answer[header:]); err != nil {
		return err
	}
	for _, t := range response.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("%s/%d: %w", t.Topic, p.Partition, err)
			}
		}
	}
	return nil
}
