// Package kafkatest starts real Apache Kafka on loopback ports, for tests and benchmarks.
//
// The jars come from Maven Central on first use and are kept in $MIRRORGATE_CACHE (default ~/.cache/mirrorgate). Java 17
// and Maven must be on the PATH; where they are not, tests fail with a message that says how to get them, unless
// MIRRORGATE_SKIP_KAFKA=1 asks for them to be skipped. $MIRRORGATE_JAVA names another java than the one on the PATH.
//
// Test code uses Start (a cluster of its own) or Shared (one cluster for the test binary); other programs use Run.
package kafkatest
