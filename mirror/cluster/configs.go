package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopicConfigs asks for the configs of topics. What cannot be read of one is in its Err. (kadm would give no answer at all
// if one of them is refused.)
func TopicConfigs(ctx context.Context, client *kgo.Client, topics []string) (map[string]kadm.ResourceConfig, error) {
	configs := make(map[string]kadm.ResourceConfig, len(topics))
	if len(topics) == 0 {
		return configs, nil // no resources would be a request for nothing
	}
	req := kmsg.NewPtrDescribeConfigsRequest()
	for _, topic := range topics {
		configs[topic] = kadm.ResourceConfig{Name: topic, Err: errors.New("no answer")}
		resource := kmsg.NewDescribeConfigsRequestResource()
		resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		req.Resources = append(req.Resources, resource)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("ask for topic configs: %w", err)
	}
	for _, r := range resp.Resources {
		found := kadm.ResourceConfig{Name: r.ResourceName, Err: kerr.ErrorForCode(r.ErrorCode)}
		if r.ErrorMessage != nil {
			found.ErrMessage = *r.ErrorMessage
		}
		for _, c := range r.Configs {
			found.Configs = append(found.Configs, kadm.Config{Key: c.Name, Value: c.Value, Sensitive: c.IsSensitive, Source: c.Source})
		}
		configs[r.ResourceName] = found
	}
	return configs, nil
}

// TopicConfig asks for the configs of one topic.
func TopicConfig(ctx context.Context, client *kgo.Client, topic string) ([]kadm.Config, error) {
	configs, err := TopicConfigs(ctx, client, []string{topic})
	if err != nil {
		return nil, err
	}
	return configs[topic].Configs, configs[topic].Err
}
