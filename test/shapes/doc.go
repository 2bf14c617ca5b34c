// Package shapes tests that every log that exists in the field is mirrored record for record. A row of its table is a log
// shape: how it is made at a real source (by producers, transactions, the cleaner, retention, or by what a disk can do to
// a log), how one sees in the raw log that it really was made, and what is expected of its mirror. All rows of a source
// release are mirrored by one gateway at the same time; then the mirrors are read by package verify directly, and by
// franz-go, librdkafka and the Java client through the gateway.
//
// A row whose expectation is not met yet has a pendingIssue. It then asserts what is documented to happen today; once
// that changes, the test fails until the field is removed.
package shapes
