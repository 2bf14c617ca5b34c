// Package broker talks to single Kafka brokers: a pipelined connection that takes requests as bytes and gives responses
// as bytes, for the paths where the gateway must not decode or copy records; and the configuration, in the property
// names of Kafka's own clients, from which both such connections and kgo clients are made.
//
// A Conn does little on purpose. It has no retries, no metadata and no reconnect: it lives until the first thing goes
// wrong, then every request that has no response yet gets the error, in order. Who owns a Conn decides what that means.
// A request without a response for Config.RequestTimeout is such a thing (a broker that vanished behind a firewall
// answers nothing, not even a reset).
//
// Two goroutines belong to a Conn: one reads responses and calls back; the other re-authenticates with SASL (KIP-368)
// before the session ends, where the broker limits it. During re-authentication requests are held back and then sent in
// their order. Writes happen in the goroutine of the caller.
package broker
