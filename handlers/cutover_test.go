package handlers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// cutTopics are someTopics, with "held" being cut over.
func cutTopics(until time.Time) *mirror.Topics {
	return mirror.NewTopics([]mirror.Topic{
		{Name: "held", Mirror: "east", SourceID: sourceID(0), DestinationID: destinationID(0), State: mirror.Mirroring, ReadOnly: true, WritersWait: until},
		{Name: "done", Mirror: "east", SourceID: sourceID(1), DestinationID: destinationID(1), State: mirror.Stopped, WritersWait: until},
		{Name: "old", Mirror: "east", DestinationID: destinationID(2), State: mirror.Failed, ReadOnly: true},
	}, nil)
}

// askWaited is askFor for a request that has waited.
func askWaited(h *Handlers, req kmsg.Request, waited time.Duration) proxy.Decision {
	frame := requestFrame(req.Key(), req.GetVersion(), req.AppendTo(nil))
	return h.Request(stubClient{}, proxy.Header{
		Key: req.Key(), Version: req.GetVersion(), CorrelationID: 77, Size: int32(len(frame)), Waited: waited,
	}, frame)
}

func produceTo(version, acks int16, timeout int32, topics ...string) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, acks, timeout
	for i, name := range topics {
		topic := kmsg.ProduceRequestTopic{Topic: name, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 1, Records: []byte("x")}}}
		if version >= 13 {
			topic.Topic, topic.TopicID = "", sourceID(i)
		}
		req.Topics = append(req.Topics, topic)
	}
	return req
}

// TestProducersWait: a request to a topic that is cut over waits as a whole, for less than its client does; then all of it
// gets an error that clients retry, and the connection ends.
func TestProducersWait(t *testing.T) {
	h, _ := newStubHandlers(t, cutTopics(time.Now().Add(time.Hour)))
	for _, c := range []struct {
		req  *kmsg.ProduceRequest
		most time.Duration
	}{
		{produceTo(0, 1, 30_000, "plain", "held"), waitMost},
		{produceTo(8, -1, 10_000, "held"), 8 * time.Second},
		{produceTo(9, -1, 100, "held", "old"), time.Second},
		{produceTo(13, -1, 30_000, "held"), waitMost},
	} {
		d := askFor(h, c.req)
		require.NotNil(t, d.Wait)
		require.Equal(t, c.most, d.Wait.For)
		select {
		case <-d.Wait.Until:
			require.Fail(t, "the topics have not changed")
		default:
		}
		require.Equal(t, c.most-700*time.Millisecond, askWaited(h, c.req, 700*time.Millisecond).Wait.For)
		d = askWaited(h, c.req, c.most)
		require.Error(t, d.Close)
		resp := decodeResponse(t, d.Answer, c.req.ResponseKind()).(*kmsg.ProduceResponse)
		require.Len(t, resp.Topics, len(c.req.Topics))
		for _, topic := range resp.Topics {
			require.Equal(t, int16(19), topic.Partitions[0].ErrorCode)
			require.Equal(t, c.req.Version >= 8, topic.Partitions[0].ErrorMessage != nil)
		}
	}
	silent := produceTo(9, 0, 100, "held")
	require.Equal(t, waitMost, askFor(h, silent).Wait.For)
	d := askWaited(h, silent, waitMost)
	require.Error(t, d.Close)
	require.Nil(t, d.Answer)
}

// TestOthersDoNotWait: topics that are not cut over are written or refused at once; so is everything once the time is over,
// or the topic is writable.
func TestOthersDoNotWait(t *testing.T) {
	h, _ := newStubHandlers(t, cutTopics(time.Now().Add(time.Hour)))
	require.NotNil(t, askFor(h, produceTo(9, -1, 30_000, "done", "plain")).Forward)
	require.NotNil(t, askFor(h, produceTo(9, -1, 30_000, "old")).Rewrite, "refused")
	h, _ = newStubHandlers(t, cutTopics(time.Now().Add(-time.Second)))
	require.NotNil(t, askFor(h, produceTo(9, -1, 30_000, "held")).Rewrite, "refused")
	require.Nil(t, askFor(h, produceTo(9, -1, 30_000, "held")).Wait)
	require.Error(t, askFor(h, produceTo(9, 0, 30_000, "held")).Close)

	soon := time.Now().Add(waitMost - time.Second)
	h, _ = newStubHandlers(t, cutTopics(soon))
	require.LessOrEqual(t, askFor(h, produceTo(9, -1, 30_000, "held")).Wait.For, waitMost-time.Second)
}

// TestTransactionsWait: so do requests that add partitions to a transaction.
func TestTransactionsWait(t *testing.T) {
	h, _ := newStubHandlers(t, cutTopics(time.Now().Add(time.Hour)))
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version, req.TransactionalID = 3, "tx"
	req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "plain", Partitions: []int32{0}}, {Topic: "held", Partitions: []int32{0}}}
	require.Equal(t, waitMost, askFor(h, req).Wait.For)
	d := askWaited(h, req, waitMost)
	require.Error(t, d.Close)
	require.Nil(t, d.Answer)

	req = kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version = 4
	req.Transactions = []kmsg.AddPartitionsToTxnRequestTransaction{{TransactionalID: "tx", Topics: []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: "held"}}}}
	require.Equal(t, waitMost, askFor(h, req).Wait.For)
	h, _ = newStubHandlers(t, someTopics())
	require.Nil(t, askFor(h, req).Wait)
}
