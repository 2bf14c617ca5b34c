package handlers

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror"
	"github.com/mirrorgate/mirrorgate/proxy"
)

// CreateTopics v8 (KIP-1279) can give a topic its ID, by MirrorInfo. No destination speaks it: the gateway keeps the ID,
// creates the topic with v7 over the client's own connection, so that the destination's ACLs and quotas hold, and shows
// the ID given from then on. Versions up to 7 pass through.
//
//	TOPIC_ALREADY_EXISTS        another topic has the ID, real or mirrored; or the name is taken
//	INVALID_REPLICA_ASSIGNMENT  a topic with an ID is assigned to a broker that is fenced or not there. (KAFKA-16234: a
//	                            log directory of a deleted topic with the same ID must not come back to life. A broker
//	                            that shuts down in a controlled way is shown as active by DescribeCluster until it is
//	                            fenced; the controller itself refuses an assignment to such brokers alone.)
//	INVALID_REQUEST             a topic is named twice
//
// MirrorInfo without a place in the KIP's text is taken for the last field of a topic; see mirrormsg.CreateTopicsRequest.

const (
	keyCreateTopics = int16(kmsg.CreateTopics)
	// settleTimeout bounds what follows the creation of a topic and must not be given up with the client.
	settleTimeout = 30 * time.Second
)

func init() {
	register(keyCreateTopics, entry{
		max: mirrormsg.CreateTopicsVersion,
		whole: func(_ *Handlers, _ *mirror.Topics, version int16) bool {
			return version >= mirrormsg.CreateTopicsVersion
		},
		request: (*Handlers).createTopics,
	})
}

func (h *Handlers) createTopics(r *request) proxy.Decision {
	req := mirrormsg.NewPtrCreateTopicsRequest()
	if err := decode(req, r.Version, r.body()); err != nil {
		return proxy.Decision{Close: err}
	}
	hd, client := r.Header, r.client
	return proxy.Decision{Work: func(ctx context.Context, up proxy.Upstream) ([]byte, error) {
		resp, err := h.createTopicsWork(ctx, up, req)
		if err != nil {
			return nil, h.fail(client, h.entries[keyCreateTopics], hd, err)
		}
		resp.Version = req.Version
		return encodeResponse(hd.CorrelationID, resp), nil
	}}
}

// topicCreation is one topic of a CreateTopics request on its way.
type topicCreation struct {
	*mirrormsg.CreateTopicsRequestTopic
	// id is the ID given, zero for an ordinary topic.
	id       mirror.TopicID
	refused  *mirror.Error
	reserved bool
}

func (c *topicCreation) hasID() bool { return c.id != (mirror.TopicID{}) }

func (h *Handlers) createTopicsWork(ctx context.Context, up proxy.Upstream, req *mirrormsg.CreateTopicsRequest) (*kmsg.CreateTopicsResponse, error) {
	creations := newCreations(req)
	if slices.ContainsFunc(creations, (*topicCreation).hasID) {
		select {
		case h.creating <- struct{}{}:
			defer func() { <-h.creating }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := h.checkCreations(ctx, up, creations); err != nil {
		return nil, err
	}
	if !req.ValidateOnly {
		for _, c := range creations {
			h.reserve(ctx, c)
		}
	}
	created, err := forwardCreations(ctx, up, req, creations)
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if err != nil {
		for _, c := range creations {
			h.release(settle, c)
		}
		return nil, err
	}
	return h.mergeCreations(settle, req, creations, created), nil
}

// newCreations returns the topics of req, those that are named twice once and refused.
func newCreations(req *mirrormsg.CreateTopicsRequest) []*topicCreation {
	var creations []*topicCreation
	byName := make(map[string]*topicCreation, len(req.Topics))
	byID := make(map[mirror.TopicID]bool)
	for i := range req.Topics {
		c := &topicCreation{CreateTopicsRequestTopic: &req.Topics[i]}
		if c.MirrorInfo != nil {
			c.id = c.MirrorInfo.TopicID
		}
		if first := byName[c.Topic]; first != nil {
			first.refused = mirror.Refuse(kerr.InvalidRequest, "the topic is named twice in the request")
			continue
		}
		if c.hasID() && byID[c.id] {
			c.refused = mirror.Refuse(kerr.TopicAlreadyExists, "another topic of the request has the topic ID %x", c.id)
		}
		byID[c.id], byName[c.Topic] = true, c
		creations = append(creations, c)
	}
	return creations
}

// checkCreations refuses the topics whose ID or name is taken, or whose replicas are not active.
func (h *Handlers) checkCreations(ctx context.Context, up proxy.Upstream, creations []*topicCreation) error {
	var withID, assigned []*topicCreation
	for _, c := range creations {
		if !c.hasID() || c.refused != nil {
			continue
		}
		withID = append(withID, c)
		if len(c.ReplicaAssignment) > 0 {
			assigned = append(assigned, c)
		}
	}
	if len(withID) == 0 {
		return nil
	}
	if err := h.checkNames(ctx, up, withID); err != nil {
		return err
	}
	if err := h.checkIDs(ctx, up, withID); err != nil {
		return err
	}
	if len(assigned) == 0 {
		return nil
	}
	return checkReplicas(ctx, up, assigned)
}

// checkNames refuses topics that exist: nothing must be reserved for them. (A name that the client may not describe goes
// on; the destination refuses its creation.)
func (h *Handlers) checkNames(ctx context.Context, up proxy.Upstream, creations []*topicCreation) error {
	req := metadataRequest()
	for _, c := range creations {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &c.Topic
		req.Topics = append(req.Topics, topic)
	}
	resp, err := roundTrip[*kmsg.MetadataResponse](ctx, up, req)
	if err != nil {
		return err
	}
	for _, c := range creations {
		if known := h.engine.Topics().ByName(c.Topic); known != nil && known.Mirror != "" && known.ReadOnly {
			c.refused = mirror.Refuse(kerr.TopicAlreadyExists, "topic %s belongs to mirror %s", c.Topic, known.Mirror)
		}
		for _, topic := range resp.Topics {
			if topic.Topic != nil && *topic.Topic == c.Topic && topic.ErrorCode == 0 {
				c.refused = mirror.Refuse(kerr.TopicAlreadyExists, "topic %s already exists", c.Topic)
			}
		}
	}
	return nil
}

// checkIDs refuses topics whose ID another topic has. An ID that the client may not ask about is taken as well.
func (h *Handlers) checkIDs(ctx context.Context, up proxy.Upstream, creations []*topicCreation) error {
	req := metadataRequest()
	for _, c := range creations {
		topic := kmsg.NewMetadataRequestTopic()
		topic.TopicID = c.id
		req.Topics = append(req.Topics, topic)
	}
	resp, err := roundTrip[*kmsg.MetadataResponse](ctx, up, req)
	if err != nil {
		return err
	}
	free := make(map[mirror.TopicID]bool, len(creations))
	for _, topic := range resp.Topics {
		free[topic.TopicID] = topic.ErrorCode == kerr.UnknownTopicID.Code
	}
	topics := h.engine.Topics()
	for _, c := range creations {
		taken := topics.BySourceID(c.id)
		if c.refused == nil && (!free[c.id] || taken != nil && taken.Name != c.Topic) {
			c.refused = mirror.Refuse(kerr.TopicAlreadyExists, "another topic has the topic ID %x; give another one, or none", c.id)
		}
	}
	return nil
}

// checkReplicas refuses topics that are assigned to brokers that are not active.
func checkReplicas(ctx context.Context, up proxy.Upstream, creations []*topicCreation) error {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.Version, req.IncludeFencedBrokers = 2, true
	resp, err := roundTrip[*kmsg.DescribeClusterResponse](ctx, up, req)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	brokers := make(map[int32]string, len(resp.Brokers))
	for _, broker := range resp.Brokers {
		brokers[broker.NodeID] = "active"
		if broker.IsFenced {
			brokers[broker.NodeID] = "fenced"
		}
	}
	for _, c := range creations {
		for _, p := range c.ReplicaAssignment {
			for _, id := range p.Replicas {
				state, ok := brokers[id]
				if !ok {
					state = "not registered"
				}
				if c.refused == nil && state != "active" {
					c.refused = mirror.Refuse(kerr.InvalidReplicaAssignment,
						"partition %d is assigned to broker %d, which is %s; a topic with a given ID needs active brokers", p.Partition, id, state)
				}
			}
		}
	}
	return nil
}

// reserve takes the ID of a creation.
func (h *Handlers) reserve(ctx context.Context, c *topicCreation) {
	if !c.hasID() || c.refused != nil {
		return
	}
	c.refused = h.refusal("CreateTopics", "", h.engine.ReserveTopicID(ctx, c.Topic, c.id))
	c.reserved = c.refused == nil
}

// release gives up the reservation of a creation that failed.
func (h *Handlers) release(ctx context.Context, c *topicCreation) {
	if !c.reserved {
		return
	}
	c.reserved = false
	if err := h.engine.ReleaseTopicID(ctx, c.Topic); err != nil {
		h.log.Error("topic ID not released", zap.String("topic", c.Topic), zap.Error(err))
	}
}

// forwardCreations sends those topics to the destination that are not refused, and returns its answers by name.
func forwardCreations(ctx context.Context, up proxy.Upstream, req *mirrormsg.CreateTopicsRequest, creations []*topicCreation) (*kmsg.CreateTopicsResponse, error) {
	forward := req.Ordinary()
	forward.Topics = nil
	for _, c := range creations {
		if c.refused == nil {
			forward.Topics = append(forward.Topics, c.CreateTopicsRequestTopic.CreateTopicsRequestTopic)
		}
	}
	if len(forward.Topics) == 0 {
		return kmsg.NewPtrCreateTopicsResponse(), nil
	}
	return roundTrip[*kmsg.CreateTopicsResponse](ctx, up, forward)
}

// mergeCreations answers for all topics, in the order of the request, and settles their reservations.
func (h *Handlers) mergeCreations(ctx context.Context, req *mirrormsg.CreateTopicsRequest, creations []*topicCreation, created *kmsg.CreateTopicsResponse) *kmsg.CreateTopicsResponse {
	resp := kmsg.NewPtrCreateTopicsResponse()
	resp.ThrottleMillis, resp.UnknownTags = created.ThrottleMillis, created.UnknownTags
	for _, c := range creations {
		answer := refusedCreation(c)
		if c.refused == nil {
			at := slices.IndexFunc(created.Topics, func(t kmsg.CreateTopicsResponseTopic) bool { return t.Topic == c.Topic })
			if at < 0 {
				c.refused = mirror.Refuse(kerr.UnknownServerError, "the destination did not answer for the topic")
				answer = refusedCreation(c)
			} else {
				answer = h.settleCreation(ctx, c, created.Topics[at], req.ValidateOnly)
			}
		}
		h.release(ctx, c) // does nothing for those that were created
		resp.Topics = append(resp.Topics, answer)
	}
	return resp
}

// settleCreation makes the reservation of a created topic lasting, and shows the ID given.
func (h *Handlers) settleCreation(ctx context.Context, c *topicCreation, answer kmsg.CreateTopicsResponseTopic, validateOnly bool) kmsg.CreateTopicsResponseTopic {
	if !c.hasID() {
		return answer
	}
	if err := kerr.TypedErrorForCode(answer.ErrorCode); err != nil {
		c.refused = mirror.Refuse(err, "") // the destination's own words go to the client
		return answer
	}
	if validateOnly {
		return answer // as a broker: no ID, for there is no topic
	}
	c.reserved = false
	if err := h.engine.ConfirmTopicID(ctx, c.Topic, answer.TopicID); err != nil {
		h.refusal("CreateTopics", "", err)
		c.refused = mirror.Refuse(kerr.UnknownServerError, "the topic was created, but its ID could not be kept: delete it and try again")
		return refusedCreation(c)
	}
	answer.TopicID = c.id
	return answer
}

func refusedCreation(c *topicCreation) kmsg.CreateTopicsResponseTopic {
	answer := kmsg.NewCreateTopicsResponseTopic()
	answer.Topic, answer.ErrorCode, answer.ErrorMessage = c.Topic, codeOf(c.refused), messageOf(c.refused)
	return answer
}
