package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/mirrorgate/mirrorgate/broker"
	"github.com/mirrorgate/mirrorgate/handlers/mirrormsg"
)

// gatewayClient sends mirror RPCs to a gateway.
type gatewayClient struct {
	client  *kgo.Client
	keys    map[int16]int16 // default key to the gateway's
	timeout time.Duration   // of one answer
}

// connect reaches the gateway, and makes sure that it is one.
func (f *gatewayFlags) connect(ctx context.Context) (*gatewayClient, error) {
	if f.bootstrap == "" {
		return nil, usagef("--bootstrap-server is missing; give the gateway's host:port")
	}
	if f.requestTimeout < time.Millisecond || f.requestTimeout > 24*time.Hour {
		return nil, usagef("--request-timeout must be between 1ms and 24h")
	}
	keys, err := f.keyTable()
	if err != nil {
		return nil, err
	}
	cfg, err := clientConfig("--command-config", f.commandConfig, f.bootstrap)
	if err != nil {
		return nil, err
	}
	var moved []int16
	for _, key := range keys {
		moved = append(moved, key)
	}
	client, err := kgo.NewClient(append(cfg.KgoOptions(), kgo.MaxVersions(mirrormsg.Versions(moved...)), kgo.RequestRetries(2))...)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", f.bootstrap, err)
	}
	g := &gatewayClient{client: client, keys: keys, timeout: f.requestTimeout}
	if err := g.greet(ctx, f.bootstrap); err != nil {
		client.Close()
		return nil, err
	}
	return g, nil
}

// close gives up the connections.
func (g *gatewayClient) close() { g.client.Close() }

// greet makes sure that a gateway is at the other end, so that anything else gets a useful word.
func (g *gatewayClient) greet(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, g.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("reaching the gateway at %s: %w; check --bootstrap-server and --command-config", addr, err)
	}
	key := g.keys[mirrormsg.DescribeMirrorsKey]
	if !slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == key }) {
		return fmt.Errorf("what answers at %s is not a Mirrorgate gateway: it does not offer DescribeMirrors (API key %d); "+
			"point --bootstrap-server at the gateway, or give --api-keys if its configuration moves the key", addr, key)
	}
	return nil
}

// ask sends a mirror RPC under the gateway's key for it.
func ask[R kmsg.Response](ctx context.Context, g *gatewayClient, req kmsg.Request) (R, error) {
	if t, ok := req.(kmsg.SetTimeoutRequest); ok {
		t.SetTimeout(int32(g.timeout.Milliseconds()))
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout+requestGrace)
	defer cancel()
	return answerOf[R](ctx, g, mirrormsg.WithKey(req, g.keys[req.Key()]), mirrormsg.Name(req.Key()))
}

// askKafka sends a request that Kafka has too.
func askKafka[R kmsg.Response](ctx context.Context, g *gatewayClient, req kmsg.Request) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, g.timeout+requestGrace)
	defer cancel()
	return answerOf[R](ctx, g, req, kmsg.NameForKey(req.Key()))
}

func answerOf[R kmsg.Response](ctx context.Context, g *gatewayClient, req kmsg.Request, name string) (R, error) {
	var none R
	resp, err := g.client.Request(ctx, req)
	if errors.Is(err, context.DeadlineExceeded) {
		return none, fmt.Errorf("the gateway did not answer %s within %s; it goes on with it, and --request-timeout waits longer",
			name, g.timeout)
	}
	if err != nil {
		return none, fmt.Errorf("asking the gateway: %w", err)
	}
	typed, ok := resp.(R)
	if !ok {
		return none, fmt.Errorf("asking the gateway: the response is a %T", resp)
	}
	return typed, nil
}

// requestGrace is what connecting may take beside an answer.
const requestGrace = 10 * time.Second

// clientConfig reads a file of Kafka client properties, if there is one. bootstrap, if not empty, counts before the
// file's. Properties that do not concern the connection are passed over, as such files are shared between tools.
func clientConfig(flag, file, bootstrap string) (broker.Config, error) {
	props := map[string]string{}
	if file != "" {
		var err error
		if props, err = broker.ReadPropertiesFile(file); err != nil {
			return broker.Config{}, fmt.Errorf("%s: %w", flag, err)
		}
	}
	if bootstrap != "" {
		props["bootstrap.servers"] = bootstrap
	}
	return clientConfigOf(flag, props)
}

func clientConfigOf(flag string, props map[string]string) (broker.Config, error) {
	cfg, err := broker.ParseProperties(props, func(key string) bool {
		return !slices.ContainsFunc([]string{"security.", "sasl.", "ssl."}, func(p string) bool { return strings.HasPrefix(key, p) })
	})
	var bad *broker.PropertyError
	if errors.As(err, &bad) && bad.Key == "bootstrap.servers" && flag == "--command-config" {
		return broker.Config{}, usagef("--bootstrap-server: %s", bad.Reason)
	}
	if err != nil {
		return broker.Config{}, fmt.Errorf("%s: %w", flag, err)
	}
	return cfg, nil
}

// answerError is what a gateway answered instead of doing it.
type answerError struct {
	Code    int16  `json:"code"`
	Name    string `json:"name"`
	Message string `json:"message"`
}

// Error returns the name of the code and the message.
func (e *answerError) Error() string { return e.Name + ": " + e.Message }

// answered returns the error of a response, nil for code 0. A message that the response does not have is Kafka's own
// description of the code.
func answered(code int16, message *string) error {
	if e := newAnswerError(code, message); e != nil {
		return e
	}
	return nil
}

func newAnswerError(code int16, message *string) *answerError {
	if code == 0 {
		return nil
	}
	e := &answerError{Code: code, Name: fmt.Sprintf("error %d", code), Message: "Kafka has no such error code"}
	if known := kerr.TypedErrorForCode(code); known.Code == code {
		e.Name, e.Message = known.Message, known.Description
	}
	switch {
	case message != nil && *message != "":
		e.Message = *message
	case code == kerr.ClusterAuthorizationFailed.Code: // only of the commands that look: the others have messages
		e.Message = "this needs DESCRIBE on the destination cluster; an ACL there can give it to the user of --command-config"
	}
	return e
}
