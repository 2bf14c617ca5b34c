package store

import (
	"fmt"
	"strconv"
	"strings"
)

// StatePartitions is the number of partitions of the state topic. It is part of the format: it decides, with the hash,
// where every record lives and which gateway owns what.
const StatePartitions = 50

// MirrorKey, TopicKey, PartitionKey and TopicIDKey make the keys of the records that Update takes.
func MirrorKey(mirror string) Key { return Key{Kind: KindMirror, Mirror: mirror} }

// TopicKey names the record of a topic in a mirror.
func TopicKey(mirror, topic string) Key { return Key{Kind: KindTopic, Mirror: mirror, Topic: topic} }

// PartitionKey names the record of a mirror partition.
func PartitionKey(mirror, topic string, partition int32) Key {
	return Key{Kind: KindPartition, Mirror: mirror, Topic: topic, Partition: partition}
}

// TopicIDKey names the record of an ordinary topic with a given ID.
func TopicIDKey(topic string) Key { return Key{Kind: KindTopicID, Topic: topic} }

// ACLsKey names the record of the ACLs that a mirror added.
func ACLsKey(mirror string) Key { return Key{Kind: KindACLs, Mirror: mirror} }

// ClaimKey names the record of the mirror that may write a topic.
func ClaimKey(topic string) Key { return Key{Kind: KindClaim, Topic: topic} }

// String returns the text of the key as it is in the state log: v1/partition/<mirror>/<topic>/<n> and so on.
func (k Key) String() string {
	switch k.Kind {
	case KindMirror:
		return "v1/mirror/" + k.Mirror
	case KindTopic:
		return "v1/topic/" + k.Mirror + "/" + k.Topic
	case KindPartition:
		return "v1/partition/" + k.Mirror + "/" + k.Topic + "/" + strconv.FormatInt(int64(k.Partition), 10)
	case KindTopicID:
		return "v1/topicid/" + k.Topic
	case KindACLs:
		return "v1/acls/" + k.Mirror
	case KindClaim:
		return "v1/claim/" + k.Topic
	case KindProducer:
		return "v1/producer/" + strconv.FormatInt(int64(k.Partition), 10) + "/" + strconv.FormatInt(k.ID, 10)
	}
	return fmt.Sprintf("invalid key of kind %d", k.Kind)
}

// StatePartition returns the partition of the state topic that holds the record: that of the mirror for mirrors and
// their topics, so that both are in one log; PartitionFor for mirror partitions, whose owner fetches them.
func (k Key) StatePartition() int32 {
	switch k.Kind {
	case KindPartition:
		return PartitionFor(k.Mirror, k.Topic, k.Partition)
	case KindTopicID, KindClaim:
		return hashPartition(k.Topic)
	case KindProducer:
		return k.Partition
	default:
		return MirrorPartition(k.Mirror)
	}
}

// MirrorPartition returns the state partition whose owner runs a mirror's syncers and coordinates it.
func MirrorPartition(mirror string) int32 { return hashPartition(mirror) }

// PartitionFor returns the state partition whose owner fetches a mirror partition.
func PartitionFor(mirror, topic string, partition int32) int32 {
	return hashPartition(mirror + ":" + topic + ":" + strconv.FormatInt(int64(partition), 10))
}

// parseKey reads the text of a key. ok is false for what is not a key of version 1.
func parseKey(text string) (Key, bool) {
	f := strings.Split(text, "/")
	if len(f) < 3 || f[0] != "v1" {
		return Key{}, false
	}
	var k Key
	switch {
	case f[1] == "mirror" && len(f) == 3:
		k = MirrorKey(f[2])
	case f[1] == "topic" && len(f) == 4:
		k = TopicKey(f[2], f[3])
	case f[1] == "topicid" && len(f) == 3:
		k = TopicIDKey(f[2])
	case f[1] == "acls" && len(f) == 3:
		k = ACLsKey(f[2])
	case f[1] == "claim" && len(f) == 3:
		k = ClaimKey(f[2])
	case f[1] == "partition" && len(f) == 5:
		n, err := strconv.ParseInt(f[4], 10, 32)
		if err != nil {
			return Key{}, false
		}
		k = PartitionKey(f[2], f[3], int32(n))
	case f[1] == "producer" && len(f) == 4:
		n, err := strconv.ParseInt(f[2], 10, 32)
		id, err2 := strconv.ParseInt(f[3], 10, 64)
		if err != nil || err2 != nil {
			return Key{}, false
		}
		k = Key{Kind: KindProducer, Partition: int32(n), ID: id}
	default:
		return Key{}, false
	}
	// One text per key: a second spelling ("+1", "01") would be a second record for one thing.
	return k, k.check() == nil && k.String() == text
}

// check refuses names that the text of a key cannot hold. Mirror and topic names never contain a slash.
func (k Key) check() error {
	mirror := k.Kind == KindMirror || k.Kind == KindTopic || k.Kind == KindPartition || k.Kind == KindACLs
	topic := k.Kind == KindTopic || k.Kind == KindPartition || k.Kind == KindTopicID || k.Kind == KindClaim
	switch {
	case k.Kind < KindMirror || k.Kind > KindClaim:
		return fmt.Errorf("unknown kind %d of state record", k.Kind)
	case mirror && (k.Mirror == "" || strings.Contains(k.Mirror, "/")):
		return fmt.Errorf("mirror name %q cannot be a key of the state log", k.Mirror)
	case topic && (k.Topic == "" || strings.Contains(k.Topic, "/")):
		return fmt.Errorf("topic name %q cannot be a key of the state log", k.Topic)
	case k.Partition < 0:
		return fmt.Errorf("negative partition %d", k.Partition)
	}
	return nil
}

// hashPartition is what Kafka's default partitioner does with a key: murmur2, sign bit cleared, modulo. Any Kafka
// client library can compute it.
func hashPartition(s string) int32 { return int32((murmur2(s) & 0x7fffffff) % StatePartitions) }

// murmur2 is the 32-bit hash of Kafka's clients (seed 0x9747b28c).
func murmur2(s string) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := uint32(seed) ^ uint32(len(s))
	for len(s) >= 4 {
		k := uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
		s = s[4:]
	}
	switch len(s) {
	case 3:
		h ^= uint32(s[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(s[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(s[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}
