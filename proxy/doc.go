// Package proxy carries Kafka connections between clients and the destination's brokers on a few event loops (gnet). It
// knows bytes, frames and order; what a request means is decided by the Handler it is started with.
//
// # The session and its FIFO
//
// A session pairs one client connection with one broker connection, so that authentication, ACLs, quotas and audit see
// the client's own principal. Kafka answers the requests of a connection in order, and so must the gateway, though some
// answers come from the broker, some from the gateway at once, some from a worker later, and some never (Produce with
// acks=0). And the gateway sends requests of its own in between, whose responses no client may see.
//
// Two queues, together called inflight, keep that straight:
//
//	replies   what the client waits for, in the order of its requests: from the broker | answer | working | closing
//	expected  what the broker owes, in the order of sending: for a client (streamed or rewritten) | for the gateway
//
// A response is matched with the head of expected and its correlation ID is checked; a mismatch ends the connection,
// since from there on nobody can tell whose answer is whose. One rule makes the rest easy: while a Work runs, no further
// request of that client is taken. (A broker does the same: it reads the next request of a connection when the one
// before is answered. The client loses nothing, since later responses would have to wait for this one anyway.) So a
// "working" entry can only be the last of replies, and whenever a client's response comes from the broker, its entry is
// the first of replies. Hence responses are never parked: they stream from socket to socket. The Work's own round trips
// are put at the end of expected, which is where their requests are on the wire.
//
// A handler may also let a request wait (Decision.Wait) and be asked again: it and all behind it stay where they are, the
// broker has seen none of them, and if the client gives up they are dropped together. So what a client sent in order never
// arrives out of order.
//
// Bytes stream too. The first 12 bytes of a frame say how it travels, and unless the Handler asked to see it whole it
// goes out as it comes in, many frames in one write; it is never held. A large request that the Handler asked to see may
// be decided about by its first bytes (Opening), and then goes out as it comes in, too. A response that must be changed is held if it is small
// (streamFrom); a large one passes through a Passage, which changes it on its way and keeps its length, where the Handler has
// one for it (Fetch). Only for Produce and SaslHandshake v0 the proxy
// looks a few bytes further: for acks, and for the mechanism whose raw tokens, which are no Kafka requests, follow.
//
// # Rules of the loop
//
//   - Both connections of a session live on the same event loop. Session fields are touched on that loop only, and
//     there are no locks. Everything else (workers, dialling, timers) comes in by loop.post.
//   - Nothing on a loop blocks: dialling runs on a goroutine, Work on a bounded pool.
//   - A write can fail, and gnet then closes the connection within the call. So after every write look at s.client or
//     s.up again: it may be nil. A connection that is closed is never written to: its descriptor may be another's.
//   - Slices that gnet hands over are valid until the callback returns. They may be changed in place.
//   - loop.post is guarded, for gnet writes to a closed descriptor when woken after its end.
//
// # TLS and names
//
// The loops know plain descriptors only. Config.Accept and Config.Dial may give one end of a socket pair instead of the
// connection itself; package tunnel does so for TLS. With Config.BrokerHost all brokers are at the bootstrap listener, and the
// host name that a client asks for in the TLS handshake says which one it means.
//
// # Flow control
//
// gnet reads whatever arrives and has no means to stop. On Linux this package has: it changes the events that the
// loop's epoll watches for that descriptor (see pause_linux.go), so that the kernel's buffer fills and TCP slows the
// sender down. What comes of it:
//
//   - The client's outbound buffer above OutboundHigh: the broker connection is not read, and no further request is
//     taken, until it is below OutboundLow. A consumer that stops reading costs OutboundHigh plus one read of a loop.
//   - The broker's outbound buffer above OutboundHigh: the client is not read.
//   - Requests that may not go yet (MaxInFlight, a Work, no broker connection yet) stay in a buffer of at most two
//     reads, since the client is not read while it is in use.
//
// Where pausing does not work (other systems) OutboundMax and PendingMax are the bound: the connection is closed. gnet
// does not tell when a buffer has drained either, so a loop looks at the few sessions that wait for it, at first every
// millisecond and at growing intervals while nothing moves.
//
// # Ends
//
// A client that goes away may leave requests behind, acks=0 produces above all. What was received goes to the broker,
// then the write half is shut, and the broker's answers are read and dropped until it closes too or LingerTimeout is over.
// (Closing at once with answers unread would send a reset, which can destroy what the broker has not read yet.) When the
// broker goes away, what it sent is delivered to the client before its connection is closed.
package proxy
