package handlers

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestSettingsHeldForMirroring(t *testing.T) {
	h, _ := newStubHandlers(t, someTopics())
	for name, refused := range map[string]bool{
		"compression.type": true, "message.timestamp.type": true, "message.timestamp.after.max.ms": true, "max.message.bytes": true,
		"cleanup.policy": true, "retention.ms": false, "min.insync.replicas": false,
	} {
		req := kmsg.NewPtrIncrementalAlterConfigsRequest()
		req.Version = 1
		req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{
			ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "held",
			Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: name}},
		}}
		d := askFor(h, req)
		require.Equal(t, refused, d.Forward[1] != 44, name)
		if refused {
			resp := decodeResponse(t, refusedWhole(t, d, allOperations), req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse))
			require.Equal(t, kerr.PolicyViolation.Code, resp.Resources[0].ErrorCode)
			require.Contains(t, *resp.Resources[0].ErrorMessage, name+" is held while mirroring")
		}
		req.Resources[0].ResourceType = kmsg.ConfigResourceTypeBroker // a broker of that name is another thing
		require.Equal(t, byte(44), askFor(h, req).Forward[1])
	}
}

func TestBrokerConfigsShowNoAddress(t *testing.T) {
	h, _ := newStubHandlers(t, writableTopics())
	for v := range int16(5) {
		resp := kmsg.NewPtrDescribeConfigsResponse()
		resp.Version = v
		value := kmsg.StringPtr("PLAINTEXT://upstream-1:30001")
		broker := kmsg.DescribeConfigsResponseResource{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1", UnknownTags: someTags()}
		for _, name := range []string{"advertised.listeners", "listeners", "controller.quorum.voters", "controller.quorum.bootstrap.servers", "zookeeper.connect"} {
			config := kmsg.NewDescribeConfigsResponseResourceConfig()
			config.Name, config.Value, config.UnknownTags = name, value, someTags()
			config.ConfigSynonyms = []kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{{Name: name, Value: value}}
			broker.Configs = append(broker.Configs, config)
		}
		threads := kmsg.NewDescribeConfigsResponseResourceConfig()
		threads.Name, threads.Value = "num.io.threads", kmsg.StringPtr("8")
		broker.Configs = append(broker.Configs, threads)
		topic := kmsg.DescribeConfigsResponseResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "listeners"}
		resp.Resources = append(resp.Resources, broker, topic)

		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version = v
		req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1"}}
		out, err := askFor(h, req).Rewrite(responseFrame(32, v, resp.AppendTo(nil)))
		require.NoError(t, err)
		require.NotContains(t, string(out), "upstream")
		got := decodeResponse(t, out, resp)
		require.Len(t, got.Resources[0].Configs, 6)
		require.Nil(t, got.Resources[0].Configs[0].Value)
		require.Equal(t, "8", *got.Resources[0].Configs[5].Value)
		if v == 4 {
			require.Equal(t, someTags(), got.Resources[0].UnknownTags)
		}
	}
}
