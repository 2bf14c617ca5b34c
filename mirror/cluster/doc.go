// Package cluster asks a Kafka cluster about its topics and logs: what there is, how it is configured, who leads it, where
// its logs begin and end, and what a reader finds in them.
//
// The usual clients answer such questions from what they remember, and miss topics that were made a moment ago, or fail as a whole for one
// topic that must not be read. Here each answer is the cluster's own, and says for each topic and partition what is known of it.
package cluster
