// Package replication copies the partitions of one mirror, and notices when the two logs are not one any more. It knows nothing of
// records, mirrors beside its own, or what is synced beside the data: package replication starts and stops its partitions, and
// writes down what it tells (Events).
//
// # The data path
//
// A Replicator copies the partitions of one mirror:
//
//	source broker ──► fetcher ──► copier ──► machine ──► appendlog.Log ──► destination broker
//	   (one connection,            (pure)      (pure)        │
//	    one request at a time)                  ▲            │ Ready, Acked, Doubt, Fenced, Failed
//	   sourceView ── leader, checks, lost ──────┴────────────┘
//
// The bytes of a Fetch response are read once and stay where they are: batches are slices of it, the log stamps their
// headers in place and writes them to the destination's socket. Nothing is decompressed, and nothing is copied; except
// for what a broker would refuse or change, which is encoded anew (copier_encode.go).
//
// Each partition is a machine (partition.go), a pure function of events. A replica runs it: it queues events, and
// carries out effects. The position of a partition is nowhere but in the destination: it is the log's end, learned by
// opening the log and again after every doubt.
//
// A fetcher belongs to a source broker, not to a partition. It keeps an incremental fetch session (fetcher_session.go)
// of the partitions that are subscribed to it at the moment. A partition is subscribed while it has room, and for
// exactly one answer: with data or an error the subscription is over, and the machine decides about the next. So a
// partition's fetches and appends are in one order by construction, and an answer always belongs to a known position.
//
// Before the first append after anything behind which the source's history may have changed, both logs are compared:
// divergence_steps.go says when, divergence_check.go how.
//
// # Offsets without records
//
// A source log has offsets that hold nothing for a reader, and a broker takes only gapless batches. So a gap is a piece like
// a batch is, until it is its turn: then it becomes filler batches, as many as may be in flight and no more (filler.go,
// filler_gate.go). Where the offsets are missing, the copier sees; where nothing is left to see, the machine concludes it
// (partition_gaps.go): a log that starts above the position, and a log whose last offsets never come.
//
// The destination's log start follows the source's (logstart.go): as far as the destination reaches, with each news of
// it, and after every comparison of the logs. The destination's own retention deletes nothing while a topic is mirrored.
//
// # Bounds
//
//   - A partition has at most two fetches' worth of bytes in flight (each mirror.fetch.max.bytes, or more where the source
//     is far away: fetcher_window.go), plus one batch. What was encoded anew counts against the Budget beside what it was made of.
//   - Fillers: 256 KiB made for a partition, and fillersInFlight handed to logs over all partitions of a process. What
//     comes behind a gap of over a million offsets is not kept but fetched again.
//   - A fetcher takes from the Budget, before it asks, what an answer may bring, and gives back what it did not; the rest
//     goes back as the destination acknowledges, or when a doubt drops it. The Budget is one for all mirrors.
//   - The event queue of a partition is bounded by what can happen at once: one answer, one check, a timer, metadata, and
//     the calls of the log, which are no more than there are batches in flight.
//   - mirror.replication.throttled.rate (fetcher_throttle.go): fetchers wait before they take from the Budget, so a throttled
//     mirror holds nothing of it.
//
// # Who owns what
//
// A Replicator owns: one goroutine for the sourceView and some for the checks
// under way (checkSlots, each with tailSlots for a broker), one for each fetcher (source broker × num.replica.fetchers), one
// that compares destination ends, one that moves log starts, one that notices suspensions. A replica owns no goroutine of its own: its events run in whichever goroutine brings
// them, one at a time. It does own short tasks (closing a log, fencing, a retry timer); Drop and Close wait for all of
// them. The clients and the Budget belong to the caller.
//
// # Locks
//
// Replicator.mu, fetcher.mu, sourceView.mu and replica.mu are leaves: nothing is called while one is held, except that
// Replicator.mu may be held while fetcher.mu or sourceView.mu is taken. So are trimmer.mu, fillerGate.mu and heartbeat.mu. Effects run without any lock, so that a log may call its Handler
// from under a lock of its own.
package replication
