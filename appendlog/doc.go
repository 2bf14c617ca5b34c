// Package appendlog turns a partition of an unmodified Kafka broker into a compare-and-append log: every batch is an
// idempotent Produce whose sequence is its offset modulo 2^31, so that the broker refuses anything but the next offset.
//
// # Why it works
//
// For every producer ID a broker keeps, per partition, the epoch and the sequences of the last five batches (Kafka's
// ProducerStateManager; KIP-98). It takes a batch if its first sequence is the one after the last; answers a batch with
// the sequences of one of the last five with the offset that one has; and refuses everything else with
// OUT_OF_ORDER_SEQUENCE_NUMBER. Where sequence = offset holds for the last batch, it holds for the next one exactly if
// that is appended at the log's end. So the broker itself compares before it appends, atomically and under its own lock,
// and any number of writers with the same producer ID can send at the same time, late, twice, or after a crash: each
// batch lands at its own offset or nowhere.
//
// Nothing has to be stored. The log's end is the position, and any doubt is answered by reading it.
//
// # What the broker does not check, and what is done about it
//
// The proof above is an induction, and needs a start. A broker that does not know the producer takes any sequence: on a
// new partition, and once it has forgotten the producer. And the broker compares with the producer's last batch, not
// with the log's end: what another producer writes shifts all offsets behind it without a word.
//
// Forgetting is no rare thing. Every 10 minutes a broker drops the producers whose last batch is older than
// producer.id.expiration.ms (1 day), and how old a batch is, it takes from the timestamps of its records (measured on
// 4.1: with records of 23 hours ago the producer stays, with records of 25 hours ago it is gone at the next look). So
// while history is copied, each look makes the producer unknown until its next batch. Hence the rules:
//
//  1. First prove, then write. After the start, every doubt, every new connection and 30 seconds without an answer, the
//     end offset is read, and the last batch before it must be ours: producer ID (this one, or one of an earlier
//     incarnation) and sequence = offset. Else nothing is written. The end counts only if it is the true one: while the
//     high watermark, which readers are told, trails the leader's log (OffsetForLeaderEpoch tells), nothing is written
//     either. So the position is right even if the broker knows nothing.
//  2. One batch alone. After a proof, and after every second without an answer, a single batch is sent; more only once it
//     is acknowledged, when the broker knows the producer. If two were in flight to a broker that does not, and the first
//     failed, the second would be taken in its place.
//  3. The base offset in every answer is compared with the one meant. Another one fails the partition for good.
//  4. After any error, nothing more is sent until nothing is in flight, then rule 1. What had been queued is dropped: who
//     copies reads it again from the source, at the offset that Ready names.
//  5. Five in flight at most, as a broker remembers five: the repetition of an older one would be refused.
//  6. Give way. At the start, and after a refusal, nothing is sent until the end is found at the same place twice, a pause
//     apart: where another gateway is at work, this one only looks on. It saves useless traffic; and it matters for old
//     data, where a refusal is only as certain as the broker's memory.
//
// A log that is continued (a mirror back into the topic that was the source) holds what others wrote, up to Partition.From.
// That is taken as it is: rule 1 asks whose the last batch is only behind it. A log that ends below From lost a tail that
// was not ours; it goes on at its end, as after the loss of one of ours.
//
// # Lanes
//
// A broker works off a connection's requests one by one, so whatever takes it long holds up all partitions on the
// connection, and uses one of its processors at most. So the Logs share two connections to each broker (a Log is always on
// the same one), and batches that are Bulk have a third. A Log is in one lane at a
// time: what was sent in one is answered before anything goes out in the other (an answer that is lost is a doubt, with
// rules 4 and 6), and as the other is a new connection for it, rules 1 and 2 come first: the end is read there, then one
// batch goes alone. So nothing of a Log is ever on its way on two connections, except what a lost one left in the broker's
// buffers, as with one lane.
//
// # Merging
//
// Small batches that wait for a round trip are merged into larger ones (merge.go). So the borders of batches are not the
// source's, nor those of another gateway or of an earlier try. The rules do not care: they are about offsets.
//
// # The fence
//
// One thing the sequence cannot stop: the mirror is stopped and clients write to the partition, but a gateway that slept
// through that wakes with the very next sequence in its hands. The broker compares with the producer's last batch, so it
// would append it behind the clients' records. So a stop ends with a record of the same producer ID with epoch + 1 and
// sequence 0. The broker then answers INVALID_PRODUCER_EPOCH to the old epoch, and recognises a repetition of the fence
// as a duplicate: asking again, from anywhere, gives the same offset. The fence does not depend on the log's end, so it
// needs no proof, and is set even on a partition that failed. If it did not land where the log was proved to end, something came
// between, or it was there already: the batch before it is read, and one that is not ours is told as a foreign write. No
// later batch would show it.
//
// A fence dies with its topic. If the topic is deleted and one of the same name made while a gateway sleeps, the new one
// knows no producer and would take anything (tried: each time). So batches and the fence are addressed to the topic's ID
// where the broker takes one (Produce 13, Kafka 4.1). Before, the ID is compared only when the end is read, so what was proved
// in the last 30 seconds can still be written into the new topic.
//
// # The states
//
// core.go holds the rules as a state machine without I/O or clock, with the diagram; testdata/core tells it as stories.
// model_test.go runs several of them against a model of a broker and a network that lose, delay, forget and truncate.
// Log is the shell around a core; writer gathers the batches of all Logs of one broker into requests.
//
// # Residual cases, and how each shows
//
//   - Lost tail (unclean election, a disk restored from a backup). The producer's state is rebuilt from the log that is
//     left, so our next batch is refused, the shorter end is read, and the copy goes on there. A change of leader ends the
//     connection or gives NOT_LEADER, so rule 1 comes first. Only if the leadership went away and came back between two
//     batches, and the log lost every batch of ours on the way, is a batch taken at a wrong offset: rule 3 sees it, and the
//     partition fails. It is never silent.
//   - Two writers with the same producer ID that send to one partition within milliseconds, of data older than a day,
//     with the broker's look at its producers (every 10 minutes) exactly between the two: the second is taken behind the
//     first. Rule 3 fails the partition at once, but the log then holds records twice. Rule 6 leaves only the case that
//     both find the log at rest and then have data at the same moment, or that one was suspended between its check and
//     its write. (Measured with the look 6,000 times as frequent, and pauses of 100 ms at most: one partition in 30, in
//     what would be 80 hours of three gateways at work on the same history.) Whoever decides who copies what
//     must not lean on this package alone for old data: give up a partition in time, and take it over only then. Raising
//     producer.id.expiration.ms on the destination above the age of the data (24.8 days at most) closes it.
//   - The same with a request of ours that the broker still had in its buffers when the connection was lost: the pause
//     before the end is read lets it get through first.
//   - A batch that fails before it is appended (replicas missing, too large), the broker's look, and the batch in flight
//     behind it, within the same millisecond: rule 3.
//   - Brokers before Kafka 2.3 do not tell the true end. The batch sent for a trailing one meets what is behind: a
//     duplicate, answered with the right offset, or OUT_OF_ORDER, then the end is read again.
//   - OUT_OF_ORDER again and again at one end: the stretch since the last acknowledgement is searched for a foreign
//     batch, and the broker asked for the producer's sequence (DescribeProducers). The partition fails only if one of
//     these proves something; else it goes on trying, visibly in doubt. A high watermark that stands still because
//     replicas are down is no reason to fail.
//   - A foreign write just before the end, which the mirror never reaches again: found by rule 1 at the next start, or at
//     the next append by rule 3. One batch of ours then lies behind the foreign one at a wrong offset. It cannot be
//     prevented: Kafka has no conditional append across producers.
//   - A foreign write that retention removed again before anybody looked: the broker still knows our last sequence and
//     refuses the next; SequenceError. If it forgot that as well, the log starts at its end, holds nothing wrong, and goes
//     on at its end.
//   - The fence has a timestamp of its own, the time it is set, so it is remembered for a day whatever the age of the data.
//     A batch of ours that a network holds back for longer than that, or a gateway that sleeps as long between Ready and
//     Append: Idle bounds the second (the end is read, which finds the fence or the clients' records); a TCP connection
//     does not live through the first.
//   - The log cleaner: it keeps the last batch of every producer that the broker knows, perhaps without records, and never
//     touches the active segment, so the proof finds its batch. If nothing is left at the end, the last batch left is
//     looked for backwards; reader.go has the cases one by one.
//   - A request that the broker refuses as a whole for a fault of one batch. Append lets no such batch through.
//
// Brokers answer some errors for batches that they did append (NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT), and
// some connections end after the append: all of it is doubt, and the end tells.
//
// # Rights
//
// The gateway's principal needs on the topic WRITE, READ (for the proof and DescribeProducers) and DESCRIBE, and before
// Kafka 3.0 IDEMPOTENT_WRITE on the cluster. A missing right is a doubt, so it shows and can be granted.
package appendlog
