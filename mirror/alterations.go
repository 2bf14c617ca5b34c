package mirror

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// alterations gathers changes of the settings of topics: while a request is on its way, further ones wait for the next, which
// takes them all. A cluster works off such requests one by one, each with a write of its controller; so hundreds of topics
// that stop at a time, as at a failover, would wait for each other.
type alterations struct {
	client *kgo.Client
	turn   chan struct{} // held by whoever sends

	mu      sync.Mutex
	waiting []*alteration // guarded by mu
}

type alteration struct {
	topic   string
	configs []kmsg.IncrementalAlterConfigsRequestResourceConfig
	done    chan error // has room for the answer
}

const (
	alterAtOnce  = 200
	alterTimeout = 30 * time.Second
)

func newAlterations(client *kgo.Client) *alterations {
	return &alterations{client: client, turn: make(chan struct{}, 1)}
}

// alter changes settings of one topic. life is that of all who wait: the request of one serves the others, too.
func (s *alterations) alter(ctx, life context.Context, topic string, configs []kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	a := &alteration{topic: topic, configs: configs, done: make(chan error, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, a)
	s.mu.Unlock()
	for {
		select {
		case err := <-a.done:
			return err
		case s.turn <- struct{}{}:
			if batch := s.take(); len(batch) > 0 {
				s.send(life, batch)
			}
			<-s.turn
		case <-ctx.Done():
			s.mu.Lock()
			defer s.mu.Unlock()
			s.waiting = slices.DeleteFunc(s.waiting, func(other *alteration) bool { return other == a })
			return ctx.Err()
		}
	}
}

// take takes what waits, but each topic once, as a request may not name one twice.
func (s *alterations) take() (batch []*alteration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	named := make(map[string]bool)
	s.waiting = slices.DeleteFunc(s.waiting, func(a *alteration) bool {
		if named[a.topic] || len(batch) == alterAtOnce {
			return false
		}
		named[a.topic] = true
		batch = append(batch, a)
		return true
	})
	return batch
}

func (s *alterations) send(ctx context.Context, batch []*alteration) {
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	for _, a := range batch {
		resource := kmsg.NewIncrementalAlterConfigsRequestResource()
		resource.ResourceType, resource.ResourceName, resource.Configs = kmsg.ConfigResourceTypeTopic, a.topic, a.configs
		req.Resources = append(req.Resources, resource)
	}
	resp, err := req.RequestWith(ctx, s.client)
	answers := make(map[string]error, len(batch))
	if err == nil {
		for _, r := range resp.Resources {
			answers[r.ResourceName] = kafkaError(r.ErrorCode, r.ErrorMessage)
		}
	}
	for _, a := range batch {
		answer, ok := answers[a.topic]
		switch {
		case err != nil:
			answer = err
		case !ok:
			answer = fmt.Errorf("the answer to IncrementalAlterConfigs is not about topic %s", a.topic)
		}
		a.done <- answer
	}
}
