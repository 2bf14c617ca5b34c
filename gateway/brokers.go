package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/mirrorgate/mirrorgate/proxy"
)

// brokers knows the destination's brokers: where they are, and which API versions they offer.
type brokers struct {
	client *kgo.Client
	log    *zap.Logger

	addresses proxy.Addresses                                   // set by advertise
	expect    func(names ...string)                             // set before advertise
	claims    func(keys []kmsg.ApiVersionsResponseApiKey) error // set by check

	mu      sync.Mutex
	known   map[int32]address                // guarded by mu
	offers  map[int32]map[int16]versionRange // by node; guarded by mu
	common  map[int16]versionRange           // what all of them offer; guarded by mu
	looks   int                              // guarded by mu
	trouble string                           // the last one logged; guarded by mu
}

type address struct {
	host string
	port int32
}

type versionRange struct{ min, max int16 }

// versionLooks is after how many looks the versions are asked for again: brokers are upgraded in place.
const versionLooks = 6

// look asks for the brokers, and for the versions of those that are new.
func (b *brokers) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none
	resp, err := req.RequestWith(ctx, b.client)
	if err != nil {
		return err
	}
	if len(resp.Brokers) == 0 {
		return fmt.Errorf("the destination names no brokers: %w", kerr.BrokerNotAvailable)
	}
	known := make(map[int32]address, len(resp.Brokers))
	for _, broker := range resp.Brokers {
		known[broker.NodeID] = address{broker.Host, broker.Port}
	}
	b.mu.Lock()
	fresh := !maps.Equal(known, b.known) || b.looks%versionLooks == 0
	b.looks++
	b.known = known
	b.mu.Unlock()
	if fresh {
		return b.askVersions(ctx, known)
	}
	return nil
}

// askVersions asks every broker. One that is down is no obstacle as long as any answers.
func (b *brokers) askVersions(ctx context.Context, known map[int32]address) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	offers := make(map[int32]map[int16]versionRange)
	var errs []error
	for node := range known {
		wg.Go(func() {
			keys, err := askBroker(ctx, b.client.Broker(int(node)))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("API versions of broker %d: %w", node, err))
				return
			}
			offers[node] = keys
		})
	}
	wg.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for node, keys := range b.offers {
		if _, ok := known[node]; ok && offers[node] == nil {
			offers[node] = keys // down at the moment
		}
	}
	if len(offers) == 0 {
		return errors.Join(errs...)
	}
	b.offers, b.common = offers, intersect(offers)
	return nil
}

func askBroker(ctx context.Context, broker *kgo.Broker) (map[int16]versionRange, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "mirrorgate", "1"
	kresp, err := broker.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.ApiVersionsResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	keys := make(map[int16]versionRange, len(resp.ApiKeys))
	for _, k := range resp.ApiKeys {
		keys[k.ApiKey] = versionRange{k.MinVersion, k.MaxVersion}
	}
	return keys, nil
}

// intersect returns what every broker offers.
func intersect(offers map[int32]map[int16]versionRange) map[int16]versionRange {
	var common map[int16]versionRange
	for _, keys := range offers {
		if common == nil {
			common = maps.Clone(keys)
			continue
		}
		for key, have := range common {
			other, ok := keys[key]
			have.min, have.max = max(have.min, other.min), min(have.max, other.max)
			if !ok || have.min > have.max {
				delete(common, key)
				continue
			}
			common[key] = have
		}
	}
	return common
}

// versions returns what all brokers offer of an API key.
func (b *brokers) versions(key int16) (minVersion, maxVersion int16, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v, ok := b.common[key]
	return v.min, v.max, ok
}

// check refuses a destination of which any broker offers what the gateway claims for itself.
func (b *brokers) check(claims func(keys []kmsg.ApiVersionsResponseApiKey) error) error {
	b.claims = claims
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, keys := range b.offers {
		var list []kmsg.ApiVersionsResponseApiKey
		for key, v := range keys {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = key, v.min, v.max
			list = append(list, k)
		}
		if err := claims(list); err != nil {
			return err
		}
	}
	return nil
}

// advertise makes sure that every known broker has a listener and that it leads to where the broker is.
func (b *brokers) advertise(addresses proxy.Addresses) error {
	b.addresses = addresses
	b.mu.Lock()
	known := maps.Clone(b.known)
	b.mu.Unlock()
	var errs []error
	for node, at := range known {
		host, _, err := addresses.Advertise(node, at.host, at.port)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		b.expect(host)
	}
	return errors.Join(errs...)
}

// refresh looks again. Trouble is logged when it is new; clients of the brokers that are known are served on.
func (b *brokers) refresh(ctx context.Context) {
	err := b.look(ctx)
	if err == nil {
		err = errors.Join(b.advertise(b.addresses), b.check(b.claims))
	}
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	b.mu.Lock()
	news := text != b.trouble
	b.trouble = text
	b.mu.Unlock()
	switch {
	case news && err != nil:
		b.log.Warn("the destination's brokers cannot be looked up", zap.Error(err))
	case news:
		b.log.Info("the destination's brokers are known again")
	}
}
