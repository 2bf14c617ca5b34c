package handlers

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/handlers/layout"
	"github.com/mirrorgate/mirrorgate/handlers/layout/layouttest"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// message is what kmsg's requests and responses have in common.
type message interface {
	SetVersion(int16)
	ReadFrom([]byte) error
	AppendTo([]byte) []byte
}

// TestNothingIsLostInKmsg: the messages that are decoded and encoded again where a request is split keep every byte,
// fields of versions to come included.
func TestNothingIsLostInKmsg(t *testing.T) {
	for _, key := range []int16{0, 20, 21, 24, 32, 33, 37, 44} {
		for _, c := range []struct {
			m    *layout.Message
			make func() message
		}{
			{layout.Request(key), func() message { return kmsg.RequestForKey(key) }},
			{layout.Response(key), func() message { return kmsg.ResponseForKey(key) }},
		} {
			for v := c.m.Versions.From; v < c.m.Versions.Until; v++ {
				t.Run(fmt.Sprintf("%s/v%d", c.m.Name, v), func(t *testing.T) {
					g := &layouttest.Generator{Rand: newRand(key, v)}
					for range 30 {
						body := g.Append(nil, c.m, v)
						msg := c.make()
						msg.SetVersion(v)
						require.NoError(t, msg.ReadFrom(bytes.Clone(body)))
						require.Equal(t, body, msg.AppendTo(nil))
					}
				})
			}
		}
	}
}

// changing makes a request that changes each of the topics, and says how topics come back.
type changing struct {
	key      int16
	versions [2]int16
	request  func(v int16, topics []string) kmsg.Request
	// answer is what the destination answers for the topics that it gets.
	answer func(v int16, topics []string) kmsg.Response
	// seen are the topics in a request.
	seen func(req kmsg.Request) []string
	// message is the first version with a message, -1 for none.
	message int16
}

func changes() []changing {
	return []changing{
		{
			key: 20, versions: [2]int16{0, 6}, message: 5,
			request: func(v int16, topics []string) kmsg.Request {
				req := kmsg.NewPtrDeleteTopicsRequest()
				if v < 6 {
					req.TopicNames = topics
				}
				for _, name := range topics {
					req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &name, UnknownTags: someTags()})
				}
				return req
			},
			answer: func(_ int16, topics []string) kmsg.Response {
				resp := kmsg.NewPtrDeleteTopicsResponse()
				for _, name := range topics {
					resp.Topics = append(resp.Topics, kmsg.DeleteTopicsResponseTopic{Topic: &name, UnknownTags: someTags()})
				}
				return resp
			},
			seen: func(req kmsg.Request) []string {
				names := req.(*kmsg.DeleteTopicsRequest).TopicNames
				for _, topic := range req.(*kmsg.DeleteTopicsRequest).Topics {
					names = append(names, *topic.Topic)
				}
				return names
			},
		},
		{
			key: 21, versions: [2]int16{0, 2}, message: -1,
			request: func(_ int16, topics []string) kmsg.Request {
				req := kmsg.NewPtrDeleteRecordsRequest()
				for _, name := range topics {
					req.Topics = append(req.Topics, kmsg.DeleteRecordsRequestTopic{
						Topic: name, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 3}}, UnknownTags: someTags(),
					})
				}
				return req
			},
			answer: func(_ int16, topics []string) kmsg.Response {
				resp := kmsg.NewPtrDeleteRecordsResponse()
				for _, name := range topics {
					resp.Topics = append(resp.Topics, kmsg.DeleteRecordsResponseTopic{
						Topic: name, Partitions: []kmsg.DeleteRecordsResponseTopicPartition{{Partition: 3}}, UnknownTags: someTags(),
					})
				}
				return resp
			},
		},
		{
			key: 24, versions: [2]int16{0, 3}, message: -1,
			request: func(_ int16, topics []string) kmsg.Request {
				req := kmsg.NewPtrAddPartitionsToTxnRequest()
				for _, name := range topics {
					req.Topics = append(req.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: name, Partitions: []int32{3}})
				}
				return req
			},
			answer: func(_ int16, topics []string) kmsg.Response {
				resp := kmsg.NewPtrAddPartitionsToTxnResponse()
				for _, name := range topics {
					resp.Topics = append(resp.Topics, kmsg.AddPartitionsToTxnResponseTopic{
						Topic: name, Partitions: []kmsg.AddPartitionsToTxnResponseTopicPartition{{Partition: 3}},
					})
				}
				return resp
			},
		},
		{
			key: 24, versions: [2]int16{4, 5}, message: -1,
			request: func(_ int16, topics []string) kmsg.Request {
				req := kmsg.NewPtrAddPartitionsToTxnRequest()
				txn := kmsg.AddPartitionsToTxnRequestTransaction{TransactionalID: "t"}
				for _, name := range topics {
					txn.Topics = append(txn.Topics, kmsg.AddPartitionsToTxnRequestTransactionTopic{Topic: name, Partitions: []int32{3}})
				}
				req.Transactions = append(req.Transactions, txn)
				return req
			},
			answer: func(_ int16, topics []string) kmsg.Response {
				resp := kmsg.NewPtrAddPartitionsToTxnResponse()
				txn := kmsg.AddPartitionsToTxnResponseTransaction{TransactionalID: "t"}
				for _, name := range topics {
					txn.Topics = append(txn.Topics, kmsg.AddPartitionsToTxnResponseTransactionTopic{
						Topic: name, Partitions: []kmsg.AddPartitionsToTxnResponseTransactionTopicPartition{{Partition: 3}},
					})
				}
				resp.Transactions = append(resp.Transactions, txn)
				return resp
			},
		},
		{
			key: 37, versions: [2]int16{0, 3}, message: 0,
			request: func(_ int16, topics []string) kmsg.Request {
				req := kmsg.NewPtrCreatePartitionsRequest()
				for _, name := range topics {
					req.Topics = append(req.Topics, kmsg.CreatePartitionsRequestTopic{Topic: name, Count: 9, UnknownTags: someTags()})
				}
				return req
			},
			answer: func(_ int16, topics []string) kmsg.Response {
				resp := kmsg.NewPtrCreatePartitionsResponse()
				for _, name := range topics {
					resp.Topics = append(resp.Topics, kmsg.CreatePartitionsResponseTopic{Topic: name, UnknownTags: someTags()})
				}
				return resp
			},
		},
		{
			key: 33, versions: [2]int16{0, 2}, message: 0,
			request: func(_ int16, topics []string) kmsg.Request {
				req := kmsg.NewPtrAlterConfigsRequest()
				for _, name := range topics {
					req.Resources = append(req.Resources, kmsg.AlterConfigsRequestResource{
						ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: name, UnknownTags: someTags(),
					})
				}
				return req
			},
			answer: func(_ int16, topics []string) kmsg.Response {
				resp := kmsg.NewPtrAlterConfigsResponse()
				for _, name := range topics {
					resp.Resources = append(resp.Resources, kmsg.AlterConfigsResponseResource{ResourceName: name, UnknownTags: someTags()})
				}
				return resp
			},
		},
		{
			key: 44, versions: [2]int16{0, 1}, message: 0,
			request: func(_ int16, topics []string) kmsg.Request {
				req := kmsg.NewPtrIncrementalAlterConfigsRequest()
				for _, name := range topics {
					req.Resources = append(req.Resources, kmsg.IncrementalAlterConfigsRequestResource{
						ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: name, UnknownTags: someTags(),
						Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms"}, {Name: "compression.type"}},
					})
				}
				return req
			},
			answer: func(_ int16, topics []string) kmsg.Response {
				resp := kmsg.NewPtrIncrementalAlterConfigsResponse()
				for _, name := range topics {
					resp.Resources = append(resp.Resources, kmsg.IncrementalAlterConfigsResponseResource{ResourceName: name, UnknownTags: someTags()})
				}
				return resp
			},
		},
		{
			key: 0, versions: [2]int16{0, 12}, message: 8,
			request: func(v int16, topics []string) kmsg.Request {
				req := kmsg.NewPtrProduceRequest()
				req.Acks = -1
				for _, name := range topics {
					req.Topics = append(req.Topics, kmsg.ProduceRequestTopic{
						Topic: name, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 3, Records: []byte("records of " + name)}},
						UnknownTags: someTags(),
					})
				}
				return req
			},
			answer: func(v int16, topics []string) kmsg.Response {
				resp := kmsg.NewPtrProduceResponse()
				for _, name := range topics {
					resp.Topics = append(resp.Topics, kmsg.ProduceResponseTopic{
						Topic: name, Partitions: []kmsg.ProduceResponseTopicPartition{{Partition: 3}}, UnknownTags: someTags(),
					})
				}
				if v < 10 {
					return resp
				}
				resp.Brokers = []kmsg.ProduceResponseBroker{{NodeID: 5, Host: "upstream-5", Port: 30_005}}
				return resp
			},
		},
	}
}

func someTags() (tags kmsg.Tags) { tags.Set(100, []byte("to come")); return tags }

// topicsIn finds the topics of any of the messages above, with the error codes and messages of a response.
func topicsIn(v reflect.Value, code map[string]int16, message map[string]string) (names []string) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return topicsIn(v.Elem(), code, message)
		}
	case reflect.Slice:
		for i := range v.Len() {
			if v.Index(i).Kind() == reflect.Struct {
				names = append(names, topicsIn(v.Index(i), code, message)...)
			}
		}
	case reflect.Struct:
		for _, field := range []string{"Topic", "ResourceName"} {
			f := v.FieldByName(field)
			if !f.IsValid() {
				continue
			}
			name := fmt.Sprint(reflect.Indirect(f))
			at := v
			if p := v.FieldByName("Partitions"); p.IsValid() && p.Len() > 0 {
				at = p.Index(0)
			}
			if at.Kind() == reflect.Struct {
				if c := at.FieldByName("ErrorCode"); c.IsValid() {
					code[name] = int16(c.Int())
				}
				if m := at.FieldByName("ErrorMessage"); m.IsValid() && !m.IsNil() {
					message[name] = m.Elem().String()
				}
			}
			return []string{name}
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				names = append(names, topicsIn(v.Field(i), code, message)...)
			}
		}
	}
	return names
}

func TestReadOnlyMirrorsAreRefusedTopicByTopic(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	for _, c := range changes() {
		for v := c.versions[0]; v <= c.versions[1]; v++ {
			t.Run(fmt.Sprintf("%s/v%d", nameOf(c.key), v), func(t *testing.T) {
				req := c.request(v, []string{"plain", "held", "done", "old"})
				req.SetVersion(v)
				d := askFor(h, req)
				seen := forwarded(t, d, req)
				require.Equal(t, []string{"plain", "done"}, names(c, seen))

				answer := c.answer(v, []string{"plain", "done"})
				answer.SetVersion(v)
				_, err := d.Rewrite(responseFrame(c.key, v, answer.AppendTo(nil)))
				require.Error(t, err, "before the answer about rights")
				d.Asked(rightsAnswer(t, d.Ask, allOperations))
				out, err := d.Rewrite(responseFrame(c.key, v, answer.AppendTo(nil)))
				require.NoError(t, err)
				require.NotContains(t, string(out), "upstream")
				checkRefused(t, c, v, decodeResponse(t, out, answer), []string{"plain", "done"}, []string{"held", "old"}, 44)

				d = askFor(h, versioned(c.request(v, []string{"old", "held"}), v))
				checkRefused(t, c, v, decodeResponse(t, refusedWhole(t, d, allOperations), answer), nil, []string{"held", "old"}, 44)

				req = versioned(c.request(v, []string{"plain", "done"}), v)
				d = askFor(h, req)
				require.Equal(t, requestFrame(c.key, v, req.AppendTo(nil)), d.Forward, "nothing to refuse")
			})
		}
	}
}

func versioned[R kmsg.Request](req R, v int16) R { req.SetVersion(v); return req }

func names(c changing, req kmsg.Request) []string {
	if c.seen != nil {
		return c.seen(req)
	}
	return topicsIn(reflect.ValueOf(req), map[string]int16{}, map[string]string{})
}

// rightsAnswer answers what the gateway asks for the client: it has these rights on all topics, none if negative.
func rightsAnswer(t *testing.T, ask kmsg.Request, operations int32) []byte {
	t.Helper()
	require.IsType(t, &kmsg.MetadataRequest{}, ask)
	req := ask.(*kmsg.MetadataRequest)
	require.True(t, req.IncludeTopicAuthorizedOperations)
	require.False(t, req.AllowAutoTopicCreation)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	for _, asked := range req.Topics {
		topic := kmsg.NewMetadataResponseTopic()
		if topic.Topic, topic.AuthorizedOperations = asked.Topic, operations; operations < 0 {
			topic.ErrorCode, topic.AuthorizedOperations = kerr.TopicAuthorizationFailed.Code, 0
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return responseFrame(3, req.Version, resp.AppendTo(nil))
}

// refusedWhole returns the response to a request of which nothing is left for the destination: it is asked about the
// client's rights instead.
func refusedWhole(t *testing.T, d proxy.Decision, operations int32) []byte {
	t.Helper()
	require.Nil(t, d.Ask)
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 12
	at, err := requestBodyAt(d.Forward, true)
	require.NoError(t, err)
	require.Equal(t, append([]byte{0, 3, 0, 12, 0, 0, 0, 77, 0, 3}, "cli\x00"...), d.Forward[:at], "header: the client's own")
	require.NoError(t, req.ReadFrom(d.Forward[at:]))
	out, err := d.Rewrite(rightsAnswer(t, req, operations))
	require.NoError(t, err)
	return out
}

// TestRefusalsWithoutRights: a client that may not change a topic gets the destination's error, not the gateway's.
func TestRefusalsWithoutRights(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	for _, c := range changes() {
		v := c.versions[1]
		all := versioned(c.request(v, []string{"held", "old"}), v)
		like := c.answer(v, nil)
		like.SetVersion(v)
		need := int32(1) << changeNeeds[c.key]
		for _, operations := range []int32{-1, 0, allOperations &^ need} {
			d := askFor(h, all)
			checkRefused(t, c, v, decodeResponse(t, refusedWhole(t, d, operations), like), nil, []string{"held", "old"}, 29)

			d = askFor(h, versioned(c.request(v, []string{"held", "plain"}), v))
			d.Asked(rightsAnswer(t, d.Ask, operations))
			answer := c.answer(v, []string{"plain"})
			answer.SetVersion(v)
			out, err := d.Rewrite(responseFrame(c.key, v, answer.AppendTo(nil)))
			require.NoError(t, err)
			checkRefused(t, c, v, decodeResponse(t, out, answer), []string{"plain"}, []string{"held"}, 29)
		}
		checkRefused(t, c, v, decodeResponse(t, refusedWhole(t, askFor(h, all), need), like), nil, []string{"held", "old"}, 44)
	}
}

func checkRefused(t *testing.T, c changing, v int16, resp kmsg.Response, accepted, refused []string, code int16) {
	codes, messages := map[string]int16{}, map[string]string{}
	all := topicsIn(reflect.ValueOf(resp), codes, messages)
	slices.Sort(all)
	want := append(slices.Clone(accepted), refused...)
	slices.Sort(want)
	require.Equal(t, want, all)
	for _, name := range accepted {
		require.Zero(t, codes[name], name)
	}
	for _, name := range refused {
		require.Equal(t, code, codes[name], name)
		if code == 44 && c.message >= 0 && v >= c.message {
			require.Contains(t, messages[name], "read-only mirror")
		}
	}
}

func TestProduceByTopicID(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 13, 1
	for _, id := range [][16]byte{sourceID(0), sourceID(1), destinationID(2), {42}, destinationID(0)} {
		req.Topics = append(req.Topics, kmsg.ProduceRequestTopic{
			TopicID: id, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: 1, Records: []byte("x")}},
		})
	}
	d := askFor(h, req)
	seen := forwarded(t, d, req)
	require.Len(t, seen.Topics, 2)
	require.Equal(t, destinationID(1), seen.Topics[0].TopicID)
	require.Equal(t, [16]byte{42}, seen.Topics[1].TopicID)
	d.Asked(rightsAnswer(t, d.Ask, allOperations))

	answer := kmsg.NewPtrProduceResponse()
	answer.Version = 13
	answer.Topics = []kmsg.ProduceResponseTopic{{TopicID: destinationID(1)}, {TopicID: [16]byte{42}}}
	out, err := d.Rewrite(responseFrame(0, 13, answer.AppendTo(nil)))
	require.NoError(t, err)
	var ids [][16]byte
	for _, topic := range decodeResponse(t, out, answer).Topics {
		ids = append(ids, topic.TopicID)
		for _, p := range topic.Partitions {
			require.Equal(t, []int64{44, -1, -1, -1}, []int64{int64(p.ErrorCode), p.BaseOffset, p.LogAppendTime, p.LogStartOffset})
		}
	}
	require.Equal(t, [][16]byte{sourceID(1), {42}, sourceID(0), destinationID(2), destinationID(0)}, ids, "as the client named them")
}

func TestProduceWithoutAcks(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	for v := range int16(13) {
		req := kmsg.NewPtrProduceRequest()
		req.Version, req.Acks = v, 0
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: "plain"}}
		d := askFor(h, req)
		require.True(t, d.NoResponse, "v%d", v)
		require.NotNil(t, d.Forward)
		require.Nil(t, d.Rewrite)
		req.Topics = append(req.Topics, kmsg.ProduceRequestTopic{Topic: "held"})
		d = askFor(h, req)
		require.ErrorContains(t, d.Close, "acks=0")
		require.Nil(t, d.Forward)
		require.Nil(t, d.Answer)
		req.Acks = 1
		require.False(t, askFor(h, req).NoResponse)
	}
}

func TestDeleteTopicsByID(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version = 6
	for _, id := range [][16]byte{sourceID(0), sourceID(1), destinationID(2), {42}} {
		req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{TopicID: id})
	}
	d := askFor(h, req)
	seen := forwarded(t, d, req)
	require.Equal(t, [][16]byte{destinationID(1), {42}}, [][16]byte{seen.Topics[0].TopicID, seen.Topics[1].TopicID})
	require.Len(t, seen.Topics, 2)
}
