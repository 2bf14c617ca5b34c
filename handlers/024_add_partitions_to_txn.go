package handlers

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// AddPartitionsToTxn: v0–v5
//
// Read-only topics are refused, others go through. A request for a topic that is cut over waits as a whole (cutover.go). No
// version has a message.
//   - v4+: several transactions at once. Only brokers may send it, but it is looked at all the same.
func init() {
	register(keyAddPartitions, entry{whole: anyReadOnly, request: (*Handlers).addPartitionsToTxn})
}

func (h *Handlers) addPartitionsToTxn(r *request) proxy.Decision {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	if err := decode(req, r.Version, r.body()); err != nil {
		return undecodable(err)
	}
	var topics []kmsg.AddPartitionsToTxnRequestTopic
	var parts []kmsg.AddPartitionsToTxnResponseTopic
	var refused []*mirror.Topic
	for _, topic := range req.Topics {
		t := readOnly(r.topics, topic.Topic)
		if t == nil {
			topics = append(topics, topic)
			continue
		}
		out := kmsg.NewAddPartitionsToTxnResponseTopic()
		out.Topic = topic.Topic
		for _, p := range topic.Partitions {
			partition := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			partition.Partition = p
			out.Partitions = append(out.Partitions, partition)
		}
		parts, refused = append(parts, out), append(refused, t)
	}
	if d, ok := waitToAdd(r, req, refused); ok {
		return d
	}
	req.Topics = topics
	transactions := refuseTransactions(r.topics, req)
	for _, txn := range transactions {
		for _, topic := range txn.Topics {
			refused = append(refused, r.topics.ByName(topic.Topic))
		}
	}
	return h.split(r, req, len(topics)+len(req.Transactions), len(refused), refused, func(resp kmsg.Response, why verdict) {
		out := resp.(*kmsg.AddPartitionsToTxnResponse)
		for i := range parts {
			for j := range parts[i].Partitions {
				parts[i].Partitions[j].ErrorCode, _ = why(refused[i])
			}
		}
		out.Topics = append(out.Topics, parts...)
		mergeTransactions(out, transactions, func(topic string) int16 {
			code, _ := why(r.topics.ByName(topic))
			return code
		})
	})
}

// waitToAdd lets a request wait for topics that are cut over; then the connection ends, as no error is for this.
func waitToAdd(r *request, req *kmsg.AddPartitionsToTxnRequest, refused []*mirror.Topic) (proxy.Decision, bool) {
	var cut waits
	for _, t := range refused {
		cut.add(t)
	}
	for _, txn := range req.Transactions {
		for _, topic := range txn.Topics {
			cut.add(r.topics.ByName(topic.Topic))
		}
	}
	if !cut.now() {
		return proxy.Decision{}, false
	}
	if d, ok := waitFor(r, cut.until, waitMost); ok {
		return d, true
	}
	return proxy.Decision{Close: errors.New("a request has waited for a cut-over for as long as clients are patient")}, true
}

// refuseTransactions takes read-only topics out of the transactions of v4+, and transactions of which nothing is left.
// It returns the answers for what is refused, errors not yet set.
func refuseTransactions(topics *mirror.Topics, req *kmsg.AddPartitionsToTxnRequest) []kmsg.AddPartitionsToTxnResponseTransaction {
	var kept []kmsg.AddPartitionsToTxnRequestTransaction
	var refused []kmsg.AddPartitionsToTxnResponseTransaction
	for _, txn := range req.Transactions {
		out := kmsg.NewAddPartitionsToTxnResponseTransaction()
		out.TransactionalID = txn.TransactionalID
		var left []kmsg.AddPartitionsToTxnRequestTransactionTopic
		for _, topic := range txn.Topics {
			if readOnly(topics, topic.Topic) == nil {
				left = append(left, topic)
				continue
			}
			out.Topics = append(out.Topics, refusedTransactionTopic(topic))
		}
		if len(out.Topics) > 0 {
			refused = append(refused, out)
		}
		if len(left) > 0 || len(txn.Topics) == 0 {
			txn.Topics = left
			kept = append(kept, txn)
		}
	}
	req.Transactions = kept
	return refused
}

func refusedTransactionTopic(topic kmsg.AddPartitionsToTxnRequestTransactionTopic) kmsg.AddPartitionsToTxnResponseTransactionTopic {
	out := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
	out.Topic = topic.Topic
	for _, p := range topic.Partitions {
		partition := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
		partition.Partition = p
		out.Partitions = append(out.Partitions, partition)
	}
	return out
}

// mergeTransactions adds refused topics, with the errors that code returns, to their transactions, and transactions that
// the broker did not see.
func mergeTransactions(resp *kmsg.AddPartitionsToTxnResponse, refused []kmsg.AddPartitionsToTxnResponseTransaction, code func(topic string) int16) {
	for _, txn := range refused {
		for i := range txn.Topics {
			for j := range txn.Topics[i].Partitions {
				txn.Topics[i].Partitions[j].ErrorCode = code(txn.Topics[i].Topic)
			}
		}
		found := false
		for i := range resp.Transactions {
			if resp.Transactions[i].TransactionalID == txn.TransactionalID {
				resp.Transactions[i].Topics = append(resp.Transactions[i].Topics, txn.Topics...)
				found = true
				break
			}
		}
		if !found {
			resp.Transactions = append(resp.Transactions, txn)
		}
	}
}
