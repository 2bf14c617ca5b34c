// Package mirror is the engine: it keeps what is mirrored and brings it about.
//
//	Manager        the records of mirrors, topics and partitions (package store), what clients may do with them
//	│              (operations_*.go, listing.go), and the snapshot that the client path reads without locks (topics.go)
//	└─ mirrorRun   one mirror at work: the admin client of its source, its Replication, its syncers (sync_*.go, groups.go)
//	   └─ topicRun one incarnation of a mirror topic: makes the destination topic, starts its partitions, stops them
//
// What it needs is in packages of its own: replication copies partitions and compares logs, cluster asks clusters. Both know
// nothing of the manager; it gives a Replication its PartitionSpecs, and hears of its Events.
//
// The way of a topic through its states is in manager_topic.go (its end: manager_topic_stop.go), the way back to an old source in failback.go, a planned move
// in cutover.go, loops and chains in loops.go.
package mirror
