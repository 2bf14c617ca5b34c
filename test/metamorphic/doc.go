// Package metamorphic writes random stories at a real source cluster (all kinds of records, transactions, compaction,
// deletions, crashes of everything) while a gateway mirrors it, and looks every few steps whether both logs read the same.
//
// A story follows from its seed: every step draws one pair of numbers from it, whatever the steps before did, and makes
// all its choices from those. What depends on the machine is the moments only. The log of the test is the story.
//
// NB: compacted topics. Each cluster has its own cleaner, which runs when it likes: also between a copy and the
// comparison, and at the mirror before it does at the source. So the two logs need not hold the same records, and it would
// be wrong to ask for that. What holds at every moment is
//
//   - a record that both sides have is the same on both sides: offset, timestamp, key, value, headers;
//   - the last record of every key is on both sides;
//   - a record that only one side has is therefore older than the last of its key.
//
// That tombstones stay is part of it: delete.retention.ms is a day. Topics that are not compacted are compared record by
// record. The logs' starts and ends are the same for all.
package metamorphic
