// wire: raw requests in every version that the server offers; every address in every response must be an allowed one.
// It needs a cluster of at least two brokers.
package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"kconf/kit"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// call sends one request to the bootstrap address, on a connection of its own; version is that of the request, or one that does not exist.
func call(req kmsg.Request, version int16) (kmsg.Response, []byte) {
	c := dial(kit.Bootstrap()[0])
	defer c.Close()
	return exchange(c, req, version)
}

func dial(addr string) net.Conn {
	c, err := net.DialTimeout("tcp", addr, 30*time.Second)
	must(err)
	return c
}

func exchange(c net.Conn, req kmsg.Request, version int16) (kmsg.Response, []byte) {
	c.SetDeadline(time.Now().Add(60 * time.Second))
	req.SetVersion(min(version, req.MaxVersion()))
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("wire")).AppendRequest(nil, req, 7)
	binary.BigEndian.PutUint16(frame[6:], uint16(version))
	_, err := c.Write(frame)
	must(err)
	var n [4]byte
	_, err = io.ReadFull(c, n[:])
	if err != nil {
		panic(fmt.Sprintf("%s v%d: %v", kmsg.NameForKey(req.Key()), version, err))
	}
	b := make([]byte, binary.BigEndian.Uint32(n[:]))
	_, err = io.ReadFull(c, b)
	must(err)
	resp, body := req.ResponseKind(), b[4:]
	resp.SetVersion(req.GetVersion())
	if version > req.MaxVersion() {
		return resp, body
	}
	if resp.IsFlexible() && req.Key() != 18 {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		panic(fmt.Sprintf("%s v%d: %v", kmsg.NameForKey(req.Key()), version, err))
	}
	return resp, body
}

func apiVersions() *kmsg.ApiVersionsRequest {
	r := kmsg.NewPtrApiVersionsRequest()
	r.ClientSoftwareName, r.ClientSoftwareVersion = "wire", "1"
	return r
}

// versions calls f for each version of the key that both the server and kmsg know.
func versions(key int16, f func(v int16)) string {
	resp, _ := call(apiVersions(), 3)
	for _, k := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		if k.ApiKey == key {
			hi := min(k.MaxVersion, kmsg.RequestForKey(key).MaxVersion())
			for v := k.MinVersion; v <= hi; v++ {
				f(v)
			}
			return fmt.Sprintf("versions %d to %d", k.MinVersion, hi)
		}
	}
	panic(kit.Skip(kmsg.NameForKey(key) + " is not offered"))
}

func allowed(what string, v int16, host string, port int32) {
	if err := kit.Allowed(host, port); err != nil {
		panic(fmt.Sprintf("%s v%d: %v", what, v, err))
	}
}

func apiversions() (string, error) {
	for v := int16(0); v <= 4; v++ { // v5 names a node
		resp, _ := call(apiVersions(), v)
		if code := resp.(*kmsg.ApiVersionsResponse).ErrorCode; code != 0 {
			return "", fmt.Errorf("v%d: error %d", v, code)
		}
	}
	_, body := call(apiVersions(), 99)
	if code := binary.BigEndian.Uint16(body); code != 35 {
		return "", fmt.Errorf("v99: error %d, not UNSUPPORTED_VERSION", code)
	}
	resp, _ := call(apiVersions(), 3)
	a := resp.(*kmsg.ApiVersionsResponse)
	var ranges, features []string
	for _, k := range a.ApiKeys {
		ranges = append(ranges, fmt.Sprintf("%d:%d-%d", k.ApiKey, k.MinVersion, k.MaxVersion))
	}
	for _, f := range a.FinalizedFeatures {
		features = append(features, fmt.Sprintf("%s=%d", f.Name, f.MaxVersionLevel))
	}
	return fmt.Sprintf("%d APIs %s; %s", len(a.ApiKeys), strings.Join(ranges, " "), strings.Join(features, " ")), nil
}

func metadata() (string, error) {
	topics := 0
	done := versions(3, func(v int16) {
		r := kmsg.NewPtrMetadataRequest()
		if v == 0 {
			r.Topics = []kmsg.MetadataRequestTopic{}
		}
		resp, _ := call(r, v)
		m := resp.(*kmsg.MetadataResponse)
		if len(m.Brokers) == 0 {
			panic(fmt.Sprintf("v%d: no brokers", v))
		}
		for _, b := range m.Brokers {
			allowed("Metadata", v, b.Host, b.Port)
		}
		topics = len(m.Topics)
	})
	return fmt.Sprintf("%s, %d topics", done, topics), nil
}

func coordinator() (string, error) {
	return versions(10, func(v int16) {
		for kind := int8(0); kind < 2; kind++ {
			r := kmsg.NewPtrFindCoordinatorRequest()
			r.CoordinatorKey, r.CoordinatorKeys, r.CoordinatorType = kit.Name("c"), []string{kit.Name("c"), kit.Name("d")}, kind
			if v == 0 && kind > 0 {
				continue
			}
			var c *kmsg.FindCoordinatorResponse
			kit.Until(80*time.Second, func() bool { // while the coordinator's topic is being made
				resp, _ := call(r, v)
				c = resp.(*kmsg.FindCoordinatorResponse)
				return c.ErrorCode == 0 && (len(c.Coordinators) == 0 || c.Coordinators[0].ErrorCode == 0)
			})
			if v < 4 {
				if c.ErrorCode != 0 {
					panic(fmt.Sprintf("v%d: error %d", v, c.ErrorCode))
				}
				allowed("FindCoordinator", v, c.Host, c.Port)
			}
			for _, k := range c.Coordinators {
				if k.ErrorCode != 0 {
					panic(fmt.Sprintf("v%d: error %d", v, k.ErrorCode))
				}
				allowed("FindCoordinator", v, k.Host, k.Port)
			}
		}
	}), nil
}

func cluster() (string, error) {
	return versions(60, func(v int16) {
		resp, _ := call(kmsg.NewPtrDescribeClusterRequest(), v)
		c := resp.(*kmsg.DescribeClusterResponse)
		if c.ErrorCode != 0 || len(c.Brokers) == 0 {
			panic(fmt.Sprintf("v%d: error %d, %d brokers", v, c.ErrorCode, len(c.Brokers)))
		}
		for _, b := range c.Brokers {
			allowed("DescribeCluster", v, b.Host, b.Port)
		}
	}), nil
}

// place is a partition and its leader, as Metadata tells.
type place struct {
	topic   string
	id      [16]byte
	brokers []kmsg.MetadataResponseBroker
	leader  int32
	epoch   int32
}

func find(topic string) place {
	found, last := place{topic: topic, leader: -1}, ""
	ok := kit.Until(80*time.Second, func() bool {
		r, rt := kmsg.NewPtrMetadataRequest(), kmsg.NewMetadataRequestTopic()
		rt.Topic = &topic
		r.Topics = append(r.Topics, rt)
		resp, _ := call(r, 12)
		m := resp.(*kmsg.MetadataResponse)
		found.brokers = m.Brokers
		t := m.Topics[0]
		last = fmt.Sprintf("%d brokers, error %d, partitions %v", len(m.Brokers), t.ErrorCode, t.Partitions)
		if t.ErrorCode == 0 && len(t.Partitions) == 1 && t.Partitions[0].Leader >= 0 {
			found.id, found.leader, found.epoch = t.TopicID, t.Partitions[0].Leader, t.Partitions[0].LeaderEpoch
		}
		return found.leader >= 0 && len(m.Brokers) > 1
	})
	if !ok {
		panic("no leader, or only one broker: " + last)
	}
	return found
}

// stranger is a connection to a broker that does not lead the partition.
func (p place) stranger() net.Conn {
	for _, b := range p.brokers {
		allowed("Metadata", 12, b.Host, b.Port)
		if b.NodeID != p.leader {
			return dial(fmt.Sprintf("%s:%d", b.Host, b.Port))
		}
	}
	panic("no other broker")
}

// endpoint must be the leader's as Metadata has it.
func (p place) endpoint(what string, v int16, node int32, host string, port int32) {
	allowed(what, v, host, port)
	for _, b := range p.brokers {
		if b.NodeID == node && node == p.leader && b.Host == host && b.Port == port {
			return
		}
	}
	panic(fmt.Sprintf("%s v%d: the leader is %d at %s:%d, says the endpoint; Metadata knows another", what, v, node, host, port))
}

// leader asks a broker that does not lead: answers name the leader and its endpoint, in Produce since v10, Fetch since v16, ShareFetch.
func leader() (string, error) {
	topic := kit.Name("endpoints") // nobody moves its leader
	r, rt := kmsg.NewPtrCreateTopicsRequest(), kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, 1, 1
	r.Topics, r.TimeoutMillis = append(r.Topics, rt), 15000
	resp, _ := call(r, 5)
	if code := resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 {
		return "", fmt.Errorf("creating %s: error %d", topic, code)
	}
	p := find(topic)
	var done []string
	for _, ask := range []struct {
		name  string
		key   int16
		first int16
		ask   func(c net.Conn, v int16) int
	}{{"Produce", 0, 10, p.produce}, {"Fetch", 1, 16, p.fetch}, {"ShareFetch", 78, 1, p.shareFetch}} {
		text := versions(ask.key, func(v int16) {
			if v < ask.first {
				return
			}
			ok := kit.Until(80*time.Second, func() bool { // the other broker may not know the topic yet
				c := p.stranger()
				defer c.Close()
				return ask.ask(c, v) == 1
			})
			if !ok {
				panic(fmt.Sprintf("%s v%d: no endpoint of the leader in the answer", ask.name, v))
			}
		})
		done = append(done, ask.name+" "+text)
	}
	return strings.Join(done, "; "), nil
}

func (p place) produce(c net.Conn, v int16) int {
	record := kmsg.Record{Value: []byte("x")}
	record.Length = int32(len(record.AppendTo(nil)) - 1)
	body := record.AppendTo(nil)
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{Magic: 2, Length: int32(49 + len(body)), PartitionLeaderEpoch: -1, FirstTimestamp: now, MaxTimestamp: now, ProducerID: -1, ProducerEpoch: -1,
		FirstSequence: -1, NumRecords: 1, Records: body}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	r, rt, rp := kmsg.NewPtrProduceRequest(), kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rp.Records, rt.Topic, rt.TopicID = raw, p.topic, p.id
	rt.Partitions, r.Acks, r.TimeoutMillis = append(rt.Partitions, rp), -1, 5000
	r.Topics = append(r.Topics, rt)
	resp, _ := exchange(c, r, v)
	n := 0
	for _, b := range resp.(*kmsg.ProduceResponse).Brokers {
		p.endpoint("Produce", v, b.NodeID, b.Host, b.Port)
		n++
	}
	return n
}

func (p place) fetch(c net.Conn, v int16) int {
	r, rt, rp := kmsg.NewPtrFetchRequest(), kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = 1024, p.epoch
	rt.TopicID, rt.Partitions = p.id, append(rt.Partitions, rp)
	r.MaxBytes, r.SessionEpoch, r.Topics = 1024, -1, append(r.Topics, rt)
	resp, _ := exchange(c, r, v)
	n := 0
	for _, b := range resp.(*kmsg.FetchResponse).Brokers {
		p.endpoint("Fetch", v, b.NodeID, b.Host, b.Port)
		n++
	}
	return n
}

func (p place) shareFetch(c net.Conn, v int16) int {
	group, member := kit.Name("leader"), "AAAAAAAAAAAAAAAAAAAAAQ"
	r, rt, rp := kmsg.NewPtrShareFetchRequest(), kmsg.NewShareFetchRequestTopic(), kmsg.NewShareFetchRequestTopicPartition()
	rp.PartitionMaxBytes = 1024
	rt.TopicID, rt.Partitions = p.id, append(rt.Partitions, rp)
	r.GroupID, r.MemberID, r.MaxBytes, r.MaxRecords, r.MaxWaitMillis, r.Topics = &group, &member, 1024, 10, 100, append(r.Topics, rt)
	resp, _ := exchange(c, r, v)
	s := resp.(*kmsg.ShareFetchResponse)
	n := 0
	for _, b := range s.NodeEndpoints {
		p.endpoint("ShareFetch", v, b.NodeID, b.Host, b.Port)
		n++
	}
	return n
}

func main() {
	kit.Main(map[string]kit.Check{"apiversions": apiversions, "metadata": metadata, "coordinator": coordinator, "cluster": cluster, "leader": leader}, nil)
}
