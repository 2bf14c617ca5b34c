package mirror

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func topicACL(name, principal string) acl {
	return acl{
		resource: kmsg.ACLResourceTypeTopic, name: name, pattern: kmsg.ACLResourcePatternTypeLiteral,
		principal: principal, host: "*", operation: kmsg.ACLOperationRead, permission: kmsg.ACLPermissionTypeAllow,
	}
}

func (w *world) addACLs(client *kgo.Client, acls ...acl) {
	w.t.Helper()
	_, refused, err := createACLs(w.context(), client, acls, map[string]string{})
	require.NoError(w.t, err)
	require.Empty(w.t, refused)
}

func (w *world) removeACLs(client *kgo.Client, acls ...acl) {
	w.t.Helper()
	removed, err := deleteACLs(w.context(), client, acls, map[string]string{})
	require.NoError(w.t, err)
	require.Len(w.t, removed, len(acls))
}

func (w *world) acls() []acl {
	w.t.Helper()
	acls, err := describeACLs(w.context(), w.client)
	require.NoError(w.t, err)
	return acls
}

func (w *world) syncACLs(mirror string) outcome {
	w.t.Helper()
	o := w.m.mirror(mirror).syncACLs(w.context())
	require.NoError(w.t, o.err)
	return o
}

// aclWorld has a mirror m with the topic t, and a client of its source.
func newACLWorld(t *testing.T, config ...string) (*world, *kgo.Client) {
	w := newWorld(t)
	w.createMirror("m", config...)
	w.sourceTopic("t", 1)
	w.add("t")
	return w, w.connect(w.source)
}

func TestACLsFollow(t *testing.T) {
	w, source := newACLWorld(t)
	deny := topicACL("t", "User:bad")
	deny.permission = kmsg.ACLPermissionTypeDeny
	prefixed := topicACL("ord", "User:*")
	prefixed.pattern = kmsg.ACLResourcePatternTypePrefixed
	prefixed.host = "10.0.0.1"
	any := topicACL("*", "User:any")
	cluster := acl{kmsg.ACLResourceTypeCluster, "kafka-cluster", kmsg.ACLResourcePatternTypeLiteral, "User:op", "*", kmsg.ACLOperationDescribe, kmsg.ACLPermissionTypeAllow}
	group := acl{kmsg.ACLResourceTypeGroup, "g", kmsg.ACLResourcePatternTypeLiteral, "User:a", "*", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow}
	both, handmade := topicACL("t", "User:both"), topicACL("t", "User:hand")
	internal := topicACL("__consumer_offsets", "User:a")
	w.addACLs(source, deny, prefixed, any, cluster, group, both, internal)
	w.addACLs(w.client, both, handmade)

	require.Equal(t, 5, w.syncACLs("m").changes)
	require.ElementsMatch(t, []acl{deny, prefixed, any, cluster, group, both, handmade}, w.acls())
	require.Zero(t, w.syncACLs("m").changes)

	// What the source has no more goes, unless somebody else had it: here, before, or by hand. A restart knows.
	w.removeACLs(source, deny, both)
	w.m.Close()
	w.m = w.manager()
	require.Equal(t, 1, w.syncACLs("m").changes)
	require.ElementsMatch(t, []acl{prefixed, any, cluster, group, both, handmade}, w.acls())

	// What somebody removed here comes back.
	w.removeACLs(w.client, group)
	require.Equal(t, 1, w.syncACLs("m").changes)
	require.Contains(t, w.acls(), group)
}

func TestACLsOfTwoMirrors(t *testing.T) {
	w, source := newACLWorld(t)
	second := w.cluster("second-source")
	addr := second.ListenAddrs()[0]
	require.NoError(t, w.m.CreateMirror(w.context(), "n", map[string]*string{"bootstrap.servers": &addr}, false))
	secondSource := w.connect(second)
	w.makeTopic(kadm.NewClient(secondSource), "u", 1)
	_, err := w.m.AddTopics(w.context(), refs("n", "u"))
	require.NoError(t, err)

	shared, mine, theirs := topicACL("s", "User:s"), topicACL("m", "User:m"), topicACL("n", "User:n")
	w.addACLs(source, shared, mine)
	w.addACLs(secondSource, shared, theirs)
	w.syncACLs("m")
	w.syncACLs("n")
	require.ElementsMatch(t, []acl{shared, mine, theirs}, w.acls())
	w.removeACLs(source, shared, mine)
	w.syncACLs("m")
	require.ElementsMatch(t, []acl{shared, theirs}, w.acls(), "the other mirror has it still")
	w.removeACLs(secondSource, shared)
	w.syncACLs("n")
	require.ElementsMatch(t, []acl{theirs}, w.acls(), "the last one removes it")
}

// After a switch the ACLs are the destination's own.
func TestACLsOfStoppedTopicsStay(t *testing.T) {
	w, source := newACLWorld(t)
	w.sourceTopic("u", 1)
	w.add("u")
	stopped, active := topicACL("t", "User:a"), topicACL("u", "User:a")
	w.addACLs(source, stopped, active)
	w.syncACLs("m")
	_, err := w.m.RemoveTopics(w.context(), "m", refs("", "t"))
	require.NoError(t, err)
	w.removeACLs(source, stopped, active)
	w.syncACLs("m")
	require.ElementsMatch(t, []acl{stopped}, w.acls())
	w.addACLs(source, topicACL("t", "User:late"))
	w.syncACLs("m")
	require.ElementsMatch(t, []acl{stopped}, w.acls())

	w.addACLs(source, active)
	w.syncACLs("m")
	_, err = w.m.RemoveTopics(w.context(), "m", refs("", "u"))
	require.NoError(t, err)
	w.removeACLs(source, active)
	require.True(t, w.syncACLs("m").off)
	require.ElementsMatch(t, []acl{stopped, active}, w.acls())
}

func TestACLRules(t *testing.T) {
	topic, group := topicACL("a.b", "User:a"), topicACL("g", "User:a")
	group.resource = kmsg.ACLResourceTypeGroup
	for _, tt := range []struct {
		rules        string
		topic, group bool
	}{
		{"*", true, true}, {"none", false, false}, {"", false, false}, {"topic", true, false}, {"group:g", false, true},
		{"topic:a.b, group:h.*", true, false}, {"topic:a-b", false, false}, {"topic:x, topic", true, false}, {"cluster,*", true, true},
	} {
		rules, err := ParseACLRules(tt.rules)
		require.NoError(t, err)
		require.Equal(t, []bool{tt.topic, tt.group}, []bool{rules.match(topic), rules.match(group)}, tt.rules)
	}
	for _, bad := range []string{"topics", "topic:", "topic:a(", "User:a"} {
		_, err := ParseACLRules(bad)
		require.Error(t, err, bad)
	}
}

// A cluster without an authorizer is skipped, visibly; a refusal is a failure; neither removes anything.
func TestACLsCannotBeRead(t *testing.T) {
	w, source := newACLWorld(t)
	a := topicACL("t", "User:a")
	w.addACLs(source, a)
	w.syncACLs("m")
	code := kerr.SecurityDisabled.Code
	for _, cluster := range []*kfake.Cluster{w.source, w.destination} {
		cluster.ControlKey(int16(kmsg.DescribeACLs), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			if code == 0 {
				return nil, nil, false
			}
			resp := kreq.ResponseKind().(*kmsg.DescribeACLsResponse)
			resp.ErrorCode = code
			return resp, nil, true
		})
	}
	run := w.m.mirror("m")
	run.timed(SyncACLs, run.syncACLs)
	require.Equal(t, map[string]string{"all ACLs": "the source has no authorizer"}, w.m.Skipped("m", SyncACLs))
	code = kerr.ClusterAuthorizationFailed.Code
	run.timed(SyncACLs, run.syncACLs)
	d, err := w.m.Describe(w.context(), "m")
	require.NoError(t, err)
	require.Contains(t, d.Skipped[0].Reason, "CLUSTER_AUTHORIZATION_FAILED")
	code = 0
	run.timed(SyncACLs, run.syncACLs)
	require.Equal(t, []acl{a}, w.acls())
	d, err = w.m.Describe(w.context(), "m")
	require.NoError(t, err)
	require.Empty(t, d.Skipped)
}

// An ACL that the destination refuses is seen, tried again, and never taken for one of ours.
func TestACLsThatTheDestinationRefuses(t *testing.T) {
	w, source := newACLWorld(t)
	bad, good := topicACL("bad", "User:a"), topicACL("good", "User:a")
	w.addACLs(source, bad, good)
	w.destination.ControlKey(int16(kmsg.CreateACLs), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		w.destination.KeepControl()
		req := kreq.(*kmsg.CreateACLsRequest)
		if len(req.Creations) == 1 && req.Creations[0].ResourceName == "good" {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.CreateACLsResponse)
		for range req.Creations {
			r := kmsg.NewCreateACLsResponseResult()
			r.ErrorCode, r.ErrorMessage = kerr.InvalidRequest.Code, kmsg.StringPtr("too many")
			resp.Results = append(resp.Results, r)
		}
		return resp, nil, true
	})
	o := w.syncACLs("m")
	require.Len(t, o.skipped, 2)
	require.Contains(t, fmt.Sprint(o.skipped), "too many")
	rec, _ := w.state.ACLs("m")
	require.Empty(t, rec.Added)
	w.syncACLs("m")
	w.removeACLs(source, bad)
	require.Equal(t, 1, w.syncACLs("m").changes)
	rec, _ = w.state.ACLs("m")
	require.Len(t, rec.Added, 8)
}

// quickACLs answers a cluster's ACL requests from a map: kfake looks through all ACLs for each new one.
func quickACLs(cluster *kfake.Cluster, acls map[acl]bool) (sent *int) {
	sent = new(int)
	cluster.ControlKey(int16(kmsg.DescribeACLs), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := kreq.ResponseKind().(*kmsg.DescribeACLsResponse)
		for a := range acls {
			resp.Resources = append(resp.Resources, kmsg.DescribeACLsResponseResource{
				ResourceType: a.resource, ResourceName: a.name, ResourcePatternType: a.pattern,
				ACLs: []kmsg.DescribeACLsResponseResourceACL{{Principal: a.principal, Host: a.host, Operation: a.operation, PermissionType: a.permission}},
			})
		}
		return resp, nil, true
	})
	cluster.ControlKey(int16(kmsg.CreateACLs), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		*sent++
		resp := kreq.ResponseKind().(*kmsg.CreateACLsResponse)
		for _, c := range kreq.(*kmsg.CreateACLsRequest).Creations {
			acls[acl{c.ResourceType, c.ResourceName, c.ResourcePatternType, c.Principal, c.Host, c.Operation, c.PermissionType}] = true
			resp.Results = append(resp.Results, kmsg.NewCreateACLsResponseResult())
		}
		return resp, nil, true
	})
	cluster.ControlKey(int16(kmsg.DeleteACLs), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		*sent++
		resp := kreq.ResponseKind().(*kmsg.DeleteACLsResponse)
		for _, f := range kreq.(*kmsg.DeleteACLsRequest).Filters {
			delete(acls, acl{f.ResourceType, *f.ResourceName, f.ResourcePatternType, *f.Principal, *f.Host, f.Operation, f.PermissionType})
			resp.Results = append(resp.Results, kmsg.NewDeleteACLsResponseResult())
		}
		return resp, nil, true
	})
	return sent
}

// Only differences are sent, however many there are (G11).
func TestManyACLs(t *testing.T) {
	w, _ := newACLWorld(t)
	const n = 10_000
	there, here := make(map[acl]bool), map[acl]bool{topicACL("by-hand", "User:a"): true}
	for i := range n {
		there[topicACL(fmt.Sprintf("topic-%d", i), "User:a")] = true
	}
	quickACLs(w.source, there)
	sent := quickACLs(w.destination, here)
	for _, want := range []int{n, 0, 0} {
		started, before := time.Now(), *sent
		require.Equal(t, want, w.syncACLs("m").changes)
		t.Logf("%d ACLs, %d new: %v, %d requests", n, want, time.Since(started), *sent-before)
		require.Equal(t, want/aclsAtOnce, *sent-before)
	}
	delete(there, topicACL("topic-7", "User:a"))
	require.Equal(t, 1, w.syncACLs("m").changes)
	require.Len(t, here, n)
	require.NotContains(t, here, topicACL("topic-7", "User:a"))
}

// The gateway's own user may have the name of a user of the source.
func TestACLsOfTheGatewayItself(t *testing.T) {
	w, source := newACLWorld(t)
	w.m.Close()
	w.m = w.managerAs("User:gateway")
	ours, theirs, kept := topicACL("t", "User:gateway"), topicACL("t", "User:other"), topicACL("u", "User:gateway")
	w.addACLs(source, ours, theirs)
	w.addACLs(w.client, kept)
	o := w.syncACLs("m")
	require.Equal(t, 1, o.changes)
	require.Contains(t, o.skipped[ours.String()], "the gateway's own user")
	require.Len(t, o.skipped, 1)
	require.ElementsMatch(t, []acl{theirs, kept}, w.acls())
}
