package security

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
	"github.com/mirrorgate/mirrorgate/test/kafkatest"
)

// stopWithoutRight: a failover that lacks a right says which, and is done as soon as it is there.
func (w *rightsWorld) stopWithoutRight(rights []right) {
	w.t.Helper()
	for _, r := range rights {
		if r.String() != "destination ALTER_CONFIGS topic TOPIC" {
			continue
		}
		w.take(r)
		command := make(chan error, 1)
		go func() { command <- w.failover() }()
		words := strings.ReplaceAll(r.words, "TOPIC", rightsTopic)
		harness.Eventually(w.t, time.Minute, words, func(ctx context.Context) error {
			text, err := described(ctx, w)
			if err == nil && !strings.Contains(text, words) {
				err = errors.New(text)
			}
			return err
		})
		w.grant(r)
		must(w.t, <-command)
	}
	client := w.g.Client(w.t, kgo.SASL(kafkatest.Mechanism(kafkatest.Admin, scram512)), kgo.DefaultProduceTopic(rightsTopic))
	must(w.t, client.ProduceSync(w.ctx(), kgo.StringRecord("written after the failover")).FirstErr())
}

func (w *rightsWorld) failover() error {
	login := w.t.TempDir() + "/admin.properties"
	err := kafkatest.WriteProperties(login, w.destination.ClientProperties(kafkatest.Admin, scram512))
	if err == nil {
		var out string
		if out, err = harness.Run(w.t, "mirrors", "failover", "--bootstrap-server", w.g.Bootstrap(), "--command-config", login, "--mirror", "m", "--all-topics"); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	return err
}

// operatorRights are the rights on the cluster that can be taken away.
var operatorRights = []kadm.ACLOperation{kadm.OpAlter, kadm.OpDescribe, kadm.OpClusterAction}

// operators: each mirror RPC needs the right of the table in docs/security.md, which is asked for as the client's own user.
func operators(w *rightsWorld) {
	requests := mirrorRequests()
	client := w.g.Client(w.t, kgo.SASL(kafkatest.Mechanism("bob", scram512)))
	for _, cells := range table(w.t, "Operators") {
		name, needed := cells[0], cells[2]
		ask, ok := requests[name]
		if delete(requests, name); !ok {
			w.t.Errorf("docs/security.md has a row that is not tested: %s", name)
			continue
		}
		w.t.Run(name, func(t *testing.T) { w.inTest(t).operator(client, ask, needed) })
	}
	for name := range requests {
		w.t.Errorf("docs/security.md has no row of %s", name)
	}
}

func (w *rightsWorld) operator(client *kgo.Client, ask mirrorRequest, needed string) {
	topicToo := strings.Contains(needed, "on the topic")
	answers := func(when string, right func(code int16) bool) {
		w.t.Helper()
		harness.Eventually(w.t, 20*time.Second, when, func(ctx context.Context) error {
			if code := ask(ctx, w.t, client); !right(code) {
				return fmt.Errorf("error %d (%w)", code, kerr.ErrorForCode(code))
			}
			return nil
		})
	}
	refused := func(when string, want *kerr.Error) {
		w.t.Helper()
		answers(when+" it is refused", func(code int16) bool { return code == want.Code })
	}
	allow := func(acls *kadm.ACLBuilder, operations ...kadm.ACLOperation) (takeAway func()) {
		acls = acls.ResourcePatternType(kadm.ACLPatternLiteral).Operations(operations...).Allow("User:bob").AllowHosts()
		harness.AddACLs(w.t, w.to, acls)
		return func() { harness.RemoveACLs(w.t, w.to, acls) }
	}
	refused("without rights", kerr.ClusterAuthorizationFailed)
	cluster := needed[:strings.Index(needed, "on the cluster")]
	var need, other []kadm.ACLOperation
	for _, operation := range operatorRights {
		if strings.Contains(cluster, operation.String()) {
			need = append(need, operation)
		} else if operation != kadm.OpAlter { // which includes DESCRIBE
			other = append(other, operation)
		}
	}
	if len(need) == 0 {
		w.t.Fatalf("docs/security.md: no right in %q", needed)
	}
	short := [][]kadm.ACLOperation{other}
	if len(need) > 1 { // each alone does not do
		short = nil
		for _, operation := range need {
			short = append(short, []kadm.ACLOperation{operation})
		}
	}
	for _, operations := range short {
		takeAway := allow(kadm.NewACLs().Clusters(), operations...)
		refused(fmt.Sprintf("with %v", operations), kerr.ClusterAuthorizationFailed)
		takeAway()
	}
	defer allow(kadm.NewACLs().Clusters(), need...)()
	if topicToo {
		defer allow(kadm.NewACLs().Topics(rightsTopic), kadm.OpRead, kadm.OpWrite, kadm.OpDelete)()
		refused("without ALTER on the topic", kerr.TopicAuthorizationFailed)
		defer allow(kadm.NewACLs().Topics(rightsTopic), kadm.OpAlter)()
	}
	answers("with "+needed+" it is not refused", func(code int16) bool {
		return code != kerr.ClusterAuthorizationFailed.Code && code != kerr.TopicAuthorizationFailed.Code
	})
}

// mirrorRequest asks, and returns the error code of the answer.
type mirrorRequest func(context.Context, *testing.T, *kgo.Client) int16

func mirrorRequests() map[string]mirrorRequest {
	mirror, bootstrap := "m", "127.0.0.1:1"
	topics := []mirrormsg.MirrorTopic{{TopicName: rightsTopic}}
	return map[string]mirrorRequest{
		"CreateMirror": asking(func() kmsg.Request {
			req := mirrormsg.NewPtrCreateMirrorRequest()
			req.MirrorName = &mirror // exists
			req.Config = []mirrormsg.CreateMirrorRequestConfig{{Name: "bootstrap.servers", Value: &bootstrap}}
			return req
		}, func(resp *mirrormsg.CreateMirrorResponse) int16 { return resp.ErrorCode }),
		"AddTopicsToMirror": asking(func() kmsg.Request {
			req, nowhere := mirrormsg.NewPtrAddTopicsToMirrorRequest(), "nowhere"
			req.Topics = []mirrormsg.AddTopicsToMirrorRequestTopic{{TopicName: rightsTopic, MirrorName: &nowhere}}
			return req
		}, func(resp *mirrormsg.AddTopicsToMirrorResponse) int16 { return resp.ErrorCode }),
		"RemoveTopicsFromMirror": asking(func() kmsg.Request {
			req := mirrormsg.NewPtrRemoveTopicsFromMirrorRequest()
			req.MirrorName, req.Topics = mirror, []mirrormsg.RemoveTopicsFromMirrorRequestTopic{{TopicName: rightsTopic}}
			return req
		}, func(resp *mirrormsg.RemoveTopicsFromMirrorResponse) int16 { return resp.ErrorCode }),
		"PauseMirrorTopics": asking(func() kmsg.Request {
			req := mirrormsg.NewPtrPauseMirrorTopicsRequest()
			req.MirrorName, req.Topics = mirror, topics
			return req
		}, func(resp *mirrormsg.PauseMirrorTopicsResponse) int16 { return resp.ErrorCode }),
		"ResumeMirrorTopics": asking(func() kmsg.Request {
			req := mirrormsg.NewPtrResumeMirrorTopicsRequest()
			req.MirrorName, req.Topics = mirror, topics
			return req
		}, func(resp *mirrormsg.ResumeMirrorTopicsResponse) int16 { return resp.ErrorCode }),
		"DeleteMirror": asking(func() kmsg.Request {
			req := mirrormsg.NewPtrDeleteMirrorRequest()
			req.MirrorName = "nowhere"
			return req
		}, func(resp *mirrormsg.DeleteMirrorResponse) int16 { return resp.ErrorCode }),
		"IncrementalAlterConfigs": asking(func() kmsg.Request {
			req := kmsg.NewPtrIncrementalAlterConfigsRequest()
			req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: resourceMirror, ResourceName: mirror}}
			return req
		}, func(resp *kmsg.IncrementalAlterConfigsResponse) int16 { return resp.Resources[0].ErrorCode }),
		"ReadMirrorStates": asking(func() kmsg.Request {
			req := mirrormsg.NewPtrReadMirrorStatesRequest()
			req.MirrorName = mirror
			return req
		}, func(resp *mirrormsg.ReadMirrorStatesResponse) int16 { return resp.ErrorCode }),
		"WriteMirrorStates": asking(func() kmsg.Request {
			req := mirrormsg.NewPtrWriteMirrorStatesRequest()
			req.MirrorName = mirror
			return req
		}, func(resp *mirrormsg.WriteMirrorStatesResponse) int16 { return resp.ErrorCode }),
		"ListMirrors": asking(func() kmsg.Request { return mirrormsg.NewPtrListMirrorsRequest() },
			func(resp *mirrormsg.ListMirrorsResponse) int16 { return resp.ErrorCode }),
		"DescribeMirrors": asking(func() kmsg.Request { return mirrormsg.NewPtrDescribeMirrorsRequest() },
			func(resp *mirrormsg.DescribeMirrorsResponse) int16 { return resp.Mirrors[0].ErrorCode }),
		"LastMirroredOffsets": asking(func() kmsg.Request {
			req := mirrormsg.NewPtrLastMirroredOffsetsRequest()
			req.MirrorName = mirror
			return req
		}, func(resp *mirrormsg.LastMirroredOffsetsResponse) int16 { return resp.ErrorCode }),
		"DescribeConfigs": asking(func() kmsg.Request {
			req := kmsg.NewPtrDescribeConfigsRequest()
			req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: resourceMirror, ResourceName: mirror}}
			return req
		}, func(resp *kmsg.DescribeConfigsResponse) int16 { return resp.Resources[0].ErrorCode }),
		"FindCoordinator": asking(func() kmsg.Request {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorType, req.CoordinatorKeys = 3, []string{mirror}
			return req
		}, func(resp *kmsg.FindCoordinatorResponse) int16 { return resp.Coordinators[0].ErrorCode }),
	}
}

// resourceMirror is the resource type of mirrors in requests about configurations.
const resourceMirror = 64

// asking makes a mirrorRequest of a request and of where the error code is in its answer.
func asking[R kmsg.Response](request func() kmsg.Request, code func(R) int16) mirrorRequest {
	return func(ctx context.Context, t *testing.T, client *kgo.Client) int16 {
		t.Helper()
		// Straight at the bootstrap listener: kgo would look for a coordinator, or for a controller, and go by its rights there.
		req := request()
		resp, err := client.SeedBrokers()[0].Request(ctx, req)
		must(t, err)
		return code(resp.(R))
	}
}
