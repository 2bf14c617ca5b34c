package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
	"github.com/mirrorgate/mirrorgate/mirror/cluster"
)

// contactSource connects to the first source broker that answers and returns the cluster's ID, "" for a cluster too old
// to have one. The refusal says what is wrong and which setting mends it:
//
//	SASL_AUTHENTICATION_FAILED   the source refuses the credentials or the mechanism
//	BROKER_NOT_AVAILABLE         nobody answers at bootstrap.servers
//	INVALID_REQUEST              the source is the destination (a loop)
func (m *Manager) contactSource(ctx context.Context, config Config) (clusterID string, refusal *Error) {
	source, err := config.Source()
	if err != nil {
		return "", Refuse(kerr.InvalidConfig, "%s", err)
	}
	ctx, cancel := context.WithTimeout(ctx, contactTimeout)
	defer cancel()
	var errs []error
	for i, addr := range source.Bootstrap {
		clusterID, err := contactBroker(ctx, addr, source, contactTimeout/time.Duration(min(2, len(source.Bootstrap)-i)))
		if err == nil {
			return clusterID, m.checkLoop(ctx, clusterID)
		}
		errs = append(errs, err)
		var auth *broker.AuthenticationError
		if errors.As(err, &auth) {
			return "", Refuse(kerr.SaslAuthenticationFailed, "the source refuses the gateway: %s; check sasl.mechanism and sasl.jaas.config", err)
		}
	}
	return "", Refuse(kerr.BrokerNotAvailable, "the source cannot be reached from the gateway: %s; check bootstrap.servers and security.protocol",
		strings.ReplaceAll(errors.Join(errs...).Error(), "\n", "; "))
}

// checkLoop refuses a source that is the destination, directly or through a gateway.
func (m *Manager) checkLoop(ctx context.Context, sourceID string) *Error {
	destinationID, err := m.destinationClusterID(ctx)
	if err != nil {
		return Refuse(kerr.BrokerNotAvailable, "the destination does not answer the gateway: %s", err)
	}
	if sourceID != "" && sourceID == destinationID {
		return Refuse(kerr.InvalidRequest, "the source is the destination cluster itself (cluster ID %s): this would be a loop; "+
			"bootstrap.servers must name another cluster", sourceID)
	}
	return nil
}

func contactBroker(ctx context.Context, addr string, config broker.Config, timeout time.Duration) (clusterID string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := broker.Dial(ctx, addr, config)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none
	if err := conn.SetVersion(req, 12); err != nil {
		return "", err
	}
	kresp, err := conn.Request(ctx, req)
	if err != nil {
		return "", fmt.Errorf("metadata of %s: %w", addr, err)
	}
	if id := kresp.(*kmsg.MetadataResponse).ClusterID; id != nil {
		clusterID = *id
	}
	return clusterID, nil
}

// destinationClusterID asks once; a cluster does not change its ID.
func (m *Manager) destinationClusterID(ctx context.Context) (string, error) {
	if id := m.destinationID.Load(); id != nil {
		return *id, nil
	}
	_, id, err := cluster.DescribeTopics(ctx, m.cfg.Destination)
	if err != nil {
		return "", err
	}
	m.destinationID.Store(&id)
	return id, nil
}

// connectSource makes the admin client of a source without contacting it.
func (m *Manager) connectSource(config Config) (*kgo.Client, error) {
	if m.cfg.ConnectSource != nil {
		return m.cfg.ConnectSource(config, sourceOptions()...)
	}
	source, err := config.Source()
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(source.KgoOptions(), sourceOptions()...)...)
}

// sourceOptions are for the admin client of a source: a source that is away must not hold up an answer for long.
func sourceOptions() []kgo.Opt {
	return []kgo.Opt{
		kgo.RetryTimeout(contactTimeout),
		kgo.RequestRetries(5),
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.ConnIdleTimeout(2 * time.Minute),
		kgo.MaxVersions(mirrormsg.Versions()), // the source can be a gateway
	}
}
