// franz-go (kgo, kadm).
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"kconf/kit"
)

func timeout(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	time.AfterFunc(d+time.Second, cancel) // the deadline is what ends it
	return ctx
}

// versions are those of the release in $KAFKA, or all.
func versions() *kversion.Versions {
	if release := os.Getenv("KAFKA"); release != "" {
		return kversion.FromString("v" + release)
	}
	return kversion.Stable()
}

// speaks says whether the protocol of that release has a version of an API.
func speaks(key kmsg.Key, version int16) bool {
	newest, ok := versions().LookupMaxKeyVersion(key.Int16())
	return ok && newest >= version
}

func need(key kmsg.Key, version int16) {
	if !speaks(key, version) {
		panic(kit.Skip(fmt.Sprintf("the protocol of that release has no version %d of %s", version, key.Name())))
	}
}

func client(opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(kit.Bootstrap()...), kgo.ClientID(kit.Client()), kgo.FetchMaxWait(200 * time.Millisecond), kgo.MaxVersions(versions()),
		kgo.RecordPartitioner(kgo.ManualPartitioner())}, opts...)...)
	must(err)
	return cl
}

var adm = kadm.NewClient(client())

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func assert(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf(format, args...))
	}
}

func makeTopic(check string, parts int32) string {
	_, err := adm.CreateTopic(timeout(90*time.Second), parts, 1, nil, kit.Name(check))
	must(err)
	// until the broker leads it: before, acks=0 is lost and a retry without idempotence may reorder
	assert(kit.Until(100*time.Second, func() bool {
		l, err := adm.ListEndOffsets(timeout(90*time.Second), kit.Name(check))
		return err == nil && l.Error() == nil && len(l[kit.Name(check)]) == int(parts)
	}), "the broker does not lead the topic")
	return kit.Name(check)
}

func produce(topic string, parts, from, to int, opts ...kgo.Opt) {
	cl := client(opts...)
	defer cl.Close()
	var rs []*kgo.Record
	for i := from; i < to; i++ {
		rs = append(rs, &kgo.Record{Topic: topic, Partition: int32(i % parts), Key: []byte(kit.Key(i)), Value: []byte(kit.Value(i))})
	}
	must(cl.ProduceSync(timeout(90*time.Second), rs...).FirstErr())
}

// readAll reads n records from the start of all partitions, and whatever more there is in the next 200 ms.
func readAll(topic string, parts, n int, opts ...kgo.Opt) [][]*kgo.Record {
	at := map[int32]kgo.Offset{}
	for p := range parts {
		at[int32(p)] = kgo.NewOffset().At(0)
	}
	cl := client(append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: at}))...)
	defer cl.Close()
	got, count := make([][]*kgo.Record, parts), 0
	take := func(d time.Duration) bool {
		fs := cl.PollFetches(timeout(d))
		fs.EachRecord(func(r *kgo.Record) { got[r.Partition] = append(got[r.Partition], r); count++ })
		return fs.NumRecords() > 0
	}
	for end := time.Now().Add(80 * time.Second); count < n && time.Now().Before(end); {
		take(time.Second)
	}
	for take(200 * time.Millisecond) {
	}
	return got
}

func values(got [][]*kgo.Record) [][]string {
	out := make([][]string, len(got))
	for p, rs := range got {
		for _, r := range rs {
			out[p] = append(out[p], string(r.Value))
		}
	}
	return out
}

func roundTrip(check string, opts ...kgo.Opt) kit.Check {
	return func() (string, error) {
		topic := makeTopic(check, 3)
		produce(topic, 3, 0, kit.N(), opts...)
		return fmt.Sprintf("%d records in 3 partitions", kit.N()), kit.Compare(values(readAll(topic, 3, kit.N())), kit.N())
	}
}

func metadata() (string, error) {
	m, err := adm.BrokerMetadata(timeout(90 * time.Second))
	must(err)
	seen := ""
	for _, b := range m.Brokers {
		must(kit.Allowed(b.Host, b.Port))
		seen += fmt.Sprintf("%s:%d ", b.Host, b.Port)
	}
	v, err := adm.ApiVersions(timeout(90 * time.Second))
	must(err)
	n := 0
	for _, b := range v {
		b.EachKeySorted(func(_, _, _ int16) { n++ })
	}
	return fmt.Sprintf("%scluster %s, %d APIs", seen, m.Cluster, n), nil
}

func coordinator() (string, error) {
	seen := ""
	for what, rs := range map[string]kadm.FindCoordinatorResponses{
		"group": adm.FindGroupCoordinators(timeout(90*time.Second), kit.Name("g1"), kit.Name("g2")),
		"txn":   adm.FindTxnCoordinators(timeout(90*time.Second), kit.Name("t1"), kit.Name("t2")),
	} {
		for _, r := range rs {
			must(r.Err)
			must(kit.Allowed(r.Host, r.Port))
			seen = fmt.Sprintf("%s %s %s:%d", seen, what, r.Host, r.Port)
		}
	}
	return seen, nil
}

func create() (string, error) {
	topic := makeTopic("create", 3)
	ts, err := adm.ListTopics(timeout(90*time.Second), topic)
	must(err)
	assert(len(ts[topic].Partitions) == 3, "%d partitions", len(ts[topic].Partitions))
	_, err = adm.CreateTopic(timeout(90*time.Second), 3, 1, nil, topic)
	assert(err == kerr.TopicAlreadyExists, "again: %v", err)
	return "3 partitions; again: TOPIC_ALREADY_EXISTS", nil
}

func headers() (string, error) {
	topic, now := makeTopic("headers", 1), time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	cl := client()
	defer cl.Close()
	hs := []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte("2")}, {Key: "null"}, {Key: "empty", Value: []byte{}}}
	must(cl.ProduceSync(timeout(90*time.Second),
		&kgo.Record{Topic: topic, Value: []byte("nullkey"), Headers: hs, Timestamp: now},
		&kgo.Record{Topic: topic, Key: []byte("nullvalue"), Timestamp: now.Add(time.Millisecond)},
		&kgo.Record{Topic: topic, Key: []byte{}, Value: []byte{}, Timestamp: now.Add(2 * time.Millisecond)}).FirstErr())
	rs := readAll(topic, 1, 3)[0]
	assert(len(rs) == 3, "%d records", len(rs))
	assert(rs[0].Key == nil && string(rs[0].Value) == "nullkey", "null key")
	h := rs[0].Headers
	assert(len(h) == 4 && string(h[0].Value) == "1" && string(h[1].Value) == "2" && h[2].Value == nil && h[3].Value != nil && len(h[3].Value) == 0, "headers %v", h)
	assert(rs[1].Value == nil && string(rs[1].Key) == "nullvalue", "null value")
	assert(rs[2].Key != nil && rs[2].Value != nil && len(rs[2].Key)+len(rs[2].Value) == 0, "empty key and value")
	for i, r := range rs {
		assert(r.Timestamp.Equal(now.Add(time.Duration(i)*time.Millisecond)), "timestamp %v", r.Timestamp)
	}
	return "null and empty keys and values, 4 headers, timestamps", nil
}

func large() (string, error) {
	topic, big := makeTopic("large", 1), make([]byte, 900_000)
	rand.Read(big)
	cl := client()
	defer cl.Close()
	must(cl.ProduceSync(timeout(90*time.Second), &kgo.Record{Topic: topic, Value: big}).FirstErr())
	assert(bytes.Equal(readAll(topic, 1, 1)[0][0].Value, big), "value differs")
	return "900000 bytes", nil
}

func seek() (string, error) {
	topic := makeTopic("seek", 1)
	produce(topic, 1, 0, 100)
	cl := client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}))
	defer cl.Close()
	first := func(d time.Duration) int64 {
		for end := time.Now().Add(d); time.Now().Before(end); {
			if rs := cl.PollRecords(timeout(200*time.Millisecond), 10).Records(); len(rs) > 0 {
				return rs[0].Offset
			}
		}
		return -1
	}
	assert(first(60*time.Second) == 0, "first record is not 0")
	p := map[string][]int32{topic: {0}}
	cl.PauseFetchPartitions(p)
	assert(first(600*time.Millisecond) == -1, "records while paused")
	cl.ResumeFetchPartitions(p)
	cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 50}}})
	o := first(60 * time.Second)
	assert(o == 50, "seek to 50: %d", o)
	return "pause, resume, seek to 50", nil
}

func offsets() (string, error) {
	topic, t := makeTopic("offsets", 1), time.Now().Add(-time.Minute)
	cl := client()
	defer cl.Close()
	for i := range 10 {
		must(cl.ProduceSync(timeout(90*time.Second), &kgo.Record{Topic: topic, Value: []byte("x"), Timestamp: t.Add(time.Duration(i) * time.Second)}).FirstErr())
	}
	want := func(l kadm.ListedOffsets, err error, want int64) {
		must(err)
		o, _ := l.Lookup(topic, 0)
		assert(o.Err == nil && o.Offset == want, "offset %d (%v), not %d", o.Offset, o.Err, want)
	}
	l, err := adm.ListOffsetsAfterMilli(timeout(90*time.Second), t.UnixMilli()+4500, topic)
	want(l, err, 5)
	l, err = adm.ListStartOffsets(timeout(90*time.Second), topic)
	want(l, err, 0)
	l, err = adm.ListEndOffsets(timeout(90*time.Second), topic)
	want(l, err, 10)
	if !speaks(kmsg.ListOffsets, 7) {
		return "by timestamp, earliest, latest", nil
	}
	l, err = adm.ListMaxTimestampOffsets(timeout(90*time.Second), topic)
	want(l, err, 9)
	return "by timestamp, earliest, latest, max timestamp", nil
}

// member polls in the background until stop, which commits.
type member struct {
	cl    *kgo.Client
	keys  chan string
	owned chan []int32 // on every change
	done  chan struct{}
	quit  context.CancelFunc
}

func newMember(topic, group string, opts ...kgo.Opt) *member {
	m := &member{keys: make(chan string, 10000), owned: make(chan []int32, 100), done: make(chan struct{})}
	own := map[int32]bool{}
	change := func(set bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, ps map[string][]int32) {
			for _, p := range ps[topic] {
				if set {
					own[p] = true
				} else {
					delete(own, p)
				}
			}
			var list []int32
			for p := range own {
				list = append(list, p)
			}
			sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
			m.owned <- list
		}
	}
	m.cl = client(append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)))...)
	ctx, quit := context.WithCancel(context.Background())
	m.quit = quit
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			m.cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { m.keys <- string(r.Key) })
		}
	}()
	return m
}

func (m *member) stop(commit bool) {
	m.quit()
	<-m.done
	if commit {
		must(m.cl.CommitUncommittedOffsets(timeout(90 * time.Second)))
	}
	m.cl.Close()
}

// drain collects keys and assignments of members until cond.
type state struct {
	keys  map[string]int
	owned [][]int32
	moves []int // changes of each member's assignment
}

func drain(st *state, cond func() bool, ms ...*member) {
	if st.keys == nil {
		st.keys = map[string]int{}
	}
	for len(st.owned) < len(ms) {
		st.owned, st.moves = append(st.owned, nil), append(st.moves, 0)
	}
	ok := kit.Until(100*time.Second, func() bool {
		for i, m := range ms {
			for len(m.keys) > 0 {
				st.keys[<-m.keys]++
			}
			for len(m.owned) > 0 {
				st.owned[i] = <-m.owned
				st.moves[i]++
			}
		}
		return cond()
	})
	assert(ok, "not reached in 25 s: assignments %v, %d records", st.owned, len(st.keys))
}

func group(check string, opts ...kgo.Opt) kit.Check {
	return func() (string, error) {
		if check == "group848" {
			need(kmsg.ConsumerGroupHeartbeat, 0)
		}
		topic, g := makeTopic(check, 4), kit.Name(check)
		produce(topic, 4, 0, kit.N())
		a, b := newMember(topic, g, opts...), newMember(topic, g, opts...)
		var st state
		drain(&st, func() bool { return len(st.owned[0]) == 2 && len(st.owned[1]) == 2 && len(st.keys) == kit.N() }, a, b)
		time.Sleep(500 * time.Millisecond) // a member that got a partition late reads it again, from the start
		members := 0
		if ds, err := adm.DescribeGroups(timeout(90*time.Second), g); err == nil && check == "group" {
			members = len(ds[g].Members)
			must(kit.Allowed(ds[g].Coordinator.Host, ds[g].Coordinator.Port))
		} else {
			ds, err := adm.DescribeConsumerGroups(timeout(90*time.Second), g)
			must(err)
			members = len(ds[g].Members)
		}
		assert(members == 2, "%d members", members)
		a.stop(true)
		b.stop(true)
		produce(topic, 4, kit.N(), kit.N()+100)
		committed, err := adm.FetchOffsets(timeout(90*time.Second), g)
		must(err)
		ends, err := adm.ListEndOffsets(timeout(90*time.Second), topic)
		must(err)
		lag := int64(0)
		ends.Each(func(o kadm.ListedOffset) { c, _ := committed.Lookup(topic, o.Partition); lag += o.Offset - c.At })
		assert(lag == 100, "lag %d", lag)
		c := newMember(topic, g, opts...)
		var after state
		drain(&after, func() bool { return len(after.keys) >= 100 && len(after.owned[0]) == 4 }, c)
		time.Sleep(300 * time.Millisecond)
		c.stop(true)
		assert(len(after.keys) == 100 && len(c.keys) == 0, "after the restart: %d records", len(after.keys)+len(c.keys))
		return fmt.Sprintf("2 members, %d records, lag 100, restart read 100", kit.N()), nil
	}
}

func static() (string, error) {
	need(kmsg.JoinGroup, 5)
	topic, g := makeTopic("static", 4), kit.Name("static")
	produce(topic, 4, 0, 40)
	one, two := kgo.InstanceID("one"), kgo.InstanceID("two")
	a, b := newMember(topic, g, one), newMember(topic, g, two)
	var st state
	drain(&st, func() bool { return len(st.owned[0]) == 2 && len(st.owned[1]) == 2 }, a, b)
	before, moves := fmt.Sprint(st.owned[0]), st.moves[1]
	a.stop(false)
	a = newMember(topic, g, one)
	st.owned[0] = nil
	drain(&st, func() bool { return len(st.owned[0]) == 2 }, a, b)
	same := fmt.Sprint(st.owned[0]) == before && st.moves[1] == moves
	ds, err := adm.DescribeGroups(timeout(90*time.Second), g)
	must(err)
	ids := map[string]bool{}
	for _, m := range ds[g].Members {
		ids[*m.InstanceID] = true
	}
	a.stop(false)
	b.stop(false)
	assert(len(ids) == 2 && ids["one"] && ids["two"], "instance ids %v", ids)
	assert(same, "the restarted member got %v, had %s; the other moved %d times", st.owned[0], before, st.moves[1]-moves)
	return "restart kept the partitions, without a rebalance", nil
}

func txn() (string, error) {
	topic, g := makeTopic("txn", 1), kit.Name("txn")
	cl := client(kgo.TransactionalID(g))
	defer cl.Close()
	for t, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		must(cl.BeginTransaction())
		for range 5 {
			must(cl.ProduceSync(timeout(90*time.Second), &kgo.Record{Topic: topic, Value: []byte(fmt.Sprintf("t%d", t))}).FirstErr())
		}
		must(cl.EndTransaction(timeout(90*time.Second), end))
	}
	committed, all := readAll(topic, 1, 10, kgo.FetchIsolationLevel(kgo.ReadCommitted()))[0], readAll(topic, 1, 15)[0]
	assert(len(committed) == 10 && len(all) == 15, "read_committed %d, read_uncommitted %d", len(committed), len(all))
	for _, r := range committed {
		assert(string(r.Value) != "t1", "an aborted record")
	}
	// consume, transform, produce
	s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(kit.Bootstrap()...), kgo.MaxVersions(versions()), kgo.ClientID(kit.Client()), kgo.TransactionalID(g+"-eos"), kgo.ConsumerGroup(g), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets())
	must(err)
	defer s.Close()
	var fs kgo.Fetches
	assert(kit.Until(100*time.Second, func() bool { fs = s.PollFetches(timeout(time.Second)); return fs.NumRecords() > 0 }), "the session read nothing")
	must(s.Begin())
	fs.EachRecord(func(r *kgo.Record) {
		s.Produce(context.Background(), &kgo.Record{Topic: topic, Value: append([]byte("eos-"), r.Value...)}, nil)
	})
	ok, err := s.End(timeout(90*time.Second), kgo.TryCommit)
	must(err)
	assert(ok, "the session did not commit")
	assert(kit.Until(100*time.Second, func() bool { // the marker reaches the group's coordinator later
		os, err := adm.FetchOffsets(timeout(90*time.Second), g)
		must(err)
		o, there := os.Lookup(topic, 0)
		return there && o.At > 0
	}), "no offset committed in the transaction")
	return "2 commits, 1 abort, offsets in a transaction", nil
}

func share() (string, error) {
	need(kmsg.ShareFetch, 1)
	cl, ctx, enabled := client(), timeout(90*time.Second), false
	defer cl.Close()
	v, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, cl)
	must(err)
	for _, f := range v.FinalizedFeatures {
		enabled = enabled || f.Name == "share.version" && f.MaxVersionLevel >= 1
	}
	if !enabled {
		return "", kit.Skip("share.version is not enabled on the cluster")
	}
	topic, g := makeTopic("share", 3), kit.Name("share")
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r, c := kmsg.NewIncrementalAlterConfigsRequestResource(), kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = "share.auto.offset.reset", kadm.StringPtr("earliest")
	r.ResourceType, r.ResourceName, r.Configs = kmsg.ConfigResourceTypeGroupConfig, g, append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	_, err = req.RequestWith(ctx, cl)
	must(err)
	produce(topic, 3, 0, kit.N())
	seen := map[string]bool{}
	a, b := client(kgo.ShareGroup(g), kgo.ConsumeTopics(topic)), client(kgo.ShareGroup(g), kgo.ConsumeTopics(topic))
	defer a.Close()
	defer b.Close()
	for ctx.Err() == nil && len(seen) < kit.N() {
		for _, m := range []*kgo.Client{a, b} {
			m.PollFetches(timeout(300 * time.Millisecond)).EachRecord(func(r *kgo.Record) { seen[string(r.Key)] = true })
		}
	}
	assert(len(seen) == kit.N(), "%d records", len(seen))
	return fmt.Sprintf("%d records, 2 share consumers", len(seen)), nil
}

func groups() (string, error) {
	topic, g, ctx := makeTopic("groups", 1), kit.Name("groups"), timeout(90*time.Second)
	os := kadm.Offsets{}
	os.Add(kadm.Offset{Topic: topic, Partition: 0, At: 4, LeaderEpoch: -1, Metadata: "meta"})
	must(adm.CommitAllOffsets(ctx, g, os))
	got, err := adm.FetchOffsets(ctx, g)
	must(err)
	o, _ := got.Lookup(topic, 0)
	assert(o.At == 4 && o.Metadata == "meta", "offset %v", o)
	ls, err := adm.ListGroups(ctx)
	must(err)
	_, listed := ls[g]
	assert(listed, "not listed")
	ds, err := adm.DescribeGroups(ctx, g)
	must(err)
	must(kit.Allowed(ds[g].Coordinator.Host, ds[g].Coordinator.Port))
	lags, err := adm.Lag(ctx, g)
	must(err)
	lag := lags[g]
	must(lag.Error())
	_, err = adm.DeleteGroup(ctx, g)
	must(err)
	ls, err = adm.ListGroups(ctx)
	must(err)
	_, listed = ls[g]
	assert(!listed, "still listed")
	return "commit, list, describe, lag, delete", nil
}

func configs() (string, error) {
	topic, ctx := makeTopic("configs", 1), timeout(90*time.Second)
	alter := adm.AlterTopicConfigs
	if !speaks(kmsg.IncrementalAlterConfigs, 0) {
		alter = adm.AlterTopicConfigsState
	}
	_, err := alter(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("12345678")}}, topic)
	must(err)
	ok := kit.Until(100*time.Second, func() bool {
		rs, err := adm.DescribeTopicConfigs(ctx, topic)
		must(err)
		for _, c := range rs[0].Configs {
			if c.Key == "retention.ms" && c.MaybeValue() == "12345678" {
				return true
			}
		}
		return false
	})
	assert(ok, "retention.ms is not set")
	bs, err := adm.ListBrokers(ctx)
	must(err)
	rs, err := adm.DescribeBrokerConfigs(ctx, bs[0].NodeID)
	must(err)
	return fmt.Sprintf("topic retention.ms, %d broker configs", len(rs[0].Configs)), nil
}

func partitionCount(topic string) int {
	ts, err := adm.ListTopics(timeout(90*time.Second), topic)
	must(err)
	return len(ts[topic].Partitions)
}

func partitions() (string, error) {
	topic := makeTopic("partitions", 1)
	rs, err := adm.UpdatePartitions(timeout(90*time.Second), 4, topic)
	must(err)
	must(rs[topic].Err)
	assert(kit.Until(100*time.Second, func() bool { return partitionCount(topic) == 4 }), "not 4 partitions")
	return "1 to 4", nil
}

func delrecords() (string, error) {
	topic := makeTopic("delrecords", 1)
	produce(topic, 1, 0, 10)
	os := kadm.Offsets{}
	os.AddOffset(topic, 0, 5, -1)
	_, err := adm.DeleteRecords(timeout(90*time.Second), os)
	must(err)
	l, err := adm.ListStartOffsets(timeout(90*time.Second), topic)
	must(err)
	o, _ := l.Lookup(topic, 0)
	assert(o.Offset == 5, "earliest is %d", o.Offset)
	return "first 5 of 10", nil
}

func deltopic() (string, error) {
	topic := makeTopic("deltopic", 1)
	_, err := adm.DeleteTopic(timeout(90*time.Second), topic)
	must(err)
	assert(kit.Until(100*time.Second, func() bool {
		ts, err := adm.ListTopics(timeout(90 * time.Second))
		must(err)
		return !ts.Has(topic)
	}), "still listed")
	return "", nil
}

func many() (string, error) {
	topic := makeTopic("many", 200)
	assert(kit.Until(100*time.Second, func() bool { return partitionCount(topic) == 200 }), "not 200 partitions")
	produce(topic, 200, 0, 200)
	return "200 records in 200 partitions", kit.Compare(values(readAll(topic, 200, 200)), 200)
}

func leader() (string, error) {
	topic := makeTopic("leader", 1)
	p, c := client(), client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().At(0)}}))
	defer p.Close()
	defer c.Close()
	return kit.Leader(func(i int) error {
		return p.ProduceSync(timeout(90*time.Second), &kgo.Record{Topic: topic, Value: []byte(kit.Value(i))}).FirstErr()
	}, func(d time.Duration) (got []string) {
		c.PollFetches(timeout(d)).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
		return got
	})
}

// gap: kgo tells no position, so it lingers for the proxy to note the fetch offset.
func gap(c kit.GapCase) (got []kit.GapRecord, pos int64, err error) {
	cl := client(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{c.Topic: {0: kgo.NewOffset().At(0)}}))
	defer cl.Close()
	for end := time.Now().Add(8 * time.Second); len(got) < len(c.Records) && time.Now().Before(end) && err == nil; {
		fs := cl.PollFetches(timeout(200 * time.Millisecond))
		fs.EachRecord(func(r *kgo.Record) { got = append(got, kit.GapRecord{Offset: r.Offset, Value: string(r.Value)}) })
		fs.EachError(func(_ string, _ int32, e error) {
			if e != context.DeadlineExceeded {
				err = e
			}
		})
	}
	for end := time.Now().Add(700 * time.Millisecond); time.Now().Before(end); {
		cl.PollFetches(timeout(200 * time.Millisecond)).EachRecord(func(r *kgo.Record) { got = append(got, kit.GapRecord{Offset: r.Offset, Value: string(r.Value)}) })
	}
	return got, -1, err
}

func main() {
	kit.Main(map[string]kit.Check{
		"none":       roundTrip("none", kgo.DisableIdempotentWrite(), kgo.ProducerBatchCompression(kgo.NoCompression())),
		"gzip":       roundTrip("gzip", kgo.ProducerBatchCompression(kgo.GzipCompression())),
		"snappy":     roundTrip("snappy", kgo.ProducerBatchCompression(kgo.SnappyCompression())),
		"lz4":        roundTrip("lz4", kgo.ProducerBatchCompression(kgo.Lz4Compression())),
		"zstd":       roundTrip("zstd", kgo.ProducerBatchCompression(kgo.ZstdCompression())),
		"idempotent": roundTrip("idempotent"),
		"acks0":      roundTrip("acks0", kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.NoAck())),
		"acks1":      roundTrip("acks1", kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck())),
		"group848":   group("group848", kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())),
		"metadata":   metadata, "coordinator": coordinator, "create": create, "headers": headers, "large": large, "seek": seek,
		"offsets": offsets, "group": group("group"), "static": static, "txn": txn, "share": share, "groups": groups, "configs": configs,
		"partitions": partitions, "delrecords": delrecords, "deltopic": deltopic, "many": many, "leader": leader,
	}, gap)
}
