package security

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/test/integration/harness"
)

// rightTest is how a row is tested.
type rightTest struct {
	cause func(*rightsWorld) // what needs the right, if that does not happen by itself
	told  func(context.Context, *rightsWorld) (string, error)
	again func(context.Context, *rightsWorld) error // what an operator repeats
	about string                                    // the topic of the message, if it is not rightsTopic
}

func (t rightTest) topic() string {
	if t.about != "" {
		return t.about
	}
	return rightsTopic
}

// rightTests has a test for each row.
func rightTests() map[string]rightTest {
	const late = rightsPrefix + "-late"
	return map[string]rightTest{
		"destination CREATE topic `__mirror_state`":           {}, // firstStart
		"destination READ topic `__mirror_state`":             {told: logged, again: pauseAndResume},
		"destination WRITE topic `__mirror_state`":            {cause: askPause, told: answered, again: pauseAndResume},
		"destination DESCRIBE_CONFIGS topic `__mirror_state`": {cause: restart, told: logged},
		"destination CREATE topic TOPIC":                      {cause: func(w *rightsWorld) { w.addLate(late) }, told: answered, again: addTopic(late), about: late},
		"destination READ topic TOPIC":                        {cause: func(w *rightsWorld) { must(w.t, pauseAndResume(w.ctx(), w)) }, told: described},
		"destination WRITE topic TOPIC":                       {cause: (*rightsWorld).write, told: described},
		"destination ALTER_CONFIGS topic TOPIC":               {cause: (*rightsWorld).alterSource, told: described},
		"destination ALTER topic TOPIC":                       {cause: (*rightsWorld).growSource, told: described},
		"destination DELETE topic TOPIC":                      {cause: (*rightsWorld).trimSource, told: described},
		"destination READ group GROUP":                        {cause: (*rightsWorld).commit, told: described},
		"destination ALTER cluster":                           {cause: (*rightsWorld).addACL, told: described},

		"source READ topic TOPIC":                {cause: (*rightsWorld).write, told: described},
		"source DESCRIBE_CONFIGS topic TOPIC":    {told: described},
		"source DESCRIBE group GROUP":            {told: described},
		"source DESCRIBE cluster":                {told: described},
		"source DESCRIBE topic `__mirror_state`": {told: logged},
	}
}

func restart(w *rightsWorld) {
	w.g.Stop(w.t)
	w.g.Start(w.t)
}

// askPause asks for a pause, and keeps the answer.
func askPause(w *rightsWorld) {
	w.answer = fmt.Sprint(w.pause(w.ctx(), w.client))
}

func (w *rightsWorld) pause(ctx context.Context, client *kgo.Client) error {
	req := mirrormsg.NewPtrPauseMirrorTopicsRequest()
	req.MirrorName, req.Topics = "m", []mirrormsg.MirrorTopic{{TopicName: rightsTopic}}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return answer(resp.ErrorCode, resp.ErrorMessage)
}

func pauseAndResume(ctx context.Context, w *rightsWorld) error {
	if err := w.pause(ctx, w.client); err != nil {
		return err
	}
	req := mirrormsg.NewPtrResumeMirrorTopicsRequest()
	req.MirrorName, req.Topics = "m", []mirrormsg.MirrorTopic{{TopicName: rightsTopic}}
	resp, err := req.RequestWith(ctx, w.client)
	if err != nil {
		return err
	}
	return answer(resp.ErrorCode, resp.ErrorMessage)
}

func answer(code int16, message *string) error {
	if err := kerr.ErrorForCode(code); err != nil {
		if message != nil {
			err = fmt.Errorf("%w: %s", err, *message)
		}
		return err
	}
	return nil
}

// addLate adds another topic, and keeps the answer.
func (w *rightsWorld) addLate(topic string) {
	harness.CreateTopics(w.t, w.source.InternalBootstrap(), harness.Topic{Name: topic, Partitions: 1})
	w.answer = fmt.Sprint(addTopic(topic)(w.ctx(), w))
}

func addTopic(topic string) func(context.Context, *rightsWorld) error {
	return func(ctx context.Context, w *rightsWorld) error {
		mirror, req := "m", mirrormsg.NewPtrAddTopicsToMirrorRequest()
		req.Topics = []mirrormsg.AddTopicsToMirrorRequestTopic{{TopicName: topic, MirrorName: &mirror}}
		resp, err := req.RequestWith(ctx, w.client)
		if err != nil {
			return err
		}
		return answer(resp.ErrorCode, resp.ErrorMessage)
	}
}

// change changes all that there is at the source.
func (w *rightsWorld) change() {
	w.t.Helper()
	for _, change := range []func(*rightsWorld){
		(*rightsWorld).write, (*rightsWorld).growSource, (*rightsWorld).alterSource, (*rightsWorld).trimSource, (*rightsWorld).commit, (*rightsWorld).addACL,
	} {
		change(w)
	}
}

func (w *rightsWorld) write() {
	w.t.Helper()
	for i := range 20 {
		must(w.t, w.producer.ProduceSync(w.ctx(), kgo.StringRecord(fmt.Sprint(i))).FirstErr())
	}
}

func (w *rightsWorld) growSource() {
	w.t.Helper()
	_, err := w.from.CreatePartitions(w.ctx(), 1, rightsTopic)
	must(w.t, err)
}

func (w *rightsWorld) alterSource() {
	w.t.Helper()
	w.changes++
	value := fmt.Sprint(100_000 + w.changes)
	results, err := w.from.AlterTopicConfigs(w.ctx(), []kadm.AlterConfig{{Name: "file.delete.delay.ms", Value: &value}}, rightsTopic)
	for _, r := range results {
		err = errors.Join(err, r.Err)
	}
	must(w.t, err)
}

// trimSource deletes one record more of the first partition.
func (w *rightsWorld) trimSource() {
	w.t.Helper()
	starts, err := w.from.ListStartOffsets(w.ctx(), rightsTopic)
	must(w.t, err)
	start, _ := starts.Lookup(rightsTopic, 0)
	offsets := make(kadm.Offsets)
	offsets.AddOffset(rightsTopic, 0, start.Offset+1, -1)
	results, err := w.from.DeleteRecords(w.ctx(), offsets)
	must(w.t, errors.Join(err, results.Error()))
}

func (w *rightsWorld) commit() {
	w.t.Helper()
	w.changes++
	starts, err := w.from.ListStartOffsets(w.ctx(), rightsTopic)
	must(w.t, err)
	start, _ := starts.Lookup(rightsTopic, 0)
	offsets := make(kadm.Offsets)
	offsets.Add(kadm.Offset{Topic: rightsTopic, Partition: 0, At: start.Offset + 1, LeaderEpoch: -1, Metadata: fmt.Sprint(w.changes)})
	harness.Eventually(w.t, time.Minute, "the group commits", func(ctx context.Context) error { // the first time, there is no coordinator yet
		return w.from.CommitAllOffsets(ctx, rightsGroup, offsets)
	})
}

func (w *rightsWorld) addACL() {
	w.t.Helper()
	w.changes++
	harness.AddACLs(w.t, w.from, kadm.NewACLs().Topics(fmt.Sprintf("%s-%d", rightsPrefix, w.changes)).ResourcePatternType(kadm.ACLPatternLiteral).
		Operations(kadm.OpRead).Allow("User:alice").AllowHosts())
}

// topicState is where the logs start and end, and a setting.
func topicState(ctx context.Context, admin *kadm.Client) (any, error) {
	starts, err := admin.ListStartOffsets(ctx, rightsTopic)
	ends, err2 := admin.ListEndOffsets(ctx, rightsTopic)
	configs, err3 := admin.DescribeTopicConfigs(ctx, rightsTopic)
	if err := errors.Join(err, err2, err3, starts.Error(), ends.Error()); err != nil {
		return nil, err
	}
	var state []string
	for partition := range int32(len(ends[rightsTopic])) {
		start, _ := starts.Lookup(rightsTopic, partition)
		end, _ := ends.Lookup(rightsTopic, partition)
		state = append(state, fmt.Sprintf("%d: %d to %d", partition, start.Offset, end.Offset))
	}
	for _, c := range configs[0].Configs {
		if c.Key == "file.delete.delay.ms" {
			state = append(state, c.MaybeValue())
		}
	}
	return state, nil
}

func groupState(ctx context.Context, admin *kadm.Client) (any, error) {
	offsets, err := admin.FetchOffsets(ctx, rightsGroup)
	if err != nil {
		return nil, err
	}
	o, _ := offsets.Lookup(rightsTopic, 0)
	return o.At, o.Err
}

// aclState are the ACLs of alice.
func aclState(ctx context.Context, admin *kadm.Client) (any, error) {
	results, err := admin.DescribeACLs(ctx, kadm.NewACLs().AnyResource().Operations(kadm.OpAny).ResourcePatternType(kadm.ACLPatternAny).Allow("User:alice").AllowHosts())
	var acls []string
	for _, r := range results {
		err = errors.Join(err, r.Err)
		for _, d := range r.Described {
			acls = append(acls, fmt.Sprint(d.Type, d.Name, d.Operation))
		}
	}
	slices.Sort(acls)
	return acls, err
}
